//! Models of [`PerCpuRefs`]. Each has been seen to fail on the bugs its comment names.

use loom::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use super::*;
use crate::reclaim::model;

/// An object with proxies, in a place where users find it.
struct Hot {
    proxies: PerCpuRefs<Counted<Hot>>,
    ended: Arc<AtomicUsize>,
}

impl Object for Hot {
    fn last_put(&self) {
        self.ended.fetch_add(1, SeqCst);
    }
}

struct World {
    place: AtomicCounted<Hot>,
    /// Under which proxies are made, and the object taken out.
    lock: Mutex<()>,
    ended: Arc<AtomicUsize>,
}

impl World {
    fn new() -> Arc<Self> {
        let ended = Arc::new(AtomicUsize::new(0));
        let hot = Counted::new(Hot { proxies: PerCpuRefs::new(), ended: ended.clone() });
        Arc::new(Self { place: AtomicCounted::new(Some(hot)), lock: Mutex::new(()), ended })
    }

    /// Uses the object, if it is there.
    fn visit(&self) {
        let guard = crate::pin();
        let Some(found) = self.place.load(&guard) else { return };
        let proxy = found.proxies.mine(&guard);
        let held = if proxy.is_none() { found.get() } else { None };
        drop(guard);
        if proxy.is_some() || held.is_some() {
            assert_eq!(self.ended.load(SeqCst), 0, "it ended under its user");
        }
    }

    /// Finds it hot.
    fn heat(&self) {
        let _locked = self.lock.lock().expect("no panic");
        let guard = crate::pin();
        if let Some(object) = self.place.load(&guard).and_then(|found| found.get()) {
            object.proxies.make(|| object.clone());
        }
    }

    /// Takes it out.
    fn end(&self) {
        let _locked = self.lock.lock().expect("no panic");
        if let Some(object) = self.place.swap(None) {
            object.proxies.collapse();
        }
    }

    /// Nobody has it any more.
    fn has_ended(&self) {
        model::end_of_execution();
        assert_eq!(self.ended.load(SeqCst), 1, "what holds itself never ends");
    }
}

/// A user comes and goes while the object is taken out: it lasts until the later of both, and no longer.
/// Seen to fail: `collapse` that leaves the proxies; a proxy that does not hold the object.
#[test]
fn users_against_the_end() {
    model::check(|| {
        let world = World::new();
        world.heat();
        let user = thread::spawn({
            let world = world.clone();
            move || world.visit()
        });
        world.end();
        user.join().expect("no panic");
        world.has_ended();
    });
}

/// The object gets proxies while it is taken out.
/// Seen to fail: `heat` without the lock (the proxies come after the collapse, and hold it for ever).
#[test]
fn making_against_the_end() {
    model::check(|| {
        let world = World::new();
        let hot = thread::spawn({
            let world = world.clone();
            move || world.heat()
        });
        world.end();
        hot.join().expect("no panic");
        world.has_ended();
    });
}
