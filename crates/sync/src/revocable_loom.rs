//! Model of [`Revocable`]. It has been seen to fail on the bugs its comment names.

use super::*;
use crate::name_locks::NameKey;
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
    /// Makes a name, if that is allowed, unless it is just being forbidden.
    fn make(&self, hash: u64) {
        let _name = self.locks.lock(&[name(hash)]);
        if self.revocable.stands() && self.allowed.load(Ordering::Relaxed) {
            self.made[hash as usize].store(true, Ordering::Relaxed);
        }
    }

    fn made(&self) -> [bool; 2] {
        self.made.each_ref().map(|made| made.load(Ordering::Relaxed))
    }
}

/// Two make names of different stripes while a third forbids it: what there is at the instant
/// at which it is forbidden is all that there will ever be.
/// Seen to fail: no waiting for name locks; one of them left out; waiting before it is said that something is taken back;
/// a revocation that ends without releasing what it has changed, or is looked at without acquiring that.
#[test]
fn nothing_is_made_once_it_is_forbidden() {
    loom::model(|| {
        let world = Arc::new(World {
            locks: NameLocks::new(2),
            revocable: Revocable::new(),
            allowed: AtomicBool::new(true),
            made: [const { false }; 2].map(AtomicBool::new),
        });
        let first = world.locks.lock(&[name(0)]);
        assert!(world.locks.try_lock(&[name(1)]).is_some(), "both names have one lock");
        drop(first);
        let makers = [0, 1].map(|hash| {
            let world = world.clone();
            thread::spawn(move || world.make(hash))
        });
        let then = {
            let _nobody = world.revocable.revoke(&world.locks);
            world.allowed.store(false, Ordering::Relaxed);
            world.made()
        };
        for maker in makers {
            maker.join().expect("ends");
        }
        assert_eq!(world.made(), then);
    });
}
