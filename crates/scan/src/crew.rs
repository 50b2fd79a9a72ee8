//! Who does the work of a scan.

use std::sync::Arc;

use pando_records::PAGE_BYTES;

use crate::{Options, fill::Asked, pace::Pace, pool::Pool};

/// Pages that answers need at least, to get on at all: a part, a list, a page of values.
pub(crate) const RESERVE: usize = 4;

/// Who does the work: how many, and the threads. Shared by the scans of a walk.
#[derive(Clone)]
pub(crate) struct Crew {
    pub pace: Arc<Pace>,
    pub pool: Arc<Pool>,
}

impl Crew {
    pub fn new(options: &Options) -> Self {
        // Each thread holds a part and pages.
        let each = 1 + Asked::new(options.mask, options.fields, options.follow).pages();
        let most = (options.budget_bytes / PAGE_BYTES).saturating_sub(RESERVE + 3) / (2 * each);
        let pace = Pace::new(options.workers, options.order, most.max(1));
        Self { pace: Arc::new(pace), pool: Arc::new(Pool::new()) }
    }
}
