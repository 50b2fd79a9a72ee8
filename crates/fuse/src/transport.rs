//! How requests come from the kernel, and answers go back.

use std::{io, num::NonZeroUsize, path::Path};

use crate::Server;

/// How a tree is mounted: what the kernel is told, and how many threads listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// What mount tables show as the source.
    pub source: String,
    /// Let other users in (the kernel then checks permission bits; without this only the owner of the mount gets in).
    pub allow_other: bool,
    /// Honour setuid and setgid bits.
    pub suid: bool,
    /// Let device nodes work as devices.
    pub dev: bool,
    /// Let programs be executed.
    pub exec: bool,
    /// No changes.
    pub read_only: bool,
    /// Reading does not change access times: a matter of the server's.
    pub no_atime: bool,
    /// Nor does listing directories: a matter of the server's as well.
    pub no_dir_atime: bool,
    /// Writes wait until they are durable.
    pub sync: bool,
    /// Changes of directories wait until they are durable.
    pub dir_sync: bool,
    /// Changes of times alone may be written down late, where they are.
    pub lazy_time: bool,
    /// Paths through symbolic links of the tree are refused.
    pub no_symfollow: bool,
    /// The most bytes of one read. None: as many as a request holds.
    pub max_read: Option<u32>,
    /// What a security module is told, as in `context="LABEL"`.
    pub labels: Vec<String>,
    /// Hand out attributes along with names (READDIRPLUS), as a good server does; a naive one does not.
    pub readdirplus: bool,
    /// Threads that read requests. One alone cannot wait for room that is about to come back. Through io_uring there is at most
    /// one for each processor.
    pub threads: NonZeroUsize,
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
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        }
    }
}

/// A way to be a FUSE server.
pub trait Transport {
    /// Mounts at `mount_point` and agrees with the kernel on what both can do. Requests wait from then on, and are
    /// answered once [`Connection::serve`] runs. Who fears that the path changes its meaning after a look at the directory
    /// names it `/proc/self/fd/N`, by a descriptor of it.
    ///
    /// # Errors
    /// The device cannot be opened, the mount is refused, or the kernel is too old.
    fn connect(&self, server: Server, mount_point: &Path, options: &MountOptions) -> io::Result<Box<dyn Connection>> {
        self.attach(server.mounted(options), mount_point, options)
    }

    /// What a transport does of [`Transport::connect`]: the server knows by now which of the options are its own.
    ///
    /// # Errors
    /// As connect.
    fn attach(&self, server: Server, mount_point: &Path, options: &MountOptions) -> io::Result<Box<dyn Connection>>;
}

/// A mounted tree.
pub trait Connection: Send {
    /// Answers requests until the tree is unmounted, by whomever.
    ///
    /// # Errors
    /// The device failed in a way that an unmount does not explain.
    fn serve(self: Box<Self>) -> io::Result<()>;
}
