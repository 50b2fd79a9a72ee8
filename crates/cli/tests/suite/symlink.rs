//! symlink(2), symlinkat(2), readlink(2).

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt};

use nix::{
    errno::Errno,
    fcntl::{self, AT_FDCWD},
    sys::stat::lstat,
    unistd::symlinkat,
};
use rustix::fs::{CWD, readlinkat_raw};

use crate::place::{Case, MEMBER, OWNER, Place, STRANGER, case, fails, name, needs_write_and_search, users};

/// Makes a dangling link.
fn symlink(place: &Place, path: &str) -> nix::Result<()> {
    symlinkat("missing", AT_FDCWD, &place.path(path))
}

fn readlink(place: &Place, path: &str) -> nix::Result<std::ffi::OsString> {
    fcntl::readlink(&place.path(path))
}

pub const CASES: &[Case] = &[
    case("a new symbolic link has the length of its target as its size, and one hard link", |place| {
        symlink(place, "new").expect("made");
        let found = lstat(&place.path("new")).expect("there");
        assert_eq!((found.st_size, found.st_nlink), (7, 1));
        assert_eq!(found.st_mode, 0o120_777);
        let mtime = (found.st_mtime, found.st_mtime_nsec);
        assert_eq!((found.st_ctime, found.st_ctime_nsec), mtime);
    }),
    case("a target may have any bytes but NUL, and is kept as it is", |place| {
        let bytes: Vec<u8> = (1..=255).collect();
        for target in [&bytes[..], b"//a//b/../", b".", b"..", b"/", b"new"] {
            symlinkat(OsStr::from_bytes(target), AT_FDCWD, &place.path("new")).expect("made");
            assert_eq!(readlink(place, "new").expect("a link").as_bytes(), target);
            fs::remove_file(place.path("new")).expect("removed");
        }
    }),
    case("a target has at most 4095 bytes", |place| {
        // Some file systems keep short targets in the inode.
        for length in [1, 59, 60, 61, 127, 128, 255, 256, 1023, 1024, 4094, 4095] {
            let new = format!("new{length}");
            match symlinkat(name(length).as_str(), AT_FDCWD, &place.path(&new)) {
                // XFS permits 1023 bytes, and ext4 less than a block.
                Err(Errno::ENAMETOOLONG) if length > 1023 => continue,
                made => made.expect("made"),
            }
            assert_eq!(readlink(place, &new).expect("a link").as_bytes(), name(length).as_bytes());
            let size = lstat(&place.path(&new)).expect("there").st_size;
            assert_eq!(usize::try_from(size), Ok(length));
        }
        fails(Errno::ENAMETOOLONG, symlinkat(name(4096).as_str(), AT_FDCWD, &place.path("new")));
    }),
    case("an empty target is ENOENT", |place| {
        fails(Errno::ENOENT, symlinkat("", AT_FDCWD, &place.path("new")));
        assert!(!place.path("new").is_symlink());
    }),
    case("a name that exists is EEXIST, whatever it is", |place| {
        place.dir("dir");
        place.file("file");
        place.symlink("missing", "dangling");
        place.symlink("dir", "link");
        for taken in ["dir", "dir/", "file", "dangling", "link", "", ".", "dir/.."] {
            fails(Errno::EEXIST, symlink(place, taken));
        }
    }),
    case("a missing directory in the path prefix is ENOENT, and so is a slash after the name", |place| {
        place.symlink("missing", "dangling");
        for path in ["missing/new", "dangling/new", "new/"] {
            fails(Errno::ENOENT, symlink(place, path));
        }
        fails(Errno::ENOENT, symlinkat("target", AT_FDCWD, ""));
    }),
    case("a file in place of a directory is ENOTDIR", |place| {
        let file = fs::File::open(place.file("file")).expect("opened");
        fails(Errno::ENOTDIR, symlink(place, "file/new"));
        fails(Errno::ENOTDIR, symlinkat("target", &file, "new"));
        fails(Errno::ENOTDIR, readlink(place, "file/link"));
    }),
    case("a loop of symbolic links is ELOOP in the path prefix, and each link can be read", |place| {
        place.symlink("two", "one");
        place.symlink("one", "two");
        fails(Errno::ELOOP, symlink(place, "one/new"));
        fails(Errno::ELOOP, readlink(place, "one/link"));
        assert_eq!(readlink(place, "one").expect("a link"), "two");
    }),
    case("a name has at most 255 bytes", |place| {
        symlink(place, &name(255)).expect("made");
        assert_eq!(readlink(place, &name(255)).expect("a link"), "missing");
        fails(Errno::ENAMETOOLONG, symlink(place, &name(256)));
        fails(Errno::ENAMETOOLONG, readlink(place, &name(256)));
    }),
    case("nothing can be made in a directory that was removed", |place| {
        let dir = fs::File::open(place.dir("dir")).expect("opened");
        fs::remove_dir(place.path("dir")).expect("removed");
        fails(Errno::ENOENT, symlinkat("target", &dir, "new"));
    }),
    case("a relative target begins at the directory that has the link", |place| {
        place.dir("dir");
        place.dir("dir/inner");
        place.file("dir/file");
        place.symlink("../file", "dir/inner/link");
        place.symlink("dir/inner", "way");
        for path in ["dir/inner/link", "way/link"] {
            assert_eq!(fs::read(place.path(path)).expect("read"), b"some bytes");
        }
    }),
    case("an absolute target begins at the root", |place| {
        let file = place.file("file");
        std::os::unix::fs::symlink(&file, place.path("link")).expect("made");
        assert_eq!(fs::read(place.path("link")).expect("read"), b"some bytes");
    }),
    case("a target with a slash at its end must be a directory", |place| {
        place.dir("dir");
        place.file("file");
        place.symlink("dir/", "to_dir");
        place.symlink("file/", "to_file");
        assert!(place.path("to_dir").is_dir());
        fails(Errno::ENOTDIR, nix::sys::stat::stat(&place.path("to_file")));
    }),
    case("readlink of anything but a symbolic link is EINVAL", |place| {
        place.dir("dir");
        place.file("file");
        place.fifo("fifo");
        // With a slash after its name, a link is followed.
        place.symlink("dir", "link");
        for path in ["", "dir", "file", "fifo", "link/", "link/."] {
            fails(Errno::EINVAL, readlink(place, path));
        }
    }),
    case("readlink of a missing link is ENOENT", |place| {
        place.symlink("missing", "dangling");
        for path in ["missing", "missing/link", "dangling/link", "dangling/"] {
            fails(Errno::ENOENT, readlink(place, path));
        }
        fails(Errno::ENOENT, fcntl::readlink(""));
    }),
    case("readlink truncates the target to the buffer, without a NUL", |place| {
        let link = place.symlink("some target", "link");
        for (length, read) in [(1, "s"), (4, "some"), (11, "some target"), (20, "some target")] {
            let mut buffer = vec![b'#'; length];
            assert_eq!(readlinkat_raw(CWD, &link, &mut buffer[..]), Ok(read.len()));
            assert!(buffer.starts_with(read.as_bytes()));
            assert!(buffer[read.len()..].iter().all(|byte| *byte == b'#'));
        }
        assert_eq!(readlinkat_raw(CWD, &link, &mut [0_u8; 0][..]), Err(rustix::io::Errno::INVAL));
    }),
    case("the parent directory is modified", |place| {
        place.dir("dir");
        assert_eq!(place.changed(&["", "dir"], || symlink(place, "dir/new")), "dir: mtime ctime");
    }),
    case("the target does not change", |place| {
        place.dir("dir");
        place.file("file");
        let make = || symlinkat("../file", AT_FDCWD, &place.path("dir/new"));
        assert_eq!(place.changed(&["dir", "file"], make), "dir: mtime ctime");
        assert_eq!(lstat(&place.path("file")).expect("there").st_nlink, 1);
    }),
    case("a call that fails changes no time", |place| {
        place.dir("dir");
        place.file("dir/file");
        let failing = || {
            fails(Errno::EEXIST, symlink(place, "dir/file"));
            fails(Errno::EINVAL, readlink(place, "dir/file"));
            Ok(())
        };
        assert_eq!(place.changed(&["dir", "dir/file"], failing), "");
    }),
    case("readlink changes the atime of the link, and no other time", |place| {
        place.dir("dir");
        place.symlink("missing", "dir/link");
        let changed = place.changed(&["dir", "dir/link"], || readlink(place, "dir/link"));
        assert!(changed == "dir/link: atime" || changed.is_empty() && place.is_noatime(), "{changed}");
    }),
    case("following a link changes its atime", |place| {
        place.dir("dir");
        place.symlink("dir", "link");
        let changed = place.changed(&["dir", "link"], || nix::sys::stat::stat(&place.path("link")));
        assert!(changed == "link: atime" || changed.is_empty() && place.is_noatime(), "{changed}");
    }),
    users("write and search permission is needed in the parent directory", |place| {
        place.dir("dir");
        let undo = || fs::remove_file(place.path("dir/new")).expect("root");
        needs_write_and_search(place, |_| {}, || symlink(place, "dir/new"), undo);
    }),
    users("reading a link needs search permission in its directory, and no other", |place| {
        place.dir("dir");
        place.symlink("missing", "dir/link");
        for (user, permitted) in [(OWNER, 0o100), (MEMBER, 0o010), (STRANGER, 0o001)] {
            place.give("dir", permitted);
            assert_eq!(user.does(|| readlink(place, "dir/link")).expect("permitted"), "missing");
            place.give("dir", 0o777 & !permitted);
            fails(Errno::EACCES, user.does(|| readlink(place, "dir/link")));
        }
    }),
    users("following a link needs search permission on the path of its target", |place| {
        place.dir("closed");
        place.file("closed/file");
        place.symlink("closed/file", "link");
        place.give("closed", 0o700);
        let follow = || nix::sys::stat::stat(&place.path("link"));
        fails(Errno::EACCES, STRANGER.does(follow));
        OWNER.does(follow).expect("permitted");
    }),
    users("a new link belongs to the caller, and in a directory with setgid to its group", |place| {
        place.dir("dir");
        for (mode_of_dir, path, group) in [(0o777, "dir/one", STRANGER.gid), (0o2777, "dir/two", OWNER.gid)] {
            place.give("dir", mode_of_dir);
            STRANGER.does(|| symlink(place, path)).expect("made");
            let found = lstat(&place.path(path)).expect("there");
            assert_eq!((found.st_uid, found.st_gid), (STRANGER.uid, group));
        }
    }),
];
