//! The traced process: one thread, one tree, and each operation many times in its own copy of the
//! process.

use std::io;

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    At, Context, Credentials, DentryRef, File, OpenFlags, RenameFlags, Result, Seek, Vfs, VfsOptions, Walk, XattrFlags,
    introspection,
};
use serde::{Deserialize, Serialize};

use crate::{
    base::{
        cancel::Cancel,
        failure::{During, Failure},
    },
    lackey::{self, HASH_KEY},
};

/// The user of all calls. Not root, so that permissions are checked.
const UID: u32 = 1000;
/// Number of times that each operation runs before it is counted. After that, everything that is
/// allocated on first use exists, and the reclaimer has begun to free retired objects. That takes
/// some 256 guards, and an operation takes at least one.
const WARM_UP: u32 = 256;
/// Number of times that each operation is counted. It is a multiple of 128, the number of guards
/// between two checks of the reclaimer, so that each operation always includes the same share of
/// these checks.
const TIMES: u32 = 128;
/// Number of entries in the listed directory.
const ENTRIES: u32 = 256;
/// Bytes of a read or write.
const PAGE: usize = 4096;

/// One traced operation.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TracedRun {
    pub name: String,
    /// Number of times that it was done.
    pub times: u32,
    /// The process id of the copy that did it.
    pub copy: i32,
}

/// The tree and the objects that the operations use.
struct Tree {
    vfs: Vfs,
    context: Context,
    file: File,
    listed: File,
    deep: DentryRef,
    page: Vec<u8>,
}

type Work = fn(&mut Tree) -> Result<()>;

/// The operations: name, function, and the number of operations in one call.
const OPERATIONS: [(&str, Work, u32); 15] = [
    ("stat, depth 1", stat_1, 1),
    ("stat, depth 4", stat_4, 1),
    ("open, close", open_close, 1),
    ("open, close, contended", open_close_contended, 1),
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

/// Traces all operations. Returns the text to print.
pub(super) fn run(cancel: &Cancel) -> std::result::Result<String, Failure> {
    let during = || "counting the instructions of operations".to_owned();
    let mut tree = Tree::new().during(during)?;
    let mut runs = Vec::new();
    for (name, work, each) in OPERATIONS {
        cancel.check()?;
        // A listing is long, and its whole trace is written, including that of the warm-up.
        let fewer = if each > 1 { 16 } else { 1 };
        let (times, warm_up) = (TIMES / fewer, WARM_UP / fewer);
        let copy = lackey::between_marks(
            &mut tree,
            |tree| {
                let warm = (0..warm_up).try_for_each(|_| work(tree));
                (tree, warm)
            },
            |(tree, _)| (0..times).try_for_each(|_| work(tree)),
            |(_, warm), done| warm.and(done).map_err(io::Error::from),
        );
        let copy = copy.during(|| name.to_owned())?;
        runs.push(TracedRun { name: name.to_owned(), times: times * each, copy });
    }
    lackey::answer(runs)
}

impl Tree {
    fn new() -> Result<Self> {
        let vfs = introspection::vfs_with_hash_key(
            MemFs::new(MemOptions::default()),
            VfsOptions::new().owner(UID, UID),
            HASH_KEY,
        )?;
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
        // Some more entries, so that the directory has a hash table and not only a list.
        for i in 0..64 {
            make(&format!("/work/neighbour-{i}"))?;
        }
        make("/work/there")?;
        // As if several threads had opened it at once: it is counted on each CPU.
        introspection::force_per_cpu_count(&vfs, make("/work/contended")?.dentry());
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

fn open_close_contended(tree: &mut Tree) -> Result<()> {
    tree.vfs.open(&tree.context, At::Cwd, "/work/contended", OpenFlags::RDONLY, 0).map(drop)
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
