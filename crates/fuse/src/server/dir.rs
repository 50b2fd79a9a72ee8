//! Reading directories.
//!
//! Positions are the tree's cookies, which stay valid for ever. So what is kept between two calls
//! only saves time.

use pando_vfs::{
    At, Context, Credentials, DentryRef, DirEntry, Error, File, Next, OpenFlags, Packed, Result, Stat, Walk,
    records::{ERANGE, Mask, refuse_xattrs, update_records},
};

use super::{Caller, Directory, Server, listings::Listing};
use crate::nodes::Attr;

impl Server {
    /// Passes the entries after `cookie` to `add`, until it returns false because an entry does not
    /// fit. The number of an entry is its node number.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn readdir(&self, dir: Directory, cookie: u64, add: &mut dyn FnMut(&DirEntry<'_>) -> bool) -> Result<()> {
        self.guarded("readdir", || {
            self.with_dir(dir, cookie, |dir| {
                let mut last = None;
                dir.readdir(cookie, |entry| {
                    let fits = add(&DirEntry { ino: self.nodes.number(entry.ino), ..entry });
                    if fits {
                        last = Some(entry.cookie);
                    }
                    fits
                })?;
                Ok(((), last))
            })
        })
    }

    /// Returns the entries after `cookie` as records in `buffer` ([`pando_vfs::File::xgetdents`]).
    /// An entry with more names of extended attributes than the buffer has room for says ERANGE
    /// instead of them. The entries are not counted as look-ups. The kernel has only checked that
    /// the caller may list the directory, so the rest is checked here.
    ///
    /// # Errors
    /// EINVAL for unknown parts; ENOTTY if the server cannot see the caller's thread, and for
    /// others than root if the store has ACLs of its own (single calls are checked by the kernel);
    /// see [`Server`].
    pub fn xgetdents(
        &self,
        caller: Caller,
        dir: Directory,
        cookie: u64,
        mask: Mask,
        buffer: &mut [u8],
    ) -> Result<Packed> {
        self.guarded("xgetdents", || {
            if self.may_be_restricted(caller) {
                return Err(Error::NotTty);
            }
            let context = Context::new(&self.vfs, caller.reader_credentials().ok_or(Error::NotTty)?);
            if !mask.is_empty() && self.open_inodes.passes_through() {
                for ino in self.open_inodes.written() {
                    // It may be closed and forgotten by now.
                    let _ = self.nodes.get(self.nodes.number(ino)).and_then(|dentry| self.see_changes(&dentry));
                }
            }
            let packed = self.with_dir(dir, cookie, |dir| {
                let mut packed = dir.xgetdents(&context, cookie, mask, buffer)?;
                if let Next::Needs(_) = packed.next {
                    let mask = mask - Mask::XATTR_NAMES - Mask::XATTR_VALUES;
                    packed = dir.xgetdents(&context, cookie, mask, buffer)?;
                    if let Some((bytes, cookie)) = refuse_xattrs(&mut buffer[..packed.bytes], ERANGE.into()) {
                        (packed.bytes, packed.entries, packed.cookie, packed.next) = (bytes, 1, cookie, Next::More);
                    }
                }
                let next = (packed.next == Next::More).then_some(packed.cookie);
                Ok((packed, next))
            })?;
            update_records(&mut buffer[..packed.bytes], |ino, attr| {
                *ino = self.nodes.number(*ino);
                attr.into_iter().for_each(|attr| self.nodes.update(attr));
            });
            Ok(packed)
        })
    }

    /// As [`Server::readdir`], with attributes, except for `.` and `..`. Every other entry that
    /// `add` accepts counts as a look-up. An entry that does not fit does not count, and none
    /// counts if this fails. A mount point of a tree that is not served is omitted.
    ///
    /// # Errors
    /// That of the look-up of the first entry. If the look-up of a later entry fails, the reply
    /// ends before it. See [`Server`].
    pub fn readdirplus(
        &self,
        caller: Caller,
        dir: Directory,
        cookie: u64,
        add: &mut dyn FnMut(&DirEntry<'_>, Option<Attr>) -> bool,
    ) -> Result<()> {
        self.guarded("readdirplus", || {
            let context = self.context(caller, 0);
            let mut reply = self.nodes.start_reply();
            let (mut empty, mut failed) = (true, Ok(()));
            self.with_dir(dir, cookie, |dir| {
                let mut last = None;
                dir.readdir_plus(&context, cookie, |entry, found| {
                    let shown = DirEntry { ino: self.nodes.number(entry.ino), ..entry };
                    let dots = entry.name == b"." || entry.name == b"..";
                    // The tree may know only the name. The kernel would take such an entry for a
                    // node without attributes, which is not counted here.
                    let looked_up = match found {
                        None if !dots => {
                            match self.vfs.lookup(&context, At::Dir(dir.dentry()), entry.name, Walk::NOFOLLOW) {
                                Ok(dentry) => Some((dentry.stat(), dentry)),
                                Err(Error::NoEntry) => return true,
                                Err(error) => {
                                    failed = Err(error);
                                    return false;
                                }
                            }
                        }
                        _ => None,
                    };
                    let found = found.or(looked_up.as_ref().map(|(stat, dentry)| (stat, dentry)));
                    let counted = found.filter(|_| !dots).map(|(_, dentry)| dentry);
                    if counted.is_some_and(|dentry| reply.count(dentry).is_err()) {
                        return true;
                    }
                    // If others may have changed the inode since, the notification about it finds
                    // it counted, or these attributes are newer.
                    let is_told = self.options.tells_kernel() || self.open_inodes.passes_through();
                    let attr = |(stat, dentry): (&Stat, &DentryRef)| {
                        if is_told { self.attr_of(dentry) } else { self.nodes.attr(*stat) }
                    };
                    if add(&shown, found.map(attr)) {
                        empty = false;
                        last = Some(shown.cookie);
                        return true;
                    }
                    counted.inspect(|dentry| reply.uncount(dentry));
                    false
                })?;
                Ok(((), last))
            })?;
            if empty {
                failed?;
            }
            reply.commit();
            Ok(())
        })
    }

    /// Makes all changes of a directory durable.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn fsync_dir(&self, dir: Directory) -> Result<()> {
        self.guarded("fsync", || match dir {
            Directory::Handle(handle) => self.with_file(handle, File::fsync),
            Directory::Node(node) => self.open_dir(node)?.fsync(),
        })
    }

    /// Calls `read` with the directory of a request for the entries after `cookie`. With the result
    /// it returns the position at which the listing may go on.
    fn with_dir<T>(
        &self,
        dir: Directory,
        cookie: u64,
        read: impl FnOnce(&File) -> Result<(T, Option<u64>)>,
    ) -> Result<T> {
        let node = match dir {
            Directory::Handle(handle) => return self.with_file(handle, |dir| Ok(read(dir)?.0)),
            Directory::Node(node) => node,
        };
        let dir = self.listings.take(node, cookie).map_or_else(|| self.open_dir(node), Ok)?;
        let (result, next) = read(&dir)?;
        if let Some(cookie) = next {
            self.listings.keep(Listing { node, cookie, dir });
        }
        Ok(result)
    }

    /// Opens a directory for a caller that has it open already.
    fn open_dir(&self, node: u64) -> Result<File> {
        let flags = self.dir_flags(OpenFlags::RDONLY | OpenFlags::DIRECTORY);
        self.vfs.open_dentry(&self.context_of(Credentials::root()), &self.nodes.get(node)?, flags)
    }
}
