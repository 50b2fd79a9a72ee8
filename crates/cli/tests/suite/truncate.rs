//! truncate(2), ftruncate(2).

use std::{
    fs,
    io::{Seek, Write},
    os::unix::fs::MetadataExt,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::stat::Mode,
    unistd::{self, ftruncate},
};

use crate::place::{Case, MEMBER, OWNER, Place, STRANGER, case, fails, mode, name, needs_search, set_mode, users};

fn truncate(place: &Place, path: &str, size: i64) -> nix::Result<()> {
    unistd::truncate(&place.path(path), size)
}

fn writable(place: &Place, path: &str) -> fs::File {
    fs::File::options().write(true).open(place.path(path)).expect("opened")
}

fn bytes(place: &Place) -> Vec<u8> {
    fs::read(place.path("file")).expect("read")
}

pub const CASES: &[Case] = &[
    case("growing leaves zeroes", |place| {
        place.file("file");
        truncate(place, "file", 12).expect("grown");
        assert_eq!(bytes(place), b"some bytes\0\0");
        ftruncate(writable(place, "file"), 10_000).expect("grown");
        assert_eq!(bytes(place).len(), 10_000);
        assert!(bytes(place)[10..].iter().all(|byte| *byte == 0));
    }),
    case("shrinking drops bytes, and growing again does not bring them back", |place| {
        fs::write(place.path("file"), [b'x'; 10_000]).expect("made");
        for (small, large) in [(9_000, 9_500), (5_000, 9_500), (4_096, 5_000), (3, 10_000)] {
            ftruncate(writable(place, "file"), small).expect("shrunk");
            assert_eq!(bytes(place), vec![b'x'; small as usize]);
            truncate(place, "file", large).expect("grown");
            let (kept, new) = (bytes(place)[..small as usize].to_vec(), bytes(place)[small as usize..].to_vec());
            assert!(kept.iter().all(|byte| *byte == b'x'), "{small}");
            assert_eq!(new, vec![0; (large - small) as usize]);
            truncate(place, "file", small).expect("shrunk");
        }
        truncate(place, "file", 0).expect("shrunk");
        assert!(bytes(place).is_empty());
    }),
    case("a large size needs no space", |place| {
        place.file("file");
        truncate(place, "file", 1 << 40).expect("grown");
        let found = fs::metadata(place.path("file")).expect("there");
        assert_eq!(found.size(), 1 << 40);
        assert!(found.blocks() < 1_000, "{}", found.blocks());
    }),
    case("the positions of descriptors stay", |place| {
        place.file("file");
        let mut file = writable(place, "file");
        file.write_all(b"SOME").expect("written");
        ftruncate(&file, 1).expect("shrunk");
        assert_eq!(file.stream_position().expect("a position"), 4);
        file.write_all(b"!").expect("written");
        assert_eq!(bytes(place), b"S\0\0\0!");
    }),
    case("a negative size is EINVAL", |place| {
        place.file("file");
        let file = writable(place, "file");
        for size in [-1, i64::MIN] {
            fails(Errno::EINVAL, truncate(place, "file", size));
            fails(Errno::EINVAL, ftruncate(&file, size));
        }
        assert_eq!(bytes(place), b"some bytes");
    }),
    case("a descriptor that is not open for writing is EINVAL, and one of O_PATH is EBADF", |place| {
        let file = place.file("file");
        fails(Errno::EINVAL, ftruncate(fs::File::open(&file).expect("opened"), 1));
        let found = nix::fcntl::open(&file, OFlag::O_PATH, Mode::empty()).expect("opened");
        fails(Errno::EBADF, ftruncate(found, 1));
    }),
    case("a directory is EISDIR, and its descriptor EINVAL", |place| {
        let dir = place.dir("dir");
        place.symlink("dir", "link");
        for path in ["dir", "dir/", "link", ""] {
            fails(Errno::EISDIR, truncate(place, path, 0));
        }
        fails(Errno::EINVAL, ftruncate(fs::File::open(dir).expect("opened"), 0));
    }),
    case("a FIFO is EINVAL", |place| {
        place.fifo("fifo");
        fails(Errno::EINVAL, truncate(place, "fifo", 0));
    }),
    case("a program that runs is ETXTBSY", |place| {
        let mut child = place.running_program("program");
        let truncated = truncate(place, "program", 0);
        child.kill().expect("killed");
        child.wait().expect("ended");
        fails(Errno::ETXTBSY, truncated);
        truncate(place, "program", 0).expect("it has ended");
    }),
    case("a missing file or directory is ENOENT", |place| {
        place.symlink("missing", "dangling");
        for path in ["missing", "missing/file", "dangling"] {
            fails(Errno::ENOENT, truncate(place, path, 0));
        }
        assert!(!place.path("missing").exists());
    }),
    case("a file in place of a directory is ENOTDIR", |place| {
        place.file("file");
        for path in ["file/file", "file/", "file/."] {
            fails(Errno::ENOTDIR, truncate(place, path, 0));
        }
    }),
    case("a loop of symbolic links is ELOOP, and a name that is too long is ENAMETOOLONG", |place| {
        place.symlink("two", "one");
        place.symlink("one", "two");
        fails(Errno::ELOOP, truncate(place, "one", 0));
        fails(Errno::ENAMETOOLONG, truncate(place, &name(256), 0));
    }),
    case("a symbolic link is followed", |place| {
        place.file("file");
        place.symlink("file", "link");
        assert_eq!(place.changed(&["", "file"], || truncate(place, "link", 4)), "file: mtime ctime");
        assert_eq!(bytes(place), b"some");
    }),
    case("a removed file can be changed by its descriptor", |place| {
        let path = place.file("file");
        let file = writable(place, "file");
        fs::remove_file(path).expect("removed");
        ftruncate(&file, 4).expect("shrunk");
        assert_eq!(file.metadata().expect("there").size(), 4);
    }),
    case("a new size modifies the file, and not its directory", |place| {
        place.file("file");
        let file = writable(place, "file");
        for size in [12, 3] {
            assert_eq!(place.changed(&["", "file"], || truncate(place, "file", size)), "file: mtime ctime");
            assert_eq!(place.changed(&["", "file"], || ftruncate(&file, size + 1)), "file: mtime ctime");
        }
    }),
    case("ftruncate to the same size modifies the file, too", |place| {
        place.file("file");
        let file = writable(place, "file");
        assert_eq!(place.changed(&["", "file"], || ftruncate(&file, 10)), "file: mtime ctime");
        // truncate(2) promises that only if the size changes. XFS keeps the times.
        let changed = place.changed(&["", "file"], || truncate(place, "file", 10));
        assert!(matches!(changed.as_str(), "file: mtime ctime" | ""), "{changed}");
    }),
    case("a call that fails changes no time", |place| {
        let file = place.file("file");
        let readable = fs::File::open(file).expect("opened");
        let failing = || {
            fails(Errno::EINVAL, truncate(place, "file", -1));
            fails(Errno::EINVAL, ftruncate(&readable, 0));
            Ok(())
        };
        assert_eq!(place.changed(&["", "file"], failing), "");
    }),
    users("write permission is needed for the path", |place| {
        place.file("file");
        for (user, permitted) in [(OWNER, 0o200), (MEMBER, 0o020), (STRANGER, 0o002)] {
            place.give("file", permitted);
            user.does(|| truncate(place, "file", 4)).expect("permitted");
            place.give("file", 0o777 & !permitted);
            fails(Errno::EACCES, user.does(|| truncate(place, "file", 4)));
        }
    }),
    users("the permission of a descriptor stays that of the call that opened it", |place| {
        place.file("file");
        place.give("file", 0o200);
        OWNER.does(|| {
            let file = writable(place, "file");
            set_mode(&place.path("file"), 0);
            fails(Errno::EACCES, truncate(place, "file", 4));
            ftruncate(file, 4).expect("permitted");
        });
    }),
    users("search permission is needed in the path prefix", |place| {
        place.dir("way");
        place.file("way/file");
        place.give("way/file", 0o666);
        needs_search(place, || truncate(place, "way/file", 4));
    }),
    users("setuid and setgid are dropped, unless the caller is root", |place| {
        place.file("file");
        for size in [4, 5, 0] {
            place.give("file", 0o6777);
            truncate(place, "file", size).expect("root");
            assert_eq!(mode(&place.path("file")), 0o6777);
            OWNER.does(|| truncate(place, "file", size + 1)).expect("permitted");
            assert_eq!(mode(&place.path("file")), 0o777);
            place.give("file", 0o6777);
            STRANGER.does(|| ftruncate(writable(place, "file"), size)).expect("permitted");
            assert_eq!(mode(&place.path("file")), 0o777);
        }
    }),
];
