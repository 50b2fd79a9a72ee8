//! Models of [`Op`], [`OpCell`] and [`Life`]: real threads over the real types. Each has been seen
//! to fail on the bugs that its comment names. Guards are taken before the protocols begin, since
//! taking one is a fence.

use super::*;
use crate::{
    reclaim::{self, Guard},
    refcount::counted::{AtomicCounted, Counted},
};
use loom::{cell::UnsafeCell, sync::Arc, thread};

std::thread_local! {
    /// How many objects have not had their last reference put. Outside the model, which runs on one
    /// OS thread.
    static LIVE: std::cell::Cell<isize> = const { std::cell::Cell::new(0) };
}

/// A numbered object: a dentry, or the record of a place. The number is in a loom cell, so that a
/// read before its publication is found.
struct Thing(UnsafeCell<u32>);
// SAFETY: written only before it is shared. The model checks this.
unsafe impl Sync for Thing {}
impl Thing {
    fn number(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|n| unsafe { *n })
    }
}
impl Object for Thing {
    fn last_put(&self) {
        LIVE.set(LIVE.get() - 1);
    }
}

fn thing(n: u32) -> Counted<Thing> {
    LIVE.set(LIVE.get() + 1);
    Counted::new(Thing(UnsafeCell::new(n)))
}

fn seen(cell: &OpCell<Thing>, guard: &Guard) -> u32 {
    cell.load(guard).map_or(0, |thing| thing.number())
}

/// Runs a model. At the end of each execution the last reference of every object has been put.
fn check(model: impl Fn() + Sync + Send + 'static) {
    check_with(&loom::model::Builder::new(), model);
}

/// The same with two preemptions, whatever the environment says. With three, a model of three
/// threads of which two do much has more than ten times the executions.
fn check_with_two(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    check_with(&builder, model);
}

/// The same with other bounds.
fn check_with(builder: &loom::model::Builder, model: impl Fn() + Sync + Send + 'static) {
    reclaim::model::check_with(builder, move || {
        LIVE.set(0);
        model();
        reclaim::model::end_of_execution();
        assert_eq!(LIVE.get(), 0, "a reference was leaked");
    });
}

/// Puts a cell under `op`.
fn enlist<'a>(
    cell: &'a OpCell<Thing>,
    op: &'a Operation,
    before: Option<&Counted<Thing>>,
    after: Option<Counted<Thing>>,
) -> Enlisted<'a, Thing> {
    let Ok(enlisted) = cell.enlist(op, before.map(Counted::as_shared), after) else {
        panic!("the cell has one writer")
    };
    enlisted
}

/// The result of a create.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Created {
    Made,
    NoDirectory,
}

/// A directory entry.
struct Slot(OpCell<Thing>);
impl Object for Slot {}

/// A directory's table, with room for one entry.
type Table = AtomicCounted<Slot>;

/// The cell of the directory entry, once it has been inserted.
fn find<'g>(table: &Table, guard: &'g Guard) -> Option<&'g OpCell<Thing>> {
    table.load(guard).map(|slot| &slot.to_ref().0)
}

/// The value that the directory shows.
fn seen_in(table: &Table, guard: &Guard) -> u32 {
    find(table, guard).map_or(0, |cell| seen(cell, guard))
}

/// A create in the directory whose life is `life`: its entry is born pending, and inserted.
fn create(table: &Table, life: &Life, n: u32) -> Created {
    let guard = reclaim::pin();
    let slot = Counted::new(Slot(OpCell::new_pending(thing(n))));
    table.swap(Some(slot.clone()));
    let creation = slot.0.creation();
    if life.keep_alive(&guard) {
        creation.publish(&guard);
        assert_eq!(seen(&slot.0, &guard), n, "made, but not visible");
        return Created::Made;
    }
    match creation.retract() {
        Some(_) => Created::NoDirectory,
        None => Created::Made,
    }
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Removed {
    Gone,
    NotEmpty,
}

/// The scan of a directory. A remover that says "not empty" has seen an entry.
fn scan(table: &Table, guard: &Guard) -> bool {
    let occupied = find(table, guard).is_some_and(|cell| cell.occupied(guard));
    assert!(!occupied || seen_in(table, guard) != 0, "not empty, but no visible entry");
    occupied
}

/// rmdir of the directory that `slot` shows. `scan` looks for its entries. Repeated whenever a
/// creator aborts it. The order is that of the code that ships, also when the directory is not
/// empty: the entry is restored before the life.
fn rmdir(slot: &OpCell<Thing>, dir: &Counted<Thing>, life: &Life, scan: impl Fn(&Guard) -> bool) -> Removed {
    for _ in 0..3 {
        let guard = reclaim::pin();
        let op = Operation::new();
        let removal = life.begin_removal(&op).expect("no other thread removes it");
        let name = enlist(slot, &op, Some(dir), None);
        if scan(&guard) {
            return Removed::NotEmpty;
        }
        if op.commit() {
            assert!(removal.finish());
            assert!(name.finish().is_some());
            return Removed::Gone;
        }
    }
    panic!("one creator aborts at most one removal, and the next removal sees its entry");
}

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

/// Two threads remove the same object, and a third begins to and aborts. One of the two has removed
/// it. If a thread learned that a removal was in progress, then it was. Seen to fail:
/// `begin_removal` over an undecided op; its first load Relaxed, or its exchange when that fails;
/// the exchange as a store; `settle` that takes out any word.
#[test]
fn object_is_removed_once() {
    check(|| {
        let life = Arc::new(Life::new());
        let aborter = thread::spawn({
            let life = life.clone();
            move || drop(life.begin_removal(&Operation::new()))
        });
        let remove = |life: &Life| {
            let op = Operation::new();
            let removal = life.begin_removal(&op)?;
            assert!(op.commit(), "no thread creates");
            assert!(removal.finish());
            Ok(())
        };
        let other = thread::spawn({
            let life = life.clone();
            move || remove(&life)
        });
        let both: [Result<(), NotRemovable>; 2] = [remove(&life), other.join().expect("the other ends")];
        aborter.join().expect("the aborter ends");
        let removed = both.iter().filter(|done| done.is_ok()).count();
        assert!(removed < 2, "removed twice");
        let is_removed = matches!(life.state(&reclaim::pin()), LifeState::Removed);
        assert_eq!(is_removed, removed == 1);
        assert!(is_removed || !both.contains(&Err(NotRemovable::Removed)));
    });
}

/// A removal that was aborted, and is settled at the same time, does not prevent the next one. Seen
/// to fail: `begin_removal` that does not retry when its exchange fails.
#[test]
fn aborted_removal_does_not_block_the_next() {
    check(|| {
        let life = Arc::new(Life::new());
        let aborted = Operation::new();
        let removal = life.begin_removal(&aborted).expect("no other thread removes it");
        assert!(aborted.abort());
        let other = thread::spawn({
            let life = life.clone();
            move || life.begin_removal(&Operation::new()).is_ok()
        });
        assert!(!removal.finish());
        assert!(other.join().expect("the other ends"));
    });
}

/// A directory: its table, its life, and the entry that shows it.
type Dir = (Table, Life, OpCell<Thing>);

/// A directory in which another thread creates an entry, while this thread does something else.
fn creating(dir: &Counted<Thing>) -> (Arc<Dir>, thread::JoinHandle<Created>) {
    let world = Arc::new((Table::new(None), Life::new(), OpCell::new(Some(dir.clone()))));
    let creator = thread::spawn({
        let world = world.clone();
        move || create(&world.0, &world.1, 7)
    });
    (world, creator)
}

/// A create against an rmdir, with a reader. Seen to fail: no fence in `keep_alive`; no fence in
/// `begin_removal`; `occupied` that ignores a pending value; `occupied` true for a pending value
/// that it does not publish; `keep_alive` true for an op that it did not abort; "not empty" said
/// after a failed commit.
#[test]
fn create_races_with_rmdir() {
    check(|| {
        let dir = thing(2);
        let (world, creator) = creating(&dir);
        let remover = thread::spawn({
            let world = world.clone();
            move || {
                let removed = rmdir(&world.2, &dir, &world.1, |guard| scan(&world.0, guard));
                let visible = seen_in(&world.0, &reclaim::pin());
                assert!(removed == Removed::Gone || visible == 7, "not empty, but no visible entry");
                removed
            }
        });
        let reader = thread::spawn({
            let world = world.clone();
            move || seen_in(&world.0, &reclaim::pin())
        });
        let created = creator.join().expect("the creator ends");
        let removed = remover.join().expect("the remover ends");
        let looked = reader.join().expect("the reader ends");
        let guard = reclaim::pin();
        match (created, removed) {
            (Created::Made, Removed::NotEmpty) => {
                assert_eq!((seen_in(&world.0, &guard), seen(&world.2, &guard)), (7, 2));
                assert!(matches!(world.1.state(&guard), LifeState::Alive));
            }
            (Created::NoDirectory, Removed::Gone) => {
                assert_eq!(looked, 0, "seen, but not made");
                assert!(find(&world.0, &guard).is_some_and(|cell| matches!(cell.peek(&guard), Peek::Empty)));
                assert!(matches!(world.1.state(&guard), LifeState::Removed));
                assert_eq!(seen(&world.2, &guard), 0);
            }
            both => panic!("{both:?}"),
        }
    });
}

/// A reader reads the entry and the life of a directory during an rmdir, while another thread tries
/// to create. Seen to fail: no fence in `keep_alive`; no fence in `begin_removal`; a life whose op
/// is committed read as alive; `after` shown for an undecided op; `finish` that leaves `after` in
/// an aborted cell; the entry emptied by an op of its own, or before the commit.
#[test]
fn rmdir_is_one_instant() {
    check_with_two(|| {
        let dir = thing(2);
        let (world, creator) = creating(&dir);
        let remover = thread::spawn({
            let world = world.clone();
            move || rmdir(&world.2, &dir, &world.1, |guard| scan(&world.0, guard))
        });
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let guard = reclaim::pin();
                let gone = seen(&world.2, &guard) == 0;
                let dead = matches!(world.1.state(&guard), LifeState::Removed);
                assert!(dead || !gone, "removed, but still alive");
                assert!(!dead || seen(&world.2, &guard) == 0, "dead, but still visible");
            }
        });
        let created = creator.join().expect("the creator ends");
        let removed = remover.join().expect("the remover ends");
        reader.join().expect("the reader ends");
        assert_eq!(created == Created::Made, removed == Removed::NotEmpty);
    });
}

/// The words of a rename over a directory: D's old entry, T's entry, T's life, and T's table.
type RenameOver = (OpCell<Thing>, OpCell<Thing>, Life, Table);

fn rename_over((a, b, life, inside): &RenameOver, d: &Counted<Thing>, t: &Counted<Thing>) -> Removed {
    for _ in 0..3 {
        let guard = reclaim::pin();
        let op = Operation::new();
        let removal = life.begin_removal(&op).expect("no other thread removes it");
        let from = enlist(a, &op, Some(d), None);
        let over = enlist(b, &op, Some(t), Some(d.clone()));
        if scan(inside, &guard) {
            return Removed::NotEmpty;
        }
        if op.commit() {
            assert!(from.finish().is_some() && over.finish().is_some());
            assert!(removal.finish());
            return Removed::Gone;
        }
    }
    panic!("one creator aborts at most one removal, and the next removal sees its entry");
}

/// A directory D is renamed over the empty directory T, in which another thread creates an entry.
/// Seen to fail: no fence in `keep_alive`; no fence in `begin_removal`; `occupied` that ignores a
/// pending value; a life whose op is committed read as alive; T removed by an op of its own,
/// committed before the rename's.
#[test]
fn rename_over_a_directory_races_with_create_in_it() {
    check_with_two(|| {
        let (d, t) = (thing(1), thing(2));
        let world: Arc<RenameOver> =
            Arc::new((OpCell::new(Some(d.clone())), OpCell::new(Some(t.clone())), Life::new(), Table::new(None)));
        let renamer = thread::spawn({
            let world = world.clone();
            move || rename_over(&world, &d, &t)
        });
        let creator = thread::spawn({
            let world = world.clone();
            move || create(&world.3, &world.2, 7)
        });
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let guard = reclaim::pin();
                let at_b = seen(&world.1, &guard);
                assert_ne!(at_b, 0, "the target was missing");
                let dead = matches!(world.2.state(&guard), LifeState::Removed);
                assert!(at_b == 2 || dead, "replaced, and still alive");
                assert!(!dead || seen(&world.1, &guard) == 1, "dead, but still visible");
                assert!(!dead || seen_in(&world.3, &guard) == 0, "an entry in a dead directory");
            }
        });
        let renamed = renamer.join().expect("the renamer ends");
        let created = creator.join().expect("the creator ends");
        reader.join().expect("the reader ends");
        let guard = reclaim::pin();
        let slots = (seen(&world.0, &guard), seen(&world.1, &guard), seen_in(&world.3, &guard));
        match (renamed, created) {
            (Removed::Gone, Created::NoDirectory) => assert_eq!(slots, (0, 1, 0)),
            (Removed::NotEmpty, Created::Made) => assert_eq!(slots, (1, 2, 7)),
            both => panic!("{both:?}"),
        }
    });
}

/// An operation is dropped before it is decided, as by a panic, while one thread reads and another
/// creates. Seen to fail: `Enlisted` that does not abort when dropped; `finish` that leaves `after`
/// in an aborted cell.
#[test]
fn dropped_operation_restores_all_words() {
    check(|| {
        let moved = thing(1);
        let world: Arc<RenameOver> =
            Arc::new((OpCell::new(Some(moved.clone())), OpCell::new(None), Life::new(), Table::new(None)));
        let aborter = thread::spawn({
            let world = world.clone();
            move || {
                let (a, b, life, _) = &*world;
                let op = Operation::new();
                let _removal = life.begin_removal(&op).expect("no other thread removes it");
                let _from = enlist(a, &op, Some(&moved), None);
                let _to = enlist(b, &op, None, Some(moved.clone()));
            }
        });
        let creator = thread::spawn({
            let world = world.clone();
            move || create(&world.3, &world.2, 7)
        });
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let guard = reclaim::pin();
                assert_eq!((seen(&world.0, &guard), seen(&world.1, &guard)), (1, 0));
            }
        });
        aborter.join().expect("the aborter ends");
        assert_eq!(creator.join().expect("the creator ends"), Created::Made);
        reader.join().expect("the reader ends");
        let guard = reclaim::pin();
        assert!(matches!(world.0.peek(&guard), Peek::Value(t) if t.number() == 1));
        assert!(matches!(world.1.peek(&guard), Peek::Empty));
        assert!(matches!(world.2.state(&guard), LifeState::Alive));
        drop(guard);
        let (op, life) = (Operation::new(), &world.2);
        assert!(life.begin_removal(&op).is_ok(), "an operation was left behind");
    });
}

/// A rename into a directory that is being removed. Its new entry is born under the rename's op,
/// and inserted last. Seen to fail: no fence in `keep_alive`; no fence in `begin_removal`;
/// `occupied` true for a birth that it did not commit; `occupied` false for an undecided birth; the
/// entry inserted before the source was enlisted; the result of `keep_alive` ignored.
#[test]
fn rename_into_a_directory_races_with_its_removal() {
    /// The source's entry, the target directory's life, its table, and its entry.
    type World = (OpCell<Thing>, Life, Table, OpCell<Thing>);
    fn rename_into((a, life, table, _): &World, moved: &Counted<Thing>) -> Created {
        let guard = reclaim::pin();
        let op = Operation::new();
        let slot = Counted::new(Slot(OpCell::new_enlisted(&op, moved.clone())));
        let from = enlist(a, &op, Some(moved), None);
        table.swap(Some(slot.clone()));
        let to = slot.0.adopt(&op);
        let renamed = if life.keep_alive(&guard) { op.commit() } else { !op.abort() };
        assert_eq!(from.finish().is_some(), renamed);
        assert_eq!(to.finish().is_none(), renamed);
        if renamed { Created::Made } else { Created::NoDirectory }
    }
    check_with_two(|| {
        let (moved, dir) = (thing(7), thing(2));
        let [a, slot] = [&moved, &dir].map(|thing| OpCell::new(Some(thing.clone())));
        let world: Arc<World> = Arc::new((a, Life::new(), Table::new(None), slot));
        let renamer = thread::spawn({
            let world = world.clone();
            move || rename_into(&world, &moved)
        });
        let remover = thread::spawn({
            let world = world.clone();
            move || rmdir(&world.3, &dir, &world.1, |guard| scan(&world.2, guard))
        });
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let guard = reclaim::pin();
                let in_a = seen(&world.0, &guard);
                let in_new = seen_in(&world.2, &guard);
                let again_in_a = seen(&world.0, &guard);
                assert!(in_a == 7 || in_new == 7, "gone from the source, and not in the target");
                assert!(in_new == 0 || again_in_a == 0, "in the target, and still in the source");
                in_new
            }
        });
        let renamed = renamer.join().expect("the renamer ends");
        let removed = remover.join().expect("the remover ends");
        let looked = reader.join().expect("the reader ends");
        let guard = reclaim::pin();
        let in_new = seen_in(&world.2, &guard);
        match (renamed, removed) {
            (Created::Made, Removed::NotEmpty) => assert_eq!((seen(&world.0, &guard), in_new), (0, 7)),
            (Created::NoDirectory, Removed::Gone) => {
                assert_eq!((seen(&world.0, &guard), in_new, looked), (7, 0, 0));
            }
            both => panic!("{both:?}"),
        }
    });
}
