//! Tests of `Op`, `OpCell` and `Life` on one thread, against slow models, with all references
//! counted; and one short run with real threads.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicIsize, Ordering::SeqCst},
    },
};

use super::*;
use crate::{
    reclaim,
    refcount::counted::{Counted, Shared},
};

/// A numbered object, counted in the tally until its last reference is put.
struct Thing(u32, Arc<AtomicIsize>);
impl Object for Thing {
    fn last_put(&self) {
        self.1.fetch_sub(1, SeqCst);
    }
}

/// How many objects are alive.
#[derive(Default)]
struct Tally(Arc<AtomicIsize>);
impl Tally {
    fn thing(&self, n: u32) -> Counted<Thing> {
        self.0.fetch_add(1, SeqCst);
        Counted::new(Thing(n, self.0.clone()))
    }
    fn live(&self) -> isize {
        self.0.load(SeqCst)
    }
}

fn seen(cell: &OpCell<Thing>) -> u32 {
    cell.load(&reclaim::pin()).map_or(0, |thing| thing.0)
}

fn enlist<'a>(
    cell: &'a OpCell<Thing>,
    op: &'a Operation,
    before: Option<&Counted<Thing>>,
    after: Option<&Counted<Thing>>,
) -> Enlisted<'a, Thing> {
    let Ok(enlisted) = cell.enlist(op, before.map(Counted::as_shared), after.cloned()) else {
        panic!("the cell does not hold `before`")
    };
    enlisted
}

#[test]
fn op_is_decided_once() {
    let committed = Operation::new();
    assert_eq!(committed.state(), OpState::Undecided);
    assert!(committed.commit() && committed.commit() && !committed.abort());
    assert_eq!(committed.state(), OpState::Committed);
    let aborted = Operation::new();
    assert!(aborted.abort() && aborted.abort() && !aborted.commit());
    assert_eq!(aborted.state(), OpState::Aborted);
}

#[test]
fn pending_value_is_published_or_retracted_once() {
    let tally = Tally::default();
    let guard = reclaim::pin();
    let cell = OpCell::new_pending(tally.thing(1));
    assert!(cell.load(&guard).is_none());
    assert!(matches!(cell.peek(&guard), Peek::Pending(thing) if thing.0 == 1));
    assert!(cell.publish(&guard));
    assert!(!cell.publish(&guard));
    assert!(cell.retract().is_none(), "retracted after it was published");
    assert_eq!(cell.replace(None).map(|thing| thing.0), Some(1));
    assert!(!cell.publish(&guard));
    assert_eq!(tally.live(), 0);

    let cell = OpCell::new_pending(tally.thing(3));
    assert_eq!(cell.creation().retract().map(|thing| thing.0), Some(3));
    let cell = OpCell::new_pending(tally.thing(4));
    drop(cell.creation());
    assert!(matches!(cell.peek(&guard), Peek::Empty));
    let cell = OpCell::new_pending(tally.thing(5));
    cell.creation().publish(&guard);
    drop(cell.creation());
    assert_eq!(seen(&cell), 5, "a published value was retracted");
    assert_eq!(tally.live(), 1);
}

#[test]
fn enlist_requires_the_given_value() {
    let tally = Tally::default();
    let (one, two) = (tally.thing(1), tally.thing(2));
    let op = Operation::new();
    let refused = |cell: &OpCell<Thing>, before: Option<&Counted<Thing>>| {
        let back = cell.enlist(&op, before.map(Counted::as_shared), Some(two.clone())).err();
        back.flatten().is_some_and(|back| back.ptr_eq(&two))
    };
    assert!(refused(&OpCell::new(Some(one.clone())), None));
    assert!(refused(&OpCell::new(Some(one.clone())), Some(&two)));
    assert!(refused(&OpCell::new(None), Some(&one)));
    assert!(refused(&OpCell::new_pending(one.clone()), Some(&one)), "a pending value is not visible yet");
    let cell = OpCell::new(Some(one.clone()));
    let other = Operation::new();
    let enlisted = enlist(&cell, &other, Some(&one), None);
    assert!(refused(&cell, Some(&one)), "two operations on one word");
    drop(enlisted);
    assert_eq!((Counted::count(&one), Counted::count(&two)), (2, 2 - 1), "a refusal kept a reference");
    assert_eq!((op.words(), other.words()), (0, 0));
}

#[test]
fn operation_has_four_words_and_refusals_use_none() {
    let tally = Tally::default();
    let (one, op) = (tally.thing(1), Operation::new());
    let cells = [(); 4].map(|()| OpCell::new(Some(one.clone())));
    for cell in &cells {
        assert!(cell.enlist(&op, None, None).is_err());
        std::mem::forget(enlist(cell, &op, Some(&one), None));
    }
    assert_eq!(op.words(), 4);
    let fifth = OpCell::new(None);
    let panicked = catch_unwind(AssertUnwindSafe(|| fifth.enlist(&op, None, Some(one.clone())).is_ok()));
    assert!(panicked.is_err());
    assert_eq!(Counted::count(&one), 5, "a word too many kept a reference");
}

/// Its words are cleaned by the operation, by other threads, or not at all.
#[test]
fn operation_dies_with_its_last_reference() {
    let tally = Tally::default();
    let one = tally.thing(1);
    let ended = |op: Shared<'_, Op>| op.get().is_none();
    for cleaned_by_others in [false, true] {
        let guard = reclaim::pin();
        let (cell, life, op) = (OpCell::new(Some(one.clone())), Life::new(), Operation::new());
        let seen = op.share(&guard);
        let enlisted = enlist(&cell, &op, Some(&one), None);
        let removal = life.begin_removal(&op).expect("alive");
        assert_eq!(op.words(), 2);
        if cleaned_by_others {
            assert!(op.abort());
            assert!(cell.finish().is_none());
            drop(life.begin_removal(&Operation::new()).expect("it was aborted"));
        }
        drop((enlisted, removal));
        assert_eq!(op.words(), 0);
        drop(op);
        assert!(ended(seen), "a reference was leaked");
    }
    let guard = reclaim::pin();
    let (cell, op) = (OpCell::new(Some(one.clone())), Operation::new());
    let seen = op.share(&guard);
    std::mem::forget(enlist(&cell, &op, Some(&one), None));
    drop(op);
    assert!(!ended(seen) && cell.load(&guard).is_some(), "the op was put while a word had a reference");
    drop(cell);
    assert!(ended(seen));
}

/// Another thread has cleaned the cell, and another operation owns it. An operation that comes late
/// to clean leaves it alone.
#[test]
fn operation_cleans_only_its_own_cell() {
    let tally = Tally::default();
    let (one, two) = (tally.thing(1), tally.thing(2));
    let (cell, first, second) = (OpCell::new(Some(one.clone())), Operation::new(), Operation::new());
    let late = enlist(&cell, &first, Some(&one), Some(&two));
    assert!(first.commit());
    assert!(cell.finish().is_some_and(|left| left.ptr_eq(&one)));
    let enlisted = enlist(&cell, &second, Some(&two), None);
    assert!(second.commit());
    assert!(late.finish().is_none());
    assert!(enlisted.finish().is_some_and(|left| left.ptr_eq(&two)));
}

#[test]
fn all_words_change_at_the_commit_and_every_reference_is_put_once() {
    for commit in [true, false] {
        let tally = Tally::default();
        let (moved, victim) = (tally.thing(1), tally.thing(2));
        let (a, b) = (OpCell::new(Some(moved.clone())), OpCell::new(Some(victim.clone())));
        let op = Operation::new();
        let from = enlist(&a, &op, Some(&moved), None);
        let to = enlist(&b, &op, Some(&victim), Some(&moved));
        let born = OpCell::new_enlisted(&op, victim.clone());
        assert_eq!((seen(&a), seen(&b), seen(&born)), (1, 2, 0));
        assert_eq!((Counted::count(&moved), Counted::count(&victim), op.words()), (3, 3, 3));
        assert!(a.finish().is_none() && born.finish().is_none(), "cleaned while undecided");
        assert!(if commit { op.commit() } else { op.abort() });
        let outcome = if commit { (0, 1, 2) } else { (1, 2, 0) };
        assert_eq!((seen(&a), seen(&b), seen(&born)), outcome, "before the cleaning");
        let left = [from.finish(), to.finish(), born.adopt(&op).finish()].map(|left| left.map_or(0, |thing| thing.0));
        assert_eq!(left, if commit { [1, 2, 0] } else { [0, 1, 2] });
        assert_eq!((seen(&a), seen(&b), seen(&born)), outcome, "after the cleaning");
        assert!(a.finish().is_none() && b.finish().is_none() && born.finish().is_none());
        assert_eq!((Counted::count(&moved), Counted::count(&victim), op.words()), (2, 2, 0));
        drop((moved, victim));
        assert_eq!(tally.live(), 2);
        drop((a, b, born));
        assert_eq!(tally.live(), 0);
    }
}

#[test]
fn cell_dropped_in_any_state_puts_its_references() {
    for decide in [None, Some(true), Some(false)] {
        let tally = Tally::default();
        let (one, op) = (tally.thing(1), Operation::new());
        let under = OpCell::new(Some(one.clone()));
        std::mem::forget(enlist(&under, &op, Some(&one), Some(&tally.thing(2))));
        let cells =
            [under, OpCell::new(None), OpCell::new_pending(tally.thing(3)), OpCell::new_enlisted(&op, one.clone())];
        match decide {
            Some(true) => assert!(op.commit()),
            Some(false) => assert!(op.abort()),
            None => {}
        }
        assert_eq!(op.words(), 2);
        drop(cells);
        assert_eq!((Counted::count(&one), op.words()), (1, 0));
        drop(one);
        assert_eq!(tally.live(), 0);
    }
}

#[test]
fn panic_leaves_no_operation_behind() {
    let tally = Tally::default();
    let one = tally.thing(1);
    let (a, b, life) = (OpCell::new(Some(one.clone())), OpCell::new(None), Life::new());
    let op = Operation::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _from = enlist(&a, &op, Some(&one), None);
        let _to = enlist(&b, &op, None, Some(&one));
        let _removal = life.begin_removal(&op).expect("alive");
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err());
    let guard = reclaim::pin();
    assert_eq!(op.state(), OpState::Aborted);
    assert!(matches!(a.peek(&guard), Peek::Value(thing) if thing.0 == 1));
    assert!(matches!(b.peek(&guard), Peek::Empty));
    assert!(matches!(life.state(&guard), LifeState::Alive));
    assert_eq!((Counted::count(&one), op.words()), (2, 0));
}

#[test]
fn life_is_removed_once_and_kept_alive_by_creators() {
    let guard = reclaim::pin();
    let life = Life::new();
    assert!(life.keep_alive(&guard));
    let (first, second, third) = (Operation::new(), Operation::new(), Operation::new());
    let removal = life.begin_removal(&first).expect("alive");
    assert!(matches!(life.state(&guard), LifeState::Removing(op) if op.ptr_eq(first.as_shared())));
    assert_eq!(life.begin_removal(&second).err(), Some(NotRemovable::Busy));
    assert!(life.keep_alive(&guard));
    assert!(!first.commit(), "the creator did not abort it");
    assert!(matches!(life.state(&guard), LifeState::Alive));
    // The next removal replaces the aborted one. When the aborted one is finished after that,
    // nothing happens.
    let over = life.begin_removal(&second).expect("the first is aborted");
    assert!(!removal.finish());
    assert_eq!((first.words(), second.words()), (0, 1));
    drop(over);
    assert_eq!((second.state(), second.words()), (OpState::Aborted, 0));
    let last = life.begin_removal(&third).expect("alive again");
    assert!(third.commit());
    assert!(matches!(life.state(&guard), LifeState::Removed), "dead at the commit");
    assert!(!life.keep_alive(&guard));
    assert_eq!(life.begin_removal(&second).err(), Some(NotRemovable::Removed));
    assert!(last.finish());
    assert!(matches!(life.state(&guard), LifeState::Removed), "removed for ever");
    assert_eq!(life.begin_removal(&second).err(), Some(NotRemovable::Removed));
    assert_eq!((second.words(), third.words()), (0, 0));
    let dropped = Life::new();
    std::mem::forget(dropped.begin_removal(&second));
    drop(dropped);
    assert_eq!(second.words(), 0);
}

#[test]
fn scan_publishes_the_entries_it_reports() {
    let tally = Tally::default();
    let guard = reclaim::pin();
    let (one, op) = (tally.thing(1), Operation::new());
    assert!(!OpCell::<Thing>::new(None).occupied(&guard));
    let cell = OpCell::new_pending(one.clone());
    assert!(cell.occupied(&guard) && seen(&cell) == 1);
    let born = OpCell::new_enlisted(&op, one.clone());
    let leaving = enlist(&cell, &op, Some(&one), None);
    assert!(cell.occupied(&guard));
    assert_eq!(op.state(), OpState::Undecided, "an entry is visible until the commit");
    assert!(born.occupied(&guard) && seen(&born) == 1);
    assert_eq!(op.state(), OpState::Committed, "not empty was said of an invisible entry");
    assert!(!cell.occupied(&guard));
    drop(leaving);
    let aborted = Operation::new();
    assert!(aborted.abort());
    assert!(!OpCell::new_enlisted(&aborted, one.clone()).occupied(&guard));
}

/// A cell in the slow model: numbers for objects; an entry as (before, after), of the only op.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Slow {
    Shows(u32),
    Pending(u32),
    Entry(u32, u32),
}

impl Slow {
    fn shows(self, state: OpState) -> u32 {
        match self {
            Self::Shows(n) => n,
            Self::Pending(_) => 0,
            Self::Entry(before, after) => {
                if state == OpState::Committed {
                    after
                } else {
                    before
                }
            }
        }
    }
    fn finish(&mut self, state: OpState) {
        if state != OpState::Undecided && matches!(self, Self::Entry(..)) {
            *self = Self::Shows(self.shows(state));
        }
    }
}

fn compare(cells: &[OpCell<Thing>], slow: &[Slow], state: OpState, seed: u64) {
    let guard = reclaim::pin();
    let number = |thing: Option<Shared<'_, Thing>>| thing.map_or(0, |thing| thing.0);
    for (cell, slow) in cells.iter().zip(slow) {
        let now = match cell.peek(&guard) {
            Peek::Empty => Slow::Shows(0),
            Peek::Value(thing) => Slow::Shows(thing.0),
            Peek::Pending(thing) => Slow::Pending(thing.0),
            Peek::Op { before, after, .. } => Slow::Entry(number(before), number(after)),
        };
        assert_eq!(now, *slow, "seed {seed}");
        assert_eq!(number(cell.load(&guard)), slow.shows(state), "seed {seed}");
    }
}

/// Random single steps on four cells and a sequence of operations, against the slow model, all
/// references counted.
#[test]
fn random_steps_agree_with_the_slow_model() {
    let tally = Tally::default();
    for seed in 1..=200_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        let mut cells: [OpCell<Thing>; 4] = Default::default();
        let mut slow = [Slow::Shows(0); 4];
        let mut op = Operation::new();
        for step in 1..=100_u32 {
            let at = below(4) as usize;
            let (cell, state, guard) = (&cells[at], op.state(), reclaim::pin());
            match below(8) {
                0 if !matches!(slow[at], Slow::Entry(..)) => {
                    let (Slow::Shows(old) | Slow::Pending(old) | Slow::Entry(old, _)) = slow[at];
                    let left = cell.replace(Some(tally.thing(step)));
                    assert_eq!(left.map_or(0, |thing| thing.0), old, "seed {seed}");
                    slow[at] = Slow::Shows(step);
                }
                1 => {
                    if slow[at] == Slow::Shows(0) {
                        cells[at] = OpCell::new_pending(tally.thing(step));
                        slow[at] = Slow::Pending(step);
                    }
                }
                2 => match slow[at] {
                    Slow::Pending(n) => {
                        assert!(cell.publish(&guard), "seed {seed}");
                        slow[at] = Slow::Shows(n);
                    }
                    _ => assert!(!cell.publish(&guard), "seed {seed}"),
                },
                3 => {
                    let back = cell.retract().map(|thing| thing.0);
                    let pending = if let Slow::Pending(n) = slow[at] { Some(n) } else { None };
                    assert_eq!(back, pending, "seed {seed}");
                    slow[at] = if back.is_some() { Slow::Shows(0) } else { slow[at] };
                }
                4 | 5 if state == OpState::Undecided && op.words() < 4 => {
                    let enlisted = cell.enlist(&op, cell.load(&guard), Some(tally.thing(step)));
                    let fits = matches!(slow[at], Slow::Shows(_));
                    assert_eq!(enlisted.is_ok(), fits, "seed {seed}");
                    if let Ok(enlisted) = enlisted {
                        slow[at] = Slow::Entry(slow[at].shows(state), step);
                        std::mem::forget(enlisted);
                    }
                }
                6 => {
                    cell.finish();
                    slow[at].finish(state);
                }
                _ if state == OpState::Undecided => {
                    assert!(if below(2) == 0 { op.commit() } else { op.abort() }, "seed {seed}");
                }
                _ => {
                    compare(&cells, &slow, state, seed);
                    cells.iter().for_each(|cell| drop(cell.finish()));
                    slow.iter_mut().for_each(|slow| slow.finish(state));
                    op = Operation::new();
                }
            }
            compare(&cells, &slow, op.state(), seed);
        }
        drop(cells);
        assert_eq!(tally.live(), 0, "seed {seed}");
        assert_eq!(op.words(), 0, "seed {seed}");
    }
}

/// A word is taken from under an operation, which continues without it.
#[test]
fn taken_word_leaves_the_operation() {
    for commits in [false, true] {
        let tally = Tally::default();
        let (op, thing) = (Operation::new(), tally.thing(1));
        let (a, b) = (OpCell::new(Some(thing.clone())), OpCell::new(None));
        let (from, to) = (enlist(&a, &op, Some(&thing), None), enlist(&b, &op, None, Some(&thing)));
        assert!(!commits || op.commit());
        assert_eq!((a.take().is_some(), b.take().is_some()), (!commits, commits));
        assert!(from.finish().is_none() && to.finish().is_none());
        assert_eq!((seen(&a), seen(&b)), (0, 0));
        assert_eq!((Counted::count(&thing), op.words()), (1, 0));
    }
}

/// Exchanges on one thread while another reads: under a real allocator and the real reclaimer.
#[test]
fn exchanges_race_with_a_reader() {
    let tally = Tally::default();
    let (one, two) = (tally.thing(1), tally.thing(2));
    let (a, b) = (OpCell::new(Some(one.clone())), OpCell::new(Some(two.clone())));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut in_a, mut in_b) = (&one, &two);
            for round in 0..if cfg!(miri) { 100 } else { 20_000 } {
                let op = Operation::new();
                let first = enlist(&a, &op, Some(in_a), Some(in_b));
                let second = enlist(&b, &op, Some(in_b), Some(in_a));
                if round % 3 != 0 {
                    assert!(op.commit());
                    std::mem::swap(&mut in_a, &mut in_b);
                }
                drop((first, second));
                assert_eq!((seen(&a), seen(&b)), (in_a.0, in_b.0));
            }
            done.store(true, SeqCst);
        });
        while !done.load(SeqCst) {
            let guard = reclaim::pin();
            let (first, b_now, again) = (a.load(&guard), b.load(&guard), a.load(&guard));
            let numbers = [first, b_now, again].map(|thing| thing.expect("never empty").0);
            assert!(numbers.iter().all(|n| (1..=2).contains(n)), "{numbers:?}");
        }
    });
    assert_eq!((Counted::count(&one), Counted::count(&two)), (2, 2));
    drop((one, two, a, b));
    assert_eq!(tally.live(), 0);
}
