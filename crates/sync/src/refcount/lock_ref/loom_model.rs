//! Models of [`LockRef`]. Each has been seen to fail on the bugs its comment names.

use loom::{cell::UnsafeCell, sync::Arc, thread};

use super::*;

/// An object that its users change before they put their reference, and that whoever puts the last one takes apart.
struct Object {
    refs: LockRef,
    /// Each user's own, read by the last one.
    marks: [UnsafeCell<u32>; 2],
}

// SAFETY: `marks[i]` is written by user `i`, and read after the count died: the model checks just that.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    fn new() -> Arc<Self> {
        Arc::new(Self { refs: LockRef::new(1), marks: [UnsafeCell::new(0), UnsafeCell::new(0)] })
    }

    fn mark(&self, user: usize) {
        // SAFETY: only this user, and only before its put.
        self.marks[user].with_mut(|mark| unsafe { *mark += 1 });
    }

    /// The last reference's owner sees what all did.
    fn sum(&self) -> u32 {
        assert!(self.refs.get().is_none(), "a dead count gave out a reference");
        // SAFETY: the count is dead, so every user has put its reference.
        self.marks.iter().map(|mark| mark.with(|mark| unsafe { *mark })).sum()
    }
}

/// Two owners put: just one of them is the last, and it sees what the other did.
/// Seen to fail: `put` Relaxed; `put` as a load and a store, or of one reference whatever it is told; `clone_held` as a load and a
/// store.
#[test]
fn the_last_put_is_one_and_sees_all() {
    loom::model(|| {
        let object = Object::new();
        object.refs.clone_held();
        let other = thread::spawn({
            let object = object.clone();
            move || {
                // More references come and go on the way, and two go at once.
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

/// A reader that found the object gets a reference, or finds it dead; never both that and a last put before it.
/// Seen to fail: `get` without the test for zero; `get` that adds unconditionally and looks afterwards; `put` Relaxed.
#[test]
fn get_against_the_last_put() {
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

/// Two get, and in some executions one says that the other was in the way; alone he never does.
/// Seen to fail: `get` that does not tell of an exchange that failed.
#[test]
fn who_is_in_the_way_is_noted() {
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

/// One who puts his reference, though not the last, and one who wants another, and sees what the first user has done by then.
fn user_and_reader(object: &Arc<Object>) -> (thread::JoinHandle<()>, thread::JoinHandle<Option<u32>>) {
    let user = thread::spawn({
        let object = object.clone();
        move || {
            object.mark(1);
            assert!(!object.refs.put(1), "the cache's is left");
        }
    });
    let object = object.clone();
    let reader = move || {
        object.refs.get()?;
        // SAFETY: what the first user does comes before there is a reference to get: the model checks just that.
        Some(object.marks[0].with(|mark| unsafe { *mark }))
    };
    (user, thread::spawn(reader))
}

/// A cache condemns what it alone refers to, while a user puts his reference and a reader wants one: it is condemned only
/// when the user has gone, whose marks are seen, and the reader has none; and then the reader gets none any more.
/// Seen to fail: `condemn` that looks and then stores; `condemn` with a Relaxed exchange; `get` that does not look at the bit.
#[test]
fn condemn_against_get_and_put() {
    loom::model(|| {
        let object = Object::new();
        object.refs.clone_held();
        let (user, reader) = user_and_reader(&object);
        let condemned = object.refs.condemn(1);
        let seen = condemned.then(|| object.sum());
        let got = reader.join().expect("no panic").is_some();
        user.join().expect("no panic");
        assert!(!(condemned && got), "a reference that the cache did not count");
        assert!(seen.is_none_or(|sum| sum == 1));
        assert_eq!(object.refs.count(), 1 + usize::from(got));
    });
}

/// What was condemned by mistake is given out again, with all that was done to it meanwhile, and no reference is lost or made.
/// Seen to fail: `reprieve` as a load and a store, or Relaxed; `get` without acquire; `condemn` of what is condemned.
#[test]
fn reprieve_against_put_and_get() {
    loom::model(|| {
        let object = Object::new();
        object.refs.clone_held();
        assert!(object.refs.condemn(2) && !object.refs.condemn(2));
        let (user, reader) = user_and_reader(&object);
        object.mark(0);
        object.refs.reprieve();
        let got = reader.join().expect("no panic");
        user.join().expect("no panic");
        assert_eq!(got.unwrap_or(1), 1);
        assert_eq!(object.refs.count(), 1 + usize::from(got.is_some()));
        assert!(object.refs.get().is_some(), "it is given out again");
    });
}

/// A cache that holds a reference, and two who want an object out of it: one lets it go whoever uses it, the other throws it
/// out if nobody does. Who marks the entry puts the cache's reference; who has condemned for nothing takes that back. So what
/// was thrown out was nobody's.
/// Seen to fail: thrown out without a look at the mark; the mark as a load and a store.
#[test]
fn out_of_a_cache_once_and_never_from_under_a_user() {
    loom::model(|| {
        let object = Object::new();
        let leaving = Arc::new(crate::facade::AtomicBool::new(false));
        // The cache's, the user's, and that of the one who throws out.
        object.refs.clone_held();
        object.refs.clone_held();
        let user = thread::spawn({
            let object = object.clone();
            move || {
                object.mark(1);
                object.refs.put(1)
            }
        });
        let leaver = thread::spawn({
            let (object, leaving) = (object.clone(), leaving.clone());
            move || !leaving.swap(true, Ordering::AcqRel) && object.refs.put(1)
        });
        // Two: ours and the cache's.
        let mut thrown_out = object.refs.condemn(2);
        if thrown_out && leaving.swap(true, Ordering::AcqRel) {
            object.refs.reprieve();
            thrown_out = false;
        }
        if thrown_out {
            // SAFETY: the user has put its reference: what is modelled.
            assert_eq!(object.marks[1].with(|mark| unsafe { *mark }), 1);
            assert!(!object.refs.put(1), "ours is left");
        }
        let last = object.refs.put(1);
        let others = [user, leaver].map(|thread| thread.join().expect("no panic"));
        assert_eq!(usize::from(last) + others.into_iter().map(usize::from).sum::<usize>(), 1, "one is the last");
    });
}
