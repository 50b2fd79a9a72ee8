//! The stream of records: one directory, batch after batch.
//!
//! While calls are fast, the caller answers a batch by itself. Otherwise jobs are started ahead for
//! the threads, and returned in directory order. A job is dropped where it is in the way, and its
//! entries are read again.
//!
//! On a mount of pandofs, a batch comes from few calls that return whole records (`whole`).

mod clusters;
mod whole;

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use pando_records::{Batch, Names, PART_ENTRIES, Page, Part};
use rustix::{
    fs::{Mode, OFlags, SeekFrom},
    io::Errno,
};

use crate::{
    Error, Options, Result,
    entry::{Asked, Filler, NoRoom, Settled, local_device},
    kernel::{calls::retry, dirents, meter::Meter},
    memory::Arena,
    workers::{
        RESERVE, WorkerPool,
        job::{Done, Job, Task},
        order::Sorting,
        threads::Work,
    },
};

use clusters::ClusterReadahead;
use whole::Whole;

/// The least space in a page of names for another read: what FUSE returns at once, and a longest
/// name.
const NAMES_ROOM: usize = 4096 + 512;
/// Parts for the entries of a page of names, if their names are short.
const PARTS_PER_PAGE: usize = 8;
/// Entries of a directory that is read ahead: a page of names.
const AHEAD_ENTRIES: usize = 2000;
/// The caller measures its waits for the first time after so many entries, then after twice as
/// many, and so on.
const FIRST_LOOK: usize = 8;

/// Jobs in progress at the same time: while one is returned, threads work on the next ones.
const JOBS: usize = 3;
/// Entries for each thread in a job.
const ENTRIES_PER_THREAD: usize = 64;
/// Entries of a job that tries an order. In fewer entries, no two inodes lie together.
const TRIAL_ENTRIES: usize = 4096;

/// Names that were read and are not yet returned.
enum Pending {
    Job(Arc<Job>),
    /// The answers were dropped, for want of pages or because the threads were dismissed. The
    /// caller reads the entries again, from this one on.
    Dropped(Arc<Names>, usize),
}

impl Pending {
    /// Pages of names that it holds.
    fn pages(&self) -> usize {
        match self {
            Self::Job(job) => job.name_pages(),
            Self::Dropped(names, _) => names.pages(),
        }
    }
}

/// Reads a directory of the host, in batches of records.
///
/// ```
/// use pando_scan::{Options, Scan};
///
/// let mut scan = Scan::open("/", &Options::default())?;
/// let mut bytes = 0;
/// while let Some(batch) = scan.next_batch()? {
///     for record in batch.iter() {
///         bytes += record.attr().map_or(0, |attr| attr.size);
///     }
/// }
/// # Ok::<(), pando_scan::Error>(())
/// ```
pub struct Scan {
    dir: Arc<OwnedFd>,
    arena: Arc<Arena>,
    pool: WorkerPool,
    asked: Asked,
    dots: bool,
    /// The device on which one call of statx is enough.
    local: Option<(u32, u32)>,
    batch: Batch,
    /// Jobs in progress, in directory order.
    jobs: VecDeque<Pending>,
    /// Names to be reused.
    spare: Vec<Arc<Names>>,
    /// Parts for the next batch.
    parts: Vec<Part>,
    list: Option<Page>,
    state: State,
    /// A failure to be reported after the entries in progress.
    failed: Option<Errno>,
    /// The most entries of a job. Below `usize::MAX`, only one job is in progress: a job has ended
    /// for want of pages. It grows with each job that does not.
    most: usize,
    /// There are not enough pages for the jobs in progress. The caller continues alone until none
    /// is left.
    is_scarce: bool,
    /// The batch was read ahead and not yet returned.
    is_ahead: bool,
    /// The thread that is ahead in the names of the batch.
    readahead: Option<ClusterReadahead>,
    whole: Whole,
}

/// The pages that the caller has for its answers.
#[derive(Debug, Clone, Copy)]
enum Room<'a> {
    /// The whole budget: answers that do not fit never will.
    AllThereIs,
    /// Those of a directory that is read ahead. The flag says when to stop.
    ForNow(&'a AtomicBool),
}

/// The state of the directory's descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    /// The last read failed, and that was reported.
    Failed,
    End,
}

impl Scan {
    /// Begins to read the directory at `path`. A symbolic link there is followed, as opendir does.
    ///
    /// # Errors
    /// [`Error::Open`] with the errno of open (ENOENT, ENOTDIR, EACCES and others). EINVAL for
    /// options that make no sense.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        options.check()?;
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let dir = retry(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(|errno| Error::Open { path: path.to_owned(), errno: errno.raw_os_error() })?;
        Self::from_fd(dir, options)
    }

    /// Begins to read an open directory, from the position of its descriptor.
    ///
    /// # Errors
    /// EINVAL for options that make no sense. A descriptor of another kind of file fails with the
    /// first batch (ENOTDIR).
    pub fn from_fd(dir: OwnedFd, options: &Options) -> Result<Self> {
        options.check()?;
        Ok(Self::with(dir, options, Arc::new(Arena::new(options.budget_bytes)), WorkerPool::new(options)))
    }

    /// As [`Scan::from_fd`], with these pages and threads.
    pub(crate) fn with(dir: OwnedFd, options: &Options, arena: Arc<Arena>, pool: WorkerPool) -> Self {
        let asked = Asked::new(options.mask, options.fields, options.follow);
        let local = if asked.wants_xattrs() { local_device(dir.as_fd()) } else { None };
        Self {
            dir: Arc::new(dir),
            arena,
            pool,
            asked,
            dots: options.dots,
            local,
            batch: Batch::default(),
            jobs: VecDeque::new(),
            spare: Vec::new(),
            parts: Vec::new(),
            list: None,
            state: State::Reading,
            failed: None,
            most: usize::MAX,
            is_scarce: false,
            is_ahead: false,
            readahead: None,
            whole: if asked.is_names_only() { Whole::No } else { Whole::Untried },
        }
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Continues after the entry with this cookie; 0 is the start.
    ///
    /// # Errors
    /// As lseek on a directory.
    pub fn seek(&mut self, cookie: u64) -> Result<()> {
        self.recycle();
        rustix::fs::seek(&self.dir, SeekFrom::Start(cookie))
            .map_err(|errno| Error::Read { errno: errno.raw_os_error() })?;
        (self.state, self.failed, self.is_scarce) = (State::Reading, None, false);
        self.is_ahead = false;
        self.whole.restart();
        Ok(())
    }

    /// Returns the next records, in directory order, and none at the end. They are valid until the
    /// next call.
    ///
    /// # Errors
    /// [`Error::Read`] if the directory could not be read further. All entries before were
    /// returned. Another call tries once more at the same position, and the scan ends if that fails
    /// too. Failures of one entry are in its record.
    pub fn next_batch(&mut self) -> Result<Option<&Batch>> {
        Ok(if self.advance()? { Some(&self.batch) } else { None })
    }

    /// The batch that [`Scan::next_batch`] returned last.
    #[must_use]
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    pub(crate) fn shared_dir(&self) -> Arc<OwnedFd> {
        self.dir.clone()
    }

    /// Advances to the next batch; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        if std::mem::take(&mut self.is_ahead) {
            return Ok(true);
        }
        let from = self.batch.end();
        let names = self.batch.dismantle(|part| self.arena.give_part(part));
        if from < names.len() {
            self.continue_with(names, from);
            return Ok(true);
        }
        self.end_readahead();
        self.keep_spare(names);
        if self.is_shared() {
            self.feed();
        }
        if !self.jobs.is_empty() {
            self.next_job();
            return Ok(true);
        }
        self.is_scarce = false;
        if self.whole_batch() {
            return Ok(true);
        }
        let names = self.read_names(1);
        if names.is_empty() {
            self.keep_spare(names);
            return match self.failed.take() {
                Some(errno) => Err(Error::Read { errno: errno.raw_os_error() }),
                None => Ok(false),
            };
        }
        if self.asked.is_names_only() {
            self.batch.show_names(names);
        } else {
            self.continue_with(names, 0);
        }
        Ok(true)
    }

    /// Reads the first batch ahead, on the calling thread. Returns how many entries it has. Once
    /// `enough` is set, it stops.
    pub(crate) fn prefetch(&mut self, enough: &AtomicBool) -> usize {
        let names = self.read_names(AHEAD_ENTRIES);
        if names.is_empty() {
            self.keep_spare(names);
            return 0;
        }
        if self.asked.is_names_only() {
            self.batch.show_names(names);
        } else {
            // An entry that does not fit now may fit when it is the directory's turn: there are
            // more pages then.
            self.answer(&names, 0, AHEAD_ENTRIES, Room::ForNow(enough));
            self.batch.assemble(names, &mut self.parts, 0);
        }
        self.is_ahead = !self.batch.is_empty();
        self.batch.len()
    }

    fn keep_spare(&mut self, mut names: Arc<Names>) {
        if let Some(own) = Arc::get_mut(&mut names) {
            own.clear(|page| self.arena.give_names(page));
            self.spare.push(names);
        }
    }

    /// Pages that must be left when a page of names is filled: for its answers, and for those of
    /// `before` other pages of names.
    fn reserve(&self, before: usize) -> usize {
        let pages = self.asked.pages();
        let each = 1 + pages.min(1);
        let threads = self.pool.concurrency.threads() * (1 + pages);
        if before == 0 { RESERVE } else { (before + 1) * PARTS_PER_PAGE * each + threads }
    }

    /// Reads at least so many names, as far as the pages suffice. None at the end, or after a
    /// failure.
    fn read_names(&mut self, least: usize) -> Arc<Names> {
        self.end_whole();
        let mut shared = self.spare.pop().unwrap_or_default();
        let names = Arc::get_mut(&mut shared).expect("spare names have no other owner");
        let mut room = 0;
        while names.len() < least && self.state != State::End {
            if room < NAMES_ROOM {
                let before = names.pages() + self.jobs.iter().map(Pending::pages).sum::<usize>();
                match self.arena.take_names(self.reserve(before)) {
                    Some(page) => names.push_page(page),
                    None if before > 0 => break,
                    None => {
                        self.failed = Some(Errno::NOMEM);
                        break;
                    }
                }
            }
            match dirents::read(self.dir.as_fd(), names, self.dots) {
                Ok(None) => self.state = State::End,
                Ok(Some(left)) => {
                    self.state = State::Reading;
                    room = left;
                }
                Err(errno) => {
                    let again = std::mem::replace(&mut self.state, State::Failed) == State::Failed;
                    if again {
                        self.state = State::End;
                    } else {
                        self.failed = Some(errno);
                    }
                    break;
                }
            }
        }
        shared
    }

    /// The caller reads at most so many entries from `from` on, until the pages are used up. With
    /// the whole budget it reads at least one, and stops when the waits show that threads should do
    /// the rest.
    fn answer(&mut self, names: &Names, from: usize, most: usize, room: Room<'_>) {
        let has_all = matches!(room, Room::AllThereIs);
        let settled = self.local.and_then(Settled::now);
        let mut filler = Filler {
            asked: self.asked,
            arena: &self.arena,
            dir: self.dir.as_fd(),
            names,
            list: self.list.take(),
            settled,
            lately: false,
        };
        let mut part = self.arena.take_part().expect("the reserve has a part");
        let meter = (has_all && !self.pool.concurrency.is_fixed()).then(Meter::start);
        let end = names.len().min(from + most);
        // A small directory is measured at its end: a tree may have no others.
        let mut look = FIRST_LOOK.min(end - from);
        for index in from..end {
            if matches!(room, Room::ForNow(enough) if enough.load(Ordering::Relaxed)) {
                break;
            }
            if !part.has_room() {
                let Some(next) = self.arena.take_part() else { break };
                self.parts.push(std::mem::replace(&mut part, next));
            }
            if let Err(NoRoom) = filler.fill(index, &mut part, has_all && index == from) {
                break;
            }
            let done = index + 1 - from;
            if done == look
                && let Some(meter) = &meter
            {
                if self.pool.concurrency.after_caller(meter.read(done as u64)) {
                    break;
                }
                look *= 2;
            }
        }
        self.list = filler.list;
        self.parts.push(part);
    }

    /// Starts a thread that reads ahead of the caller, if that pays.
    fn read_ahead(&mut self, names: &Arc<Names>, from: usize) {
        if self.readahead.is_none() && self.pool.concurrency.reads_ahead() {
            self.readahead = ClusterReadahead::start(&self.pool.threads, &self.dir, names, from);
        }
    }

    fn end_readahead(&mut self) {
        if let Some(cost) = self.readahead.take().and_then(ClusterReadahead::end) {
            self.pool.concurrency.after_readahead(cost);
        }
    }

    /// Ends everything in progress, and takes all pages back.
    fn recycle(&mut self) {
        self.end_readahead();
        self.drop_jobs(|_| true);
        for pending in std::mem::take(&mut self.jobs) {
            if let Pending::Dropped(names, _) = pending {
                self.keep_spare(names);
            }
        }
        let names = self.batch.dismantle(|part| self.arena.give_part(part));
        self.keep_spare(names);
    }
}

impl Scan {
    /// Whether threads do the work.
    fn is_shared(&self) -> bool {
        !self.asked.is_names_only() && !self.is_scarce && self.pool.concurrency.threads() > 1
    }

    /// Continues with names of which those before `from` are done.
    fn continue_with(&mut self, names: Arc<Names>, from: usize) {
        if self.is_shared() {
            self.end_readahead();
            let job = self.start(names, from);
            self.jobs.push_front(Pending::Job(job));
            self.feed();
            self.next_job();
        } else {
            // Later answers hold pages that these entries may need.
            self.drop_jobs(|_| true);
            self.read_ahead(&names, from);
            self.answer(&names, from, PART_ENTRIES, Room::AllThereIs);
            let answered: usize = self.parts.iter().map(|part| part.filled().len()).sum();
            if self.is_shared() && from + answered < names.len() {
                self.end_readahead();
                // Threads take over. The batch is as large as without them, because the ends of
                // batches show in listings.
                let job = self.start(names.clone(), from + answered);
                self.feed();
                self.parts.append(&mut self.finish(&job).parts);
            }
            self.batch.assemble(names, &mut self.parts, from);
        }
    }

    /// Returns the first job. Entries that it could not read for want of pages go to smaller jobs,
    /// one at a time. If a job with an entry for each thread did not begin, the caller reads them.
    fn next_job(&mut self) {
        let done = match self.jobs.pop_front() {
            None => return,
            Some(Pending::Dropped(names, from)) => return self.continue_with(names, from),
            Some(Pending::Job(job)) => self.finish(&job),
        };
        let answered = usize::try_from(done.cost.entries).unwrap_or(usize::MAX);
        // With faster growth, more jobs would fall short again, and those in inode order lose work.
        self.most = if answered < done.entries.len() {
            (answered / 2).max(done.threads)
        } else {
            self.most.saturating_add(self.most / 4 + 1)
        };
        self.parts = done.parts;
        self.batch.assemble(done.names, &mut self.parts, done.entries.start);
        if self.batch.is_empty() {
            self.is_scarce = done.entries.len() <= done.threads;
            let names = self.batch.dismantle(|part| self.arena.give_part(part));
            // Later answers hold pages that these entries may need.
            self.drop_jobs(|_| true);
            self.continue_with(names, done.entries.start);
        } else if !self.is_shared() {
            // The threads were dismissed. Entries that they have not begun are not waited for.
            self.drop_jobs(|job| !job.is_dealt());
        }
    }

    fn drop_jobs(&mut self, which: impl Fn(&Job) -> bool) {
        for index in 0..self.jobs.len() {
            if let Pending::Job(job) = &self.jobs[index]
                && which(job)
            {
                self.jobs[index] = self.drop_job(job);
            }
        }
    }

    fn drop_job(&self, job: &Job) -> Pending {
        job.cancel();
        let done = self.finish(job);
        done.parts.into_iter().for_each(|part| self.arena.give_part(part));
        Pending::Dropped(done.names, done.entries.start)
    }

    fn finish(&self, job: &Job) -> Done {
        let done = job.finish();
        self.pool.order.after_job(done.order, done.cost, done.threads);
        self.pool.concurrency.after_job(done.cost, done.threads, done.elapsed);
        done
    }

    /// Starts jobs until enough are in progress.
    fn feed(&mut self) {
        let jobs = if self.most < usize::MAX { 1 } else { self.pool.concurrency.jobs(JOBS) };
        while self.jobs.len() < jobs && self.state == State::Reading && self.failed.is_none() {
            let least = self.pool.concurrency.threads() * ENTRIES_PER_THREAD;
            let window = match self.pool.order.sorting(self.pool.concurrency.is_decided()) {
                Sorting::Never => least,
                Sorting::OnTrial => least.max(TRIAL_ENTRIES),
                Sorting::Always => usize::MAX,
            };
            let names = self.read_names(window);
            if names.is_empty() {
                self.keep_spare(names);
                return;
            }
            let job = self.start(names, 0);
            self.jobs.push_back(Pending::Job(job));
        }
    }

    /// Starts a job for the names from `from` on, or for the first of them.
    fn start(&self, names: Arc<Names>, from: usize) -> Arc<Job> {
        let threads = self.pool.concurrency.threads();
        let entries = from..names.len().min(from.saturating_add(self.most));
        let job = Arc::new(Job::new(Task {
            dir: self.dir.clone(),
            arena: self.arena.clone(),
            asked: self.asked,
            local: self.local,
            names,
            entries,
            order: self.pool.order.next(self.dir.as_fd()),
            threads,
        }));
        if !self.pool.threads.submit(Work::Shared(job.clone()), threads) {
            job.work();
        }
        job
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.recycle();
        self.list.take().into_iter().for_each(|page| self.arena.give_page(page));
    }
}

#[cfg(test)]
mod tests;
