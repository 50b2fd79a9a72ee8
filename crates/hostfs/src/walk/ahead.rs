//! Directories that are read before it is their turn, by the threads, while directories make us wait.
//!
//! Each has a slice of the budget of its own, so that none can keep another one from going on. What comes first does
//! it: a thread, or the walk itself when it gets there. A walk that needs the slice elsewhere, or ends, lets go, and
//! the work is not done, or was done for the kernel's caches only.

use std::{
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use rustix::io::Errno;

use super::{
    Cause,
    children::Expected,
    open::{Identity, identity_as, open_dir},
};
use crate::{
    Options,
    arena::Arena,
    meter::Meter,
    pool::Work,
    scan::{Crew, Scan},
};

/// Which directory, and what it is read with.
pub(super) struct Task {
    pub parent: Arc<OwnedFd>,
    pub name: CString,
    pub expected: Option<Expected>,
    pub options: Options,
    pub arena: Arc<Arena>,
    pub crew: Crew,
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

/// A directory on its way.
pub(super) struct Ahead {
    progress: Mutex<Progress>,
    done: Condvar,
}

impl Task {
    fn run(self) -> Outcome {
        let meter = Meter::start();
        let fd = open_dir(self.parent.as_fd(), &self.name).map_err(|errno| (Cause::Open, errno))?;
        let identity = identity_as(fd.as_fd(), self.expected)?;
        let mut scan = Scan::with(fd, &self.options, self.arena.clone(), self.crew.clone());
        let entries = scan.prefetch();
        // Names alone come many at once: it is the directory that waits.
        let asked = if self.options.mask.is_empty() { 0 } else { entries as u64 };
        self.crew.pace.after_ahead(meter.read(1 + asked));
        Ok(Opened { scan, identity, arena: self.arena })
    }
}

impl Ahead {
    /// Gives it to the threads. None, and the task comes to nothing, if there are none.
    pub fn start(task: Task) -> Option<Arc<Self>> {
        let (pool, threads) = (task.crew.pool.clone(), task.crew.pace.threads());
        let ahead = Arc::new(Self { progress: Mutex::new(Progress::Waiting(task)), done: Condvar::new() });
        let weak = Arc::downgrade(&ahead);
        let work = Work::Single(Box::new(move || {
            if let Some(ahead) = weak.upgrade() {
                ahead.run();
            }
        }));
        pool.submit(work, threads).then_some(ahead)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// On a thread.
    fn run(&self) {
        let mut progress = self.progress();
        let task = match std::mem::replace(&mut *progress, Progress::Running) {
            Progress::Waiting(task) => task,
            other => return *progress = other,
        };
        drop(progress);
        let outcome = task.run();
        *self.progress() = Progress::Done(outcome);
        self.done.notify_all();
    }

    /// What became of it, when it is its turn.
    pub fn take(&self) -> Outcome {
        let mut progress = self.progress();
        loop {
            match std::mem::replace(&mut *progress, Progress::Running) {
                Progress::Running => progress = self.done.wait(progress).unwrap_or_else(PoisonError::into_inner),
                Progress::Done(outcome) => return outcome,
                Progress::Waiting(task) => {
                    drop(progress);
                    return task.run();
                }
            }
        }
    }
}
