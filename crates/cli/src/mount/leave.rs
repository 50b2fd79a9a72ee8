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

/// After the unmount the server ends and reports success. A second signal within this time does not
/// turn that into a failure: some wrappers send Ctrl-C twice. A server that has not ended by then
/// serves another mount of the tree.
const ONE_SIGNAL: Duration = Duration::from_secs(1);

/// The end of messages about a tree that is unmounted but still in use.
const LAST_USER: &str = "the server ends when the last user has left (signal again to end it now)";

/// Unmounts when a signal arrives, and when serving has ended.
#[derive(Clone)]
pub struct Leaver {
    /// The mount point.
    pub path: PathBuf,
    /// The device number of our superblock, if it could be found. Another mount may be at `path`
    /// later.
    pub device: Option<String>,
}

impl Leaver {
    /// Serves, beside a thread that unmounts on signals.
    pub fn while_serving(&self, signals: Signals, serve: impl FnOnce() -> Result<()>) -> Result<()> {
        let (handle, leaver) = (signals.handle(), self.clone());
        let waiter = thread::Builder::new()
            .name("pando-signals".into())
            .spawn(move || leaver.leave_on(signals))
            .map_err(|error| Failure::system("cannot start a thread", &error))?;
        let served = serve();
        handle.close();
        // The thread returns nothing, and a panic of it has been printed.
        let _ = waiter.join();
        served
    }

    fn leave_on(&self, mut signals: Signals) {
        // The time from which a signal counts as the second one.
        let mut again = None;
        for signal in signals.forever() {
            match again {
                None => {
                    info!(signal, "unmounting");
                    let patience = if self.leave() { Duration::ZERO } else { ONE_SIGNAL };
                    again = Some(Instant::now() + patience);
                }
                Some(again) if again <= Instant::now() => {
                    warn!(signal, "second signal: ending at once");
                    // The kernel aborts the connection when this process ends. The rest of the tree
                    // then fails every request.
                    std::process::exit(1);
                }
                Some(_) => {}
            }
        }
    }

    /// Unmounts. True if the server has to go on because the tree is still in use.
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
            // Another process unmounted it at the same moment.
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

    /// Where the mount is now: another mount may cover it, or a directory above it may have been
    /// moved. None if it is not mounted any more.
    fn place(&self) -> io::Result<Option<PathBuf>> {
        let Some(device) = &self.device else { return Ok(Some(self.path.clone())) };
        match mountinfo::all() {
            Ok(all) => Ok(all.into_iter().find(|mount| mount.device == *device).map(|mount| mount.point)),
            // There may be no free descriptor to read the table with. Looking at our path needs
            // none.
            Err(_) if mountinfo::device(&self.path).is_ok_and(|found| found == *device) => Ok(Some(self.path.clone())),
            Err(error) => Err(error),
        }
    }

    /// Removes the mount if serving has ended and nobody has unmounted it: serving did not begin,
    /// the device failed, or the connection was aborted.
    ///
    /// The device number may belong to another mount by now, which must not be touched. Even a
    /// question to that mount would make it busy for an instant. The mount is ours if it is at our
    /// path and is dead, or if serving `failed` and threads of this process still answer for it.
    /// There is a gap: a mount that another process puts on top in the instant after ours was held
    /// is unmounted instead.
    pub fn clean(&self, failed: bool) {
        let at_path = mountinfo::at(&self.path).ok().flatten();
        let is_this = |mount: &Mount| self.device.as_ref().is_none_or(|device| *device == mount.device);
        let ours = at_path.is_some_and(|mount| mount.is_ours() && is_this(&mount));
        let served_by_us = || held::server_at(&self.path).is_some_and(|pid| pid == rustix::process::getpid());
        if ours && (held::dead_at(&self.path) || failed && served_by_us()) {
            // If this fails, another process was faster, or only others may do it.
            let _ = held::detach(&self.path, self.device.as_deref());
        }
    }
}
