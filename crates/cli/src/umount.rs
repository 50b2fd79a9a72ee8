//! `pando umount`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use pando_fuse::unmount;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::Errno,
    process::{PidfdFlags, pidfd_open},
};
use tracing::{debug, info};

use pando_console::{
    failure::{Failure, Result},
    mountinfo::{self, Mount},
    quote::for_shell,
};

use crate::mounted::{self, held};

/// Options of `pando umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// Where the tree is mounted
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// Detach it now, even if it is in use; the server ends when the last user has left
    #[arg(long, conflicts_with = "force")]
    pub lazy: bool,

    /// Break off requests that are waiting (they fail with an I/O error), then unmount; open files are of no more use
    #[arg(long)]
    pub force: bool,
}

/// The longest wait for a server to end after a clean unmount. It has nothing left to do but to end.
const SERVER_END: Duration = Duration::from_secs(10);

/// Unmounts a tree of ours; returns when its server has ended (with `--lazy`: when it is detached).
///
/// # Errors
/// It is not a mount of ours, it is in use, or the system refuses.
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
    // A server that hangs, which --force is for, would not answer: neither whether it is there nor who it is.
    let asked = !(args.lazy || args.force);
    // Breaking off would take what is mounted inside with it.
    let kept = if args.force { inside(&mount) } else { Vec::new() };
    if !kept.is_empty() {
        return Err(in_use(args, &kept));
    }
    let held = held::hold(&path, Some(&mount.device)).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::INVAL) => Failure::new(format!("{shown}: unmounted or moved by somebody else a moment ago")),
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

/// What is mounted in a tree.
fn inside(mount: &Mount) -> Vec<Mount> {
    let mut inside = mountinfo::all().unwrap_or_default();
    inside.retain(|other| other.parent == mount.id);
    inside
}

/// Why it is in use: what is mounted inside, which no program for open files tells of, or else processes.
fn in_use(args: &UmountArgs, inside: &[Mount]) -> Failure {
    let shown = for_shell(&args.dir);
    if inside.is_empty() {
        let failure = Failure::new(format!("{shown}: in use: a process has a file open or its directory there"));
        return failure.remedy(format!(
            "see who with: fuser -vm {shown}\nor detach it and let them finish: pando umount --lazy {shown}"
        ));
    }
    let commands: Vec<String> = inside
        .iter()
        .map(|other| format!("{} {}", if other.is_ours() { "pando umount" } else { "umount" }, for_shell(&other.point)))
        .collect();
    Failure::new(format!("{shown}: in use: something is mounted inside it: {}", mounted::points(inside)))
        .remedy(format!("unmount that first: {}", commands.join("; ")))
}

/// A handle to the process that serves the tree at `path`, if it can be known and seen from here.
fn server(path: &Path) -> Option<OwnedFd> {
    let pid = held::server_at(path)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // In another name space of processes the number means someone else, for whom not to wait.
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
                    .remedy("it may be serving the tree elsewhere; find it with: pgrep -a pando"));
            }
            // Gone, or it cannot be watched: in both cases there is nothing to wait for.
            Ok(_) | Err(_) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any user may mount, where he likes and with a subtype of his choice, and it is root who is told of it.
    #[test]
    fn what_others_have_mounted_is_text() {
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
