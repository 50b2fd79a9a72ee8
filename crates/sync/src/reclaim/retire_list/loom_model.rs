//! Retire lists, model-checked: bags move between threads, and each object is freed exactly once.

use loom::{cell::UnsafeCell, sync::Arc, thread};

use super::{
    super::{filling::Filling, grace::GracePeriods},
    *,
};

/// Counts how often the object was freed. The model fails when two threads access the count with no
/// order between them.
struct Object {
    linked: AtomicBool,
    freed: UnsafeCell<u32>,
}

impl Object {
    fn new() -> Self {
        Self { linked: AtomicBool::new(true), freed: UnsafeCell::new(0) }
    }

    fn freed(&self) -> u32 {
        // SAFETY: checked by the model: no thread frees it meanwhile.
        self.freed.with(|freed| unsafe { *freed })
    }
}

/// # Safety
/// `object` is an [`Object`] that no other thread accesses.
unsafe fn free(object: *mut ()) {
    // SAFETY: the caller's contract. The model checks that no other thread accesses it.
    unsafe { (*object.cast::<Object>()).freed.with_mut(|freed| *freed += 1) };
}

struct World {
    grace_periods: GracePeriods,
    lists: RetireLists,
    objects: [Object; 2],
}

impl World {
    fn new() -> Arc<Self> {
        let objects = std::array::from_fn(|_| Object::new());
        Arc::new(Self { grace_periods: GracePeriods::new(), lists: RetireLists::new(), objects })
    }

    fn filling(&self) -> Filling<'_> {
        Filling::new(&self.grace_periods, &self.lists)
    }

    fn retire(&self, filling: &Filling<'_>, object: usize) {
        let object = &self.objects[object];
        object.linked.store(false, Ordering::Relaxed);
        self.lists.account(filling.number, 1);
        filling.retire(Retired(std::ptr::from_ref(object).cast_mut().cast(), 1, free));
    }

    /// Frees what has expired in a list. If the first object is a `parent`, freeing it retires the
    /// second one.
    fn free_from<'a>(&'a self, list: &'a RetireList, filling: &Filling<'a>, parent: bool) {
        list.free_expired(self.grace_periods.over(), usize::MAX, Some(filling), |Retired(ptr, bytes, free)| {
            self.lists.account(filling.number, -(bytes as i64));
            if parent && std::ptr::eq(ptr.cast(), &self.objects[0]) {
                self.retire(filling, 1);
            }
            // SAFETY: checked by the model: no other thread reads or frees it.
            unsafe { free(ptr) };
        });
    }

    /// Ends a grace period if no guard prevents it, and frees what has expired in all lists.
    fn advance<'a>(&'a self, filling: &Filling<'a>, parent: bool) {
        self.grace_periods.begin();
        self.grace_periods.try_end();
        self.lists.iter().for_each(|list| self.free_from(list, filling, parent));
    }

    /// When the other threads have ended, frees what they left. Then each object has been freed
    /// exactly once.
    fn finish(&self, parent: bool) {
        let filling = self.filling();
        for _ in 0..4 {
            self.advance(&filling, parent);
        }
        filling.end();
        assert!(self.lists.iter().all(RetireList::is_done), "a bag waits for ever");
        assert_eq!(self.objects.each_ref().map(Object::freed), [1, 1]);
        let bytes = |list: &RetireList| list.bytes.load(Ordering::Relaxed);
        assert_eq!(self.lists.iter().map(bytes).sum::<i64>(), 0, "the account of the bytes is wrong");
    }
}

/// Two threads own a list, one after the other or one of them the shared list. Each retires an
/// object, frees what it finds, and ends. A third thread frees the rest.
///
/// Seen to fail: a thread that ends without a flush; a claim by a load and a store. Not seen to
/// fail: the list given back before the flush, or by a Relaxed store.
#[test]
fn each_object_is_freed_once_when_threads_end() {
    loom::model(|| {
        let world = World::new();
        let run = |world: &World, object: usize| {
            let filling = world.filling();
            world.retire(&filling, object);
            world.advance(&filling, false);
            filling.end();
        };
        let other = thread::spawn({
            let world = world.clone();
            move || run(&world, 1)
        });
        run(&world, 0);
        other.join().unwrap();
        world.finish(false);
    });
}

/// A thread frees a list's bags while another one asks whether all of it is freed. The first object
/// retires the second one when it is freed.
///
/// Seen to fail: `is_done` that does not hold the queue's lock while it looks at the count, or that
/// looks at the queue alone; a Relaxed load, or a Relaxed decrement, of `freeing`; a bag counted
/// after the queue's lock was released; a bag copied under one hold of the lock and removed under
/// another; what freeing retires put elsewhere.
#[test]
fn a_list_that_is_done_has_freed_everything() {
    loom::model(|| {
        let world = World::new();
        let owner = world.filling();
        world.retire(&owner, 0);
        owner.flush();
        let other = thread::spawn({
            let world = world.clone();
            move || {
                let filling = world.filling();
                world.advance(&filling, true);
                world.advance(&filling, true);
                filling.end();
            }
        });
        if owner.own().is_done() {
            assert_eq!(world.objects.each_ref().map(Object::freed), [1, 1]);
        }
        other.join().unwrap();
        owner.end();
        world.finish(true);
    });
}

/// A thread reads under a guard while another one fills a bag with what it unlinks, and frees it.
///
/// Seen to fail: a bag that waits for the period that began last; a bag freed one period early.
#[test]
fn a_bag_waits_for_readers_of_all_its_objects() {
    loom::model(|| {
        let world = World::new();
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let slot = world.grace_periods.claim();
                slot.enter(&world.grace_periods);
                let last = &world.objects[1];
                if last.linked.load(Ordering::Acquire) {
                    assert_eq!(last.freed(), 0);
                }
                slot.leave();
            }
        });
        let filling = world.filling();
        world.retire(&filling, 0);
        world.retire(&filling, 1);
        world.advance(&filling, false);
        filling.end();
        reader.join().unwrap();
        world.finish(false);
    });
}
