//! Models of [`Counted`]. Each has been seen to fail on the bugs that its comment names.

use super::*;
use crate::reclaim::model;

struct Number(loom::cell::UnsafeCell<u32>);
// SAFETY: written only before it is shared.
unsafe impl Sync for Number {}
impl Object for Number {}

fn number(n: u32) -> Counted<Number> {
    Counted::new(Number(loom::cell::UnsafeCell::new(n)))
}

fn value(n: &Number) -> u32 {
    // SAFETY: no thread writes after it is shared. The model checks this.
    n.0.with(|p| unsafe { *p })
}

/// A reader under a guard races with a swap that puts the last reference. Seen to fail: `put` that
/// retires before the pointer has left the place (drop before swap); `load` Relaxed; `swap` or
/// `compare_exchange` without release.
#[test]
fn load_races_with_swap() {
    load_races_with(|place| drop(place.swap(Some(number(2)))));
    load_races_with(|place| {
        let guard = crate::pin();
        drop(place.compare_exchange(place.load(&guard), Some(number(2))));
    });
}

fn load_races_with(write: fn(&AtomicCounted<Number>)) {
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

/// Two threads swap. Each may take out the object of the other, and sees it initialized. Seen to
/// fail: `swap` without acquire.
#[test]
fn swaps_exchange_whole_objects() {
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

/// Half of a pair. Its drop writes to a cell that the thread which frees the memory reads.
struct Half {
    number: Number,
    mark: loom::sync::Arc<Mark>,
}
struct Mark(loom::cell::UnsafeCell<u32>);
// SAFETY: written by the half's drop, and read after it by the thread that frees the pair. The
// model checks this.
unsafe impl Sync for Mark {}
// SAFETY: as above.
unsafe impl Send for Mark {}
impl Object for Half {}
impl Drop for Half {
    fn drop(&mut self) {
        // SAFETY: as for `Mark`.
        self.mark.0.with_mut(|mark| unsafe { *mark += 1 });
    }
}

fn half(n: u32) -> (Half, loom::sync::Arc<Mark>) {
    let mark = loom::sync::Arc::new(Mark(loom::cell::UnsafeCell::new(0)));
    (Half { number: Number(loom::cell::UnsafeCell::new(n)), mark: mark.clone() }, mark)
}

fn marked(mark: &Mark) -> u32 {
    // SAFETY: as for `Mark`.
    mark.0.with(|mark| unsafe { *mark })
}

/// The halves of a pair die on two threads while a guard still reads both. Each is dropped once.
/// Seen to fail: a half whose tag is off by one (the footer is not found); the offsets of the
/// halves swapped.
#[test]
fn objects_of_a_pair_die_on_two_threads() {
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

/// Two threads free the halves at the same time. The memory is freed once, after both. Seen to
/// fail: `alive` decremented Relaxed, or loaded Relaxed before; decremented by a load and a store
/// (freed twice or never); `pair` that counts three alive (never freed), or that does not count the
/// first.
#[test]
fn pair_memory_is_freed_once() {
    loom::model(|| {
        let ((one, one_mark), (two, two_mark)) = (half(1), half(2));
        let ([first, _], second) = Counted::pair(|| two, |_second| one);
        let marks = loom::sync::Arc::new((one_mark, two_mark));
        let free = |half: Counted<Half>, marks: Marks| {
            let half = SendPtr(half.into_raw());
            move || {
                let SendPtr(block) = { half };
                // SAFETY: `into_raw` gave the only reference, and `pair` wrote the tag.
                let last = unsafe { Pair::free(block, (*block).refs.tag()) };
                // The thread that frees the memory comes after both drops.
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
// SAFETY: the model gives each pointer to one thread.
unsafe impl Send for SendPtr {}
