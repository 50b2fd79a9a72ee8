//! fallocate(2).

use std::fs;

use nix::{
    errno::Errno,
    fcntl::{FallocateFlags, OFlag, fallocate},
    sys::stat::fstat,
};

use crate::place::{Case, OWNER, Place, case, fails, mode, open, pattern, users};

const PLAIN: FallocateFlags = FallocateFlags::empty();
const KEEP: FallocateFlags = FallocateFlags::FALLOC_FL_KEEP_SIZE;
const PUNCH: FallocateFlags = FallocateFlags::FALLOC_FL_PUNCH_HOLE.union(KEEP);
const BOTH: OFlag = OFlag::O_RDWR;

fn bytes(place: &Place) -> Vec<u8> {
    fs::read(place.path("file")).expect("read")
}

pub const CASES: &[Case] = &[
    case("the file grows by zeroes, and keeps its bytes", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        fallocate(&file, PLAIN, 0, 4).expect("allocated");
        assert_eq!(bytes(place), b"some bytes");
        fallocate(&file, PLAIN, 4, 8).expect("allocated");
        assert_eq!(bytes(place), b"some bytes\0\0");
        fallocate(&file, PLAIN, 20_000, 5).expect("allocated");
        assert_eq!(bytes(place).len(), 20_005);
        assert!(bytes(place)[10..].iter().all(|byte| *byte == 0));
    }),
    case("the space of a range is allocated", |place| {
        let file = open(place, "file", BOTH);
        fallocate(&file, PLAIN, 0, 1 << 20).expect("allocated");
        let found = fstat(&file).expect("there");
        assert!(found.st_blocks >= 2_048, "{}", found.st_blocks);
    }),
    case("KEEP_SIZE allocates space, and keeps the size", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        fallocate(&file, KEEP, 0, 1 << 20).expect("allocated");
        let found = fstat(&file).expect("there");
        assert!(found.st_blocks >= 2_048, "{}", found.st_blocks);
        assert_eq!(bytes(place), b"some bytes");
        nix::unistd::ftruncate(&file, 12).expect("grown");
        assert_eq!(bytes(place), b"some bytes\0\0");
    }),
    case("PUNCH_HOLE leaves zeroes, and keeps the size", |place| {
        for (offset, length) in [(0, 5), (4_090, 10), (4_096, 8_192), (5_000, 20_000), (29_000, 9_000)] {
            fs::write(place.path("file"), pattern(30_000)).expect("made");
            fallocate(open(place, "file", BOTH), PUNCH, offset, length).expect("punched");
            let mut expected = pattern(30_000);
            let end = (offset + length).min(30_000) as usize;
            expected[offset as usize..end].fill(0);
            assert!(bytes(place) == expected, "{offset} {length}");
        }
        fallocate(open(place, "file", BOTH), PUNCH, 40_000, 10).expect("nothing is there");
        assert_eq!(bytes(place).len(), 30_000);
    }),
    case("PUNCH_HOLE frees space", |place| {
        fs::write(place.path("file"), pattern(1 << 20)).expect("made");
        let file = open(place, "file", BOTH);
        nix::unistd::fsync(&file).expect("stored");
        let before = fstat(&file).expect("there").st_blocks;
        fallocate(&file, PUNCH, 0, 1 << 20).expect("punched");
        let after = fstat(&file).expect("there").st_blocks;
        assert!(after < before, "{before} {after}");
    }),
    case("PUNCH_HOLE without KEEP_SIZE is EOPNOTSUPP", |place| {
        place.file("file");
        let punched = fallocate(open(place, "file", BOTH), FallocateFlags::FALLOC_FL_PUNCH_HOLE, 0, 4);
        fails(Errno::EOPNOTSUPP, punched);
    }),
    case("a length of zero, and a negative length or offset, is EINVAL", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        for flags in [PLAIN, KEEP, PUNCH] {
            for (offset, length) in [(0, 0), (4, 0), (0, -1), (-1, 1), (-1, -1), (i64::MIN, 1)] {
                fails(Errno::EINVAL, fallocate(&file, flags, offset, length));
            }
        }
        assert_eq!(bytes(place), b"some bytes");
    }),
    case("a range that ends after the largest offset is EFBIG", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        for flags in [PLAIN, KEEP, PUNCH] {
            fails(Errno::EFBIG, fallocate(&file, flags, i64::MAX, 1));
            fails(Errno::EFBIG, fallocate(&file, flags, 1, i64::MAX));
        }
    }),
    case("a descriptor that is not open for writing is EBADF", |place| {
        place.file("file");
        place.dir("dir");
        for flags in [OFlag::O_RDONLY, OFlag::O_PATH] {
            fails(Errno::EBADF, fallocate(open(place, "file", flags), PLAIN, 0, 20));
        }
        fails(Errno::EBADF, fallocate(open(place, "dir", OFlag::O_RDONLY), PLAIN, 0, 20));
    }),
    case("a flag that does not exist is EOPNOTSUPP", |place| {
        let flags = FallocateFlags::from_bits_retain(1 << 20);
        fails(Errno::EOPNOTSUPP, fallocate(open(place, "file", BOTH), flags, 0, 20));
    }),
    case("a FIFO is ESPIPE", |place| {
        place.fifo("fifo");
        fails(Errno::ESPIPE, fallocate(open(place, "fifo", BOTH), PLAIN, 0, 20));
    }),
    case("a removed file can be changed by its descriptor", |place| {
        let path = place.file("file");
        let file = open(place, "file", BOTH);
        fs::remove_file(path).expect("removed");
        fallocate(&file, PLAIN, 0, 20).expect("allocated");
        assert_eq!(fstat(&file).expect("there").st_size, 20);
    }),
    case("growth modifies the file, and not its directory", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        let grow = || fallocate(&file, PLAIN, 0, 20);
        assert_eq!(place.changed(&["", "file"], grow), "file: mtime ctime");
    }),
    case("KEEP_SIZE modifies the file, too", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        let allocate = || fallocate(&file, KEEP, 0, 20_000);
        assert_eq!(place.changed(&["", "file"], allocate), "file: mtime ctime");
    }),
    case("PUNCH_HOLE modifies the file, and not its directory", |place| {
        fs::write(place.path("file"), pattern(20_000)).expect("made");
        let file = open(place, "file", BOTH);
        let punch = || fallocate(&file, PUNCH, 4_096, 4_096);
        assert_eq!(place.changed(&["", "file"], punch), "file: mtime ctime");
    }),
    case("a call that fails changes no time", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        let failing = || {
            fails(Errno::EINVAL, fallocate(&file, PLAIN, 0, 0));
            Ok(())
        };
        assert_eq!(place.changed(&["", "file"], failing), "");
    }),
    users("setuid and setgid are dropped, unless the caller is root", |place| {
        place.file("file");
        place.give("file", 0o6777);
        let file = open(place, "file", BOTH);
        fallocate(&file, PLAIN, 0, 20).expect("root");
        assert_eq!(mode(&place.path("file")), 0o6777);
        OWNER.does(|| fallocate(&file, PLAIN, 0, 40)).expect("permitted");
        assert_eq!(mode(&place.path("file")), 0o777);
    }),
];
