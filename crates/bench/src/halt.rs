//! Stopping early: a flag that waiting threads notice at once.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use signal_hook::iterator::Signals;

use crate::failure::{Failure, While};

/// Whether the run is to end. Clones are the same flag.
#[derive(Clone, Default)]
pub(crate) struct Halt(Arc<(Mutex<bool>, Condvar)>);

impl Halt {
    /// Asks the run to end; returns whether somebody had asked before.
    pub(crate) fn ask(&self) -> bool {
        let mut asked = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *asked, true);
        self.0.1.notify_all();
        before
    }

    /// # Errors
    /// [`Failure::Interrupted`] if the run is to end.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.wait(Duration::ZERO)
    }

    /// Lets `time` pass.
    ///
    /// # Errors
    /// [`Failure::Interrupted`], at once, if the run is to end.
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

    /// Turns these signals into [`Halt::ask`]; a second one ends the process at once, and leaves what the next run then
    /// cleans up.
    ///
    /// # Errors
    /// What sigaction answers.
    pub(crate) fn on(&self, signals: impl IntoIterator<Item = i32>) -> Result<(), Failure> {
        let mut signals = Signals::new(signals).during(|| "handling Ctrl-C".into())?;
        let halt = self.clone();
        thread::spawn(move || {
            for _ in signals.forever() {
                if halt.ask() {
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
    fn asking_wakes_a_waiter() {
        let halt = Halt::default();
        assert!(halt.check().is_ok());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| halt.wait(Duration::from_secs(3600)));
            assert!(!halt.ask());
            assert!(matches!(waiter.join().expect("no panic"), Err(Failure::Interrupted)));
        });
        assert!(halt.ask());
    }
}
