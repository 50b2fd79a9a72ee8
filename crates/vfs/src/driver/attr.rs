//! The attributes of an inode, as a backing stores them.

use std::sync::Arc;

use bitflags::bitflags;

use crate::types::{
    FileKind, InodeFlags, Timestamp,
    acl::{Acl, Acls},
};

/// The attributes of an inode in a backing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeAttr {
    /// The inode number in the backing. The backing does not reuse it before
    /// [`Backing::forget`](crate::Backing::forget).
    pub ino: u64,
    /// The kind of file.
    pub kind: FileKind,
    /// The permission bits (07777).
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of hard links.
    pub nlink: u32,
    /// The size in bytes.
    pub size: u64,
    /// The occupied space in units of 512 bytes.
    pub blocks: u64,
    /// The device of a device node; otherwise 0.
    pub rdev: u32,
    /// The last access.
    pub atime: Timestamp,
    /// The last change of the contents.
    pub mtime: Timestamp,
    /// The last change of the contents or the attributes.
    pub ctime: Timestamp,
    /// The creation.
    pub btime: Timestamp,
    /// The target of a symbolic link; empty for other files.
    pub target: Box<[u8]>,
    /// The flags, if the store keeps them ([`Backing::keeps_flags`](crate::Backing::keeps_flags)).
    pub flags: InodeFlags,
    /// The ACLs, if there are any and the namespace checks them ([`AclSupport::Namespace`]).
    ///
    /// [`AclSupport::Namespace`]: crate::AclSupport::Namespace
    pub acls: Option<Arc<Acls>>,
}

impl NodeAttr {
    /// The attributes of an empty inode with one name (a directory: two), owned by root, whose
    /// times are all `now`. The fields are public.
    #[must_use]
    pub fn new(ino: u64, kind: FileKind, mode: u32, now: Timestamp) -> Self {
        Self {
            ino,
            kind,
            mode,
            uid: 0,
            gid: 0,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            size: 0,
            blocks: 0,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            target: Box::default(),
            flags: InodeFlags::empty(),
            acls: None,
        }
    }

    /// Replaces the attributes in `meant` by those of `from`.
    pub fn assign(&mut self, from: &Self, meant: AttrMask) {
        fn set<T: Copy>(to: &mut T, from: T, meant: bool) {
            *to = if meant { from } else { *to };
        }
        set(&mut self.mode, from.mode, meant.contains(AttrMask::MODE));
        set(&mut self.uid, from.uid, meant.contains(AttrMask::UID));
        set(&mut self.gid, from.gid, meant.contains(AttrMask::GID));
        set(&mut self.atime, from.atime, meant.contains(AttrMask::ATIME));
        set(&mut self.mtime, from.mtime, meant.contains(AttrMask::MTIME));
        set(&mut self.ctime, from.ctime, meant.contains(AttrMask::CTIME));
        set(&mut self.flags, from.flags, meant.contains(AttrMask::FLAGS));
        if meant.contains(AttrMask::ACLS) {
            self.acls.clone_from(&from.acls);
        }
    }

    /// Makes the ACLs fit the kind and the mode, as a chmod does: only a directory has a default
    /// one, and an access ACL says more than the mode and nothing else. Returns whether they did
    /// not fit.
    pub fn fit_acls(&mut self) -> bool {
        let Some(acls) = &self.acls else { return false };
        let Acls { access, default } = Acls::clone(acls);
        let fitting = Acls {
            access: access
                .filter(|_| self.kind != FileKind::Symlink)
                .map(|acl| acl.after_chmod(self.mode))
                .filter(Acl::is_extended),
            default: default.filter(|_| self.kind == FileKind::Directory),
        };
        let fit = fitting == **acls && !fitting.is_empty();
        if !fit {
            self.acls = (!fitting.is_empty()).then(|| Arc::new(fitting));
        }
        !fit
    }
}

bitflags! {
    /// A set of attributes of a [`NodeAttr`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AttrMask: u8 {
        /// [`NodeAttr::mode`].
        const MODE = 1;
        /// [`NodeAttr::uid`].
        const UID = 2;
        /// [`NodeAttr::gid`].
        const GID = 4;
        /// [`NodeAttr::atime`].
        const ATIME = 8;
        /// [`NodeAttr::mtime`].
        const MTIME = 16;
        /// [`NodeAttr::ctime`].
        const CTIME = 32;
        /// [`NodeAttr::acls`].
        const ACLS = 64;
        /// [`NodeAttr::flags`].
        const FLAGS = 128;
    }
}
