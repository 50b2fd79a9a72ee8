//! A batch in progress: its names are known, and threads read the rest, each into parts of its own.
//!
//! Entries are dealt out by one counter, in runs. Each thread that takes part counts as active, and
//! the last one to leave wakes the scan. No thread holds the names after it has left, so the scan
//! then owns them alone again.

use std::{
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use pando_records::{Names, Part};

use super::order::JobOrder;
use crate::{
    entry::{Asked, Filler, NoRoom, Settled},
    kernel::meter::{Cost, Meter},
    memory::Arena,
};

/// The most entries that a thread takes at once.
const RUN: usize = 16;
/// A thread should take a run at least this often, so that all threads end together.
const RUNS_PER_THREAD: usize = 8;

/// The entries and the resources of a job.
pub struct Task {
    pub dir: Arc<OwnedFd>,
    pub arena: Arc<Arena>,
    pub asked: Asked,
    pub local: Option<(u32, u32)>,
    pub names: Arc<Names>,
    /// The entries to be read.
    pub entries: Range<usize>,
    pub order: JobOrder,
    pub threads: usize,
}

/// Entries of a directory that threads are reading.
pub struct Job {
    dir: Arc<OwnedFd>,
    arena: Arc<Arena>,
    asked: Asked,
    settled: Option<Settled>,
    from: usize,
    len: usize,
    /// The entries in the order of the calls; empty for directory order.
    sorted: Vec<u32>,
    order: JobOrder,
    threads: usize,
    run: usize,
    name_pages: usize,
    /// The next entry to be dealt out. It is only added to, and set to `len` to end the job: a
    /// single independent value.
    cursor: AtomicUsize,
    state: Mutex<State>,
    idle: Condvar,
}

struct State {
    names: Option<Arc<Names>>,
    parts: Vec<Part>,
    active: usize,
    cost: Cost,
    begun: Option<Instant>,
    elapsed: Duration,
}

/// The contribution of one thread. Dropping it delivers it, after a panic too, so the scan never
/// waits for ever.
struct Share<'a> {
    job: &'a Job,
    parts: Vec<Part>,
    meter: Meter,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.job.cancel();
        }
        let entries = self.parts.iter().map(|part| part.filled().len() as u64).sum();
        let cost = self.meter.read(entries);
        let mut state = self.job.state();
        state.parts.append(&mut self.parts);
        state.cost.add(cost);
        state.elapsed = state.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        state.active -= 1;
        if state.active == 0 {
            self.job.idle.notify_all();
        }
    }
}

/// A finished job.
pub struct Done {
    pub names: Arc<Names>,
    pub parts: Vec<Part>,
    /// The entries that were to be read.
    pub entries: Range<usize>,
    pub cost: Cost,
    pub threads: usize,
    pub order: JobOrder,
    pub elapsed: Duration,
}

impl Job {
    pub fn new(task: Task) -> Self {
        let Task { dir, arena, asked, local, names, entries, order, threads } = task;
        let (from, len) = (entries.start, entries.len());
        let name_pages = names.pages();
        let mut sorted = Vec::new();
        if order == JobOrder::Inode {
            sorted.extend(entries.start as u32..entries.end as u32);
            sorted.sort_unstable_by_key(|&index| names.ino(index as usize));
        }
        let state = State {
            names: Some(names),
            parts: Vec::new(),
            active: 0,
            cost: Cost::default(),
            begun: None,
            elapsed: Duration::ZERO,
        };
        Self {
            dir,
            arena,
            asked,
            settled: local.and_then(Settled::now),
            from,
            len,
            sorted,
            order,
            threads,
            run: (len / (threads * RUNS_PER_THREAD)).clamp(1, RUN),
            name_pages,
            cursor: AtomicUsize::new(0),
            state: Mutex::new(state),
            idle: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all entries were dealt out.
    pub fn is_dealt(&self) -> bool {
        self.cursor.load(Ordering::Relaxed) >= self.len
    }

    /// Pages of names that it holds.
    pub fn name_pages(&self) -> usize {
        self.name_pages
    }

    /// Ends the job: no more entries are dealt out.
    pub fn cancel(&self) {
        self.cursor.store(self.len, Ordering::Relaxed);
    }

    /// Takes part until all entries are dealt out.
    pub fn work(&self) {
        let Some(mut share) = self.join() else { return };
        // Dropped before the share, so a thread that has left holds no names.
        let Some(names) = self.state().names.clone() else { return };
        let mut filler = Filler {
            asked: self.asked,
            arena: &self.arena,
            dir: self.dir.as_fd(),
            names: &names,
            list: None,
            settled: self.settled,
            lately: false,
        };
        if self.fill(&mut filler, &mut share.parts).is_err() {
            self.cancel();
        }
        if let Some(list) = filler.list.take() {
            self.arena.give_page(list);
        }
    }

    /// Counts the caller as active, unless there is nothing left to do.
    fn join(&self) -> Option<Share<'_>> {
        let mut state = self.state();
        if state.names.is_none() || self.is_dealt() {
            return None;
        }
        state.active += 1;
        state.begun.get_or_insert_with(Instant::now);
        Some(Share { job: self, parts: Vec::new(), meter: Meter::start() })
    }

    fn fill(&self, filler: &mut Filler<'_>, parts: &mut Vec<Part>) -> Result<(), NoRoom> {
        loop {
            let begin = self.cursor.fetch_add(self.run, Ordering::Relaxed);
            if begin >= self.len {
                return Ok(());
            }
            for at in begin..self.len.min(begin + self.run) {
                if parts.last().is_none_or(|part| !part.has_room()) {
                    parts.push(self.arena.take_part().ok_or(NoRoom)?);
                }
                let part = parts.last_mut().expect("pushed above");
                let index = self.sorted.get(at).map_or(self.from + at, |&index| index as usize);
                filler.fill(index, part, false)?;
            }
        }
    }

    /// Waits until the job is done.
    pub fn finish(&self) -> Done {
        let mut state = self.state();
        while state.active > 0 || !self.is_dealt() {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let parts = std::mem::take(&mut state.parts);
        Done {
            names: state.names.take().unwrap_or_default(),
            parts,
            entries: self.from..self.from + self.len,
            cost: state.cost,
            threads: self.threads,
            order: self.order,
            elapsed: state.elapsed,
        }
    }
}
