//! Models of [`PerCpuRefs`]. Each has been seen to fail on the bugs that its comment names.

use loom::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use super::*;
use crate::reclaim::model;

/// An object with per-CPU references, in a place where users find it.
struct Contended {
    refs: PerCpuRefs<Counted<Contended>>,
    ended: Arc<AtomicUsize>,
}

impl Object for Contended {
    fn last_put(&self) {
        self.ended.fetch_add(1, SeqCst);
    }
}

struct World {
    place: AtomicCounted<Contended>,
    /// Held while per-CPU references are made, and while the object is removed.
    lock: Mutex<()>,
    ended: Arc<AtomicUsize>,
}

impl World {
    fn new() -> Arc<Self> {
        let ended = Arc::new(AtomicUsize::new(0));
        let object = Counted::new(Contended { refs: PerCpuRefs::new(), ended: ended.clone() });
        Arc::new(Self { place: AtomicCounted::new(Some(object)), lock: Mutex::new(()), ended })
    }

    /// Uses the object, if it is there.
    fn use_it(&self) {
        let guard = crate::pin();
        let Some(found) = self.place.load(&guard) else { return };
        let cpu_ref = found.refs.local(&guard);
        let held = if cpu_ref.is_none() { found.get() } else { None };
        drop(guard);
        if cpu_ref.is_some() || held.is_some() {
            assert_eq!(self.ended.load(SeqCst), 0, "it died while in use");
        }
    }

    /// Makes the per-CPU references of the object.
    fn activate(&self) {
        let _locked = self.lock.lock().expect("no panic");
        let guard = crate::pin();
        if let Some(object) = self.place.load(&guard).and_then(|found| found.get()) {
            object.refs.activate(|| object.clone());
        }
    }

    /// Removes the object.
    fn remove(&self) {
        let _locked = self.lock.lock().expect("no panic");
        if let Some(object) = self.place.swap(None) {
            object.refs.collapse();
        }
    }

    /// No thread has a reference to the object any more.
    fn assert_dead(&self) {
        model::end_of_execution();
        assert_eq!(self.ended.load(SeqCst), 1, "its references were never collapsed");
    }
}

/// A thread uses the object while it is removed. It lives until the later of both, and no longer.
/// Seen to fail: `collapse` that leaves the references; a `CpuRef` that does not hold the object.
#[test]
fn use_races_with_removal() {
    model::check(|| {
        let world = World::new();
        world.activate();
        let user = thread::spawn({
            let world = world.clone();
            move || world.use_it()
        });
        world.remove();
        user.join().expect("no panic");
        world.assert_dead();
    });
}

/// The object gets per-CPU references while it is removed. Seen to fail: `activate` without the
/// lock (the references are made after the collapse, and keep the object alive for ever).
#[test]
fn activation_races_with_removal() {
    model::check(|| {
        let world = World::new();
        let user = thread::spawn({
            let world = world.clone();
            move || world.activate()
        });
        world.remove();
        user.join().expect("no panic");
        world.assert_dead();
    });
}
