//! What goes wrong on demand: slow calls, failing calls; and how many calls there were.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use pando_vfs::{Error, Result};

/// The kinds of calls that reach the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// [`pando_vfs::Backing::lookup`].
    Lookup,
    /// [`pando_vfs::Backing::getattr_many`].
    Getattr,
    /// [`pando_vfs::Backing::create`].
    Create,
    /// [`pando_vfs::Backing::link`].
    Link,
    /// [`pando_vfs::Backing::remove`].
    Remove,
    /// [`pando_vfs::Backing::rename`].
    Rename,
    /// [`pando_vfs::Backing::setattr`].
    Setattr,
    /// [`pando_vfs::Backing::forget`]. It cannot fail: of faults of this kind, only a panic has an effect.
    Forget,
    /// [`pando_vfs::Backing::scan`].
    Scan,
    /// [`pando_vfs::Backing::xattrs`].
    Xattrs,
    /// [`pando_vfs::Backing::set_xattr`].
    SetXattr,
    /// Reading a file's bytes.
    Read,
    /// Changing a file's bytes: write, truncate, allocate, punch.
    Write,
    /// Making durable what was written: to a file, or to all.
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
}

/// How a slow call spends its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// On the processor: what a store in the same process costs.
    Spin(Duration),
    /// Asleep: what a disk or another machine costs.
    Sleep(Duration),
}

/// How long calls of a kind take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// Which calls; none: all.
    pub call: Option<Call>,
    /// How long.
    pub wait: Wait,
}

/// Calls that fail, or panic. They do so before they change anything.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// One call fails.
    Nth {
        /// Which calls are counted; none: all that can fail.
        call: Option<Call>,
        /// How many more calls succeed before the one that fails.
        after: u64,
        /// What it answers.
        error: Error,
    },
    /// Each call fails with a probability, as a generator with a seed says.
    Random {
        /// Which calls; none: all that can fail.
        call: Option<Call>,
        /// One call in so many fails; at least 1.
        one_in: u64,
        /// The seed of the generator.
        seed: u64,
        /// What a failing call answers.
        error: Error,
    },
    /// The next call panics.
    Panic {
        /// Of which kind.
        call: Call,
    },
}

/// What becomes of a call that is struck.
enum Blow {
    Error(Error),
    Panic,
}

impl Fault {
    fn concerns(&self, this: Call) -> bool {
        match self {
            Self::Nth { call, .. } | Self::Random { call, .. } => {
                this != Call::Forget && call.is_none_or(|call| call == this)
            }
            Self::Panic { call } => *call == this,
        }
    }

    /// Whether the next call that it concerns is struck; counts it.
    fn strikes(&mut self) -> Option<Blow> {
        match self {
            Self::Nth { after, error, .. } => {
                let strikes = *after == 0;
                // Struck: never again.
                *after = after.checked_sub(1).unwrap_or(u64::MAX);
                strikes.then_some(Blow::Error(*error))
            }
            Self::Random { one_in, seed, error, .. } => {
                *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
                mix(*seed).is_multiple_of((*one_in).max(1)).then_some(Blow::Error(*error))
            }
            Self::Panic { .. } => Some(Blow::Panic),
        }
    }
}

/// The output function of splitmix64 (Steele, Lea, Flood, *Fast splittable pseudorandom number generators*, 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A call that waits for a test: from [`crate::MapHandle::park`] on, the next of its kind. Dropping this lets it go on.
#[derive(Debug)]
#[must_use = "the call goes on when this is dropped"]
pub struct Parked(Arc<Gate>);

/// Where a call can be parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before it looks at the store.
    Before(Call),
    /// A look-up, a creation or a removal, after it has.
    Answered(Call),
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
    /// Waits until a call has come here.
    pub fn reached(&self) {
        self.0.wait_until(|gate| gate.reached);
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.update(|gate| gate.open = true);
    }
}

/// Delays, faults and counters of one store.
#[derive(Debug)]
pub(crate) struct Trouble {
    gates: Mutex<Vec<(Stage, Arc<Gate>)>>,
    delays: Mutex<Vec<Delay>>,
    faults: Mutex<Vec<Fault>>,
    calls: [AtomicU64; Call::ALL.len()],
    struck: AtomicU64,
}

impl Trouble {
    pub(crate) fn new(delays: Vec<Delay>, faults: Vec<Fault>) -> Self {
        Self {
            gates: Mutex::default(),
            delays: Mutex::new(delays),
            faults: Mutex::new(faults),
            calls: std::array::from_fn(|_| AtomicU64::new(0)),
            struck: AtomicU64::new(0),
        }
    }

    /// What every call does first: it is counted, waits if it was parked, takes its time, and fails or panics if it is to. The store's lock is not
    /// held.
    pub(crate) fn enter(&self, call: Call) -> Result<()> {
        // Relaxed: statistics.
        self.calls[call as usize].fetch_add(1, Ordering::Relaxed);
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
        match self.blow(call) {
            None => Ok(()),
            Some(Blow::Error(error)) => Err(error),
            Some(Blow::Panic) => panic!("{call:?} panics on demand"),
        }
    }

    /// What strikes this call.
    fn blow(&self, call: Call) -> Option<Blow> {
        let mut faults = lock(&self.faults);
        let blow = faults.iter_mut().filter(|fault| fault.concerns(call)).find_map(Fault::strikes)?;
        // Once is enough.
        if let Blow::Panic = blow {
            faults.retain(|fault| *fault != Fault::Panic { call });
        }
        self.struck.fetch_add(1, Ordering::Relaxed);
        Some(blow)
    }

    pub(crate) fn calls(&self, call: Call) -> u64 {
        self.calls[call as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn struck(&self) -> u64 {
        self.struck.load(Ordering::Relaxed)
    }

    /// What a look-up, a creation and a removal do last. The store's lock is not held.
    pub(crate) fn answered(&self, call: Call) {
        self.pass(Stage::Answered(call));
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

    pub(crate) fn park_answer(&self, call: Call) -> Parked {
        self.close(Stage::Answered(call))
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
