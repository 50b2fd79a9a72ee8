//! Models of [`IdleRef`]. Each has been seen to fail on the bugs its comment names.

use loom::{cell::UnsafeCell, sync::Arc, thread};

use super::*;

/// What a cache holds: each user writes its own mark while it has a reference; whoever kills it reads all.
struct Cached {
    refs: IdleRef,
    marks: [UnsafeCell<u32>; 2],
}

// SAFETY: `marks[i]` is written by user `i` under a reference, and read by whoever killed: the model checks just that.
unsafe impl Sync for Cached {}
// SAFETY: as above.
unsafe impl Send for Cached {}

impl Cached {
    fn new(references: usize) -> Arc<Self> {
        Arc::new(Self { refs: IdleRef::new(references), marks: [UnsafeCell::new(0), UnsafeCell::new(0)] })
    }

    fn mark(&self, user: usize) {
        // SAFETY: only this user, under a reference.
        self.marks[user].with_mut(|mark| unsafe { *mark += 1 });
    }

    /// Evicts if it rests: what the users have done until then, nothing later.
    fn evict(&self) -> Option<u32> {
        self.refs.kill_idle().then(|| {
            assert!(self.refs.is_dead() && !self.refs.get(), "revived after death");
            // SAFETY: dead: nobody has a reference, nor ever will.
            self.marks.iter().map(|mark| mark.with(|mark| unsafe { *mark })).sum()
        })
    }
}

/// The last user goes and evicts what it left at rest, while a look-up revives it and does the same.
/// Seen to fail: `kill_idle` as a load and a store; `get` without the test for dead; `put` Relaxed; `kill_idle` Relaxed;
/// `put` as a load and a store.
#[test]
fn last_put_against_revival_and_eviction() {
    loom::model(|| {
        let cached = Cached::new(1);
        let reader = thread::spawn({
            let cached = cached.clone();
            move || {
                if !cached.refs.get() {
                    return (false, None);
                }
                cached.mark(1);
                (true, if cached.refs.put() == Rest::Resting { cached.evict() } else { None })
            }
        });
        cached.mark(0);
        let mine = if cached.refs.put() == Rest::Resting { cached.evict() } else { None };
        let (revived, theirs) = reader.join().expect("no panic");
        // Whoever came to rest last evicted, or the other did it before: just one in all.
        assert!(mine.is_some() != theirs.is_some(), "evicted once");
        assert_eq!(mine.or(theirs), Some(1 + u32::from(revived)));
    });
}

/// Who revives sees what the user before did: the object is used one after the other, with a rest between.
/// Seen to fail: `get` Relaxed; `put` Relaxed.
#[test]
fn revival_sees_the_last_user() {
    loom::model(|| {
        let cached = Cached::new(1);
        let reader = thread::spawn({
            let cached = cached.clone();
            move || {
                // Only what rests: otherwise the first user may be writing still.
                if cached.refs.count() == 0 && cached.refs.get() {
                    // SAFETY: it rested, and its only other user is gone.
                    assert_eq!(cached.marks[0].with(|mark| unsafe { *mark }), 1);
                    let _ = cached.refs.put();
                }
            }
        });
        cached.mark(0);
        let _ = cached.refs.put();
        reader.join().expect("no panic");
        assert_eq!(cached.evict(), Some(1));
    });
}
