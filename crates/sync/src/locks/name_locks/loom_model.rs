//! Models of [`NameLocks`]. Each has been seen to fail on the bugs that its comment names.

use super::*;
use loom::{cell::UnsafeCell, sync::Arc, thread};

/// Names of the stripes 0, 1 and 2, and a second one of stripe 0.
fn names(locks: &NameLocks) -> [NameKey; 4] {
    let mut all = (0..1000).map(|hash| NameKey { dir: 1, hash });
    [0, 1, 2, 0].map(|stripe| all.find(|&n| locks.stripe(n) == stripe).expect("every stripe has names"))
}

struct World {
    locks: NameLocks,
    cells: [UnsafeCell<u32>; 3],
    /// Written while locks are held: loom switches threads only where accesses conflict, and
    /// otherwise never there.
    pause: loom::sync::atomic::AtomicUsize,
}

fn world() -> Arc<World> {
    let cells = std::array::from_fn(|_| UnsafeCell::new(0));
    Arc::new(World { locks: NameLocks::new(4), cells, pause: loom::sync::atomic::AtomicUsize::new(0) })
}
// SAFETY: the cells are accessed under the lock of their stripe. The model checks this.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

fn change(world: &World, names: &[NameKey]) {
    let _guard = world.locks.lock(names);
    world.pause.fetch_add(1, loom::sync::atomic::Ordering::Relaxed);
    let mut stripes: Vec<_> = names.iter().map(|&n| world.locks.stripe(n)).collect();
    stripes.sort_unstable();
    stripes.dedup();
    for stripe in stripes {
        // SAFETY: the stripe is locked.
        world.cells[stripe].with_mut(|p| unsafe { *p += 1 });
    }
}

/// Operations on overlapping names in opposite orders, two of the names in one stripe. Seen to
/// fail: no sorting (deadlock); no deduplication (deadlock with itself); only the first stripe
/// locked.
#[test]
fn overlapping_names_exclude_each_other_without_deadlock() {
    loom::model(|| {
        let world = world();
        let [a, b, c, a2] = names(&world.locks);
        let one = thread::spawn({
            let world = world.clone();
            move || change(&world, &[b, a, a2])
        });
        let two = thread::spawn({
            let world = world.clone();
            move || change(&world, &[c, b])
        });
        change(&world, &[a2, c, a]);
        one.join().expect("ends");
        two.join().expect("ends");
        // SAFETY: all other threads have ended.
        let sums = world.cells.each_ref().map(|c| c.with(|p| unsafe { *p }));
        assert_eq!(sums, [2, 2, 2]);
    });
}

/// `try_lock` against `lock`: it excludes or is refused, and a refusal leaves nothing locked. Seen
/// to fail: `try_lock` that skips a stripe it does not get.
#[test]
fn try_lock_excludes_or_is_refused() {
    loom::model(|| {
        let world = world();
        let [a, b, ..] = names(&world.locks);
        let other = thread::spawn({
            let world = world.clone();
            move || change(&world, &[b])
        });
        world.pause.fetch_add(1, loom::sync::atomic::Ordering::Relaxed);
        let got = world.locks.try_lock(&[a, b]).map(|_guard| {
            // SAFETY: both stripes are locked.
            world.cells[1].with_mut(|p| unsafe { *p += 1 });
        });
        other.join().expect("ends");
        assert!(world.locks.try_lock(&[a, b]).is_some(), "something stayed locked");
        // SAFETY: the other thread has ended.
        assert_eq!(world.cells[1].with(|p| unsafe { *p }), 1 + u32::from(got.is_some()));
    });
}
