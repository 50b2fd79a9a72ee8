//! A directory of the host as the tree of a mount.

use std::{path::Path, sync::Arc, time::Duration};

use pando_console::{
    failure::{Failure, Result},
    quote::for_shell,
};
use pando_hostfs::{HostFs, HostOptions};
use pando_vfs::{Vfs, VfsOptions};
use rustix::{
    fs::Mode,
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
};

use super::{limits, memory::MemoryWatch};

/// How often the source is asked again for what is cached, if it does not report changes.
pub const RECHECK: Duration = Duration::from_secs(1);
/// How long the kernel may answer from its caches, if it is not told of changes.
pub const UNTOLD: Duration = Duration::from_secs(1);

/// The tree of a mount.
pub struct SourceTree {
    pub vfs: Vfs,
    /// The kernel reports changes by others.
    pub is_watched: bool,
    driver: Arc<HostFs>,
    _memory: MemoryWatch,
}

impl SourceTree {
    /// A tree on a directory. If it is for `other_users`, this thread and those that it starts heed
    /// their quotas.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open(dir: &Path, host: HostOptions, other_users: bool, options: VfsOptions) -> Result<Self> {
        // The kernel has applied the umask of the program that makes a file.
        rustix::process::umask(Mode::empty());
        // For the descriptors of cached inodes, and those of files without names.
        limits::raise_descriptors();
        if other_users {
            heed_quotas();
        }
        let driver = HostFs::open(dir, host)
            .map_err(|error| Failure::system(format_args!("--source {}", for_shell(dir)), &error))?;
        let is_watched = driver.is_watched();
        let driver = Arc::new(driver);
        let vfs = Vfs::with_options(driver.clone(), options)
            .map_err(|error| Failure::new(format!("cannot make the tree: {error}")))?;
        let memory = MemoryWatch::start(vfs.clone())?;
        Ok(Self { vfs, is_watched, driver, _memory: memory })
    }

    /// How many descriptors are open for inodes.
    pub fn descriptors(&self) -> usize {
        self.driver.usage().0
    }
}

/// Gives up the capability to exceed quotas.
fn heed_quotas() {
    // A thread may always give up a capability.
    if let Ok(own) = capabilities(None) {
        let effective = own.effective - CapabilitySet::SYS_RESOURCE;
        let _ = set_capabilities(None, CapabilitySets { effective, ..own });
    }
}
