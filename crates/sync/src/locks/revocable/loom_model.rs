//! Models of [`Revocable`]. Each has been seen to fail on the bugs that its comment names.

use super::*;
use crate::locks::name_locks::NameKey;
use loom::{sync::Arc, thread};

struct World {
    locks: NameLocks,
    revocable: Revocable,
    allowed: AtomicBool,
    made: [AtomicBool; 2],
}

fn name(hash: u64) -> NameKey {
    NameKey { dir: 1, hash }
}

impl World {
    /// Makes a name, if that is allowed and no revocation is in progress.
    fn make(&self, hash: u64) {
        let _name = self.locks.lock(&[name(hash)]);
        if self.revocable.is_valid() && self.allowed.load(Ordering::Relaxed) {
            self.made[hash as usize].store(true, Ordering::Relaxed);
        }
    }

    fn made(&self) -> [bool; 2] {
        self.made.each_ref().map(|made| made.load(Ordering::Relaxed))
    }
}

fn world(stripes: usize) -> Arc<World> {
    Arc::new(World {
        locks: NameLocks::new(stripes),
        revocable: Revocable::new(),
        allowed: AtomicBool::new(true),
        made: [const { false }; 2].map(AtomicBool::new),
    })
}

/// Forbids it. Returns the names that exist at that instant.
fn forbid(world: &World) -> [bool; 2] {
    let _revocation = world.revocable.revoke(&world.locks);
    world.allowed.store(false, Ordering::Relaxed);
    world.made()
}

/// Two threads make names of different stripes while a third forbids it. The names that exist at
/// the instant of the revocation are all that will ever exist. Seen to fail: no wait for name
/// locks; one of them left out; a wait before the flag is set; a revocation that ends without
/// releasing what it has changed, or is loaded without acquiring that.
#[test]
fn nothing_is_made_after_revocation() {
    loom::model(|| {
        let world = world(2);
        let first = world.locks.lock(&[name(0)]);
        assert!(world.locks.try_lock(&[name(1)]).is_some(), "both names have one lock");
        drop(first);
        let makers = [0, 1].map(|hash| {
            let world = world.clone();
            thread::spawn(move || world.make(hash))
        });
        let then = forbid(&world);
        for maker in makers {
            maker.join().expect("ends");
        }
        assert_eq!(world.made(), then);
    });
}

fn synchronizing(world: &Arc<World>, times: usize) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || (0..times).for_each(|_| world.locks.synchronize()))
}

/// The same while another thread synchronizes twice. The thread that forbids may rely on these
/// synchronizations, if they began after it set the flag. Seen to fail: relying on one that had
/// begun before; a ticket that is loaded, or Relaxed, or not acquired, so that the other threads do
/// not see the flag; synchronizing without the mutex.
#[test]
fn revocation_may_share_later_synchronizations() {
    loom::model(|| {
        let world = world(1);
        let others = synchronizing(&world, 2);
        let maker = thread::spawn({
            let world = world.clone();
            move || world.make(0)
        });
        let then = forbid(&world);
        maker.join().expect("ends");
        others.join().expect("ends");
        assert_eq!(world.made(), then);
    });
}

/// A thread that takes two locks, one that takes one of them, and one that synchronizes do not wait
/// for each other in a circle. Seen to fail: newcomers that wait for the synchronizing thread while
/// they hold a lock.
#[test]
fn synchronize_causes_no_deadlock() {
    // One of the two is the lock that is taken second.
    for one in [0, 1] {
        loom::model(move || {
            let world = world(2);
            let taker = thread::spawn({
                let world = world.clone();
                move || drop(world.locks.lock(&[name(0), name(1)]))
            });
            let synchronizer = synchronizing(&world, 1);
            world.make(one);
            taker.join().expect("ends");
            synchronizer.join().expect("ends");
        });
    }
}
