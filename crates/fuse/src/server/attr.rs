//! Attributes of inodes and of the file system.

use pando_vfs::{At, DentryRef, Error, Result, SetAttr, StatFs, Walk};

use super::{Caller, Server};
use crate::nodes::Attr;

/// Setuid and setgid.
pub(super) const SETUID_SETGID: u32 = 0o6000;

/// Whether a change of attributes takes privileges away by itself.
fn changes_more_than_mode(change: &SetAttr) -> bool {
    change.size.is_some() || change.uid.is_some() || change.gid.is_some()
}

impl Server {
    /// Attributes of `node`.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn getattr(&self, node: u64) -> Result<Attr> {
        self.guarded("getattr", || Ok(self.nodes.attr(self.vfs.getattr(&self.nodes.get(node)?))))
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
            let before = dentry.stat().mode;
            if change.size.is_some() {
                self.take_privileges(caller, &dentry)?;
            }
            let context = self.context_of(self.credentials_for(caller, &dentry, change));
            let Some(mode) = change.mode.filter(|_| changes_more_than_mode(change) && before & SETUID_SETGID != 0)
            else {
                return Ok(self.nodes.attr(self.vfs.setattr(&context, &dentry, change)?));
            };
            // The kernel takes away what it knows of, with the same request. What goes besides must not come back with that mode.
            let stat = self.vfs.setattr(&context, &dentry, &SetAttr { mode: None, ..*change })?;
            let taken = before & !stat.mode & SETUID_SETGID;
            let mode = SetAttr { mode: Some(mode & !taken), ..SetAttr::default() };
            Ok(self.nodes.attr(self.vfs.setattr(&context, &dentry, &mode)?))
        })
    }

    /// The kernel asks for no change when a chown names nobody, which takes privileges away and is the owner's; and before a
    /// file is changed that has privileges, of whatever kind, by whomever. Requests do not tell which, and nobody has asked
    /// whether the caller may.
    fn change_nothing(&self, caller: Caller, dentry: &DentryRef) -> Result<()> {
        let privileged = dentry.stat().mode & SETUID_SETGID != 0;
        let cred = if privileged { caller.full_credentials() } else { caller.credentials() };
        // It may be a write that keeps them; otherwise the kernel says what goes where setuid bits mean something.
        if self.suid && privileged && cred.capable {
            return Ok(());
        }
        // Root may, also without CAP_FSETID.
        let context = self.context_of(cred).checked_by_caller(caller.uid == 0);
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
