//! mkdir(2), mkdirat(2).

use nix::{errno::Errno, sys::stat::Mode, unistd};

use crate::place::{
    Case, OWNER, Place, STRANGER, case, fails, mode, name, needs_search, needs_write_and_search, set_mode, umask, users,
};

fn mkdir(place: &Place, path: &str) -> nix::Result<()> {
    unistd::mkdir(&place.path(path), Mode::from_bits_truncate(0o777))
}

pub const CASES: &[Case] = &[
    case("a new directory is empty, and has two links", |place| {
        mkdir(place, "new").expect("made");
        let found = nix::sys::stat::stat(&place.path("new")).expect("there");
        // Some file systems do not count `.` and subdirectories, and report one link.
        assert!(found.st_nlink == 2 || found.st_nlink == 1, "{}", found.st_nlink);
        assert_eq!(std::fs::read_dir(place.path("new")).expect("read").count(), 0);
    }),
    case("a name that exists is EEXIST, whatever it is", |place| {
        place.dir("dir");
        place.file("file");
        place.symlink("missing", "dangling");
        place.symlink("dir", "link");
        for taken in ["dir", "file", "dangling", "link", "", ".", "dir/.", "dir/.."] {
            fails(Errno::EEXIST, mkdir(place, taken));
        }
    }),
    case("a missing directory in the path prefix is ENOENT", |place| {
        place.symlink("missing", "dangling");
        for path in ["missing/new", "dangling/new"] {
            fails(Errno::ENOENT, mkdir(place, path));
        }
    }),
    case("a file in place of a directory is ENOTDIR", |place| {
        place.file("file");
        fails(Errno::ENOTDIR, mkdir(place, "file/new"));
    }),
    case("a loop of symbolic links is ELOOP", |place| {
        place.symlink("two", "one");
        place.symlink("one", "two");
        fails(Errno::ELOOP, mkdir(place, "one/new"));
    }),
    case("a name has at most 255 bytes", |place| {
        mkdir(place, &name(255)).expect("made");
        fails(Errno::ENAMETOOLONG, mkdir(place, &name(256)));
    }),
    case("slashes after the name are ignored", |place| {
        mkdir(place, "new///").expect("made");
        assert!(place.path("new").is_dir());
    }),
    case("the parent directory is modified", |place| {
        place.dir("dir");
        assert_eq!(place.changed(&["", "dir"], || mkdir(place, "dir/new")), "dir: mtime ctime");
    }),
    case("a call that fails changes no time", |place| {
        place.dir("dir");
        let failing = || {
            fails(Errno::EEXIST, mkdir(place, "dir"));
            Ok(())
        };
        assert_eq!(place.changed(&["", "dir"], failing), "");
    }),
    users("write and search permission is needed in the parent directory", |place| {
        place.dir("dir");
        let undo = || std::fs::remove_dir(place.path("dir/new")).expect("root");
        needs_write_and_search(place, |_| {}, || mkdir(place, "dir/new"), undo);
    }),
    users("search permission is needed in the path prefix", |place| {
        place.dir("way");
        place.dir("way/dir");
        place.give("way/dir", 0o777);
        needs_search(place, || mkdir(place, "way/dir/new"));
    }),
    users("a new directory belongs to the caller", |place| {
        place.dir("dir");
        set_mode(&place.path("dir"), 0o777);
        OWNER.does(|| mkdir(place, "dir/new")).expect("made");
        let found = nix::sys::stat::stat(&place.path("dir/new")).expect("there");
        assert_eq!((found.st_uid, found.st_gid), (OWNER.uid, OWNER.gid));
    }),
    users("in a directory with setgid, a new directory has its group, and setgid", |place| {
        place.dir("dir");
        place.give("dir", 0o2777);
        STRANGER.does(|| mkdir(place, "dir/new")).expect("made");
        let found = nix::sys::stat::stat(&place.path("dir/new")).expect("there");
        assert_eq!((found.st_uid, found.st_gid), (STRANGER.uid, OWNER.gid));
        assert_eq!(mode(&place.path("dir/new")) & 0o2000, 0o2000);
    }),
    case("the sticky bit is set if the call has it, and setuid is not", |place| {
        unistd::mkdir(&place.path("new"), Mode::from_bits_truncate(0o5777)).expect("made");
        assert_eq!(mode(&place.path("new")) & 0o5000, 0o1000);
    }),
    case("the mode is that of the call, less the umask", |place| {
        mkdir(place, "new").expect("made");
        assert_eq!(mode(&place.path("new")) & 0o777, 0o777 & !umask());
    }),
];
