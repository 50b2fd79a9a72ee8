//! What was asked of a mount: counts by kind.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use super::Operation;

/// Counts while requests are served. Each is an independent value that orders nothing, so all is relaxed.
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

    pub(crate) fn request(&self, operation: Operation) {
        self.requests[operation as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn entries(&self, count: usize) {
        self.entries.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn begin(&self) {
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        if now > self.in_flight_max.load(Ordering::Relaxed) {
            self.in_flight_max.fetch_max(now, Ordering::Relaxed);
        }
    }

    pub(crate) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn report(&self, store_max: usize) -> Report {
        Report {
            requests: Operation::ALL
                .iter()
                .zip(&self.requests)
                .map(|(&operation, count)| (operation, count.load(Ordering::Relaxed)))
                .collect(),
            entries: self.entries.load(Ordering::Relaxed),
            waiting_max: self.in_flight_max.load(Ordering::Relaxed),
            in_flight_max: store_max as u64,
        }
    }
}

/// What was asked of a mount since its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How many requests of each kind.
    pub requests: Vec<(Operation, u64)>,
    /// How many entries of directories were handed out, by READDIR and READDIRPLUS.
    pub entries: u64,
    /// The most requests (of the kinds that a store can delay) that waited for their answer at one instant.
    pub waiting_max: u64,
    /// The most items that the slow store served at one instant; 0 if nothing was delayed. Never above its depth.
    pub in_flight_max: u64,
}

impl Report {
    /// How many requests of one kind.
    #[must_use]
    pub fn count(&self, operation: Operation) -> u64 {
        self.requests.iter().find(|(known, _)| *known == operation).map_or(0, |(_, count)| *count)
    }

    /// As a JSON object of one line: `{"requests": {"lookup": 0, ...}, "entries", "waiting_max", "in_flight_max"}`.
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

/// For people: what there was none of is left out.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (operation, count) in self.requests.iter().filter(|(_, count)| *count > 0) {
            write!(f, "{operation} {count}, ")?;
        }
        let Self { entries, waiting_max, in_flight_max, .. } = self;
        write!(f, "{entries} entries of directories; at once at most {waiting_max} waiting")?;
        if *in_flight_max > 0 { write!(f, ", {in_flight_max} served by the slow store") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_reported() {
        let counts = Counts::new();
        counts.request(Operation::Lookup);
        counts.request(Operation::Lookup);
        counts.request(Operation::Readdirplus);
        counts.entries(7);
        counts.begin();
        counts.begin();
        counts.end();
        counts.begin();
        let report = counts.report(3);
        assert_eq!((report.count(Operation::Lookup), report.count(Operation::Getattr)), (2, 0));
        assert_eq!((report.entries, report.waiting_max, report.in_flight_max), (7, 2, 3));
        let said = report.to_string();
        assert!(said.starts_with("lookup 2, readdirplus 1, 7 entries") && !said.contains("getattr"), "{said}");
        let json = report.to_json();
        assert!(json.contains("\"lookup\": 2") && json.contains("\"getattr\": 0"), "{json}");
        assert!(json.ends_with("\"entries\": 7, \"waiting_max\": 2, \"in_flight_max\": 3}"), "{json}");
    }
}
