//! File handles: an inode is found again whatever happened to its names, and to the process.

use std::sync::atomic::{Ordering, fence};

use pando_sync::pin;

use crate::{
    At, Context, Credentials, DentryRef, Error, Result, Timestamp, Vfs, Walk,
    objects::{path::is_bound, superblock::SuperBlock},
};

/// The most attempts to find an inode that is renamed all the time.
const ATTEMPTS: usize = 100;
/// The deepest directory in which an inode is found by its number. Without a limit, a damaged store
/// could lead round in a circle.
const DEPTH_MAX: usize = 1 << 16;

/// Refers to an inode by 24 bytes, which stay the same when it is renamed. Analogous to `struct
/// file_handle`.
///
/// A handle is not secret and does not permit anything. A server that lets its clients choose
/// handles adds a signature, as NFS servers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    tree: u64,
    ino: u64,
    btime: i64,
}

impl FileHandle {
    /// The handle in bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.tree.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.ino.to_le_bytes());
        bytes[16..].copy_from_slice(&self.btime.to_le_bytes());
        bytes
    }

    /// The handle with these bytes. Any bytes are a handle; as a rule it is stale.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 24]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Self { tree: word(0), ino: word(8), btime: word(16).cast_signed() }
    }
}

impl Vfs {
    /// The handle of an inode. It is valid as long as the inode has a name; in a store
    /// ([`Backing::identity`](crate::Backing::identity)) also in later processes. In memory it
    /// becomes stale when a server of the tree ends
    /// ([`Exports::forget_all`](crate::Exports::forget_all)). Analogous to name_to_handle_at(2).
    ///
    /// ```
    /// use pando_memfs::{MemFs, MemOptions};
    /// use pando_vfs::{At, Context, Credentials, Error, OpenFlags, RenameFlags, Vfs};
    ///
    /// let vfs = Vfs::new(MemFs::new(MemOptions::new()))?;
    /// let root = Context::new(&vfs, Credentials::root());
    /// let file = vfs.open(&root, At::Cwd, "/file", OpenFlags::RDWR | OpenFlags::CREAT, 0o644)?;
    /// let handle = vfs.name_to_handle(file.dentry())?;
    /// drop(file);
    /// vfs.rename(&root, At::Cwd, "/file", At::Cwd, "/moved", RenameFlags::empty())?;
    /// let found = vfs.find_by_handle(&root, handle)?;
    /// assert_eq!(vfs.d_path(&root, &found, 100)?, b"/moved");
    /// let _open = vfs.open_dentry(&root, &found, OpenFlags::RDONLY)?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// EOPNOTSUPP in a tree with a backing that does not find inodes by their numbers.
    pub fn name_to_handle(&self, dentry: &DentryRef) -> Result<FileHandle> {
        let sb = dentry.0.sb();
        match sb.driver.backing() {
            Some(backing) => drop(backing.identity().ok_or(Error::NotSupported)?),
            None => {
                note_number(sb, dentry, 1);
                drop(sb.nodes.forget(dentry.ino(), 1));
            }
        }
        let stat = dentry.stat();
        Ok(FileHandle { tree: sb.identity, ino: stat.ino, btime: stat.btime.0 })
    }

    /// The inode of a handle. With [`Vfs::open_dentry`], this is open_by_handle_at(2). In memory,
    /// the path of a file that has lost one of several names may be the lost one. May wait for the
    /// backing.
    ///
    /// # Errors
    /// EPERM if the caller has no capabilities: permissions of the directories on the way are not
    /// checked. ESTALE if the handle is none of this namespace's trees, or the inode has no name
    /// any more. EIO if directories lead round in a circle. Those of the backing.
    pub fn find_by_handle(&self, context: &Context, handle: FileHandle) -> Result<DentryRef> {
        if !context.capable() {
            return Err(Error::NotPermitted);
        }
        let root = self.roots().into_iter().find(|root| root.0.sb().identity == handle.tree).ok_or(Error::Stale)?;
        let found = self.find_by_number(&root, handle.ino)?;
        if found.stat().btime == Timestamp(handle.btime) { Ok(found) } else { Err(Error::Stale) }
    }

    /// An inode of the tree with this root. No permission is checked.
    ///
    /// # Errors
    /// ESTALE if there is none, or the backing does not find inodes by their numbers. Those of the
    /// backing.
    pub(crate) fn find_by_number(&self, root: &DentryRef, ino: u64) -> Result<DentryRef> {
        if ino == root.ino() {
            return Ok(root.clone());
        }
        let sb = root.0.sb();
        match sb.driver.backing() {
            None => return sb.nodes.get(ino, &pin()).map(DentryRef).ok_or(Error::Stale),
            Some(backing) if backing.identity().is_none() => return Err(Error::Stale),
            Some(_) => {}
        }
        for _ in 0..ATTEMPTS {
            if let Some(found) = self.find_by_names(root, ino)? {
                return Ok(found);
            }
            std::thread::yield_now();
        }
        Err(Error::Stale)
    }

    /// Walks from the nearest directory that is cached to an inode of a tree with a backing. None
    /// if something on the way was renamed meanwhile.
    fn find_by_names(&self, root: &DentryRef, ino: u64) -> Result<Option<DentryRef>> {
        let sb = root.0.sb();
        let (mut way, mut at) = (Vec::new(), ino);
        let mut dentry = loop {
            if at == root.ino() {
                break root.clone();
            }
            if let Some(found) = cached(sb, at) {
                break found;
            }
            let mut name = None;
            let backing = sb.ask_backing().ok_or(Error::Stale)?;
            match backing.names_of(at, &mut |dir, found| name = Some((dir, found.to_owned()))) {
                // A directory that was on the way when its entry was found.
                Err(Error::Stale) if !way.is_empty() => return Ok(None),
                named => named?,
            }
            let Some((dir, name)) = name else { return Ok(None) };
            way.push(name);
            if way.len() > DEPTH_MAX {
                return Err(Error::Io);
            }
            at = dir;
        };
        let context = Context::new(self, Credentials::root());
        for name in way.iter().rev() {
            dentry = match self.lookup_at(&context, At::Dir(&dentry), name, Walk::NOFOLLOW) {
                Err(Error::NoEntry | Error::NotDirectory | Error::Stale) => return Ok(None),
                found => found?,
            };
        }
        let is_it = dentry.ino() == ino && std::ptr::eq(dentry.0.sb(), sb);
        Ok(is_it.then_some(dentry))
    }
}

/// The first dentry of an inode that is cached. None if that one has lost its name: another name
/// may lead to the inode.
fn cached(sb: &SuperBlock, ino: u64) -> Option<DentryRef> {
    let guard = pin();
    sb.inodes.get(ino, &guard).filter(|found| is_bound(found.as_shared(), &guard)).map(DentryRef)
}

/// Counts an inode so often. It is found by its number as long as it is counted; in memory, as long
/// as it has a name.
pub(crate) fn note_number(sb: &SuperBlock, dentry: &DentryRef, times: u64) {
    if sb.nodes.remember(&dentry.0, times) {
        // A thread that unmounts the tree closes the superblock and then forgets all numbers.
        // Either it sees this entry, or this thread sees that the superblock is closed.
        fence(Ordering::SeqCst);
        if sb.expect_mounted().is_err() {
            sb.nodes.forget_all();
        }
    }
}
