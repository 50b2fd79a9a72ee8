//! Read-ahead of a directory on request.
//!
//! After `dirreadahead`, a system call that Abhijith Das proposed ("dirreadahead system call",
//! linux-fsdevel, 2014).

use pando_records::Mask;
use pando_sync::pin;

use crate::{
    Context, File, ReadAhead, Result,
    caches::read_ahead::Job,
    operations::{batch::AFTER_DOTDOT, xgetdents::PARTS},
    types::Access,
};

impl File {
    /// Starts to load the entries after `cookie` into the cache, `entries` at most, and what `mask`
    /// names of them. The inodes are loaded with any mask; extended attributes if it contains
    /// [`Mask::XATTR_NAMES`] or [`Mask::XATTR_VALUES`]. The call returns at once. A tree in memory
    /// has nothing to load.
    ///
    /// Threads, which end with the read-ahead, ask the driver for many names at once, in the order
    /// of the inode numbers. How many calls are in flight is found by trial, 64 at most in a tree,
    /// and half as many while other operations wait for the driver. A walk that wants a name that
    /// is being loaded waits for that call. A read-ahead never changes a result: an entry that
    /// cannot be loaded is left to the operation that wants it.
    ///
    /// ```
    /// # use pando_memfs::{MemFs, MemOptions};
    /// # use pando_vfs::{At, Context, Credentials, OpenFlags, Vfs, records::Mask};
    /// # let vfs = Vfs::new(MemFs::new(MemOptions::default()))?;
    /// # let context = Context::new(&vfs, Credentials::root());
    /// let dir = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0)?;
    /// let ahead = dir.readahead(&context, 0, usize::MAX, Mask::STAT)?;
    /// // ... work on the first entries, and then:
    /// let progress = ahead.wait()?;
    /// assert_eq!(progress.done, progress.listed);
    /// # Ok::<(), pando_vfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// EINVAL for a cookie beyond 2^63 - 1 and for parts that a tree does not have, EBADF if not
    /// open for reading, ENOTDIR, ENOENT if the directory was removed, EACCES if `context` may not
    /// search it, EAGAIN if no thread can be started or 64 read ahead in the tree already, and
    /// ESTALE if the tree was unmounted.
    pub fn readahead(&self, context: &Context, cookie: u64, entries: usize, mask: Mask) -> Result<ReadAhead> {
        self.expect_listable(cookie)?;
        if !PARTS.contains(mask) {
            return Err(crate::Error::Invalid);
        }
        {
            let guard = pin();
            // Not from the start: that would be an access.
            let (inode, _) = self.listed(cookie.max(AFTER_DOTDOT), &guard)?;
            context.check(inode, Access::EXEC, &guard)?;
        }
        let dir = &self.dentry().0;
        if entries == 0 || !dir.inode().is_backed() {
            return Ok(ReadAhead(None));
        }
        let cookie = if cookie <= AFTER_DOTDOT { 0 } else { cookie };
        Job::start(dir.clone(), cookie, entries, mask).map(|job| ReadAhead(Some(job)))
    }
}
