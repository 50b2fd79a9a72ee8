//! The latency and fault injector: delays calls, fails them, and counts them.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use pando_vfs::{Change, Error, Result};

/// The kinds of calls that reach the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// [`pando_vfs::Backing::lookup`].
    Lookup,
    /// [`pando_vfs::Backing::getattr`].
    Getattr,
    /// [`Change::Create`] and [`Change::CreateAnonymous`].
    Create,
    /// [`Change::Link`].
    Link,
    /// [`Change::Remove`].
    Remove,
    /// [`Change::Rename`].
    Rename,
    /// [`Change::SetAttr`].
    Setattr,
    /// [`pando_vfs::Backing::forget`]. It cannot fail: only a panic has an effect on it.
    Forget,
    /// [`pando_vfs::Backing::scan`].
    Scan,
    /// [`pando_vfs::Backing::xattrs`].
    Xattrs,
    /// [`Change::SetXattr`].
    SetXattr,
    /// Reads a file's bytes.
    Read,
    /// Changes a file's bytes: write, truncate, allocate, punch.
    Write,
    /// Makes data durable: one file or everything.
    Sync,
}

impl Call {
    /// All kinds.
    pub const ALL: [Self; 14] = [
        Self::Lookup,
        Self::Getattr,
        Self::Create,
        Self::Link,
        Self::Remove,
        Self::Rename,
        Self::Setattr,
        Self::Forget,
        Self::Scan,
        Self::Xattrs,
        Self::SetXattr,
        Self::Read,
        Self::Write,
        Self::Sync,
    ];

    /// The kinds of calls that are a [`Change`].
    const CHANGES: [Self; 6] = [Self::Create, Self::Link, Self::Remove, Self::Rename, Self::Setattr, Self::SetXattr];

    /// None for a change that this crate does not know.
    pub(crate) fn of(change: &Change<'_>) -> Option<Self> {
        Some(match change {
            Change::Create { .. } | Change::CreateAnonymous { .. } => Self::Create,
            Change::Link { .. } => Self::Link,
            Change::Remove { .. } => Self::Remove,
            Change::Rename { .. } => Self::Rename,
            Change::SetAttr { .. } => Self::Setattr,
            Change::SetXattr { .. } => Self::SetXattr,
            _ => return None,
        })
    }
}

/// One of the two messages of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// From the namespace to the store. If it is lost, the change is not made.
    Request,
    /// From the store to the namespace. If it is lost, the change was made, unless the store
    /// refused it.
    Reply,
}

/// How a delayed call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// On the CPU, like a store in the same process.
    Spin(Duration),
    /// Asleep, like a disk or another machine.
    Sleep(Duration),
}

/// The duration of calls of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// The kind of call; `None` for all.
    pub call: Option<Call>,
    /// The duration.
    pub wait: Wait,
}

/// Calls that fail or panic. They do so before they change anything, except for
/// [`Fault::Lost`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// One call fails.
    Nth {
        /// The kind of calls that are counted; `None` for all that can fail.
        call: Option<Call>,
        /// The number of calls that succeed before the one that fails.
        after: u64,
        /// The error that it returns.
        error: Error,
    },
    /// Each call fails with a probability, by a seeded generator.
    Random {
        /// The kind of call; `None` for all that can fail.
        call: Option<Call>,
        /// One call in this many fails; at least 1.
        one_in: u64,
        /// The seed of the generator.
        seed: u64,
        /// The error that a failing call returns.
        error: Error,
    },
    /// The outcome of a change is unknown, with a probability, by a seeded generator.
    Lost {
        /// The message that is lost.
        message: Message,
        /// The kind of change; `None` for all.
        call: Option<Call>,
        /// One change in this many; at least 1.
        one_in: u64,
        /// The seed of the generator.
        seed: u64,
    },
    /// The next call panics.
    Panic {
        /// The kind of call.
        call: Call,
    },
}

/// The failure of a call.
enum Failure {
    Error(Error),
    Lost(Message),
    Panic,
}

impl Fault {
    fn concerns(&self, this: Call) -> bool {
        match self {
            Self::Nth { call, .. } | Self::Random { call, .. } => {
                this != Call::Forget && call.is_none_or(|call| call == this)
            }
            Self::Lost { call, .. } => Call::CHANGES.contains(&this) && call.is_none_or(|call| call == this),
            Self::Panic { call } => *call == this,
        }
    }

    /// Counts the next call that this fault concerns, and returns its failure if it is to fail.
    fn next_failure(&mut self) -> Option<Failure> {
        match self {
            Self::Nth { after, error, .. } => {
                let fails = *after == 0;
                // Once failed, it does not fail again.
                *after = after.checked_sub(1).unwrap_or(u64::MAX);
                fails.then_some(Failure::Error(*error))
            }
            Self::Random { one_in, seed, error, .. } => draw(seed, *one_in).then_some(Failure::Error(*error)),
            Self::Lost { message, one_in, seed, .. } => draw(seed, *one_in).then_some(Failure::Lost(*message)),
            Self::Panic { .. } => Some(Failure::Panic),
        }
    }
}

/// Whether one of `one_in` is drawn.
fn draw(seed: &mut u64, one_in: u64) -> bool {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*seed).is_multiple_of(one_in.max(1))
}

/// The output function of splitmix64 (Steele, Lea, Flood, *Fast splittable pseudorandom number
/// generators*, 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A call that waits for a test: the next of its kind after [`crate::MapHandle::park`]. It
/// continues when this is dropped.
#[derive(Debug)]
#[must_use = "the call goes on when this is dropped"]
pub struct Parked(Arc<Gate>);

/// The points at which a call can be parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before it reads the store.
    Before(Call),
    /// After it has finished in the store. Only for look-ups, scans and changes.
    After(Call),
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    reached: bool,
    open: bool,
}

impl Gate {
    fn update(&self, update: impl FnOnce(&mut GateState)) {
        update(&mut lock(&self.state));
        self.changed.notify_all();
    }

    fn wait_until(&self, ready: impl Fn(&GateState) -> bool) {
        let state = self.changed.wait_while(lock(&self.state), |state| !ready(state));
        drop(state.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Parked {
    /// Waits until a call has reached this point.
    pub fn reached(&self) {
        self.0.wait_until(|gate| gate.reached);
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.update(|gate| gate.open = true);
    }
}

/// The delays, faults and counters of a store.
#[derive(Debug)]
pub(crate) struct Injector {
    gates: Mutex<Vec<(Stage, Arc<Gate>)>>,
    delays: Mutex<Vec<Delay>>,
    faults: Mutex<Vec<Fault>>,
    calls: [AtomicU64; Call::ALL.len()],
    /// The calls that are parked before they begin, or delayed, at the moment.
    waiting: AtomicU64,
    /// The entries that scans have returned.
    scanned: AtomicU64,
    failed: AtomicU64,
}

impl Injector {
    pub(crate) fn new(delays: Vec<Delay>, faults: Vec<Fault>) -> Self {
        Self {
            gates: Mutex::default(),
            delays: Mutex::new(delays),
            faults: Mutex::new(faults),
            calls: std::array::from_fn(|_| AtomicU64::new(0)),
            waiting: AtomicU64::new(0),
            scanned: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Every call starts here: it is counted, waits if it is parked, is delayed, and fails or
    /// panics if it is to. The lock of the store is not held.
    pub(crate) fn enter(&self, call: Call) -> Result<()> {
        self.enter_change(call).map(drop)
    }

    /// As [`Injector::enter`], for a change. Returns which of its messages is to be lost, if any.
    pub(crate) fn enter_change(&self, call: Call) -> Result<Option<Message>> {
        // Relaxed: statistics.
        self.calls[call as usize].fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.pass(Stage::Before(call));
        let wait = lock(&self.delays).iter().rev().find(|d| d.call.is_none_or(|c| c == call)).map(|d| d.wait);
        match wait {
            Some(Wait::Spin(time)) => {
                let start = Instant::now();
                while start.elapsed() < time {
                    std::hint::spin_loop();
                }
            }
            Some(Wait::Sleep(time)) => std::thread::sleep(time),
            None => {}
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        match self.failure(call) {
            None => Ok(None),
            Some(Failure::Lost(message)) => Ok(Some(message)),
            Some(Failure::Error(error)) => Err(error),
            Some(Failure::Panic) => panic!("{call:?} panics on demand"),
        }
    }

    /// The failure of this call, if it is to fail.
    fn failure(&self, call: Call) -> Option<Failure> {
        let mut faults = lock(&self.faults);
        let failure = faults.iter_mut().filter(|fault| fault.concerns(call)).find_map(Fault::next_failure)?;
        // It panics only once.
        if let Failure::Panic = failure {
            faults.retain(|fault| *fault != Fault::Panic { call });
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        Some(failure)
    }

    pub(crate) fn entry_scanned(&self) {
        self.scanned.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn scanned(&self) -> u64 {
        self.scanned.load(Ordering::Relaxed)
    }

    pub(crate) fn calls(&self, call: Call) -> u64 {
        self.calls[call as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Look-ups, scans and changes end here. The lock of the store is not held.
    pub(crate) fn leave(&self, call: Call) {
        self.pass(Stage::After(call));
    }

    fn pass(&self, stage: Stage) {
        let gate = {
            let mut gates = lock(&self.gates);
            gates.iter().position(|(parked, _)| *parked == stage).map(|at| gates.remove(at).1)
        };
        if let Some(gate) = gate {
            gate.update(|gate| gate.reached = true);
            gate.wait_until(|gate| gate.open);
        }
    }

    pub(crate) fn park(&self, call: Call) -> Parked {
        self.close(Stage::Before(call))
    }

    pub(crate) fn park_reply(&self, call: Call) -> Parked {
        self.close(Stage::After(call))
    }

    fn close(&self, stage: Stage) -> Parked {
        let gate = Arc::<Gate>::default();
        lock(&self.gates).push((stage, gate.clone()));
        Parked(gate)
    }

    pub(crate) fn inject(&self, fault: Fault) {
        lock(&self.faults).push(fault);
    }

    pub(crate) fn clear(&self) {
        lock(&self.faults).clear();
    }

    pub(crate) fn set_delays(&self, delays: Vec<Delay>) {
        *lock(&self.delays) = delays;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
