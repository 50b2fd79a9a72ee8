//! A change of a tree that is stored elsewhere, as data.

use crate::{
    Error,
    driver::attr::{AttrMask, NodeAttr},
    types::RenameFlags,
};

/// A change that [`Backing::commit`](super::Backing::commit) makes, as a whole or not at all. A
/// backing refuses a change that it does not know with [`Error::NotSupported`].
///
/// The backing updates the link counts. The namespace stores the times that a change causes, with
/// [`Change::SetAttr`], perhaps much later.
///
/// Inodes are given by their numbers in the backing. A removal and a rename have a name, and the
/// inode that the namespace knows by it. If others have bound the name to another inode since, the
/// backing changes what the name leads to now. It does not fail for that reason.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Change<'a> {
    /// Makes an inode and its first name. `attr` is complete except for the inode number, which the
    /// backing chooses, and the space that it occupies ([`Ack::Made`]).
    ///
    /// EEXIST if another user of the store has made the name first.
    Create {
        /// The directory of the name.
        dir: u64,
        /// The name.
        name: &'a [u8],
        /// The attributes of the inode. The umask has been applied to the mode.
        attr: &'a NodeAttr,
        /// The permission bits that the umask has cleared. If the store has ACLs of its own
        /// ([`AclSupport::Store`](crate::AclSupport::Store)), a default ACL of the directory
        /// replaces the umask.
        umasked: u32,
    },
    /// Makes a regular file without a name (O_TMPFILE), on the store of a directory. `attr` and
    /// `umasked` are as in [`Change::Create`]. The file goes with
    /// [`Backing::forget`](super::Backing::forget), unless a [`Change::Link`] has given it a name.
    ///
    /// ENOENT if the directory is gone.
    CreateAnonymous {
        /// The directory.
        dir: u64,
        /// The attributes of the inode.
        attr: &'a NodeAttr,
        /// The permission bits that the umask has cleared.
        umasked: u32,
    },
    /// Makes a hard link to an inode, which may be one that has had no name yet.
    ///
    /// EEXIST, ENOENT.
    Link {
        /// The inode.
        ino: u64,
        /// The directory of the new name.
        dir: u64,
        /// The new name.
        name: &'a [u8],
    },
    /// Removes a name. A directory must be empty. An inode without names is kept until
    /// [`Backing::forget`](super::Backing::forget).
    ///
    /// ENOTEMPTY, ENOENT.
    Remove {
        /// The directory of the name.
        dir: u64,
        /// The name.
        name: &'a [u8],
        /// The inode that the namespace knows by this name.
        ino: u64,
    },
    /// Renames a name, and replaces the target if it exists. EXCHANGE exchanges the two names. With
    /// NOREPLACE the backing fails with EEXIST if the target exists, since the cache may not know
    /// it. A replaced inode without names is kept until
    /// [`Backing::forget`](super::Backing::forget). The two names never lead to one inode, as far
    /// as the namespace knows.
    ///
    /// EEXIST, ENOTEMPTY, ENOENT, ENOTDIR, EISDIR, EINVAL for a flag that the backing does not
    /// have, ENOSPC for a whiteout.
    Rename {
        /// The directory and the old name.
        from: (u64, &'a [u8]),
        /// The directory and the new name.
        to: (u64, &'a [u8]),
        /// EXCHANGE, or NOREPLACE, WHITEOUT or both.
        flags: RenameFlags,
        /// The inode that the namespace knows by the old name.
        ino: u64,
        /// The inode that the namespace knows by the new name, if any.
        target: Option<u64>,
        /// With WHITEOUT: the attributes of the character device 0/0 that takes the old name, as in
        /// [`Change::Create`]. A backing that cannot make the rename and the whiteout as one change
        /// refuses with EINVAL.
        whiteout: Option<&'a NodeAttr>,
    },
    /// Stores the attributes of an inode that are in `meant`. The others must stay: another user of
    /// the store may have changed them.
    SetAttr {
        /// The inode.
        ino: u64,
        /// All attributes that the namespace knows.
        attr: &'a NodeAttr,
        /// The attributes to be stored.
        meant: AttrMask,
    },
    /// Sets an extended attribute, or removes it if `value` is none (ENODATA if there is none).
    SetXattr {
        /// The inode.
        ino: u64,
        /// The name of the attribute, with its prefix, such as `user.`.
        name: &'a [u8],
        /// The new value.
        value: Option<&'a [u8]>,
    },
}

/// The acknowledgement of a [`Change`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ack {
    /// The change was made. It need not be durable before [`Driver::sync`](super::Driver::sync).
    Done,
    /// [`Change::Create`] or [`Change::CreateAnonymous`] was made. The attributes of the new inode.
    Made(NodeAttr),
}

/// Why a [`Change`] was not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitError {
    /// The change was not made, and will not be made.
    Refused(Error),
    /// The change was made, or it will never be made, and the backing does not know which: a
    /// connection broke, for example. Calls that follow see one or the other. If the request may
    /// still be carried out, the backing first waits until it cannot be.
    ///
    /// The namespace asks for the state before it answers the caller. If the change is in effect,
    /// the operation has succeeded. Otherwise it has failed with EIO. The inode of a
    /// [`Change::Create`] is recognized by kind, device number, owner, mode and btime, and changed
    /// attributes by their values. So a backing that answers this stores them exactly. A file
    /// without a name cannot be found again: its creation has failed.
    Unknown,
}

impl From<Error> for CommitError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}
