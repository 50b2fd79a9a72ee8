//! `pando umount`: unmounts a tree.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use pando_console::{
    failure::{Failure, Result},
    mountinfo::{self, Mount},
    quote::for_shell,
};
use pando_fuse::{server_end, unmount};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    io::Errno,
    process::{PidfdFlags, pidfd_open},
};
use tracing::{debug, info};

use crate::mounted::{self, held};

/// Options of `pando umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The directory where the tree is mounted
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// Detach the tree now, even if it is in use; the server ends when the last user has left
    #[arg(long, conflicts_with = "force")]
    pub lazy: bool,

    /// Abort waiting requests (they fail with an I/O error), then unmount; open files become
    /// unusable
    #[arg(long)]
    pub force: bool,
}

/// The longest wait for a server to end after a clean unmount. By then it has nothing left to do.
const SERVER_END: Duration = Duration::from_secs(60);

/// Unmounts a tree. Returns when its server has ended, or with `--lazy` when the tree is detached.
///
/// # Errors
/// The directory is not a mount of pando, it is in use, or the system refuses. The server could not
/// store the last changes, or has failed otherwise.
pub fn run(args: &UmountArgs) -> Result<()> {
    let shown = for_shell(&args.dir);
    let path = held::resolve(&args.dir).map_err(|error| Failure::system(&shown, &error))?;
    let mount = mountinfo::at(&path).map_err(|error| Failure::system("/proc/self/mountinfo", &error))?;
    let mount = match mount {
        Some(mount) if mount.is_ours() => mount,
        Some(mount) => {
            return Err(Failure::new(format!("{shown}: not a pando tree but a mount of type {}", mount.shown_kind()))
                .remedy(format!("unmount it with: umount {shown}")));
        }
        None => return Err(Failure::new(format!("{shown}: nothing is mounted here")).remedy(mounted::list())),
    };
    // --force is for a server that hangs. It would not answer the questions below.
    let asked = !(args.lazy || args.force);
    // Aborting the connection would break the mounts inside too.
    let kept = if args.force { inside(&mount) } else { Vec::new() };
    if !kept.is_empty() {
        return Err(in_use(args, &kept));
    }
    let held = held::hold(&path, Some(&mount.device)).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::INVAL) => Failure::new(format!("{shown}: another process has just unmounted or moved it")),
        _ => Failure::system(&shown, &error),
    })?;
    let dead = asked && held::dead_at(held.path());
    let server = if asked && !dead { server(held.path()) } else { None };
    let done = if args.lazy || dead {
        unmount::detach(held.path())
    } else if args.force {
        unmount::by_force(held.path())
    } else {
        unmount::cleanly(held.path())
    };
    done.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::BUSY) => in_use(args, &inside(&mount)),
        Some(Errno::PERM) => {
            Failure::new(format!("{shown}: only root may do this")).remedy(format!("try: sudo pando umount {shown}"))
        }
        _ => Failure::system(&shown, &error),
    })?;
    info!(path = %path.display(), "unmounted");
    server.map_or(Ok(()), |server| wait_for_end(&server, &args.dir))
}

/// The mounts inside a tree.
fn inside(mount: &Mount) -> Vec<Mount> {
    let mut inside = mountinfo::all().unwrap_or_default();
    inside.retain(|other| other.parent == mount.id);
    inside
}

/// Why a tree is in use: mounts inside it, which fuser does not show, or else processes.
fn in_use(args: &UmountArgs, inside: &[Mount]) -> Failure {
    let shown = for_shell(&args.dir);
    if inside.is_empty() {
        let failure = Failure::new(format!("{shown}: in use: a process has a file open or its directory there"));
        return failure.remedy(format!(
            "see which processes: fuser -vm {shown}\nor detach it while they finish: pando umount --lazy {shown}"
        ));
    }
    let commands: Vec<String> = inside
        .iter()
        .map(|other| format!("{} {}", if other.is_ours() { "pando umount" } else { "umount" }, for_shell(&other.point)))
        .collect();
    Failure::new(format!("{shown}: in use: something is mounted inside it: {}", mounted::points(inside)))
        .remedy(format!("unmount that first: {}", commands.join("; ")))
}

/// A handle to the process that serves the tree at `path`, if it is known and visible in this PID
/// namespace.
fn server(path: &Path) -> Option<OwnedFd> {
    let pid = held::server_at(path)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // In another PID namespace the number may be that of an unrelated process. Do not wait for
    // that.
    let name = std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).ok()?;
    debug!(%pid, name = name.trim(), "the server");
    name.starts_with("pando").then_some(handle)
}

fn wait_for_end(server: &OwnedFd, dir: &Path) -> Result<()> {
    let timeout = Timespec::try_from(SERVER_END).ok();
    loop {
        match poll(&mut [PollFd::new(server, PollFlags::IN)], timeout.as_ref()) {
            Err(Errno::INTR) => {}
            Ok(0) => {
                return Err(Failure::new(format!("{}: unmounted, but its server has not ended", for_shell(dir)))
                    .remedy(
                        "a mount namespace that was made meanwhile, as of a container, may still have the tree mounted; \
                         the processes in it:\ngrep -ls fuse.pandofs /proc/[0-9]*/mountinfo",
                    ));
            }
            // The server has ended, or its handle cannot be polled. In both cases there is nothing
            // to wait for.
            Ok(_) | Err(_) => break,
        }
    }
    match server_end::status(server.as_fd()) {
        Some(status) if !status.success() => {
            Err(Failure::new(format!("{}: unmounted, but its server failed at the end: {status}", for_shell(dir)))
                .remedy("the reason is on its stderr, or with --daemon in the system's log"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any user may mount anywhere and choose the subtype. Root reads the messages about it.
    #[test]
    fn mounts_of_other_users_are_quoted_in_messages() {
        let table = b"40 22 0:33 / /a\x1b[2J rw - fuse.pandofs x rw\n\
            41 22 0:34 / /b\\012c rw - fuse.\x1b[2J x rw\n\
            42 22 0:35 / /plain rw - fuse.pandofs x rw\n";
        let mounts = mountinfo::parse(table);
        assert_eq!(mounted::points(&mounts), "'/a'$'\\033''[2J', '/b'$'\\n''c', /plain");
        assert_eq!(mounts[1].shown_kind(), "'fuse.'$'\\033''[2J'");
        assert_eq!(mounts[2].shown_kind(), "fuse.pandofs");
        let args = UmountArgs { dir: mounts[1].point.clone(), lazy: false, force: false };
        let failure = in_use(&args, &mounts).to_string();
        assert!(!failure.contains('\x1b'), "{failure:?}");
        assert!(failure.contains("unmount that first: pando umount '/a'"), "{failure}");
    }
}
