//! The traced process: one thread, one tree, each operation many times in a copy of its own.

use std::io;

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    At, Context, Credentials, DentryRef, File, OpenFlags, RenameFlags, Result, Seek, Vfs, Walk, XattrFlags,
    introspection,
};
use serde::{Deserialize, Serialize};

use crate::{
    conflicts::HASH_KEY,
    failure::{Failure, While},
    halt::Halt,
    lackey,
};

/// Who calls: not root, so that permissions are checked and not passed over.
const UID: u32 = 1000;
/// How often each is done before it is counted. What is made when it is first needed is there then, and what was removed
/// first is being freed: it waits for some 256 guards, of which an operation takes at least one.
const WARM_UP: u32 = 256;
/// How often each is done: a multiple of 128, after which the reclaimer looks around (one time in so many guards), so
/// that each operation pays its share of that, and always the same one.
const TIMES: u32 = 128;
/// Entries in the directory that is listed.
const ENTRIES: u32 = 256;
/// What read and write move.
const PAGE: usize = 4096;

/// One operation, as it was traced.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Turn {
    pub name: String,
    /// How often it was done.
    pub times: u32,
    /// The process that did it.
    pub copy: i32,
}

/// What the operations work on.
struct Tree {
    vfs: Vfs,
    context: Context,
    file: File,
    listed: File,
    deep: DentryRef,
    page: Vec<u8>,
}

type Work = fn(&mut Tree) -> Result<()>;

/// The operations: name, work, how many of it one call does.
const OPERATIONS: [(&str, Work, u32); 14] = [
    ("stat, depth 1", stat_1, 1),
    ("stat, depth 4", stat_4, 1),
    ("open, close", open_close, 1),
    ("create, close, unlink", create_unlink, 1),
    ("mkdir, rmdir", mkdir_rmdir, 1),
    ("rename, there and back", rename_back, 1),
    ("link, unlink", link_unlink, 1),
    ("lseek SET", lseek, 1),
    ("read 4 KiB", read, 1),
    ("write 4 KiB", write, 1),
    ("readdir, each entry", readdir, ENTRIES),
    ("d_path, depth 8", d_path, 1),
    ("getxattr", getxattr, 1),
    ("setxattr", setxattr, 1),
];

/// Traces all of them; what to tell.
pub(super) fn run(halt: &Halt) -> std::result::Result<String, Failure> {
    let during = || "counting the instructions of operations".to_owned();
    let mut tree = Tree::new().during(during)?;
    let mut turns = Vec::new();
    for (name, work, each) in OPERATIONS {
        halt.check()?;
        // A listing is long, and all of it is written down, what warms up too.
        let fewer = if each > 1 { 16 } else { 1 };
        let (times, warm_up) = (TIMES / fewer, WARM_UP / fewer);
        let copy = lackey::in_marks(
            &mut tree,
            |tree| {
                let warm = (0..warm_up).try_for_each(|_| work(tree));
                (tree, warm)
            },
            |(tree, _)| (0..times).try_for_each(|_| work(tree)),
            |(_, warm), done| warm.and(done).map_err(io::Error::from),
        );
        let copy = copy.during(|| name.to_owned())?;
        turns.push(Turn { name: name.to_owned(), times: times * each, copy });
    }
    lackey::tell(turns)
}

impl Tree {
    fn new() -> Result<Self> {
        let vfs = introspection::vfs_with_hash_key(MemFs::new(MemOptions::default()), UID, UID, 0o755, HASH_KEY)?;
        let context = Context::new(&vfs, Credentials::user(UID, UID, &[]));
        let mkdir = |path: &str| vfs.mkdir(&context, At::Cwd, path, 0o755);
        let make =
            |path: &str| vfs.open(&context, At::Cwd, path, OpenFlags::RDWR | OpenFlags::CREAT | OpenFlags::EXCL, 0o644);
        make("/file")?;
        let mut path = String::new();
        for level in ["a", "b", "c", "d", "e", "f", "g"] {
            path = format!("{path}/{level}");
            mkdir(&path)?;
        }
        let deep = make("/a/b/c/d/e/f/g/deep")?.dentry().clone();
        make("/a/b/c/file")?;
        mkdir("/work")?;
        // Some neighbours, so that its table is no bare list.
        for i in 0..64 {
            make(&format!("/work/neighbour-{i}"))?;
        }
        make("/work/there")?;
        mkdir("/listed")?;
        for i in 0..ENTRIES {
            make(&format!("/listed/entry-{i}"))?;
        }
        let listed = vfs.open(&context, At::Cwd, "/listed", OpenFlags::RDONLY, 0)?;
        let file = make("/work/data")?;
        file.pwrite(&[1; PAGE], 0)?;
        vfs.setxattr(&context, At::Cwd, "/work/data", "user.name", b"value", XattrFlags::empty(), Walk::empty())?;
        Ok(Self { file, listed, deep, page: vec![1; PAGE], vfs, context })
    }
}

fn stat_1(tree: &mut Tree) -> Result<()> {
    tree.vfs.stat(&tree.context, At::Cwd, "/file", Walk::empty()).map(drop)
}

fn stat_4(tree: &mut Tree) -> Result<()> {
    tree.vfs.stat(&tree.context, At::Cwd, "/a/b/c/file", Walk::empty()).map(drop)
}

fn open_close(tree: &mut Tree) -> Result<()> {
    tree.vfs.open(&tree.context, At::Cwd, "/work/there", OpenFlags::RDONLY, 0).map(drop)
}

fn create_unlink(tree: &mut Tree) -> Result<()> {
    let flags = OpenFlags::WRONLY | OpenFlags::CREAT | OpenFlags::EXCL;
    drop(tree.vfs.open(&tree.context, At::Cwd, "/work/new", flags, 0o600)?);
    tree.vfs.unlink(&tree.context, At::Cwd, "/work/new")
}

fn mkdir_rmdir(tree: &mut Tree) -> Result<()> {
    drop(tree.vfs.mkdir(&tree.context, At::Cwd, "/work/new", 0o700)?);
    tree.vfs.rmdir(&tree.context, At::Cwd, "/work/new")
}

fn rename_back(tree: &mut Tree) -> Result<()> {
    let rename =
        |from: &str, to: &str| tree.vfs.rename(&tree.context, At::Cwd, from, At::Cwd, to, RenameFlags::empty());
    rename("/work/there", "/work/elsewhere")?;
    rename("/work/elsewhere", "/work/there")
}

fn link_unlink(tree: &mut Tree) -> Result<()> {
    drop(tree.vfs.link(&tree.context, At::Cwd, "/work/there", At::Cwd, "/work/new", Walk::empty())?);
    tree.vfs.unlink(&tree.context, At::Cwd, "/work/new")
}

fn lseek(tree: &mut Tree) -> Result<()> {
    tree.file.lseek(Seek::Set(1000)).map(drop)
}

fn read(tree: &mut Tree) -> Result<()> {
    tree.file.lseek(Seek::Set(0))?;
    tree.file.read(&mut tree.page).map(drop)
}

fn write(tree: &mut Tree) -> Result<()> {
    tree.file.lseek(Seek::Set(0))?;
    tree.file.write(&tree.page).map(drop)
}

fn readdir(tree: &mut Tree) -> Result<()> {
    tree.listed.readdir(0, |entry| {
        std::hint::black_box(entry.ino);
        true
    })
}

fn d_path(tree: &mut Tree) -> Result<()> {
    tree.vfs.d_path(&tree.context, &tree.deep, PAGE).map(drop)
}

fn getxattr(tree: &mut Tree) -> Result<()> {
    tree.vfs.getxattr(&tree.context, At::Cwd, "/work/data", "user.name", Walk::empty()).map(drop)
}

fn setxattr(tree: &mut Tree) -> Result<()> {
    let flags = XattrFlags::empty();
    tree.vfs.setxattr(&tree.context, At::Cwd, "/work/data", "user.name", b"value", flags, Walk::empty())
}
