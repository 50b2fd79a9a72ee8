//! Models of [`ShardedRef`]. Each has been seen to fail on the bugs its comment names.

use loom::{cell::UnsafeCell, sync::Arc, thread};

use super::*;

/// An object that its users change while they hold a reference, and that whoever puts the last one takes apart.
struct Object {
    refs: ShardedRef,
    /// Each user's own, read by the last one.
    marks: [UnsafeCell<u32>; 3],
}

// SAFETY: `marks[i]` is written by user `i` under a reference, and read after the count died: the model checks just that.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    fn new() -> Arc<Self> {
        Arc::new(Self { refs: ShardedRef::new(), marks: std::array::from_fn(|_| UnsafeCell::new(0)) })
    }

    fn mark(&self, user: usize) {
        // SAFETY: only this user, under a reference.
        self.marks[user].with_mut(|mark| unsafe { *mark += 1 });
    }

    /// Puts a reference; the last one's owner sees what all did.
    fn put(&self) -> Option<u32> {
        self.refs.put().then(|| {
            assert!(!self.refs.get(), "a dead count gave out a reference");
            // SAFETY: the count is dead, so every user has put its reference.
            self.marks.iter().map(|mark| mark.with(|mark| unsafe { *mark })).sum()
        })
    }

    /// A user that found the object: 1 and what it saw if it was the last, 0 if it found it dead.
    fn visit(&self, user: usize, contended: bool) -> (u32, Option<u32>) {
        if !self.refs.get() {
            return (0, None);
        }
        if contended {
            self.refs.note_contention();
        }
        self.mark(user);
        (1, self.put())
    }
}

/// The base reference goes (`collapse`, `put`) while a user comes and goes on a sharded count: one is the last, and it sees
/// what the other did.
/// Seen to fail: stripes that are read and not closed; a stripe read first and closed by a store; `put` on a stripe Relaxed; a fold
/// that acquires nothing; the bias taken before the stripes are folded; a closed stripe that is counted on.
#[test]
fn collapse_against_users() {
    loom::model(|| {
        let object = Object::new();
        object.refs.note_contention();
        assert!(object.refs.is_sharded());
        let user = thread::spawn({
            let object = object.clone();
            move || object.visit(1, false)
        });
        object.mark(0);
        object.refs.collapse();
        let mine = object.put();
        let (visited, theirs) = user.join().expect("no panic");
        assert!(mine.is_some() != theirs.is_some(), "one is the last");
        assert_eq!(mine.or(theirs), Some(1 + visited));
    });
}

/// The count is sharded by a user (and by another at the same time) while the base reference goes.
/// Seen to fail: no bias before the stripes are made; the loser's bias left in the word; `collapse` that does not seal;
/// a collapse that looks for stripes before it seals.
#[test]
fn sharding_against_collapse() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let object = Object::new();
        let users = [1, 2].map(|user| {
            let object = object.clone();
            thread::spawn(move || object.visit(user, true))
        });
        object.mark(0);
        object.refs.collapse();
        let mut last: Vec<u32> = object.put().into_iter().collect();
        let mut visited = 0;
        for user in users {
            let (came, seen) = user.join().expect("no panic");
            visited += came;
            last.extend(seen);
        }
        assert_eq!(last, [1 + visited], "one is the last, and sees all");
    });
}

/// A reference is got on one thread and put on another, so that one stripe ends below zero.
/// Seen to fail: a fold of the first stripe only; a stripe that is folded and left open.
#[test]
fn a_reference_moves() {
    loom::model(|| {
        let object = Object::new();
        object.refs.note_contention();
        object.refs.clone_held();
        let user = thread::spawn({
            let object = object.clone();
            move || {
                object.mark(1);
                object.put()
            }
        });
        object.mark(0);
        object.refs.collapse();
        let mine = object.put();
        let theirs = user.join().expect("no panic");
        assert!(mine.is_some() != theirs.is_some(), "one is the last");
        assert_eq!(mine.or(theirs), Some(2));
    });
}
