//! The open file description: the dentry, the flags and the position.

use std::sync::{
    OnceLock,
    atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence},
};

use pando_sync::{Position, pin};

use crate::{
    Context, DentryRef, Error, InodeFlags, Result,
    caches::{read_ahead::ListingAhead, write_back::store_times},
    handles::held::Held,
    objects::{
        file_locks::{FileLocks, Key, Owner},
        inode::Inode,
        notify,
        superblock::Namespace,
    },
    types::{FileKind, OpenFlags, cred::Writer, watch_event::WatchEvents},
};

/// An open file description, analogous to `struct file`. Threads may share it: reads and writes at
/// the shared position are atomic with respect to each other.
///
/// Dropping it closes the file. A file without a name is freed by its last close.
pub struct File {
    held: Held,
    /// [`OpenFlags`]. Atomic: a single independent value.
    flags: AtomicU32,
    pub(crate) kind: FileKind,
    /// Decides whether writes keep setuid and setgid. None if the file is not open for writing.
    /// Immutable.
    pub(crate) writer: Option<Writer>,
    /// Reads do not update atime, whatever the flags say. Immutable.
    read_only: bool,
    /// How many entries the reader of a listing took at its last call, before it had no more room;
    /// 0 if it always had. Atomic: a single independent value.
    pub(crate) taken: AtomicU16,
    /// The number by which its locks are its own. 0: it has none. Atomic: set once.
    lock_number: AtomicU64,
    /// The read-ahead of a listing that waits for the backing.
    pub(crate) ahead: OnceLock<Box<ListingAhead>>,
    /// The position that threads share: one atomic word, and a lock for reads and writes that use
    /// it.
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
    /// In a tree that was shut down, nothing else would store the latest changes of the file's
    /// times.
    #[inline]
    fn drop(&mut self) {
        if self.lock_number.load(Ordering::Relaxed) != 0 {
            self.release_locks();
        }
        let inode = self.inode();
        if inode.shard.sb.namespace.wants(WatchEvents::CLOSE) && !self.flags().contains(OpenFlags::PATH) {
            notify::closed(self.dentry().0.as_shared(), self.writer.is_some());
        }
        if self.writer.is_some() && inode.is_backed() {
            writer_closed(inode);
        }
        if inode.is_backed() && inode.has_unstored() {
            // Pairs with the fence in `shut_down`. Either the thread that shuts the tree down sees
            // that the inode is dirty, or this thread sees that the tree is closed.
            fence(Ordering::SeqCst);
            if inode.shard.sb.expect_mounted().is_err() {
                // A caller that needs the error calls `fsync` before.
                let _ = store_times(inode);
            }
        }
        if self.held.is_unlinked() {
            self.held.release_per_cpu_ref();
        }
    }
}

/// Not inlined, so that a close in memory does not pay for it.
#[cold]
fn writer_closed(inode: &Inode) {
    if let Some(backing) = inode.shard.sb.driver.backing() {
        backing.writer_closed(inode.ino);
    }
}

impl File {
    #[inline(always)]
    pub(crate) fn new(held: Held, flags: OpenFlags, context: &Context) -> Self {
        let keep = !(OpenFlags::CREAT | OpenFlags::EXCL | OpenFlags::NOCTTY | OpenFlags::TRUNC);
        let kind = held.dentry().kind();
        let writer = flags.writes().then(|| context.writer(held.dentry().0.inode()));
        let flags = AtomicU32::new((flags & keep).bits());
        Self {
            held,
            flags,
            kind,
            writer,
            read_only: context.read_only,
            taken: AtomicU16::new(0),
            lock_number: AtomicU64::new(0),
            ahead: OnceLock::new(),
            position: Position::new(0),
        }
    }

    pub(crate) fn inode(&self) -> &Inode {
        self.dentry().0.inode()
    }

    pub(crate) fn file_locks(&self) -> &FileLocks {
        let namespace: &Namespace = &self.inode().shard.sb.namespace;
        &namespace.file_locks
    }

    /// Where its locks are in the table.
    pub(crate) fn lock_key(&self) -> Key {
        (self.inode().shard.sb.id, self.inode().ino)
    }

    /// The number by which its locks are its own.
    pub(crate) fn lock_number(&self) -> u64 {
        let number = self.lock_number.load(Ordering::Relaxed);
        if number != 0 {
            return number;
        }
        let new = self.file_locks().number_file();
        match self.lock_number.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => new,
            Err(number) => number,
        }
    }

    /// Not inlined, so that a close of a file without locks does not pay for it.
    #[cold]
    fn release_locks(&self) {
        self.file_locks().release(self.lock_key(), Owner::OpenFile(self.lock_number()));
    }

    /// The dentry that is open.
    #[must_use]
    pub fn dentry(&self) -> &DentryRef {
        self.held.dentry()
    }

    /// The flags with which the file was opened, without those that matter only to open, and with
    /// later changes (F_GETFL).
    #[must_use]
    #[inline]
    pub fn flags(&self) -> OpenFlags {
        OpenFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Sets O_APPEND, O_NONBLOCK, O_DIRECT and O_NOATIME as in `flags` and ignores all others
    /// (F_SETFL). A concurrent read or write uses the old flags or the new ones.
    ///
    /// # Errors
    /// EBADF for O_PATH. EPERM if O_NOATIME is newly set and `context` does not have the rights of
    /// the owner, and if O_APPEND would change on an append-only file. EINVAL for O_DIRECT on a
    /// directory.
    pub fn set_flags(&self, context: &Context, flags: OpenFlags) -> Result<()> {
        let settable = OpenFlags::APPEND | OpenFlags::NONBLOCK | OpenFlags::DIRECT | OpenFlags::NOATIME;
        let now = self.flags();
        if now.contains(OpenFlags::PATH) {
            return Err(Error::BadHandle);
        }
        if (flags ^ now).contains(OpenFlags::APPEND) {
            self.inode().permissions(&pin()).expect_without(InodeFlags::APPEND)?;
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

    /// This file without O_APPEND, also if the file is append-only. For a server whose kernel knows
    /// where the end is, and sends each write with its position.
    #[must_use]
    pub fn without_append(self) -> Self {
        let flags = self.flags() - OpenFlags::APPEND;
        self.flags.store(flags.bits(), Ordering::Relaxed);
        self
    }

    /// Whether reads leave atime unchanged.
    pub(crate) fn no_atime(&self) -> bool {
        self.read_only || self.flags().contains(OpenFlags::NOATIME)
    }
}
