//! The flags of inodes (chattr, lsattr): FS_IOC_GETFLAGS, FS_IOC_SETFLAGS. Not every file system
//! has them. Where there are none, the cases do nothing.

use std::{fs, os::fd::OwnedFd, path::Path};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, RenameFlags, renameat2},
    sys::{
        stat::{Mode, UtimensatFlags, mknod, utimensat},
        time::TimeSpec,
    },
    unistd::{Gid, chown, ftruncate, linkat, mkdir, symlinkat, truncate, write},
};
use rustix::fs::{IFlags, XattrFlags, ioctl_getflags, ioctl_setflags};

use crate::place::{Case, OWNER, Place, STRANGER, as_nix, case, fails, open, users};

const ALL: IFlags = IFlags::IMMUTABLE.union(IFlags::APPEND).union(IFlags::NODUMP).union(IFlags::NOATIME);

/// A file or directory of which a flag is set, until this is dropped.
struct Flagged(OwnedFd);

impl Drop for Flagged {
    fn drop(&mut self) {
        let rest = ioctl_getflags(&self.0).map(|flags| flags - ALL);
        let _ = rest.and_then(|rest| ioctl_setflags(&self.0, rest));
    }
}

/// Sets flags. None if the file system has no flags.
fn set(place: &Place, path: &str, flags: IFlags) -> Option<Flagged> {
    let file = open(place, path, OFlag::O_RDONLY);
    let old = ioctl_getflags(&file).ok()?;
    as_nix(ioctl_setflags(&file, old | flags)).expect("set");
    Some(Flagged(file))
}

/// Whether the file system at `path` has flags.
pub fn are_there(path: &Path) -> bool {
    fs::File::open(path).is_ok_and(|file| ioctl_getflags(file).is_ok())
}

fn flags(place: &Place, path: &str) -> IFlags {
    ioctl_getflags(open(place, path, OFlag::O_RDONLY)).expect("there are flags") & ALL
}

fn open_with(place: &Place, path: &str, flags: OFlag) -> nix::Result<OwnedFd> {
    nix::fcntl::open(&place.path(path), flags, Mode::S_IRWXU)
}

fn rename(place: &Place, old: &str, new: &str, flags: RenameFlags) -> nix::Result<()> {
    renameat2(AT_FDCWD, &place.path(old), AT_FDCWD, &place.path(new), flags)
}

fn link(place: &Place, old: &str, new: &str) -> nix::Result<()> {
    linkat(AT_FDCWD, &place.path(old), AT_FDCWD, &place.path(new), nix::fcntl::AtFlags::empty())
}

fn utimens(place: &Place, path: &str, time: TimeSpec) -> nix::Result<()> {
    utimensat(AT_FDCWD, &place.path(path), &time, &time, UtimensatFlags::FollowSymlink)
}

/// The calls that both flags forbid fail with EPERM, for root too.
fn expect_protected(place: &Place, path: &str) {
    let full = place.path(path);
    fails(Errno::EPERM, nix::unistd::unlink(&full));
    fails(Errno::EPERM, rename(place, path, "new", RenameFlags::empty()));
    fails(Errno::EPERM, rename(place, "other", path, RenameFlags::empty()));
    fails(Errno::EPERM, rename(place, "other", path, RenameFlags::RENAME_EXCHANGE));
    fails(Errno::EPERM, link(place, path, "new"));
    fails(Errno::EPERM, open_with(place, path, OFlag::O_WRONLY));
    fails(Errno::EPERM, open_with(place, path, OFlag::O_RDWR | OFlag::O_TRUNC | OFlag::O_APPEND));
    fails(Errno::EPERM, truncate(&full, 4));
    fails(
        Errno::EPERM,
        nix::sys::stat::fchmodat(AT_FDCWD, &full, Mode::S_IRWXU, nix::sys::stat::FchmodatFlags::FollowSymlink),
    );
    fails(Errno::EPERM, chown(&full, None, Some(Gid::from_raw(7))));
    fails(Errno::EPERM, utimens(place, path, TimeSpec::new(5, 5)));
    fails(Errno::EPERM, as_nix(rustix::fs::setxattr(&full, "user.name", b"value", XattrFlags::empty())));
    assert_eq!(fs::read(full).expect("can be read"), b"some bytes");
}

pub const CASES: &[Case] = &[
    users("an immutable file cannot be changed, renamed, linked or removed", |place| {
        place.file("file");
        place.file("other");
        let Some(flagged) = set(place, "file", IFlags::IMMUTABLE) else { return };
        assert_eq!(flags(place, "file"), IFlags::IMMUTABLE);
        expect_protected(place, "file");
        fails(Errno::EPERM, open_with(place, "file", OFlag::O_WRONLY | OFlag::O_APPEND));
        fails(Errno::EPERM, utimens(place, "file", TimeSpec::UTIME_NOW));
        drop(flagged);
        fs::write(place.path("file"), "new").expect("it can be changed again");
        fs::remove_file(place.path("file")).expect("it can be removed again");
    }),
    users("an append-only file grows, and is protected otherwise", |place| {
        place.file("file");
        place.file("other");
        let Some(_flagged) = set(place, "file", IFlags::APPEND) else { return };
        expect_protected(place, "file");
        utimens(place, "file", TimeSpec::UTIME_NOW).expect("permitted");
        let end = open_with(place, "file", OFlag::O_WRONLY | OFlag::O_APPEND).expect("permitted");
        fails(Errno::EPERM, ftruncate(&end, 4));
        write(&end, b" more").expect("permitted");
        assert_eq!(fs::read(place.path("file")).expect("read"), b"some bytes more");
    }),
    users("names in an immutable directory are neither made nor removed", |place| {
        place.dir("dir");
        place.dir("dir/sub");
        place.file("dir/file");
        place.file("other");
        let Some(_flagged) = set(place, "dir", IFlags::IMMUTABLE) else { return };
        let new = place.path("dir/new");
        fails(Errno::EPERM, open_with(place, "dir/new", OFlag::O_WRONLY | OFlag::O_CREAT));
        fails(Errno::EPERM, mkdir(&new, Mode::S_IRWXU));
        fails(Errno::EPERM, mknod(&new, nix::sys::stat::SFlag::S_IFIFO, Mode::S_IRWXU, 0));
        fails(Errno::EPERM, symlinkat("target", AT_FDCWD, &new));
        fails(Errno::EPERM, link(place, "other", "dir/new"));
        fails(Errno::EPERM, rename(place, "other", "dir/new", RenameFlags::empty()));
        fails(Errno::EPERM, rename(place, "dir/file", "new", RenameFlags::empty()));
        fails(Errno::EPERM, nix::unistd::unlink(&place.path("dir/file")));
        fails(
            Errno::EPERM,
            nix::unistd::unlinkat(AT_FDCWD, &place.path("dir/sub"), nix::unistd::UnlinkatFlags::RemoveDir),
        );
        fails(Errno::EPERM, rename(place, "dir", "new", RenameFlags::empty()));
        fs::write(place.path("dir/file"), "new").expect("the files in it can be changed");
    }),
    users("names in an append-only directory are made, and not removed", |place| {
        place.dir("dir");
        let Some(_flagged) = set(place, "dir", IFlags::APPEND) else { return };
        place.file("dir/file");
        place.dir("dir/sub");
        fails(Errno::EPERM, nix::unistd::unlink(&place.path("dir/file")));
        fails(Errno::EPERM, rename(place, "dir/file", "dir/new", RenameFlags::empty()));
        fails(Errno::EPERM, rename(place, "dir/file", "new", RenameFlags::empty()));
        fails(
            Errno::EPERM,
            nix::unistd::unlinkat(AT_FDCWD, &place.path("dir/sub"), nix::unistd::UnlinkatFlags::RemoveDir),
        );
    }),
    case("new files inherit NODUMP and NOATIME from their directory", |place| {
        place.dir("dir");
        let Some(_flagged) = set(place, "dir", IFlags::NODUMP | IFlags::NOATIME) else { return };
        place.file("dir/file");
        place.dir("dir/sub");
        for path in ["dir/file", "dir/sub"] {
            assert_eq!(flags(place, path), IFlags::NODUMP | IFlags::NOATIME, "{path}");
        }
    }),
    case("reading a file with NOATIME does not change its atime", |place| {
        place.file("file");
        let Some(_flagged) = set(place, "file", IFlags::NOATIME) else { return };
        let changed = place.changed(&["file"], || {
            assert_eq!(fs::read(place.path("file")).expect("read"), b"some bytes");
            Ok(())
        });
        assert_eq!(changed, "");
    }),
    case("a change of the flags changes the ctime", |place| {
        place.file("file");
        if set(place, "file", IFlags::empty()).is_none() {
            return;
        }
        let file = open(place, "file", OFlag::O_RDONLY);
        let changed = place.changed(&["", "file"], || {
            as_nix(ioctl_getflags(&file).and_then(|old| ioctl_setflags(&file, old | IFlags::NODUMP)))
        });
        assert_eq!(changed, "file: ctime");
    }),
    users("only the owner changes flags, and only root those that protect", |place| {
        place.file("file");
        place.give("file", 0o644);
        if set(place, "file", IFlags::empty()).is_none() {
            return;
        }
        let file = place.path("file");
        let try_set = |flags| {
            let file = fs::File::open(&file).expect("readable");
            as_nix(ioctl_getflags(&file).and_then(|old| ioctl_setflags(&file, old | flags)))
        };
        fails(Errno::EPERM, STRANGER.does(|| try_set(IFlags::NODUMP)));
        OWNER.does(|| try_set(IFlags::NODUMP)).expect("permitted");
        for flag in [IFlags::IMMUTABLE, IFlags::APPEND] {
            fails(Errno::EPERM, OWNER.does(|| try_set(flag)));
        }
        assert_eq!(flags(place, "file"), IFlags::NODUMP);
    }),
];
