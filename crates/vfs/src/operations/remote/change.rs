//! A change that is committed in a backing, and then published in the cache.

use std::sync::{Arc, atomic::Ordering};

use pando_sync::{Counted, Guard, Shared, pin};

use crate::{
    AttrMask, Backing, Error, Result,
    caches::binding::unbind_stale,
    objects::{dentry::Dentry, directory::Directory, inode::Inode, superblock::SuperBlock},
    operations::{
        locks::Locks,
        parent::Parent,
        step::{Step, Stop},
    },
};

/// A change that is permitted and whose names are locked. Where it happens is held, wherever its path may lead by now.
pub(crate) trait Change {
    /// What the backing answers.
    type Ack: Copy;
    /// What the caller of the operation gets.
    type Done;

    /// The tree that changes.
    fn sb(&self) -> &Arc<SuperBlock>;

    /// Tells the backing. No guard is held, and the locks of the change are.
    ///
    /// # Errors
    /// What the backing refuses has not happened.
    fn commit(&self, backing: &dyn Backing) -> Result<Self::Ack>;

    /// What the refusal says about the cache.
    fn refused(&self, error: Error, guard: &Guard) {
        let _ = (error, guard);
    }

    /// Takes over into the cache what the backing has done. If that takes another picture ([`Stop::Again`]), it is called
    /// again.
    ///
    /// # Errors
    /// Of the cache alone: the directory is gone, for example.
    fn publish(&self, ack: Self::Ack, guard: &Guard, locks: &mut Locks<'_>) -> Step<Self::Done>;
}

/// Commits a change, and publishes it. The locks are held; no guard is.
pub(crate) fn carry_out<C: Change>(change: &C, locks: &mut Locks<'_>) -> Step<C::Done> {
    let backing = change.sb().ask_backing().ok_or(Error::NotSupported)?;
    let ack = change.commit(backing).inspect_err(|error| change.refused(*error, &pin()))?;
    loop {
        match change.publish(ack, &pin(), locks) {
            // Another thread is at it, and may need the processor.
            Err(Stop::Again) => std::thread::yield_now(),
            done => return done,
        }
    }
}

/// A name in a directory of a backed tree: held, and known to be changing ([`BackedDir::changing`]) until it is dropped.
///
/// [`BackedDir::changing`]: crate::objects::backed_dir::BackedDir::changing
pub(crate) struct Pinned {
    pub dir: Counted<Dentry>,
    pub name: Box<[u8]>,
    pub hash: u64,
}

impl Pinned {
    pub(crate) fn new(place: &Parent<'_>, name: &[u8]) -> Step<Self> {
        let dir = place.dir.get().ok_or(Stop::Again)?;
        if let Some(backed) = dir.inode().backed_dir() {
            // SeqCst: before the backing is told.
            backed.changing.fetch_add(1, Ordering::SeqCst);
        }
        Ok(Self { dir, name: name.into(), hash: place.hash_of(name) })
    }

    pub(crate) fn parent(&self) -> &Inode {
        self.dir.inode()
    }

    pub(crate) fn directory(&self) -> Result<&Directory> {
        self.dir.directory()
    }

    pub(crate) fn dir<'g>(&'g self, guard: &'g Guard) -> Shared<'g, Dentry> {
        self.dir.share(guard)
    }

    /// If others have made a name that was to be made, it is asked for when it is wanted.
    pub(crate) fn note_refusal(&self, error: Error, guard: &Guard) {
        if error == Error::Exists {
            self.note_present(guard);
        }
    }

    /// Takes the name out of the cache: the backing says that it is free.
    pub(crate) fn unbind_stale(&self, guard: &Guard) -> Result<()> {
        unbind_stale(self.directory()?, self.hash, &self.name, guard);
        Ok(())
    }

    /// The name is bound now, so it is not absent. Its lock is held.
    pub(crate) fn note_present(&self, guard: &Guard) {
        if let Some(backed) = self.parent().backed_dir() {
            backed.note_present(self.hash, &self.name, guard);
        }
    }

    /// The name is gone now, and remembered as absent. Its lock is held.
    pub(crate) fn note_absent(&self, guard: &Guard) {
        if let Some(backed) = self.parent().backed_dir() {
            backed.note_absent(self.hash, &self.name, guard);
        }
    }

    /// The directory's own times have changed, and the backing may not know them.
    pub(crate) fn entries_changed(&self) {
        self.parent().set_dirty(AttrMask::MTIME | AttrMask::CTIME);
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(backed) = self.dir.inode().backed_dir() {
            // Release: what has come of it is in the cache.
            backed.changing.fetch_sub(1, Ordering::Release);
        }
    }
}

/// No change at all: of operations that are no business of a backing.
pub(crate) enum Never {}

impl Change for Never {
    type Ack = ();
    type Done = std::convert::Infallible;

    fn sb(&self) -> &Arc<SuperBlock> {
        match *self {}
    }

    fn commit(&self, _backing: &dyn Backing) -> Result<()> {
        match *self {}
    }

    fn publish(&self, (): (), _guard: &Guard, _locks: &mut Locks<'_>) -> Step<Self::Done> {
        match *self {}
    }
}
