//! Models of [`BiasedRwLock`]. Each has been seen to fail on the bugs that its comment names.

use loom::{cell::UnsafeCell, sync::Arc, thread};

use super::*;

/// loom reports a read at the same time as a write, or without synchronization with the writer.
struct World(BiasedRwLock<UnsafeCell<u64>>);

// SAFETY: no thread reads while another writes. The model checks this, and loom's cell asserts it.
unsafe impl Sync for World {}

impl World {
    fn new(biased: bool) -> Arc<Self> {
        let lock = BiasedRwLock::new(UnsafeCell::new(0));
        if biased {
            lock.bias();
        }
        Arc::new(Self(lock))
    }

    fn read(&self) -> u64 {
        self.0.read().with(|value| {
            // SAFETY: loom checks it.
            unsafe { *value }
        })
    }

    fn write(&self) {
        add_one(&self.0.write());
    }

    /// How often it succeeded.
    fn try_write(&self) -> u64 {
        self.0.try_write().map_or(0, |had| {
            add_one(&had);
            1
        })
    }
}

fn add_one(had: &UnsafeCell<u64>) {
    had.with_mut(|value| {
        // SAFETY: loom checks it.
        unsafe { *value += 1 }
    });
}

/// A reader in a stripe, with a writer and another reader, which may set the bias again. Seen to
/// fail: a writer that does not take the stripes; one that takes them before it revokes the bias; a
/// reader that does not check the bias again.
#[test]
fn readers_race_with_a_writer() {
    loom::model(|| {
        let world = World::new(true);
        let writer = thread::spawn({
            let world = world.clone();
            move || world.write()
        });
        let giver = thread::spawn({
            let world = world.clone();
            move || {
                world.read();
                world.0.bias();
            }
        });
        world.read();
        writer.join().expect("no panic");
        giver.join().expect("no panic");
        assert_eq!(world.read(), 1);
    });
}

/// The bias is set after a change, and a reader that sees the bias sees the change. Seen to fail: a
/// second check that does not acquire; a bias that is set without release.
#[test]
fn bias_publishes_earlier_writes() {
    loom::model(|| {
        let world = World::new(true);
        let writer = thread::spawn({
            let world = world.clone();
            move || {
                world.write();
                world.0.bias();
            }
        });
        world.read();
        writer.join().expect("no panic");
        assert_eq!(world.read(), 1);
    });
}

/// The bias is revoked in vain, since a reader is inside, and set again. A reader that sees it sees
/// what was written before. Seen to fail: a bias that is set again without release.
#[test]
fn restored_bias_publishes_earlier_writes() {
    loom::model(|| {
        let world = World::new(true);
        let reader = thread::spawn({
            let world = world.clone();
            move || world.read()
        });
        let trier = thread::spawn({
            let world = world.clone();
            move || world.try_write()
        });
        world.write();
        world.0.bias();
        let inside = world.0.read();
        // loom switches threads where their accesses conflict, and otherwise never here.
        thread::yield_now();
        drop(inside);
        reader.join().expect("no panic");
        let tried = trier.join().expect("no panic");
        assert_eq!(world.read(), 1 + tried);
    });
}

/// Two writers, one of which does not wait, with a reader. Seen to fail: a bias that remains
/// revoked after an attempt in vain.
#[test]
fn try_write_races_with_a_writer_and_a_reader() {
    loom::model(|| {
        let world = World::new(true);
        let trier = thread::spawn({
            let world = world.clone();
            move || world.try_write()
        });
        let writer = thread::spawn({
            let world = world.clone();
            move || world.write()
        });
        world.read();
        writer.join().expect("no panic");
        let tried = trier.join().expect("no panic");
        assert_eq!(world.read(), 1 + tried);
    });
}
