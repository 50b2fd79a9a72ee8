//! Directories that threads read before their turn, while directories wait.
//!
//! Each has a slice of the budget of its own, so that none can stop another. Either a thread reads
//! it, or the walk itself if it gets there first. One thread reads a directory's entries. If the
//! walk needs the slice elsewhere, or ends, it drops the directory. Then the work is not begun, or
//! it ends with the call that is in the kernel. Work that is already done has filled the kernel's
//! caches.

use std::{
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::io::Errno;

use super::open::{Cause, Expected, Identity, identity_as, open_dir_on};
use crate::{
    Options,
    directory::Scan,
    kernel::meter::Meter,
    memory::Arena,
    workers::{WorkerPool, threads::Work},
};

/// A directory, and the resources to read it.
pub(super) struct Task {
    pub parent: Arc<OwnedFd>,
    pub name: CString,
    pub expected: Option<Expected>,
    /// The device that it must be on.
    pub dev: Option<(u32, u32)>,
    pub options: Options,
    pub arena: Arc<Arena>,
    pub pool: WorkerPool,
}

/// A directory that was opened, with its first records.
pub(super) struct Opened {
    pub scan: Scan,
    pub identity: Identity,
    pub arena: Arc<Arena>,
}

pub(super) type Outcome = Result<Opened, (Cause, Errno)>;

enum Progress {
    Waiting(Task),
    Running,
    Done(Outcome),
}

/// A directory that is to be read ahead, is being read, or was read. Dropping it ends that.
pub(super) struct Ahead {
    progress: Mutex<Progress>,
    done: Condvar,
    /// Stops the thread after the entry at hand. A single independent value.
    enough: Arc<AtomicBool>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
    }
}

impl Task {
    fn run(self, enough: &AtomicBool) -> Outcome {
        let meter = Meter::start();
        let fd = open_dir_on(self.dev, self.expected, self.parent.as_fd(), &self.name, self.options.follow)?;
        let identity = identity_as(fd.as_fd(), self.expected)?;
        let mut scan = Scan::with(fd, &self.options, self.arena.clone(), self.pool.clone());
        let entries = scan.prefetch(enough);
        // Names come many at once. The waits are those of the directory.
        let asked = if self.options.mask.is_empty() { 0 } else { entries as u64 };
        // If it was dropped before any entry was read, the cost of opening says nothing.
        if entries > 0 || !enough.load(Ordering::Relaxed) {
            self.pool.concurrency.after_directory(meter.read(1 + asked));
        }
        Ok(Opened { scan, identity, arena: self.arena })
    }
}

impl Ahead {
    /// Submits it to the threads. None, and nothing is done, if there are none.
    pub fn start(task: Task) -> Option<Arc<Self>> {
        let (threads, wanted) = (task.pool.threads.clone(), task.pool.concurrency.threads());
        let ahead = Arc::new(Self::new(task));
        let weak = Arc::downgrade(&ahead);
        threads.submit(Work::Single(Box::new(move || Self::run(&weak, Task::run))), wanted).then_some(ahead)
    }

    fn new(task: Task) -> Self {
        Self { progress: Mutex::new(Progress::Waiting(task)), done: Condvar::new(), enough: Arc::default() }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs on a thread. It holds no reference meanwhile, so the walk can drop the directory.
    fn run(ahead: &Weak<Self>, work: impl FnOnce(Task, &AtomicBool) -> Outcome) {
        let Some((task, enough)) = ahead.upgrade().and_then(|ahead| ahead.begin()) else { return };
        // Also after a panic: the walk never waits for ever.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(task, &enough))).unwrap_or(Err((Cause::Open, Errno::IO)));
        if let Some(ahead) = ahead.upgrade() {
            *ahead.progress() = Progress::Done(outcome);
            ahead.done.notify_all();
        }
    }

    /// The task, unless it was already begun.
    fn begin(&self) -> Option<(Task, Arc<AtomicBool>)> {
        let mut progress = self.progress();
        match std::mem::replace(&mut *progress, Progress::Running) {
            Progress::Waiting(task) => Some((task, self.enough.clone())),
            other => {
                *progress = other;
                None
            }
        }
    }

    /// The outcome, when it is the directory's turn.
    pub fn take(&self) -> Outcome {
        let mut progress = self.progress();
        loop {
            match std::mem::replace(&mut *progress, Progress::Running) {
                Progress::Running => progress = self.done.wait(progress).unwrap_or_else(PoisonError::into_inner),
                Progress::Done(outcome) => return outcome,
                Progress::Waiting(task) => {
                    drop(progress);
                    return task.run(&self.enough);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        iter, thread,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::{
        Event, MAX_FIXED_WORKERS, Workers,
        walk::{Level, Walk, WalkOptions, children::Children},
    };

    /// A directory with 20 files in `temp`, to be read by threads.
    fn task(temp: &tempfile::TempDir) -> Task {
        let dir = temp.path().join("dir");
        std::fs::create_dir(&dir).unwrap();
        (0..20).for_each(|number| std::fs::write(dir.join(format!("f{number}")), "").unwrap());
        let options = Options::new().workers(Workers::Fixed(2));
        Task {
            parent: Arc::new(std::fs::File::open(temp.path()).unwrap().into()),
            name: c"dir".to_owned(),
            expected: None,
            dev: None,
            options,
            arena: Arc::new(Arena::new(options.budget_bytes)),
            pool: WorkerPool::new(&options),
        }
    }

    /// Waits until the thread is stopped, or a minute is over. Whether it was stopped.
    fn is_stopped(enough: &AtomicBool) -> bool {
        let begin = Instant::now();
        iter::repeat_with(thread::yield_now)
            .take_while(|()| begin.elapsed() < Duration::from_secs(60))
            .any(|()| enough.load(Ordering::Relaxed))
    }

    /// How many entries are in the first batch, and in all.
    fn entries(opened: &mut Opened) -> (usize, usize) {
        let (at_once, mut all) = (opened.scan.batch().len(), 0);
        while opened.scan.advance().unwrap() {
            all += opened.scan.batch().iter().filter(|record| record.attr().is_some()).count();
        }
        (at_once, all)
    }

    #[test]
    fn one_thread_reads_until_the_directorys_turn() {
        let temp = tempfile::tempdir().unwrap();
        let ahead = Arc::new(Ahead::new(task(&temp)));
        Ahead::run(&Arc::downgrade(&ahead), Task::run);
        assert_eq!(entries(&mut ahead.take().ok().unwrap()), (20, 20));
    }

    #[test]
    fn threads_that_read_ahead_end_with_the_walk() {
        let temp = tempfile::tempdir().unwrap();
        let task = task(&temp);
        let mut walk = Walk::new(WalkOptions::new().scan(task.options)).unwrap();
        let mut children = Children::default();
        children.add(b"dir", 0, None);
        let ahead = Arc::new(Ahead::new(task));
        let enough = ahead.enough.clone();
        *children.coming(1).next().unwrap().ahead = Some(ahead);
        walk.stack.push(Level { dev: (0, 0), ino: 0, fd: None, path_len: 0, name_at: 0, children });
        let (said, says) = std::sync::mpsc::channel();
        let (begun, begins) = std::sync::mpsc::channel();
        let work = move || {
            begun.send(()).unwrap();
            said.send(is_stopped(&enough)).unwrap();
        };
        assert!(walk.pool.threads.submit(Work::Single(Box::new(work)), 1));
        begins.recv().unwrap();
        drop(walk);
        assert!(says.recv().unwrap());
    }

    #[test]
    fn last_directory_read_ahead_is_dropped_first() {
        let temp = tempfile::tempdir().unwrap();
        let ahead = Arc::new(Ahead::new(task(&temp)));
        let mut children = Children::new(crate::Descent::Sorted);
        (0..3000).for_each(|number| children.add(b"dir", number, None));
        let holders = || Arc::strong_count(&ahead) - 1;
        for at in [0, MAX_FIXED_WORKERS - 1] {
            *children.coming(usize::MAX).nth(at).unwrap().ahead = Some(ahead.clone());
        }
        assert!(children.drop_last_ahead().is_some() && holders() == 1);
        assert!(children.coming(1).next().unwrap().ahead.is_some());
        assert!(children.drop_last_ahead().is_some() && holders() == 0);
        // Beyond what any number of threads reads ahead.
        *children.coming(usize::MAX).nth(MAX_FIXED_WORKERS).unwrap().ahead = Some(ahead.clone());
        assert!(children.drop_last_ahead().is_none());
    }

    /// No record has such names.
    #[test]
    fn impossible_name_is_reported_at_its_turn() {
        let temp = tempfile::tempdir().unwrap();
        let task = task(&temp);
        let mut walk = Walk::new(WalkOptions::new().scan(task.options)).unwrap();
        let mut children = Children::default();
        [&b"dir\0"[..], b"d\0ir", b"dir"].iter().for_each(|name| children.add(name, 0, None));
        let (fd, path_len) = (Some(task.parent), 0);
        walk.stack.push(Level { dev: (0, 0), ino: 0, fd, path_len, name_at: 0, children });
        for _ in 0..2 {
            let Some(Event::Failed(failure)) = walk.next_event() else { panic!("it was opened") };
            assert_eq!((failure.cause, failure.errno), (Cause::Open, libc::EINVAL));
        }
        assert!(matches!(walk.next_event(), Some(Event::Enter(_))));
    }

    #[test]
    fn panic_ends_the_wait() {
        let temp = tempfile::tempdir().unwrap();
        let ahead = Arc::new(Ahead::new(task(&temp)));
        let weak = Arc::downgrade(&ahead);
        drop(thread::spawn(move || Ahead::run(&weak, |_, _| panic!("for the test"))).join());
        assert!(!matches!(*ahead.progress(), Progress::Running));
        assert!(matches!(ahead.take(), Err((Cause::Open, Errno::IO))));
    }
}
