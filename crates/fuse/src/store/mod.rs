//! A slow store to try things on: the tree answers as if it stood on a disk, a server far away, something that fails.
//!
//! It sits between the [`Server`](crate::Server), which answers at once, and the transport, which sends an answer when
//! the store would have had it. So the readers of the device never sleep: they ask when an answer is due, leave it
//! with a timer, and read on.
//!
//! What it models:
//!
//! * *Items.* A request is one item; a directory's batch is one for each entry. Whatever is answered with attributes
//!   costs a getattr as well, so that an entry costs the same by itself (a look-up that finds it) and in a batch with
//!   attributes (READDIRPLUS: besides the readdir, which each batch costs). A batch is asked for as a whole, so its
//!   items are served side by side.
//! * *Depth.* So many items are served at once; the others wait, first come, first served. An item's time is its
//!   operation's delay, and for a read the arm's way as well.
//! * *An arm.* There is one, whatever the depth: depth 1 is a disk as it is.
//! * *Failures.* What fails, fails after its delay.
//!
//! An answer is that of the instant at which the request came, as it is with a store that is far away. The kernel
//! knows when a file's size has been overtaken by a change of its own, but not what a change of names or of extended
//! attributes has overtaken: such attributes are out of date at once when they are sent. (Those in a READDIRPLUS are not:
//! who makes names in a directory while a listing of its parent is on the way may see its old times.)

mod disk;
mod fault;
mod operation;
mod report;
mod servers;
mod timer;

use std::{
    io,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use pando_vfs::Error;

pub(crate) use disk::ReadAt;
pub use fault::{Fault, When};
pub use operation::Operation;
pub use report::Report;

use disk::{Disk, ReadTrace};
use fault::Faults;
use report::Counts;
use servers::Servers;
use timer::Timer;

/// How slow a store is, and what it fails. The default is fast, and only counts.
#[derive(Debug, Clone, Default)]
pub struct StoreOptions {
    /// How long one item of an operation takes. Of several for one operation, the last counts.
    pub delays: Vec<(Operation, Duration)>,
    /// How many items are served at once; none: as many as are asked for.
    pub depth: Option<NonZeroUsize>,
    /// What a read costs more when the arm has to come from the other end of the file.
    pub seek: Duration,
    /// What fails.
    pub faults: Vec<Fault>,
    /// A file to write a list of reads to, as CSV: `start_us,end_us,node,offset,bytes`.
    pub trace_reads: Option<PathBuf>,
}

/// What a request asks of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// One item.
    One(Operation),
    /// A look-up that found something: a name and its attributes.
    Found,
    /// Names: one item each.
    Names(usize),
    /// Names with attributes: one item each.
    NamesWithAttributes(usize),
    /// A part of a file.
    Read(ReadAt),
}

/// A store, slow or only counting. See [`StoreOptions`].
pub struct Store {
    /// By the number of the operation.
    delays: Box<[Duration]>,
    faults: Faults,
    counts: Counts,
    queue: Mutex<Queue>,
    /// None where nothing is delayed.
    timer: Option<Timer>,
    traces: bool,
}

/// What arrivals change, in their order.
struct Queue {
    servers: Servers,
    disk: Disk,
    trace: Option<ReadTrace>,
}

impl Store {
    /// A store as `options` say.
    ///
    /// # Errors
    /// The file for the list of reads cannot be made, or a thread cannot be started.
    pub fn new(options: StoreOptions) -> io::Result<Self> {
        let mut delays = vec![Duration::ZERO; Operation::ALL.len()].into_boxed_slice();
        for (operation, delay) in &options.delays {
            delays[*operation as usize] = *delay;
        }
        let slow = !options.seek.is_zero() || delays.iter().any(|delay| !delay.is_zero());
        let named =
            |path: &PathBuf, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let trace = match &options.trace_reads {
            Some(path) => Some(ReadTrace::create(path).map_err(|error| named(path, error))?),
            None => None,
        };
        Ok(Self {
            delays,
            faults: Faults::new(options.faults),
            counts: Counts::new(),
            traces: trace.is_some(),
            queue: Mutex::new(Queue { servers: Servers::new(options.depth), disk: Disk::new(options.seek), trace }),
            timer: if slow { Some(Timer::start()?) } else { None },
        })
    }

    /// What was asked so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.counts.report(self.queue().servers.busy_max())
    }

    /// Ends it: answers that are still due are never sent, and the list of reads is written to its end.
    ///
    /// # Errors
    /// The list could not be written.
    pub fn close(&self) -> io::Result<()> {
        self.drop_answers();
        self.queue().trace.as_mut().map_or(Ok(()), ReadTrace::finish)
    }

    /// Nobody waits for answers any more.
    pub(crate) fn drop_answers(&self) {
        if let Some(timer) = &self.timer {
            timer.close();
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The error that a request is to fail with, if any; `name` is that of a look-up.
    pub(crate) fn fault(&self, operation: Operation, name: Option<&[u8]>) -> Option<Error> {
        self.faults.ask(operation, name)
    }

    /// The error of an entry of a READDIRPLUS, if its attributes cannot be had.
    pub(crate) fn fault_of_entry(&self, name: &[u8]) -> Option<Error> {
        let (lookup, getattr) = (self.fault(Operation::Lookup, Some(name)), self.fault(Operation::Getattr, None));
        lookup.or(getattr)
    }

    /// The entry that was asked for last did not fit in its answer: the next one asks for it again.
    pub(crate) fn entry_did_not_fit(&self) {
        self.faults.take_back(Operation::Lookup);
        self.faults.take_back(Operation::Getattr);
    }

    /// Whether where a read goes matters here.
    pub(crate) fn wants_reads(&self) -> bool {
        self.traces || self.timer.is_some()
    }

    /// Whether anything takes time here.
    pub(crate) fn delays(&self) -> bool {
        self.timer.is_some()
    }

    /// Does `answer` at the instant `due`.
    pub(crate) fn at(&self, due: Instant, answer: impl FnOnce() + Send + 'static) {
        match &self.timer {
            Some(timer) => timer.at(due, Box::new(answer)),
            None => answer(),
        }
    }

    /// When `work` will be done; none if it takes no time. The clock is looked at when it is its turn to queue.
    pub(crate) fn due(&self, work: Work, clock: impl Fn() -> Instant) -> Option<Instant> {
        let delay = |operation: Operation| self.delays[operation as usize];
        let (items, each) = match work {
            Work::One(operation) => (1, delay(operation)),
            Work::Found => (1, delay(Operation::Lookup) + delay(Operation::Getattr)),
            Work::Names(count) => (count, delay(Operation::Readdir)),
            Work::NamesWithAttributes(count) => {
                (count, delay(Operation::Readdir) + delay(Operation::Lookup) + delay(Operation::Getattr))
            }
            Work::Read(read) => return self.read_due(&read, delay(Operation::Read), clock),
        };
        if each.is_zero() || items == 0 {
            return None;
        }
        let mut queue = self.queue();
        let now = clock();
        (0..items).map(|_| queue.servers.arrive(now, each)).max()
    }

    fn read_due(&self, read: &ReadAt, delay: Duration, clock: impl Fn() -> Instant) -> Option<Instant> {
        if !self.wants_reads() {
            return None;
        }
        let mut queue = self.queue();
        let service = delay + queue.disk.seek(read);
        let now = clock();
        let due = if service.is_zero() { None } else { Some(queue.servers.arrive(now, service)) };
        if let Some(trace) = &mut queue.trace {
            let end = due.unwrap_or(now);
            trace.add(end - service, end, read);
        }
        due
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Arithmetic, and a write whose error is kept: nothing there panics half way.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn store(depth: usize) -> Store {
        let delays = vec![(Operation::Lookup, MS * 300), (Operation::Getattr, MS * 500), (Operation::Readdir, MS * 7)];
        Store::new(StoreOptions { delays, depth: NonZeroUsize::new(depth), ..StoreOptions::default() }).unwrap()
    }

    /// In how many milliseconds some work will be done that comes now.
    fn done_in_ms(store: &Store, work: Work) -> u128 {
        let now = Instant::now();
        store.due(work, || now).map_or(0, |due| (due - now).as_millis())
    }

    #[test]
    fn an_entry_costs_the_same_alone_and_in_a_batch() {
        assert_eq!(done_in_ms(&store(1), Work::One(Operation::Lookup)), 300);
        assert_eq!(done_in_ms(&store(1), Work::Found), 800);
        assert_eq!(done_in_ms(&store(1), Work::NamesWithAttributes(10)), 8070);
        assert_eq!(done_in_ms(&store(5), Work::NamesWithAttributes(10)), 1614);
        assert_eq!(done_in_ms(&store(5), Work::Names(10)), 14);
        assert_eq!(done_in_ms(&store(1), Work::Names(0)), 0);
        assert_eq!(done_in_ms(&store(1), Work::One(Operation::Read)), 0, "nothing was said about it");
    }
}
