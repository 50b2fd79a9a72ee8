//! Attributes of inodes and of the file system.

use pando_vfs::{At, DentryRef, Error, Result, SetAttr, StatFs, Walk};

use super::{Attr, Caller, Server};

impl Server {
    /// Attributes of `node`.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn getattr(&self, node: u64) -> Result<Attr> {
        self.guarded("getattr", || Ok(self.attr_from(self.vfs.getattr(&self.nodes.get(node)?))))
    }

    /// Changes attributes of `node`; answers all of them as they then are.
    ///
    /// # Errors
    /// ENOSPC, EFBIG, EROFS; see [`Server`].
    pub fn setattr(&self, caller: Caller, node: u64, change: &SetAttr) -> Result<Attr> {
        self.guarded("setattr", || {
            let dentry = self.nodes.get(node)?;
            if *change == SetAttr::default() {
                self.change_nothing(caller, &dentry)?;
                return Ok(self.attr_of(&dentry));
            }
            if change.size.is_some() && !caller.keeps_privileges() {
                self.vfs.drop_privileges(&dentry)?;
            }
            let stat = self.vfs.setattr(&self.context(caller, 0), &dentry, change)?;
            Ok(self.attr_from(stat))
        })
    }

    /// The kernel asks for no change when a chown names nobody, which takes privileges away and is the owner's; and before a
    /// file is changed that has privileges, of whatever kind, by whomever. Requests do not tell which, and nobody has asked
    /// whether the caller may.
    fn change_nothing(&self, caller: Caller, dentry: &DentryRef) -> Result<()> {
        // There the kernel says which privileges go, in a request of its own.
        const SETUID_SETGID: u32 = 0o6000;
        let kernel_clears = self.suid && dentry.stat().mode & SETUID_SETGID != 0;
        if kernel_clears {
            return Ok(());
        }
        let context = self.context(caller, 0).checked_by_caller(false);
        match self.vfs.chown(&context, At::Dir(dentry), b"", None, None, Walk::EMPTY_PATH | Walk::NOFOLLOW) {
            // What the caller is about to do may be his to do, and takes them away itself.
            Err(Error::NotPermitted) => Ok(()),
            done => done,
        }
    }

    /// Space and inodes.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn statfs(&self, caller: Caller, node: u64) -> Result<StatFs> {
        self.guarded("statfs", || {
            let dentry = self.nodes.get(node)?;
            self.vfs.statfs(&self.context(caller, 0), At::Dir(&dentry), b"")
        })
    }
}
