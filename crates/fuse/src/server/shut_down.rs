//! FS_IOC_SHUTDOWN: a mounted tree stops at once, as if the machine had crashed. Programs that test
//! what a crash leaves use it.

use std::{fs::File, os::unix::fs::FileExt, sync::atomic::Ordering};

use pando_vfs::{Error, Result};

use super::{Caller, Server};

/// The flags of the call, as XFS, F2FS and ext4 number them. Both of these store everything first:
/// a store has no log of its own.
const EVERYTHING_FIRST: u32 = 0;
const LOG_FIRST: u32 = 1;
/// Changes that are not stored yet are lost.
const AT_ONCE: u32 = 2;

impl Server {
    /// Stops the tree: all further requests fail with EIO. `argument` is where the caller's memory
    /// says how. The request itself does not carry that, because the kernel takes the ioctl for one
    /// that only returns something.
    ///
    /// # Errors
    /// EPERM: the caller is not root with CAP_SYS_ADMIN, or the server cannot see whether it is.
    /// EINVAL: the argument is wrong. Those of storing.
    pub(crate) fn shut_down(&self, caller: Caller, argument: u64) -> Result<()> {
        if !caller.is_admin() {
            return Err(Error::NotPermitted);
        }
        let mut how = [0; 4];
        let memory = File::open(format!("/proc/{}/mem", caller.tid)).map_err(|_| Error::NotPermitted)?;
        memory.read_exact_at(&mut how, argument).map_err(|_| Error::Invalid)?;
        match u32::from_ne_bytes(how) {
            EVERYTHING_FIRST | LOG_FIRST => self.vfs.sync()?,
            AT_ONCE => {}
            _ => return Err(Error::Invalid),
        }
        self.stop();
        self.vfs.shut_down();
        Ok(())
    }

    /// All further requests fail with EIO.
    pub(crate) fn stop(&self) {
        self.is_shut_down.store(true, Ordering::Relaxed);
    }

    /// Whether the tree was stopped.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.is_shut_down.load(Ordering::Relaxed)
    }
}
