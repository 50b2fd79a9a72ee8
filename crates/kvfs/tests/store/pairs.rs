//! Each operation, and each pair of operations, on a small tree: a crash at every call of the
//! storage.

use std::{
    collections::HashSet,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::Arc,
};

use pando_kv::Embedded;
use pando_vfs::{At, Context, InodeFlags, OpenFlags, RenameFlags, Result, Vfs, Walk, XattrFlags};

use crate::{
    acl::{ACCESS, DEFAULT, acl},
    crash::{check, open},
    machine::{Image, Machine},
    support::{Rng, seed, seen},
};

const FOLLOW: Walk = Walk::empty();

struct Tree<'a> {
    vfs: &'a Vfs,
    context: &'a Context,
}

impl Tree<'_> {
    fn open(&self, path: &str, flags: OpenFlags) -> Result<pando_vfs::File> {
        self.vfs.open(self.context, At::Cwd, path, OpenFlags::RDWR | flags, 0o640)
    }

    fn write(&self, path: &str, len: usize) -> Result<()> {
        let file = self.open(path, OpenFlags::CREAT)?;
        let size = self.vfs.getattr(file.dentry())?.size;
        file.pwrite(&vec![len as u8; len], size).map(drop)
    }

    fn truncate(&self, path: &str, size: u64) -> Result<()> {
        self.open(path, OpenFlags::empty())?.truncate(size)
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Result<()> {
        self.vfs.rename(self.context, At::Cwd, from, At::Cwd, to, flags)
    }

    fn mkdir(&self, path: &str) -> Result<()> {
        self.vfs.mkdir(self.context, At::Cwd, path, 0o750).map(drop)
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        self.vfs.link(self.context, At::Cwd, from, At::Cwd, to, FOLLOW).map(drop)
    }

    fn unlink(&self, path: &str) -> Result<()> {
        self.vfs.unlink(self.context, At::Cwd, path)
    }

    fn setxattr(&self, path: &str, value: &str) -> Result<()> {
        self.vfs.setxattr(self.context, At::Cwd, path, "user.x", value, XattrFlags::empty(), FOLLOW)
    }

    fn set_acl(&self, path: &str, name: &str) -> Result<()> {
        let value = acl(0o750, 1000, 5);
        self.vfs.setxattr(self.context, At::Cwd, path, name, value, XattrFlags::empty(), FOLLOW)
    }

    fn set_flags(&self, path: &str, flags: InodeFlags) -> Result<()> {
        self.vfs.set_inode_flags(self.context, At::Cwd, path, flags, FOLLOW)
    }

    /// Appends 20,000 bytes of a file to another one.
    fn copy(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.open(from, OpenFlags::empty())?, self.open(to, OpenFlags::CREAT)?);
        let size = self.vfs.getattr(to.dentry())?.size;
        to.copy_range(size, &from, 10_000, 20_000).map(drop)
    }

    fn fsync(&self, path: &str, flags: OpenFlags) -> Result<()> {
        self.vfs.open(self.context, At::Cwd, path, flags, 0)?.fsync()
    }
}

type Operation = fn(&Tree<'_>) -> Result<()>;

/// The tree before: `/A/foo`, small; `/bar`, large, with a second name `/A/bar`; `/B`, empty.
fn prepare(tree: &Tree<'_>) -> Result<()> {
    tree.mkdir("/A")?;
    tree.mkdir("/B")?;
    tree.write("/A/foo", 100)?;
    tree.write("/bar", 30_000)?;
    tree.link("/bar", "/A/bar")?;
    tree.setxattr("/A/foo", "old")
}

const OPERATIONS: [Operation; 42] = [
    |tree| tree.write("/new", 0),
    |tree| tree.write("/A/new", 200),
    |tree| tree.write("/new", 20_000),
    |tree| tree.mkdir("/A/C"),
    |tree| tree.vfs.symlink(tree.context, "A/foo", At::Cwd, "/link").map(drop),
    |tree| tree.vfs.mknod(tree.context, At::Cwd, "/fifo", 0o010_600, 0).map(drop),
    |tree| tree.link("/A/foo", "/foo"),
    |tree| tree.link("/bar", "/B/bar"),
    |tree| tree.unlink("/A/foo"),
    |tree| tree.unlink("/bar"),
    |tree| tree.unlink("/A/bar"),
    |tree| tree.vfs.rmdir(tree.context, At::Cwd, "/B"),
    |tree| tree.rename("/A/foo", "/B/foo", RenameFlags::empty()),
    |tree| tree.rename("/A/foo", "/bar", RenameFlags::empty()),
    |tree| tree.rename("/bar", "/A/foo", RenameFlags::empty()),
    |tree| tree.rename("/A", "/B", RenameFlags::empty()),
    |tree| tree.rename("/B", "/A/B", RenameFlags::empty()),
    |tree| tree.rename("/new", "/A/foo", RenameFlags::empty()),
    |tree| tree.rename("/A", "/bar", RenameFlags::EXCHANGE),
    |tree| tree.rename("/A/foo", "/bar", RenameFlags::EXCHANGE),
    |tree| tree.rename("/A/foo", "/B/foo", RenameFlags::WHITEOUT),
    |tree| tree.write("/A/foo", 300),
    |tree| tree.write("/A/foo", 20_000),
    |tree| tree.write("/bar", 10_000),
    |tree| tree.truncate("/bar", 0),
    |tree| tree.truncate("/bar", 100),
    |tree| tree.truncate("/bar", 18_000),
    |tree| tree.truncate("/bar", 50_000),
    |tree| tree.truncate("/A/foo", 50_000),
    |tree| tree.setxattr("/A/foo", "new"),
    |tree| tree.vfs.removexattr(tree.context, At::Cwd, "/A/foo", "user.x", FOLLOW),
    |tree| tree.vfs.chmod(tree.context, At::Cwd, "/A", 0o700, FOLLOW),
    |tree| tree.set_acl("/A/foo", ACCESS),
    |tree| tree.set_acl("/A", DEFAULT),
    |tree| tree.set_flags("/A", InodeFlags::NODUMP),
    |tree| tree.set_flags("/bar", InodeFlags::NODUMP | InodeFlags::NOATIME),
    |tree| tree.copy("/bar", "/A/foo"),
    |tree| tree.copy("/bar", "/new"),
    |tree| {
        let file = tree.open("/A", OpenFlags::TMPFILE | OpenFlags::DIRECTORY)?;
        file.pwrite(b"unnamed", 0)?;
        tree.vfs.link(tree.context, At::Dir(file.dentry()), "", At::Cwd, "/new", Walk::EMPTY_PATH).map(drop)
    },
    |tree| tree.fsync("/A/foo", OpenFlags::RDWR),
    |tree| tree.fsync("/bar", OpenFlags::RDWR),
    |tree| tree.fsync("/A", OpenFlags::DIRECTORY),
];

/// The operations from this one on are syncs.
const FIRST_SYNC: usize = 39;

fn prepared() -> Image {
    let machine = Machine::new(&Image::default());
    drop(Embedded::create(Arc::new(machine.clone())).expect("made"));
    let (vfs, context) = open(&machine);
    prepare(&Tree { vfs: &vfs, context: &context }).expect("made");
    vfs.sync().expect("stored");
    machine.image()
}

/// Runs a sequence `times` times, each time with other losses, and opens every image that a crash
/// has left. Returns how many there were.
fn explore(image: &Image, sequence: &[usize], times: usize, random: &mut Rng) -> usize {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut known = HashSet::new();
    for _ in 0..times {
        let machine = Machine::new(image);
        let (vfs, context) = open(&machine);
        let mut states = vec![seen(&vfs, &context)];
        machine.crash(Rng(random.next()), 1);
        let tree = Tree { vfs: &vfs, context: &context };
        for (number, operation) in sequence.iter().enumerate() {
            let done = OPERATIONS[*operation](&tree);
            states.push(seen(&vfs, &context));
            machine.note_returned(number + 1);
            if *operation >= FIRST_SYNC && done.is_ok() {
                machine.note_synced(number + 1);
            }
        }
        vfs.sync().expect("stored");
        for (progress, image) in machine.take_images() {
            if known.insert((progress.returned, progress.synced, hasher.hash_one(&image))) {
                check(&states, progress, &image);
            }
        }
    }
    known.len()
}

#[test]
fn each_operation_survives_crashes() {
    let (image, mut random) = (prepared(), Rng(seed()));
    let images: usize = (0..OPERATIONS.len()).map(|operation| explore(&image, &[operation], 3, &mut random)).sum();
    println!("{images} images");
    assert!(images > 5 * OPERATIONS.len(), "{images}");
}

/// Some pairs, or, with `PANDO_CRASH_PAIRS=N`, all of them, each N times.
#[test]
fn pairs_of_operations_survive_crashes() {
    let (image, mut random) = (prepared(), Rng(seed()));
    let count = OPERATIONS.len();
    let times = pandofs_testkit::number("PANDO_CRASH_PAIRS");
    let pairs: Vec<usize> = match times {
        Some(_) => (0..count * count).collect(),
        None => (0..40).map(|_| random.below((count * count) as u64) as usize).collect(),
    };
    let times = times.unwrap_or(3) as usize;
    let images: usize =
        pairs.iter().map(|pair| explore(&image, &[pair / count, pair % count], times, &mut random)).sum();
    println!("{images} images of {} pairs", pairs.len());
    assert!(images > 5 * pairs.len(), "{images}");
}
