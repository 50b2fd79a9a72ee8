//! The flags of inodes: lsattr, chattr, and the same in the numbers of XFS.

use pando_vfs::{DentryRef, Error, InodeFlags, Result, SetAttr};
use tracing::warn;

use super::{Caller, Server};
use crate::wire::abi::FsXattr;

/// The flags and their numbers in `fsxattr` (`FS_XFLAG_*`).
const XFLAGS: [(InodeFlags, u32); 4] = [
    (InodeFlags::IMMUTABLE, 0x08),
    (InodeFlags::APPEND, 0x10),
    (InodeFlags::NOATIME, 0x40),
    (InodeFlags::NODUMP, 0x80),
];

impl Server {
    /// The flags of `node`.
    ///
    /// # Errors
    /// ENOTTY in a tree without flags, and if the kernel is too old; see [`Server`].
    pub fn inode_flags(&self, node: u64) -> Result<InodeFlags> {
        self.guarded("inode flags", || {
            let dentry = self.flagged(node)?;
            self.vfs.getattr(&dentry)?.flags.ok_or(Error::NotTty)
        })
    }

    /// Changes the flags of `node`. The kernel has checked that the caller may do this.
    ///
    /// # Errors
    /// EOPNOTSUPP for other flags and in a tree without flags, ENOTTY if the kernel is too old; see
    /// [`Server`].
    pub fn set_inode_flags(&self, caller: Caller, node: u64, flags: InodeFlags) -> Result<()> {
        self.guarded("inode flags", || {
            let dentry = self.flagged(node)?;
            self.vfs.setattr(&self.context(caller, 0), &dentry, &SetAttr::new().flags(flags))?;
            // The kernel does not know that ctime has changed.
            if let Err(error) = self.invalidate(node, -1) {
                warn!(%error, node, "the kernel may show an old ctime");
            }
            Ok(())
        })
    }

    /// A node whose flags may be read and changed. An older kernel would not check who changes
    /// them.
    fn flagged(&self, node: u64) -> Result<DentryRef> {
        if !self.kernel_checks_flags {
            return Err(Error::NotTty);
        }
        let dentry = self.nodes.get(node)?;
        self.see_changes(&dentry)?;
        Ok(dentry)
    }
}

/// Whether an inode has one of these flags.
pub(super) fn has_flag(dentry: &DentryRef, flags: InodeFlags) -> bool {
    dentry.stat().flags.is_some_and(|has| has.intersects(flags))
}

impl From<InodeFlags> for FsXattr {
    fn from(flags: InodeFlags) -> Self {
        let set = XFLAGS.iter().filter(|(flag, _)| flags.contains(*flag));
        Self { xflags: set.map(|(_, number)| number).sum(), ..Self::default() }
    }
}

impl TryFrom<FsXattr> for InodeFlags {
    type Error = Error;

    /// EOPNOTSUPP for anything else than the flags, which is what tmpfs says.
    fn try_from(attr: FsXattr) -> Result<Self> {
        let set = XFLAGS.iter().filter(|(_, number)| attr.xflags & number != 0);
        let flags = set.fold(Self::empty(), |flags, (flag, _)| flags | *flag);
        let others = attr.xflags & !FsXattr::from(flags).xflags;
        let is_plain = [others, attr.extent_size, attr.project, attr.cow_extent_size] == [0; 4];
        if is_plain { Ok(flags) } else { Err(Error::NotSupported) }
    }
}
