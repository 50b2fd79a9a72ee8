//! link(2), linkat(2).

use std::{
    fs,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    fcntl::{self, AT_FDCWD, AtFlags, OFlag},
    sys::stat::{Mode, fstat, lstat},
    unistd::{self, linkat},
};

use crate::{
    DIR,
    place::{Case, OWNER, Place, User, case, fails, mode, name, needs_write_and_search, set_mode, users},
};

fn link(place: &Place, old: &str, new: &str) -> nix::Result<()> {
    linkat(AT_FDCWD, &place.path(old), AT_FDCWD, &place.path(new), AtFlags::empty())
}

/// Links the target of a symbolic link.
fn link_followed(place: &Place, old: &str, new: &str) -> nix::Result<()> {
    linkat(AT_FDCWD, &place.path(old), AT_FDCWD, &place.path(new), AtFlags::AT_SYMLINK_FOLLOW)
}

/// Links an open file.
fn link_open(place: &Place, old: impl AsFd, new: &str) -> nix::Result<()> {
    let old = format!("/proc/self/fd/{}", old.as_fd().as_raw_fd());
    linkat(AT_FDCWD, old.as_str(), AT_FDCWD, &place.path(new), AtFlags::AT_SYMLINK_FOLLOW)
}

/// An anonymous file, if the file system has such files.
fn anonymous(place: &Place, flags: OFlag) -> Option<OwnedFd> {
    let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC | flags;
    match fcntl::open(&place.path(""), flags, Mode::S_IRUSR | Mode::S_IWUSR) {
        Err(Errno::EOPNOTSUPP) if std::env::var_os(DIR).is_some() => None,
        file => Some(file.expect("made")),
    }
}

/// The inode's number and its link count.
fn inode(place: &Place, path: &str) -> (u64, u64) {
    let found = lstat(&place.path(path)).expect("there");
    (found.st_ino, found.st_nlink)
}

pub const CASES: &[Case] = &[
    case("both names are the same file, with two links", |place| {
        place.dir("dir");
        place.file("file");
        link(place, "file", "dir/new").expect("linked");
        assert_eq!(inode(place, "file"), inode(place, "dir/new"));
        assert_eq!(inode(place, "file").1, 2);
        fs::write(place.path("dir/new"), "other").expect("written");
        assert_eq!(fs::read(place.path("file")).expect("read"), b"other");
        set_mode(&place.path("file"), 0o604);
        assert_eq!(mode(&place.path("dir/new")), 0o604);
    }),
    case("each link counts", |place| {
        let open = fs::File::open(place.file("file")).expect("opened");
        for count in 2..=40 {
            link(place, "file", &format!("link{count}")).expect("linked");
            assert_eq!(fstat(&open).expect("open").st_nlink, count);
        }
    }),
    case("the first name may be removed before the second", |place| {
        place.file("file");
        link(place, "file", "new").expect("linked");
        fs::remove_file(place.path("file")).expect("removed");
        assert_eq!(inode(place, "new").1, 1);
        assert_eq!(fs::read(place.path("new")).expect("read"), b"some bytes");
    }),
    case("a FIFO and a socket can have links", |place| {
        place.fifo("fifo");
        place.socket("socket");
        for name in ["fifo", "socket"] {
            link(place, name, "new").expect("linked");
            assert_eq!(inode(place, name), inode(place, "new"));
            assert_eq!(inode(place, name).1, 2);
            fs::remove_file(place.path("new")).expect("removed");
        }
    }),
    case("a directory is EPERM, also through a symbolic link", |place| {
        place.dir("dir");
        place.symlink("dir", "link");
        fails(Errno::EPERM, link(place, "dir", "new"));
        fails(Errno::EPERM, link(place, "dir/", "new"));
        fails(Errno::EPERM, link(place, "dir/.", "new"));
        fails(Errno::EPERM, link(place, "link/", "new"));
        fails(Errno::EPERM, link_followed(place, "link", "new"));
    }),
    case("without AT_SYMLINK_FOLLOW, the symbolic link itself gets the new name", |place| {
        place.file("file");
        place.dir("dir");
        for target in ["file", "dir", "missing", "old"] {
            place.symlink(target, "old");
            link(place, "old", "new").expect("linked");
            assert_eq!(inode(place, "old"), inode(place, "new"));
            assert_eq!(fs::read_link(place.path("new")).expect("a link").as_os_str(), target);
            for name in ["old", "new"] {
                fs::remove_file(place.path(name)).expect("removed");
            }
        }
        assert_eq!(inode(place, "file").1, 1);
    }),
    case("with AT_SYMLINK_FOLLOW, the target of the symbolic link gets the new name", |place| {
        place.file("file");
        place.symlink("file", "one");
        place.symlink("one", "two");
        link_followed(place, "two", "new").expect("linked");
        assert_eq!(inode(place, "file"), inode(place, "new"));
        assert_eq!((inode(place, "one").1, inode(place, "two").1), (1, 1));
        place.symlink("missing", "dangling");
        fails(Errno::ENOENT, link_followed(place, "dangling", "other"));
        place.symlink("circle", "circle");
        fails(Errno::ELOOP, link_followed(place, "circle", "other"));
    }),
    case("a name that exists is EEXIST, whatever it is", |place| {
        place.dir("dir");
        place.file("file");
        place.file("other");
        place.symlink("missing", "dangling");
        place.symlink("dir", "link");
        for taken in ["dir", "dir/", "file", "other", "dangling", "link", "", ".", "dir/.."] {
            fails(Errno::EEXIST, link(place, "file", taken));
        }
        assert_eq!(inode(place, "file").1, 1);
        assert!(!place.path("missing").exists());
    }),
    case("a missing file or directory is ENOENT", |place| {
        place.file("file");
        place.symlink("missing", "dangling");
        for old in ["missing", "missing/file", "dangling/file"] {
            fails(Errno::ENOENT, link(place, old, "new"));
        }
        for new in ["missing/new", "dangling/new"] {
            fails(Errno::ENOENT, link(place, "file", new));
        }
        fails(Errno::ENOENT, linkat(AT_FDCWD, "", AT_FDCWD, &place.path("new"), AtFlags::empty()));
        fails(Errno::ENOENT, linkat(AT_FDCWD, &place.path("file"), AT_FDCWD, "", AtFlags::empty()));
    }),
    case("a file in place of a directory is ENOTDIR", |place| {
        place.file("file");
        place.file("other");
        fails(Errno::ENOTDIR, link(place, "other/file", "new"));
        fails(Errno::ENOTDIR, link(place, "file", "other/new"));
    }),
    case("a slash after the old name is ENOTDIR, and after the new name it is ENOENT", |place| {
        place.file("file");
        fails(Errno::ENOTDIR, link(place, "file/", "new"));
        fails(Errno::ENOENT, link(place, "file", "new/"));
    }),
    case("a loop of symbolic links in the path prefix is ELOOP", |place| {
        place.file("file");
        place.symlink("two", "one");
        place.symlink("one", "two");
        fails(Errno::ELOOP, link(place, "one/file", "new"));
        fails(Errno::ELOOP, link(place, "file", "one/new"));
    }),
    case("a name has at most 255 bytes", |place| {
        place.file("file");
        link(place, "file", &name(255)).expect("linked");
        fails(Errno::ENAMETOOLONG, link(place, "file", &name(256)));
        fails(Errno::ENAMETOOLONG, link(place, &name(256), "new"));
    }),
    case("another file system is EXDEV", |place| {
        let new = place.path("new");
        fails(Errno::EXDEV, linkat(AT_FDCWD, "/proc/version", AT_FDCWD, &new, AtFlags::empty()));
    }),
    case("a flag that does not exist is EINVAL", |place| {
        let file = place.file("file");
        let linked = linkat(AT_FDCWD, &file, AT_FDCWD, &place.path("new"), AtFlags::AT_REMOVEDIR);
        fails(Errno::EINVAL, linked);
    }),
    case("a removed file that is still open is ENOENT", |place| {
        let open = fs::File::open(place.file("file")).expect("opened");
        fs::remove_file(place.path("file")).expect("removed");
        fails(Errno::ENOENT, link_open(place, open, "new"));
        assert!(!place.path("new").exists());
    }),
    case("a file made with O_TMPFILE has no name until it is linked", |place| {
        let Some(file) = anonymous(place, OFlag::empty()) else { return };
        assert_eq!(fstat(&file).expect("open").st_nlink, 0);
        assert_eq!(fs::read_dir(place.path("")).expect("read").count(), 0);
        assert_eq!(unistd::write(&file, b"bytes"), Ok(5));
        for (new, count) in [("one", 1), ("two", 2)] {
            link_open(place, &file, new).expect("linked");
            assert_eq!(fstat(&file).expect("open").st_nlink, count);
            assert_eq!(fs::read(place.path(new)).expect("read"), b"bytes");
        }
        assert_eq!(mode(&place.path("one")), 0o600);
    }),
    case("a file made with O_TMPFILE and O_EXCL is ENOENT", |place| {
        let Some(file) = anonymous(place, OFlag::O_EXCL) else { return };
        fails(Errno::ENOENT, link_open(place, file, "new"));
    }),
    case("O_TMPFILE does not modify the directory, but linking the file does", |place| {
        let mut file = None;
        let make = || {
            file = anonymous(place, OFlag::empty());
            Ok(())
        };
        assert_eq!(place.changed(&[""], make), "");
        let Some(file) = file else { return };
        assert_eq!(place.changed(&[""], || link_open(place, file, "new")), ": mtime ctime");
    }),
    case("nothing can be linked into a directory that was removed", |place| {
        let file = place.file("file");
        let dir = fs::File::open(place.dir("dir")).expect("opened");
        fs::remove_dir(place.path("dir")).expect("removed");
        fails(Errno::ENOENT, linkat(AT_FDCWD, &file, &dir, "new", AtFlags::empty()));
        assert_eq!(inode(place, "file").1, 1);
    }),
    case("the directory of the new name is modified, and the ctime of the file changes", |place| {
        place.dir("old");
        place.dir("new");
        place.file("old/file");
        let changed = place.changed(&["", "old", "old/file", "new"], || link(place, "old/file", "new/file"));
        assert_eq!(changed, "old/file: ctime, new: mtime ctime");
    }),
    case("a hard link to a symbolic link changes no time of its target", |place| {
        place.dir("dir");
        place.file("file");
        place.symlink("file", "link");
        let changed = place.changed(&["dir", "file"], || link(place, "link", "dir/new"));
        assert_eq!(changed, "dir: mtime ctime");
    }),
    case("a call that fails changes no time", |place| {
        place.dir("dir");
        place.file("file");
        place.file("dir/other");
        let failing = || {
            fails(Errno::EEXIST, link(place, "file", "dir/other"));
            fails(Errno::EPERM, link(place, "dir", "dir/new"));
            Ok(())
        };
        assert_eq!(place.changed(&["", "dir", "dir/other", "file"], failing), "");
    }),
    users("root may link an open file with AT_EMPTY_PATH", |place| {
        let file = fs::File::open(place.file("file")).expect("opened");
        linkat(file.as_fd(), "", AT_FDCWD, &place.path("new"), AtFlags::AT_EMPTY_PATH).expect("root");
        assert_eq!(inode(place, "file"), inode(place, "new"));
        fails(Errno::ENOENT, linkat(file.as_fd(), "", AT_FDCWD, &place.path("other"), AtFlags::empty()));
    }),
    users("write and search permission is needed in the directory of the new name", |place| {
        place.dir("dir");
        place.file("file");
        let before = |user: User| {
            // fs.protected_hardlinks may refuse links to files of other users.
            std::os::unix::fs::chown(place.path("file"), Some(user.uid), None).expect("root");
            set_mode(&place.path("file"), 0);
        };
        let undo = || fs::remove_file(place.path("dir/new")).expect("root");
        needs_write_and_search(place, before, || link(place, "file", "dir/new"), undo);
    }),
    users("the directory of the old name needs search permission only", |place| {
        place.dir("dir");
        place.dir("own");
        place.file("dir/file");
        place.give("own", 0o777);
        place.give("dir/file", 0);
        place.give("dir", 0o666);
        fails(Errno::EACCES, OWNER.does(|| link(place, "dir/file", "own/new")));
        place.give("dir", 0o111);
        OWNER.does(|| link(place, "dir/file", "own/new")).expect("permitted");
    }),
    users("the owner and the mode stay, even in a directory with setgid", |place| {
        place.dir("dir");
        place.file("file");
        place.give("file", 0o640);
        set_mode(&place.path("dir"), 0o2777);
        OWNER.does(|| link(place, "file", "dir/new")).expect("permitted");
        let found = lstat(&place.path("dir/new")).expect("there");
        assert_eq!((found.st_uid, found.st_gid, found.st_mode & 0o7777), (OWNER.uid, OWNER.gid, 0o640));
    }),
];
