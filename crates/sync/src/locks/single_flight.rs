//! `SingleFlight`: request coalescing. Concurrent requests for one key are made once, and all
//! callers get that answer.
//!
//! The first caller for a key *leads*: it makes the request. Callers for the same key that come
//! before the answer is there wait for it and share it, error or not. The answer is shared only
//! with callers that came while the request was running, and is not cached: a later caller makes a
//! new request. A leader that panics leaves no answer, and one of the waiting callers leads next.
//! (The idea is old: request collapsing, or *single call*, as in caching proxies and Go's
//! groupcache, 2013.)
//!
//! A thread that makes many requests at once claims their keys ([`SingleFlight::claim`]). It never
//! waits for a key, and callers that wait for one of its keys make their own request when the claim
//! ends. So the claiming thread puts its answers where they look first.
//!
//! The state of a call is `Pending`, then `Done` with the answer, or `Abandoned`. The call leaves
//! the table *before* its state changes. So a caller that finds it in the table has come before the
//! answer was given out.
//!
//! No thread waits here while it holds a guard, or a lock that a leader may need (asserted).

use crate::tuning::CALL_TABLES;
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
    Pending,
    Done(T),
    Abandoned,
}

struct Call<T> {
    state: Mutex<State<T>>,
    done: Condvar,
}

impl<T: Clone> Call<T> {
    /// Waits for the answer; `None` if the leader panicked.
    fn wait(&self) -> Option<T> {
        let mut state = facade::lock(&self.state);
        loop {
            match &*state {
                State::Pending => state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner),
                State::Done(answer) => return Some(answer.clone()),
                State::Abandoned => return None,
            }
        }
    }
}

type Table<K, T> = Mutex<HashMap<K, Arc<Call<T>>>>;

/// The running calls, by key.
pub struct SingleFlight<K, T> {
    tables: [Table<K, T>; CALL_TABLES],
    hasher: RandomState,
    waiting: AtomicUsize,
}

// A panic leaves the tables consistent: see `Leader`.
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

/// The right to request a key, until it is dropped. Other callers for the key wait meanwhile.
#[must_use = "others may make the request as soon as it is dropped"]
pub struct Claim<'a, K: Hash + Eq, T>(Leader<'a, K, T>);

impl<K: Hash + Eq + std::fmt::Debug, T> std::fmt::Debug for Claim<'_, K, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Claim").field(&self.0.key).finish()
    }
}

/// Ends a call when it is dropped, also when the leader panics.
struct Leader<'a, K: Hash + Eq, T> {
    table: &'a Table<K, T>,
    key: K,
    call: Arc<Call<T>>,
    answer: Option<T>,
}

impl<K: Hash + Eq, T> Drop for Leader<'_, K, T> {
    fn drop(&mut self) {
        let gone = lock_stats::lock_counted(self.table, LockClass::SingleFlight).remove(&self.key);
        debug_assert!(gone.is_some_and(|gone| Arc::ptr_eq(&gone, &self.call)), "another thread ended the call");
        *facade::lock(&self.call.state) = self.answer.take().map_or(State::Abandoned, State::Done);
        self.call.done.notify_all();
    }
}

impl<K: Hash + Eq + Clone, T: Clone> SingleFlight<K, T> {
    /// No call is running.
    #[must_use]
    pub fn new() -> Self {
        Self {
            tables: std::array::from_fn(|_| Mutex::new(HashMap::new())),
            hasher: RandomState::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Returns the answer for `key`: the result of `request`, or of the call that is running for
    /// this key, for which it waits.
    pub fn run(&self, key: &K, mut request: impl FnMut() -> T) -> T {
        assert_unpinned("a request that another thread may be making");
        debug_assert_eq!(lock_order::highest_held(), None, "the leader may need a lock that is held here");
        loop {
            let mut leader = match self.join_or_lead(key) {
                Ok(leader) => leader,
                Err(call) => {
                    // Relaxed: for tests, which poll.
                    self.waiting.fetch_add(1, Ordering::Relaxed);
                    let answer = call.wait();
                    self.waiting.fetch_sub(1, Ordering::Relaxed);
                    match answer {
                        Some(answer) => return answer,
                        // A claim has ended, or the leader has panicked: another caller must lead.
                        None => continue,
                    }
                }
            };
            let answer = request();
            leader.answer = Some(answer.clone());
            drop(leader);
            return answer;
        }
    }

    /// Claims a key. None if a call is running for it. Never waits. The caller must not wait for a
    /// call of another thread before it drops the claim.
    pub fn claim(&self, key: &K) -> Option<Claim<'_, K, T>> {
        self.join_or_lead(key).ok().map(Claim)
    }

    /// The running call for a key, or a new one that this caller must end.
    fn join_or_lead(&self, key: &K) -> std::result::Result<Leader<'_, K, T>, Arc<Call<T>>> {
        let table = &self.tables[self.hasher.hash_one(key) as usize % self.tables.len()];
        let mut calls = lock_stats::lock_counted(table, LockClass::SingleFlight);
        if let Some(call) = calls.get(key) {
            return Err(call.clone());
        }
        let call = Arc::new(Call { state: Mutex::new(State::Pending), done: Condvar::new() });
        calls.insert(key.clone(), call.clone());
        Ok(Leader { table, key: key.clone(), call, answer: None })
    }

    /// How many threads wait for another caller's answer, about now: for tests.
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
    fn concurrent_callers_share_and_later_callers_request_again() {
        let (single_flight, asked) = (SingleFlight::<u32, u32>::new(), AtomicU32::new(0));
        let began = Barrier::new(2);
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| {
                single_flight.run(&1, || {
                    began.wait();
                    while single_flight.waiting() < 3 {
                        std::thread::yield_now();
                    }
                    asked.fetch_add(1, SeqCst)
                })
            });
            began.wait();
            let others: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| single_flight.run(&1, || unreachable!("another thread leads"))))
                .collect();
            assert_eq!(single_flight.run(&2, || 7), 7, "another key does not wait");
            assert_eq!(leader.join().expect("ends"), 0);
            others.into_iter().for_each(|other| assert_eq!(other.join().expect("ends"), 0));
        });
        assert_eq!(single_flight.run(&1, || asked.fetch_add(1, SeqCst)), 1);
    }

    #[test]
    fn claimed_key_is_requested_after_the_claim() {
        let single_flight = SingleFlight::<u32, u32>::new();
        let claim = single_flight.claim(&1).expect("no call is running");
        assert!(single_flight.claim(&1).is_none(), "claimed already");
        assert_eq!(single_flight.run(&2, || 7), 7, "another key does not wait");
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| single_flight.run(&1, || 5));
            while single_flight.waiting() < 1 {
                std::thread::yield_now();
            }
            drop(claim);
            assert_eq!(caller.join().expect("ends"), 5);
        });
        single_flight.run(&1, || {
            assert!(single_flight.claim(&1).is_none(), "a call is running");
            0
        });
        drop(single_flight.claim(&1).expect("no call is running any more"));
    }

    #[test]
    fn waiting_caller_leads_after_a_panic() {
        let (single_flight, began) = (SingleFlight::<u32, u32>::new(), Barrier::new(2));
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| {
                single_flight.run(&1, || {
                    began.wait();
                    while single_flight.waiting() < 2 {
                        std::thread::yield_now();
                    }
                    std::panic::panic_any("on purpose")
                })
            });
            began.wait();
            let others: Vec<_> = (0..2).map(|_| scope.spawn(|| single_flight.run(&1, || 5))).collect();
            assert!(leader.join().is_err());
            others.into_iter().for_each(|other| assert_eq!(other.join().expect("ends"), 5));
        });
        assert!(single_flight.tables.iter().all(|table| facade::lock(table).is_empty()));
    }
}

#[cfg(all(test, loom))]
mod loom_model;
