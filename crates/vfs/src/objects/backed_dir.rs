//! What a directory of a tree that is kept elsewhere has besides: its absent names, and what it counts.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use pando_sync::{Detached, Guard, Node, Shared, SplitTable};

use crate::types::name::{Name, equal};

/// So many absent names are remembered in a directory; then all are forgotten.
const ABSENT_MAX: usize = 4096;

/// What a directory of a backed tree has besides.
#[derive(Default)]
pub(crate) struct BackedDir {
    absent: SplitTable<Name>,
    absent_count: AtomicUsize,
    /// Names that were loaded and are cached, less those of them that left the cache: others than made here.
    loaded: AtomicI64,
    /// Names that left the cache, though nothing happened to them: a number that only rises.
    let_go: AtomicU64,
    /// The backing's change count that the cached names belong to.
    pub checked: AtomicU64,
    /// Operations whose change the backing is being told of, or knows of while the cache does not yet.
    pub changing: AtomicUsize,
}

impl BackedDir {
    /// A directory of which nothing is cached yet.
    pub(crate) fn new(change_count: u64) -> Self {
        Self { checked: AtomicU64::new(change_count), ..Self::default() }
    }

    /// A name was taken into the cache, or has left it. Relaxed: how large the table should be is a hint.
    pub(crate) fn loaded(&self, more: bool) {
        self.loaded.fetch_add(if more { 1 } else { -1 }, Ordering::Relaxed);
        if !more {
            self.let_go.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many names have left the cache though nothing happened to them. Relaxed: whoever compares two of these has held
    /// the lock of the name that he asks about before the second.
    pub(crate) fn let_go(&self) -> u64 {
        self.let_go.load(Ordering::Relaxed)
    }

    /// How many more names are cached than were made here.
    pub(crate) fn loaded_len(&self) -> i64 {
        self.loaded.load(Ordering::Relaxed)
    }

    /// Whether the backing may know of a change that the cache does not. Acquire: of those that are over, the cache does.
    pub(crate) fn is_changing(&self) -> bool {
        self.changing.load(Ordering::Acquire) > 0
    }

    pub(crate) fn is_absent(&self, hash: u64, name: &[u8], guard: &Guard) -> bool {
        self.absent.get(hash, |absent| equal(absent.as_bytes(), name), guard).is_some()
    }

    /// Remembers that there is no such name. The caller holds the name's lock.
    pub(crate) fn note_absent(&self, hash: u64, name: &[u8], guard: &Guard) {
        if self.absent_count.load(Ordering::Relaxed) >= ABSENT_MAX {
            self.forget_absent(guard);
        }
        let node = Detached::new(Name::new(name));
        // Before it can be seen: whoever forgets it counts it out.
        let len = self.absent_count.fetch_add(1, Ordering::Relaxed) + 1;
        match self.absent.insert(hash, |absent| equal(absent.as_bytes(), name), node, guard) {
            Ok(_) => self.absent.adapt(len, false, guard),
            Err(_) => {
                self.absent_count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// The name is there now. Called after it is bound, under its lock: a reader looks at what is bound first.
    pub(crate) fn note_present(&self, hash: u64, name: &[u8], guard: &Guard) {
        if let Some(node) = self.absent.get(hash, |absent| equal(absent.as_bytes(), name), guard) {
            self.remove_absent(node, guard);
        }
    }

    fn remove_absent(&self, node: Shared<'_, Node<Name>>, guard: &Guard) {
        if self.absent.remove(node, guard).removed {
            let len = self.absent_count.fetch_sub(1, Ordering::Relaxed) - 1;
            self.absent.adapt(len, false, guard);
        }
    }

    pub(crate) fn forget_absent(&self, guard: &Guard) {
        for node in self.absent.iter_after(0, guard) {
            self.remove_absent(node, guard);
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_sync::pin;

    use super::*;

    /// Who forgets an absent name as soon as it is there finds it counted. Seen to fail: counted after it was inserted.
    #[test]
    fn an_absent_name_is_counted_before_it_can_be_forgotten() {
        const NOTERS: usize = 4;
        let backed = BackedDir::default();
        let note = || (0..200_000).for_each(|_| backed.note_absent(0, b"absent", &pin()));
        std::thread::scope(|scope| {
            let noters: Vec<_> = (0..NOTERS).map(|_| scope.spawn(note)).collect();
            while noters.iter().any(|noter| !noter.is_finished()) {
                backed.forget_absent(&pin());
                // The one that is there, and those that are refused.
                assert!(backed.absent_count.load(Ordering::Relaxed) <= 1 + NOTERS);
            }
        });
        backed.forget_absent(&pin());
        assert_eq!(backed.absent_count.load(Ordering::Relaxed), 0);
    }
}
