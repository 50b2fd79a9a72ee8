//! The latency and fault injector: the mount replies as late as a disk or a remote server would, or
//! with errors.
//!
//! [`Injected`] decorates a dispatcher: requests and replies pass through it as bytes, so the
//! server knows nothing of it, and a mount without an injector does not pay for it. The dispatcher
//! answers at once. [`Injector`] computes when the simulated device would have answered, and a
//! timer sends the reply then. So the threads that read requests never sleep.
//!
//! The model:
//!
//! * *Items.* A request is one item, and a batch of directory entries is one item for each entry.
//!   A reply with attributes also costs a getattr. So an entry costs the same alone (a look-up that
//!   finds it) and in a batch with attributes (READDIRPLUS, which adds the readdir that each batch
//!   costs). A batch is requested as a whole, so its items are served in parallel.
//! * *Depth.* This many items are served at the same time. The others wait, first come, first
//!   served. The service time of an item is the delay of its operation, and for a read also the
//!   seek.
//! * *Disk arm.* There is one, whatever the depth. Depth 1 simulates a real disk.
//! * *Faults.* A request that fails does so after its delay.
//!
//! A reply shows the state at the time of the request, as that of a remote server does. When the
//! kernel changes the size of a file meanwhile, it drops the old attributes by itself. It does not
//! do so after changes of names or of extended attributes. So if attributes have changed by the
//! time the reply is sent, the reply declares them expired. (READDIRPLUS is an exception. A program
//! that creates names in a directory during a delayed listing of its parent may see the old times.)

mod decorator;
mod disk;
mod fault;
mod operation;
mod queue;
mod report;
mod timer;

use std::{
    fmt, io,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use pando_vfs::Error;

pub use decorator::REQUESTS_XATTR;
pub use fault::{Fault, When};
pub use operation::Operation;
pub use report::Report;

pub(crate) use decorator::Injected;

use disk::{Disk, ReadAt, ReadTrace};
use fault::Faults;
use queue::ServiceQueue;
use report::Counts;
use timer::Timer;

/// The delays and faults of an [`Injector`]. The default has neither: it only counts requests.
#[derive(Debug, Clone, Default)]
#[must_use]
#[non_exhaustive]
pub struct InjectorOptions {
    /// The service time of one item of an operation. If an operation is listed twice, the last one
    /// counts.
    pub delays: Vec<(Operation, Duration)>,
    /// How many items are served at the same time. None: no limit.
    pub depth: Option<NonZeroUsize>,
    /// The time of a full stroke: a seek from one end of the file to the other.
    pub seek: Duration,
    /// Which requests fail.
    pub faults: Vec<Fault>,
    /// A file to write a list of reads to, as CSV: `start_us,end_us,node,offset,bytes`.
    pub trace_reads: Option<PathBuf>,
}

impl InjectorOptions {
    /// Neither delays nor faults: it only counts requests.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`InjectorOptions::delays`].
    pub fn delays(mut self, delays: Vec<(Operation, Duration)>) -> Self {
        self.delays = delays;
        self
    }

    /// Sets [`InjectorOptions::depth`].
    pub fn depth(mut self, depth: impl Into<Option<NonZeroUsize>>) -> Self {
        self.depth = depth.into();
        self
    }

    /// Sets [`InjectorOptions::seek`].
    pub fn seek(mut self, seek: Duration) -> Self {
        self.seek = seek;
        self
    }

    /// Sets [`InjectorOptions::faults`].
    pub fn faults(mut self, faults: Vec<Fault>) -> Self {
        self.faults = faults;
        self
    }

    /// Sets [`InjectorOptions::trace_reads`].
    pub fn trace_reads(mut self, trace_reads: impl Into<Option<PathBuf>>) -> Self {
        self.trace_reads = trace_reads.into();
        self
    }
}

/// The cost of a request.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// One item.
    One(Operation),
    /// A look-up that found an entry: a name and its attributes.
    Found,
    /// Entries of a directory.
    Records(Records),
    /// A part of a file.
    Read(ReadAt),
}

/// The cost of directory entries. An entry is one item, and a value of an extended attribute is
/// another one.
#[derive(Debug, Clone, Copy, Default)]
struct Records {
    entries: usize,
    /// They have attributes.
    attributes: bool,
    /// They have names of extended attributes.
    lists: bool,
    /// Values of extended attributes.
    values: usize,
}

/// Delays requests, fails them, and counts them. See [`InjectorOptions`].
pub struct Injector {
    /// Indexed by the number of the operation.
    delays: Box<[Duration]>,
    faults: Faults,
    counts: Counts,
    queue: Mutex<Queue>,
    /// None if nothing is delayed.
    timer: Option<Timer>,
    traces_reads: bool,
    /// Whether the arm of a disk moves.
    seeks: bool,
}

/// The state that each arrival changes. The lock keeps arrivals in order.
struct Queue {
    service: ServiceQueue,
    disk: Disk,
    trace: Option<ReadTrace>,
}

impl Injector {
    /// An injector with these options.
    ///
    /// # Errors
    /// The file for the list of reads cannot be created, or a thread cannot be started.
    pub fn new(options: InjectorOptions) -> io::Result<Self> {
        let mut delays = vec![Duration::ZERO; Operation::ALL.len()].into_boxed_slice();
        for (operation, delay) in &options.delays {
            delays[*operation as usize] = *delay;
        }
        let has_delays = !options.seek.is_zero() || delays.iter().any(|delay| !delay.is_zero());
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
            traces_reads: trace.is_some(),
            seeks: !options.seek.is_zero(),
            queue: Mutex::new(Queue {
                service: ServiceQueue::new(options.depth),
                disk: Disk::new(options.seek),
                trace,
            }),
            timer: if has_delays { Some(Timer::start()?) } else { None },
        })
    }

    /// The counts until now.
    #[must_use]
    pub fn report(&self) -> Report {
        self.counts.report(self.queue().service.busy_max())
    }

    /// Whether a call that writes many files may be served: writes take no time, and nothing fails.
    fn allows_xcreate(&self) -> bool {
        self.delays[Operation::Write as usize].is_zero() && !self.has_faults()
    }

    /// Whether the server may copy from one file to another: reads and writes take no time and are
    /// not listed, and nothing fails.
    fn allows_copies(&self) -> bool {
        let is_fast = |operation| self.delays[operation as usize].is_zero();
        let is_plain = !self.seeks && !self.traces_reads && !self.has_faults();
        is_plain && is_fast(Operation::Read) && is_fast(Operation::Write)
    }

    /// Whether the kernel may open directories without a request: opens take no time, and nothing
    /// fails.
    pub(crate) fn allows_unasked_opens(&self) -> bool {
        self.delays[Operation::Open as usize].is_zero() && !self.has_faults()
    }

    /// Drops the replies that are not due yet, and writes the list of reads to its end.
    ///
    /// # Errors
    /// The list could not be written.
    pub fn close(&self) -> io::Result<()> {
        self.drop_replies();
        self.queue().trace.as_mut().map_or(Ok(()), ReadTrace::finish)
    }

    /// Drops the replies that are not due yet: the connection has ended.
    fn drop_replies(&self) {
        if let Some(timer) = &self.timer {
            timer.close();
        }
    }

    /// The error that a request must fail with, if any. `name` is that of a look-up.
    fn fault(&self, operation: Operation, name: Option<&[u8]>) -> Option<Error> {
        self.faults.next(operation, name)
    }

    /// Whether requests may fail.
    fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    /// The error of an entry of a READDIRPLUS, if its attributes must not be returned.
    fn fault_of_entry(&self, name: &[u8]) -> Option<Error> {
        let (lookup, getattr) = (self.fault(Operation::Lookup, Some(name)), self.fault(Operation::Getattr, None));
        lookup.or(getattr)
    }

    /// Whether the position of a read matters here.
    fn wants_reads(&self) -> bool {
        self.traces_reads || self.timer.is_some()
    }

    /// Whether replies may be held back.
    pub(crate) fn delays(&self) -> bool {
        self.timer.is_some()
    }

    /// Runs `action` at the instant `due`.
    fn at(&self, due: Instant, action: impl FnOnce() + Send + 'static) {
        match &self.timer {
            Some(timer) => timer.at(due, Box::new(action)),
            None => action(),
        }
    }

    /// When `work` will be done; none if it takes no time. The clock is read under the lock, so
    /// that arrivals are in order of time.
    fn due(&self, work: Work, clock: impl Fn() -> Instant) -> Option<Instant> {
        let delay = |operation: Operation| self.delays[operation as usize];
        let (items, each) = match work {
            Work::One(operation) => (1, delay(operation)),
            Work::Found => (1, delay(Operation::Lookup) + delay(Operation::Getattr)),
            Work::Records(records) => {
                let attributes = delay(Operation::Lookup) + delay(Operation::Getattr);
                let each = delay(Operation::Readdir)
                    + if records.attributes { attributes } else { Duration::ZERO }
                    + if records.lists { delay(Operation::Listxattr) } else { Duration::ZERO };
                let values = self.all_due(records.values, delay(Operation::Getxattr), &clock);
                return values.max(self.all_due(records.entries, each, &clock));
            }
            Work::Read(read) => return self.read_due(&read, delay(Operation::Read), clock),
        };
        self.all_due(items, each, clock)
    }

    /// When all of these items will be done; none if they take no time.
    fn all_due(&self, items: usize, each: Duration, clock: impl Fn() -> Instant) -> Option<Instant> {
        if each.is_zero() || items == 0 {
            return None;
        }
        let mut queue = self.queue();
        let now = clock();
        (0..items).map(|_| queue.service.arrive(now, each)).max()
    }

    fn read_due(&self, read: &ReadAt, delay: Duration, clock: impl Fn() -> Instant) -> Option<Instant> {
        if !self.wants_reads() {
            return None;
        }
        let mut queue = self.queue();
        let service = delay + queue.disk.seek(read);
        let now = clock();
        let due = if service.is_zero() { None } else { Some(queue.service.arrive(now, service)) };
        if let Some(trace) = &mut queue.trace {
            let end = due.unwrap_or(now);
            trace.add(end - service, end, read);
        }
        due
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // The lock covers arithmetic, and a write whose error is stored: nothing panics halfway.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Injector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injector").field("delays", &self.delays).field("faults", &self.faults).finish_non_exhaustive()
    }
}

/// An injector counts, so it equals only itself.
impl PartialEq for Injector {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Injector {}

#[cfg(test)]
mod tests;
