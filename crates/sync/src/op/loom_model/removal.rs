//! Models of removal: of an object, and of a directory against a create in it.

use super::*;

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
