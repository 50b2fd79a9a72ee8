//! Read-ahead: threads load the entries of a directory into the cache before a walk wants them.
//!
//! Difficulties, and the solution of each:
//! 1. *The order.* Entries are listed in the directory's order, and asked for in the order of inode
//!    numbers. On the file systems of Linux that is the order on the disk. So entries are gathered
//!    in windows, which are sorted. The first window is small: a reader that follows waits for it.
//! 2. *How many calls at once.* That is found by trial (`pando_concurrency`). A thread takes as
//!    many names at once as the backing answers in [`PART_TIME`]. Another thread is started when
//!    more calls are allowed than there are threads.
//! 3. *A walk wants a name that is being loaded.* It waits for that call
//!    ([`load_many`]), and names that a walk is loading are left out.
//! 4. *Other operations* need the same backing. While a thread waits for one of those, half as many
//!    calls are made. Look-ups in the same directory do not count: the read-ahead is for them.
//! 5. *How far.* A reader that asks for a read-ahead says how many entries it wants. A listing that
//!    has started one by itself may stop anywhere. So it is kept a little ahead of the reader, and
//!    farther the longer the reader follows ([`Job::follow`]).
//! 6. *The end.* The threads are members of two groups ([`WaitGroup`]): that of the read-ahead, for
//!    callers that wait for it, and that of the tree, for the thread that shuts it down.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use pando_concurrency::{ByThroughput, Calls, Queue};
use pando_records::Mask;
use pando_sync::{Counted, Member, WaitGroup, flush_retired, lock, pin};

use crate::{
    Error, Result,
    caches::{
        load::{Answer, Found, Purpose, Version, bind_scanned, load_many, parts},
        xattrs::load_many_xattrs,
    },
    objects::{backed_dir::BackedDir, dentry::Dentry, statahead::Statahead},
};

/// The most threads that read ahead in a tree.
const THREADS: usize = 64;
/// Names in the first window. Each one after it has twice as many.
const FIRST_WINDOW: usize = 128;
/// The most names in a window. A read-ahead holds two windows in memory.
const WINDOW: usize = 4096;
/// A thread takes as many names at once as are answered in this time, or in twice the time of the
/// fastest call: few if each waits on its own, and many if one wait answers all.
const PART_TIME: Duration = Duration::from_millis(2);
/// The most names that a thread takes at once.
const PART_MAX: usize = 64;
/// Names that a thread takes at once before it is known how long they take.
const PART_FIRST: usize = 2;

/// A listing that reads ahead by itself is this far ahead at first.
pub(crate) const AHEAD: usize = 1024;
/// It is never farther ahead.
const AHEAD_MAX: usize = 16_384;

/// Names of a directory, in the order in which they are asked for.
#[derive(Default)]
struct Window {
    names: Vec<u8>,
    /// The inode number, and where the name begins and ends in `names`.
    entries: Vec<(u64, u32, u32)>,
}

impl Window {
    fn name(&self, at: usize) -> &[u8] {
        let (_, begin, end) = self.entries[at];
        &self.names[begin as usize..end as usize]
    }
}

/// A read-ahead of one directory.
pub(crate) struct Job {
    dir: Counted<Dentry>,
    /// The parts of each entry that are loaded.
    mask: Mask,
    /// The threads at work. Closed: cancelled.
    pub threads: Arc<WaitGroup>,
    state: Mutex<State>,
    changed: Condvar,
    /// Entries that were listed; of these, those that are done; of these, names that the backing
    /// was asked for. Atomic, written in this order, and read in the other one.
    pub listed: AtomicU64,
    pub done: AtomicU64,
    pub requested: AtomicU64,
    /// Where the listing has come to. The largest number: to the end, or to an error. Atomic: a
    /// single independent value.
    listed_to: AtomicU64,
}

struct State {
    /// The window at work, and how many of its names were taken.
    window: Arc<Window>,
    taken: usize,
    /// The window after it.
    next: Option<Arc<Window>>,
    /// A thread is gathering the next window.
    is_scanning: bool,
    /// Where the next window begins, how many names it has, and how many more are wanted.
    cookie: u64,
    size: usize,
    left: usize,
    at_end: bool,
    /// How many entries a reader that follows has passed, and how many were wanted so far.
    passed: usize,
    wanted: usize,
    /// Names in a part, and the time of the fastest call.
    part: usize,
    fastest: Duration,
    /// Threads, and how many of them are at a step. A thread waits only while another one is at a
    /// step.
    threads: usize,
    active: usize,
    controller: ByThroughput,
    error: Option<Error>,
}

/// The next step of a thread.
enum Step {
    /// Gathers the next window: so many names after a cookie.
    Scan { cookie: u64, size: usize },
    /// Loads these names of a window.
    Load { window: Arc<Window>, from: usize, to: usize },
}

impl Job {
    /// Starts to read ahead in a directory of a tree with a backing: at most `most` entries after a
    /// cookie, and more if a reader follows.
    pub(crate) fn start(dir: Counted<Dentry>, cookie: u64, most: usize, mask: Mask) -> Result<Arc<Self>> {
        let in_tree = dir.sb().background.enter(THREADS);
        // Half of what was best lately: this directory may be small, or cached.
        let first = (dir.sb().ahead_limit.load(Ordering::Relaxed) / 2).max(1);
        let job = Arc::new(Self {
            dir,
            mask,
            threads: Arc::new(WaitGroup::new()),
            state: Mutex::new(State {
                window: Arc::default(),
                taken: 0,
                next: None,
                is_scanning: false,
                cookie,
                size: FIRST_WINDOW,
                left: most,
                at_end: false,
                passed: 0,
                wanted: most,
                part: PART_FIRST,
                fastest: Duration::MAX,
                threads: 1,
                active: 0,
                controller: ByThroughput::new(first, THREADS, Queue::Short),
                error: None,
            }),
            changed: Condvar::new(),
            listed: AtomicU64::new(0),
            done: AtomicU64::new(0),
            requested: AtomicU64::new(0),
            listed_to: AtomicU64::new(cookie),
        });
        let Some(in_tree) = in_tree else {
            return Err(if job.dir.sb().background.is_closed() { Error::Stale } else { Error::TryAgain });
        };
        let in_job = job.threads.enter(THREADS).expect("just made");
        job.count_in_directory(1);
        spawn(in_tree, in_job, job.clone()).inspect_err(|_| job.count_in_directory(-1))?;
        Ok(job)
    }

    /// The error that has ended the read-ahead, if one has.
    pub(crate) fn error(&self) -> Option<Error> {
        self.state().error
    }

    /// No more calls are made. Those in flight are not waited for.
    pub(crate) fn cancel(&self) {
        self.threads.close();
        // Under the lock: a thread that is about to wait has seen it, or is woken.
        drop(self.state());
        self.changed.notify_all();
    }

    /// The reader of a listing has passed so many more entries. False if nothing more is read ahead
    /// of it.
    pub(crate) fn follow(self: &Arc<Self>, entries: usize) -> bool {
        let mut state = self.state();
        state.passed += entries;
        let wanted = (AHEAD + 2 * state.passed).min(AHEAD_MAX + state.passed);
        let more = wanted.saturating_sub(state.wanted);
        state.wanted += more;
        state.left += more;
        // The threads end when the reader is far behind.
        if state.threads == 0 && !state.at_end && state.left > 0 && !self.is_over(&state) {
            self.add_thread(&mut state);
        }
        state.threads > 0 && !self.is_over(&state)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn is_over(&self, state: &State) -> bool {
        state.error.is_some() || self.threads.is_closed() || self.dir.sb().background.is_closed()
    }

    /// The next step of a thread. None if there is nothing left to do, and the thread ends.
    fn next(&self) -> Option<Step> {
        let mut state = self.state();
        loop {
            if state.taken == state.window.entries.len()
                && let Some(next) = state.next.take()
            {
                (state.window, state.taken) = (next, 0);
            }
            let has_names = state.taken < state.window.entries.len();
            let may_scan = !state.is_scanning && !state.at_end && state.left > 0 && state.next.is_none();
            let has_work = has_names || may_scan || state.is_scanning;
            if has_work && self.dir.sb().background.is_closed() {
                self.fail(Error::Stale, &mut state);
            }
            if !has_work || self.is_over(&state) {
                self.remove_thread(&mut state);
                return None;
            }
            if state.active < self.allowed(&state) {
                if may_scan && 2 * state.taken >= state.window.entries.len() {
                    (state.is_scanning, state.active) = (true, state.active + 1);
                    return Some(Step::Scan { cookie: state.cookie, size: state.size.min(state.left) });
                }
                if has_names {
                    let from = state.taken;
                    state.taken = state.window.entries.len().min(from + state.part);
                    state.active += 1;
                    return Some(Step::Load { window: state.window.clone(), from, to: state.taken });
                }
            }
            flush_retired();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the read-ahead. The first error is kept.
    fn fail(&self, error: Error, state: &mut State) {
        state.error.get_or_insert(error);
        self.listed_to.store(u64::MAX, Ordering::Relaxed);
    }

    /// How many threads may be at a step.
    fn allowed(&self, state: &State) -> usize {
        let limit = state.controller.limit();
        if self.dir.sb().foreground.any() { limit.div_ceil(2) } else { limit }
    }

    /// The body of a thread.
    fn work(self: &Arc<Self>) {
        while let Some(step) = self.next() {
            let ends = Ends(self);
            let result = match step {
                Step::Scan { cookie, size } => self.scan(cookie, size),
                Step::Load { window, from, to } => self.load(&window, from, to),
            };
            if let Err(error) = result {
                self.fail(error, &mut self.state());
            }
            drop(ends);
        }
        self.changed.notify_all();
    }

    /// Gathers the next window. Entries that come with their attributes are loaded at once.
    fn scan(&self, cookie: u64, size: usize) -> Result<()> {
        let (inode, sb) = (self.dir.inode(), self.dir.sb());
        let backing = sb.ask_backing().ok_or(Error::NotSupported)?;
        let before = Version::of(inode)?;
        let (mut window, mut answers, mut last) = (Window::default(), Vec::new(), cookie);
        let lock = sb.lock_directory(inode.ino);
        backing.scan(inode.ino, cookie, parts(self.mask), &mut |entry| {
            if window.entries.len() >= size {
                return false;
            }
            let begin = window.names.len() as u32;
            window.names.extend_from_slice(entry.name);
            window.entries.push((entry.ino, begin, window.names.len() as u32));
            answers.push(Answer::of(&entry));
            last = entry.cookie;
            window.entries.len() < size
        })?;
        drop(lock);
        let listed = window.entries.len();
        if answers.iter().any(Option::is_some) {
            let found = answers.into_iter().enumerate().filter(|(_, answer)| answer.is_some());
            let found = found.map(|(at, answer)| Found { name: window.name(at), answer });
            bind_scanned(&self.dir, found, before, Purpose::ReadAhead)?;
        }
        window.entries.sort_unstable();
        self.listed.fetch_add(listed as u64, Ordering::Release);
        self.listed_to.store(if listed < size { u64::MAX } else { last }, Ordering::Relaxed);
        let mut state = self.state();
        state.is_scanning = false;
        state.cookie = last;
        state.left -= listed;
        state.at_end = listed < size;
        state.size = WINDOW.min(2 * state.size);
        state.next = (listed > 0).then(|| Arc::new(window));
        Ok(())
    }

    /// Loads names of a window.
    fn load(self: &Arc<Self>, window: &Window, from: usize, to: usize) -> Result<()> {
        let names: Vec<&[u8]> = (from..to).map(|at| window.name(at)).collect();
        let began = Instant::now();
        let mut requested = load_many(&self.dir, &names, Purpose::ReadAhead)?;
        if self.mask.wants_xattrs() {
            requested = requested.max(self.load_xattrs(&names));
        }
        let took = began.elapsed();
        self.done.fetch_add(names.len() as u64, Ordering::Release);
        self.requested.fetch_add(requested as u64, Ordering::Release);
        let mut state = self.state();
        let was_full = state.active >= state.controller.limit();
        if requested == names.len() {
            state.fastest = state.fastest.min(took);
            let time = PART_TIME.max(2 * state.fastest).as_nanos();
            state.part = ((time * requested as u128 / took.as_nanos().max(1)) as usize).clamp(1, PART_MAX);
        }
        // Answers of the cache say nothing of the backing.
        if requested > 0 && was_full {
            state.controller.learn(Calls::of(1, took));
        } else {
            state.controller.interrupted();
        }
        let has_names = state.taken < state.window.entries.len() || state.next.is_some();
        let has_work = has_names || state.is_scanning || !state.at_end && state.left > 0;
        if has_work && state.threads < self.allowed(&state) {
            self.add_thread(&mut state);
        }
        Ok(())
    }

    /// Loads the extended attributes of names that are cached. Those that cannot be loaded are left
    /// to the thread that wants them. Returns for how many inodes the backing was asked.
    fn load_xattrs(&self, names: &[&[u8]]) -> usize {
        let (sb, inode) = (self.dir.sb(), self.dir.inode());
        let Ok(directory) = inode.directory() else { return 0 };
        let guard = pin();
        let unknown = |name: &&[u8]| {
            let dentry = directory.dirent(sb.hash(inode.ino, name), name, &guard)?.to_ref().value.load(&guard)?;
            if dentry.to_ref().inode().has_xattrs() { None } else { dentry.get() }
        };
        let unknown: Vec<Counted<Dentry>> = names.iter().filter_map(unknown).collect();
        drop(guard);
        let _ = load_many_xattrs(unknown.iter().map(|dentry| dentry.inode()).enumerate());
        unknown.len()
    }

    /// Starts another thread, if the tree may have one more.
    fn add_thread(self: &Arc<Self>, state: &mut State) {
        let (Some(in_tree), Some(in_job)) = (self.dir.sb().background.enter(THREADS), self.threads.enter(THREADS))
        else {
            return;
        };
        if spawn(in_tree, in_job, self.clone()).is_ok() {
            state.threads += 1;
            self.count_in_directory(1);
        }
    }

    /// A thread ends.
    fn remove_thread(&self, state: &mut State) {
        state.threads -= 1;
        self.count_in_directory(-1);
        if state.threads == 0 {
            self.dir.sb().ahead_limit.store(state.controller.limit(), Ordering::Relaxed);
            (state.window, state.taken, state.next) = (Arc::default(), 0, None);
        }
    }

    /// Adds to the number of threads that read ahead in the directory.
    fn count_in_directory(&self, change: i64) {
        if let Some(backed) = self.dir.inode().backed_dir() {
            backed.aheads.fetch_add(change, Ordering::Relaxed);
        }
    }
}

/// The read-ahead of a listing. It is cancelled when this is dropped.
#[derive(Default)]
pub(crate) struct ListingAhead(Mutex<Option<Arc<Job>>>);

impl ListingAhead {
    /// Cancels the read-ahead, if there is one, and goes on with another.
    pub(crate) fn replace(&self, job: Option<Arc<Job>>) {
        let old = std::mem::replace(&mut *lock(&self.0), job);
        old.inspect(|job| job.cancel());
    }

    /// As [`Job::follow`].
    pub(crate) fn follow(&self, entries: usize) -> bool {
        lock(&self.0).as_ref().is_some_and(|job| job.follow(entries))
    }
}

impl Drop for ListingAhead {
    fn drop(&mut self) {
        self.replace(None);
    }
}

/// The data that a program reads of names that it has listed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    Inodes,
    Xattrs,
}

impl Wanted {
    fn statahead(self, dir: &BackedDir) -> MutexGuard<'_, Statahead> {
        lock(match self {
            Self::Inodes => &dir.statahead,
            Self::Xattrs => &dir.xattr_ahead,
        })
    }

    /// An operation has waited for the backing to return this of a name in a directory. If the
    /// directory was listed before, the next names probably wait, too.
    pub(crate) fn waited(self, dir: &Counted<Dentry>) {
        let (Some(backed), true) = (dir.inode().backed_dir(), dir.sb().namespace.options.read_ahead) else { return };
        // The program needs some time for what is loaded.
        let room = (dir.sb().namespace.options.cached_inodes / 2).max(1);
        let allowed = lock(&backed.statahead).allowed(backed.ahead(), room);
        let (mask, allowed) = match self {
            Self::Inodes => (Mask::STAT, allowed),
            // Whether the extended attributes were used is not known.
            Self::Xattrs => (Mask::STAT | Mask::XATTR_VALUES, if allowed == 0 { 0 } else { room }),
        };
        let Some((cookie, entries)) = self.statahead(backed).missed(allowed) else { return };
        match Job::start(dir.clone(), cookie, entries, mask) {
            Ok(job) => job.threads.keep(Ended(job.clone(), self)),
            Err(_) => self.statahead(backed).ended(None),
        }
    }
}

/// Notes the end of a read-ahead that was started here.
struct Ended(Arc<Job>, Wanted);

impl Drop for Ended {
    fn drop(&mut self) {
        let Self(job, wanted) = self;
        let Some(backed) = job.dir.inode().backed_dir() else { return };
        let to = job.listed_to.load(Ordering::Relaxed);
        wanted.statahead(backed).ended((to != u64::MAX).then_some(to));
    }
}

/// Starts a thread of a read-ahead.
fn spawn(in_tree: Member, in_job: Member, job: Arc<Job>) -> Result<()> {
    let body = move || {
        let (_in_tree, _in_job) = (in_tree, in_job);
        // Dropped before those: a thread that has left the tree holds nothing of it.
        let job = job;
        job.work();
    };
    thread::Builder::new().name("pando-ahead".into()).spawn(body).map_err(|_| Error::TryAgain)?;
    Ok(())
}

/// Ends a step. If the backing has panicked, the read-ahead ends.
struct Ends<'a>(&'a Job);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.active -= 1;
        if thread::panicking() {
            self.0.fail(Error::Io, &mut state);
            self.0.remove_thread(&mut state);
        }
        drop(state);
        self.0.changed.notify_all();
    }
}
