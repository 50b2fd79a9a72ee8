//! The locks of an operation. They are tried under a guard, and waited for without one ([`crate::operations::attempt`]).
//!
//! Order: topology, names (by stripe), rename sequence. The handle's mutex and the data lock come after and never here.
//! Who takes permissions of a directory away holds a lock that comes before all of them ([`crate::operations::permit`]).

use std::slice;

use pando_sync::{ClassGuard, LockGranularity, MAX_NAMES, NameGuard, NameKey, SeqGuard};

use crate::{
    objects::{lockable::Lockable, superblock::NameSpace},
    operations::step::{Step, Stop},
};

/// What an attempt needs locked.
#[derive(Clone, Copy)]
struct Wanted {
    names: [NameKey; MAX_NAMES],
    /// So many of `names`.
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

/// The locks of one operation. Dropping releases them, the last taken first.
pub(crate) struct Locks<'v> {
    pub rename_seq: Option<SeqGuard<'v>>,
    names: Option<NameGuard<'v>>,
    topology: Option<ClassGuard<'v>>,
    wanted: Wanted,
    /// Whether all of `wanted` is held; otherwise nothing of it counts.
    held: bool,
    /// What was removed is held by what was removed before, until that is reclaimed (an inode by further links, a file by what
    /// its openers are counted on): reclaimed at once, if nobody reads.
    pub collect: bool,
    name_space: &'v NameSpace,
}

impl<'v> Locks<'v> {
    pub(crate) fn new(name_space: &'v NameSpace) -> Self {
        Self {
            rename_seq: None,
            names: None,
            topology: None,
            wanted: Wanted::NOTHING,
            held: false,
            collect: false,
            name_space,
        }
    }

    /// Takes the locks of `names`, without waiting.
    pub(crate) fn names(&mut self, names: &[Lockable<'_>]) -> Step<()> {
        self.all(false, names, false)
    }

    /// Takes the locks of `names`, and those that a directory needs which changes its place (`rename_seq`) or its
    /// parent (`topology`), without waiting.
    #[inline]
    pub(crate) fn all(&mut self, topology: bool, names: &[Lockable<'_>], rename_seq: bool) -> Step<()> {
        if self.held && !self.covers(topology, names, rename_seq) {
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
        // Each name in there has a lock of its own by now, which the next attempt finds.
        self.release();
        Err(Stop::Again)
    }

    /// As [`Locks::take`], for what most operations need. Word by word: what is copied as a whole right after it was
    /// written in parts is waited for.
    #[inline]
    fn take_one(&mut self, name: &Lockable<'_>) -> Step<()> {
        let NameKey { dir, hash } = name.key;
        self.wanted.names[0].dir = dir;
        self.wanted.names[0].hash = hash;
        self.wanted.count = 1;
        let Some(locked) = self.name_space.names.try_lock_one(NameKey { dir, hash }) else {
            return Err(Self::taken(slice::from_ref(name)));
        };
        self.names = Some(locked);
        self.held = true;
        Ok(())
    }

    /// Somebody has one of these locks, maybe for another name.
    #[cold]
    fn taken(names: &[Lockable<'_>]) -> Stop {
        names.iter().filter_map(|name| name.grain).for_each(LockGranularity::note_contention);
        Stop::Wait
    }

    /// Takes what is wanted, and `names`, without waiting.
    #[inline]
    fn take(&mut self, names: &[Lockable<'_>]) -> Step<()> {
        self.wanted.names.iter_mut().zip(names).for_each(|(wanted, name)| *wanted = name.key);
        self.wanted.count = names.len() as u8;
        if self.wanted.topology {
            self.topology = Some(self.name_space.topology.try_lock().ok_or(Stop::Wait)?);
        }
        self.names = self.name_space.names.try_lock(self.wanted.names());
        if self.names.is_none() {
            return Err(Self::taken(names));
        }
        if self.wanted.rename_seq {
            self.rename_seq = Some(self.name_space.rename_seq.try_lock().ok_or(Stop::Wait)?);
        }
        self.held = true;
        Ok(())
    }

    fn covers(&self, topology: bool, names: &[Lockable<'_>], rename_seq: bool) -> bool {
        let keys = names.iter().map(|name| &name.key);
        self.wanted.names().iter().eq(keys)
            && (self.wanted.topology || !topology)
            && (self.wanted.rename_seq || !rename_seq)
    }

    /// Carries out `change`, at an instant of which a directory may change its place: with the rename sequence odd, if its
    /// lock was wanted. Renderings of paths wait for `change`, and not for what comes before and after it.
    pub(crate) fn moving<T>(&mut self, change: impl FnOnce() -> T) -> T {
        let _moving = self.rename_seq.as_mut().map(SeqGuard::write);
        change()
    }

    /// The operation is done: nothing is locked any more, and what waits for that is reclaimed.
    #[inline]
    pub(crate) fn give_back(&mut self) {
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

    /// Waits for what the last attempt wanted. No guard is held.
    pub(crate) fn wait(&mut self) {
        self.release();
        let wanted = self.wanted;
        if wanted.topology {
            self.topology = Some(self.name_space.topology.lock());
        }
        self.names = Some(self.name_space.names.lock(wanted.names()));
        if wanted.rename_seq {
            self.rename_seq = Some(self.name_space.rename_seq.lock());
        }
        self.held = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Vfs, driver::tests::Nothing};

    /// Whoever finds the lock of a directory's names taken waits for it once. From then on each name has its own, also for who
    /// waits for that of all meanwhile.
    #[test]
    fn names_get_locks_of_their_own_when_two_threads_meet() {
        let vfs = Vfs::new(Nothing).expect("a tree");
        let (root, name_space) = (vfs.root(), vfs.name_space());
        let dir = root.0.inode();
        let name = |hash| Lockable::name(dir, hash).expect("a directory");
        let mut first = Locks::new(name_space);
        assert!(first.names(&[name(1)]).is_ok());
        assert_eq!(name(1).key, name(2).key);
        let mut others = [2, 3].map(|hash| (hash, Locks::new(name_space)));
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
            // Nobody waits for who has a lock of his own, but by chance.
            assert!((10..20).any(|hash| name_space.names.try_lock(&[name(hash).key]).is_some()));
            assert!(name_space.names.try_lock(&[name(*hash).key]).is_none());
            locks.release();
        }
    }
}
