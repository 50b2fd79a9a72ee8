//! Commits generations: at intervals, and when someone waits for it.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use pando_kv::{Delta, Numbers, Outcome, Transaction};
use pando_sync::lock;
use pando_vfs::{Error, Result, Timestamp};
use tracing::{error, warn};

use crate::{
    key::Key,
    staged::{Pressure, from_engine},
    tree::{Generation, Tree},
};

/// The numbers in the record of totals.
pub(crate) const COMMITS: usize = 0;
pub(crate) const NEXT_RUN: usize = 1;
pub(crate) const INODES: usize = 2;
pub(crate) const SPACE: usize = 3;
/// Whether the last commit has closed the store.
pub(crate) const CLOSED: usize = 4;
/// When it was made, in nanoseconds since 1970.
pub(crate) const COMMITTED: usize = 5;

/// After a commit that has failed, the next attempt is made this much later, unless someone waits.
const RETRY: Duration = Duration::from_secs(1);

/// How often a thread that waits for the end of the store frees what others have left behind.
const COLLECT: Duration = Duration::from_millis(10);

/// If more files were written, all of the host's are flushed at once, which also flushes those of
/// other programs. Of 1,000 small files, that takes a tenth of the time.
const ONE_BY_ONE: usize = 64;

/// How many inodes are freed before the thread looks whether a commit is wanted.
const FREED_AT_ONCE: usize = 1024;

/// How often a transaction is committed that the engine does not take.
const ATTEMPTS: usize = 64;

/// See the module. The thread that commits is [`Committer::run`].
pub(crate) struct Committer {
    interval: Duration,
    /// Guarded by its own mutex, a leaf.
    state: Mutex<State>,
    /// For the thread.
    wanted: Condvar,
    /// For those who wait.
    attempted: Condvar,
}

#[derive(Default)]
struct State {
    /// The generation that is collected.
    collected: u64,
    /// The generations before this one are committed.
    committed: u64,
    /// Someone waits for the generations before this one.
    wanted: u64,
    /// How many attempts have failed, and the last error.
    failed: (u64, Option<Error>),
    /// The last attempt has failed.
    is_failing: bool,
    /// Inodes are to be freed.
    has_forgotten: bool,
    /// The thread is to end.
    is_ending: bool,
    /// It has ended, and what the last attempt has returned.
    ended: Option<Result<()>>,
}

impl Committer {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, state: Mutex::default(), wanted: Condvar::new(), attempted: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits until everything is committed that was changed before.
    ///
    /// # Errors
    /// Those of the attempt to commit it.
    pub(crate) fn commit(&self) -> Result<()> {
        let mut state = self.state();
        if state.is_ending || state.ended.is_some() {
            return Err(Error::Io);
        }
        let (end, failed) = (state.collected + 1, state.failed.0);
        state.wanted = state.wanted.max(end);
        self.wanted.notify_one();
        let is_waiting = |state: &mut State| state.committed < end && state.failed.0 == failed && state.ended.is_none();
        state = self.attempted.wait_while(state, is_waiting).unwrap_or_else(PoisonError::into_inner);
        if state.committed >= end { Ok(()) } else { Err(state.failed.1.unwrap_or(Error::Io)) }
    }

    /// Before a change: sees to it that uncommitted changes do not take too much memory. The caller
    /// holds no [`Changing`](crate::staged::Changing).
    ///
    /// # Errors
    /// Those of a commit that must come first, EIO if there will be no commit any more.
    pub(crate) fn make_room(&self, tree: &Tree) -> Result<()> {
        if tree.has_stopped.load(Ordering::Relaxed) {
            return Err(Error::Io);
        }
        match tree.pressure() {
            Pressure::None => Ok(()),
            Pressure::Some => {
                let mut state = self.state();
                // After a failure, the thread tries again by itself.
                if state.wanted <= state.committed && !state.is_failing {
                    state.wanted = state.collected + 1;
                    self.wanted.notify_one();
                }
                Ok(())
            }
            Pressure::Full => self.commit(),
        }
    }

    /// Has the thread free the inodes that were forgotten, without a commit.
    pub(crate) fn free_forgotten(&self) {
        self.state().has_forgotten = true;
        self.wanted.notify_one();
    }

    /// Commits what is left, and ends the thread.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.is_ending = true;
        self.wanted.notify_one();
    }

    /// Waits until the thread has ended. Returns what its last attempt has returned.
    pub(crate) fn wait_for_end(&self) -> Result<()> {
        loop {
            let waited = self.attempted.wait_timeout_while(self.state(), COLLECT, |state| state.ended.is_none());
            if let Some(end) = waited.unwrap_or_else(PoisonError::into_inner).0.ended {
                return end;
            }
            // Objects of the tree that was dropped may have the driver. No other thread need ever
            // free them.
            pando_sync::collect_all();
        }
    }

    /// The thread: commits until the end, and then closes the store.
    pub(crate) fn run(&self, tree: Arc<Tree>) {
        // An engine that panics must not leave others waiting.
        let has_stopped = Arc::clone(&tree.has_stopped);
        let end = panic::catch_unwind(AssertUnwindSafe(|| self.commit_until_end(tree)));
        if end.is_err() {
            has_stopped.store(true, Ordering::Relaxed);
        }
        self.state().ended = Some(end.unwrap_or(Err(Error::Io)));
        self.attempted.notify_all();
    }

    /// Returns what the last attempt has returned.
    fn commit_until_end(&self, tree: Arc<Tree>) -> Result<()> {
        let mut closed = None;
        let mut due = Instant::now().checked_add(self.interval);
        loop {
            let left = due.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()));
            let is_wanted = |state: &State| state.wanted > state.committed || state.is_ending;
            let is_idle = |state: &mut State| !is_wanted(state) && !state.has_forgotten;
            let waited = self.wanted.wait_timeout_while(self.state(), left, is_idle);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.has_forgotten = false;
            let is_due = due.is_some_and(|due| due <= Instant::now());
            let (commits, is_last) = (is_due || is_wanted(&state), state.is_ending);
            drop(state);
            let forgotten = tree.unnamed.take_forgotten(if is_last { usize::MAX } else { FREED_AT_ONCE });
            let may_be_more = forgotten.len() == FREED_AT_ONCE;
            let are_free = free(&tree, forgotten);
            if !commits {
                self.state().has_forgotten |= may_be_more && are_free;
                continue;
            }
            let attempt = self.attempt(&tree, &mut closed, is_last);
            due = Instant::now().checked_add(if closed.is_some() { RETRY } else { self.interval });
            if is_last {
                if let Err(error) = attempt {
                    error!(%error, "the store cannot commit: changes since the last commit are lost");
                }
                // The thread that drops the driver may still have the tree for a moment.
                while Arc::strong_count(&tree) > 1 {
                    thread::sleep(Duration::from_millis(1));
                }
                return attempt;
            }
            let mut state = self.state();
            let was_failing = std::mem::replace(&mut state.is_failing, attempt.is_err());
            if let Err(error) = attempt {
                state.failed = (state.failed.0 + 1, Some(error));
                // Those who wait for it get the error.
                state.wanted = state.committed;
            }
            drop(state);
            self.attempted.notify_all();
            // Without the lock: the program that reads the log may be using this tree.
            tell_of_change(was_failing, attempt);
        }
    }

    /// Commits the generation that is closed, if there is one, and then the next. The last commit
    /// closes the store.
    fn attempt(&self, tree: &Tree, closed: &mut Option<Generation>, is_last: bool) -> Result<()> {
        loop {
            let is_old = closed.is_some();
            let generation = match closed {
                Some(generation) => generation,
                // Everything that was changed before the number is counted up is in it.
                None => closed.insert(tree.close(|| self.state().collected += 1)),
            };
            generation.closes = is_last && !is_old;
            let closes = generation.closes && !tree.has_stopped.load(Ordering::Relaxed);
            if closes || !generation.is_empty() {
                commit(tree, generation)?;
            }
            *closed = None;
            self.state().committed += 1;
            if !is_old {
                return Ok(());
            }
        }
    }
}

/// Logs the first commit that fails, and the first one that does not afterwards. Programs that
/// never wait for a commit get no error.
fn tell_of_change(was_failing: bool, attempt: Result<()>) {
    match attempt {
        Err(error) if !was_failing => {
            error!(%error, "the store cannot commit: changes since the last commit are only in memory");
        }
        Ok(()) if was_failing => warn!("the store commits again"),
        _ => {}
    }
}

/// Frees inodes that were forgotten. Returns whether all were.
fn free(tree: &Tree, forgotten: Vec<u64>) -> bool {
    let mut all = true;
    for ino in forgotten {
        let changing = tree.staged.change();
        // If this fails, it is tried again later, and when the store is opened.
        if tree.free(&changing, ino, true).is_err() {
            tree.unnamed.forget(ino);
            all = false;
        }
    }
    all
}

/// Commits a generation: the contents first, then the records, then the removal of contents that no
/// record has any more.
fn commit(tree: &Tree, generation: &mut Generation) -> Result<()> {
    flush_files(tree, generation)?;
    commit_records(tree, generation)?;
    tree.staged.finish().map_err(from_engine)?;
    generation.batches.clear();
    // A file that stays is found when the store is opened.
    for number in generation.files.removed.drain(..) {
        let _ = tree.files.remove(number);
    }
    Ok(())
}

/// Flushes the files of contents that were written or made.
fn flush_files(tree: &Tree, generation: &mut Generation) -> Result<()> {
    if tree.has_stopped.load(Ordering::Relaxed) {
        return Err(Error::Io);
    }
    let files = &mut generation.files;
    let written = std::mem::take(&mut files.written);
    let are_flushed = written.len() > ONE_BY_ONE && tree.files.sync_contents();
    let written = if are_flushed { Ok(()) } else { written.values().try_for_each(|file| file.sync()) };
    let flushed = written.and_then(|()| if std::mem::take(&mut files.made) { tree.files.sync() } else { Ok(()) });
    // The kernel may have dropped what was not written, and a later flush would return success.
    flushed.inspect_err(|_| tree.has_stopped.store(true, Ordering::Relaxed)).map_err(Error::from)
}

/// Commits the records, unless a former attempt has done it.
fn commit_records(tree: &Tree, generation: &mut Generation) -> Result<()> {
    let engine = &tree.staged.engine;
    let read = || -> Result<(Option<Vec<u8>>, Numbers)> {
        let totals = engine.snapshot().and_then(|snapshot| snapshot.get_one(&Key::TOTALS)).map_err(from_engine)?;
        let numbers = Numbers::of(totals.as_deref());
        Ok((totals, numbers))
    };
    // Each commit changes the count of commits, and asserts that it was the same when it was read.
    // So a transaction whose outcome is unknown is made once or never.
    let (mut totals, mut numbers) = read()?;
    let closes = i64::from(generation.closes);
    let before = *generation.commits_before.get_or_insert(numbers.get(COMMITS));
    for _ in 0..ATTEMPTS {
        if numbers.get(COMMITS) != before {
            break;
        }
        let mut transaction = Transaction::new();
        transaction.expect(&*Key::TOTALS, totals);
        transaction.merge(&*Key::TOTALS, COMMITS, Delta::Add(1));
        transaction.merge(&*Key::TOTALS, NEXT_RUN, Delta::AtLeast(generation.next_run.cast_signed()));
        let (inodes, space) = (generation.inodes.cast_signed(), generation.space.cast_signed());
        let values = [(INODES, inodes), (SPACE, space), (CLOSED, closes), (COMMITTED, Timestamp::now().0)];
        for (index, now) in values {
            transaction.merge(&*Key::TOTALS, index, Delta::Add(now.wrapping_sub(numbers.get(index))));
        }
        generation.batches.iter().for_each(|batch| batch.add_to(&mut transaction));
        let outcome = engine.commit(&transaction).map_err(|error| {
            tree.has_stopped.fetch_or(matches!(error, pando_kv::Error::Stopped), Ordering::Relaxed);
            from_engine(error)
        });
        if outcome? == Outcome::TooLarge {
            break;
        }
        (totals, numbers) = read()?;
    }
    if numbers.get(COMMITS) == before + 1 { Ok(()) } else { Err(Error::Io) }
}
