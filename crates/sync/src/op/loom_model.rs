//! Models of [`Op`], [`OpCell`] and [`Life`]: real threads over the real types. Each has been seen
//! to fail on the bugs that its comment names. Guards are taken before the protocols begin, since
//! taking one is a fence.

mod removal;
mod words;

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
