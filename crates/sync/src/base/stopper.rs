//! For tests whose threads work until they are told to stop.

use std::sync::atomic::{AtomicBool, Ordering};

/// Tells them as it goes, also when the test has failed: its scope waits for them.
pub(crate) struct Stopper<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
