//! Models of [`SeqRwLock`]. Each has been seen to fail on the bugs that its comment names.

use super::*;
use loom::{sync::Arc, thread};

#[derive(Default)]
struct World {
    lock: SeqRwLock,
    a: AtomicU64,
    b: AtomicU64,
}

impl World {
    fn change(&self) {
        let mut lock = self.lock.lock();
        let _write = lock.write();
        let n = self.a.load(Ordering::Relaxed) + 1;
        self.a.store(n, Ordering::Relaxed);
        self.b.store(n, Ordering::Relaxed);
    }
    fn get(&self) -> (u64, u64) {
        (self.a.load(Ordering::Relaxed), self.b.load(Ordering::Relaxed))
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(model);
}

/// An optimistic reader sees all of a write or nothing of it. Seen to fail: no acquire fence in
/// `read_retry`; no release fence in `write`; Relaxed in `try_begin`; Relaxed in the guard's drop.
#[test]
fn optimistic_reader_sees_whole_writes() {
    check(|| {
        let world = Arc::new(World::default());
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let seq = world.lock.read_begin();
                let (a, b) = world.get();
                if !world.lock.read_retry(seq) {
                    assert_eq!(a, b);
                    assert_eq!(a, seq / 2);
                }
            }
        });
        world.change();
        reader.join().expect("ends");
    });
}

/// `read` gives consistent results in either mode, against two writes. Seen to fail: the blocking
/// read without the lock; an optimistic result used without `read_retry`.
#[test]
fn read_is_consistent_in_both_modes() {
    check(|| {
        let world = Arc::new(World::default());
        let writer = thread::spawn({
            let world = world.clone();
            move || {
                world.change();
                world.change();
            }
        });
        let (a, b) = world.lock.read(|_| world.get());
        assert_eq!(a, b);
        writer.join().expect("ends");
        assert_eq!(world.lock.read(|_| world.get()), (2, 2));
    });
}

/// Two writers and a blocking reader exclude each other.
/// Seen to fail: `lock` that does not lock.
#[test]
fn writers_exclude_each_other() {
    check(|| {
        let world = Arc::new(World::default());
        let writer = thread::spawn({
            let world = world.clone();
            move || world.change()
        });
        world.change();
        {
            let _lock = world.lock.lock();
            let (a, b) = world.get();
            assert_eq!(a, b);
        }
        writer.join().expect("ends");
        assert_eq!(world.get(), (2, 2));
    });
}

/// A cache keeps a value that was read after an even sequence, with the sequence. The value is
/// valid while the sequence has not changed, and not after the thread has seen a later value. Seen
/// to fail: a write whose odd number is stored without the release fence; `sequence` Relaxed; an
/// odd number taken for even.
#[test]
fn cached_value_is_valid_while_the_sequence_stays() {
    check(|| {
        let (lock, place) = (Arc::new(SeqRwLock::new()), Arc::new(AtomicU64::new(0)));
        let writer = thread::spawn({
            let (lock, place) = (lock.clone(), place.clone());
            move || {
                let mut lock = lock.lock();
                let _write = lock.write();
                place.store(1, Ordering::Relaxed);
            }
        });
        let sequence = lock.sequence();
        let cached = sequence.is_multiple_of(2).then(|| place.load(Ordering::Acquire));
        let seen = place.load(Ordering::Acquire);
        if let Some(cached) = cached
            && lock.sequence() == sequence
        {
            assert_eq!(cached, seen, "a later value was seen");
        }
        writer.join().expect("it ends");
        if let Some(cached) = cached
            && lock.sequence() == sequence
        {
            assert_eq!(cached, 1, "the cached value is stale");
        }
    });
}
