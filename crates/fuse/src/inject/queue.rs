//! A queue in front of N servers, as arithmetic: from arrivals and service times to the instants at
//! which items are done.
//!
//! The server that is free first takes the item that has waited longest. The service time of an
//! item is known on arrival, so the instant at which it will be done is known on arrival too, and
//! no thread stands for a server. (This is a G/G/N queue: Leonard Kleinrock, "Queueing Systems",
//! 1975.)

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    num::NonZeroUsize,
    time::{Duration, Instant},
};

/// N servers and their queue.
#[derive(Debug)]
pub(crate) struct ServiceQueue {
    /// N. None: as many as there are items.
    servers: Option<NonZeroUsize>,
    /// When each busy server will be free: at most N instants.
    busy_until: BinaryHeap<Reverse<Instant>>,
    busy_max: usize,
}

impl ServiceQueue {
    pub(crate) fn new(servers: Option<NonZeroUsize>) -> Self {
        Self { servers, busy_until: BinaryHeap::new(), busy_max: 0 }
    }

    /// An item arrives that takes `service`. Returns the instant at which it will be done. Arrivals
    /// must come in order of time.
    pub(crate) fn arrive(&mut self, now: Instant, service: Duration) -> Instant {
        // Items that are done leave.
        while self.busy_until.peek().is_some_and(|&Reverse(until)| until <= now) {
            self.busy_until.pop();
        }
        // If all servers are busy, the one that is free first goes on with this item at once.
        let all_busy = self.servers.is_some_and(|servers| self.busy_until.len() >= servers.get());
        let next = if all_busy { self.busy_until.pop() } else { None };
        let start = next.map_or(now, |Reverse(free)| free);
        let done = start + service;
        self.busy_until.push(Reverse(done));
        self.busy_max = self.busy_max.max(self.busy_until.len());
        done
    }

    /// The most items that were being served at one instant.
    pub(crate) fn busy_max(&self) -> usize {
        self.busy_max
    }
}

#[cfg(test)]
mod tests;
