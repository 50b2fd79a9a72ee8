//! `mount -o remount`: changes properties of a mounted tree, and keeps all others.

use std::path::Path;

use pando_console::{
    failure::{Failure, Result},
    mountinfo::{self, Mount},
    quote::for_shell,
};
use rustix::{io::Errno, mount::MountFlags};

use super::{args::MountArgs, asked::Asked, options::Property};
use crate::mounted::{self, held};

/// Changes the mount at the directory.
///
/// # Errors
/// It is not a mount of pando; a property cannot change while it is mounted; the system refuses.
pub fn run(args: &MountArgs, asked: &Asked) -> Result<()> {
    let shown = for_shell(&args.dir);
    let path = held::resolve(&args.dir).map_err(|error| Failure::system(&shown, &error))?;
    let mount = match mountinfo::at(&path).map_err(|error| Failure::system("/proc/self/mountinfo", &error))? {
        Some(mount) if mount.is_ours() => mount,
        Some(mount) => {
            let message = format!("{shown}: cannot be remounted: not a pando tree but of type {}", mount.shown_kind());
            return Err(Failure::new(message));
        }
        None => {
            let message = format!("{shown}: cannot be remounted: nothing is mounted here");
            return Err(Failure::new(message).remedy(mounted::list()));
        }
    };
    if let Some(fixed) = fixed(args, asked, &mount, &path) {
        return Err(Failure::new(format!("{shown}: {fixed} cannot be changed while it is mounted"))
            .remedy(format!("unmount it first (a tree in memory is lost then): pando umount {shown}")));
    }
    let held = held::hold(&path, Some(&mount.device)).map_err(|error| Failure::system(&shown, &error))?;
    rustix::mount::mount_remount(held.path(), flags(asked, &mount), "").map_err(|error| match error {
        Errno::PERM => Failure::new(format!("{shown}: only root may remount")),
        Errno::BUSY => Failure::new(format!("{shown}: a file is open for writing there"))
            .remedy(format!("see which processes have it open: fuser -vm {shown}")),
        error => Failure::system(format_args!("{shown}: cannot be remounted"), &error.into()),
    })
}

/// A property that would change but cannot, because the server reads it when it starts. mount(8)
/// repeats the words of fstab, so words without a change are accepted.
fn fixed(args: &MountArgs, asked: &Asked, mount: &Mount, path: &Path) -> Option<&'static str> {
    let turned =
        |property, now: bool| asked.set.iter().rfind(|(set, _)| *set == property).is_some_and(|(_, on)| *on != now);
    // The server negotiated setuid with the kernel. It stays correct if the mount allows less.
    if asked.mount.suid && mount.has("nosuid") {
        return Some("suid");
    }
    if turned(Property::NoAtime, mount.has("noatime")) || turned(Property::NoDirAtime, mount.has("nodiratime")) {
        return Some("the atime option");
    }
    if asked.mount.allow_other && !mount.has_of_superblock("allow_other") {
        return Some("allow_other");
    }
    if args.size.is_none() && args.inodes.is_none() {
        return None;
    }
    let stat = rustix::fs::statfs(path).ok()?;
    let block = u64::try_from(stat.f_bsize).ok().filter(|&bytes| bytes > 0)?;
    if args.size.is_some_and(|bytes| bytes.div_ceil(block) != stat.f_blocks) {
        return Some("the size");
    }
    args.inodes.is_some_and(|inodes| inodes != stat.f_files).then_some("the number of inodes")
}

/// The flags of the mount with the changes. mount(2) takes a missing flag as off.
fn flags(asked: &Asked, mount: &Mount) -> MountFlags {
    let kept = [
        (Property::Suid, MountFlags::NOSUID, !mount.has("nosuid")),
        (Property::Dev, MountFlags::NODEV, !mount.has("nodev")),
        (Property::Exec, MountFlags::NOEXEC, !mount.has("noexec")),
        (Property::ReadOnly, MountFlags::RDONLY, mount.has("ro")),
        (Property::NoAtime, MountFlags::NOATIME, mount.has("noatime")),
        (Property::NoDirAtime, MountFlags::NODIRATIME, mount.has("nodiratime")),
        (Property::NoSymFollow, MountFlags::NOSYMFOLLOW, mount.has("nosymfollow")),
        (Property::Sync, MountFlags::SYNCHRONOUS, mount.has_of_superblock("sync")),
        (Property::DirSync, MountFlags::DIRSYNC, mount.has_of_superblock("dirsync")),
        (Property::LazyTime, MountFlags::LAZYTIME, mount.has_of_superblock("lazytime")),
    ];
    let mut flags = MountFlags::empty();
    for (property, flag, now) in kept {
        let on = asked.set.iter().rfind(|(set, _)| *set == property).map_or(now, |(_, on)| *on);
        // Three of the flags are negations.
        let negative = matches!(property, Property::Suid | Property::Dev | Property::Exec);
        flags.set(flag, on != negative);
    }
    if mount.has("relatime") {
        flags |= MountFlags::RELATIME;
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_that_are_not_given_stay() {
        let table = b"40 22 0:33 / /a ro,nosuid,noexec,nodiratime,relatime - fuse.pandofs x rw,sync,user_id=0\n";
        let mount = &mountinfo::parse(table)[0];
        let none = Asked {
            mount: pando_fuse::MountOptions::default(),
            set: Vec::new(),
            remount: true,
            without_effect: Vec::new(),
        };
        let kept = MountFlags::NOSUID
            | MountFlags::NOEXEC
            | MountFlags::NODIRATIME
            | MountFlags::RELATIME
            | MountFlags::SYNCHRONOUS;
        assert_eq!(flags(&none, mount), kept | MountFlags::RDONLY);
        let set =
            vec![(Property::ReadOnly, false), (Property::Exec, true), (Property::Dev, false), (Property::Sync, false)];
        let asked = Asked { set, ..none };
        let left = kept - MountFlags::NOEXEC - MountFlags::SYNCHRONOUS;
        assert_eq!(flags(&asked, mount), left | MountFlags::NODEV);
    }
}
