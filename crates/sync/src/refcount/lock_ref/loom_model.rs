//! Models of [`LockRef`]. Each has been seen to fail on the bugs that its comment names.

use loom::{cell::UnsafeCell, sync::Arc, thread};

use super::*;

/// An object that its users change before they put their reference. The thread that puts the last
/// one reads all changes.
struct Object {
    refs: LockRef,
    /// One for each user, read by the last one.
    marks: [UnsafeCell<u32>; 2],
}

// SAFETY: `marks[i]` is written by user `i`, and read after the count is dead. The model checks
// this.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    fn new() -> Arc<Self> {
        Arc::new(Self { refs: LockRef::new(1), marks: [UnsafeCell::new(0), UnsafeCell::new(0)] })
    }

    fn mark(&self, user: usize) {
        // SAFETY: only this user writes it, and only before its put.
        self.marks[user].with_mut(|mark| unsafe { *mark += 1 });
    }

    /// The thread that put the last reference sees what all users did.
    fn sum(&self) -> u32 {
        assert!(self.refs.get().is_none(), "a dead count gave out a reference");
        // SAFETY: the count is dead, so every user has put its reference.
        self.marks.iter().map(|mark| mark.with(|mark| unsafe { *mark })).sum()
    }
}

/// Two owners put. Exactly one of them is the last, and it sees what the other did. Seen to fail:
/// `put` Relaxed; `put` as a load and a store, or of one reference whatever the argument is;
/// `clone_held` as a load and a store.
#[test]
fn exactly_one_put_is_last_and_sees_all_changes() {
    loom::model(|| {
        let object = Object::new();
        object.refs.clone_held();
        let other = thread::spawn({
            let object = object.clone();
            move || {
                // More references are added and put meanwhile, two of them at once.
                object.refs.clone_held();
                object.refs.clone_held();
                object.mark(1);
                assert!(!object.refs.put(1), "two more were held");
                if object.refs.put(2) { Some(object.sum()) } else { None }
            }
        });
        object.mark(0);
        let mine = object.refs.put(1).then(|| object.sum());
        let theirs = other.join().expect("no panic");
        assert_eq!((mine.is_some(), theirs.is_some()), (theirs.is_none(), mine.is_none()), "one is the last");
        assert_eq!(mine.or(theirs), Some(2));
    });
}

/// A reader that found the object gets a reference, or finds it dead. It never gets one after the
/// last put. Seen to fail: `get` without the test for zero; `get` that adds unconditionally and
/// tests afterwards; `put` Relaxed.
#[test]
fn get_races_with_the_last_put() {
    loom::model(|| {
        let object = Object::new();
        let reader = thread::spawn({
            let object = object.clone();
            move || {
                if object.refs.get().is_none() {
                    assert_eq!(object.refs.count(), 0);
                    return (false, None);
                }
                object.mark(1);
                (true, object.refs.put(1).then(|| object.sum()))
            }
        });
        object.mark(0);
        let mine = object.refs.put(1).then(|| object.sum());
        let (got, theirs) = reader.join().expect("no panic");
        assert!(mine.is_some() != theirs.is_some(), "one is the last");
        assert_eq!(mine.or(theirs), Some(1 + u32::from(got)));
    });
}

/// Two threads get references. In some executions one of them reports contention. A thread that is
/// alone never does. Seen to fail: `get` that does not report a failed exchange.
#[test]
fn get_reports_contention() {
    let noted = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let in_any = noted.clone();
    loom::model(move || {
        let object = Object::new();
        assert_eq!(object.refs.get(), Some(false));
        let other = thread::spawn({
            let object = object.clone();
            move || object.refs.get()
        });
        if object.refs.get().max(other.join().expect("no panic")) == Some(true) {
            in_any.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert!(noted.load(std::sync::atomic::Ordering::Relaxed));
}

/// A user that puts a reference, which is not the last, and a reader that gets one and sees what
/// the first user has done by then.
fn user_and_reader(object: &Arc<Object>) -> (thread::JoinHandle<()>, thread::JoinHandle<Option<u32>>) {
    let user = thread::spawn({
        let object = object.clone();
        move || {
            object.mark(1);
            assert!(!object.refs.put(1), "the cache holds one");
        }
    });
    let object = object.clone();
    let reader = move || {
        object.refs.get()?;
        // SAFETY: the first user writes before a reference can be got. The model checks this.
        Some(object.marks[0].with(|mark| unsafe { *mark }))
    };
    (user, thread::spawn(reader))
}

/// A cache freezes an object to which only it refers, while a user puts a reference and a reader
/// gets one. The object is frozen only if the user has put its reference, and then its marks are
/// seen. It is not frozen if the reader has a reference, and the reader gets none afterwards. Seen
/// to fail: `freeze` as a load and a store; `freeze` with a Relaxed exchange; `get` that ignores
/// the bit.
#[test]
fn freeze_races_with_get_and_put() {
    loom::model(|| {
        let object = Object::new();
        object.refs.clone_held();
        let (user, reader) = user_and_reader(&object);
        let frozen = object.refs.freeze(1);
        let seen = frozen.then(|| object.sum());
        let got = reader.join().expect("no panic").is_some();
        user.join().expect("no panic");
        assert!(!(frozen && got), "frozen although the reader had a reference");
        assert!(seen.is_none_or(|sum| sum == 1));
        assert_eq!(object.refs.count(), 1 + usize::from(got));
    });
}

/// An object is unfrozen. References to it can be got again, their holders see what was done
/// meanwhile, and no reference is lost or added. Seen to fail: `unfreeze` as a load and a store, or
/// Relaxed; `get` without acquire; `freeze` of a frozen count.
#[test]
fn unfreeze_races_with_put_and_get() {
    loom::model(|| {
        let object = Object::new();
        object.refs.clone_held();
        assert!(object.refs.freeze(2) && !object.refs.freeze(2));
        let (user, reader) = user_and_reader(&object);
        object.mark(0);
        object.refs.unfreeze();
        let got = reader.join().expect("no panic");
        user.join().expect("no panic");
        assert_eq!(got.unwrap_or(1), 1);
        assert_eq!(object.refs.count(), 1 + usize::from(got.is_some()));
        assert!(object.refs.get().is_some(), "references can be got again");
    });
}

/// A cache holds a reference, and two threads remove an object from it. One removes it although it
/// is in use, the other evicts it if it is not in use. The thread that sets the mark of the entry
/// puts the cache's reference. The thread that froze the count and does not get the mark unfreezes
/// it. So an evicted object was in use by no thread. Seen to fail: eviction without a look at the
/// mark; the mark as a load and a store.
#[test]
fn cache_entry_is_removed_once_and_not_evicted_in_use() {
    loom::model(|| {
        let object = Object::new();
        let removed = Arc::new(crate::facade::AtomicBool::new(false));
        // The references of the cache, of the user, and of the thread that evicts.
        object.refs.clone_held();
        object.refs.clone_held();
        let user = thread::spawn({
            let object = object.clone();
            move || {
                object.mark(1);
                object.refs.put(1)
            }
        });
        let remover = thread::spawn({
            let (object, removed) = (object.clone(), removed.clone());
            move || !removed.swap(true, Ordering::AcqRel) && object.refs.put(1)
        });
        // Two: this thread's reference and the cache's.
        let mut evicted = object.refs.freeze(2);
        if evicted && removed.swap(true, Ordering::AcqRel) {
            object.refs.unfreeze();
            evicted = false;
        }
        if evicted {
            // SAFETY: the user has put its reference, which is what the model checks.
            assert_eq!(object.marks[1].with(|mark| unsafe { *mark }), 1);
            assert!(!object.refs.put(1), "this thread holds one");
        }
        let last = object.refs.put(1);
        let others = [user, remover].map(|thread| thread.join().expect("no panic"));
        assert_eq!(usize::from(last) + others.into_iter().map(usize::from).sum::<usize>(), 1, "one is the last");
    });
}
