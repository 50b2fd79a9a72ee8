//! Models of [`Counted`]. Each has been seen to fail on the bug its comment names.

use super::*;
use crate::reclaim::model;

struct Number(loom::cell::UnsafeCell<u32>);
// SAFETY: written before it is shared only.
unsafe impl Sync for Number {}
impl Object for Number {}

fn number(n: u32) -> Counted<Number> {
    Counted::new(Number(loom::cell::UnsafeCell::new(n)))
}

fn value(n: &Number) -> u32 {
    // SAFETY: nobody writes after sharing; the model checks just that.
    n.0.with(|p| unsafe { *p })
}

/// A reader under a guard against a swap that puts the last reference.
/// Seen to fail: `put` retiring before the pointer left the place (drop before swap); `load` Relaxed; `swap` or
/// `compare_exchange` without release.
#[test]
fn load_against_swap() {
    load_against(|place| drop(place.swap(Some(number(2)))));
    load_against(|place| {
        let guard = crate::pin();
        drop(place.compare_exchange(place.load(&guard), Some(number(2))));
    });
}

fn load_against(write: fn(&AtomicCounted<Number>)) {
    model::check(move || {
        let place = loom::sync::Arc::new(AtomicCounted::new(Some(number(1))));
        let writer = loom::thread::spawn({
            let place = place.clone();
            move || write(&place)
        });
        {
            let guard = crate::pin();
            let seen = place.load(&guard).expect("never empty");
            assert!((1..=2).contains(&value(&seen)));
            if let Some(owned) = seen.get() {
                drop(guard);
                assert!((1..=2).contains(&value(&owned)));
            }
        }
        writer.join().expect("the writer ends");
    });
}

/// Two swap: each may take out what the other has put in, and sees it whole.
/// Seen to fail: `swap` without acquire.
#[test]
fn swap_against_swap() {
    model::check(|| {
        let place = loom::sync::Arc::new(AtomicCounted::new(Some(number(1))));
        let swap = |place: &AtomicCounted<Number>, n| place.swap(Some(number(n))).map(|old| value(&old));
        let other = loom::thread::spawn({
            let place = place.clone();
            move || swap(&place, 2)
        });
        let both = (swap(&place, 3), other.join().expect("no panic"));
        assert!([(Some(1), Some(3)), (Some(2), Some(1))].contains(&both), "{both:?}");
    });
}

/// A half of a pair, which on its way out writes to a cell that whoever frees the memory reads.
struct Half {
    number: Number,
    mark: loom::sync::Arc<Mark>,
}
struct Mark(loom::cell::UnsafeCell<u32>);
// SAFETY: written by the half's drop, and read after it by whoever frees the pair: the model checks just that.
unsafe impl Sync for Mark {}
// SAFETY: as above.
unsafe impl Send for Mark {}
impl Object for Half {}
impl Drop for Half {
    fn drop(&mut self) {
        // SAFETY: `Mark`'s.
        self.mark.0.with_mut(|mark| unsafe { *mark += 1 });
    }
}

fn half(n: u32) -> (Half, loom::sync::Arc<Mark>) {
    let mark = loom::sync::Arc::new(Mark(loom::cell::UnsafeCell::new(0)));
    (Half { number: Number(loom::cell::UnsafeCell::new(n)), mark: mark.clone() }, mark)
}

fn marked(mark: &Mark) -> u32 {
    // SAFETY: `Mark`'s.
    mark.0.with(|mark| unsafe { *mark })
}

/// The halves of a pair die on two threads while a guard still reads both; each is dropped once.
/// Seen to fail: a half whose tag is a unit off (the head is not found); the halves' offsets swapped.
#[test]
fn a_pair_dies_on_two_threads() {
    model::check(|| {
        let ((one, one_mark), (two, two_mark)) = (half(1), half(2));
        let ([first, _], second) = Counted::pair(|| two, |_second| one);
        let places = loom::sync::Arc::new((AtomicCounted::new(Some(first)), AtomicCounted::new(Some(second))));
        let other = loom::thread::spawn({
            let places = places.clone();
            move || drop(places.1.swap(None))
        });
        {
            let guard = crate::pin();
            let first = places.0.load(&guard).expect("only we take it out");
            drop(places.0.swap(None));
            assert_eq!(value(&first.to_ref().number), 1, "dead, and readable under the guard");
            if let Some(second) = places.1.load(&guard) {
                assert_eq!(value(&second.to_ref().number), 2);
            }
        }
        other.join().expect("no panic");
        model::end_of_execution();
        assert_eq!((marked(&one_mark), marked(&two_mark)), (1, 1));
    });
}

/// Two threads free the halves at the same time: the memory goes once, after both.
/// Seen to fail: `alive` counted down Relaxed, or looked at Relaxed before; counted down by a load and a store (freed twice or never); `pair` that counts three
/// alive (never freed), or that does not count the first.
#[test]
fn a_pair_is_freed_on_two_threads() {
    loom::model(|| {
        let ((one, one_mark), (two, two_mark)) = (half(1), half(2));
        let ([first, _], second) = Counted::pair(|| two, |_second| one);
        let marks = loom::sync::Arc::new((one_mark, two_mark));
        let free = |half: Counted<Half>, marks: Marks| {
            let half = SendPtr(half.into_raw());
            move || {
                let SendPtr(block) = { half };
                // SAFETY: the only reference was given up by `into_raw`; `pair` wrote the tag.
                let last = unsafe { Pair::free(block, (*block).refs.tag()) };
                // The one who frees the memory comes after both drops.
                last.then(|| (marked(&marks.0), marked(&marks.1)))
            }
        };
        let other = loom::thread::spawn(free(second, marks.clone()));
        let mine = free(first, marks)();
        let theirs = other.join().expect("no panic");
        assert!(mine.is_some() != theirs.is_some(), "freed once");
        assert_eq!(mine.or(theirs), Some((1, 1)));
    });
}

type Marks = loom::sync::Arc<(loom::sync::Arc<Mark>, loom::sync::Arc<Mark>)>;

struct SendPtr(*mut Block<Half>);
// SAFETY: the model hands each pointer to one thread.
unsafe impl Send for SendPtr {}
