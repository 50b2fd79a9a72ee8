//! Inodes by number, for servers: found, counted, forgotten ([`crate::objects::tables::Nodes`]).

use std::sync::{Arc, PoisonError};

use pando_sync::pin;

use crate::{DentryRef, Error, Result, Vfs, objects::tables::Pruner, operations::handle::note_number};

/// The inodes whose numbers a server has given to its clients, each with a count: FUSE's lookup
/// count (`nlookup`), or the file handles of an NFS server. Made by [`Vfs::exports`].
///
/// An inode with a count stays findable by its number, also when its last name is removed.
///
/// ```
/// use pando_memfs::{MemFs, MemOptions};
/// use pando_vfs::{At, Context, Credentials, Vfs, Walk};
///
/// let vfs = Vfs::new(MemFs::new(MemOptions::new()))?;
/// let context = Context::new(&vfs, Credentials::root());
/// let grove = vfs.mkdir(&context, At::Cwd, "/grove", 0o755)?;
/// let exports = vfs.exports();
/// exports.remember(&grove, 1)?; // the answer to a LOOKUP carries the number
/// vfs.rmdir(&context, At::Cwd, "/grove")?;
/// assert!(exports.ilookup(grove.ino()).is_some());
/// exports.forget(grove.ino(), 1); // FORGET
/// assert!(exports.ilookup(grove.ino()).is_none());
/// # Ok::<(), pando_vfs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Exports(Vfs);

impl Vfs {
    /// The inodes of this namespace that a server has given out by number. All handles of one
    /// namespace count together.
    #[must_use]
    pub fn exports(&self) -> Exports {
        Exports(self.clone())
    }
}

impl Exports {
    /// Finds an inode by a number that was given out ([`Exports::remember`]), as long as the inode
    /// has a name or a count. An inode of a tree with a backing is found only while it is counted:
    /// the backing is never asked. The call takes no lock and changes one reference count.
    ///
    /// Numbers of memory drivers are unique in the whole namespace. A backing has numbers of its
    /// own; [`Exports::remember`] refuses an inode whose number may belong to another one.
    #[must_use]
    pub fn ilookup(&self, ino: u64) -> Option<DentryRef> {
        let root = self.0.root_sb();
        let found = match root.driver.backing() {
            // Another tree may have the same number.
            Some(_) => root.nodes.get(ino, &pin()),
            None => self.0.superblocks(|sb| sb.nodes.get(ino, &pin())),
        };
        found.map(DentryRef)
    }

    /// As [`Exports::ilookup`]. If the tree has a backing that finds names by numbers
    /// ([`Backing::names_of`](crate::Backing::names_of)), it also finds an inode that has left the
    /// cache, or whose number an earlier process has given out. No permission is checked. The call
    /// may wait for the backing.
    ///
    /// # Errors
    /// ESTALE if no inode of this number is found, and those of the backing.
    pub fn find(&self, ino: u64) -> Result<DentryRef> {
        self.ilookup(ino).map_or_else(|| self.0.find_by_number(&self.0.root(), ino), Ok)
    }

    /// The identity of the root's tree, if the numbers of its inodes last
    /// ([`Backing::identity`](crate::Backing::identity)).
    #[must_use]
    pub fn identity(&self) -> Option<u64> {
        self.0.root_sb().driver.backing()?.identity()
    }

    /// The numbers that were given out and are counted.
    #[must_use]
    pub fn numbers(&self) -> Vec<u64> {
        self.0.roots().iter().flat_map(|root| root.0.sb().nodes.numbers()).collect()
    }

    /// Notes that the number of a dentry's inode was given out `lookups` times.
    /// [`Exports::ilookup`] finds it from now on. With 0 lookups, the call only checks that the
    /// number may be given out.
    ///
    /// # Errors
    /// EXDEV in a mounted tree if this tree or the root's has a backing: another inode may have the
    /// same number.
    pub fn remember(&self, dentry: &DentryRef, lookups: u64) -> Result<()> {
        let sb = dentry.0.sb();
        if !sb.is_root() && (dentry.0.inode().is_backed() || self.0.root().0.inode().is_backed()) {
            return Err(Error::CrossDevice);
        }
        if lookups > 0 {
            note_number(sb, dentry, lookups);
        }
        Ok(())
    }

    /// Takes back `lookups` of what [`Exports::remember`] has counted. When the last one is taken
    /// back, an inode without a name is released. If the cache of a tree with a backing is full,
    /// the inode leaves it. So the call may wait for the backing.
    pub fn forget(&self, ino: u64, lookups: u64) {
        let Some(left) = self.0.superblocks(|sb| sb.nodes.forget(ino, lookups)).flatten() else { return };
        // An alias holds its inode until the alias is reclaimed.
        let holds_unnamed = left.is_link() && left.inode().links.all_removed();
        let backed = left.inode().is_backed().then(|| left.inode().shard.clone());
        match &backed {
            Some(shard) if !left.is_link() => shard.sb.evict_forgotten(left),
            _ => drop(left),
        }
        if holds_unnamed {
            pando_sync::collect();
        }
        // That may have been the last use of an inode without a name, whose space the backing can
        // free now. A backing that panics once more would end the process.
        if let Some(shard) = backed.filter(|_| !std::thread::panicking()) {
            shard.sb.try_send_forgets();
        }
    }

    /// When the cache of the tree is full ([`VfsOptions::cached_inodes`]), inodes that are counted
    /// stay in it. Then the function is called with the numbers of those that nothing else uses. It
    /// asks the clients to forget them, if they do not use them either. It must not wait, nor call
    /// the tree. It is called as long as the caller keeps it.
    ///
    /// Returns false for a tree in memory, which has no cache.
    ///
    /// [`VfsOptions::cached_inodes`]: crate::VfsOptions::cached_inodes
    pub fn prune_with(&self, pruner: &Arc<Pruner>) -> bool {
        let sb = self.0.root_sb();
        let has_cache = sb.driver.backing().is_some();
        if has_cache {
            *sb.inodes.pruner.write().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(pruner);
        }
        has_cache
    }

    /// Takes all counts back: the clients are gone.
    pub fn forget_all(&self) {
        self.0.roots().iter().for_each(|root| root.0.sb().nodes.forget_all());
    }
}
