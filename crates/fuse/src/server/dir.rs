//! Reading directories.
//!
//! Positions are the tree's cookies, which stay valid for ever: nothing is kept between two calls.

use pando_vfs::{DirEntry, Result};

use super::{Attr, Caller, Server};

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

    /// As [`Server::readdir`], with attributes where they can be had. Every entry that `add` takes with attributes
    /// counts as a look-up, except `.` and `..`; one that does not fit does not count, nor does any if this fails.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn readdirplus(
        &self,
        caller: Caller,
        handle: u64,
        cookie: u64,
        add: &mut dyn FnMut(&DirEntry<'_>, Option<Attr>) -> bool,
    ) -> Result<()> {
        self.guarded("readdirplus", || {
            let context = self.context(caller, 0);
            let mut handout = self.nodes.hand_out();
            self.with_file(handle, |dir| {
                dir.readdir_plus(&context, cookie, |entry, found| {
                    let entry = DirEntry { ino: self.nodes.number(entry.ino), ..entry };
                    let attr = found.map(|(stat, _)| self.attr_from(*stat));
                    if !add(&entry, attr) {
                        return false;
                    }
                    match found {
                        Some((_, dentry)) if entry.name != b"." && entry.name != b".." => handout.count(dentry),
                        _ => {}
                    }
                    true
                })
            })?;
            handout.sent();
            Ok(())
        })
    }
}
