//! Extended attributes.

use pando_vfs::{AclSupport, At, DentryRef, Error, Result, SetAttr, Walk, XATTR_ACL_ACCESS, XattrFlags};
use tracing::warn;

use super::{Caller, Server, caller::S_ISGID, is_xcreate};

/// An extended attribute of every inode of a mount: the process ID of the server, in decimal. It is
/// not stored in the tree, and listxattr does not list it. A program that unmounts can wait for
/// that process to end.
pub const SERVER_PID_XATTR: &str = "system.pandofs.server_pid";

/// The most bytes of all names of one inode, each with its zero byte (`XATTR_LIST_MAX`).
const LIST_MAX: usize = 65536;

const SELF: Walk = Walk::EMPTY_PATH;

impl Server {
    /// The value of an extended attribute.
    ///
    /// # Errors
    /// ENODATA; see [`Server`].
    pub fn getxattr(&self, caller: Caller, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        if name == SERVER_PID_XATTR.as_bytes() {
            return Ok(std::process::id().to_string().into_bytes());
        }
        if is_xcreate(name) {
            return self.guarded("getxattr", || self.made(caller, node, name));
        }
        self.guarded("getxattr", || {
            let dentry = self.nodes.get(node)?;
            self.see_changes(&dentry)?;
            self.vfs.getxattr(&self.context(caller, 0), At::Dir(&dentry), b"", name, SELF)
        })
    }

    /// The names of all extended attributes, each followed by a zero byte.
    ///
    /// # Errors
    /// E2BIG for more than 64 KiB of names; see [`Server`].
    pub fn listxattr(&self, caller: Caller, node: u64) -> Result<Vec<u8>> {
        self.guarded("listxattr", || {
            let dentry = self.nodes.get(node)?;
            self.see_changes(&dentry)?;
            let mut list = Vec::new();
            for name in self.vfs.listxattr(&self.context(caller, 0), At::Dir(&dentry), b"", SELF)? {
                list.extend_from_slice(&name);
                list.push(0);
            }
            if list.len() > LIST_MAX { Err(Error::ArgListTooLong) } else { Ok(list) }
        })
    }

    /// Sets an extended attribute. `flags` are those of setxattr(2). Two attributes are not stored:
    /// setting [`pando_vfs::records::XCREATE`] or [`pando_vfs::records::XCREATE_ROOT`] makes
    /// entries.
    ///
    /// # Errors
    /// EEXIST and ENODATA as `flags` demand, EINVAL for unknown flags; see [`Server`].
    pub fn setxattr(&self, caller: Caller, node: u64, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        if is_xcreate(name) {
            return self.guarded("xcreate", || self.xcreate(caller, node, name, value));
        }
        self.guarded("setxattr", || {
            let flags = XattrFlags::from_bits(flags).ok_or(Error::Invalid)?;
            let dentry = self.nodes.get(node)?;
            self.see_changes(&dentry)?;
            if name == XATTR_ACL_ACCESS.as_bytes() {
                // Before: nobody shall get more by an ACL that is set while the bit is still there.
                self.clear_setgid(caller, &dentry)?;
            }
            let (context, itself) = (self.context(caller, 0), At::Dir(&dentry));
            self.space.retry(|| self.vfs.setxattr(&context, itself, b"", name, value, flags, SELF))?;
            self.drop_mode(node, name);
            Ok(())
        })
    }

    /// Makes the kernel ask for the mode again if this attribute changes it and the kernel does not
    /// know that.
    fn drop_mode(&self, node: u64, name: &[u8]) {
        if name == XATTR_ACL_ACCESS.as_bytes()
            && !self.kernel_knows_acls
            && let Err(error) = self.invalidate(node, -1)
        {
            warn!(%error, node, "the kernel may show an old mode");
        }
    }

    /// Clears setgid if a chmod by this caller would.
    fn clear_setgid(&self, caller: Caller, dentry: &DentryRef) -> Result<()> {
        let stat = self.vfs.getattr(dentry)?;
        if stat.mode & S_ISGID == 0 {
            return Ok(());
        }
        let credentials = caller.full_credentials();
        if credentials.capable || credentials.in_group(stat.gid) {
            return Ok(());
        }
        let change = SetAttr::new().mode(stat.mode & !S_ISGID);
        self.vfs.setattr(&self.context(caller, 0), dentry, &change).map(drop)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// ENODATA; see [`Server`].
    pub fn removexattr(&self, caller: Caller, node: u64, name: &[u8]) -> Result<()> {
        self.guarded("removexattr", || {
            let dentry = self.nodes.get(node)?;
            if name == XATTR_ACL_ACCESS.as_bytes() && self.vfs.acls() == AclSupport::Namespace {
                // As on tmpfs. Not all file systems of a host do this.
                self.clear_setgid(caller, &dentry)?;
            }
            self.vfs.removexattr(&self.context(caller, 0), At::Dir(&dentry), b"", name, SELF)?;
            self.drop_mode(node, name);
            Ok(())
        })
    }
}
