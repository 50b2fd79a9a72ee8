//! The end of a mount: on a signal, or when its server has stopped.

use std::{
    io,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use pando_console::{
    failure::{Failure, Result, say},
    mountinfo::{self, Mount},
    quote::for_shell,
};
use pando_fuse::unmount;
use rustix::io::Errno;
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use crate::mounted::held;

/// Once the tree is unmounted, its server ends, well, and no second signal (Ctrl-C comes twice through some wrappers) may turn
/// that into a failure. It has not ended after so long where the tree is mounted elsewhere as well.
const ONE_SIGNAL: Duration = Duration::from_secs(1);

/// What is said of a tree that is used and not mounted any more.
const LAST_USER: &str = "the server ends when the last user has left (signal again to end it now)";

/// Unmounts when a signal asks for it, and when nobody serves any more.
#[derive(Clone)]
pub struct Leaver {
    pub path: PathBuf,
    /// Which superblock is ours, if it could be found out: what is mounted at `path` later may be another's.
    pub device: Option<String>,
}

impl Leaver {
    /// Serves, with a thread beside it that unmounts on signals.
    pub fn while_serving(&self, signals: Signals, serve: impl FnOnce() -> Result<()>) -> Result<()> {
        let (handle, leaver) = (signals.handle(), self.clone());
        let waiter = thread::Builder::new()
            .name("pando-signals".into())
            .spawn(move || leaver.leave_on(signals))
            .map_err(|error| Failure::system("cannot start a thread", &error))?;
        let served = serve();
        handle.close();
        // Its answer is nothing; had it panicked, it said so.
        let _ = waiter.join();
        served
    }

    fn leave_on(&self, mut signals: Signals) {
        // From when on another signal is taken for a second one.
        let mut again = None;
        for signal in signals.forever() {
            match again {
                None => {
                    info!(signal, "unmounting");
                    let patience = if self.leave() { Duration::ZERO } else { ONE_SIGNAL };
                    again = Some(Instant::now() + patience);
                }
                Some(again) if again <= Instant::now() => {
                    warn!(signal, "asked again: ending at once");
                    // The kernel breaks the connection off when we end: what is left of the tree answers nobody any more.
                    std::process::exit(1);
                }
                Some(_) => {}
            }
        }
    }

    /// Unmounts; true if the server has to go on for those who still use the tree.
    fn leave(&self) -> bool {
        let path = match self.place() {
            Ok(Some(path)) => path,
            Ok(None) => {
                // Another tree may be at our path by now.
                let shown = for_shell(&self.path);
                say(format_args!("pando: {shown}: detached already; {LAST_USER}"));
                return true;
            }
            Err(error) => {
                say(format_args!("pando: /proc/self/mountinfo: {error} (signal again to end the server)"));
                return true;
            }
        };
        let shown = for_shell(&path);
        let device = self.device.as_deref();
        match held::hold(&path, device).and_then(|held| unmount::cleanly(held.path())) {
            Ok(()) => false,
            // Unmounted by somebody else in the same moment.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => false,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                say(format_args!("pando: {shown}: in use: detached; {LAST_USER}"));
                if let Err(error) = held::detach(&path, device) {
                    say(format_args!("pando: {shown}: cannot be detached: {error}"));
                }
                true
            }
            Err(error) => {
                say(format_args!("pando: {shown}: cannot be unmounted: {error} (signal again to end the server)"));
                true
            }
        }
    }

    /// Where the mount is now: it may have been moved with a directory above it, or be covered by another. None if it is
    /// not mounted any more.
    fn place(&self) -> io::Result<Option<PathBuf>> {
        let Some(device) = &self.device else { return Ok(Some(self.path.clone())) };
        match mountinfo::all() {
            Ok(all) => Ok(all.into_iter().find(|mount| mount.device == *device).map(|mount| mount.point)),
            // No descriptor may be left to read it with, and none is needed to look at our path.
            Err(_) if mountinfo::device(&self.path).is_ok_and(|found| found == *device) => Ok(Some(self.path.clone())),
            Err(error) => Err(error),
        }
    }

    /// Takes away what is left when nobody serves any more and nobody has unmounted: serving did not begin, the device
    /// failed, or somebody broke it off. The number may be another mount's by now, which must not be touched, not even by
    /// asking it (that would make it busy for an instant): ours is at our path, and dead; or, where serving `failed`, some
    /// threads of ours are left that still answer. (Whoever mounts on it in the instant after it was held would lose
    /// his: what is on top is unmounted.)
    pub fn clean(&self, failed: bool) {
        let at_path = mountinfo::at(&self.path).ok().flatten();
        let is_this = |mount: &Mount| self.device.as_ref().is_none_or(|device| *device == mount.device);
        let ours = at_path.is_some_and(|mount| mount.is_ours() && is_this(&mount));
        let served_by_us = || held::server_at(&self.path).is_some_and(|pid| pid == rustix::process::getpid());
        if ours && (held::dead_at(&self.path) || failed && served_by_us()) {
            // If it cannot be done, somebody else was faster, or may do it and we may not.
            let _ = held::detach(&self.path, self.device.as_deref());
        }
    }
}
