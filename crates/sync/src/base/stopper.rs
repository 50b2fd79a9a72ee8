//! For tests whose threads run until they are told to stop.

use std::sync::atomic::{AtomicBool, Ordering};

/// Tells the threads to stop when it is dropped. A test that panics drops it too; otherwise its
/// scope would wait for the threads for ever.
pub(crate) struct Stopper<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
