//! Attributes of inodes and of the file system.

use pando_vfs::{At, Result, SetAttr, StatFs, Walk};

use super::{Attr, Caller, Server};

impl Server {
    /// Attributes of `node`.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn getattr(&self, node: u64) -> Result<Attr> {
        self.guarded("getattr", || Ok(self.attr_from(self.vfs.getattr(&self.nodes.get(node)?))))
    }

    /// Changes attributes of `node`; answers all of them as they then are. To change none is what the kernel asks for when
    /// a chown names nobody, and when privileges are to go before something else: a chown of that kind is both.
    ///
    /// # Errors
    /// ENOSPC, EFBIG, EROFS; see [`Server`].
    pub fn setattr(&self, caller: Caller, node: u64, change: &SetAttr) -> Result<Attr> {
        self.guarded("setattr", || {
            let dentry = self.nodes.get(node)?;
            if change.size.is_some() && !caller.keeps_privileges() {
                self.vfs.drop_privileges(&dentry)?;
            }
            let context = self.context(caller, 0);
            if *change == SetAttr::default() {
                self.vfs.chown(&context, At::Dir(&dentry), b"", None, None, Walk::EMPTY_PATH | Walk::NOFOLLOW)?;
                return Ok(self.attr_of(&dentry));
            }
            let stat = self.vfs.setattr(&context, &dentry, change)?;
            Ok(self.attr_from(stat))
        })
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
