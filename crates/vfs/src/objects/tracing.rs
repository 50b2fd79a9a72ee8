//! Whether a name space is traced, and the trace that goes on. What is recorded is the business of [`crate::trace`].

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use pando_sync::ring::RingReader;
use quanta::Clock;

use crate::types::trace_op::{TraceOps, TraceOptions};

/// Whether a name space is traced. On lines of its own: what lies beside it is written.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Tracing {
    /// The session's address; 0: nobody traces. Written under the lock of `session`.
    pub(crate) active: AtomicUsize,
    pub(crate) session: Mutex<Option<Arc<Session>>>,
}

/// One trace, from its beginning to its end.
pub(crate) struct Session {
    pub(crate) clock: Clock,
    /// The counter, when it began.
    pub(crate) began: u64,
    pub(crate) ops: TraceOps,
    pub(crate) errors_only: bool,
    /// About the shortest latency, in steps of the counter: the reader looks closer.
    pub(crate) min_ticks: u64,
    pub(crate) ring_words: usize,
    pub(crate) rings: AtomicUsize,
    pub(crate) threads: AtomicU32,
    /// Threads that the reader does not know yet.
    pub(crate) joined: Mutex<Vec<(u32, RingReader)>>,
    /// Operations of threads that got no ring.
    pub(crate) ringless: AtomicU64,
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
            // A little less: the reader's arithmetic is the exact one.
            min_ticks: u64::try_from(ticks).unwrap_or(u64::MAX).saturating_sub(ticks as u64 >> 10),
            ring_words: (options.ring_bytes / 8).clamp(1 << 11, 1 << 21),
            rings: AtomicUsize::new(0),
            threads: AtomicU32::new(0),
            joined: Mutex::default(),
            ringless: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            clock,
        }
    }

    pub(crate) fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self) as usize
    }

    /// A thread's ring was read to its end.
    pub(crate) fn ring_gone(&self) {
        self.rings.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether every operation is wanted: then a full ring is known to lose it.
    pub(crate) fn wants_everything(&self) -> bool {
        !self.errors_only && self.min_ticks == 0
    }
}
