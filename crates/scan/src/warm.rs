//! Read-ahead of metadata: what is asked for once now is in the kernel's caches when somebody needs it.
//!
//! One thread reads the directories and leaves their names, in windows sorted by inode (the order in which they lie on
//! many disks), in a queue; workers ask for the attributes, and where links lead. The queue, a window and the number of workers are bounded.
//! It can be cancelled at any entry, says how far it is, and ends with an outcome; it never changes anything.
//!
//! Workers are as many as waiting pays for: the first one starts alone, and while calls wait, more are tried, up to the
//! limit. While calls are answered from the caches, one is enough.

mod gate;
mod window;

use std::{
    collections::VecDeque,
    ffi::CStr,
    io,
    num::{NonZeroU32, NonZeroUsize},
    os::fd::{AsFd, BorrowedFd},
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
    fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags},
    io::Errno,
    path::Arg,
};

use crate::{
    Descent, Event, Mask, Options, Order, Walk, WalkOptions, Workers,
    concurrency::Calls,
    kernel::calls::{UNFOLLOWED, Way, retry},
};

use gate::Gate;
use window::{Builder, Window};

/// Windows that wait in the queue, at most; each keeps a directory open.
const QUEUE_WINDOWS: usize = 64;

/// Workers, at most, whatever the options say.
const WORKERS: usize = 1 << 16;

/// Names that wait in the queue, at most, besides the window that is being filled.
const QUEUE_NAMES: usize = 2 * window::NAMES;

/// Failures that wait to be heard; then their finders wait.
const FAILURES: usize = 256;

/// What is read ahead, and how hard.
#[derive(Debug, Clone)]
pub struct WarmOptions {
    /// Directories below as well.
    pub recursive: bool,
    /// The names and the values of extended attributes as well.
    pub xattrs: bool,
    /// Directories on another file system than the path they are under are not entered.
    pub one_file_system: bool,
    /// How many calls may wait at once, besides those of the thread that reads directories. With `recursive`, a quarter
    /// of them may read the next directories, unless it `yields` or has a `rate`.
    pub max_in_flight: NonZeroUsize,
    /// How many entries a second at most. Names, with which some servers send attributes, are read somewhat ahead: those of
    /// three seconds at most, and what one call that reads a directory brings.
    pub rate: Option<NonZeroU32>,
    /// Ask for less at once when answers get slower: others want the same disk, or the same server.
    pub yields: bool,
    /// How many entries at most that the kernel has not got yet; then it ends as if cancelled. All count where it does not
    /// tell (before Linux 5.12).
    pub at_most: Option<u64>,
    /// In which order a directory's entries are asked for. [`Order::Auto`] is by inode.
    pub order: Order,
}

impl Default for WarmOptions {
    fn default() -> Self {
        Self {
            recursive: false,
            xattrs: false,
            one_file_system: false,
            max_in_flight: NonZeroUsize::new(32).expect("not zero"),
            rate: None,
            yields: false,
            at_most: None,
            order: Order::Inode,
        }
    }
}

impl WarmOptions {
    /// How many of the calls that may wait at once are left to threads that read directories ahead; one such thread
    /// would bring nothing.
    fn readers(&self) -> usize {
        let readers = self.max_in_flight.get() / 4;
        let may_hurry = !self.yields && self.rate.is_none();
        if self.recursive && may_hurry && readers > 1 { readers } else { 0 }
    }

    /// How many ask for entries, at most.
    fn workers(&self) -> NonZeroUsize {
        let workers = (self.max_in_flight.get() - self.readers()).min(WORKERS);
        NonZeroUsize::new(workers).expect("readers are a quarter at most")
    }

    /// `names`, or what may be asked for in a second if that is less.
    fn at_once(&self, names: usize) -> usize {
        self.rate.map_or(names, |rate| names.min(rate.get() as usize))
    }
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WarmProgress {
    /// Directories read.
    pub directories: u64,
    /// Entries found so far.
    pub found: u64,
    /// Entries asked for, with whatever answer.
    pub done: u64,
    /// Of these, and of directories, those that could not be read. What vanished meanwhile is no failure.
    pub failed: u64,
    /// It was to go no further: there is more that the kernel has not got yet than [`WarmOptions::at_most`].
    pub ran_out: bool,
    /// All directories were read: `found` is all there is.
    pub all_found: bool,
}

/// What could not be read.
#[derive(Debug)]
pub struct WarmFailure {
    /// What.
    pub path: PathBuf,
    /// Why.
    pub error: io::Error,
}

/// What [`Warm::next_event`] has to say.
#[derive(Debug)]
pub enum WarmEvent {
    /// Something could not be read; the rest goes on.
    Failed(WarmFailure),
    /// Nothing, for now.
    Nothing,
    /// It is over: all was asked for, or it was cancelled and nothing is in flight any more. A thread that panicked has
    /// cancelled it, and was told of as a failure.
    Ended,
}

/// A read-ahead under way. Dropping it cancels it and waits for what is in flight.
pub struct Warm {
    shared: Arc<Shared>,
    failures: Option<Receiver<WarmFailure>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    options: WarmOptions,
    cancelled: AtomicBool,
    /// Nothing leads to extended attributes, and that was told.
    lacks_proc: AtomicBool,
    /// Counts on their own: each is exact when all is over, and orders nothing.
    counts: Counts,
    queue: Mutex<Queue>,
    /// Something changed in the queue, or all is to end.
    changed: Condvar,
    gate: Gate,
}

#[derive(Default)]
struct Counts {
    directories: AtomicU64,
    found: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    /// Entries that the kernel did not have when somebody was about to ask for them, if that is bounded.
    new: AtomicU64,
    ran_out: AtomicBool,
    all_found: AtomicBool,
}

#[derive(Default)]
struct Queue {
    windows: VecDeque<Arc<Window>>,
    /// In `windows`.
    names: usize,
    /// No window will come.
    complete: bool,
    workers: usize,
}

impl Warm {
    /// Begins to read ahead what `paths` are, and of directories what is in them.
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

    /// Begins with what reads all there is.
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

    /// What happens next; waits up to `patience` for it. Failures must be taken: when many wait, the reading does too.
    pub fn next_event(&self, patience: Duration) -> WarmEvent {
        match self.failures.as_ref().map(|failures| failures.recv_timeout(patience)) {
            Some(Ok(failure)) => WarmEvent::Failed(failure),
            Some(Err(RecvTimeoutError::Timeout)) => WarmEvent::Nothing,
            Some(Err(RecvTimeoutError::Disconnected)) | None => WarmEvent::Ended,
        }
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> WarmProgress {
        let Counts { directories, found, done, failed, ran_out, all_found, new: _ } = &self.shared.counts;
        WarmProgress {
            directories: directories.load(Relaxed),
            // Before `found`: what is done was found.
            done: done.load(Relaxed),
            found: found.load(Relaxed),
            failed: failed.load(Relaxed),
            ran_out: ran_out.load(Relaxed),
            all_found: all_found.load(Relaxed),
        }
    }

    /// How many threads ask, or have asked, at once.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.lock().workers
    }

    /// Asks for nothing more. What is in flight ends on its own; [`WarmEvent::Ended`] says when.
    pub fn cancel(&self) {
        self.shared.cancel();
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        self.cancel();
        // Nobody hears failures any more: who waits to tell one goes on.
        self.failures = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing that can panic half way runs under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
        // Under the lock: who has looked at the flag is asleep by then, and hears it.
        let queue = self.lock();
        self.changed.notify_all();
        drop(queue);
        self.gate.end();
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// The whole of it, in a thread of its own.
    fn run(&self, failures: &SyncSender<WarmFailure>, read_all: impl FnOnce(&Self, &SyncSender<WarmFailure>)) {
        thread::scope(|scope| {
            self.start_workers(scope, failures);
            self.guarded(failures, || read_all(self, failures));
            self.counts.all_found.store(!self.is_cancelled(), Relaxed);
            self.lock().complete = true;
            self.changed.notify_all();
        });
    }

    /// What a thread does. If it panics, which has been told, that is a failure and the end: others wait for what it has not done.
    fn guarded(&self, failures: &SyncSender<WarmFailure>, part: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(part)).is_err() {
            self.cancel();
            self.failed(PathBuf::from("a thread"), Errno::IO, failures);
        }
    }

    /// Reads one path: a directory and what is in it, or whatever else it is.
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
        let scan = Options { mask: Mask::empty(), workers, ..Options::default() };
        let descent = if self.options.recursive { Descent::AsFound } else { Descent::No };
        let options = WalkOptions { scan, one_file_system: self.options.one_file_system, descent };
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
                    // What was a directory's name a moment ago may have gone; a root was asked for by name.
                    let vanished = failure.depth > 0 && failure.errno == Errno::NOENT.raw_os_error();
                    if !vanished {
                        self.failed(failure.path.to_owned(), Errno::from_raw_os_error(failure.errno), failures);
                    }
                }
            }
        }
    }

    /// Leaves a window to the workers, when there is room.
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

    /// The first window in the queue that is not used up; none when all is over.
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
                    // Those that were to wait for better times.
                    self.gate.drained();
                    return None;
                }
                None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Starts as many as may ask.
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
            // Where no further thread can be had, those that are there do it; the first one is needed.
            if number == 0 {
                self.failed(PathBuf::from("a thread"), Errno::AGAIN, failures);
                self.cancel();
            }
            return;
        }
    }

    /// A worker's life.
    fn work<'scope>(
        &'scope self,
        number: usize,
        scope: &'scope Scope<'scope, '_>,
        failures: &'scope SyncSender<WarmFailure>,
    ) {
        let mut calls = Calls::default();
        while let Some(window) = self.next_window() {
            // Allowed first: a name that was taken is asked for.
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
                    let is_told = calls.add(begin.elapsed());
                    self.done(asked, || window.path_of(name), failures);
                    if is_told && self.gate.learn(std::mem::take(&mut calls)) {
                        self.start_workers(scope, failures);
                    }
                }
            }
        }
    }

    /// Whether one more entry may be asked for. Of those that the kernel has, so that they need no room, all may.
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

    /// Asks for what there is of one entry.
    fn ask(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        let statx = retry(|| rustix::fs::statx(dir, name, UNFOLLOWED, StatxFlags::BASIC_STATS))?;
        if FileType::from_raw_mode(statx.stx_mode.into()).is_symlink() {
            ask_target(dir, name)?;
        }
        if self.options.xattrs { ask_xattrs(dir, name) } else { Ok(()) }
    }

    /// An entry was asked for, with this answer.
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
        // Nobody listens any more: then nobody wants to know.
        let _ = failures.send(WarmFailure { path, error: errno.into() });
    }
}

/// Whether the kernel has the attributes already; it asks no disk and no server for that.
fn is_cached(dir: impl AsFd, name: impl Arg, flags: OFlags) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
    rustix::fs::openat2(dir, name, flags, Mode::empty(), ResolveFlags::CACHED).is_ok()
}

/// Where a link leads. The kernel gets all of it, whatever it is to hand out.
fn ask_target(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match retry(|| rustix::fs::readlinkat_raw(dir, name, &mut [0_u8; 1][..])) {
        // No link any more; or one of those in /proc, which lead for their owner only.
        Ok(_) | Err(Errno::INVAL | Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Lists of names are no longer (`XATTR_LIST_MAX`), nor are values.
const XATTR_MAX: usize = 65536;

thread_local! {
    /// Where names and values go, which nobody reads.
    static XATTRS: std::cell::RefCell<(Vec<u8>, Vec<u8>)> =
        std::cell::RefCell::new((vec![0; XATTR_MAX], vec![0; XATTR_MAX]));
}

fn ask_xattrs(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let way = Way::to(dir, name, false)?;
    ask_each_xattr(|list| way.list(list), |xattr, value| way.value(xattr, value))
}

/// Of what a path leads to, as its attributes are.
fn ask_xattrs_of_path(path: &Path) -> Result<(), Errno> {
    ask_each_xattr(|list| rustix::fs::listxattr(path, list), |xattr, value| rustix::fs::getxattr(path, xattr, value))
}

fn ask_each_xattr(
    names: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    value_of: impl Fn(&CStr, &mut [u8]) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    XATTRS.with_borrow_mut(|(list, value)| {
        let length = match retry(|| names(list)) {
            Err(Errno::OPNOTSUPP) => return Ok(()),
            result => result?,
        };
        for xattr in list[..length].split_inclusive(|&byte| byte == 0) {
            let Ok(xattr) = CStr::from_bytes_with_nul(xattr) else { continue };
            match retry(|| value_of(xattr, value)) {
                // Removed meanwhile, or no value to be had by anyone.
                Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any test may take; it only bounds a wait that is to end by itself.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Reads ahead to the end, which must come, after one failure.
    fn fails_and_ends(read_all: impl FnOnce(&Shared, &SyncSender<WarmFailure>) + Send + 'static) {
        let warm = Warm::begin(WarmOptions::default(), read_all).unwrap();
        let WarmEvent::Failed(failure) = warm.next_event(PATIENCE) else { panic!("nobody has told") };
        assert_eq!(failure.error.raw_os_error(), Some(libc::EIO));
        assert!(matches!(warm.next_event(PATIENCE), WarmEvent::Ended));
        assert_eq!((warm.progress().failed, warm.progress().all_found), (1, false));
    }

    #[test]
    fn a_panic_of_who_reads_is_a_failure_and_the_end() {
        fails_and_ends(|_, _| panic!("as who reads may"));
    }

    #[test]
    fn a_panic_of_a_worker_is_a_failure_and_the_end() {
        fails_and_ends(|shared, _| (0..=QUEUE_WINDOWS).for_each(|_| shared.enqueue(Some(Window::damaged()))));
    }
}
