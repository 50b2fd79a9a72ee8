//! The options of a mount.

use std::{num::NonZeroUsize, sync::Arc};

use crate::inject::Injector;

/// How a tree is mounted and served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// The source in mount tables.
    pub source: String,
    /// Let other users in. The kernel then checks permission bits. Without this, only the owner of
    /// the mount gets in.
    pub allow_other: bool,
    /// Honour setuid and setgid bits.
    pub suid: bool,
    /// Let device nodes work as devices.
    pub dev: bool,
    /// Let programs be executed.
    pub exec: bool,
    /// Allow no changes.
    pub read_only: bool,
    /// Reading leaves atime as it is. The server does this, not the kernel.
    pub no_atime: bool,
    /// Listing a directory leaves its atime as it is. The server does this as well.
    pub no_dir_atime: bool,
    /// A write returns when it is durable.
    pub sync: bool,
    /// A change of a directory returns when it is durable.
    pub dir_sync: bool,
    /// If only times have changed, they may be written to the disk late.
    pub lazy_time: bool,
    /// Refuse paths that lead through symbolic links of the tree.
    pub no_symfollow: bool,
    /// The largest read in bytes. None: as large as a request allows.
    pub max_read: Option<u32>,
    /// Options for a security module, as in `context="LABEL"`.
    pub labels: Vec<String>,
    /// List directories with attributes (READDIRPLUS). A naive server lists names only.
    pub readdirplus: bool,
    /// For a driver that has the contents in files of the host
    /// ([`FileData::backing_file`](pando_vfs::FileData::backing_file)): let the kernel read and
    /// write them by itself (passthrough, Linux 6.9). It needs CAP_SYS_ADMIN. It has no effect with
    /// an injector, and with `no_atime`, since the host stamps atime by the options of its own
    /// mount.
    pub passthrough: bool,
    /// The threads that read requests.
    pub threads: Threads,
    /// Delays requests, fails them, or counts them.
    pub injector: Option<Arc<Injector>>,
}

/// The number of threads that read requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads {
    /// The least number of threads. A single one cannot wait for space that will be freed soon.
    /// Through io_uring there is at most one for each CPU, unless `most` is greater.
    pub least: NonZeroUsize,
    /// The greatest number. Threads are added while requests wait, for example for a slow disk.
    /// Through io_uring it is the number for each CPU, all of which exist from the beginning. There
    /// are at most 1,024 in all, so a machine with many CPUs has fewer for each.
    pub most: NonZeroUsize,
}

impl Threads {
    /// Always this number.
    #[must_use]
    pub const fn exactly(number: NonZeroUsize) -> Self {
        Self { least: number, most: number }
    }

    /// Whether threads are added while requests wait.
    pub(crate) const fn is_elastic(self) -> bool {
        self.most.get() > self.least.get()
    }
}

impl Default for Threads {
    /// One for each CPU.
    fn default() -> Self {
        Self::exactly(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "pandofs".into(),
            allow_other: false,
            suid: false,
            dev: false,
            exec: true,
            read_only: false,
            no_atime: false,
            no_dir_atime: false,
            sync: false,
            dir_sync: false,
            lazy_time: false,
            no_symfollow: false,
            max_read: None,
            labels: Vec::new(),
            readdirplus: true,
            passthrough: false,
            threads: Threads::default(),
            injector: None,
        }
    }
}
