//! An entry on its way from a source to a target.

use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
};

use pando_records::{XCREATE, XCREATE_ROOT};
use pando_vfs::{Acl, Error as Errno, FileKind, Timestamp, XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT};

use crate::{Options, Result, Summary, contents::Contents};

/// The metadata of an entry.
#[derive(Debug, Clone)]
pub(crate) struct Meta {
    /// 07777.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Timestamp,
    /// Names and values of extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The kind of an entry, with its contents.
pub(crate) enum Body<'a> {
    Directory,
    /// A regular file of `size` bytes.
    File {
        size: u64,
        contents: &'a mut dyn Contents,
    },
    Symlink(&'a OsStr),
    /// Another name for an entry that came before.
    HardLink(&'a Path),
    /// A fifo, a socket or a device, with the device's number in Linux's encoding.
    Special(FileKind, u64),
}

/// A target of a copy. Paths are relative and have normal components only. The empty path is the
/// directory itself. A directory comes before its entries.
pub(crate) trait Sink {
    fn put(&mut self, path: &Path, meta: &Meta, body: Body<'_>) -> Result<()>;

    /// Whether this directory of the host, given by device and inode number, is the target.
    fn is_into(&self, dir: (u64, u64)) -> bool {
        let _ = dir;
        false
    }

    fn finish(self) -> Result<Summary>;
}

/// Whether an extended attribute is copied.
pub(crate) fn copies_xattr(name: &[u8], options: &Options) -> bool {
    // Setting one of these two would make entries.
    let is_call = name == XCREATE.as_bytes() || name == XCREATE_ROOT.as_bytes();
    !is_call && (options.privileged || name.starts_with(b"user."))
}

/// Removes the ACLs of a copy that its source lacks, by these two calls. Only the owner may use it
/// then, until its mode is set. (If the access ACL were just removed, the group would have what the
/// mask permitted.)
pub(crate) fn remove_lacked_acls(
    meta: &Meta,
    has: impl Fn(&str) -> io::Result<bool>,
    set: impl Fn(&str, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let lacks = |acl: &str| !meta.xattrs.iter().any(|(name, _)| name == acl.as_bytes());
    if lacks(XATTR_ACL_ACCESS) && has(XATTR_ACL_ACCESS)? {
        let owner_only = Acl::from_text::<Errno>("user::rwx,group::---,other::---", |_| Err(Errno::Invalid))?;
        set(XATTR_ACL_ACCESS, owner_only.as_ref().map_or(&[], Acl::as_xattr))?;
    }
    // An empty value removes it.
    if lacks(XATTR_ACL_DEFAULT) && has(XATTR_ACL_DEFAULT)? { set(XATTR_ACL_DEFAULT, &[]) } else { Ok(()) }
}

/// The first paths of files that have several names.
#[derive(Default)]
pub(crate) struct FirstNames(HashMap<(u64, u64), PathBuf>);

impl FirstNames {
    /// The path under which a file, given by device and inode number, was put first. None for a
    /// directory and for a file with one name. None, too, if this is the first of several names;
    /// `path` is noted then.
    pub(crate) fn of(&mut self, kind: FileKind, nlink: u32, file: (u64, u64), path: &Path) -> Option<&Path> {
        if kind == FileKind::Directory || nlink < 2 {
            return None;
        }
        match self.0.entry(file) {
            Entry::Occupied(first) => Some(first.into_mut()),
            Entry::Vacant(none) => {
                none.insert(path.to_owned());
                None
            }
        }
    }
}
