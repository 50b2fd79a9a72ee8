//! The threads: one receives posts, and as many ask as calls are allowed in flight.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use crate::{
    ask,
    board::{Board, NEVER},
    posts::Post,
    schedule::{Block, ReadingId, Schedule, Task, Totals, Work},
};

/// Options of the helper.
#[derive(Debug, Clone, Copy)]
#[must_use]
#[non_exhaustive]
pub struct Options {
    /// The most calls in flight at once on one file system, at least one. The number is found by
    /// trial.
    pub max_in_flight: usize,
    /// Also ask for access control lists, as `ls -l` does.
    pub xattrs: bool,
}

impl Default for Options {
    /// At most 32 calls, and no access control lists.
    fn default() -> Self {
        Self { max_in_flight: 32, xattrs: false }
    }
}

impl Options {
    /// At most 32 calls, and no access control lists.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`Options::max_in_flight`].
    pub fn max_in_flight(mut self, max_in_flight: usize) -> Self {
        self.max_in_flight = max_in_flight;
        self
    }

    /// Sets [`Options::xattrs`].
    pub fn xattrs(mut self, xattrs: bool) -> Self {
        self.xattrs = xattrs;
        self
    }
}

/// No store needs more threads than this.
pub const MAX_IN_FLIGHT: usize = 64;

/// Shared by the threads.
#[derive(Debug)]
pub(crate) struct Helper {
    state: Mutex<State>,
    work: Condvar,
    most_threads: usize,
    board: Option<Board>,
}

#[derive(Debug)]
struct State {
    schedule: Schedule,
    threads: usize,
    idle: usize,
    stopping: bool,
}

impl Helper {
    pub(crate) fn new(options: Options, board: Option<Board>) -> Arc<Self> {
        let most_in_flight = options.max_in_flight.clamp(1, MAX_IN_FLIGHT);
        let schedule = Schedule::new(most_in_flight, options.xattrs);
        Arc::new(Self {
            state: Mutex::new(State { schedule, threads: 0, idle: 0, stopping: false }),
            work: Condvar::new(),
            most_threads: most_in_flight,
            board,
        })
    }

    pub(crate) fn board(&self) -> Option<&Board> {
        self.board.as_ref()
    }

    /// Takes in a directory that is being read. With `choose`, only one in so many where calls are
    /// fast.
    pub(crate) fn reported(self: &Arc<Self>, post: Post, choose: bool) {
        let Ok(identity) = ask::identity(&post.directory) else { return };
        let mut state = self.lock();
        if !choose || state.schedule.is_due(identity.device) {
            state.schedule.reported(post, identity);
            self.wake_thread(&mut state);
        }
    }

    /// Begins no more work. Threads that wait in a call are not waited for here, since a store may
    /// never answer. When the process ends, the kernel waits for calls that cannot be interrupted.
    pub(crate) fn stop(&self) -> Totals {
        let mut state = self.lock();
        state.stopping = true;
        self.work.notify_all();
        state.schedule.totals()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Wakes a thread, or starts one up to the limit.
    fn wake_thread(self: &Arc<Self>, state: &mut State) {
        if state.idle > 0 {
            self.work.notify_one();
        } else if state.threads < self.most_threads {
            let helper = Arc::clone(self);
            let spawned =
                thread::Builder::new().name("boost".into()).stack_size(256 << 10).spawn(move || helper.serve());
            match spawned {
                Ok(_) => state.threads += 1,
                Err(error) => tracing::debug!(%error, threads = state.threads, "no further thread"),
            }
        }
    }

    fn serve(self: Arc<Self>) {
        let mut state = self.lock();
        while !state.stopping {
            let Some(task) = state.schedule.next() else {
                state.idle += 1;
                state = self.work.wait(state).expect("no holder panics");
                state.idle -= 1;
                continue;
            };
            // Each thread that finds work wakes the next one. The last one finds none and sleeps.
            if state.schedule.has_more() {
                self.wake_thread(&mut state);
            }
            drop(state);
            let begun = Instant::now();
            let done = perform(task);
            state = self.lock();
            // The wait for the lock counts too: it reduces the calls that complete in a second.
            done.report(&mut state.schedule, begun.elapsed());
            let intervals = state.schedule.new_intervals();
            for (device, interval) in intervals {
                self.publish(device, interval);
            }
        }
        state.threads -= 1;
    }

    fn publish(&self, device: u64, interval: u32) {
        let (major, minor) = (device >> 32, device & 0xffff_ffff);
        match interval {
            NEVER => tracing::info!("device {major}:{minor}: the kernel keeps no answers there, so it is left alone"),
            _ => tracing::debug!("device {major}:{minor}: looks at one directory in {interval}"),
        }
        if let Some(board) = &self.board {
            board.set_interval(device, interval);
        }
    }
}

/// The outcome of a task.
enum Done {
    Read(ReadingId, Option<OwnedFd>, rustix::io::Result<Block>),
    Asked(ReadingId, ask::Asked, Vec<CString>),
}

impl Done {
    fn report(self, schedule: &mut Schedule, took: Duration) {
        match self {
            Self::Read(reading, opened, block) => schedule.read(reading, opened, block),
            Self::Asked(reading, asked, left) => schedule.asked(reading, &asked, left, took),
        }
    }
}

/// Makes the system calls of a task, with no lock held.
fn perform(task: Task) -> Done {
    match task.work {
        Work::Open(position) => match ask::reopen(&task.directory, position) {
            Ok(own) => {
                let block = read(&own, task.pick);
                Done::Read(task.reading, Some(own), block)
            }
            Err(error) => Done::Read(task.reading, None, Err(error)),
        },
        Work::Read => Done::Read(task.reading, None, read(&task.directory, task.pick)),
        Work::Ask(mut names, manner) => {
            let asked = ask::ask(task.directory.as_fd(), &names, manner);
            let left = names.split_off(asked.calls);
            Done::Asked(task.reading, asked, left)
        }
    }
}

fn read(directory: impl AsFd, pick: ask::Pick) -> rustix::io::Result<Block> {
    let (names, entries) = ask::names(directory.as_fd(), pick)?;
    Ok(Block { names, entries, position: ask::position(&directory) })
}

/// Runs `body` in a named thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(body)
}
