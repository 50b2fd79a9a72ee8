//! `pando umount`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use pando_fuse::unmount;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::Errno,
    process::{PidfdFlags, pidfd_open},
};
use tracing::{debug, info};

use crate::{
    args::UmountArgs,
    failure::{Failure, Result},
    mount_point,
    mountinfo::{self, Mount},
    quote::for_shell,
};

/// The longest wait for a server to end after a clean unmount. It has nothing left to do but to end.
const SERVER_END: Duration = Duration::from_secs(10);

/// Unmounts a tree of ours; returns when its server has ended (with `--lazy`: when it is detached).
///
/// # Errors
/// It is not a mount of ours, it is in use, or the system refuses.
pub fn run(args: &UmountArgs) -> Result<()> {
    let shown = args.dir.display();
    let path = mount_point::resolve(&args.dir).map_err(|error| Failure::system(&shown, &error))?;
    let mount = mountinfo::at(&path).map_err(|error| Failure::system("/proc/self/mountinfo", &error))?;
    let mount = match mount {
        Some(mount) if mount.is_ours() => mount,
        Some(mount) => {
            return Err(Failure::new(format!("{shown}: not a pando tree but a mount of type {}", mount.kind))
                .remedy(format!("unmount it with: umount {}", for_shell(&args.dir))));
        }
        None => return Err(Failure::new(format!("{shown}: nothing is mounted here")).remedy(where_ours_are())),
    };
    // A server that hangs, which --force is for, would not answer: neither whether it is there nor who it is.
    let asked = !(args.lazy || args.force);
    // Breaking off would take what is mounted inside with it.
    let kept = if args.force { inside(&mount) } else { Vec::new() };
    if !kept.is_empty() {
        return Err(in_use(args, &kept));
    }
    let dead = asked && mount_point::dead_at(&path);
    let server = if asked && !dead { server(&path) } else { None };
    let done = if args.lazy || dead {
        unmount::detach(&path)
    } else if args.force {
        unmount::by_force(&path)
    } else {
        unmount::cleanly(&path)
    };
    done.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::BUSY) => in_use(args, &inside(&mount)),
        Some(Errno::PERM) => Failure::new(format!("{shown}: only root may do this"))
            .remedy(format!("try: sudo pando umount {}", for_shell(&args.dir))),
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
    let shown = args.dir.display();
    if inside.is_empty() {
        let failure = Failure::new(format!("{shown}: in use: a process has a file open or its directory there"));
        let dir = for_shell(&args.dir);
        return failure.remedy(format!(
            "see who with: fuser -vm {dir}\nor detach it and let them finish: pando umount --lazy {dir}"
        ));
    }
    let points: Vec<String> = inside.iter().map(|other| other.point.display().to_string()).collect();
    let commands: Vec<String> = inside
        .iter()
        .map(|other| format!("{} {}", if other.is_ours() { "pando umount" } else { "umount" }, for_shell(&other.point)))
        .collect();
    Failure::new(format!("{shown}: in use: something is mounted inside it: {}", points.join(", ")))
        .remedy(format!("unmount that first: {}", commands.join("; ")))
}

/// Where trees of ours are mounted, for those who named another place.
pub fn where_ours_are() -> String {
    let ours: Vec<PathBuf> =
        mountinfo::all().unwrap_or_default().into_iter().filter(Mount::is_ours).map(|mount| mount.point).collect();
    match ours.as_slice() {
        [] => "no pando tree is mounted".into(),
        ours => {
            let list: Vec<String> = ours.iter().map(|path| path.display().to_string()).collect();
            format!("pando trees are mounted at: {}", list.join(", "))
        }
    }
}

/// A handle to the process that serves the tree at `path`, if it can be known and seen from here.
fn server(path: &Path) -> Option<OwnedFd> {
    let pid = mount_point::server_at(path)?;
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
                return Err(Failure::new(format!("{}: unmounted, but its server has not ended", dir.display()))
                    .remedy("it may be serving the tree elsewhere; find it with: pgrep -a pando"));
            }
            // Gone, or it cannot be watched: in both cases there is nothing to wait for.
            Ok(_) | Err(_) => return Ok(()),
        }
    }
}
