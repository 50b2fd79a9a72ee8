//! The locks of an operation. An attempt tries them under a guard. [`crate::operations::attempt`]
//! waits for them without one.
//!
//! The order is topology, names (by stripe), rename sequence. The position lock and the data lock
//! come later and are never taken here. A thread that revokes permissions of a directory holds a
//! lock that comes before all of these ([`crate::operations::permit`]).

use std::slice;

use pando_sync::{ClassGuard, LockGranularity, MAX_NAMES, NameGuard, NameKey, SeqGuard};

use crate::{
    objects::{lockable::Lockable, superblock::Namespace},
    operations::step::{Step, Stop},
};

/// The locks that an attempt needs.
#[derive(Clone, Copy)]
struct Wanted {
    names: [NameKey; MAX_NAMES],
    /// The number of valid elements of `names`.
    count: u8,
    topology: bool,
    rename_seq: bool,
}

impl Wanted {
    const NOTHING: Self =
        Self { names: [NameKey { dir: 0, hash: 0 }; MAX_NAMES], count: 0, topology: false, rename_seq: false };

    fn names(&self) -> &[NameKey] {
        &self.names[..usize::from(self.count)]
    }
}

/// The locks of one operation. A drop releases them, the last taken first.
pub(crate) struct Locks<'v> {
    pub rename_seq: Option<SeqGuard<'v>>,
    names: Option<NameGuard<'v>>,
    topology: Option<ClassGuard<'v>>,
    wanted: Wanted,
    /// Whether all of `wanted` is held. If not, a part of it that is held does not count.
    held: bool,
    /// A removed object may be held by others that were removed before it, until those are
    /// reclaimed: an inode by its hard links, a file by its per-CPU reference count. Then they are
    /// reclaimed when the locks are released, if no thread reads.
    pub collect: bool,
    namespace: &'v Namespace,
}

impl<'v> Locks<'v> {
    pub(crate) fn new(namespace: &'v Namespace) -> Self {
        Self {
            rename_seq: None,
            names: None,
            topology: None,
            wanted: Wanted::NOTHING,
            held: false,
            collect: false,
            namespace,
        }
    }

    /// Takes the locks of `names`, without waiting.
    pub(crate) fn names(&mut self, names: &[Lockable<'_>]) -> Step<()> {
        self.all(false, names, false)
    }

    /// Takes the locks of `names` without waiting. A directory that changes its place needs
    /// `rename_seq` too, and one that changes its parent needs `topology`.
    #[inline]
    pub(crate) fn all(&mut self, topology: bool, names: &[Lockable<'_>], rename_seq: bool) -> Step<()> {
        if self.held && !self.mountpoint(topology, names, rename_seq) {
            self.release();
        }
        if !self.held {
            self.wanted.topology = topology;
            self.wanted.rename_seq = rename_seq;
            match names {
                [name] if !topology && !rename_seq => self.take_one(name)?,
                _ => self.take(names)?,
            }
        }
        if names.iter().all(Lockable::stands) {
            return Ok(());
        }
        // Contention has split the lock of all names: each name has its own lock by now, which the
        // next attempt finds.
        self.release();
        Err(Stop::Again)
    }

    /// Like [`Locks::take`], for the single name that most operations need. It writes the fields
    /// one by one: if a struct is copied as a whole right after its parts were written, the load
    /// waits for those stores.
    #[inline]
    fn take_one(&mut self, name: &Lockable<'_>) -> Step<()> {
        let NameKey { dir, hash } = name.key;
        self.wanted.names[0].dir = dir;
        self.wanted.names[0].hash = hash;
        self.wanted.count = 1;
        let Some(locked) = self.namespace.names.try_lock_one(NameKey { dir, hash }) else {
            return Err(Self::contended(slice::from_ref(name)));
        };
        self.names = Some(locked);
        self.held = true;
        Ok(())
    }

    /// Another thread holds one of these locks, possibly for another name.
    #[cold]
    fn contended(names: &[Lockable<'_>]) -> Stop {
        names.iter().filter_map(|name| name.granularity).for_each(LockGranularity::note_contention);
        Stop::Wait
    }

    /// Takes `names` and the other wanted locks, without waiting.
    #[inline]
    fn take(&mut self, names: &[Lockable<'_>]) -> Step<()> {
        self.wanted.names.iter_mut().zip(names).for_each(|(wanted, name)| *wanted = name.key);
        self.wanted.count = names.len() as u8;
        if self.wanted.topology {
            self.topology = Some(self.namespace.topology.try_lock().ok_or(Stop::Wait)?);
        }
        self.names = self.namespace.names.try_lock(self.wanted.names());
        if self.names.is_none() {
            return Err(Self::contended(names));
        }
        if self.wanted.rename_seq {
            self.rename_seq = Some(self.namespace.rename_seq.try_lock().ok_or(Stop::Wait)?);
        }
        self.held = true;
        Ok(())
    }

    fn mountpoint(&self, topology: bool, names: &[Lockable<'_>], rename_seq: bool) -> bool {
        let keys = names.iter().map(|name| &name.key);
        self.wanted.names().iter().eq(keys)
            && (self.wanted.topology || !topology)
            && (self.wanted.rename_seq || !rename_seq)
    }

    /// Runs `change`, which may move a directory. If the lock of the rename sequence was wanted,
    /// the sequence is odd meanwhile. Path rendering waits for `change`, but not for the steps
    /// before and after it.
    pub(crate) fn moving<T>(&mut self, change: impl FnOnce() -> T) -> T {
        let _moving = self.rename_seq.as_mut().map(SeqGuard::write);
        change()
    }

    /// Ends the operation: releases all locks, and reclaims the removed objects that wait for that.
    #[inline]
    pub(crate) fn end_operation(&mut self) {
        self.release();
        if std::mem::take(&mut self.collect) {
            pando_sync::collect();
        }
    }

    pub(crate) fn release(&mut self) {
        self.rename_seq = None;
        self.names = None;
        self.topology = None;
        self.held = false;
    }

    /// Waits for the locks that the last attempt wanted. The caller holds no guard.
    pub(crate) fn wait(&mut self) {
        self.release();
        let wanted = self.wanted;
        if wanted.topology {
            self.topology = Some(self.namespace.topology.lock());
        }
        self.names = Some(self.namespace.names.lock(wanted.names()));
        if wanted.rename_seq {
            self.rename_seq = Some(self.namespace.rename_seq.lock());
        }
        self.held = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Vfs, driver::tests::Nothing};

    /// A thread that finds the lock of all names of a directory taken waits for it once. From then
    /// on each name has its own lock. This includes a thread that was waiting for the lock of all
    /// names meanwhile.
    #[test]
    fn lock_of_all_names_splits_on_contention() {
        let vfs = Vfs::new(Nothing).expect("a tree");
        let (root, namespace) = (vfs.root(), vfs.namespace());
        let dir = root.0.inode();
        let name = |hash| Lockable::name(dir, hash).expect("a directory");
        let mut first = Locks::new(namespace);
        assert!(first.names(&[name(1)]).is_ok());
        assert_eq!(name(1).key, name(2).key);
        let mut others = [2, 3].map(|hash| (hash, Locks::new(namespace)));
        for (hash, locks) in &mut others {
            assert!(matches!(locks.names(&[name(*hash)]), Err(Stop::Wait)));
        }
        drop(first);
        for (hash, locks) in &mut others {
            locks.wait();
            if name(*hash).key.hash != *hash {
                assert!(
                    matches!(locks.names(&[name(*hash)]), Err(Stop::Again)),
                    "the lock of all is another one's as well"
                );
            }
            assert!(locks.names(&[name(*hash)]).is_ok());
            assert_eq!(name(*hash).key.hash, *hash);
            // No thread waits for the holder of a single name's lock, except when stripes collide.
            assert!((10..20).any(|hash| namespace.names.try_lock(&[name(hash).key]).is_some()));
            assert!(namespace.names.try_lock(&[name(*hash).key]).is_none());
            locks.release();
        }
    }
}
