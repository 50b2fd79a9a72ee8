//! Whether a namespace is traced, and the running trace. The records are the business of
//! [`crate::trace`].

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use pando_sync::ring::RingReader;
use quanta::Clock;

use crate::types::trace_op::{TraceOps, TraceOptions};

/// Whether a namespace is traced.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Tracing {
    /// The address of the session, or 0 if there is no trace. Written under the lock of `session`.
    pub(crate) active: AtomicUsize,
    /// The running trace. A leaf of the lock tree.
    pub(crate) session: Mutex<Option<Arc<Session>>>,
}

/// One trace, from its beginning to its end.
pub(crate) struct Session {
    pub(crate) clock: Clock,
    /// The time stamp counter at the beginning.
    pub(crate) began: u64,
    pub(crate) ops: TraceOps,
    pub(crate) errors_only: bool,
    /// The shortest latency, rounded down, in ticks of the counter. The reader applies the exact
    /// limit.
    pub(crate) min_ticks: u64,
    /// The size of each thread's ring, in words of 8 bytes.
    pub(crate) ring_words: usize,
    /// The number of rings. Atomic: a single independent value.
    pub(crate) rings: AtomicUsize,
    /// The number of threads so far. Atomic: a single independent value.
    pub(crate) threads: AtomicU32,
    /// Threads that the reader has not yet seen, with the reading ends of their rings.
    pub(crate) joined: Mutex<Vec<(u32, RingReader)>>,
    /// The number of operations of threads without a ring. Atomic: a single independent value.
    pub(crate) without_ring: AtomicU64,
    /// Whether the trace has ended. Atomic: a single independent value.
    pub(crate) closed: AtomicBool,
}

impl Session {
    pub(crate) fn new(options: &TraceOptions) -> Self {
        let clock = Clock::new();
        let began = clock.raw();
        const SCALE: u64 = 1 << 32;
        let nanos = u128::from(clock.delta_as_nanos(0, SCALE)).max(1);
        let ticks = options.min_latency.as_nanos().saturating_mul(SCALE.into()) / nanos;
        Self {
            began,
            ops: options.ops,
            errors_only: options.errors_only,
            // Rounded down: the reader computes exactly.
            min_ticks: u64::try_from(ticks).unwrap_or(u64::MAX).saturating_sub(ticks as u64 >> 10),
            ring_words: (options.ring_bytes / 8).clamp(1 << 11, 1 << 21),
            rings: AtomicUsize::new(0),
            threads: AtomicU32::new(0),
            joined: Mutex::default(),
            without_ring: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            clock,
        }
    }

    pub(crate) fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self) as usize
    }

    /// The reader has read the ring of an ended thread to its end.
    pub(crate) fn ring_ended(&self) {
        self.rings.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether every operation is recorded. Then an operation that finds its ring full is lost for
    /// certain.
    pub(crate) fn wants_everything(&self) -> bool {
        !self.errors_only && self.min_ticks == 0
    }
}
