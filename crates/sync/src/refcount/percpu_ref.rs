//! `PerCpuRefs`: references to a hot object, counted on a line of each core.
//!
//! A count in one word is a cache line that all users of a hot object write. So an object that many threads use at the same
//! time gets *proxies*, one for each core, each with a reference to the object and a count of its own. Whoever
//! wants the object takes a reference to its core's proxy, which keeps the object as well as one of its own would; the
//! object's count is written only when a proxy comes or goes. The idea, that a count is spread for as long as somebody
//! holds a base reference and is folded back before that one is put, is that of Linux's percpu reference counts (Kent
//! Overstreet, 2013).
//!
//! The object itself holds its proxies, and they hold it: nothing of it would ever go. So somebody has to *collapse* them
//! before the object may die, and nobody may make others after that: the lock (any one lock) under which both are done is
//! the user's. References that were taken before stay good, and none is waited for: each proxy goes with its last
//! user, and puts its one reference to the object then.

use crate::{
    counters::striped::{mine, stripe_count},
    reclaim::Guard,
    refcount::counted::{AtomicCounted, Counted, Object},
};

/// One core's reference to a hot object, as an object with a count of its own: it and the count lie in one line, which is
/// no other proxy's, wherever the allocation begins.
#[repr(C)]
pub struct CpuRef<R: Send + Sync + 'static> {
    _before: [usize; 8],
    object: R,
    _behind: [usize; 6],
}

impl<R: Send + Sync> CpuRef<R> {
    /// What it keeps.
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
    /// The object may be waited for.
    fn is_awaited(&self) -> bool {
        true
    }
}

/// One for each core.
struct Array<R: Send + Sync + 'static>(Box<[Counted<CpuRef<R>>]>);

impl<R: Send + Sync + 'static> Object for Array<R> {
    fn held_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    fn is_awaited(&self) -> bool {
        true
    }
}

/// The proxies of an object, a part of it; none until it is hot. `R` is a reference to the object.
pub struct PerCpuRefs<R: Send + Sync + 'static>(AtomicCounted<Array<R>>);

impl<R: Send + Sync + 'static> PerCpuRefs<R> {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicCounted::new(None))
    }

    /// A reference to this thread's proxy; none if there are none.
    #[inline]
    #[must_use]
    pub fn mine(&self, guard: &Guard) -> Option<Counted<CpuRef<R>>> {
        // Also while they are collapsed: the array, which has a reference to each, is dropped after the guard.
        let array = self.0.load(guard)?.to_ref();
        Some(mine(&array.0).clone())
    }

    /// Makes them, each with a reference from `object`, unless there are some; without effect on a single core. The caller
    /// holds the lock under which they are collapsed, and has seen that this is still to come.
    pub fn make(&self, object: impl Fn() -> R) {
        let cores = stripe_count();
        if cores < 2 || !self.0.is_none() {
            return;
        }
        let proxy = |_| Counted::new(CpuRef { _before: [0; 8], object: object(), _behind: [0; 6] });
        let array = Counted::new(Array((0..cores).map(proxy).collect()));
        drop(self.0.swap(Some(array)));
    }

    /// Lets go of them. True if there were some: the object may wait for what readers hold. (Nobody who is in no hurry to look
    /// needs a lock for that there are none: whoever makes some has the caller's.)
    pub fn collapse(&self) -> bool {
        !self.0.is_none() && self.0.swap(None).is_some()
    }

    /// Whether there are some; a hint.
    #[must_use]
    pub fn are_there(&self) -> bool {
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

    /// An object with proxies, that tells of its end.
    struct Hot {
        proxies: PerCpuRefs<Counted<Hot>>,
        ended: Arc<AtomicUsize>,
    }

    impl Object for Hot {
        fn last_put(&self) {
            self.ended.fetch_add(1, SeqCst);
        }
    }

    fn hot() -> (Counted<Hot>, Arc<AtomicUsize>) {
        let ended = Arc::new(AtomicUsize::new(0));
        (Counted::new(Hot { proxies: PerCpuRefs::new(), ended: ended.clone() }), ended)
    }

    fn settle(ended: &AtomicUsize) -> usize {
        (0..8).for_each(|_| crate::collect());
        ended.load(SeqCst)
    }

    #[test]
    fn a_proxy_keeps_its_object() {
        let (object, ended) = hot();
        assert!(object.proxies.mine(&crate::pin()).is_none());
        object.proxies.make(|| object.clone());
        let Some(proxy) = object.proxies.mine(&crate::pin()) else {
            assert_eq!(stripe_count(), 1, "a single core has no use for any");
            return;
        };
        object.proxies.make(|| unreachable!("there are some"));
        assert_eq!(Counted::count(&object), 1 + stripe_count(), "whoever uses a proxy does not count here");
        assert!(object.proxies.collapse() && !object.proxies.collapse());
        assert!(object.proxies.mine(&crate::pin()).is_none());
        drop(object);
        assert_eq!(settle(&ended), 0);
        assert!(!proxy.object().proxies.are_there());
        drop(proxy);
        while settle(&ended) == 0 {
            std::thread::yield_now();
        }
    }

    /// Line of the count, as an offset in a block: the proxy, and the count behind it.
    #[test]
    #[cfg(not(miri))]
    fn no_two_proxies_share_a_line() {
        let (object, _) = hot();
        let proxies: Vec<_> = (0..64)
            .map(|_| Counted::new(CpuRef { _before: [0; 8], object: object.clone(), _behind: [0; 6] }))
            .collect();
        let mut used: Vec<_> = proxies
            .iter()
            .flat_map(|proxy| {
                let object = std::ptr::from_ref(proxy.object()).addr();
                let count = std::ptr::from_ref(&**proxy).addr() + size_of::<CpuRef<Counted<Hot>>>();
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

    /// Users come and go while the object gets proxies, loses them, and dies with the last one.
    #[test]
    fn the_last_user_ends_it() {
        for _ in 0..if cfg!(miri) { 2 } else { 200 } {
            let (object, ended) = hot();
            let place = AtomicCounted::new(Some(object));
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            let guard = crate::pin();
                            let Some(found) = place.load(&guard) else { break };
                            let proxy = found.proxies.mine(&guard);
                            let held = if proxy.is_none() { found.get() } else { None };
                            drop(guard);
                            assert!(held.is_none_or(|held| held.ended.load(SeqCst) == 0));
                            assert!(proxy.is_none_or(|proxy| proxy.object().ended.load(SeqCst) == 0));
                        }
                    });
                }
                {
                    let guard = crate::pin();
                    let object = place.load(&guard).and_then(|found| found.get()).expect("taken out below");
                    object.proxies.make(|| object.clone());
                }
                let object = place.swap(None).expect("ours to take");
                object.proxies.collapse();
            });
            while settle(&ended) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(settle(&ended), 1);
        }
    }
}
