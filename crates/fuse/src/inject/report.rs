//! Counts of the requests to a mount, by kind.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use super::Operation;

/// The counts of a mount in use. All accesses are relaxed, because each count is a single
/// independent value.
#[derive(Debug)]
pub(crate) struct Counts {
    requests: Box<[AtomicU64]>,
    entries: AtomicU64,
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
}

impl Counts {
    pub(crate) fn new() -> Self {
        Self {
            requests: Operation::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            entries: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            in_flight_max: AtomicU64::new(0),
        }
    }

    /// Counts `count` requests.
    pub(crate) fn requests(&self, operation: Operation, count: u64) {
        self.requests[operation as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Counts directory entries in replies.
    pub(crate) fn entries(&self, count: usize) {
        self.entries.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// A request begins to wait for its reply.
    pub(crate) fn begin(&self) {
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        if now > self.in_flight_max.load(Ordering::Relaxed) {
            self.in_flight_max.fetch_max(now, Ordering::Relaxed);
        }
    }

    /// The reply to such a request is about to be sent.
    pub(crate) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// The counts until now; the injector has served at most `served_max` items at one instant.
    pub(crate) fn report(&self, served_max: usize) -> Report {
        Report {
            requests: Operation::ALL
                .iter()
                .zip(&self.requests)
                .map(|(&operation, count)| (operation, count.load(Ordering::Relaxed)))
                .collect(),
            entries: self.entries.load(Ordering::Relaxed),
            waiting_max: self.in_flight_max.load(Ordering::Relaxed),
            in_flight_max: served_max as u64,
        }
    }
}

/// The requests to a mount since its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The number of requests of each kind.
    pub requests: Vec<(Operation, u64)>,
    /// The number of directory entries in replies to READDIR and READDIRPLUS.
    pub entries: u64,
    /// The most requests that waited for their reply at one instant. Only the kinds that can be
    /// delayed count ([`Operation::INJECTABLE`]).
    pub waiting_max: u64,
    /// The most items that the injector served at one instant; 0 if nothing was delayed. Never more
    /// than its depth.
    pub in_flight_max: u64,
}

impl Report {
    /// The number of requests of one kind.
    #[must_use]
    pub fn count(&self, operation: Operation) -> u64 {
        self.requests.iter().find(|(known, _)| *known == operation).map_or(0, |(_, count)| *count)
    }

    /// A JSON object in one line, with the keys `requests` (an object: `{"lookup": 0, ...}`),
    /// `entries`, `waiting_max` and `in_flight_max`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let requests: Vec<String> =
            self.requests.iter().map(|(operation, count)| format!("\"{operation}\": {count}")).collect();
        format!(
            "{{\"requests\": {{{}}}, \"entries\": {}, \"waiting_max\": {}, \"in_flight_max\": {}}}",
            requests.join(", "),
            self.entries,
            self.waiting_max,
            self.in_flight_max
        )
    }
}

/// For people: counts of 0 are left out.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (operation, count) in self.requests.iter().filter(|(_, count)| *count > 0) {
            write!(f, "{operation} {count}, ")?;
        }
        let Self { entries, waiting_max, in_flight_max, .. } = self;
        write!(f, "{entries} directory entries; at most {waiting_max} waiting at once")?;
        if *in_flight_max > 0 { write!(f, ", {in_flight_max} served by the injector") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
