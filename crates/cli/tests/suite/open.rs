//! open(2), openat(2).

use std::{fs, os::fd::OwnedFd};

use nix::{
    errno::Errno,
    fcntl::{self, OFlag},
    sys::stat::{Mode, fstat, stat},
    unistd,
};

use crate::place::{Case, MEMBER, OWNER, Place, STRANGER, case, fails, mode, name, set_mode, umask, users};

const NEW: OFlag = OFlag::O_CREAT.union(OFlag::O_EXCL).union(OFlag::O_RDWR);

fn open(place: &Place, path: &str, flags: OFlag) -> nix::Result<OwnedFd> {
    open_mode(place, path, flags, 0o666)
}

fn open_mode(place: &Place, path: &str, flags: OFlag, mode: u32) -> nix::Result<OwnedFd> {
    fcntl::open(&place.path(path), flags | OFlag::O_CLOEXEC, Mode::from_bits_retain(mode))
}

pub const CASES: &[Case] = &[
    case("a new file is empty, and has one link and three equal times", |place| {
        let file = open(place, "new", NEW).expect("made");
        let found = fstat(&file).expect("open");
        assert_eq!((found.st_size, found.st_nlink, found.st_blocks), (0, 1, 0));
        let mtime = (found.st_mtime, found.st_mtime_nsec);
        assert_eq!((found.st_atime, found.st_atime_nsec), mtime);
        assert_eq!((found.st_ctime, found.st_ctime_nsec), mtime);
    }),
    case("the mode is that of the call, less the umask", |place| {
        open_mode(place, "new", NEW, 0o7777).expect("made");
        assert_eq!(mode(&place.path("new")), 0o7777 & !umask());
    }),
    case("the mode of a new file does not limit the call that makes it", |place| {
        let file = open_mode(place, "new", NEW, 0).expect("made");
        assert_eq!(unistd::write(&file, b"bytes"), Ok(5));
        assert_eq!(mode(&place.path("new")), 0);
    }),
    case("O_CREAT changes neither the bytes nor the mode of a file that exists", |place| {
        place.file("file");
        set_mode(&place.path("file"), 0o640);
        open_mode(place, "file", OFlag::O_CREAT | OFlag::O_RDWR, 0o777).expect("opened");
        assert_eq!(mode(&place.path("file")), 0o640);
        assert_eq!(fs::read(place.path("file")).expect("read"), b"some bytes");
    }),
    case("with O_CREAT and O_EXCL, a name that exists is EEXIST, whatever it is", |place| {
        place.dir("dir");
        place.file("file");
        place.symlink("missing", "dangling");
        place.symlink("file", "link");
        place.symlink("circle", "circle");
        for taken in ["dir", "file", "dangling", "link", "circle", "", ".", "dir/.."] {
            fails(Errno::EEXIST, open(place, taken, NEW));
        }
        assert!(!place.path("missing").exists());
    }),
    case("a missing file is ENOENT without O_CREAT, and a missing directory always", |place| {
        place.symlink("missing", "dangling");
        for path in ["missing", "dangling", "missing/file", "dangling/file", "missing/"] {
            fails(Errno::ENOENT, open(place, path, OFlag::O_RDONLY));
        }
        for path in ["missing/new", "dangling/new"] {
            fails(Errno::ENOENT, open(place, path, OFlag::O_CREAT | OFlag::O_RDWR));
        }
        fails(Errno::ENOENT, fcntl::open("", OFlag::O_RDONLY, Mode::empty()));
    }),
    case("a file in place of a directory is ENOTDIR", |place| {
        place.file("file");
        place.symlink("file", "link");
        for path in ["file/new", "link/new"] {
            fails(Errno::ENOTDIR, open(place, path, OFlag::O_CREAT | OFlag::O_RDWR));
        }
        let file = open(place, "file", OFlag::O_RDONLY).expect("opened");
        fails(Errno::ENOTDIR, fcntl::openat(&file, "new", NEW, Mode::S_IRWXU));
    }),
    case("a loop of symbolic links is ELOOP, also with O_CREAT", |place| {
        place.symlink("two", "one");
        place.symlink("one", "two");
        for flags in [OFlag::O_RDONLY, OFlag::O_CREAT | OFlag::O_RDWR] {
            fails(Errno::ELOOP, open(place, "one", flags));
            fails(Errno::ELOOP, open(place, "one/file", flags));
        }
    }),
    case("a name has at most 255 bytes", |place| {
        open(place, &name(255), NEW).expect("made");
        fails(Errno::ENAMETOOLONG, open(place, &name(256), NEW));
        fails(Errno::ENAMETOOLONG, open(place, &name(256), OFlag::O_RDONLY));
    }),
    case("a slash after the name of a file is ENOTDIR, and EISDIR with O_CREAT", |place| {
        place.file("file");
        place.symlink("file", "link");
        for path in ["file/", "link/"] {
            fails(Errno::ENOTDIR, open(place, path, OFlag::O_RDONLY));
        }
        for path in ["file/", "link/", "new/"] {
            fails(Errno::EISDIR, open(place, path, OFlag::O_CREAT | OFlag::O_RDWR));
        }
    }),
    case("a directory is EISDIR for a call that would write or create it", |place| {
        place.dir("dir");
        place.symlink("dir", "link");
        for path in ["dir", "dir/", "link", "dir/.", "dir/.."] {
            for flags in [OFlag::O_WRONLY, OFlag::O_RDWR, OFlag::O_TRUNC, OFlag::O_CREAT] {
                fails(Errno::EISDIR, open(place, path, flags));
            }
        }
    }),
    case("a directory opens for reading, but has no bytes to read", |place| {
        place.dir("dir");
        let dir = open(place, "dir/", OFlag::O_RDONLY).expect("opened");
        fails(Errno::EISDIR, unistd::read(&dir, &mut [0; 8]));
    }),
    case("O_CREAT makes the target of a dangling symbolic link", |place| {
        place.dir("dir");
        place.symlink("dir/new", "dangling");
        open(place, "dangling", OFlag::O_CREAT | OFlag::O_RDWR).expect("made");
        assert!(place.path("dir/new").is_file());
        assert!(place.path("dangling").is_symlink());
        place.symlink("missing/new", "lost");
        fails(Errno::ENOENT, open(place, "lost", OFlag::O_CREAT | OFlag::O_RDWR));
    }),
    case("O_DIRECTORY is ENOTDIR for a file or a FIFO, and follows symbolic links", |place| {
        place.dir("dir");
        place.file("file");
        place.symlink("dir", "link");
        place.symlink("file", "other");
        place.fifo("fifo");
        for path in ["file", "other", "fifo"] {
            fails(Errno::ENOTDIR, open(place, path, OFlag::O_DIRECTORY));
        }
        for path in ["dir", "link", "link/"] {
            open(place, path, OFlag::O_DIRECTORY).expect("opened");
        }
    }),
    case("O_NOFOLLOW is ELOOP for a symbolic link, but only as the last component", |place| {
        place.dir("dir");
        place.file("dir/file");
        place.symlink("dir", "link");
        place.symlink("missing", "dangling");
        for path in ["link", "dangling"] {
            fails(Errno::ELOOP, open(place, path, OFlag::O_NOFOLLOW));
            fails(Errno::ELOOP, open(place, path, OFlag::O_NOFOLLOW | OFlag::O_CREAT | OFlag::O_RDWR));
        }
        fails(Errno::ENOTDIR, open(place, "link", OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY));
        for path in ["link/file", "link/", "dir/file"] {
            open(place, path, OFlag::O_NOFOLLOW).expect("opened");
        }
    }),
    case("O_PATH opens a symbolic link itself with O_NOFOLLOW, and never permits to read or write", |place| {
        place.file("file");
        let link = place.symlink("file", "link");
        let link = fcntl::open(&link, OFlag::O_PATH | OFlag::O_NOFOLLOW, Mode::empty()).expect("opened");
        assert_eq!(fcntl::readlinkat(&link, "").expect("a link"), "file");
        let file = open(place, "link", OFlag::O_PATH | OFlag::O_RDWR).expect("opened");
        assert_eq!(fstat(&file).expect("open").st_size, 10);
        fails(Errno::EBADF, unistd::read(&file, &mut [0; 8]));
        fails(Errno::EBADF, unistd::write(&file, b"bytes"));
        fails(Errno::EBADF, unistd::ftruncate(&file, 0));
    }),
    case("the access mode limits what the descriptor can do", |place| {
        place.file("file");
        let reader = open(place, "file", OFlag::O_RDONLY).expect("opened");
        fails(Errno::EBADF, unistd::write(&reader, b"bytes"));
        fails(Errno::EINVAL, unistd::ftruncate(&reader, 0));
        let writer = open(place, "file", OFlag::O_WRONLY).expect("opened");
        fails(Errno::EBADF, unistd::read(&writer, &mut [0; 8]));
    }),
    case("with O_APPEND, each write is at the current end", |place| {
        place.file("file");
        let one = open(place, "file", OFlag::O_WRONLY | OFlag::O_APPEND).expect("opened");
        let two = open(place, "file", OFlag::O_WRONLY | OFlag::O_APPEND).expect("opened");
        for (file, bytes) in [(&one, b" one"), (&two, b" two"), (&one, b" end")] {
            assert_eq!(unistd::write(file, bytes), Ok(4));
        }
        assert_eq!(fs::read(place.path("file")).expect("read"), b"some bytes one two end");
    }),
    case("O_TRUNC empties a file, and changes its mtime and ctime even if it was empty", |place| {
        place.dir("dir");
        place.file("dir/file");
        for flags in [OFlag::O_WRONLY, OFlag::O_RDWR | OFlag::O_CREAT] {
            let truncate = || open(place, "dir/file", flags | OFlag::O_TRUNC);
            assert_eq!(place.changed(&["dir", "dir/file"], truncate), "dir/file: mtime ctime");
            assert_eq!(stat(&place.path("dir/file")).expect("there").st_size, 0);
        }
    }),
    case("the parent directory is modified", |place| {
        place.dir("dir");
        assert_eq!(place.changed(&["", "dir"], || open(place, "dir/new", NEW)), "dir: mtime ctime");
    }),
    case("opening an existing file changes no time, nor does a call that fails", |place| {
        place.dir("dir");
        place.file("dir/file");
        let open_all = || {
            fails(Errno::EEXIST, open(place, "dir/file", NEW));
            open(place, "dir", OFlag::O_RDONLY)?;
            open(place, "dir/file", OFlag::O_RDONLY)?;
            open(place, "dir/file", OFlag::O_RDWR | OFlag::O_CREAT)
        };
        assert_eq!(place.changed(&["dir", "dir/file"], open_all), "");
    }),
    case("reading with O_NOATIME changes no atime", |place| {
        place.file("file");
        let read = || unistd::read(open(place, "file", OFlag::O_NOATIME)?, &mut [0; 8]);
        assert_eq!(place.changed(&["file"], read), "");
    }),
    case("a FIFO without a reader is ENXIO for a writer that does not wait", |place| {
        place.fifo("fifo");
        fails(Errno::ENXIO, open(place, "fifo", OFlag::O_WRONLY | OFlag::O_NONBLOCK));
        let _reader = open(place, "fifo", OFlag::O_RDONLY | OFlag::O_NONBLOCK).expect("opened");
        open(place, "fifo", OFlag::O_WRONLY | OFlag::O_NONBLOCK).expect("it has a reader");
    }),
    case("a socket is ENXIO", |place| {
        place.socket("socket");
        fails(Errno::ENXIO, open(place, "socket", OFlag::O_RDWR));
        open(place, "socket", OFlag::O_PATH).expect("opened");
    }),
    case("a program that runs is ETXTBSY for writers", |place| {
        let mut child = place.running_program("program");
        let opened = [OFlag::O_WRONLY, OFlag::O_RDWR].map(|flags| open(place, "program", flags));
        open(place, "program", OFlag::O_RDONLY).expect("opened");
        child.kill().expect("killed");
        child.wait().expect("ended");
        for opened in opened {
            fails(Errno::ETXTBSY, opened);
        }
    }),
    case("O_CREAT and O_DIRECTORY together are EINVAL", |place| {
        place.dir("dir");
        for path in ["dir", "new"] {
            fails(Errno::EINVAL, open(place, path, OFlag::O_CREAT | OFlag::O_DIRECTORY));
        }
    }),
    case("O_TMPFILE needs a directory that exists, and write access", |place| {
        place.file("file");
        fails(Errno::ENOTDIR, open(place, "file", OFlag::O_TMPFILE | OFlag::O_RDWR));
        fails(Errno::ENOENT, open(place, "missing", OFlag::O_TMPFILE | OFlag::O_RDWR));
        fails(Errno::EINVAL, open(place, "", OFlag::O_TMPFILE | OFlag::O_RDONLY));
    }),
    users("the access mode needs the permission of the caller's class", |place| {
        place.file("file");
        for (user, shift) in [(OWNER, 6), (MEMBER, 3), (STRANGER, 0)] {
            for bits in 0..8 {
                // The other classes may do everything.
                place.give("file", 0o777 & !((7 ^ bits) << shift));
                for (flags, needed) in
                    [(OFlag::O_RDONLY, 4), (OFlag::O_WRONLY, 2), (OFlag::O_RDWR, 6), (OFlag::O_TRUNC, 6)]
                {
                    let denied = (bits & needed != needed).then_some(Errno::EACCES);
                    let opened = user.does(|| open(place, "file", flags));
                    assert_eq!(opened.err(), denied, "{user:?} {flags:?} {bits}");
                }
            }
        }
    }),
    users("a new file needs write and search permission in the directory, and an existing one search", |place| {
        place.dir("dir");
        let make = |path| open(place, path, OFlag::O_CREAT | OFlag::O_RDWR);
        for (user, permitted) in [(OWNER, 0o300), (MEMBER, 0o030), (STRANGER, 0o003)] {
            place.give("dir", permitted);
            user.does(|| make("dir/file")).expect("permitted");
            place.give("dir", 0o111 & permitted);
            user.does(|| make("dir/file")).expect("it exists");
            for denied in [0o777 & !permitted, 0o111 & permitted, 0o222 & permitted] {
                place.give("dir", denied);
                fails(Errno::EACCES, user.does(|| make("dir/new")));
                fails(Errno::EACCES, user.does(|| open(place, "dir", OFlag::O_TMPFILE | OFlag::O_RDWR)));
            }
            place.give("dir", 0o666);
            fails(Errno::EACCES, user.does(|| open(place, "dir/file", OFlag::O_RDONLY)));
            fs::remove_file(place.path("dir/file")).expect("root");
        }
    }),
    users("O_PATH needs no permission of the file itself", |place| {
        place.file("file");
        place.give("file", 0);
        STRANGER.does(|| open(place, "file", OFlag::O_PATH)).expect("permitted");
    }),
    users("O_NOATIME is EPERM for all but the owner and root", |place| {
        place.file("file");
        place.give("file", 0o777);
        for user in [MEMBER, STRANGER] {
            fails(Errno::EPERM, user.does(|| open(place, "file", OFlag::O_NOATIME)));
        }
        OWNER.does(|| open(place, "file", OFlag::O_NOATIME)).expect("permitted");
        open(place, "file", OFlag::O_NOATIME).expect("root");
    }),
    users("a descriptor keeps its access when the mode changes", |place| {
        place.file("file");
        place.give("file", 0o666);
        let file = STRANGER.does(|| open(place, "file", OFlag::O_RDWR)).expect("permitted");
        place.give("file", 0);
        assert_eq!(STRANGER.does(|| unistd::write(&file, b"more")), Ok(4));
        assert_eq!(STRANGER.does(|| unistd::read(&file, &mut [0; 8])), Ok(6));
    }),
    users("O_TRUNC by another user removes setuid and setgid", |place| {
        place.file("file");
        place.give("file", 0o6777);
        STRANGER.does(|| open(place, "file", OFlag::O_WRONLY | OFlag::O_TRUNC)).expect("permitted");
        assert_eq!(mode(&place.path("file")), 0o777);
    }),
    users("a new file belongs to the caller, and in a directory with setgid to its group", |place| {
        place.dir("dir");
        for (mode_of_dir, name, group) in [(0o777, "one", STRANGER.gid), (0o2777, "two", OWNER.gid)] {
            place.give("dir", mode_of_dir);
            let new = STRANGER.does(|| open_mode(place, &format!("dir/{name}"), NEW, 0o2710)).expect("made");
            let found = fstat(&new).expect("open");
            assert_eq!((found.st_uid, found.st_gid), (STRANGER.uid, group));
            // A caller outside of the group cannot make an executable with setgid.
            assert_eq!(found.st_mode & 0o2000, if group == STRANGER.gid { 0o2000 } else { 0 });
        }
    }),
];
