//! Attributes of inodes and of the file system.

use pando_vfs::{At, DentryRef, Error, InodeFlags, Result, SetAttr, StatFs, Walk};

use super::{Caller, Server, inode_flags::has_flag};
use crate::nodes::Attr;

/// Setuid and setgid.
pub(super) const SETUID_SETGID: u32 = 0o6000;

/// Whether a change of attributes may clear setuid and setgid by itself.
fn may_clear_privileges(change: &SetAttr) -> bool {
    change.size.is_some() || change.uid.is_some() || change.gid.is_some()
}

impl Server {
    /// The attributes of `node`.
    ///
    /// # Errors
    /// See [`Server`].
    pub fn getattr(&self, node: u64) -> Result<Attr> {
        self.guarded("getattr", || {
            let dentry = self.nodes.get(node)?;
            self.attr_from(&dentry, || {
                self.see_changes(&dentry)?;
                self.vfs.getattr(&dentry)
            })
        })
    }

    /// Changes attributes of `node`. A size is set by `handle`, if there is one, as ftruncate(2)
    /// does it. Returns all attributes after the change.
    ///
    /// # Errors
    /// ENOSPC, EFBIG, EROFS, EPERM because of the flags; see [`Server`].
    pub fn setattr(&self, caller: Caller, node: u64, handle: Option<u64>, change: &SetAttr) -> Result<Attr> {
        self.guarded("setattr", || {
            let dentry = self.nodes.get(node)?;
            if *change == SetAttr::default() {
                self.change_nothing(caller, &dentry)?;
                return Ok(self.attr_of(&dentry));
            }
            self.see_changes(&dentry)?;
            let before = dentry.stat().mode;
            let clears = may_clear_privileges(change) && before & SETUID_SETGID != 0;
            let context = self.context_of(self.credentials_for(caller, &dentry, change));
            let mut change = *change;
            if let Some(size) = change.size {
                self.freed();
                // A program that has the file open may truncate it, even if it is immutable by now.
                let refusing = if handle.is_some() { InodeFlags::APPEND } else { InodeFlags::PROTECTING };
                self.clear_privileges(caller, &dentry, refusing)?;
                if let Some(handle) = handle {
                    self.with_file(handle, |file| file.truncate(size))?;
                    // The mode of a protected file cannot be set. It has lost its bits already.
                    let is_protected = has_flag(&dentry, InodeFlags::PROTECTING);
                    change = change.size(None).mode(change.mode.filter(|_| !is_protected));
                    if change == SetAttr::default() {
                        return Ok(self.attr_of(&dentry));
                    }
                }
            }
            let Some(mode) = change.mode.filter(|_| clears) else {
                return self.attr_from(&dentry, || self.vfs.setattr(&context, &dentry, &change));
            };
            // The request also has a new mode, from which the kernel has cleared the bits that it
            // knows of. The change itself may clear others, which this mode must not set again.
            let stat = self.vfs.setattr(&context, &dentry, &change.mode(None))?;
            let cleared = before & !stat.mode & SETUID_SETGID;
            let mode = SetAttr::new().mode(mode & !cleared);
            self.attr_from(&dentry, || self.vfs.setattr(&context, &dentry, &mode))
        })
    }

    /// The kernel sends a SETATTR without a change in two cases. One is a chown with neither owner
    /// nor group, which clears setuid and setgid, and which only the owner may do. The other comes
    /// before any change of a file that has one of these bits. Requests do not say which case it
    /// is, and the kernel has checked no permission.
    fn change_nothing(&self, caller: Caller, dentry: &DentryRef) -> Result<()> {
        let privileged = dentry.stat().mode & SETUID_SETGID != 0;
        let cred = if privileged { caller.full_credentials() } else { caller.credentials() };
        // This may precede a write by a caller that keeps the bits. For all other changes, on a
        // mount that honours setuid bits, the kernel itself says which bits to clear.
        if self.suid && privileged && cred.capable {
            return Ok(());
        }
        // Root may clear them even without CAP_FSETID.
        let context = self.context_of(cred).checked_by_caller(caller.uid == 0);
        match self.vfs.chown(&context, At::Dir(dentry), b"", None, None, Walk::EMPTY_PATH | Walk::NOFOLLOW) {
            // The change that follows may be permitted to this caller. It clears the bits itself.
            Err(Error::NotPermitted) => Ok(()),
            done => done,
        }
    }

    /// The use of space and inodes.
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
