//! Models of [`Departures`]. Each has been seen to fail on the bugs that its comment names.

use super::*;
use crate::facade::{Mutex, lock};
use loom::{sync::Arc, thread};

const KEY: u64 = 7;

/// A key in a cache, and in a store that keeps it only as long as it is in use.
struct World {
    departures: Departures,
    cache: Mutex<Cache>,
    /// Whether the store knows the key.
    known: Mutex<bool>,
}

#[derive(Default)]
struct Cache {
    /// The number of threads that use the cached key. None if it is not cached.
    users: Option<u32>,
    /// The key has left, and the store must still be told.
    is_pending: bool,
}

impl World {
    /// The key is cached, and no thread uses it.
    fn new() -> Arc<Self> {
        Arc::new(Self {
            departures: Departures::new(),
            cache: Mutex::new(Cache { users: Some(0), is_pending: false }),
            known: Mutex::new(true),
        })
    }

    /// Drops the key from the cache if no thread uses it.
    fn evict(&self) {
        let mut cache = lock(&self.cache);
        if cache.users == Some(0) {
            drop(self.departures.leave(KEY));
            *cache = Cache { users: None, is_pending: true };
        }
    }

    /// Tells the store about a key that is not in use.
    fn tell(&self) {
        let _leaving = self.departures.leave(KEY);
        let still = std::mem::take(&mut lock(&self.cache).is_pending);
        if still {
            *lock(&self.known) = false;
        }
    }

    /// Asks the store, and uses the key. Returns whether the answer was valid.
    fn load(&self) -> bool {
        let moment = self.departures.now();
        *lock(&self.known) = true;
        {
            let mut cache = lock(&self.cache);
            cache.users = Some(cache.users.unwrap_or(0) + 1);
            cache.is_pending = false;
        }
        let valid = !self.departures.any_since(KEY, moment);
        if !valid {
            let mut cache = lock(&self.cache);
            cache.users = cache.users.map(|users| users - 1).filter(|users| *users > 0);
            cache.is_pending = cache.users.is_none();
        }
        valid
    }
}

/// Threads load a key while it leaves the cache and the store is told. A thread that uses it has
/// the answer of a store that knows it.
///
/// Seen to fail: a departure that begins after the thread has checked that the key is unused; one
/// that is not counted while it lasts; one that leaves no moment behind; a thread that notes the
/// moment after it has asked; a thread that does not check a key that it finds in the cache.
fn check(loaders: usize) {
    loom::model(move || {
        let world = World::new();
        let loaders: Vec<_> = (0..loaders)
            .map(|_| {
                let world = world.clone();
                thread::spawn(move || world.load())
            })
            .collect();
        world.evict();
        world.tell();
        let used: Vec<bool> = loaders.into_iter().map(|loader| loader.join().expect("ends")).collect();
        assert!(!used.contains(&true) || *lock(&world.known), "the key is used, and the store does not know it");
    });
}

#[test]
fn key_in_use_is_known_to_the_store() {
    check(1);
}

#[test]
fn key_of_another_loader_is_known_to_the_store() {
    check(2);
}
