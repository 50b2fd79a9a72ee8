//! The open file description: what is open, how, and where it stands.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use pando_sync::{Position, pin};

use crate::{
    Context, DentryRef, Error, Result,
    caches::write_back::store_times,
    handles::held::Held,
    objects::inode::Inode,
    types::{FileKind, OpenFlags, cred::Writer},
};

/// An open file description. Threads may share it: reads and writes with its position are atomic against each other.
///
/// Dropping it closes it; a file without a name goes then.
pub struct File {
    held: Held,
    /// [`OpenFlags`]. Atomic: a single independent value.
    flags: AtomicU32,
    pub(crate) kind: FileKind,
    /// Decides whether writes keep setuid and setgid. Of a handle that does not write, it means nothing.
    pub(crate) writer: Writer,
    /// Reading leaves no time of access, whatever the flags say.
    read_only: bool,
    pub(crate) position: Position,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File")
            .field("dentry", self.dentry())
            .field("flags", &self.flags())
            .field("position", &self.position)
            .finish()
    }
}

impl Drop for File {
    /// Of a tree that was taken down, nobody else would store what was done to the file since.
    #[inline]
    fn drop(&mut self) {
        let inode = self.inode();
        if !inode.dirty().is_empty() {
            // With the other one, in `close_down`: who closes the tree sees it dirty, or is seen here.
            fence(Ordering::SeqCst);
            if inode.shard.sb.expect_open().is_err() {
                // Whoever wants to hear of errors calls `fsync` before.
                let _ = store_times(inode);
            }
        }
        if self.held.outlives_name() {
            self.held.leave_proxy();
        }
    }
}

impl File {
    #[inline]
    pub(crate) fn new(held: Held, flags: OpenFlags, context: &Context) -> Self {
        let keep = !(OpenFlags::CREAT | OpenFlags::EXCL | OpenFlags::NOCTTY | OpenFlags::TRUNC);
        let kind = held.dentry().kind();
        let writer = context.writer(held.dentry().0.inode());
        let flags = AtomicU32::new((flags & keep).bits());
        Self { held, flags, kind, writer, read_only: context.read_only, position: Position::new(0) }
    }

    pub(crate) fn inode(&self) -> &Inode {
        self.dentry().0.inode()
    }

    /// What is open.
    #[must_use]
    pub fn dentry(&self) -> &DentryRef {
        self.held.dentry()
    }

    /// How it was opened, without the flags that only the opening needs; and what was set since (F_GETFL).
    #[must_use]
    #[inline]
    pub fn flags(&self) -> OpenFlags {
        OpenFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Sets O_APPEND, O_NONBLOCK, O_DIRECT and O_NOATIME as in `flags`, of which all others are ignored (F_SETFL). What is read
    /// or written meanwhile is so under the old ones or the new.
    ///
    /// # Errors
    /// EBADF for O_PATH, EPERM for O_NOATIME anew if `context` has not the rights of the owner, EINVAL for O_DIRECT of a
    /// directory.
    pub fn set_flags(&self, context: &Context, flags: OpenFlags) -> Result<()> {
        let settable = OpenFlags::APPEND | OpenFlags::NONBLOCK | OpenFlags::DIRECT | OpenFlags::NOATIME;
        let now = self.flags();
        if now.contains(OpenFlags::PATH) {
            return Err(Error::BadHandle);
        }
        if (flags - now).contains(OpenFlags::NOATIME) && !context.owns(&self.inode().perm(&pin())) {
            return Err(Error::NotPermitted);
        }
        if flags.contains(OpenFlags::DIRECT) && self.kind == FileKind::Directory {
            return Err(Error::Invalid);
        }
        self.flags.store(((now - settable) | (flags & settable)).bits(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether reading leaves no time of access.
    pub(crate) fn no_atime(&self) -> bool {
        self.read_only || self.flags().contains(OpenFlags::NOATIME)
    }
}
