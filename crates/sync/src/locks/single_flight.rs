//! `SingleFlight`: what many ask at the same time is asked once, and all get that answer.
//!
//! Whoever asks first for a key *leads*: he asks, and everybody who comes for the same key before his answer is there
//! waits for it and shares it, error or not. An answer is shared with those only who came while it was being fetched, and
//! is kept for nobody: whoever comes later asks anew. A leader who panics leaves no answer; one of those who waited leads
//! next. (The idea is old: request collapsing, or *single flight*, as in caching proxies and Go's groupcache, 2013.)
//!
//! State of a flight: `Flying`, then `Landed` with the answer or `Lost`. It leaves the table *before* it lands: who finds
//! it there has come before its answer was given out.
//!
//! Nobody waits here while holding a guard or a lock that a leader may need (asserted).

use crate::tuning::FLIGHT_TABLES;
use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    panic::{RefUnwindSafe, UnwindSafe},
    sync::{Arc, PoisonError},
};

use crate::{
    facade::{self, AtomicUsize, Condvar, Mutex, Ordering},
    locks::{
        lock_order::{self, LockClass},
        lock_stats,
    },
    reclaim::assert_unpinned,
};

enum State<T> {
    Flying,
    Landed(T),
    Lost,
}

struct Flight<T> {
    state: Mutex<State<T>>,
    landed: Condvar,
}

impl<T: Clone> Flight<T> {
    /// Waits for the landing; none if it was lost.
    fn wait(&self) -> Option<T> {
        let mut state = facade::lock(&self.state);
        loop {
            match &*state {
                State::Flying => state = self.landed.wait(state).unwrap_or_else(PoisonError::into_inner),
                State::Landed(answer) => return Some(answer.clone()),
                State::Lost => return None,
            }
        }
    }
}

type Table<K, T> = Mutex<HashMap<K, Arc<Flight<T>>>>;

/// Questions that are being asked, by key.
pub struct SingleFlight<K, T> {
    tables: [Table<K, T>; FLIGHT_TABLES],
    hasher: RandomState,
    waiting: AtomicUsize,
}

// A panic leaves the tables as they should be: see `Leader`.
impl<K, T> UnwindSafe for SingleFlight<K, T> {}
impl<K, T> RefUnwindSafe for SingleFlight<K, T> {}

impl<K, T> std::fmt::Debug for SingleFlight<K, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SingleFlight").finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Clone, T: Clone> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Ends a flight however its leader ends.
struct Leader<'a, K: Hash + Eq, T> {
    table: &'a Table<K, T>,
    key: K,
    flight: Arc<Flight<T>>,
    answer: Option<T>,
}

impl<K: Hash + Eq, T> Drop for Leader<'_, K, T> {
    fn drop(&mut self) {
        let gone = lock_stats::lock_counted(self.table, LockClass::SingleFlight).remove(&self.key);
        debug_assert!(gone.is_some_and(|gone| Arc::ptr_eq(&gone, &self.flight)), "a flight that somebody else ended");
        *facade::lock(&self.flight.state) = self.answer.take().map_or(State::Lost, State::Landed);
        self.flight.landed.notify_all();
    }
}

impl<K: Hash + Eq + Clone, T: Clone> SingleFlight<K, T> {
    /// No question is being asked.
    #[must_use]
    pub fn new() -> Self {
        Self {
            tables: std::array::from_fn(|_| Mutex::new(HashMap::new())),
            hasher: RandomState::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The answer for `key`: that of `ask`, or of whoever is asking for it already. May wait for that.
    pub fn ask(&self, key: &K, mut ask: impl FnMut() -> T) -> T {
        assert_unpinned("a question that somebody else may be asking");
        debug_assert_eq!(lock_order::highest_held(), None, "the leader may need a lock that is held here");
        let table = &self.tables[self.hasher.hash_one(key) as usize % self.tables.len()];
        loop {
            let mut flights = lock_stats::lock_counted(table, LockClass::SingleFlight);
            if let Some(flight) = flights.get(key).cloned() {
                drop(flights);
                // Relaxed: for tests, which look again and again.
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let answer = flight.wait();
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                match answer {
                    Some(answer) => return answer,
                    // The leader has panicked: somebody else must ask.
                    None => continue,
                }
            }
            let flight = Arc::new(Flight { state: Mutex::new(State::Flying), landed: Condvar::new() });
            flights.insert(key.clone(), flight.clone());
            drop(flights);
            let mut leader = Leader { table, key: key.clone(), flight, answer: None };
            let answer = ask();
            leader.answer = Some(answer.clone());
            drop(leader);
            return answer;
        }
    }

    /// How many threads wait for somebody else's answer, about now: for tests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::{
        Barrier,
        atomic::{AtomicU32, Ordering::SeqCst},
    };

    #[test]
    fn who_comes_meanwhile_shares_and_who_comes_later_asks_anew() {
        let (flights, asked) = (SingleFlight::<u32, u32>::new(), AtomicU32::new(0));
        let began = Barrier::new(2);
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| {
                flights.ask(&1, || {
                    began.wait();
                    while flights.waiting() < 3 {
                        std::thread::yield_now();
                    }
                    asked.fetch_add(1, SeqCst)
                })
            });
            began.wait();
            let others: Vec<_> = (0..3).map(|_| scope.spawn(|| flights.ask(&1, || unreachable!("led")))).collect();
            assert_eq!(flights.ask(&2, || 7), 7, "another key waits for nobody");
            assert_eq!(leader.join().expect("ends"), 0);
            others.into_iter().for_each(|other| assert_eq!(other.join().expect("ends"), 0));
        });
        assert_eq!(flights.ask(&1, || asked.fetch_add(1, SeqCst)), 1);
    }

    #[test]
    fn a_leader_who_panics_is_followed_by_another() {
        let (flights, began) = (SingleFlight::<u32, u32>::new(), Barrier::new(2));
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| {
                flights.ask(&1, || {
                    began.wait();
                    while flights.waiting() < 2 {
                        std::thread::yield_now();
                    }
                    std::panic::panic_any("on purpose")
                })
            });
            began.wait();
            let others: Vec<_> = (0..2).map(|_| scope.spawn(|| flights.ask(&1, || 5))).collect();
            assert!(leader.join().is_err());
            others.into_iter().for_each(|other| assert_eq!(other.join().expect("ends"), 5));
        });
        assert!(flights.tables.iter().all(|table| facade::lock(table).is_empty()));
    }
}

#[cfg(all(test, loom))]
mod loom_model;
