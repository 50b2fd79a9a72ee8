//! `PerCpuRefs`: per-CPU reference counts, for an object under contention.
//!
//! A count in one word is a cache line that all users of an object write. So an object that many
//! threads use at the same time gets one [`CpuRef`] for each core. Each has a reference to the
//! object and a count of its own. A thread that wants the object takes a reference to the `CpuRef`
//! of its core, which keeps the object alive as well as a reference of its own would. The object's
//! count is written only when a `CpuRef` is made or freed. The idea is that of Linux's percpu
//! reference counts (Kent Overstreet, 2013): a count is per CPU while a base reference is held, and
//! it is folded back before the base reference is put.
//!
//! The object holds its `CpuRef`s, and they hold the object. So a thread must *collapse* them
//! before the object can die, and no thread may make new ones after that. The user provides the
//! lock (any one lock) under which both are done. References that were taken before remain valid,
//! and no thread waits for them: each `CpuRef` dies with its last user, and puts its one reference
//! to the object then.

use crate::{
    counters::striped::{mine, stripe_count},
    reclaim::Guard,
    refcount::counted::{AtomicCounted, Counted, Object},
};

/// One core's reference to an object, as an object with a count of its own. The reference and the
/// count lie in one cache line, which no other `CpuRef` shares, wherever the allocation begins.
#[repr(C)]
pub struct CpuRef<R: Send + Sync + 'static> {
    _before: [usize; 8],
    object: R,
    _behind: [usize; 6],
}

impl<R: Send + Sync> CpuRef<R> {
    /// The reference to the object.
    #[inline]
    pub fn object(&self) -> &R {
        &self.object
    }
}

impl<R: Send + Sync> std::fmt::Debug for CpuRef<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuRef").finish_non_exhaustive()
    }
}

impl<R: Send + Sync + 'static> Object for CpuRef<R> {
    /// A thread may wait for the object.
    fn is_awaited(&self) -> bool {
        true
    }
}

/// One `CpuRef` for each core.
struct Array<R: Send + Sync + 'static>(Box<[Counted<CpuRef<R>>]>);

impl<R: Send + Sync + 'static> Object for Array<R> {
    fn held_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    fn is_awaited(&self) -> bool {
        true
    }
}

/// The per-CPU references to an object, as a part of the object. There are none until threads
/// contend for it. `R` is a reference to the object.
pub struct PerCpuRefs<R: Send + Sync + 'static>(AtomicCounted<Array<R>>);

impl<R: Send + Sync + 'static> PerCpuRefs<R> {
    /// No references yet.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicCounted::new(None))
    }

    /// A reference to this core's `CpuRef`; `None` if there are none.
    #[inline]
    #[must_use]
    pub fn local(&self, guard: &Guard) -> Option<Counted<CpuRef<R>>> {
        // This is sound while they are collapsed, too: the array has a reference to each, and is
        // dropped after the guard.
        let array = self.0.load(guard)?.to_ref();
        Some(mine(&array.0).clone())
    }

    /// Makes a `CpuRef` for each core, with a reference from `object`, unless there are some.
    /// Without effect on a single core. The caller holds the lock under which they are collapsed,
    /// and has seen that they have not been collapsed for the last time.
    pub fn activate(&self, object: impl Fn() -> R) {
        let cores = stripe_count();
        if cores < 2 || !self.0.is_none() {
            return;
        }
        let cpu_ref = |_| Counted::new(CpuRef { _before: [0; 8], object: object(), _behind: [0; 6] });
        let array = Counted::new(Array((0..cores).map(cpu_ref).collect()));
        drop(self.0.swap(Some(array)));
    }

    /// Drops the `CpuRef`s. Returns true if there were some: then the object may wait for
    /// references that readers hold. (A thread that only looks whether there are any, and tolerates
    /// a late view, needs no lock. A thread that makes some holds the caller's.)
    pub fn collapse(&self) -> bool {
        !self.0.is_none() && self.0.swap(None).is_some()
    }

    /// Whether there are some; a hint.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.0.is_none()
    }
}

impl<R: Send + Sync + 'static> Default for PerCpuRefs<R> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    };

    /// An object with per-CPU references that counts its last put.
    struct Contended {
        refs: PerCpuRefs<Counted<Contended>>,
        ended: Arc<AtomicUsize>,
    }

    impl Object for Contended {
        fn last_put(&self) {
            self.ended.fetch_add(1, SeqCst);
        }
    }

    fn contended() -> (Counted<Contended>, Arc<AtomicUsize>) {
        let ended = Arc::new(AtomicUsize::new(0));
        (Counted::new(Contended { refs: PerCpuRefs::new(), ended: ended.clone() }), ended)
    }

    fn settle(ended: &AtomicUsize) -> usize {
        (0..8).for_each(|_| crate::collect());
        ended.load(SeqCst)
    }

    #[test]
    fn cpu_ref_keeps_its_object_alive() {
        let (object, ended) = contended();
        assert!(object.refs.local(&crate::pin()).is_none());
        object.refs.activate(|| object.clone());
        let Some(cpu_ref) = object.refs.local(&crate::pin()) else {
            assert_eq!(stripe_count(), 1, "a single core needs none");
            return;
        };
        object.refs.activate(|| unreachable!("there are some"));
        assert_eq!(Counted::count(&object), 1 + stripe_count(), "a user of a CpuRef is not counted here");
        assert!(object.refs.collapse() && !object.refs.collapse());
        assert!(object.refs.local(&crate::pin()).is_none());
        drop(object);
        assert_eq!(settle(&ended), 0);
        assert!(!cpu_ref.object().refs.is_active());
        drop(cpu_ref);
        while settle(&ended) == 0 {
            std::thread::yield_now();
        }
    }

    /// The cache lines of a `CpuRef` and of the count behind it, as offsets in a block.
    #[test]
    #[cfg(not(miri))]
    fn cpu_refs_share_no_cache_line() {
        let (object, _) = contended();
        let refs: Vec<_> = (0..64)
            .map(|_| Counted::new(CpuRef { _before: [0; 8], object: object.clone(), _behind: [0; 6] }))
            .collect();
        let mut used: Vec<_> = refs
            .iter()
            .flat_map(|cpu_ref| {
                let object = std::ptr::from_ref(cpu_ref.object()).addr();
                let count = std::ptr::from_ref(&**cpu_ref).addr() + size_of::<CpuRef<Counted<Contended>>>();
                let mut lines = vec![object / 64, count / 64];
                lines.dedup();
                lines
            })
            .collect();
        let len = used.len();
        used.sort_unstable();
        used.dedup();
        assert_eq!(used.len(), len);
    }

    /// Threads use the object while it gets per-CPU references, loses them, and dies with the last
    /// user.
    #[test]
    fn last_user_puts_the_object() {
        for _ in 0..if cfg!(miri) { 2 } else { 200 } {
            let (object, ended) = contended();
            let place = AtomicCounted::new(Some(object));
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            let guard = crate::pin();
                            let Some(found) = place.load(&guard) else { break };
                            let cpu_ref = found.refs.local(&guard);
                            let held = if cpu_ref.is_none() { found.get() } else { None };
                            drop(guard);
                            assert!(held.is_none_or(|held| held.ended.load(SeqCst) == 0));
                            assert!(cpu_ref.is_none_or(|cpu_ref| cpu_ref.object().ended.load(SeqCst) == 0));
                        }
                    });
                }
                {
                    let guard = crate::pin();
                    let object = place.load(&guard).and_then(|found| found.get()).expect("taken out below");
                    object.refs.activate(|| object.clone());
                }
                let object = place.swap(None).expect("ours to take");
                object.refs.collapse();
            });
            while settle(&ended) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(settle(&ended), 1);
        }
    }
}
