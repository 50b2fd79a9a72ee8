//! Reading directories.
//!
//! Positions are the tree's cookies, which stay valid for ever: nothing is kept between two calls.

use pando_vfs::{At, DirEntry, Error, Result, Walk};

use super::{Caller, Server};
use crate::nodes::Attr;

impl Server {
    /// Entries after `cookie`, until `add` says that the next does not fit. An entry's number is that of its node.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn readdir(&self, handle: u64, cookie: u64, add: &mut dyn FnMut(&DirEntry<'_>) -> bool) -> Result<()> {
        self.guarded("readdir", || {
            self.with_file(handle, |dir| {
                dir.readdir(cookie, |entry| add(&DirEntry { ino: self.nodes.number(entry.ino), ..entry }))
            })
        })
    }

    /// As [`Server::readdir`], with attributes, except for `.` and `..`. Every other entry that `add` takes counts as a
    /// look-up; one that does not fit does not count, nor does any if this fails. Where a tree is mounted that is not served,
    /// the name is left out.
    ///
    /// # Errors
    /// Those of the first entry, if it cannot be looked up; before such a later one the answer ends. See [`Server`].
    pub fn readdirplus(
        &self,
        caller: Caller,
        handle: u64,
        cookie: u64,
        add: &mut dyn FnMut(&DirEntry<'_>, Option<Attr>) -> bool,
    ) -> Result<()> {
        self.guarded("readdirplus", || {
            let context = self.context(caller, 0);
            let mut reply = self.nodes.start_reply();
            let (mut empty, mut failed) = (true, Ok(()));
            self.with_file(handle, |dir| {
                dir.readdir_plus(&context, cookie, |entry, found| {
                    let shown = DirEntry { ino: self.nodes.number(entry.ino), ..entry };
                    let dots = entry.name == b"." || entry.name == b"..";
                    // What is known by name only would be a node without attributes to the kernel, and not counted here.
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
                    if add(&shown, found.map(|(stat, _)| self.nodes.attr(*stat))) {
                        empty = false;
                        return true;
                    }
                    counted.inspect(|dentry| reply.uncount(dentry));
                    false
                })
            })?;
            if empty {
                failed?;
            }
            reply.commit();
            Ok(())
        })
    }
}
