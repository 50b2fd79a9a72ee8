//! Errors on demand.

use std::sync::atomic::{AtomicU64, Ordering};

use pando_vfs::Error;

use super::Operation;

/// Requests that must fail, and their error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// One of [`Operation::INJECTABLE`].
    pub operation: Operation,
    /// The error.
    pub error: Error,
    /// Which of the requests fail.
    pub when: When,
}

/// Which requests of an operation fail. An entry of a READDIRPLUS counts as a look-up and a
/// getattr. If either fails, the entry has its attributes all the same, but they are expired at
/// once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// All of them.
    Always,
    /// The N-th since the start, from 1.
    Nth(u64),
    /// Look-ups of this name, in any directory.
    Named(Vec<u8>),
}

/// All faults, each with the number of requests that it has seen.
#[derive(Debug)]
pub(crate) struct Faults {
    faults: Vec<(Fault, AtomicU64)>,
}

impl Faults {
    pub(crate) fn new(faults: Vec<Fault>) -> Self {
        Self { faults: faults.into_iter().map(|fault| (fault, AtomicU64::new(0))).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// Counts the next request, and returns the error that it must fail with, if any.
    pub(crate) fn next(&self, operation: Operation, name: Option<&[u8]>) -> Option<Error> {
        let mut error = None;
        // A fault counts a request even if an earlier fault fails it, so that "the third" is the
        // third request.
        for (fault, seen) in self.faults.iter().filter(|(fault, _)| fault.operation == operation) {
            // Relaxed: a single independent value.
            let number = seen.fetch_add(1, Ordering::Relaxed) + 1;
            let fails = match &fault.when {
                When::Always => true,
                When::Nth(nth) => *nth == number,
                When::Named(bad) => name == Some(bad.as_slice()),
            };
            if fails {
                error = error.or(Some(fault.error));
            }
        }
        error
    }
}

#[cfg(test)]
mod tests;
