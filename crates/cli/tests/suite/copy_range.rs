//! copy_file_range(2).

use std::{fs, os::fd::OwnedFd};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    unistd::{Whence, lseek},
};

use crate::place::{Case, OWNER, Place, as_nix, case, fails, mode, open, pattern, position, users};

const READ: OFlag = OFlag::O_RDONLY;
const BOTH: OFlag = OFlag::O_RDWR;

fn copy_file_range(
    from: &OwnedFd,
    at: Option<&mut u64>,
    to: &OwnedFd,
    to_at: Option<&mut u64>,
    length: usize,
) -> nix::Result<usize> {
    as_nix(rustix::fs::copy_file_range(from, at, to, to_at, length))
}

/// Copies between offsets.
fn copy(from: &OwnedFd, at: i64, to: &OwnedFd, to_at: i64, length: usize) -> nix::Result<usize> {
    let (mut at, mut to_at) = (at.cast_unsigned(), to_at.cast_unsigned());
    copy_file_range(from, Some(&mut at), to, Some(&mut to_at), length)
}

/// A source with some bytes, and a target without any.
fn files(place: &Place) -> (OwnedFd, OwnedFd) {
    place.file("from");
    (open(place, "from", READ), open(place, "to", BOTH))
}

fn bytes(place: &Place, path: &str) -> Vec<u8> {
    fs::read(place.path(path)).expect("read")
}

pub const CASES: &[Case] = &[
    case("without offsets, the positions are used and moved", |place| {
        let (from, to) = files(place);
        lseek(&from, 2, Whence::SeekSet).expect("moved");
        assert_eq!(copy_file_range(&from, None, &to, None, 3), Ok(3));
        assert_eq!((position(&from), position(&to)), (5, 3));
        assert_eq!(copy_file_range(&from, None, &to, None, 100), Ok(5));
        assert_eq!((position(&from), position(&to)), (10, 8));
        assert_eq!(bytes(place, "to"), b"me bytes");
    }),
    case("offsets are used and moved, and the positions stay", |place| {
        let (from, to) = files(place);
        let (mut at, mut to_at) = (5, 1);
        assert_eq!(copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), 4), Ok(4));
        assert_eq!((at, to_at), (9, 5));
        assert_eq!((position(&from), position(&to)), (0, 0));
        assert_eq!(copy_file_range(&from, None, &to, Some(&mut to_at), 2), Ok(2));
        assert_eq!((position(&from), to_at), (2, 7));
        assert_eq!(copy_file_range(&from, Some(&mut at), &to, None, 1), Ok(1));
        assert_eq!((at, position(&to)), (10, 1));
        assert_eq!(bytes(place, "to"), b"sbyteso");
    }),
    case("a copy ends at the end of the source", |place| {
        let (from, to) = files(place);
        assert_eq!(copy(&from, 8, &to, 0, 100), Ok(2));
        for end in [10, 11, 1 << 40] {
            assert_eq!(copy(&from, end, &to, 0, 100), Ok(0));
        }
        assert_eq!(bytes(place, "to"), b"es");
    }),
    case("a length of zero copies nothing", |place| {
        let (from, to) = files(place);
        assert_eq!(copy(&from, 0, &to, 5, 0), Ok(0));
        assert_eq!(bytes(place, "to"), b"");
    }),
    case("a gap before the target offset is filled with zeroes", |place| {
        let (from, to) = files(place);
        assert_eq!(copy(&from, 0, &to, 5_000, 4), Ok(4));
        let found = bytes(place, "to");
        assert_eq!((&found[..5_000], &found[5_000..]), ([0; 5_000].as_slice(), b"some".as_slice()));
    }),
    case("bytes of the target around the range stay", |place| {
        let (from, to) = files(place);
        fs::write(place.path("to"), "0123456789").expect("written");
        assert_eq!(copy(&from, 0, &to, 3, 4), Ok(4));
        assert_eq!(bytes(place, "to"), b"012some789");
    }),
    case("a large file is copied as it is, with its zeroes", |place| {
        let mut expected = pattern(3_000_000);
        expected[1_000_000..2_000_000].fill(0);
        fs::write(place.path("from"), &expected).expect("made");
        let (from, to) = (open(place, "from", READ), open(place, "to", BOTH));
        // One call may copy less than it was asked for.
        while copy_file_range(&from, None, &to, None, 10_000_000).expect("copied") > 0 {}
        assert!(bytes(place, "to") == expected);
        let mut copied = 0;
        while copied < 4_098 {
            let at = copied as i64;
            copied += copy(&from, 4_097 + at, &to, 8_191 + at, 4_098 - copied).expect("copied");
        }
        expected.copy_within(4_097..8_195, 8_191);
        assert!(bytes(place, "to") == expected);
    }),
    case("ranges of one file that do not overlap are copied", |place| {
        place.file("file");
        let (from, to) = (open(place, "file", READ), open(place, "file", BOTH));
        assert_eq!(copy(&to, 0, &to, 5, 5), Ok(5));
        assert_eq!(bytes(place, "file"), b"some some ");
        assert_eq!(copy(&from, 8, &to, 10, 2), Ok(2));
        assert_eq!(bytes(place, "file"), b"some some e ");
    }),
    case("ranges of one file that overlap are EINVAL, by any of its names", |place| {
        place.file("file");
        fs::hard_link(place.path("file"), place.path("alias")).expect("linked");
        let (from, to) = (open(place, "alias", READ), open(place, "file", BOTH));
        for (at, to_at, length) in [(0, 0, 1), (0, 2, 5), (2, 0, 5), (5, 9, 100)] {
            fails(Errno::EINVAL, copy(&from, at, &to, to_at, length));
            fails(Errno::EINVAL, copy(&to, at, &to, to_at, length));
        }
        assert_eq!(bytes(place, "file"), b"some bytes");
    }),
    case("a source that cannot be read, and a target that cannot be written, is EBADF", |place| {
        let (from, to) = files(place);
        for wrong in [OFlag::O_WRONLY, OFlag::O_PATH] {
            fails(Errno::EBADF, copy(&open(place, "from", wrong), 0, &to, 0, 4));
        }
        for wrong in [READ, OFlag::O_PATH, OFlag::O_APPEND | BOTH] {
            fails(Errno::EBADF, copy(&from, 0, &open(place, "to", wrong), 0, 4));
        }
    }),
    case("a directory is EISDIR, as a source and as a target", |place| {
        let (from, to) = files(place);
        place.dir("dir");
        let dir = open(place, "dir", READ);
        fails(Errno::EISDIR, copy(&dir, 0, &to, 0, 4));
        fails(Errno::EISDIR, copy(&from, 0, &dir, 0, 4));
    }),
    case("a FIFO is EINVAL, as a source and as a target", |place| {
        let (from, to) = files(place);
        place.fifo("fifo");
        let fifo = open(place, "fifo", BOTH);
        fails(Errno::EINVAL, copy_file_range(&fifo, None, &to, None, 4));
        fails(Errno::EINVAL, copy_file_range(&from, None, &fifo, None, 4));
    }),
    case("a negative offset is EINVAL, and the largest target offset is EFBIG", |place| {
        let (from, to) = files(place);
        fails(Errno::EINVAL, copy(&from, -5, &to, 0, 1));
        fails(Errno::EINVAL, copy(&from, 0, &to, -5, 1));
        fails(Errno::EFBIG, copy(&from, 0, &to, i64::MAX, 1));
    }),
    case("the target is modified, and the source at most accessed", |place| {
        let (from, to) = files(place);
        let names = ["", "from", "to"];
        let changed = place.changed(&names, || copy(&from, 0, &to, 0, 4));
        // A copy inside the file system may not count as a read.
        assert!(matches!(changed.as_str(), "to: mtime ctime" | "from: atime, to: mtime ctime"), "{changed}");
    }),
    case("a copy of nothing changes no time", |place| {
        let (from, to) = files(place);
        let nothing = || {
            assert_eq!(copy(&from, 0, &to, 0, 0), Ok(0));
            assert_eq!(copy(&from, 10, &to, 0, 4), Ok(0));
            fails(Errno::EINVAL, copy(&to, -5, &to, 0, 1));
            Ok(())
        };
        assert_eq!(place.changed(&["", "from", "to"], nothing), "");
    }),
    users("setuid and setgid of the target are dropped, unless the caller is root", |place| {
        let (from, to) = files(place);
        place.give("to", 0o6777);
        assert_eq!(copy(&from, 0, &to, 0, 4), Ok(4));
        assert_eq!(mode(&place.path("to")), 0o6777);
        assert_eq!(OWNER.does(|| copy(&from, 0, &to, 0, 4)), Ok(4));
        assert_eq!(mode(&place.path("to")), 0o777);
    }),
];
