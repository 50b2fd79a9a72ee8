//! rename(2), renameat2(2) with RENAME_NOREPLACE and RENAME_EXCHANGE.

use std::{
    fs,
    io::Read,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
    thread,
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, RenameFlags, renameat2},
};

use crate::place::{Case, MEMBER, OWNER, Place, STRANGER, User, case, fails, inode, name, set_mode, users};

const EXCHANGE: RenameFlags = RenameFlags::RENAME_EXCHANGE;
const NOREPLACE: RenameFlags = RenameFlags::RENAME_NOREPLACE;

fn rename(place: &Place, old: &str, new: &str) -> nix::Result<()> {
    rename_with(RenameFlags::empty(), place, old, new)
}

fn rename_with(flags: RenameFlags, place: &Place, old: &str, new: &str) -> nix::Result<()> {
    renameat2(AT_FDCWD, &place.path(old), AT_FDCWD, &place.path(new), flags)
}

/// Makes a hard link.
fn link(place: &Place, file: &str, new: &str) {
    fs::hard_link(place.path(file), place.path(new)).expect("linked");
}

fn is_missing(place: &Place, name: &str) -> bool {
    fs::symlink_metadata(place.path(name)).is_err()
}

fn give_to(user: User, path: &Path) {
    chown(path, Some(user.uid), Some(user.gid)).expect("root");
}

pub const CASES: &[Case] = &[
    case("a file of any type gets the new name, and loses the old one", |place| {
        place.dir("to");
        place.dir("dir");
        place.file("file");
        place.symlink("missing", "dangling");
        place.fifo("fifo");
        for old in ["dir", "file", "dangling", "fifo"] {
            let (before, new) = (inode(place, old), format!("to/new-{old}"));
            rename(place, old, &new).expect("renamed");
            assert_eq!(inode(place, &new), before, "{old}");
            assert!(is_missing(place, old), "{old}");
        }
    }),
    case("a directory keeps its entries, and its `..` is the new parent", |place| {
        place.dir("to");
        place.dir("dir");
        place.file("dir/file");
        rename(place, "dir", "to/dir").expect("renamed");
        assert_eq!(fs::read_to_string(place.path("to/dir/file")).expect("there"), "some bytes");
        assert_eq!(inode(place, "to/dir/.."), inode(place, "to"));
        let entries = |name| fs::read_dir(place.path(name)).expect("read").count();
        assert_eq!((entries(""), entries("to")), (1, 1));
    }),
    case("a file is replaced, and stays readable where it is open", |place| {
        place.file("old");
        place.file("taken");
        fs::write(place.path("taken"), "other bytes").expect("written");
        let mut open = fs::File::open(place.path("taken")).expect("opened");
        rename(place, "old", "taken").expect("renamed");
        assert_eq!(fs::read_to_string(place.path("taken")).expect("there"), "some bytes");
        let mut found = String::new();
        open.read_to_string(&mut found).expect("read");
        assert_eq!((found.as_str(), open.metadata().expect("open").nlink()), ("other bytes", 0));
    }),
    case("a name that is replaced is never missing", |place| {
        let file = place.file("file");
        thread::scope(|scope| {
            let renamer = scope.spawn(|| {
                for _ in 0..100 {
                    place.file("next");
                    rename(place, "next", "file").expect("renamed");
                }
            });
            while !renamer.is_finished() {
                assert_eq!(fs::read_to_string(&file).expect("never missing"), "some bytes");
            }
        });
    }),
    case("an empty directory is replaced by a directory", |place| {
        place.dir("old");
        place.file("old/file");
        place.dir("taken");
        rename(place, "old", "taken").expect("renamed");
        assert!(is_missing(place, "old"));
        assert!(place.path("taken/file").is_file());
    }),
    case("a symbolic link itself is renamed or replaced", |place| {
        let file = place.file("file");
        place.symlink("file", "link");
        rename(place, "link", "new").expect("renamed");
        assert_eq!(fs::read_link(place.path("new")).expect("a link"), Path::new("file"));
        place.dir("dir");
        place.symlink("dir", "taken");
        rename(place, "file", "taken").expect("renamed");
        assert!(fs::symlink_metadata(place.path("taken")).expect("there").is_file());
        assert!(!file.exists());
    }),
    case("a rename between two names of one file does nothing", |place| {
        place.file("file");
        place.dir("dir");
        link(place, "file", "alias");
        assert_eq!(place.changed(&["", "file"], || rename(place, "file", "alias")), "");
        assert_eq!(place.changed(&["", "file"], || rename(place, "file", "file")), "");
        assert_eq!(place.changed(&["", "dir"], || rename(place, "dir", "dir")), "");
        assert_eq!(inode(place, "file"), inode(place, "alias"));
    }),
    case("a target with entries is ENOTEMPTY, also if the old name is in it", |place| {
        for dir in ["old", "dir", "dir/inner", "dir/inner/deep"] {
            place.dir(dir);
        }
        place.file("dir/file");
        for old in ["old", "dir/inner", "dir/inner/deep", "dir/file"] {
            // POSIX permits both. For "dir/file" Linux says this rather than EISDIR.
            let errno = rename(place, old, "dir").expect_err("it has entries");
            assert!(matches!(errno, Errno::ENOTEMPTY | Errno::EEXIST), "{old}: {errno}");
        }
    }),
    case("a directory into itself is EINVAL", |place| {
        place.dir("dir");
        place.dir("dir/inner");
        for new in ["dir/new", "dir/inner", "dir/inner/new"] {
            fails(Errno::EINVAL, rename(place, "dir", new));
        }
    }),
    case("a directory over a file is ENOTDIR, and a file over a directory EISDIR", |place| {
        place.dir("dir");
        place.file("file");
        place.symlink("dir", "link");
        fails(Errno::ENOTDIR, rename(place, "dir", "file"));
        fails(Errno::ENOTDIR, rename(place, "dir", "link"));
        fails(Errno::EISDIR, rename(place, "file", "dir"));
        fails(Errno::EISDIR, rename(place, "link", "dir"));
    }),
    case("a last component `.` or `..` is EBUSY", |place| {
        place.dir("dir");
        place.dir("dir/inner");
        for dots in ["dir/.", "dir/..", "dir/inner/.."] {
            fails(Errno::EBUSY, rename(place, dots, "new"));
            fails(Errno::EBUSY, rename(place, "dir/inner", dots));
        }
    }),
    case("a missing old name is ENOENT, and with EXCHANGE a missing new name too", |place| {
        place.file("file");
        place.dir("dir");
        for old in ["missing", "missing/file", "dir/missing"] {
            fails(Errno::ENOENT, rename(place, old, "new"));
            fails(Errno::ENOENT, rename(place, old, "file"));
            fails(Errno::ENOENT, rename_with(EXCHANGE, place, old, "file"));
            fails(Errno::ENOENT, rename_with(EXCHANGE, place, "file", old));
        }
        fails(Errno::ENOENT, rename(place, "file", "missing/new"));
    }),
    case("a file in place of a directory is ENOTDIR", |place| {
        place.file("file");
        place.file("other");
        fails(Errno::ENOTDIR, rename(place, "file/old", "new"));
        fails(Errno::ENOTDIR, rename(place, "other", "file/new"));
    }),
    case("slashes after a name are for directories only, else ENOTDIR", |place| {
        place.dir("dir");
        place.file("file");
        place.symlink("dir", "link");
        rename(place, "dir//", "new//").expect("renamed");
        rename(place, "new", "dir").expect("renamed");
        for (old, new) in [("file/", "new"), ("file", "new/"), ("link/", "new"), ("dir", "link/")] {
            fails(Errno::ENOTDIR, rename(place, old, new));
        }
    }),
    case("a loop of symbolic links in the path prefix is ELOOP", |place| {
        place.file("file");
        place.symlink("two", "one");
        place.symlink("one", "two");
        fails(Errno::ELOOP, rename(place, "one/old", "new"));
        fails(Errno::ELOOP, rename(place, "file", "one/new"));
        rename(place, "one", "three").expect("the link itself");
    }),
    case("a name has at most 255 bytes", |place| {
        place.file("file");
        fails(Errno::ENAMETOOLONG, rename(place, "file", &name(256)));
        fails(Errno::ENAMETOOLONG, rename(place, &name(256), "new"));
        rename(place, "file", &name(255)).expect("renamed");
        rename(place, &name(255), "file").expect("renamed");
    }),
    case("a flag that does not exist is EINVAL", |place| {
        place.file("file");
        fails(Errno::EINVAL, rename_with(RenameFlags::from_bits_retain(1 << 20), place, "file", "new"));
    }),
    case("another file system is EXDEV", |place| {
        place.file("file");
        fails(Errno::EXDEV, rename(place, "file", "/proc/new"));
    }),
    case("nothing is moved into a directory that was removed", |place| {
        place.file("file");
        let open = fs::File::open(place.dir("dir")).expect("opened");
        fs::remove_dir(place.path("dir")).expect("removed");
        let moved = renameat2(AT_FDCWD, &place.path("file"), &open, "new", RenameFlags::empty());
        fails(Errno::ENOENT, moved);
    }),
    // POSIX leaves open whether the ctime of the file changes. On Linux it does. The mtime of a
    // directory that moves depends on the file system.
    case("both directories are modified, and the ctime of the file changes", |place| {
        place.dir("from");
        place.dir("to");
        place.file("from/file");
        link(place, "from/file", "alias");
        let moved = || rename(place, "from/file", "to/file");
        let changed = place.changed(&["from", "to", "alias", ""], moved);
        assert_eq!(changed, "from: mtime ctime, to: mtime ctime, alias: ctime");
        place.dir("from/dir");
        let moved = || rename(place, "from/dir", "to/dir");
        assert_eq!(place.changed(&["from", "to", ""], moved), "from: mtime ctime, to: mtime ctime");
        let renamed = || rename(place, "to/file", "to/new");
        assert_eq!(place.changed(&["from", "to", "alias"], renamed), "to: mtime ctime, alias: ctime");
    }),
    case("a replaced file loses a link, which changes its ctime", |place| {
        place.dir("dir");
        place.file("dir/old");
        place.file("dir/taken");
        link(place, "dir/taken", "alias");
        let renamed = || rename(place, "dir/old", "dir/taken");
        assert_eq!(place.changed(&["dir", "alias"], renamed), "dir: mtime ctime, alias: ctime");
        assert_eq!(fs::metadata(place.path("alias")).expect("there").nlink(), 1);
    }),
    case("a call that fails changes no time", |place| {
        place.dir("dir");
        place.file("dir/file");
        place.file("dir/taken");
        place.dir("dir/inner");
        let failing = || {
            fails(Errno::EISDIR, rename(place, "dir/file", "dir/inner"));
            fails(Errno::EEXIST, rename_with(NOREPLACE, place, "dir/file", "dir/taken"));
            Ok(())
        };
        assert_eq!(place.changed(&["", "dir", "dir/file", "dir/taken", "dir/inner"], failing), "");
    }),
    case("with NOREPLACE, a new name that exists is EEXIST, whatever it is", |place| {
        place.file("old");
        place.dir("dir");
        place.file("file");
        place.symlink("missing", "dangling");
        link(place, "old", "alias");
        for taken in ["dir", "file", "dangling", "alias", "old", "dir/.", "dir/.."] {
            fails(Errno::EEXIST, rename_with(NOREPLACE, place, "old", taken));
        }
        rename_with(NOREPLACE, place, "old", "dir/new").expect("renamed");
        assert!(is_missing(place, "old") && !is_missing(place, "dir/new"));
    }),
    case("with EXCHANGE, two names swap, whatever they are", |place| {
        place.dir("dir");
        place.dir("other");
        place.file("dir/inner");
        place.file("other/file");
        place.symlink("missing", "dangling");
        for (old, new) in [("dir", "other/file"), ("dangling", "dir"), ("dangling", "other/file"), ("dir", "other")] {
            let before = (inode(place, old), inode(place, new));
            rename_with(EXCHANGE, place, old, new).expect("exchanged");
            assert_eq!((inode(place, new), inode(place, old)), before, "{old} {new}");
            rename_with(EXCHANGE, place, new, old).expect("exchanged");
            assert_eq!((inode(place, old), inode(place, new)), before, "{old} {new}");
        }
    }),
    case("with EXCHANGE, a directory and an entry below it are EINVAL", |place| {
        place.dir("dir");
        place.dir("dir/inner");
        place.file("dir/inner/file");
        for inside in ["dir/inner", "dir/inner/file"] {
            fails(Errno::EINVAL, rename_with(EXCHANGE, place, "dir", inside));
            fails(Errno::EINVAL, rename_with(EXCHANGE, place, inside, "dir"));
        }
    }),
    // XFS does not change the ctimes of the files.
    case("EXCHANGE modifies both directories, and may change both ctimes", |place| {
        place.dir("from");
        place.dir("to");
        for (file, alias) in [("from/file", "one"), ("to/file", "two")] {
            place.file(file);
            link(place, file, alias);
        }
        let exchange = || rename_with(EXCHANGE, place, "from/file", "to/file");
        let changed = place.changed(&["from", "to", "one", "two", ""], exchange);
        let (dirs, files) = ("from: mtime ctime, to: mtime ctime", ", one: ctime, two: ctime");
        assert!(changed == dirs || changed == format!("{dirs}{files}"), "{changed}");
    }),
    case("flags that exclude each other are EINVAL", |place| {
        place.file("file");
        place.file("other");
        for flags in [EXCHANGE | NOREPLACE, EXCHANGE | RenameFlags::RENAME_WHITEOUT] {
            fails(Errno::EINVAL, rename_with(flags, place, "file", "other"));
        }
    }),
    users("write and search permission is needed in both directories, and none on the file", |place| {
        place.dir("from");
        place.dir("to");
        place.file("from/file");
        place.give("from/file", 0);
        let (there, back) = (|| rename(place, "from/file", "to/file"), || rename(place, "to/file", "from/file"));
        for (user, permitted) in [(OWNER, 0o300), (MEMBER, 0o030), (STRANGER, 0o003)] {
            for denied in [0o777 & !permitted, 0o111 & permitted, 0o222 & permitted] {
                for (from, to) in [(permitted, denied), (denied, permitted)] {
                    place.give("from", from);
                    place.give("to", to);
                    fails(Errno::EACCES, user.does(there));
                }
            }
            place.give("from", permitted);
            place.give("to", permitted);
            user.does(there).expect("permitted");
            user.does(back).expect("permitted");
        }
    }),
    users("a directory that moves to another parent must be writable", |place| {
        for (dir, mode) in [("from", 0o777), ("to", 0o777), ("from/dir", 0o555), ("to/other", 0o777)] {
            place.dir(dir);
            place.give(dir, mode);
        }
        fails(Errno::EACCES, OWNER.does(|| rename(place, "from/dir", "to/dir")));
        fails(Errno::EACCES, OWNER.does(|| rename_with(EXCHANGE, place, "from/dir", "to/other")));
        fails(Errno::EACCES, OWNER.does(|| rename_with(EXCHANGE, place, "to/other", "from/dir")));
        OWNER.does(|| rename(place, "from/dir", "from/new")).expect("the same parent");
        place.give("from/new", 0o200);
        OWNER.does(|| rename(place, "from/new", "to/new")).expect("permitted");
    }),
    users("in a sticky directory, only the owners of the file and of the directory may rename it", |place| {
        place.dir("dir");
        place.dir("to");
        set_mode(&place.path("to"), 0o777);
        give_to(MEMBER, &place.file("dir/file"));
        place.give("dir", 0o1777);
        set_mode(&place.path("dir/file"), 0o666);
        for new in ["dir/new", "to/new"] {
            fails(Errno::EPERM, STRANGER.does(|| rename(place, "dir/file", new)));
            for user in [MEMBER, OWNER] {
                user.does(|| rename(place, "dir/file", new)).expect("permitted");
                rename(place, new, "dir/file").expect("root");
            }
        }
    }),
    users("in a sticky directory, only the owners of the target and of the directory may replace it", |place| {
        place.dir("dir");
        place.dir("from");
        set_mode(&place.path("from"), 0o777);
        place.give("dir", 0o1777);
        for user in [STRANGER, MEMBER, OWNER] {
            give_to(MEMBER, &place.file("dir/taken"));
            give_to(user, &place.file("from/file"));
            for flags in [EXCHANGE, RenameFlags::empty()] {
                let replaced = user.does(|| rename_with(flags, place, "from/file", "dir/taken"));
                if user.uid == STRANGER.uid { fails(Errno::EPERM, replaced) } else { replaced.expect("permitted") }
            }
            // Otherwise fs.protected_regular may refuse to open it in the next round.
            fs::remove_file(place.path("dir/taken")).expect("root");
        }
    }),
];
