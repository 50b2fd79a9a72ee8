//! Models of [`SplitTable`]. Each has been seen to fail on the bugs that its comment names.

use loom::{cell::UnsafeCell, sync::Arc, thread};

use super::{index::Index, *};
use crate::{pin, reclaim::model};

/// The name is in a loom cell, so that a read before its publication is found.
struct Entry(UnsafeCell<u64>);
// SAFETY: written only before it is shared. The model checks this.
unsafe impl Sync for Entry {}

impl Entry {
    fn name(&self) -> u64 {
        // SAFETY: as above.
        self.0.with(|p| unsafe { *p })
    }
}

type Table = SplitTable<Entry>;

/// Checks all executions with at most so many preemptions.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    model::check_with(&builder, model);
}

/// Hashes of names below 16 are neighbours in the list, and in bucket 0 if there are buckets.
const LOWER: fn(u64) -> u64 = |name| name << 20;
/// The same at the upper end.
const UPPER: fn(u64) -> u64 = |name| u64::MAX << 30 | name << 20;
/// In the bucket before that, of four.
const MIDDLE: fn(u64) -> u64 = |name| 1 << 63 | name << 20;
/// All in one run.
const SAME: fn(u64) -> u64 = |_| 5 << 20;

fn insert(table: &Table, hash: fn(u64) -> u64, name: u64) -> bool {
    let guard = pin();
    let node = Detached::new(Entry(UnsafeCell::new(name)));
    match table.insert(hash(name), |e| e.name() == name, node, &guard) {
        Ok(_) => true,
        Err(Rejected::Exists { found, node }) => {
            assert_eq!(found.name(), name);
            assert!(node.is_removed() && node.position() == 0, "the node is as before the attempt");
            false
        }
        Err(Rejected::Exhausted { .. }) => panic!("a few elements exhausted a run"),
    }
}

fn has(table: &Table, hash: fn(u64) -> u64, name: u64) -> bool {
    let guard = pin();
    table.get(hash(name), |e| e.name() == name, &guard).is_some_and(|n| n.name() == name)
}

fn remove(table: &Table, hash: fn(u64) -> u64, name: u64) -> bool {
    let guard = pin();
    let found = table.get(hash(name), |e| e.name() == name, &guard);
    found.is_some_and(|n| table.remove(n, &guard).removed)
}

fn names(table: &Table) -> Vec<u64> {
    let guard = pin();
    table.iter_after(0, &guard).map(|n| n.name()).collect()
}

/// Resizes as contention does: without an index, which has models of its own.
fn resize(table: &Table, bits: u32) {
    let guard = pin();
    table.resize(table.load_buckets(&guard), bits, bits, &guard);
}

/// The same with an index.
fn resize_indexed(table: &Table, bits: u32) {
    let guard = pin();
    table.resize(table.load_buckets(&guard), bits, 0, &guard);
}

/// How many slots of the index are not empty.
fn indexed(table: &Table) -> usize {
    let guard = pin();
    table.load_index(&guard).map_or(0, Index::len)
}

/// A look-up in the index only. Finds an element that is not removed.
fn has_indexed(table: &Table, hash: fn(u64) -> u64, name: u64) -> bool {
    let guard = pin();
    let index = table.load_index(&guard);
    let found = index.and_then(|index| table.get_indexed(index, hash(name), |e| e.name() == name, &guard));
    found.is_some_and(|found| found.name() == name)
}

/// A table with these names and this many bits of buckets.
fn table(bits: u32, hash: fn(u64) -> u64, names: &[u64]) -> Arc<Table> {
    let table = Table::new();
    if bits > 0 {
        resize(&table, bits);
    }
    for &name in names {
        assert!(insert(&table, hash, name));
    }
    Arc::new(table)
}

fn spawn<R: 'static>(table: &Arc<Table>, run: impl FnOnce(&Table) -> R + 'static) -> thread::JoinHandle<R> {
    let table = table.clone();
    thread::spawn(move || run(&table))
}

/// Two threads insert one name, and one of them succeeds. Seen to fail: `Place::link` that expects
/// the current successor instead of the one that the walk saw; its compare-and-swap Relaxed;
/// `publish` that returns a node in another state.
#[test]
fn concurrent_inserts_of_one_name() {
    check(3, || {
        let table = table(0, SAME, &[1]);
        let other = spawn(&table, |t| insert(t, SAME, 2));
        let mine = insert(&table, SAME, 2);
        assert!(mine != other.join().expect("it ends"), "inserted twice, or never");
        assert_eq!(names(&table), [1, 2]);
    });
}

/// As above, while the end of the run, behind which both insert, is removed. Seen to fail:
/// `Place::link` that links behind a marked link.
#[test]
fn concurrent_inserts_behind_a_removed_link() {
    check(2, || {
        let table = table(0, SAME, &[1]);
        let other = spawn(&table, |t| insert(t, SAME, 2));
        let remover = spawn(&table, |t| remove(t, SAME, 1));
        let mine = insert(&table, SAME, 2);
        assert!(mine != other.join().expect("it ends"), "inserted twice, or never");
        assert!(remover.join().expect("it ends"));
        assert_eq!(names(&table), [2]);
    });
}

/// An insert behind a link that is being removed is not lost, nor are the removals of two
/// neighbours. Seen to fail: `mark` by a load and a store.
#[test]
fn insert_and_removals_of_neighbours() {
    check(2, || {
        let table = table(0, LOWER, &[1, 2]);
        let first = spawn(&table, |t| remove(t, LOWER, 1));
        let second = spawn(&table, |t| remove(t, LOWER, 2));
        assert!(insert(&table, LOWER, 3));
        assert!(first.join().expect("it ends") && second.join().expect("it ends"));
        assert_eq!(names(&table), [3]);
    });
}

/// One of two removers removes, and the table's reference is put once. Seen to fail: `mark` that
/// succeeds although the mark was set; `remove` that disposes although another thread has marked.
#[test]
fn element_is_removed_once() {
    check(3, || {
        let table = table(0, LOWER, &[1]);
        let node = {
            let guard = pin();
            table.get(LOWER(1), |_| true, &guard).and_then(Shared::get).expect("it is there")
        };
        let other = spawn(&table, |t| remove(t, LOWER, 1));
        let mine = remove(&table, LOWER, 1);
        assert!(mine != other.join().expect("it ends"), "removed twice, or never");
        assert_eq!(Counted::count(&node), 1, "the table's reference");
        assert!(names(&table).is_empty());
    });
}

/// A reader finds an element that stays, behind links that are inserted and removed. Seen to fail:
/// `get` that ends at a marked link; `remove` that disposes of the node when it is marked.
#[test]
fn get_succeeds_while_neighbours_change() {
    check(3, || {
        let table = table(0, LOWER, &[1, 3]);
        let writer = spawn(&table, |t| {
            assert!(remove(t, LOWER, 1));
            assert!(insert(t, LOWER, 2));
            assert!(insert(t, LOWER, 1));
        });
        let guard = pin();
        let one = table.get(LOWER(1), |e| e.name() == 1, &guard).map(|n| n.name());
        assert!(one.is_none_or(|n| n == 1));
        assert!(has(&table, LOWER, 3), "it was there all the time");
        drop(guard);
        writer.join().expect("it ends");
        assert_eq!(names(&table), [1, 2, 3]);
    });
}

/// A scan returns the elements that stay exactly once, in order. Seen to fail: `iter_after` that
/// ends at a marked link.
#[test]
fn scan_returns_stable_elements_once() {
    check(2, || {
        let table = table(0, LOWER, &[1, 2, 4]);
        let remover = spawn(&table, |t| assert!(remove(t, LOWER, 2)));
        let inserter = spawn(&table, |t| assert!(insert(t, LOWER, 3)));
        let met = names(&table);
        assert!(met.is_sorted_by(|a, b| a < b), "{met:?}");
        assert!(met.contains(&1) && met.contains(&4), "{met:?}");
        remover.join().expect("it ends");
        inserter.join().expect("it ends");
        assert_eq!(names(&table), [1, 3, 4]);
    });
}

/// Growth loses no insert. Seen to fail: `link_bucket` that sets LINKED when it claims (walks run
/// in a circle).
#[test]
fn growth_races_with_insert() {
    check(2, || {
        let table = table(0, UPPER, &[1]);
        let writer = spawn(&table, |t| {
            resize(t, 1);
            assert!(insert(t, UPPER, 3));
        });
        assert!(insert(&table, UPPER, 2));
        writer.join().expect("it ends");
        resize(&table, 2);
        assert!((1..=3).all(|name| has(&table, UPPER, name)));
        assert_eq!(names(&table), [1, 2, 3]);
    });
}

/// Readers start only from sentinels that are in the list. Seen to fail: `link_bucket` that sets
/// LINKED when it claims; `is_linked` true for LINKING.
#[test]
fn linking_a_sentinel_races_with_get_and_insert() {
    check(2, || {
        let table = table(0, UPPER, &[1]);
        resize(&table, 1);
        let writer = spawn(&table, |t| assert!(insert(t, UPPER, 2)));
        assert!(has(&table, UPPER, 1), "it was there all the time");
        assert!(insert(&table, UPPER, 3));
        writer.join().expect("it ends");
        assert_eq!(names(&table), [1, 2, 3]);
    });
}

/// Shrinking while an insert links a sentinel of the retired segment. Nothing is lost, and no
/// sentinel of it remains. Seen to fail: `kill_bucket` that does not count the linking thread as a
/// holder, or counts it although it was done; `link_bucket` that does not unlink a sentinel that
/// was killed meanwhile, or does not release its segment; a segment retired by each holder that
/// releases it, or before the other's unlinking is seen; a start from a DEAD sentinel.
#[test]
fn shrink_races_with_linking_a_sentinel() {
    check(3, || {
        let table = table(2, LOWER, &[1]);
        let shrinker = spawn(&table, |t| {
            resize(t, 1);
            assert!(has(t, LOWER, 1) && !has(t, UPPER, 3));
        });
        assert!(insert(&table, UPPER, 2));
        shrinker.join().expect("it ends");
        assert!(has(&table, LOWER, 1) && has(&table, UPPER, 2));
        assert_eq!(names(&table), [1, 2]);
        assert!(remove(&table, UPPER, 2) && !has(&table, UPPER, 2));
    });
}

/// As above for a sentinel that is linked as a neighbour, and the bucket returns. Its new sentinel
/// has the key of the old one, and may be behind it. Seen to fail: `unlink` that starts from a
/// sentinel of the same key (the old one stayed linked, and was freed).
#[test]
fn shrink_and_growth_race_with_linking_a_sentinel() {
    check(2, || {
        let table = table(2, LOWER, &[1]);
        let resizer = spawn(&table, |t| {
            resize(t, 1);
            resize(t, 2);
            assert!(insert(t, UPPER, 3));
        });
        assert!(insert(&table, MIDDLE, 2));
        resizer.join().expect("it ends");
        assert_eq!(names(&table), [1, 2, 3]);
    });
}

/// Shrinking to a bare list under a reader and a writer that start from sentinels which are
/// removed. Seen to fail: `resize` that publishes after it released the segments, or without
/// release, or its table loaded without acquire; `kill_bucket` that does not unlink; `mark` without
/// release; a segment, or a table of segments, that is never freed.
#[test]
fn shrink_races_with_insert_and_get() {
    check(3, || {
        let table = table(1, UPPER, &[1]);
        let shrinker = spawn(&table, |t| resize(t, 0));
        assert!(has(&table, UPPER, 1), "it was there all the time");
        assert!(insert(&table, UPPER, 2));
        shrinker.join().expect("it ends");
        assert_eq!(names(&table), [1, 2]);
        assert!(remove(&table, UPPER, 1));
        assert_eq!(names(&table), [2]);
        resize(&table, 1);
        assert!(insert(&table, UPPER, 3) && has(&table, UPPER, 2));
    });
}

/// An element is removed while it is added to the index, and a third thread looks it up in the
/// index. No reclaimed memory is read, and the index keeps nothing of the element. Seen to fail:
/// `add` without a fence, or without a check of the mark, or that makes the slot present at once;
/// `remove` without a fence, or that erases after it disposed, or before it marked; `erase` that
/// leaves a pending slot; a slot followed without acquire.
#[test]
fn index_add_races_with_remove_and_find() {
    check(3, || {
        let table = table(0, LOWER, &[]);
        resize_indexed(&table, 1);
        let inserter = spawn(&table, |t| assert!(insert(t, LOWER, 1)));
        let remover = spawn(&table, |t| remove(t, LOWER, 1));
        let _ = has_indexed(&table, LOWER, 1);
        inserter.join().expect("it ends");
        let removed = remover.join().expect("it ends");
        assert_eq!(has_indexed(&table, LOWER, 1), !removed);
        assert_eq!(indexed(&table), usize::from(!removed));
    });
}

/// Two threads add one element, which is removed meanwhile and looked up after that. Seen to fail:
/// a pending slot emptied by the remover, so that one thread takes the other's slot for its own.
#[test]
fn two_index_adds_race_with_remove() {
    check(4, || {
        let table = table(0, LOWER, &[1]);
        resize_indexed(&table, 1);
        let note = |t: &Table| {
            let guard = pin();
            let Some(element) = t.iter_after(0, &guard).next() else { return };
            let (key, index) = (element.position() << 1 | 1, t.load_index(&guard));
            // SAFETY: found in the list under the guard, under which the buckets were loaded.
            unsafe { index.expect("an index").add(key, raw::link_of(element), &guard) };
        };
        let other = spawn(&table, note);
        let remover = spawn(&table, |t| {
            assert!(remove(t, LOWER, 1));
            assert!(!has_indexed(t, LOWER, 1));
        });
        note(&table);
        other.join().expect("it ends");
        remover.join().expect("it ends");
        assert!(!has_indexed(&table, LOWER, 1));
        assert_eq!(indexed(&table), 0);
    });
}

/// Buckets are replaced, and their new index gets an element that is removed meanwhile. No index
/// that can be reached has its address. Seen to fail: `remove` that loads the buckets before it
/// marks; an index filled before its buckets are published.
#[test]
fn index_replacement_races_with_remove() {
    check(3, || {
        let table = table(0, LOWER, &[]);
        resize_indexed(&table, 1);
        assert!(insert(&table, LOWER, 1));
        let resizer = spawn(&table, |t| resize_indexed(t, 2));
        let remover = spawn(&table, |t| assert!(remove(t, LOWER, 1)));
        let _ = has_indexed(&table, LOWER, 1);
        resizer.join().expect("it ends");
        remover.join().expect("it ends");
        assert!(!has_indexed(&table, LOWER, 1));
        assert_eq!(indexed(&table), 0);
    });
}
