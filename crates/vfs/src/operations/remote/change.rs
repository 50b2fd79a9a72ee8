//! A change that is committed in a backing and then published in the cache.

use std::sync::Arc;

use pando_sync::{Counted, Guard, Shared, pin};

use crate::{
    AttrMask, Backing, Error, Result,
    caches::binding::{change_count, inode_report_count, read_again, unbind_stale},
    objects::{
        dentry::{Dentry, ParentRef},
        directory::Directory,
        inode::Inode,
        superblock::SuperBlock,
    },
    operations::{
        locks::Locks,
        make::parent_ref_in,
        parent::Parent,
        step::{Step, Stop},
    },
};

/// A change that is permitted and whose names are locked. It holds its directories, wherever their
/// paths may lead by now.
pub(crate) trait PreparedChange {
    /// The acknowledgement of the backing.
    type Ack;
    /// The result of the operation.
    type Done;

    /// The tree that changes.
    fn sb(&self) -> &Arc<SuperBlock>;

    /// Commits the change to the backing. The caller holds the locks of the change and no guard.
    ///
    /// # Errors
    /// A change that the backing refuses has not happened.
    fn commit(&self, backing: &dyn Backing) -> Result<Self::Ack>;

    /// Updates the cache after the backing has refused: the error may say that the cache is out of
    /// date.
    fn refused(&self, error: Error, guard: &Guard) {
        let _ = (error, guard);
    }

    /// Publishes in the cache what the backing has committed. On [`Stop::Again`] it is called
    /// again.
    ///
    /// # Errors
    /// Those of the cache alone, for example if the directory is gone.
    fn publish(&self, ack: &Self::Ack, guard: &Guard, locks: &mut Locks<'_>) -> Step<Self::Done>;
}

/// Commits a change, and publishes it. The caller holds the locks and no guard.
pub(crate) fn carry_out<C: PreparedChange>(change: &C, locks: &mut Locks<'_>) -> Step<C::Done> {
    let backing = change.sb().ask_backing().ok_or(Error::NotSupported)?;
    let ack = change.commit(backing).inspect_err(|error| change.refused(*error, &pin()))?;
    loop {
        match change.publish(&ack, &pin(), locks) {
            // Another thread is changing the same entry, and may need the CPU.
            Err(Stop::Again) => std::thread::yield_now(),
            done => return done,
        }
    }
}

/// A name in a directory of a backed tree that an operation is changing. It holds the directory,
/// and marks it as changing ([`BackedDir::begin_change`]) until it is dropped.
///
/// [`BackedDir::begin_change`]: crate::objects::backed_dir::BackedDir::begin_change
pub(crate) struct ChangingName {
    /// Through a striped parent reference, so that threads do not count on one line.
    parent_ref: Counted<ParentRef>,
    pub name: Box<[u8]>,
    pub hash: u64,
    /// The number of reports that concerned the directory before the commit.
    reports: u64,
    /// The number of reports of inodes before the commit.
    pub inode_reports: u64,
}

impl ChangingName {
    pub(crate) fn new(place: &Parent<'_>, name: &[u8], guard: &Guard) -> Step<Self> {
        let parent_ref = parent_ref_in(place.dir, guard)?;
        let dir = &parent_ref.dir;
        if let Some(backed) = dir.inode().backed_dir() {
            backed.begin_change();
        }
        let (reports, inode_reports) = (change_count(dir.sb(), dir.inode().ino), inode_report_count(dir.sb()));
        Ok(Self { parent_ref, name: name.into(), hash: place.hash_of(name), reports, inode_reports })
    }

    pub(crate) fn parent(&self) -> &Inode {
        self.parent_ref.dir.inode()
    }

    pub(crate) fn directory(&self) -> Result<&Directory> {
        self.parent_ref.dir.directory()
    }

    pub(crate) fn dir<'g>(&'g self, guard: &'g Guard) -> Shared<'g, Dentry> {
        self.parent_ref.dir.share(guard)
    }

    /// If others have already made the name, forgets the negative dentry, so that the next look-up
    /// asks the backing.
    pub(crate) fn note_refusal(&self, error: Error, guard: &Guard) {
        if error == Error::Exists {
            self.remove_negative(guard);
        }
    }

    /// Removes the binding of the name from the cache: the backing says that the name is free.
    pub(crate) fn unbind_stale(&self, guard: &Guard) -> Result<()> {
        unbind_stale(self.directory()?, self.hash, &self.name, guard);
        Ok(())
    }

    /// Removes the negative dentry of the name, which is bound now. The caller holds its lock.
    pub(crate) fn remove_negative(&self, guard: &Guard) {
        if let Some(backed) = self.parent().backed_dir() {
            backed.remove_negative(self.hash, &self.name, guard);
        }
    }

    /// Adds a negative dentry for the name, which is gone now. The caller holds its lock.
    pub(crate) fn insert_negative(&self, guard: &Guard) {
        if let Some(backed) = self.parent().backed_dir() {
            backed.insert_negative(self.hash, &self.name, guard);
        }
    }

    /// Whether others have changed the directory since before the commit.
    pub(crate) fn was_reported(&self) -> bool {
        change_count(&self.parent().shard.sb, self.parent().ino) != self.reports
    }

    /// Makes the next walk request again what is cached of the directory.
    pub(crate) fn report(&self) {
        read_again(self.parent());
    }

    /// Marks the directory's times as dirty: they have changed, and the backing may not know them.
    /// Called before the change is published, so that no thread sees it with the times from before,
    /// and again after that, when the cached times have changed, too.
    pub(crate) fn entries_changed(&self) {
        self.parent().set_dirty(AttrMask::MTIME | AttrMask::CTIME);
    }
}

impl Drop for ChangingName {
    fn drop(&mut self) {
        // Another thread may have read the directory again after that report and before this change
        // was published. The published state may be older than the report.
        if self.was_reported() {
            self.report();
        }
        if let Some(backed) = self.parent().backed_dir() {
            backed.end_change();
        }
    }
}

/// No change at all, for operations that never concern a backing.
pub(crate) enum Never {}

impl PreparedChange for Never {
    type Ack = ();
    type Done = std::convert::Infallible;

    fn sb(&self) -> &Arc<SuperBlock> {
        match *self {}
    }

    fn commit(&self, _backing: &dyn Backing) -> Result<()> {
        match *self {}
    }

    fn publish(&self, (): &(), _guard: &Guard, _locks: &mut Locks<'_>) -> Step<Self::Done> {
        match *self {}
    }
}
