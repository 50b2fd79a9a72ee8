//! Whom the work is done to.

mod backed;
mod before;
mod calls;
mod dir;
#[cfg(feature = "peers")]
mod maps;
mod mem;
mod nothing;
#[cfg(feature = "peers")]
mod peers;
mod records;
mod spec;
mod traced;

use std::{
    ffi::CStr,
    hint::black_box,
    io::{self, SeekFrom},
    path::{Path, PathBuf},
};

pub(crate) use self::{nothing::Nothing, spec::TARGETS};
use crate::{failure::Failure, path::TreePath};

pub use self::spec::TargetSpec;

/// A file system, or what stands in for one.
pub(crate) trait Target {
    /// Makes an empty tree, used for one workload.
    ///
    /// # Errors
    /// That it cannot be had, and what to do about it.
    fn open(&self) -> Result<Box<dyn Session>, Failure>;

    /// Whether its memory is the kernel's and not this process's.
    fn is_in_kernel(&self) -> bool {
        false
    }
}

/// An empty tree, to be filled. Dropping it removes what was made.
pub(crate) trait Session: Sync {
    /// One thread's access; made on the thread that uses it.
    ///
    /// # Errors
    /// What the system answers.
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>>;

    /// As [`Session::actor`], for whom no cache is kept small.
    ///
    /// # Errors
    /// What the system answers.
    fn hoarder(&self) -> io::Result<Box<dyn Actor + '_>> {
        self.actor()
    }

    /// Where other processes find the tree (see [`attach`]).
    fn tree(&self) -> Option<PathBuf> {
        None
    }

    /// Removes what was made, and says so if that fails.
    ///
    /// # Errors
    /// What could not be removed.
    fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(())
    }
}

/// What a thread can do to a target. New workloads add their operations here.
///
/// Four operations every target has. The others default to "not supported", which a run reports as a row without
/// figures ([`unsupported`]), since it says nothing about speed.
pub(crate) trait Actor {
    /// Makes a directory in one that is there.
    ///
    /// # Errors
    /// What the target answers; for all operations.
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()>;

    /// Makes a file that is not there, and closes it.
    fn create(&mut self, path: &TreePath) -> io::Result<()>;

    /// Removes a file.
    fn unlink(&mut self, path: &TreePath) -> io::Result<()>;

    /// Looks up a file and reads its attributes.
    fn stat(&mut self, path: &TreePath) -> io::Result<()>;

    /// Removes an empty directory.
    fn rmdir(&mut self, path: &TreePath) -> io::Result<()> {
        unsupported(path)
    }

    /// Moves a file or a directory to a name that is free.
    fn rename(&mut self, from: &TreePath, to: &TreePath) -> io::Result<()> {
        unsupported((from, to))
    }

    /// Opens a file that is there for reading, and closes it.
    fn open_close(&mut self, path: &TreePath) -> io::Result<()> {
        unsupported(path)
    }

    /// Opens a file for reading and writing; makes it if it is not there. Any thread may use the handle.
    fn open(&mut self, path: &TreePath) -> io::Result<Box<dyn Handle>> {
        unsupported(path)
    }

    /// Opens a file, has something done with it, and closes it: with no memory for a handle that outlives the call.
    fn with_open(&mut self, path: &TreePath, how: Open, work: Work<'_>) -> io::Result<()> {
        unsupported((path, how, work))
    }

    /// Reads all entries of a directory (without `.` and `..`), and of each, with calls of its own, what `level` says.
    fn list(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        unsupported((dir, level))
    }

    /// As [`Actor::list`], by calls that answer for many entries at once.
    fn records(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        unsupported((dir, level))
    }

    /// Gives a file an extended attribute.
    fn set_xattr(&mut self, path: &TreePath, name: &CStr, value: &[u8]) -> io::Result<()> {
        unsupported((path, name, value))
    }

    /// Makes a directory this thread's working directory. Paths of other operations stay relative to the root.
    fn chdir(&mut self, path: &TreePath) -> io::Result<()> {
        unsupported(path)
    }

    /// The path of the working directory; returns its length.
    fn getcwd(&mut self) -> io::Result<usize> {
        unsupported(())
    }

    /// Empties the target's caches, if it has such besides the tree itself.
    fn forget(&mut self, what: Forget) -> io::Result<()> {
        unsupported(what)
    }

    /// Where the host has the root of the tree, for programs to be run in it.
    fn host_path(&self) -> Option<&Path> {
        None
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// For reading: it is there.
    Read,
    /// For reading and writing; it is made if it is not there.
    Create,
}

/// What is done with an open file.
pub(crate) type Work<'a> = &'a mut dyn FnMut(&dyn Handle) -> io::Result<()>;

/// An open file.
pub(crate) trait Handle: Send + Sync {
    /// Moves the position; returns the new one.
    ///
    /// # Errors
    /// What the target answers; for all operations.
    fn seek(&self, to: SeekFrom) -> io::Result<u64>;

    /// Reads at the position.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Reads at an offset (pread).
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at the position.
    fn write(&self, data: &[u8]) -> io::Result<usize>;

    /// Changes the size.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// Writes out what only caches hold.
    fn fsync(&self) -> io::Result<()>;

    /// Renders the path (d_path); returns its length.
    fn path(&self) -> io::Result<usize>;
}

/// What a listing reads of each entry: each level what those before it read, and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Its name.
    Names,
    /// Its attributes (stat).
    Stat,
    /// The names of its extended attributes.
    XattrNames,
    /// Their values.
    XattrValues,
}

impl Level {
    pub(crate) const ALL: [Self; 4] = [Self::Names, Self::Stat, Self::XattrNames, Self::XattrValues];
}

/// Which caches are emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forget {
    /// Those of names and inodes.
    Inodes,
    /// Those, and what was read from a disk.
    Disk,
}

/// What a listing found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Listed {
    pub(crate) entries: u64,
    pub(crate) xattrs: u64,
    /// Of the values of extended attributes.
    pub(crate) value_bytes: u64,
}

/// Why caches cannot be emptied: the tree is the cache.
pub(crate) const NO_CACHE: &str = "the target has no cache beside its tree";
/// Why caches cannot be emptied: it is not allowed.
pub(crate) const NOT_ALLOWED: &str = "only root may empty the kernel's caches";

/// Takes an answer as who reads one field of it would: all of it is there, and nothing is copied.
#[inline]
pub(crate) fn take<T, E>(answer: Result<T, E>) -> Result<(), E> {
    black_box(&answer);
    answer.map(drop)
}

/// What a target answers that lacks something, where there is more to say than that.
pub(crate) fn lacks<T>(why: &'static str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// What a target answers that has no such operation.
#[cold]
pub(crate) fn unsupported<T>(_arguments: impl Sized) -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Access to a tree that a session of another process has made ([`Session::tree`]).
///
/// # Errors
/// What the system answers.
pub(crate) fn attach(tree: PathBuf) -> io::Result<Box<dyn Actor>> {
    Ok(Box::new(calls::DirActor::at(tree)?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{backed::BackedTarget, before::BeforeTarget, dir::DirTarget, mem::MemTarget, traced::TracedTarget, *};

    #[test]
    fn names() {
        assert!("dir=/x".parse::<TargetSpec>().is_ok_and(|spec| spec.name() == "dir=/x"));
        assert!("dir=".parse::<TargetSpec>().is_err());
        let error = "tmpfs".parse::<TargetSpec>().expect_err("no such target");
        assert!(error.contains("dir=PATH"), "{error}");
        assert_eq!("map:scc".parse::<TargetSpec>().is_ok(), cfg!(feature = "peers"));
    }

    #[test]
    fn the_page_of_the_documentation_has_all_targets_and_old_locks() {
        let page = include_str!("../../../../docs/bench.md");
        let names = TARGETS.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        assert!(names.len() >= 10, "{names:?}");
        let locks = include_str!("before/locks.rs").lines().filter_map(|line| {
            let lock = line.strip_prefix("pub(super) struct ")?.split(['(', ' ']).next()?;
            (lock != "KernelLocks").then_some(lock)
        });
        for name in names.into_iter().chain(locks) {
            assert!(page.contains(&format!("`{name}`")), "docs/bench.md has no {name}");
        }
    }

    /// A directory on tmpfs where there is one: quick, and without caches that a test would empty for everybody.
    pub(crate) fn scratch() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory")
    }

    /// Whether a target has an operation; if so, it must have done it.
    fn has<T>(result: io::Result<T>) -> Option<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            other => Some(other.expect("the operation is there, and fails")),
        }
    }

    /// What each target must agree on, for the workloads to mean the same. Returns which operations it lacks.
    fn behaves(target: &dyn Target) -> Vec<&'static str> {
        let session = target.open().expect("it opens");
        let mut actor = session.actor().expect("an actor");
        let [dir, file, other] = ["d", "d/f", "d/g"].map(TreePath::new);
        let mut lacks = Vec::new();
        let mut note = |name, there: bool| lacks.extend((!there).then_some(name));
        actor.mkdir(&dir).expect("mkdir");
        assert!(actor.stat(&file).is_err());
        actor.create(&file).expect("create");
        actor.stat(&file).expect("stat");
        actor.unlink(&file).expect("unlink");
        assert!(actor.stat(&file).is_err());
        assert!(actor.unlink(&file).is_err());
        actor.create(&file).expect("create it again");

        note("rename", has(actor.rename(&file, &other)).is_some());
        if actor.stat(&other).is_ok() {
            assert!(actor.stat(&file).is_err(), "renamed, not linked");
            actor.rename(&other, &file).expect("and back");
        }
        note("open_close", has(actor.open_close(&file)).is_some());
        let xattr = has(actor.set_xattr(&file, c"user.colour", b"green"));
        note("set_xattr", xattr.is_some());
        for level in Level::ALL {
            let listed = has(actor.list(&dir, level));
            let count = |from, count| if level >= from && xattr.is_some() { count } else { 0 };
            let (xattrs, value_bytes) = (count(Level::XattrNames, 1), count(Level::XattrValues, 5));
            assert!(listed.is_none_or(|listed| listed == Listed { entries: 1, xattrs, value_bytes }), "{listed:?}");
            note("list", listed.is_some());
            let by_records = has(actor.records(&dir, level));
            assert!(by_records.is_none() || by_records == listed, "{by_records:?}");
        }
        if let Some(handle) = has(actor.open(&file)) {
            handle_behaves(&*handle);
            assert_eq!(has(handle.path()).map(|len| len >= "/d/f".len()), Some(true));
            opens_and_closes(&mut *actor, [&file, &other]);
        } else {
            note("open", false);
        }
        // On a thread of its own: a working directory of a thread stays with it.
        let cwd = std::thread::scope(|scope| {
            let render = || {
                let mut actor = session.actor().expect("an actor");
                has(actor.chdir(&dir)).map(|()| actor.getcwd().expect("getcwd"))
            };
            scope.spawn(render).join().expect("no panic")
        });
        note("getcwd", cwd.is_some());
        assert!(cwd.is_none_or(|len| len >= "/d".len()));
        note("forget", has(actor.forget(Forget::Inodes)).is_some());
        actor.stat(&file).expect("forgotten by the cache, not by the tree");
        actor.unlink(&file).expect("unlink");
        note("rmdir", has(actor.rmdir(&dir)).is_some());
        drop(actor);
        session.close().expect("it closes");
        lacks
    }

    fn handle_behaves(handle: &dyn Handle) {
        handle.truncate(1000).expect("truncate");
        assert_eq!(handle.seek(SeekFrom::End(-10)).expect("END"), 990);
        assert_eq!(handle.seek(SeekFrom::Current(-90)).expect("CUR"), 900);
        assert_eq!(handle.write(b"pando").expect("write"), 5);
        assert_eq!(handle.seek(SeekFrom::Current(0)).expect("tell"), 905);
        assert_eq!(handle.seek(SeekFrom::Start(900)).expect("SET"), 900);
        let mut buffer = [1; 8];
        assert_eq!(handle.read(&mut buffer).expect("read"), 8);
        assert_eq!(&buffer, b"pando\0\0\0");
        assert!(handle.seek(SeekFrom::Current(-2000)).is_err());
        handle.fsync().expect("fsync");
    }

    fn opens_and_closes(actor: &mut dyn Actor, [there, none]: [&TreePath; 2]) {
        let mut works = 0;
        let mut work = |handle: &dyn Handle| {
            works += 1;
            handle.seek(SeekFrom::Start(0)).map(drop)
        };
        actor.with_open(there, Open::Read, &mut work).expect("it is there");
        assert!(actor.with_open(none, Open::Read, &mut work).is_err());
        actor.with_open(none, Open::Create, &mut work).expect("it is made");
        actor.unlink(none).expect("unlink");
        assert_eq!(works, 2);
        let failed = actor.with_open(there, Open::Read, &mut |handle| handle.write(b"x").map(drop));
        assert!(failed.is_err(), "for reading only");
    }

    #[test]
    fn a_directory_behaves() {
        let temp = scratch();
        let lacks = behaves(&DirTarget::new(temp.path()));
        // Extended attributes are the file system's affair, dropping caches root's.
        assert!(lacks.iter().all(|lack| matches!(*lack, "set_xattr" | "list" | "forget")), "{lacks:?}");
        assert_eq!(std::fs::read_dir(temp.path()).expect("it stays").count(), 0);
    }

    #[test]
    fn memory_behaves() {
        assert_eq!(behaves(&MemTarget), ["forget"]);
    }

    #[test]
    fn a_backed_tree_behaves() {
        assert!(behaves(&BackedTarget).is_empty());
    }

    #[test]
    fn watching_changes_no_answer() {
        assert_eq!(behaves(&TracedTarget), behaves(&MemTarget));
    }

    #[test]
    fn old_locks_change_no_answer() {
        assert_eq!(behaves(&BeforeTarget { inner: Box::new(MemTarget), misses: false }), ["forget"]);
        assert!(behaves(&BeforeTarget { inner: Box::new(BackedTarget), misses: true }).is_empty());
    }

    #[cfg(feature = "peers")]
    #[test]
    fn peers_behave() {
        for name in ["peer:vfs", "peer:rsfs", "map:papaya", "map:scc"] {
            let lacks = behaves(&*name.parse::<TargetSpec>().expect("a name").target());
            assert!(lacks.contains(&"open") && lacks.contains(&"set_xattr"), "{name}: {lacks:?}");
        }
    }
}
