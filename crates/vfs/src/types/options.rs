//! Options of a new namespace.

use crate::types::DirectoryLocks;

/// Options of a new [`Vfs`](crate::Vfs).
///
/// ```
/// use pando_vfs::VfsOptions;
///
/// let options = VfsOptions::new().owner(1000, 1000).mode(0o700);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct VfsOptions {
    /// The owner of the root directory. A driver with a [`Backing`](crate::Backing) stores the
    /// attributes of its root, and this is not used.
    pub uid: u32,
    /// The group of the root directory; as for `uid`.
    pub gid: u32,
    /// The permission bits of the root directory (07777); as for `uid`.
    pub mode: u32,
    /// How changes of names in one directory exclude each other, in all trees of the namespace.
    pub directory_locks: DirectoryLocks,
    /// Whether listings with attributes, and look-ups after a listing, read ahead when they have to
    /// wait, in a tree with a backing.
    pub read_ahead: bool,
    /// The most inodes that each tree with a backing keeps cached for later. Inodes in use do not
    /// leave the cache.
    pub cached_inodes: usize,
    /// The most bytes that the cached inodes of each such tree take, their extended attributes
    /// included. An estimate.
    pub cached_bytes: usize,
    /// See [`crate::introspection::vfs_with_hash_key`].
    pub(crate) hash_key: Option<(u64, u64)>,
}

impl Default for VfsOptions {
    fn default() -> Self {
        Self {
            uid: 0,
            gid: 0,
            mode: 0o755,
            directory_locks: DirectoryLocks::default(),
            read_ahead: true,
            cached_inodes: 100_000,
            cached_bytes: 256 << 20,
            hash_key: None,
        }
    }
}

impl VfsOptions {
    /// A root directory that is owned by root and has mode 0755; a lock for each name; 100,000
    /// cached inodes and 256 MiB in each tree with a backing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`VfsOptions::uid`] and [`VfsOptions::gid`].
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    /// Sets [`VfsOptions::mode`].
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Sets [`VfsOptions::read_ahead`].
    pub fn read_ahead(mut self, read_ahead: bool) -> Self {
        self.read_ahead = read_ahead;
        self
    }

    /// Sets [`VfsOptions::cached_inodes`].
    pub fn cached_inodes(mut self, inodes: usize) -> Self {
        self.cached_inodes = inodes;
        self
    }

    /// Sets [`VfsOptions::cached_bytes`].
    pub fn cached_bytes(mut self, bytes: usize) -> Self {
        self.cached_bytes = bytes;
        self
    }

    /// Sets [`VfsOptions::directory_locks`].
    pub fn directory_locks(mut self, directory_locks: DirectoryLocks) -> Self {
        self.directory_locks = directory_locks;
        self
    }
}
