//! A directory of the host as the tree of a mount.

use std::{
    path::Path,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use pando_console::{
    failure::{Failure, Result},
    quote::for_shell,
};
use pando_hostfs::{HostFs, HostOptions, Recheck};
use pando_vfs::{Vfs, VfsOptions};
use rustix::{
    fs::Mode,
    process::{Resource, Rlimit},
};
use tracing::debug;

/// How often the source is asked again for what is cached, if it does not report changes.
pub const RECHECK: Duration = Duration::from_secs(1);
/// How long the kernel may answer from its caches, if it is not told of changes.
pub const UNTOLD: Duration = Duration::from_secs(1);

/// The most inodes that are cached for a while. With about 0.6 KB for each, this is 60 MB. Inodes
/// that the kernel or a program uses are not evicted.
const CACHED_MAX: usize = 100_000;

/// How often the number of cached inodes is looked at. A million look-ups in a second, more than
/// any host makes, would add 100,000 meanwhile.
const PERIOD: Duration = Duration::from_millis(100);

/// The tree of a mount, and the thread that bounds its cache.
pub struct SourceTree {
    pub vfs: Vfs,
    /// The kernel reports changes by others.
    pub is_watched: bool,
    stop: Option<Sender<()>>,
    evictor: Option<JoinHandle<()>>,
}

impl SourceTree {
    /// A tree on a directory, which others may change or not.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open(dir: &Path, recheck: Recheck, options: VfsOptions) -> Result<Self> {
        // The kernel has applied the umask of the program that makes a file.
        rustix::process::umask(Mode::empty());
        // For the descriptors of cached inodes, and those of files without names.
        let limit = rustix::process::getrlimit(Resource::Nofile);
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        let driver = HostFs::open(dir, HostOptions::new().recheck(recheck))
            .map_err(|error| Failure::system(format_args!("--source {}", for_shell(dir)), &error))?;
        let is_watched = driver.is_watched();
        let driver = Arc::new(driver);
        let vfs = Vfs::with_options(driver.clone(), options)
            .map_err(|error| Failure::new(format!("cannot make the tree: {error}")))?;
        let (stop, stopped) = mpsc::channel();
        let evictor = thread::Builder::new().name("pando-evict".into()).spawn({
            let vfs = vfs.clone();
            move || {
                while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                    let (_, cached) = driver.usage();
                    if cached > CACHED_MAX {
                        // A little more, so that the next look-ups find room.
                        let evicted = vfs.evict(cached - CACHED_MAX + CACHED_MAX / 8);
                        debug!(cached, ?evicted, "evicted");
                    }
                }
            }
        });
        let evictor = evictor.map_err(|error| Failure::system("cannot start a thread", &error))?;
        Ok(Self { vfs, is_watched, stop: Some(stop), evictor: Some(evictor) })
    }
}

impl Drop for SourceTree {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(evictor) = self.evictor.take() {
            // It cannot panic but with the tree itself, which is being dropped.
            let _ = evictor.join();
        }
    }
}
