//! Tests of name locks.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn key(dir: u64, hash: u64) -> NameKey {
    NameKey { dir, hash }
}

/// A name in `dir` that has the stripe of `other`, and another hash.
fn collide(locks: &NameLocks, other: NameKey, dir: u64) -> NameKey {
    (0..1_000_000)
        .map(|hash| key(dir, hash))
        .find(|&k| k.hash != other.hash && locks.stripe(k) == locks.stripe(other))
        .expect("some name falls into each stripe")
}

fn free(locks: &NameLocks) -> bool {
    locks.stripes.iter().all(|s| s.mutex.try_lock().is_ok())
}

#[test]
fn stripes_are_rounded_up() {
    assert_eq!(NameLocks::new(0).stripes.len(), 1);
    assert_eq!(NameLocks::new(5).stripes.len(), 8);
    assert_eq!(NameLocks::new(64).stripes.len(), 64);
    assert!((64..=4096).contains(&NameLocks::for_this_machine().stripes.len()));
}

/// The parallel directory operations of 2005 locked the stripe twice here, and deadlocked with
/// themselves.
#[test]
fn two_names_with_one_stripe_lock_it_once() {
    let locks = NameLocks::new(64);
    let a = key(1, 77);
    let b = collide(&locks, a, 2);
    let guard = locks.lock(&[a, b]);
    assert!(matches!(guard._locked, Locked::One(_)));
    assert!(locks.try_lock(&[a]).is_none() && locks.try_lock(&[b]).is_none());
    drop(guard);
    assert!(free(&locks));
}

/// Unlocking follows what was locked: three names in two stripes leave no stripe locked and
/// unlock none twice.
#[test]
fn guard_unlocks_exactly_what_it_locked() {
    let locks = NameLocks::new(64);
    let a = key(1, 77);
    let b = collide(&locks, a, 2);
    let others: Vec<_> = (0..).map(|h| key(3, h)).filter(|&k| locks.stripe(k) != locks.stripe(a)).take(200).collect();
    for other in others {
        let guard = locks.lock(&[b, other, a]);
        let taken = locks.stripes.iter().filter(|s| s.mutex.try_lock().is_err()).count();
        assert_eq!(taken, 2);
        drop(guard);
        assert!(free(&locks));
    }
}

#[test]
fn plans_are_sorted_and_deduplicated() {
    let locks = NameLocks::new(4);
    let mut seed = 1_u64;
    for _ in 0..1000 {
        let names: [NameKey; MAX_NAMES] = std::array::from_fn(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            key(seed >> 60, seed >> 33)
        });
        let (stripes, count) = locks.plan(&names);
        let mut slow: Vec<_> = names.iter().map(|&n| locks.stripe(n)).collect();
        slow.sort_unstable();
        slow.dedup();
        assert_eq!(&stripes[..count], &slow[..]);
    }
}

/// Each number of names, all in stripes of their own or all in one.
#[test]
fn every_number_of_names_is_locked() {
    let locks = NameLocks::new(64);
    let mut apart: Vec<NameKey> = Vec::new();
    for name in (0..).map(|h| key(5, h)) {
        if apart.iter().all(|&other| locks.stripe(other) != locks.stripe(name)) {
            apart.push(name);
        }
        if apart.len() == MAX_NAMES {
            break;
        }
    }
    let together = [apart[0], collide(&locks, apart[0], 1), apart[0]];
    for count in 0..=MAX_NAMES {
        for (names, stripes) in [(&apart[..count], count), (&together[..count], count.min(1))] {
            for waits in [true, false] {
                let guard = if waits { Some(locks.lock(names)) } else { locks.try_lock(names) };
                let taken = locks.stripes.iter().filter(|s| s.mutex.try_lock().is_err()).count();
                assert_eq!(taken, stripes, "{count} names");
                drop(guard.expect("free"));
                assert!(free(&locks));
            }
        }
    }
}

#[test]
fn names_spread_over_the_stripes() {
    let locks = NameLocks::new(64);
    for names in [|i| key(i, 0), |i| key(7, i), |i| key(i << 12, i << 32)] {
        let mut used = [0; 64];
        (0..6400).for_each(|i| used[locks.stripe(names(i))] += 1);
        assert!(used.iter().all(|&n| n < 400), "uneven: {used:?}");
    }
}

#[test]
fn try_lock_takes_all_or_none() {
    let locks = NameLocks::new(64);
    let one = locks.try_lock_one(key(1, 1)).expect("free");
    assert!(locks.try_lock_one(key(1, 1)).is_none() && locks.try_lock(&[key(1, 1)]).is_none());
    drop(one);
    let (a, b) = (key(1, 1), key(1, 2));
    assert_ne!(locks.stripe(a), locks.stripe(b));
    let held = locks.try_lock(&[b]).expect("free");
    assert!(locks.try_lock(&[a, b]).is_none());
    drop(locks.try_lock(&[a]).expect("released by the attempt that failed"));
    drop(held);
    assert!(locks.try_lock(&[]).is_some());
}

#[test]
fn try_lock_may_be_used_under_a_guard() {
    let locks = NameLocks::new(8);
    let _pinned = crate::pin();
    assert!(locks.try_lock(&[key(1, 1)]).is_some());
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "reclamation guard")]
fn lock_under_a_guard_panics() {
    let locks = NameLocks::new(8);
    let _pinned = crate::pin();
    drop(locks.lock(&[key(1, 1)]));
}

#[test]
#[should_panic(expected = "4 names")]
fn too_many_names_panic() {
    drop(NameLocks::new(8).lock(&[key(1, 1); 4]));
}

#[test]
fn panic_unlocks_and_poisons_nothing() {
    let locks = NameLocks::new(8);
    let result = std::thread::scope(|s| {
        s.spawn(|| {
            let _guard = locks.lock(&[key(1, 1), key(1, 2)]);
            panic!("on purpose");
        })
        .join()
    });
    assert!(result.is_err());
    drop(locks.lock(&[key(1, 1), key(1, 2)]));
    assert!(locks.try_lock(&[key(1, 1), key(1, 2)]).is_some());
}

/// A mutex is mostly taken again by the thread that released it. So newcomers leave a lock to
/// the thread that synchronizes.
#[test]
fn newcomers_leave_a_lock_to_synchronize() {
    let locks = NameLocks::new(4);
    let mut names = (0..).map(|hash| key(1, hash));
    let [awaited, other] = [0, 1].map(|stripe| names.find(|&name| locks.stripe(name) == stripe).expect("some name"));
    let synchronizing = facade::lock(&locks.synchronizing);
    let await_it = Awaited::new(&locks.stripes[0]);
    assert!(locks.try_lock(&[awaited]).is_none() && locks.try_lock(&[other, awaited]).is_none());
    assert!(locks.try_lock_one(awaited).is_none());
    drop(locks.lock(&[other]));
    std::thread::scope(|s| {
        let newcomer = s.spawn(|| drop(locks.lock(&[other, awaited])));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!newcomer.is_finished() && free(&locks), "the newcomer waits and holds nothing");
        drop((await_it, synchronizing));
        newcomer.join().expect("no panic");
    });
    assert!(locks.try_lock(&[awaited]).is_some());
}

#[test]
fn pairs_in_all_orders_exclude_each_other() {
    let locks = NameLocks::new(4);
    let counts: [AtomicU64; 4] = Default::default();
    let names: Vec<_> = (0..4).map(|i| key(9, i)).collect();
    std::thread::scope(|s| {
        for t in 0..4_usize {
            let (locks, counts, names) = (&locks, &counts, &names);
            s.spawn(move || {
                for i in 0..5000_usize {
                    let (a, b) = ((i + t) % 4, (i * 7 + t * 3) % 4);
                    let _guard = locks.lock(&[names[a], names[b]]);
                    // A load and a store: an update is lost if two threads are inside.
                    counts[a].store(counts[a].load(Relaxed) + 1, Relaxed);
                    counts[b].store(counts[b].load(Relaxed) + 1, Relaxed);
                }
            });
        }
    });
    assert_eq!(counts.iter().map(|c| c.load(Relaxed)).sum::<u64>(), 4 * 5000 * 2);
}
