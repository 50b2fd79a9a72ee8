//! A tree to test with, and helpers that read it.

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, DentryRef, Driver, FileKind, OpenFlags, Vfs, Walk};

/// Follows symbolic links.
pub const FOLLOW: Walk = Walk::empty();
/// For reading and writing.
pub const RW: OpenFlags = OpenFlags::RDWR;
/// A new file, or EEXIST.
pub const NEW: OpenFlags = OpenFlags::RDWR.union(OpenFlags::CREAT).union(OpenFlags::EXCL);

/// The inodes of the test tree: plenty, and counted.
pub const INODES: u64 = 1 << 20;
/// The pages of the test tree.
pub const PAGES: u64 = 1 << 16;

/// A namespace, and a context of its superuser.
pub struct Tree {
    pub vfs: Vfs,
    pub context: Context,
}

impl Tree {
    /// An empty tree with limits, so that statfs counts what is used.
    pub fn new() -> Self {
        Self::with_limits(INODES, PAGES)
    }

    /// An empty tree with these limits.
    pub fn with_limits(inodes: u64, pages: u64) -> Self {
        Self::of(MemFs::new(MemOptions::new().inodes(inodes).size_bytes(pages * 4096)))
    }

    /// An empty tree of a driver.
    pub fn of(driver: impl Driver) -> Self {
        let vfs = Vfs::new(driver).expect("a new tree");
        let context = Context::new(&vfs, Credentials::root());
        Self { vfs, context }
    }

    /// Makes a directory that must not exist yet.
    pub fn mkdir(&self, path: &str) -> DentryRef {
        self.vfs.mkdir(&self.context, At::Cwd, path, 0o777).unwrap_or_else(|e| panic!("mkdir {path}: {e}"))
    }

    /// Makes a file that must not exist yet. Returns its inode number.
    pub fn touch(&self, path: &str) -> u64 {
        let file = self.vfs.open(&self.context, At::Cwd, path, NEW, 0o644);
        file.unwrap_or_else(|e| panic!("create {path}: {e}")).dentry().ino()
    }

    /// The inode number at a path.
    pub fn ino(&self, path: &str) -> pando_vfs::Result<u64> {
        self.vfs.stat(&self.context, At::Cwd, path, FOLLOW).map(|stat| stat.ino)
    }

    /// Names, inode numbers and kinds in a directory, without `.` and `..`.
    pub fn list(&self, at: At<'_>, path: &str) -> Vec<(String, u64, FileKind)> {
        let dir = self.vfs.open(&self.context, at, path, OpenFlags::DIRECTORY, 0).expect("opens");
        let mut list = Vec::new();
        dir.readdir(0, |entry| {
            let name = String::from_utf8_lossy(entry.name).into_owned();
            if name != "." && name != ".." {
                list.push((name, entry.ino, entry.kind));
            }
            true
        })
        .expect("reads");
        list
    }

    /// Removes everything below a path. Returns the number of removed names.
    pub fn remove_below(&self, path: &str) -> usize {
        // Uses handles and a list: the tree may be deeper than a path can be long, or than the
        // stack permits.
        let top = self.vfs.lookup(&self.context, At::Cwd, path, FOLLOW).expect("there");
        let (mut todo, mut dirs, mut count) = (vec![top], Vec::new(), 0);
        while let Some(dir) = todo.pop() {
            for (name, _, kind) in self.list(At::Dir(&dir), ".") {
                count += 1;
                if kind == FileKind::Directory {
                    let child = self.vfs.lookup(&self.context, At::Dir(&dir), &name, FOLLOW);
                    todo.push(child.expect("listed"));
                    dirs.push((dir.clone(), name));
                } else {
                    let gone = self.vfs.unlink(&self.context, At::Dir(&dir), &name);
                    gone.unwrap_or_else(|e| panic!("unlink {name}: {e}"));
                }
            }
        }
        // Parents come before their children in the list.
        for (dir, name) in dirs.iter().rev() {
            self.vfs.rmdir(&self.context, At::Dir(dir), name).unwrap_or_else(|e| panic!("rmdir {name}: {e}"));
        }
        count
    }

    /// Inodes and pages in use, when no retired memory is pending.
    pub fn used(&self) -> (u64, u64) {
        collect();
        let statfs = self.vfs.statfs(&self.context, At::Cwd, "/").expect("statfs");
        (statfs.files - statfs.ffree, statfs.blocks - statfs.bfree)
    }
}

/// Frees all retired memory of the process. For tests that run alone and hold no guard.
pub fn collect() {
    // A thread that has ended may still be exiting, and hold some of it.
    while pando_sync::retired_bytes() > 0 {
        pando_sync::back_pressure(1);
        std::thread::yield_now();
    }
}
