//! unlink(2), unlinkat(2) without AT_REMOVEDIR.

use std::fs;

use nix::{
    errno::Errno,
    fcntl::AT_FDCWD,
    sys::stat::{fstat, stat},
    unistd::{self, UnlinkatFlags, unlinkat},
};
use rustix::fs::{AtFlags, CWD};

use crate::place::{
    Case, MEMBER, OWNER, Place, STRANGER, case, fails, name, needs_search, needs_write_and_search, set_mode, users,
};

fn unlink(place: &Place, path: &str) -> nix::Result<()> {
    unistd::unlink(&place.path(path))
}

pub const CASES: &[Case] = &[
    case("a file, a FIFO and a socket are removed", |place| {
        place.file("file");
        place.fifo("fifo");
        place.socket("socket");
        for name in ["file", "fifo", "socket"] {
            unlink(place, name).expect("removed");
            fails(Errno::ENOENT, unlink(place, name));
        }
        assert_eq!(fs::read_dir(place.path("")).expect("read").count(), 0);
    }),
    case("a symbolic link is removed, and not its target", |place| {
        place.dir("dir");
        place.file("file");
        for target in ["dir", "file", "missing", "link"] {
            let link = place.symlink(target, "link");
            unlink(place, "link").expect("removed");
            assert!(!link.is_symlink());
        }
        assert!(place.path("dir").is_dir() && place.path("file").is_file());
    }),
    case("symbolic links in the path prefix are followed", |place| {
        place.dir("dir");
        place.file("dir/file");
        place.symlink("dir", "link");
        unlink(place, "link/file").expect("removed");
        assert!(!place.path("dir/file").exists());
    }),
    case("the link count falls by one", |place| {
        let file = place.file("file");
        for other in ["one", "two"] {
            fs::hard_link(&file, place.path(other)).expect("linked");
        }
        let open = fs::File::open(&file).expect("opened");
        for (name, left) in [("file", 2), ("two", 1), ("one", 0)] {
            unlink(place, name).expect("removed");
            assert_eq!(fstat(&open).expect("open").st_nlink, left);
        }
    }),
    case("a file that is open can be read and written until it is closed", |place| {
        let file = place.file("file");
        let open = fs::File::options().read(true).append(true).open(&file).expect("opened");
        unlink(place, "file").expect("removed");
        assert_eq!(unistd::write(&open, b" more"), Ok(5));
        unistd::lseek(&open, 0, unistd::Whence::SeekSet).expect("a file");
        let mut bytes = [0; 20];
        assert_eq!(unistd::read(&open, &mut bytes), Ok(15));
        assert_eq!(&bytes[..15], b"some bytes more");
        assert_eq!(fstat(&open).expect("open").st_size, 15);
    }),
    case("the name of a file that is open is free for another", |place| {
        let open = fs::File::open(place.file("file")).expect("opened");
        unlink(place, "file").expect("removed");
        fs::write(place.path("file"), "other").expect("made");
        assert_eq!(fstat(&open).expect("open").st_size, 10);
        let other = stat(&place.path("file")).expect("there");
        assert_eq!((other.st_size, other.st_nlink), (5, 1));
        assert_ne!(other.st_ino, fstat(&open).expect("open").st_ino);
    }),
    case("a directory is EISDIR, whether it is empty or not", |place| {
        place.dir("dir");
        place.dir("dir/inner");
        // POSIX says EPERM.
        for path in ["dir", "dir/inner", "dir/", "dir/.", "dir/..", "dir/inner/.."] {
            fails(Errno::EISDIR, unlink(place, path));
        }
        assert!(place.path("dir/inner").is_dir());
    }),
    case("a slash after the name of a file or a symbolic link is ENOTDIR", |place| {
        place.dir("dir");
        place.file("file");
        place.symlink("dir", "link");
        place.symlink("missing", "dangling");
        for path in ["file/", "link/", "dangling/"] {
            fails(Errno::ENOTDIR, unlink(place, path));
        }
        fails(Errno::ENOENT, unlink(place, "missing/"));
    }),
    case("a missing file or directory is ENOENT", |place| {
        place.dir("dir");
        place.symlink("missing", "dangling");
        for path in ["missing", "missing/file", "dir/missing", "dangling/file"] {
            fails(Errno::ENOENT, unlink(place, path));
        }
        fails(Errno::ENOENT, unistd::unlink(""));
    }),
    case("a file in place of a directory is ENOTDIR", |place| {
        let file = fs::File::open(place.file("file")).expect("opened");
        place.symlink("file", "link");
        for path in ["file/inner", "link/inner"] {
            fails(Errno::ENOTDIR, unlink(place, path));
        }
        fails(Errno::ENOTDIR, unlinkat(&file, "inner", UnlinkatFlags::NoRemoveDir));
    }),
    case("a loop of symbolic links in the path prefix is ELOOP", |place| {
        place.symlink("two", "one");
        place.symlink("one", "two");
        fails(Errno::ELOOP, unlink(place, "one/file"));
        unlink(place, "one").expect("it is not followed");
    }),
    case("a name that is too long is ENAMETOOLONG", |place| {
        fails(Errno::ENAMETOOLONG, unlink(place, &name(256)));
        fails(Errno::ENOENT, unlink(place, &name(255)));
    }),
    case("a flag that does not exist is EINVAL", |place| {
        let file = place.file("file");
        let removed = rustix::fs::unlinkat(CWD, &file, AtFlags::SYMLINK_FOLLOW);
        assert_eq!(removed, Err(rustix::io::Errno::INVAL));
        assert!(file.exists());
    }),
    case("nothing is found in a directory that was removed", |place| {
        let dir = fs::File::open(place.dir("dir")).expect("opened");
        fs::remove_dir(place.path("dir")).expect("removed");
        fails(Errno::ENOENT, unlinkat(&dir, "file", UnlinkatFlags::NoRemoveDir));
    }),
    case("the parent directory is modified, and the ctime of a remaining hard link changes", |place| {
        place.dir("dir");
        place.file("dir/file");
        fs::hard_link(place.path("dir/file"), place.path("other")).expect("linked");
        let changed = place.changed(&["", "dir", "other"], || unlink(place, "dir/file"));
        assert_eq!(changed, "dir: mtime ctime, other: ctime");
        assert_eq!(fs::read(place.path("other")).expect("read"), b"some bytes");
    }),
    case("the ctime of a file that stays open changes, and no other time", |place| {
        place.dir("dir");
        let open = fs::File::open(place.file("file")).expect("opened");
        let times = || {
            let found = fstat(&open).expect("open");
            let [atime, mtime] = [(found.st_atime, found.st_atime_nsec), (found.st_mtime, found.st_mtime_nsec)];
            ([atime, mtime], (found.st_ctime, found.st_ctime_nsec))
        };
        let mut before = times();
        place.changed(&["dir", "file"], || {
            before = times();
            unlink(place, "file")
        });
        assert_eq!(times().0, before.0);
        assert!(times().1 > before.1);
    }),
    case("the target of a removed symbolic link does not change", |place| {
        place.dir("dir");
        place.file("file");
        place.symlink("../file", "dir/link");
        assert_eq!(place.changed(&["", "dir", "file"], || unlink(place, "dir/link")), "dir: mtime ctime");
    }),
    case("a call that fails changes no time", |place| {
        place.dir("dir");
        place.dir("dir/inner");
        let failing = || {
            fails(Errno::EISDIR, unlink(place, "dir/inner"));
            fails(Errno::ENOENT, unlink(place, "dir/missing"));
            Ok(())
        };
        assert_eq!(place.changed(&["", "dir", "dir/inner"], failing), "");
    }),
    users("write and search permission is needed in the directory, and none on the file", |place| {
        place.dir("dir");
        let before = |_| {
            place.file("dir/file");
            set_mode(&place.path("dir/file"), 0);
        };
        needs_write_and_search(place, before, || unlink(place, "dir/file"), || {});
    }),
    users("the owner of a file needs permission in the directory too", |place| {
        place.dir("dir");
        place.file("dir/file");
        place.give("dir/file", 0o777);
        fails(Errno::EACCES, OWNER.does(|| unlink(place, "dir/file")));
        set_mode(&place.path("dir"), 0o777);
        OWNER.does(|| unlink(place, "dir/file")).expect("permitted");
    }),
    users("search permission is needed in the path prefix", |place| {
        place.dir("way");
        place.dir("way/dir");
        place.file("way/dir/file");
        place.give("way/dir", 0o777);
        needs_search(place, || unlink(place, "way/dir/file"));
    }),
    users("in a sticky directory, only the owners of the file and of the directory may remove it", |place| {
        place.dir("dir");
        place.dir("own");
        set_mode(&place.path("dir"), 0o1777);
        place.give("own", 0o1777);
        for name in ["dir/file", "dir/other", "own/file"] {
            place.file(name);
            set_mode(&place.path(name), 0o777);
        }
        place.give("dir/file", 0o777);
        for user in [MEMBER, STRANGER] {
            fails(Errno::EPERM, user.does(|| unlink(place, "dir/file")));
            fails(Errno::EPERM, user.does(|| unlink(place, "own/file")));
        }
        fails(Errno::EPERM, OWNER.does(|| unlink(place, "dir/other")));
        OWNER.does(|| unlink(place, "dir/file")).expect("it is the caller's file");
        OWNER.does(|| unlink(place, "own/file")).expect("it is the caller's directory");
        unlink(place, "dir/other").expect("root");
    }),
    users("in a sticky directory, the owner of a symbolic link counts, not the owner of its target", |place| {
        place.dir("dir");
        place.file("dir/file");
        place.symlink("file", "dir/link");
        set_mode(&place.path("dir"), 0o1777);
        place.give("dir/file", 0o777);
        fails(Errno::EPERM, OWNER.does(|| unlink(place, "dir/link")));
        unlinkat(AT_FDCWD, &place.path("dir/link"), UnlinkatFlags::NoRemoveDir).expect("root");
    }),
];
