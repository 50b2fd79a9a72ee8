//! A directory of the host as a tree of pandofs.
//!
//! ```no_run
//! use pando_hostfs::{HostFs, HostOptions};
//! use pando_vfs::Vfs;
//!
//! let vfs = Vfs::new(HostFs::open("/srv/data", HostOptions::new())?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The host keeps the names, the attributes, the times and the contents. The tree caches what was
//! looked up, and makes every change on the host before it answers.
//!
//! # Limits
//!
//! Nothing on the host can lead out of the directory: names are looked up with openat2(2) and
//! `RESOLVE_BENEATH`. Mounts inside the directory cannot be reached (EXDEV). A directory
//! that is moved out of it on the host stays usable for those who use it already.
//!
//! All calls are made with the credentials of this process. If it is root, what the tree makes for
//! others has their user and group from the start. POSIX ACLs are those of the host. The tree
//! itself checks permissions by mode, owner and group only; a kernel that shows the tree reads the
//! ACLs.
//!
//! [`Recheck`] says how soon changes are seen that others make on the host.
//!
//! | number | limit |
//! | --- | --- |
//! | descriptors open for inodes | [`HostOptions::descriptors`], 1,000 by default |
//! | further descriptors | one for each inode in use without a name, a few for each running call |
#![deny(unsafe_code)]

mod attr;
mod change;
mod data;
mod descriptors;
mod driver;
mod latency;
mod nodes;
mod owner;
mod scan;
#[allow(unsafe_code)]
mod sys;
mod tree;
mod watch;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use pando_vfs::Feed;

pub use latency::Latency;

/// A directory of the host: the driver to pass to `pando_vfs::Vfs::new`.
#[derive(Debug)]
pub struct HostFs {
    tree: Arc<tree::Tree>,
    latency: Option<latency::Slots>,
    recheck: Recheck,
    is_watched: bool,
    /// That of the tree, one for each driver.
    feed: OnceLock<Feed>,
}

/// How the tree learns of changes that others make on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recheck {
    /// Not at all: nobody else changes the directory.
    Never,
    /// Cached names and attributes are used for at most this time. Then the host is asked again.
    Every(Duration),
    /// The kernel reports changes, as a rule within milliseconds. This needs CAP_SYS_ADMIN, Linux
    /// 5.17, and a file system on a local disk or in memory. Without these, it is as
    /// [`Recheck::Every`]; [`HostFs::is_watched`] says so.
    ///
    /// Not reported are changes that this process makes by other ways than the tree, times of
    /// access, and what is written through a mapping, until its file is closed.
    Watch {
        /// The interval if nothing is reported.
        otherwise: Duration,
    },
}

/// Options of [`HostFs::open`].
#[derive(Debug, Clone)]
pub struct HostOptions {
    descriptors: usize,
    recheck: Recheck,
    /// Inodes are opened by their path from the root, also if their handles would do.
    walks: bool,
    latency: Option<Latency>,
}

impl HostOptions {
    /// 1,000 descriptors, and a recheck every second.
    #[must_use]
    pub const fn new() -> Self {
        Self { descriptors: 1000, recheck: Recheck::Every(Duration::from_secs(1)), walks: false, latency: None }
    }

    /// The number of descriptors that are kept open for inodes.
    #[must_use]
    pub const fn descriptors(self, descriptors: usize) -> Self {
        Self { descriptors, ..self }
    }

    /// How changes by others are noticed.
    #[must_use]
    pub const fn recheck(self, recheck: Recheck) -> Self {
        Self { recheck, ..self }
    }

    /// Opens inodes by their path from the root, as without CAP_DAC_READ_SEARCH, even if their file
    /// handles would do.
    #[must_use]
    pub const fn without_handles(self) -> Self {
        Self { walks: true, ..self }
    }

    /// Makes the host slow, for experiments.
    #[must_use]
    pub const fn latency(self, latency: Option<Latency>) -> Self {
        Self { latency, ..self }
    }
}

impl Default for HostOptions {
    fn default() -> Self {
        Self::new()
    }
}
