//! The owner of what a thread makes.
//!
//! An inode must have its owner from the start. If it got it by a chown(2) afterwards, others could
//! put an inode of their choice in its place before, and would be given that. So the thread takes
//! on the owner's file-system ids (setfsuid(2)) while it makes the inode. It keeps its
//! capabilities: the tree has already checked that the caller may do this.

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use pando_vfs::{Error, Result};
use rustix::thread::{CapabilitySets, capabilities, set_capabilities};

use crate::attr::from_errno;

/// The invalid id: a call with it changes nothing, and returns the present one.
const ASK: u32 = u32::MAX;

/// Runs `make`, which makes an inode with this owner, and with this group if the thread may choose
/// it.
///
/// # Errors
/// EPERM if this thread cannot make inodes for that owner, and those of `make`.
pub(crate) fn making_for<T>(uid: u32, gid: u32, make: impl FnOnce() -> Result<T>) -> Result<T> {
    let own = (setfsuid(Uid::from_raw(ASK)).as_raw(), setfsgid(Gid::from_raw(ASK)).as_raw());
    if own == (uid, gid) {
        return make();
    }
    let back = Ids { own, capabilities: capabilities(None).map_err(from_errno)? };
    setfsgid(Gid::from_raw(gid));
    setfsuid(Uid::from_raw(uid));
    // The calls return no error. Without the capability, the group stays that of this process. The
    // host may choose another, in a directory with setgid.
    if setfsuid(Uid::from_raw(ASK)).as_raw() != uid {
        return Err(Error::NotPermitted);
    }
    // A thread whose id is not 0 any more has lost those for files.
    set_capabilities(None, back.capabilities).map_err(from_errno)?;
    make()
}

/// The ids and capabilities of a thread. It gets them back when this is dropped.
struct Ids {
    own: (u32, u32),
    capabilities: CapabilitySets,
}

impl Drop for Ids {
    fn drop(&mut self) {
        setfsuid(Uid::from_raw(self.own.0));
        setfsgid(Gid::from_raw(self.own.1));
        let _ = set_capabilities(None, self.capabilities);
    }
}
