//! The number of calls at once by their delay: for read-ahead that yields to others.
//!
//! If calls that wait take twice as long as they did at best, others want the same disk or server,
//! and half as many are made. Otherwise there is one more. Lawrence Brakmo and Larry Peterson, "TCP
//! Vegas" (1995), recognize a queue by its delay in the same way.

use std::time::Duration;

use super::{
    throughput::Calls,
    tuning::{DELAY_CALLS, DELAY_CROWDED},
};

/// Finds the number of calls at once that does not make them slower.
#[derive(Debug)]
pub struct ByDelay {
    max: usize,
    limit: usize,
    /// The calls of this round.
    round: Calls,
    /// The lowest mean of a round.
    best: Option<Duration>,
}

impl ByDelay {
    /// For at most `max` calls, from one.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max, limit: 1, round: Calls::default(), best: None }
    }

    /// The number after these calls. Calls that the kernel's caches answered say nothing of the
    /// disk or server.
    pub fn learn(&mut self, calls: Calls) -> usize {
        self.round.add_all(calls);
        let Some(mean) = self.round.mean_wait(DELAY_CALLS) else { return self.limit };
        self.round = Calls::default();
        let best = *self.best.insert(self.best.map_or(mean, |best| best.min(mean)));
        self.limit = if mean > DELAY_CROWDED * best { (self.limit / 2).max(1) } else { self.max.min(self.limit + 1) };
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The number after a round of calls that take `took` each.
    fn round(controller: &mut ByDelay, took: Duration) -> usize {
        (0..DELAY_CALLS).fold(0, |_, _| controller.learn(Calls::of(1, took)))
    }

    #[test]
    fn number_is_halved_when_answers_get_slower() {
        let mut controller = ByDelay::new(10);
        assert_eq!(round(&mut controller, MS), 2);
        (0..20).for_each(|_| _ = round(&mut controller, MS));
        assert_eq!(round(&mut controller, MS), 10, "one more with each good round, up to the limit");
        assert_eq!(round(&mut controller, MS * 3), 5);
        (0..5).for_each(|_| _ = round(&mut controller, MS * 3));
        assert_eq!(round(&mut controller, MS * 3), 1, "and never none");
        assert_eq!(round(&mut controller, MS), 2);
    }

    #[test]
    fn cached_answers_are_not_judged() {
        let mut controller = ByDelay::new(10);
        round(&mut controller, MS / 500);
        (0..20).for_each(|_| _ = round(&mut controller, MS));
        assert_eq!(round(&mut controller, MS / 500), 10);
        assert_eq!(round(&mut controller, MS * 3), 5);
    }
}
