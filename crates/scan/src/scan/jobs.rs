//! Names that threads ask for: jobs are started ahead, handed out in directory order, and given up where they are in the way.

use std::{os::fd::AsFd, sync::Arc};

use pando_records::{Names, PART_ENTRIES};

use super::{Room, Scan, State};
use crate::{
    job::{Done, Job, Task},
    pace::Sorting,
    pool::Work,
};

/// Jobs that are under way at the same time: while one is handed out the next ones are asked for.
const JOBS: usize = 3;
/// Entries for each thread in a job.
const ENTRIES_PER_THREAD: usize = 64;
/// Entries of a job that tries an order: in few of them, no two inodes lie together.
const TRIAL_ENTRIES: usize = 4096;

/// What comes before the directory is read on.
pub(super) enum Pending {
    Job(Arc<Job>),
    /// Answers that were given up, for want of pages or because threads were sent home: the caller asks again.
    GivenUp(Arc<Names>, usize),
}

impl Pending {
    /// Pages of names that it holds.
    pub(super) fn pages(&self) -> usize {
        match self {
            Self::Job(job) => job.name_pages(),
            Self::GivenUp(names, _) => names.pages(),
        }
    }
}

impl Scan {
    /// Whether threads do the work.
    pub(super) fn is_shared(&self) -> bool {
        !self.asked.is_names_only() && !self.is_scarce && self.crew.pace.threads() > 1
    }

    /// Goes on with names of which the first ones are done.
    pub(super) fn go_on(&mut self, names: Arc<Names>, from: usize) {
        if self.is_shared() {
            self.end_readahead();
            let job = self.start(names, from);
            self.jobs.push_front(Pending::Job(job));
            self.feed();
            self.next_job();
        } else {
            // Later answers hold pages that these may need.
            self.give_up_jobs(|_| true);
            self.read_ahead(&names, from);
            self.answer(&names, from, PART_ENTRIES, Room::AllThereIs);
            let answered: usize = self.parts.iter().map(|part| part.filled().len()).sum();
            if self.is_shared() && from + answered < names.len() {
                self.end_readahead();
                // Threads take over. Batches are no smaller for that: where they end shows in listings.
                let job = self.start(names.clone(), from + answered);
                self.feed();
                self.parts.append(&mut self.finish(&job).parts);
            }
            self.batch.assemble(names, &mut self.parts, from);
        }
    }

    /// Hands out the first job. What it could not do for want of pages is for smaller ones, with nothing else under way; if
    /// one with an entry for each thread did not begin, for the caller.
    pub(super) fn next_job(&mut self) {
        let done = match self.jobs.pop_front() {
            None => return,
            Some(Pending::GivenUp(names, from)) => return self.go_on(names, from),
            Some(Pending::Job(job)) => self.finish(&job),
        };
        let answered = usize::try_from(done.cost.entries).unwrap_or(usize::MAX);
        // Faster growth would have more of them fall short again, and work is lost with those in inode order.
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
            // Later answers hold pages that these may need.
            self.give_up_jobs(|_| true);
            self.go_on(names, done.entries.start);
        } else if !self.is_shared() {
            // Threads were sent home: what they have not begun is not waited for.
            self.give_up_jobs(|job| !job.is_dealt());
        }
    }

    pub(super) fn give_up_jobs(&mut self, which: impl Fn(&Job) -> bool) {
        for index in 0..self.jobs.len() {
            if let Pending::Job(job) = &self.jobs[index]
                && which(job)
            {
                self.jobs[index] = self.give_up(job);
            }
        }
    }

    fn give_up(&self, job: &Job) -> Pending {
        job.cancel();
        let done = self.finish(job);
        done.parts.into_iter().for_each(|part| self.arena.give_part(part));
        Pending::GivenUp(done.names, done.entries.start)
    }

    fn finish(&self, job: &Job) -> Done {
        let done = job.finish();
        self.crew.pace.after_job(done.cost, done.threads, done.order, done.elapsed);
        done
    }

    /// Starts jobs until enough are under way.
    pub(super) fn feed(&mut self) {
        let jobs = if self.most < usize::MAX { 1 } else { self.crew.pace.jobs(JOBS) };
        while self.jobs.len() < jobs && self.state == State::Reading && self.failed.is_none() {
            let least = self.crew.pace.threads() * ENTRIES_PER_THREAD;
            let window = match self.crew.pace.sorting() {
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

    /// Starts a job for the names from `from` on, or the first of them.
    fn start(&self, names: Arc<Names>, from: usize) -> Arc<Job> {
        let (pace, threads) = (&self.crew.pace, self.crew.pace.threads());
        let entries = from..names.len().min(from.saturating_add(self.most));
        let job = Arc::new(Job::new(Task {
            dir: self.dir.clone(),
            arena: self.arena.clone(),
            asked: self.asked,
            local: self.local,
            names,
            entries,
            order: pace.order(self.dir.as_fd()),
            threads,
        }));
        if !self.crew.pool.submit(Work::Shared(job.clone()), threads) {
            job.work();
        }
        job
    }
}
