//! Tests that the locks are taken, that they exclude, and that they exclude no more than in the
//! kernel.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    thread,
};

use super::*;
use crate::{
    base::failure::Failure,
    target::{Nothing, Session, Target, before::BeforeTarget},
};

/// A target that records its calls, and the locks that it finds taken.
#[derive(Default)]
struct Observed {
    inside: AtomicU32,
    most: AtomicU32,
    calls: AtomicU32,
    /// The locks that the last operation found taken.
    taken: std::sync::Mutex<Vec<&'static str>>,
}

/// A target that only records which locks are held, and how many threads are inside.
struct LockObserver<'a> {
    observed: &'a Observed,
    locks: &'a KernelLocks,
    /// If set, an operation waits here for the others that are inside at the same time.
    rendezvous: Option<&'a Barrier>,
}

const FILE: &str = "d/f";

impl LockObserver<'_> {
    fn look(&self, dirs: &[&str]) -> io::Result<()> {
        let inside = self.observed.inside.fetch_add(1, SeqCst) + 1;
        self.observed.most.fetch_max(inside, SeqCst);
        self.observed.calls.fetch_add(1, SeqCst);
        if let Some(rendezvous) = self.rendezvous {
            rendezvous.wait();
        }
        thread::yield_now();
        let locks = self.locks;
        let mut taken = Vec::new();
        taken.extend(dirs.iter().all(|dir| locks.directory(dir).is_taken()).then_some("directory"));
        taken.extend(locks.rename_mutex.is_taken().then_some("rename mutex"));
        taken.extend(locks.file(locks.file_index(FILE)).is_taken().then_some("inode"));
        taken.extend(locks.rename_lock.is_taken().then_some("rename lock"));
        *self.observed.taken.lock().expect("no panic") = taken;
        self.observed.inside.fetch_sub(1, SeqCst);
        Ok(())
    }
}

impl Actor for LockObserver<'_> {
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()> {
        self.look(&[parent(path.relative())])
    }
    fn create(&mut self, path: &TreePath) -> io::Result<()> {
        self.look(&[parent(path.relative())])
    }
    fn unlink(&mut self, path: &TreePath) -> io::Result<()> {
        self.look(&[parent(path.relative())])
    }
    fn rmdir(&mut self, path: &TreePath) -> io::Result<()> {
        self.look(&[parent(path.relative())])
    }
    fn stat(&mut self, path: &TreePath) -> io::Result<()> {
        self.look(&[parent(path.relative())])
    }
    fn rename(&mut self, from: &TreePath, to: &TreePath) -> io::Result<()> {
        self.look(&[parent(from.relative()), parent(to.relative())])
    }
    fn list(&mut self, dir: &TreePath, _: Level) -> io::Result<Listed> {
        self.look(&[dir.relative()]).map(|()| Listed::default())
    }
    fn getcwd(&mut self) -> io::Result<usize> {
        self.look(&["d"]).map(|()| 0)
    }
    fn with_open(&mut self, path: &TreePath, _: Open, work: Work<'_>) -> io::Result<()> {
        self.look(&[parent(path.relative())])?;
        work(&Nothing)
    }
}

fn before<'a>(
    locks: &'a Arc<KernelLocks>,
    observed: &'a Observed,
    rendezvous: Option<&'a Barrier>,
    misses: bool,
) -> Before<'a> {
    Before::new(Box::new(LockObserver { observed, locks, rendezvous }), locks, misses)
}

#[test]
fn each_operation_runs_under_its_locks() {
    let (locks, observed) = (Arc::new(KernelLocks::new()), Observed::default());
    let mut actor = before(&locks, &observed, None, false);
    let [file, sibling, elsewhere, dir] = [FILE, "d/g", "e/f", "d"].map(TreePath::new);
    let check = |result: io::Result<()>, expected: &[&str], what: &str| {
        result.expect("an observer does not fail");
        assert_eq!(*observed.taken.lock().expect("no panic"), expected, "{what}");
    };
    check(actor.mkdir(&file), &["directory"], "mkdir");
    check(actor.create(&file), &["directory"], "create");
    check(actor.unlink(&file), &["directory"], "unlink");
    check(actor.rmdir(&file), &["directory"], "rmdir");
    check(actor.rename(&file, &sibling), &["directory"], "rename within a directory");
    check(actor.rename(&file, &elsewhere), &["directory", "rename mutex"], "rename to another directory");
    check(actor.rename(&elsewhere, &file), &["directory", "rename mutex"], "and back");
    check(actor.stat(&file), &[], "a look-up that hits");
    check(actor.list(&dir, Level::Names).map(drop), &["directory"], "getdents");
    check(actor.list(&dir, Level::Stat).map(drop), &[], "stats after getdents");
    let writes = locks.rename_lock.writes();
    check(actor.getcwd().map(drop), &["rename lock"], "getcwd");
    assert_eq!((writes, locks.rename_lock.writes()), (3, 4));
    assert_eq!(locks.inode_hash.holds(), 0);
    check(before(&locks, &observed, None, true).stat(&file), &["directory"], "a look-up that misses");
    assert_eq!(locks.inode_hash.holds(), 2);
}

/// A handle that checks whether the file's mutex is held.
struct ObservingHandle(Arc<KernelLocks>, Arc<AtomicBool>);

impl ObservingHandle {
    fn look<T>(&self, locked: bool, value: T) -> io::Result<T> {
        assert_eq!(self.0.file(self.0.file_index(FILE)).is_taken(), locked);
        self.1.store(true, SeqCst);
        Ok(value)
    }
}

impl Handle for ObservingHandle {
    fn seek(&self, _: SeekFrom) -> io::Result<u64> {
        self.look(true, 0)
    }
    fn read(&self, _: &mut [u8]) -> io::Result<usize> {
        self.look(false, 0)
    }
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        self.look(false, 0)
    }
    fn write(&self, _: &[u8]) -> io::Result<usize> {
        self.look(true, 0)
    }
    fn truncate(&self, _: u64) -> io::Result<()> {
        self.look(true, ())
    }
    fn fsync(&self) -> io::Result<()> {
        self.look(true, ())
    }
    fn path(&self) -> io::Result<usize> {
        assert!(self.0.rename_lock.is_taken());
        self.look(false, 0)
    }
}

#[test]
fn seeks_run_under_the_file_mutex() {
    let (locks, asked) = (Arc::new(KernelLocks::new()), Arc::new(AtomicBool::new(false)));
    let inner = Box::new(ObservingHandle(locks.clone(), asked.clone()));
    let handle = BeforeHandle::<Box<dyn Handle>, _>::new(inner, &TreePath::new(FILE), locks.clone());
    let was_asked = || asked.swap(false, SeqCst);
    handle.seek(SeekFrom::Start(7)).expect("seek");
    assert!(was_asked());
    handle.read(&mut []).expect("read");
    handle.read_at(&mut [], 0).expect("read");
    handle.write(&[]).expect("write");
    handle.truncate(0).expect("truncate");
    handle.fsync().expect("fsync");
    handle.path().expect("path");
    assert!(was_asked());
    assert_eq!(locks.dentry(FILE).count(), 1);
    drop(handle);
    assert_eq!(locks.dentry(FILE).count(), 0, "closing puts the reference");
}

#[test]
fn file_is_opened_under_its_locks_and_used_without_them() {
    let (locks, observed) = (Arc::new(KernelLocks::new()), Observed::default());
    for (how, misses, opening, holds) in [
        (Open::Create, false, &["directory"][..], 0),
        (Open::Create, true, &["directory"], 0),
        (Open::Read, false, &[], 0),
        (Open::Read, true, &["directory"], 2),
    ] {
        let mut actor = before(&locks, &observed, None, misses);
        let before = locks.inode_hash.holds();
        let mut work = |file: &dyn Handle| {
            assert_eq!(*observed.taken.lock().expect("no panic"), opening, "{how:?}, misses: {misses}");
            assert!(!locks.directory("d").is_taken(), "{how:?}, misses: {misses}");
            assert_eq!((locks.dentry("d").count(), locks.dentry(FILE).count()), (0, 1));
            file.read(&mut []).map(drop)
        };
        actor.with_open(&TreePath::new(FILE), how, &mut work).expect("an observer does not fail");
        assert_eq!((locks.dentry(FILE).count(), locks.inode_hash.holds() - before), (0, holds), "{how:?}");
    }
}

#[test]
fn two_threads_in_one_directory_exclude_each_other() {
    let (locks, observed) = (Arc::new(KernelLocks::new()), Observed::default());
    thread::scope(|scope| {
        for name in ["d/one", "d/two"] {
            let (locks, observed) = (&locks, &observed);
            scope.spawn(move || {
                let (mut actor, path) = (before(locks, observed, None, false), TreePath::new(name));
                for _ in 0..2000 {
                    actor.create(&path).expect("create");
                    actor.unlink(&path).expect("unlink");
                }
            });
        }
    });
    assert_eq!((observed.calls.load(SeqCst), observed.most.load(SeqCst)), (8000, 1));
    assert_eq!(locks.dentry("d").count(), 0, "each reference to the directory was put");
}

#[test]
fn two_threads_in_two_directories_run_at_the_same_time() {
    let (locks, observed, rendezvous) = (Arc::new(KernelLocks::new()), Observed::default(), Barrier::new(2));
    thread::scope(|scope| {
        for name in ["d/one", "e/two"] {
            let (locks, observed, rendezvous) = (&locks, &observed, &rendezvous);
            scope.spawn(move || {
                let (mut actor, path) = (before(locks, observed, Some(rendezvous), false), TreePath::new(name));
                (0..100).for_each(|_| actor.create(&path).expect("create"));
            });
        }
    });
    assert_eq!((observed.calls.load(SeqCst), observed.most.load(SeqCst)), (200, 2));
}

#[test]
fn crossing_renames_do_not_deadlock() {
    let (locks, observed) = (Arc::new(KernelLocks::new()), Observed::default());
    thread::scope(|scope| {
        for (from, to) in [("d/f", "e/f"), ("e/f", "d/f")] {
            let (locks, observed) = (&locks, &observed);
            scope.spawn(move || {
                let (mut actor, [from, to]) = (before(locks, observed, None, false), [from, to].map(TreePath::new));
                (0..2000).for_each(|_| actor.rename(&from, &to).expect("rename"));
            });
        }
    });
    assert_eq!((observed.calls.load(SeqCst), observed.most.load(SeqCst)), (4000, 1));
}

/// A target that only opens without a cache limit.
struct OnlyUnbounded;

impl Target for OnlyUnbounded {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        Err(Failure::Refused("with a limit".into()))
    }
    fn open_unbounded(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(OnlyUnbounded))
    }
}

impl Session for OnlyUnbounded {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(Nothing))
    }
}

#[test]
fn a_tree_without_cache_limit_is_passed_through() {
    let target = BeforeTarget { inner: Box::new(OnlyUnbounded), misses: true };
    let session = target.open_unbounded().expect("the inner target has it");
    session.actor().expect("an actor").stat(&TreePath::new(FILE)).expect("stat");
}
