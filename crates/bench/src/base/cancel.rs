//! Cancellation of a run: a flag that wakes waiting threads at once.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::base::failure::{During, Failure};

/// The signals that end a run early.
pub const SIGNALS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Whether the run is cancelled. Clones share the flag.
#[derive(Clone, Default)]
pub(crate) struct Cancel(Arc<(Mutex<bool>, Condvar)>);

impl Cancel {
    /// Cancels the run. Returns whether it was cancelled before.
    pub(crate) fn request(&self) -> bool {
        let mut asked = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *asked, true);
        self.0.1.notify_all();
        before
    }

    /// # Errors
    /// [`Failure::Interrupted`] if the run is cancelled.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.wait(Duration::ZERO)
    }

    /// Waits for `time`.
    ///
    /// # Errors
    /// [`Failure::Interrupted`], at once, if the run is cancelled.
    pub(crate) fn wait(&self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        let mut asked = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if *asked {
                return Err(Failure::Interrupted);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            asked = self.0.1.wait_timeout(asked, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes these signals call [`Cancel::request`]. A second signal ends the process at once; the
    /// next run then removes the files that this one leaves.
    ///
    /// # Errors
    /// The error of sigaction.
    pub(crate) fn on(&self, signals: impl IntoIterator<Item = i32>) -> Result<(), Failure> {
        let mut signals = Signals::new(signals).during(|| "handling Ctrl-C".into())?;
        let cancel = self.clone();
        thread::spawn(move || {
            for _ in signals.forever() {
                if cancel.request() {
                    std::process::exit(130);
                }
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_wakes_a_waiter() {
        let cancel = Cancel::default();
        assert!(cancel.check().is_ok());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| cancel.wait(Duration::from_secs(3600)));
            assert!(!cancel.request());
            assert!(matches!(waiter.join().expect("no panic"), Err(Failure::Interrupted)));
        });
        assert!(cancel.request());
    }
}
