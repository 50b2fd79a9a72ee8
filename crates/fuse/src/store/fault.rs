//! Errors on demand.

use std::sync::atomic::{AtomicU64, Ordering};

use pando_vfs::Error;

use super::Operation;

/// What the store is to fail, and with which error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// One of [`Operation::OF_THE_STORE`].
    pub operation: Operation,
    /// The answer.
    pub error: Error,
    /// Which of them.
    pub when: When,
}

/// Which requests of a kind fail. An entry of a READDIRPLUS counts as a look-up and a getattr; one that fails is
/// answered with attributes that are out of date at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// Each.
    Always,
    /// The N-th since the start, from 1.
    Nth(u64),
    /// Look-ups of this name, in whatever directory.
    Named(Vec<u8>),
}

/// All faults, and how often each was asked.
#[derive(Debug)]
pub(crate) struct Faults {
    faults: Vec<(Fault, AtomicU64)>,
}

impl Faults {
    pub(crate) fn new(faults: Vec<Fault>) -> Self {
        Self { faults: faults.into_iter().map(|fault| (fault, AtomicU64::new(0))).collect() }
    }

    /// The error of this request, if it is to fail.
    pub(crate) fn ask(&self, operation: Operation, name: Option<&[u8]>) -> Option<Error> {
        let mut answer = None;
        // Each counts, also behind one that fails: "the third" is the third.
        for (fault, asked) in self.faults.iter().filter(|(fault, _)| fault.operation == operation) {
            // A count on its own; it orders nothing.
            let number = asked.fetch_add(1, Ordering::Relaxed) + 1;
            let fails = match &fault.when {
                When::Always => true,
                When::Nth(nth) => *nth == number,
                When::Named(bad) => name == Some(bad.as_slice()),
            };
            if fails {
                answer = answer.or(Some(fault.error));
            }
        }
        answer
    }

    /// The last question was none: who asked it asks again.
    pub(crate) fn take_back(&self, operation: Operation) {
        for (_, asked) in self.faults.iter().filter(|(fault, _)| fault.operation == operation) {
            asked.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fails_what_it_says() {
        let fault = |operation, error, when| Fault { operation, error, when };
        let faults = Faults::new(vec![
            fault(Operation::Getattr, Error::Stale, When::Nth(2)),
            fault(Operation::Lookup, Error::Io, When::Named(b"bad".into())),
            fault(Operation::Read, Error::Io, When::Always),
        ]);
        let getattr: Vec<_> = (0..3).map(|_| faults.ask(Operation::Getattr, None)).collect();
        assert_eq!(getattr, [None, Some(Error::Stale), None]);
        assert_eq!(faults.ask(Operation::Lookup, Some(b"good")), None);
        assert_eq!(faults.ask(Operation::Lookup, Some(b"bad")), Some(Error::Io));
        assert_eq!(faults.ask(Operation::Read, None), Some(Error::Io));
        assert_eq!(faults.ask(Operation::Write, None), None);
    }

    #[test]
    fn what_is_taken_back_is_asked_again() {
        let fault = Fault { operation: Operation::Getattr, error: Error::Io, when: When::Nth(2) };
        let faults = Faults::new(vec![fault]);
        assert_eq!(faults.ask(Operation::Getattr, None), None);
        for _ in 0..2 {
            assert_eq!(faults.ask(Operation::Getattr, None), Some(Error::Io));
            faults.take_back(Operation::Getattr);
        }
        assert_eq!(faults.ask(Operation::Getattr, None), Some(Error::Io));
        assert_eq!(faults.ask(Operation::Getattr, None), None);
    }
}
