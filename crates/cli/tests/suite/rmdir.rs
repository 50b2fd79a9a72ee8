//! rmdir(2), unlinkat(2) with AT_REMOVEDIR.

use std::fs;

use nix::{
    errno::Errno,
    fcntl::AT_FDCWD,
    unistd::{UnlinkatFlags, unlinkat},
};

use crate::place::{Case, MEMBER, OWNER, Place, STRANGER, case, fails, name, set_mode, users};

fn rmdir(place: &Place, path: &str) -> nix::Result<()> {
    unlinkat(AT_FDCWD, &place.path(path), UnlinkatFlags::RemoveDir)
}

pub const CASES: &[Case] = &[
    case("an empty directory is removed", |place| {
        place.dir("dir");
        rmdir(place, "dir").expect("removed");
        assert!(!place.path("dir").exists());
        place.dir("dir");
        rmdir(place, "dir///").expect("removed");
    }),
    case("a directory with entries is ENOTEMPTY", |place| {
        place.dir("dir");
        place.symlink("missing", "dir/dangling");
        // POSIX permits both.
        let removed = rmdir(place, "dir").expect_err("it has an entry");
        assert!(matches!(removed, Errno::ENOTEMPTY | Errno::EEXIST), "{removed}");
        fs::remove_file(place.path("dir/dangling")).expect("removed");
        rmdir(place, "dir").expect("empty now");
    }),
    case("a last component `.` is EINVAL, and `..` ENOTEMPTY", |place| {
        place.dir("dir");
        place.dir("dir/inner");
        fails(Errno::EINVAL, rmdir(place, "dir/."));
        fails(Errno::ENOTEMPTY, rmdir(place, "dir/inner/.."));
    }),
    case("a file is ENOTDIR, and so is a symbolic link to a directory", |place| {
        place.dir("dir");
        place.file("file");
        place.symlink("dir", "link");
        for path in ["file", "link", "file/dir", "link/", "file/"] {
            fails(Errno::ENOTDIR, rmdir(place, path));
        }
    }),
    case("a missing file or directory is ENOENT", |place| {
        place.dir("dir");
        for path in ["missing", "missing/dir", "dir/missing"] {
            fails(Errno::ENOENT, rmdir(place, path));
        }
    }),
    case("a name that is too long is ENAMETOOLONG", |place| {
        fails(Errno::ENAMETOOLONG, rmdir(place, &name(256)));
        fails(Errno::ENOENT, rmdir(place, &name(255)));
    }),
    case("the parent directory is modified", |place| {
        place.dir("dir");
        place.dir("dir/inner");
        assert_eq!(place.changed(&["", "dir"], || rmdir(place, "dir/inner")), "dir: mtime ctime");
    }),
    case("nothing can be made in a directory that was removed", |place| {
        let dir = place.dir("dir");
        let open = fs::File::open(&dir).expect("opened");
        rmdir(place, "dir").expect("removed");
        let make = || nix::sys::stat::mkdirat(&open, "new", nix::sys::stat::Mode::S_IRWXU);
        fails(Errno::ENOENT, make());
    }),
    users("write permission is needed in the parent directory, and none in the directory itself", |place| {
        place.dir("dir");
        place.dir("dir/inner");
        place.give("dir/inner", 0);
        place.give("dir", 0o755);
        fails(Errno::EACCES, STRANGER.does(|| rmdir(place, "dir/inner")));
        OWNER.does(|| rmdir(place, "dir/inner")).expect("permitted");
    }),
    users("in a sticky directory, only the owners of the entry and of the directory may remove it", |place| {
        for dir in ["all", "all/inner", "own", "own/inner"] {
            place.dir(dir);
            set_mode(&place.path(dir), 0o1777);
        }
        place.give("all/inner", 0o777);
        place.give("own", 0o1777);
        for inner in ["all/inner", "own/inner"] {
            for user in [MEMBER, STRANGER] {
                fails(Errno::EPERM, user.does(|| rmdir(place, inner)));
            }
            OWNER.does(|| rmdir(place, inner)).expect("permitted");
        }
    }),
];
