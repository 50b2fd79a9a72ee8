//! Read-ahead of metadata, into the kernel's caches.
//!
//! One thread reads the directories and puts their names into a queue, in windows sorted by inode
//! (on many disks, the order in which inodes lie). Workers read the attributes, and the targets of
//! links. The queue, a window and the number of workers are bounded. Read-ahead can be cancelled at
//! any entry, reports its progress, and ends with an outcome. It changes nothing.
//!
//! The number of workers is found by [`pando_concurrency`]. The first worker starts alone, and one
//! is enough while the caches answer.

mod ask;
mod gate;
mod options;
mod progress;
mod window;

use std::{
    collections::VecDeque,
    ffi::CStr,
    io,
    os::fd::BorrowedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle, Scope},
    time::{Duration, Instant},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, OFlags, StatxFlags},
    io::Errno,
};

use pando_concurrency::Calls;

use crate::{
    Descent, Event, Mask, Options, Walk, WalkOptions, Workers,
    kernel::calls::{UNFOLLOWED, retry},
};

use ask::{ask_target, ask_xattrs, ask_xattrs_of_path, is_cached};
use gate::Gate;
pub use options::WarmOptions;
pub use progress::{WarmEvent, WarmFailure, WarmProgress};
use window::{Builder, Window};

/// The most windows in the queue. Each keeps a directory open.
const QUEUE_WINDOWS: usize = 64;

/// The most names in the queue, besides the window that is being filled.
const QUEUE_NAMES: usize = 2 * window::NAMES;

/// The most failures that wait for the caller. Then the threads that find others wait.
const FAILURES: usize = 256;

/// A read-ahead in progress. Dropping it cancels it and waits for the calls in flight.
pub struct Warm {
    shared: Arc<Shared>,
    failures: Option<Receiver<WarmFailure>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    options: WarmOptions,
    cancelled: AtomicBool,
    /// Extended attributes cannot be reached, and that was reported.
    lacks_proc: AtomicBool,
    /// Independent counts. Each is exact at the end, and none orders anything.
    counts: Counts,
    queue: Mutex<Queue>,
    /// The queue has changed, or all is to end.
    changed: Condvar,
    gate: Gate,
}

#[derive(Default)]
struct Counts {
    directories: AtomicU64,
    found: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    /// Entries that were not in the kernel's caches before they were read. Counted only with a
    /// bound.
    new: AtomicU64,
    ran_out: AtomicBool,
    all_found: AtomicBool,
}

#[derive(Default)]
struct Queue {
    windows: VecDeque<Arc<Window>>,
    /// The sum of the names in `windows`.
    names: usize,
    /// No window will be added.
    complete: bool,
    workers: usize,
}

impl Warm {
    /// Begins to read ahead these paths, and the entries of those that are directories.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(paths: Vec<PathBuf>, options: WarmOptions) -> io::Result<Self> {
        Self::begin(options, move |shared, failures| {
            for path in paths.iter().take_while(|_| !shared.is_cancelled()) {
                shared.read(path, failures);
            }
        })
    }

    /// Begins with a closure that reads all the directories.
    fn begin(
        options: WarmOptions,
        read_all: impl FnOnce(&Shared, &SyncSender<WarmFailure>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, failures) = sync_channel(FAILURES);
        let gate = Gate::new(options.rate, options.workers(), options.yields);
        let shared = Arc::new(Shared {
            options,
            cancelled: AtomicBool::new(false),
            lacks_proc: AtomicBool::new(false),
            counts: Counts::default(),
            queue: Mutex::default(),
            changed: Condvar::new(),
            gate,
        });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("pando-warm".into()).spawn(move || theirs.run(&sender, read_all))?;
        Ok(Self { shared, failures: Some(failures), thread: Some(thread) })
    }

    /// The next event, for which it waits up to `patience`. Failures must be taken: when many wait,
    /// reading waits too.
    pub fn next_event(&self, patience: Duration) -> WarmEvent {
        match self.failures.as_ref().map(|failures| failures.recv_timeout(patience)) {
            Some(Ok(failure)) => WarmEvent::Failed(failure),
            Some(Err(RecvTimeoutError::Timeout)) => WarmEvent::Nothing,
            Some(Err(RecvTimeoutError::Disconnected)) | None => WarmEvent::Ended,
        }
    }

    /// The progress so far.
    #[must_use]
    pub fn progress(&self) -> WarmProgress {
        let Counts { directories, found, done, failed, ran_out, all_found, new: _ } = &self.shared.counts;
        WarmProgress {
            directories: directories.load(Relaxed),
            // Before `found`: entries that are done were found.
            done: done.load(Relaxed),
            found: found.load(Relaxed),
            failed: failed.load(Relaxed),
            ran_out: ran_out.load(Relaxed),
            all_found: all_found.load(Relaxed),
        }
    }

    /// The most threads that have read entries at once.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.lock().workers
    }

    /// Makes no more calls. Those in flight end by themselves, and [`WarmEvent::Ended`] follows.
    pub fn cancel(&self) {
        self.shared.cancel();
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        self.cancel();
        // No failures are received any more: threads that wait to send one continue.
        self.failures = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing that can panic halfway runs under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
        // Under the lock: a thread that has read the flag before is asleep by now, and will be
        // woken.
        let queue = self.lock();
        self.changed.notify_all();
        drop(queue);
        self.gate.end();
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// The thread that reads the directories, and starts the others.
    fn run(&self, failures: &SyncSender<WarmFailure>, read_all: impl FnOnce(&Self, &SyncSender<WarmFailure>)) {
        thread::scope(|scope| {
            self.start_workers(scope, failures);
            self.guarded(failures, || read_all(self, failures));
            self.counts.all_found.store(!self.is_cancelled(), Relaxed);
            self.lock().complete = true;
            self.changed.notify_all();
        });
    }

    /// Runs a part of a thread. A panic is reported as a failure and ends everything: other threads
    /// wait for work that is not done.
    fn guarded(&self, failures: &SyncSender<WarmFailure>, part: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(part)).is_err() {
            self.cancel();
            self.failed(PathBuf::from("a thread"), Errno::IO, failures);
        }
    }

    /// Reads one path: a directory and its entries, or another file.
    fn read(&self, path: &Path, failures: &SyncSender<WarmFailure>) {
        let asked = retry(|| rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS));
        match asked {
            Err(errno) => self.failed(path.to_owned(), errno, failures),
            Ok(statx) if FileType::from_raw_mode(statx.stx_mode.into()).is_dir() => {
                self.walk(path, failures);
            }
            Ok(_) => {
                self.counts.found.fetch_add(1, Relaxed);
                if self.gate.wait_for_rate() && self.may_ask(|| is_cached(CWD, path, OFlags::empty())) {
                    let asked = if self.options.xattrs { ask_xattrs_of_path(path) } else { Ok(()) };
                    self.done(asked, || path.to_owned(), failures);
                }
            }
        }
    }

    fn walk(&self, path: &Path, failures: &SyncSender<WarmFailure>) {
        let workers = Workers::AtMost(self.options.readers().max(1));
        let scan = Options::new().mask(Mask::empty()).workers(workers);
        let descent = if self.options.recursive { Descent::AsFound } else { Descent::No };
        let options = WalkOptions::new().scan(scan).one_file_system(self.options.one_file_system).descent(descent);
        let mut walk = match Walk::open(path, options) {
            Ok(walk) => walk,
            Err(error) => {
                return self.failed(path.to_owned(), Errno::from_raw_os_error(error.errno()), failures);
            }
        };
        let mut builder =
            Builder::new(self.options.order, self.options.at_once(window::NAMES), self.options.workers().get());
        while !self.is_cancelled() {
            match walk.next_event() {
                None => break,
                Some(Event::Enter(directory)) => {
                    self.counts.directories.fetch_add(1, Relaxed);
                    if let Err(errno) = builder.enter(directory.fd, directory.path) {
                        self.failed(directory.path.to_owned(), errno, failures);
                    }
                }
                Some(Event::Batch(_, batch)) => {
                    for record in batch.iter() {
                        if builder.push(&record) {
                            self.counts.found.fetch_add(1, Relaxed);
                        }
                        if builder.is_full() {
                            self.enqueue(builder.take());
                        }
                    }
                }
                Some(Event::Leave(..)) => self.enqueue(builder.take()),
                Some(Event::Failed(failure)) => {
                    // A directory may vanish between its record and its opening. A root was asked
                    // for by name.
                    let vanished = failure.depth > 0 && failure.errno == Errno::NOENT.raw_os_error();
                    if !vanished {
                        self.failed(failure.path.to_owned(), Errno::from_raw_os_error(failure.errno), failures);
                    }
                }
            }
        }
    }

    /// Adds a window to the queue, when there is room.
    fn enqueue(&self, window: Option<Window>) {
        let Some(window) = window else { return };
        let most = self.options.at_once(QUEUE_NAMES);
        let mut queue = self.lock();
        while (queue.windows.len() >= QUEUE_WINDOWS || queue.names >= most) && !self.is_cancelled() {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.names += window.len();
        queue.windows.push_back(Arc::new(window));
        drop(queue);
        self.changed.notify_all();
    }

    /// The first window in the queue that has names left; none when all is over.
    fn next_window(&self) -> Option<Arc<Window>> {
        let mut queue = self.lock();
        loop {
            if self.is_cancelled() {
                return None;
            }
            while queue.windows.front().is_some_and(|window| window.is_used_up()) {
                let used = queue.windows.pop_front().map_or(0, |window| window.len());
                queue.names -= used;
                self.changed.notify_all();
            }
            match queue.windows.front() {
                Some(window) => return Some(Arc::clone(window)),
                None if queue.complete => {
                    drop(queue);
                    // For workers that wait until they are allowed.
                    self.gate.drained();
                    return None;
                }
                None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Starts as many workers as may ask.
    fn start_workers<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        failures: &'scope SyncSender<WarmFailure>,
    ) {
        let mut queue = self.lock();
        while queue.workers < self.gate.allowed() {
            let number = queue.workers;
            let started = thread::Builder::new()
                .name(format!("pando-warm-{number}"))
                .stack_size(256 << 10)
                .spawn_scoped(scope, move || self.guarded(failures, || self.work(number, scope, failures)));
            if started.is_ok() {
                queue.workers += 1;
                continue;
            }
            drop(queue);
            // If no other thread can be started, those that exist do the work. The first one is
            // needed.
            if number == 0 {
                self.failed(PathBuf::from("a thread"), Errno::AGAIN, failures);
                self.cancel();
            }
            return;
        }
    }

    /// The main loop of a worker.
    fn work<'scope>(
        &'scope self,
        number: usize,
        scope: &'scope Scope<'scope, '_>,
        failures: &'scope SyncSender<WarmFailure>,
    ) {
        let mut calls = Calls::default();
        while let Some(window) = self.next_window() {
            // The permission comes first: names that were taken must be read.
            while self.gate.wait_until_allowed(number) {
                let Some(names) = window.next_part() else { break };
                for name in names {
                    if !self.gate.wait_for_rate() {
                        return;
                    }
                    let begin = Instant::now();
                    if !self.may_ask(|| is_cached(window.dir(), name, OFlags::NOFOLLOW)) {
                        return;
                    }
                    let asked = self.ask(window.dir(), name);
                    let is_due = calls.add(begin.elapsed());
                    self.done(asked, || window.path_of(name), failures);
                    if is_due && self.gate.learn(std::mem::take(&mut calls)) {
                        self.start_workers(scope, failures);
                    }
                }
            }
        }
    }

    /// Whether one more entry may be read. Entries in the kernel's caches need no room, so all of
    /// them may.
    fn may_ask(&self, is_cached: impl FnOnce() -> bool) -> bool {
        if self.is_cancelled() {
            return false;
        }
        let is_over =
            self.options.at_most.is_some_and(|most| !is_cached() && self.counts.new.fetch_add(1, Relaxed) >= most);
        if is_over {
            self.counts.ran_out.store(true, Relaxed);
            self.cancel();
        }
        !is_over
    }

    /// Reads the metadata of one entry.
    fn ask(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        let statx = retry(|| rustix::fs::statx(dir, name, UNFOLLOWED, StatxFlags::BASIC_STATS))?;
        if FileType::from_raw_mode(statx.stx_mode.into()).is_symlink() {
            ask_target(dir, name)?;
        }
        if self.options.xattrs { ask_xattrs(dir, name) } else { Ok(()) }
    }

    /// Takes in the outcome of one entry.
    fn done(&self, asked: Result<(), Errno>, path: impl FnOnce() -> PathBuf, failures: &SyncSender<WarmFailure>) {
        self.counts.done.fetch_add(1, Relaxed);
        match asked {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOSYS) if self.lacks_proc.swap(true, Relaxed) => {}
            Err(Errno::NOSYS) => self.failed(PathBuf::from("/proc"), Errno::NOENT, failures),
            Err(errno) => self.failed(path(), errno, failures),
        }
    }

    fn failed(&self, path: PathBuf, errno: Errno, failures: &SyncSender<WarmFailure>) {
        self.counts.failed.fetch_add(1, Relaxed);
        // The receiver may be gone, and needs no failures then.
        let _ = failures.send(WarmFailure { path, error: errno.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any test may take. It only bounds a wait that ends by itself.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Reads ahead to the end, which must follow one failure.
    fn fails_and_ends(read_all: impl FnOnce(&Shared, &SyncSender<WarmFailure>) + Send + 'static) {
        let warm = Warm::begin(WarmOptions::default(), read_all).unwrap();
        let WarmEvent::Failed(failure) = warm.next_event(PATIENCE) else { panic!("no failure") };
        assert_eq!(failure.error.raw_os_error(), Some(libc::EIO));
        assert!(matches!(warm.next_event(PATIENCE), WarmEvent::Ended));
        assert_eq!((warm.progress().failed, warm.progress().all_found), (1, false));
    }

    #[test]
    fn panic_of_the_reader_is_a_failure_and_the_end() {
        fails_and_ends(|_, _| panic!("for the test"));
    }

    #[test]
    fn panic_of_a_worker_is_a_failure_and_the_end() {
        fails_and_ends(|shared, _| (0..=QUEUE_WINDOWS).for_each(|_| shared.enqueue(Some(Window::damaged()))));
    }
}
