//! The paths on the command line and their attributes, read one by one.

use std::{borrow::Cow, ffi::CStr, io, os::unix::ffi::OsStrExt, path::Path};

use pando_records::{Attr, BulkXattr, FileKind, Mask, XattrValue};
use pando_scan::attributes;
use rustix::io::Errno;

use crate::{
    entry::{Entry, EntryXattrs, LinkEnd, encode_xattr, order::Sorted},
    options::choices::Follows,
    plan::Plan,
    text::values::Indicators,
};

/// A path on the command line.
pub struct Argument<'a> {
    /// The path as it was given.
    pub path: &'a Path,
    attr: Attr,
    /// The path is a link, and the attributes are those of its target.
    followed: bool,
    target: Option<Vec<u8>>,
    link_end: LinkEnd,
    xattrs: Vec<u8>,
    xattr_errno: Option<i32>,
    target_errno: Option<i32>,
}

impl<'a> Argument<'a> {
    /// Reads the attributes of a path. By default, and without -l, -d and -F, links to directories
    /// are followed.
    ///
    /// # Errors
    /// As statx(2).
    pub fn new(path: &'a Path, plan: &Plan) -> io::Result<Self> {
        let shows_links = plan.directory || plan.indicators == Indicators::Classify || plan.long;
        let follows = plan.follows.or((!shows_links).then_some(Follows::ArgumentDirectories));
        let (attr, followed) = match (follows, follows.map(|_| attributes(path, true))) {
            (Some(Follows::ArgumentDirectories), Some(Ok(attr))) if attr.kind() == Some(FileKind::Directory) => {
                (attr, true)
            }
            (Some(Follows::ArgumentDirectories), Some(Err(error))) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error);
            }
            (Some(Follows::Arguments | Follows::Always), Some(attr)) => (attr?, true),
            _ => (attributes(path, false)?, false),
        };
        let mut argument = Self {
            path,
            attr,
            followed,
            target: None,
            link_end: LinkEnd::Unknown,
            xattrs: Vec::new(),
            xattr_errno: None,
            target_errno: None,
        };
        argument.look_closer(plan);
        Ok(argument)
    }

    /// Whether the entries of this directory are listed.
    pub fn is_listed(&self, plan: &Plan) -> bool {
        self.attr.kind() == Some(FileKind::Directory) && !plan.directory
    }

    fn look_closer(&mut self, plan: &Plan) {
        if self.attr.kind() == Some(FileKind::Symlink) {
            if plan.wants_target() {
                match rustix::fs::readlink(self.path, Vec::new()) {
                    Ok(target) => self.target = Some(target.into_bytes()),
                    Err(errno) => self.target_errno = Some(errno.raw_os_error()),
                }
            }
            if plan.wants_link_end() {
                self.link_end = attributes(self.path, true).map_or(LinkEnd::Nothing, |attr| LinkEnd::Mode(attr.mode));
            }
        }
        let mask = plan.walk_options().scan.mask;
        if (mask.wants_xattrs() || plan.looks_for_capabilities())
            && let Err(errno) = self.read_xattrs(mask.contains(Mask::XATTR_VALUES))
            && errno != Errno::OPNOTSUPP
        {
            self.xattr_errno = Some(errno.raw_os_error());
        }
    }

    fn read_xattrs(&mut self, values: bool) -> rustix::io::Result<()> {
        let mut list = vec![0; pando_records::XATTR_SIZE_MAX];
        let len = match self.followed {
            true => rustix::fs::listxattr(self.path, &mut list)?,
            false => rustix::fs::llistxattr(self.path, &mut list)?,
        };
        let mut room = vec![0; if values { pando_records::XATTR_SIZE_MAX } else { 0 }];
        for name in list[..len].split_inclusive(|&byte| byte == 0) {
            let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno::IO)?;
            let mut value_of = |name| match self.followed {
                true => rustix::fs::getxattr(self.path, name, &mut room),
                false => rustix::fs::lgetxattr(self.path, name, &mut room),
            };
            let value = match values.then(|| value_of(name)) {
                None => XattrValue::NotRead,
                // The attribute was removed after the list was read.
                Some(Err(Errno::NODATA)) => continue,
                Some(Err(errno)) => XattrValue::Errno(errno.raw_os_error()),
                Some(Ok(len)) => XattrValue::Bytes(&room[..len]),
            };
            encode_xattr(&BulkXattr { name: name.to_bytes(), value }, &mut self.xattrs);
        }
        Ok(())
    }

    /// An entry whose name is the path.
    pub fn entry(&self, plan: &Plan) -> Entry<'_> {
        Entry {
            name: self.path.as_os_str().as_bytes(),
            kind: self.attr.kind(),
            ino: self.attr.ino,
            position: 0,
            attr: (!plan.is_machine() || plan.long).then_some(Cow::Borrowed(&self.attr)),
            errno: None,
            xattr_errno: self.xattr_errno,
            changed: false,
            target: self.target.as_deref(),
            target_errno: self.target_errno,
            link_end: self.link_end,
            has_capabilities: false,
            xattrs: EntryXattrs::Kept(&self.xattrs),
        }
    }

    /// The sort key.
    pub fn sorted(&self, plan: &Plan) -> Sorted<'_> {
        plan.order.sorted(&Entry { attr: Some(Cow::Borrowed(&self.attr)), ..self.entry(plan) })
    }
}
