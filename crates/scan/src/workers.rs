//! The threads of a scan or a walk: the pool, how many of them work, jobs for them, and the order
//! in which a job asks.

use std::sync::{Arc, atomic::AtomicU64};

use pando_records::PAGE_BYTES;

use crate::{Options, entry::Asked};

pub mod job;
pub mod order;
pub mod threads;
pub mod tuning;
pub mod waits;

use order::OrderTrial;
use threads::Threads;
use waits::ByWaits;

/// Pages that answers need at least to make progress: a part, a list, and a page of values.
pub(crate) const RESERVE: usize = 4;

/// The threads, how many of them work, and in which order. Shared by the scans of a walk.
#[derive(Clone)]
pub(crate) struct WorkerPool {
    pub concurrency: Arc<ByWaits>,
    pub order: Arc<OrderTrial>,
    pub threads: Arc<Threads>,
    /// The device of a file system that returns no whole records: major number in the upper half,
    /// minor in the lower; 0 if none is known. A single independent value.
    pub refused: Arc<AtomicU64>,
}

impl WorkerPool {
    pub fn new(options: &Options) -> Self {
        // Each thread holds a part and pages.
        let each = 1 + Asked::new(options.mask, options.fields, options.follow).pages();
        let max = (options.budget_bytes / PAGE_BYTES).saturating_sub(RESERVE + 3) / (2 * each);
        Self {
            concurrency: Arc::new(ByWaits::new(options.workers, max.max(1))),
            order: Arc::new(OrderTrial::new(options.order)),
            threads: Arc::new(Threads::new()),
            refused: Arc::default(),
        }
    }
}
