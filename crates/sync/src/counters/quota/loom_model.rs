//! Models of [`Quota`]. Each has been seen to fail on the bugs that its comment names.

use super::*;
use loom::{sync::Arc, thread};

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(model);
}

/// A quota of which some is used. The rest is in the inline word and in both stripes.
fn spread(limit: u64, inline: u64, stripes: [u64; 2]) -> Arc<Quota> {
    let quota = Quota::new(limit);
    quota.credit.inflate();
    let all: Vec<_> = quota.credit.all().collect();
    for (part, n) in all.into_iter().zip([inline, stripes[0], stripes[1]]) {
        part.0.store(n, Ordering::SeqCst);
    }
    Arc::new(quota)
}

/// Two threads charge up to the limit, wherever the credit is. Exactly the limit is charged. Seen
/// to fail: closing by a load and a store (credit is charged twice); the rest not put back.
#[test]
fn exactly_the_limit_is_charged() {
    for (inline, stripes) in [(0, [2, 1]), (3, [0, 0]), (1, [0, 2])] {
        check(move || {
            let quota = spread(3, inline, stripes);
            let charge = |quota: &Quota| (0..2).filter(|_| quota.charge(1).is_ok()).count();
            let other = thread::spawn({
                let quota = quota.clone();
                move || charge(&quota)
            });
            let charged = charge(&quota) + other.join().expect("ends");
            assert_eq!((charged, quota.used()), (3, 3));
            assert_eq!(quota.charge(1), Err(QuotaFull));
        });
    }
}

/// A thread that holds two units moves credit: it releases one at `to`, then charges one at `from`.
/// At no instant is less free than before.
fn move_credit(quota: &Quota, from: usize, to: usize) {
    let part = |index| quota.credit.all().nth(index).expect("there are three parts");
    part(to).put(1);
    // From a closed stripe it charges nothing, and more remains free.
    let _ = part(from).take(1, &mut false);
}

/// There are always at least two units free, but they move from stripe to stripe. A charge of two
/// is not refused. Seen to fail: stripes not closed; closed ones charged from.
#[test]
fn no_refusal_unless_full() {
    check(|| {
        let quota = spread(4, 0, [0, 2]);
        let other = thread::spawn({
            let quota = quota.clone();
            move || {
                // From a stripe that the first visit has not reached to one that it has passed,
                // then the same for the second visit.
                move_credit(&quota, 2, 1);
                move_credit(&quota, 1, 0);
            }
        });
        assert_eq!(quota.charge(2), Ok(()));
        other.join().expect("ends");
    });
}

/// The same while the quota inflates. Seen to fail: closing by a load and a store; inflation
/// without the mutex.
#[test]
fn no_refusal_during_inflation() {
    check(|| {
        let quota = Arc::new(Quota::new(4));
        assert_eq!(quota.charge(2), Ok(()));
        let other = thread::spawn({
            let quota = quota.clone();
            move || {
                quota.note_contention();
                if quota.credit.is_inflated() {
                    move_credit(&quota, 0, 2);
                    move_credit(&quota, 2, 0);
                }
            }
        });
        assert_eq!(quota.charge(2), Ok(()));
        other.join().expect("ends");
    });
}

/// Two threads release. Nothing is lost, and in some executions they report contention. Seen to
/// fail: `release` by a load and a store, or without the addition after a failed exchange;
/// contention that is not reported.
#[test]
fn concurrent_releases_are_not_lost() {
    let inflated = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let in_any = inflated.clone();
    check(move || {
        let quota = Arc::new(Quota::new(4));
        assert_eq!(quota.charge(3), Ok(()));
        let other = thread::spawn({
            let quota = quota.clone();
            move || quota.release(1)
        });
        quota.release(1);
        other.join().expect("ends");
        assert_eq!(quota.used(), 1);
        in_any.fetch_or(quota.credit.is_inflated(), std::sync::atomic::Ordering::Relaxed);
    });
    assert!(inflated.load(std::sync::atomic::Ordering::Relaxed));
}

/// The used units are known also while a charge is being refused. Seen to fail: `used` without the
/// mutex.
#[test]
fn used_is_exact_while_a_charge_is_refused() {
    check(|| {
        let quota = spread(4, 0, [1, 1]);
        let other = thread::spawn({
            let quota = quota.clone();
            move || quota.charge(3)
        });
        assert_eq!(quota.used(), 2);
        assert_eq!(other.join().expect("ends"), Err(QuotaFull));
    });
}
