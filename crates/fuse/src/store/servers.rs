//! A queue in front of N servers, as arithmetic: who comes when, and is therefore done when.
//!
//! First come, first served, by whichever server is free first; service times are known on arrival. So the instant at
//! which a request will be done is known on arrival too, and no thread has to stand for a server. (The G/G/N queue of
//! the textbooks: Leonard Kleinrock, "Queueing Systems", 1975.)

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    num::NonZeroUsize,
    time::{Duration, Instant},
};

/// N servers and who is with them.
#[derive(Debug)]
pub(crate) struct Servers {
    /// None: as many as are asked for.
    count: Option<NonZeroUsize>,
    /// When each server that is busy will be free: at most as many as there are servers.
    busy_until: BinaryHeap<Reverse<Instant>>,
    busy_max: usize,
}

impl Servers {
    pub(crate) fn new(count: Option<NonZeroUsize>) -> Self {
        Self { count, busy_until: BinaryHeap::new(), busy_max: 0 }
    }

    /// A request arrives that takes `service`; answers when it will be done. Arrivals come in order of time.
    pub(crate) fn arrive(&mut self, now: Instant, service: Duration) -> Instant {
        // Whoever is done has left.
        while self.busy_until.peek().is_some_and(|&Reverse(until)| until <= now) {
            self.busy_until.pop();
        }
        // All are busy: the one that is free first takes it over, and has no gap between the two.
        let all_busy = self.count.is_some_and(|count| self.busy_until.len() >= count.get());
        let next = if all_busy { self.busy_until.pop() } else { None };
        let start = next.map_or(now, |Reverse(free)| free);
        let done = start + service;
        self.busy_until.push(Reverse(done));
        self.busy_max = self.busy_max.max(self.busy_until.len());
        done
    }

    /// The most that were being served at one instant.
    pub(crate) fn busy_max(&self) -> usize {
        self.busy_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn done_ms(servers: &mut Servers, start: Instant, at_ms: u32, service_ms: u32) -> u128 {
        (servers.arrive(start + MS * at_ms, MS * service_ms) - start).as_millis()
    }

    #[test]
    fn one_server_serves_one_after_the_other() {
        let (mut one, start) = (Servers::new(NonZeroUsize::new(1)), Instant::now());
        let done: Vec<_> = (0..4).map(|_| done_ms(&mut one, start, 0, 5)).collect();
        assert_eq!(done, [5, 10, 15, 20]);
        assert_eq!(done_ms(&mut one, start, 18, 5), 25, "waits for the one before");
        assert_eq!(done_ms(&mut one, start, 100, 5), 105, "finds it free");
        assert_eq!(one.busy_max(), 1);
    }

    #[test]
    fn the_first_free_server_takes_the_next() {
        let (mut two, start) = (Servers::new(NonZeroUsize::new(2)), Instant::now());
        let done: Vec<_> = [10, 2, 2, 2].map(|service| done_ms(&mut two, start, 0, service)).into();
        assert_eq!(done, [10, 2, 4, 6]);
        assert_eq!(two.busy_max(), 2);
    }

    #[test]
    fn without_a_bound_nobody_waits() {
        let (mut any, start) = (Servers::new(None), Instant::now());
        assert!((0..100).all(|_| done_ms(&mut any, start, 0, 7) == 7));
        assert_eq!(any.busy_max(), 100);
        assert_eq!(done_ms(&mut any, start, 7, 1), 8);
        assert_eq!(any.busy_max(), 100, "all had left by then");
    }

    #[test]
    fn as_a_slow_and_obvious_queue_says() {
        // Each server's end in a plain list; the same arrivals to both, from a small generator of numbers.
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for count in 1..9 {
            let (mut servers, start) = (Servers::new(NonZeroUsize::new(count)), Instant::now());
            let (mut ends, mut at) = (vec![0_u64; count], 0);
            for _ in 0..500 {
                at += random(4);
                let service = 1 + random(9);
                let first = (0..count).min_by_key(|&server| ends[server]).unwrap();
                ends[first] = ends[first].max(at) + service;
                assert_eq!(u128::from(ends[first]), done_ms(&mut servers, start, at as u32, service as u32));
            }
            assert_eq!(servers.busy_max(), count);
        }
    }
}
