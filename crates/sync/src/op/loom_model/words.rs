//! Models of one and several words: rename, exchange, fill, take, cleaning.

use super::*;

/// A rename from A to B, with which the object's own place changes. A reader reads the place, A, B,
/// A and the place. Seen to fail: `Op::state` Relaxed; `decide` Relaxed; B enlisted after the
/// commit (with `enlist`'s assertion off); the reference to `before` put by `enlist`, too; the
/// outcome's reference put when the word is cleaned.
#[test]
fn rename_is_one_instant() {
    check(|| {
        let (moved, here, there) = (thing(7), thing(1), thing(2));
        let world = Arc::new((OpCell::new(Some(moved.clone())), OpCell::new(None), OpCell::new(Some(here.clone()))));
        let renamer = thread::spawn({
            let world = world.clone();
            move || {
                let (a, b, place) = &*world;
                let op = Operation::new();
                let from = enlist(a, &op, Some(&moved), None);
                let to = enlist(b, &op, None, Some(moved.clone()));
                let at = enlist(place, &op, Some(&here), Some(there));
                assert!(op.commit());
                assert_eq!(from.finish().map(|t| t.number()), Some(7));
                assert!(to.finish().is_none());
                assert_eq!(at.finish().map(|t| t.number()), Some(1));
                let guard = reclaim::pin();
                let ended = op.share(&guard);
                drop(op);
                assert!(ended.get().is_none(), "a reference to the operation was leaked");
            }
        });
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let (a, b, place) = &*world;
                let guard = reclaim::pin();
                let first_place = seen(place, &guard);
                let (in_a, in_b, again_in_a) = (seen(a, &guard), seen(b, &guard), seen(a, &guard));
                let last_place = seen(place, &guard);
                assert!(in_a == 7 || in_b == 7, "not in A and not in B");
                assert!(in_b == 0 || again_in_a == 0, "in A after it was in B");
                assert!(first_place == 1 || in_a == 0, "its place is B, and it is in A");
                assert!(in_b == 0 || last_place == 2, "in B, and its place is A");
            }
        });
        renamer.join().expect("the renamer ends");
        reader.join().expect("the reader ends");
        let guard = reclaim::pin();
        assert_eq!((seen(&world.0, &guard), seen(&world.1, &guard), seen(&world.2, &guard)), (0, 7, 2));
    });
}

/// A word is refused, and another one gets its entry in the operation, while a thread reads a word
/// that was enlisted before. Seen to fail: `withdraw` that frees all entries, or keeps the
/// reference; `enlist` that puts `before` when it refuses, or keeps `after`; `enlist` by a store.
#[test]
fn refused_word_frees_its_entry() {
    check(|| {
        let (moved, other) = (thing(1), thing(2));
        let [a, b] = [&moved, &other].map(|thing| OpCell::new(Some(thing.clone())));
        let world = Arc::new((a, b, OpCell::new(None)));
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let (a, b, c) = &*world;
                let guard = reclaim::pin();
                let (in_a, in_b, in_c, again_in_a) =
                    (seen(a, &guard), seen(b, &guard), seen(c, &guard), seen(a, &guard));
                assert_eq!(in_b, 2, "refused, and changed");
                assert!([(1, 0), (1, 1), (0, 1)].contains(&(in_a, in_c)), "{in_a} in A, then {in_c} in C");
                assert!(again_in_a == u32::from(in_c == 0) || (in_c, again_in_a) == (0, 0), "in C, and still in A");
            }
        });
        let writer = thread::spawn({
            let world = world.clone();
            move || {
                let (a, b, c) = &*world;
                let op = Operation::new();
                let from = enlist(a, &op, Some(&moved), None);
                let back = b.enlist(&op, Some(moved.as_shared()), Some(moved.clone())).err();
                assert!(back.flatten().is_some_and(|back| back.ptr_eq(&moved)), "B holds another");
                let to = enlist(c, &op, None, Some(moved.clone()));
                assert!(op.commit());
                assert!(from.finish().is_some() && to.finish().is_none());
                let guard = reclaim::pin();
                let ended = op.share(&guard);
                drop(op);
                assert!(ended.get().is_none(), "a reference to the operation was leaked");
            }
        });
        writer.join().expect("the writer ends");
        reader.join().expect("the reader ends");
        let ((a, b, c), guard) = (&*world, reclaim::pin());
        assert_eq!((seen(a, &guard), seen(b, &guard), seen(c, &guard)), (0, 2, 1));
    });
}

/// EXCHANGE of A and B. A reader reads A, B, A, B, and sees the old values first and then only the
/// new ones. Seen to fail: `Op::state` Relaxed; `finish` that cleans an undecided cell as if
/// committed; the reference of the value that left never put.
#[test]
fn exchange_is_never_half_done() {
    check(|| {
        let (one, two) = (thing(1), thing(2));
        let world = Arc::new((OpCell::new(Some(one.clone())), OpCell::new(Some(two.clone()))));
        let exchanger = thread::spawn({
            let world = world.clone();
            move || {
                let (a, b) = &*world;
                let op = Operation::new();
                let in_a = enlist(a, &op, Some(&one), Some(two.clone()));
                let in_b = enlist(b, &op, Some(&two), Some(one.clone()));
                // Not yet: the operation is undecided.
                assert!(a.finish().is_none());
                assert!(op.commit());
                drop(in_b);
                drop(in_a);
            }
        });
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let (a, b) = &*world;
                let guard = reclaim::pin();
                let done = [seen(a, &guard) == 2, seen(b, &guard) == 1, seen(a, &guard) == 2, seen(b, &guard) == 1];
                assert!(done.is_sorted(), "half done: {done:?}");
            }
        });
        exchanger.join().expect("the exchanger ends");
        reader.join().expect("the reader ends");
        let guard = reclaim::pin();
        assert_eq!((seen(&world.0, &guard), seen(&world.1, &guard)), (2, 1));
    });
}

/// A new cell is filled while a thread reads it. Then one thread replaces its value, and another
/// takes it out. Seen to fail: `fill` Relaxed; `swap` Relaxed, or as a load and a store.
#[test]
fn fill_replace_and_take_of_one_word() {
    check(|| {
        let cell = Arc::new(OpCell::new(None));
        let reader = thread::spawn({
            let cell = cell.clone();
            move || seen(&cell, &reclaim::pin())
        });
        cell.fill(thing(1));
        assert_eq!(seen(&cell, &reclaim::pin()), 1);
        let taker = thread::spawn({
            let cell = cell.clone();
            move || cell.take().map_or(0, |thing| thing.number())
        });
        let replaced = cell.replace(Some(thing(2))).map_or(0, |thing| thing.number());
        let taken = taker.join().expect("the taker ends");
        assert!([(1, 2), (0, 1)].contains(&(replaced, taken)), "{replaced} and {taken} have left it");
        assert!(reader.join().expect("the reader ends") <= 2);
        assert_eq!(seen(&cell, &reclaim::pin()), if taken == 2 { 0 } else { 2 });
    });
}

/// A creation is retracted while a remover scans. Either the remover finds nothing, or all threads
/// find the value. Seen to fail: `publish` or `retract` by a load and a store; `occupied` true for
/// a value that was retracted meanwhile.
#[test]
fn retract_races_with_a_scan() {
    check(|| {
        let table = Arc::new(Table::new(Some(Counted::new(Slot(OpCell::new_pending(thing(7)))))));
        let creator = thread::spawn({
            let table = table.clone();
            move || find(&table, &reclaim::pin()).and_then(OpCell::retract).is_some()
        });
        let occupied = scan(&table, &reclaim::pin());
        let retracted = creator.join().expect("the creator ends");
        assert!(!(occupied && retracted), "it was seen, and then retracted");
        assert_eq!(seen_in(&table, &reclaim::pin()), if retracted { 0 } else { 7 });
    });
}

/// A directory is removed, or is found not to be empty, while its tree is taken apart: its entry is
/// taken from under the operation, which continues without it. Seen to fail: `take` by a load and a
/// store; its reference to the op put before the op's state is read; `after` taken while the op is
/// undecided; the value that is not taken leaked; `enlist` or `finish` by a store; an operation
/// that puts all references it was made with.
#[test]
fn take_races_with_a_removal() {
    /// The value that has left the entry, if the directory was removed.
    fn remove(slot: &OpCell<Thing>, dir: &Counted<Thing>, life: &Life, empty: bool) -> Option<Option<Counted<Thing>>> {
        let op = Operation::new();
        let removal = life.begin_removal(&op).expect("no other thread removes it");
        let name = slot.enlist(&op, Some(dir.as_shared()), None).ok()?;
        if !empty {
            return None;
        }
        assert!(op.commit() && removal.finish());
        Some(name.finish())
    }
    for empty in [true, false] {
        check(move || {
            let dir = thing(1);
            let world = Arc::new((OpCell::new(Some(dir.clone())), Life::new()));
            let taker = thread::spawn({
                let world = world.clone();
                move || world.0.take().is_some_and(|thing| thing.number() == 1)
            });
            let reader = thread::spawn({
                let world = world.clone();
                move || {
                    let guard = reclaim::pin();
                    let before = seen(&world.0, &guard);
                    let dead = matches!(world.1.state(&guard), LifeState::Removed);
                    let after = seen(&world.0, &guard);
                    assert!(after == 0 || before == 1 && !dead, "visible after it was gone or dead");
                }
            });
            let remover = thread::spawn({
                let world = world.clone();
                move || remove(&world.0, &dir, &world.1, empty)
            });
            let removed = remover.join().expect("the remover ends");
            reader.join().expect("the reader ends");
            let taken = taker.join().expect("the taker ends");
            match &removed {
                None => assert!(taken, "it left, and no thread got it"),
                Some(left) => assert!(!taken || left.is_none(), "it left twice"),
            }
            let guard = reclaim::pin();
            assert_eq!(seen(&world.0, &guard), 0);
            assert_eq!(matches!(world.1.state(&guard), LifeState::Removed), removed.is_some());
        });
    }
}

/// Two threads clean one cell. One of them gets the value that leaves it. Seen to fail: `finish` by
/// a load and a store; its load Relaxed.
#[test]
fn two_threads_clean_one_cell() {
    check(|| {
        let one = thing(1);
        let cell = Arc::new(OpCell::new(Some(one.clone())));
        let other = thread::spawn({
            let cell = cell.clone();
            move || cell.finish().is_some_and(|left| left.number() == 1)
        });
        let op = Operation::new();
        let enlisted = enlist(&cell, &op, Some(&one), Some(thing(2)));
        op.commit();
        let mine = enlisted.finish().is_some();
        assert!(mine != other.join().expect("the other ends"));
        assert_eq!(seen(&cell, &reclaim::pin()), 2);
    });
}
