//! `pando mount`.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use pando_fuse::{DeviceTransport, RingTransport, Server, ServerOptions, Transport, trace::TraceListener, unmount};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::Vfs;
use rustix::io::Errno;
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use crate::{
    args::{IoUring, MountArgs},
    daemon,
    mount_options::Asked,
    mount_point, mount_refused, slow, tree_limits,
};
use pando_console::{
    failure::{Failure, Result, say},
    memory_limits,
    mountinfo::{self, Mount},
    output::show,
    quote::for_shell,
    signals,
};

/// Mounts a tree and serves it until it is unmounted.
///
/// # Errors
/// It cannot be mounted, each reason with its remedy, or the device failed.
pub fn run(args: &MountArgs, asked: Asked, in_background: bool) -> Result<ExitCode> {
    let shown = for_shell(&args.dir);
    let (mut prepared, held) = mount_point::prepare(&args.dir, args.nonempty)?;
    if prepared.cleaned {
        say(format_args!("pando: {shown}: cleaned a mount left dead by a server that was killed"));
    }
    for (word, why) in &asked.without_effect {
        say(format_args!("pando: {shown}: -o {word} has no effect: {why}"));
    }
    let slow = slow::store(&args.slow, tracing::enabled!(tracing::Level::INFO))?;
    let vfs = tree(args, asked.mount.threads.get())?;
    let server = Server::new(vfs.clone(), ServerOptions { valid: args.attr_timeout, birth_times: args.birth_times });
    let server = match &slow {
        Some(slow) => server.with_store(slow.store()),
        None => server,
    };
    // Before mounting: a signal between the two would leave a dead mount behind.
    let signals = Signals::new(signals::ending()).map_err(|error| Failure::system("cannot catch signals", &error))?;
    let connection = transport(args.io_uring)
        .connect(server, held.path(), &asked.mount)
        .map_err(|error| mount_refused::explain(&args.dir, &error))?;
    // What is below is not ours to keep in use.
    drop(held);
    let mount = mountinfo::at(&prepared.path).ok().flatten();
    let ignored = mount.as_ref().map(|mount| asked.ignored(mount)).unwrap_or_default();
    if !ignored.is_empty() {
        say(format_args!("pando: {shown}: -o {}: ignored: only root may mount so", ignored.join(",")));
    }
    let device = mount.map(|mount| mount.device);
    // For `pando trace`, which the mount does without if it must.
    let listener = device.as_deref().map(|device| TraceListener::start(vfs, device));
    if let Some(Err(error)) = &listener {
        warn!(%error, "this mount cannot be traced");
    }
    let leaver = Leaver { path: prepared.path.clone(), device };
    let served = leaver.while_serving(signals, || {
        announce(args, &prepared.path, in_background)?;
        prepared.keep();
        connection.serve().map_err(|error| Failure::system(format_args!("{shown}: the server ended"), &error))
    });
    // Its number may be another mount's by now, which wants to listen there.
    drop(listener);
    leaver.clean(served.is_err());
    served?;
    if let Some(slow) = slow {
        // Not within the message, which nobody may want to see.
        let requests = slow.finish()?;
        info!("requests: {requests}");
    }
    info!(path = %prepared.path.display(), "unmounted");
    Ok(ExitCode::SUCCESS)
}

fn transport(io_uring: IoUring) -> Box<dyn Transport> {
    match io_uring {
        IoUring::Auto => Box::new(RingTransport { required: false }),
        IoUring::Always => Box::new(RingTransport { required: true }),
        IoUring::Never => Box::new(DeviceTransport),
    }
}

fn tree(args: &MountArgs, threads: usize) -> Result<Vfs> {
    let memory = memory_limits::smallest();
    let asked = MemOptions { size_bytes: args.size, inodes: args.inodes };
    if let Some(warning) = tree_limits::warning(asked, threads, memory.as_ref()) {
        say(format_args!("pando: {}: {warning}", for_shell(&args.dir)));
    }
    let memfs = MemFs::new(tree_limits::choose(asked, threads, memory.as_ref()));
    let uid = args.uid.unwrap_or_else(|| rustix::process::getuid().as_raw());
    let gid = args.gid.unwrap_or_else(|| rustix::process::getgid().as_raw());
    Vfs::with_root_attributes(memfs, uid, gid, args.mode)
        .map_err(|error| Failure::new(format!("cannot make the tree: {error}")))
}

/// The one line that says where, what, and how to leave.
fn announce(args: &MountArgs, path: &Path, in_background: bool) -> Result<()> {
    let leave = if in_background { "to leave:" } else { "to leave: Ctrl-C, or" };
    let shown = for_shell(&args.dir);
    let line = format!("{}: an in-memory tree is mounted ({leave} pando umount {shown})\n", for_shell(path));
    if in_background {
        return daemon::ready(&line);
    }
    show(&line);
    Ok(())
}

/// Once the tree is unmounted, its server ends, well, and no second signal (Ctrl-C comes twice through some wrappers) may turn
/// that into a failure. It has not ended after so long where the tree is mounted elsewhere as well.
const ONE_SIGNAL: Duration = Duration::from_secs(1);

/// What is said of a tree that is used and not mounted any more.
const LAST_USER: &str = "the server ends when the last user has left (signal again to end it now)";

/// Unmounts when a signal asks for it, and when nobody serves any more.
#[derive(Clone)]
struct Leaver {
    path: PathBuf,
    /// Which superblock is ours, if it could be found out: what is mounted at `path` later may be another's.
    device: Option<String>,
}

impl Leaver {
    /// Serves, with a thread beside it that unmounts on signals.
    fn while_serving(&self, signals: Signals, serve: impl FnOnce() -> Result<()>) -> Result<()> {
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
        match mount_point::hold(&path, device).and_then(|held| unmount::cleanly(held.path())) {
            Ok(()) => false,
            // Unmounted by somebody else in the same moment.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => false,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                say(format_args!("pando: {shown}: in use: detached; {LAST_USER}"));
                if let Err(error) = mount_point::detach(&path, device) {
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
    fn clean(&self, failed: bool) {
        let at_path = mountinfo::at(&self.path).ok().flatten();
        let is_this = |mount: &Mount| self.device.as_ref().is_none_or(|device| *device == mount.device);
        let ours = at_path.is_some_and(|mount| mount.is_ours() && is_this(&mount));
        let served_by_us = || mount_point::server_at(&self.path).is_some_and(|pid| pid == rustix::process::getpid());
        if ours && (mount_point::dead_at(&self.path) || failed && served_by_us()) {
            // If it cannot be done, somebody else was faster, or may do it and we may not.
            let _ = mount_point::detach(&self.path, self.device.as_deref());
        }
    }
}
