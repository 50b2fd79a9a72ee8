//! Inodes by number, for servers: found, counted, and forgotten ([`crate::objects::tables::Nodes`]).

use std::sync::atomic::{Ordering, fence};

use pando_sync::pin;

use crate::{DentryRef, Error, Result, Vfs};

impl Vfs {
    /// The inode of a number that was handed out ([`Vfs::remember`]), also if it was forgotten since, as
    /// long as it has a name or a count. An inode of a backing is found only while it is counted. The call
    /// takes no lock and changes one count.
    ///
    /// Numbers of memory drivers are unique in the whole name space; a backing brings numbers of its own. What may have the
    /// number of something else [`Vfs::remember`] refuses.
    #[must_use]
    pub fn iget(&self, ino: u64) -> Option<DentryRef> {
        self.superblocks(|sb| sb.nodes.get(ino, &pin())).map(DentryRef)
    }

    /// Says that the number of a dentry's inode was handed out `lookups` times: it can be found by it from now on. None at all
    /// asks whether it may be handed out.
    ///
    /// # Errors
    /// EXDEV in a mounted tree, if it or the root's has a backing: something else may have the same number.
    pub fn remember(&self, dentry: &DentryRef, lookups: u64) -> Result<()> {
        let sb = dentry.0.sb();
        if !sb.is_root() && (dentry.0.inode().is_backed() || self.root().0.inode().is_backed()) {
            return Err(Error::CrossDevice);
        }
        if lookups > 0 && sb.nodes.remember(&dentry.0, lookups) {
            // Who takes a tree down closes it, and then forgets all: he sees the entry, or it is seen here that he was before.
            fence(Ordering::SeqCst);
            if sb.expect_open().is_err() {
                sb.nodes.forget_all();
            }
        }
        Ok(())
    }

    /// Takes back `lookups` of what [`Vfs::remember`] counted. With the last one, an inode without a name
    /// is released.
    pub fn forget(&self, ino: u64, lookups: u64) {
        if self.superblocks(|sb| sb.nodes.forget(ino, lookups)) == Some(true) {
            pando_sync::collect();
        }
    }

    /// Takes everything back: whoever knew numbers is gone.
    pub fn forget_all(&self) {
        self.roots().iter().for_each(|root| root.0.sb().nodes.forget_all());
    }
}
