//! mknod(2), mkfifo(3).

use std::{
    fs::{self, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::stat::{self, FileStat, Mode, SFlag, makedev},
    unistd,
};

use crate::place::{
    Case, OWNER, Place, STRANGER, case, fails, mode, name, needs_search, needs_write_and_search, umask, users,
};

/// The types that any user may make.
const KINDS: [SFlag; 3] = [SFlag::S_IFREG, SFlag::S_IFIFO, SFlag::S_IFSOCK];
const DEVICES: [SFlag; 2] = [SFlag::S_IFCHR, SFlag::S_IFBLK];

/// Makes a node. Devices have the number 1:3.
fn mknod(place: &Place, kind: SFlag, path: &str) -> nix::Result<()> {
    let device = if DEVICES.contains(&kind) { makedev(1, 3) } else { 0 };
    stat::mknod(&place.path(path), kind, Mode::from_bits_truncate(0o777), device)
}

fn mkfifo(place: &Place, path: &str) -> nix::Result<()> {
    unistd::mkfifo(&place.path(path), Mode::from_bits_truncate(0o777))
}

fn found(place: &Place, path: &str) -> FileStat {
    stat::lstat(&place.path(path)).expect("there")
}

fn kind(found: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT
}

fn remove(place: &Place, path: &str) {
    fs::remove_file(place.path(path)).expect("removed");
}

pub const CASES: &[Case] = &[
    case("a new node has its type, and is empty", |place| {
        for kind_made in KINDS {
            mknod(place, kind_made, "new").expect("made");
            let new = found(place, "new");
            assert_eq!((kind(&new), new.st_size, new.st_nlink), (kind_made, 0, 1));
            remove(place, "new");
        }
    }),
    case("without a type, a regular file is made", |place| {
        mknod(place, SFlag::empty(), "new").expect("made");
        assert_eq!(kind(&found(place, "new")), SFlag::S_IFREG);
        fs::write(place.path("new"), "some bytes").expect("written");
    }),
    case("a new FIFO transfers bytes", |place| {
        mkfifo(place, "fifo").expect("made");
        assert_eq!(kind(&found(place, "fifo")), SFlag::S_IFIFO);
        let open = |options: &mut OpenOptions| {
            options
                .custom_flags(OFlag::O_NONBLOCK.bits())
                .open(place.path("fifo"))
                .map_err(|error| Errno::from_raw(error.raw_os_error().expect("of a system call")))
        };
        // Nobody reads.
        fails(Errno::ENXIO, open(OpenOptions::new().write(true)));
        let mut reader = open(OpenOptions::new().read(true)).expect("opened");
        let mut writer = open(OpenOptions::new().write(true)).expect("opened");
        writer.write_all(b"some bytes").expect("written");
        // No end of file is awaited: a child of another test may hold the writer open until it has
        // run exec.
        let mut bytes = [0; 10];
        reader.read_exact(&mut bytes).expect("read");
        assert_eq!(&bytes, b"some bytes");
    }),
    case("a socket cannot be opened: ENXIO", |place| {
        mknod(place, SFlag::S_IFSOCK, "socket").expect("made");
        fails(Errno::ENXIO, nix::fcntl::open(&place.path("socket"), OFlag::O_RDONLY, Mode::empty()));
    }),
    case("a directory is EPERM, and a symbolic link is EINVAL", |place| {
        fails(Errno::EPERM, mknod(place, SFlag::S_IFDIR, "new"));
        fails(Errno::EINVAL, mknod(place, SFlag::S_IFLNK, "new"));
    }),
    case("a name that exists is EEXIST, whatever it is", |place| {
        place.dir("dir");
        place.file("file");
        place.symlink("missing", "dangling");
        place.symlink("dir", "link");
        for taken in ["dir", "file", "dangling", "link", "", ".", "dir/.", "dir/.."] {
            fails(Errno::EEXIST, mkfifo(place, taken));
            fails(Errno::EEXIST, mknod(place, SFlag::S_IFREG, taken));
        }
    }),
    case("a missing directory in the path prefix is ENOENT", |place| {
        place.symlink("missing", "dangling");
        for path in ["missing/new", "dangling/new"] {
            fails(Errno::ENOENT, mkfifo(place, path));
            fails(Errno::ENOENT, mknod(place, SFlag::S_IFREG, path));
        }
    }),
    case("a slash after a new name is ENOENT", |place| {
        for kind in KINDS {
            fails(Errno::ENOENT, mknod(place, kind, "new/"));
        }
    }),
    case("a file in place of a directory is ENOTDIR", |place| {
        place.file("file");
        mkfifo(place, "fifo").expect("made");
        fails(Errno::ENOTDIR, mkfifo(place, "file/new"));
        fails(Errno::ENOTDIR, mkfifo(place, "fifo/new"));
    }),
    case("a loop of symbolic links is ELOOP", |place| {
        place.symlink("two", "one");
        place.symlink("one", "two");
        fails(Errno::ELOOP, mkfifo(place, "one/new"));
    }),
    case("a name has at most 255 bytes", |place| {
        mkfifo(place, &name(255)).expect("made");
        fails(Errno::ENAMETOOLONG, mkfifo(place, &name(256)));
    }),
    case("nothing can be made in a directory that was removed", |place| {
        let open = fs::File::open(place.dir("dir")).expect("opened");
        fs::remove_dir(place.path("dir")).expect("removed");
        for kind in KINDS {
            fails(Errno::ENOENT, stat::mknodat(&open, "new", kind, Mode::S_IRWXU, 0));
        }
    }),
    case("the parent directory is modified", |place| {
        place.dir("dir");
        assert_eq!(place.changed(&["", "dir"], || mkfifo(place, "dir/fifo")), "dir: mtime ctime");
        let socket = || mknod(place, SFlag::S_IFSOCK, "dir/socket");
        assert_eq!(place.changed(&["", "dir"], socket), "dir: mtime ctime");
    }),
    case("a call that fails changes no time", |place| {
        place.dir("dir");
        place.file("dir/file");
        let failing = || {
            fails(Errno::EEXIST, mkfifo(place, "dir/file"));
            Ok(())
        };
        assert_eq!(place.changed(&["", "dir", "dir/file"], failing), "");
    }),
    case("the mode is that of the call, less the umask", |place| {
        let mask = umask();
        for kind in KINDS {
            mknod(place, kind, "new").expect("made");
            assert_eq!(mode(&place.path("new")), 0o777 & !mask);
            remove(place, "new");
        }
    }),
    users("a device has its number", |place| {
        for device in DEVICES {
            mknod(place, device, "new").expect("made");
            let new = found(place, "new");
            assert_eq!((kind(&new), new.st_rdev), (device, makedev(1, 3)));
            remove(place, "new");
        }
    }),
    users("a device is EPERM for all callers but root", |place| {
        place.dir("dir");
        place.give("dir", 0o777);
        for device in DEVICES {
            fails(Errno::EPERM, OWNER.does(|| mknod(place, device, "dir/new")));
        }
    }),
    users("write and search permission is needed in the parent directory", |place| {
        place.dir("dir");
        for kind in KINDS {
            let undo = || remove(place, "dir/new");
            needs_write_and_search(place, |_| {}, || mknod(place, kind, "dir/new"), undo);
        }
    }),
    users("search permission is needed in the path prefix", |place| {
        place.dir("way");
        place.dir("way/dir");
        place.give("way/dir", 0o777);
        needs_search(place, || mkfifo(place, "way/dir/new"));
    }),
    users("a new node belongs to the caller, and in a directory with setgid to its group", |place| {
        place.dir("dir");
        for (of_dir, group) in [(0o777, STRANGER.gid), (0o2777, OWNER.gid)] {
            place.give("dir", of_dir);
            for kind in KINDS {
                STRANGER.does(|| mknod(place, kind, "dir/new")).expect("made");
                let new = found(place, "dir/new");
                assert_eq!((new.st_uid, new.st_gid), (STRANGER.uid, group));
                assert_eq!(mode(&place.path("dir/new")) & 0o7000, 0);
                remove(place, "dir/new");
            }
        }
    }),
    users("a FIFO opens only as its mode permits, else EACCES", |place| {
        mkfifo(place, "fifo").expect("made");
        let open = |flags| nix::fcntl::open(&place.path("fifo"), flags | OFlag::O_NONBLOCK, Mode::empty());
        place.give("fifo", 0o200);
        fails(Errno::EACCES, OWNER.does(|| open(OFlag::O_RDONLY)));
        place.give("fifo", 0o400);
        fails(Errno::EACCES, OWNER.does(|| open(OFlag::O_WRONLY)));
        OWNER.does(|| open(OFlag::O_RDONLY)).expect("permitted");
    }),
];
