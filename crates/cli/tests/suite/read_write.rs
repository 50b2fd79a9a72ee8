//! read(2), write(2), pread(2), pwrite(2), lseek(2).

use std::{
    fs,
    io::{IoSlice, IoSliceMut},
    os::fd::OwnedFd,
};

use nix::{
    errno::Errno,
    fcntl::{self, FcntlArg, OFlag},
    sys::stat::fstat,
    unistd::{Whence, lseek, write},
};

use crate::place::{Case, OWNER, STRANGER, as_nix, case, fails, mode, open, pattern, position, set_mode, users};

fn read(fd: &OwnedFd, size: usize) -> nix::Result<Vec<u8>> {
    let mut buffer = vec![0xff; size];
    let size = nix::unistd::read(fd, &mut buffer)?;
    buffer.truncate(size);
    Ok(buffer)
}

fn pread(fd: &OwnedFd, size: usize, offset: i64) -> nix::Result<Vec<u8>> {
    let mut buffer = vec![0xff; size];
    let size = as_nix(rustix::io::pread(fd, &mut buffer, offset.cast_unsigned()))?;
    buffer.truncate(size);
    Ok(buffer)
}

fn pwrite(fd: &OwnedFd, bytes: &[u8], offset: i64) -> nix::Result<usize> {
    as_nix(rustix::io::pwrite(fd, bytes, offset.cast_unsigned()))
}

fn size(fd: &OwnedFd) -> i64 {
    fstat(fd).expect("there").st_size
}

const BOTH: OFlag = OFlag::O_RDWR;

pub const CASES: &[Case] = &[
    case("a read of a descriptor for writing, and a write to one for reading, is EBADF", |place| {
        place.file("file");
        for flags in [OFlag::O_WRONLY, OFlag::O_PATH] {
            fails(Errno::EBADF, read(&open(place, "file", flags), 1));
            fails(Errno::EBADF, pread(&open(place, "file", flags), 1, 0));
        }
        for flags in [OFlag::O_RDONLY, OFlag::O_PATH] {
            fails(Errno::EBADF, write(open(place, "file", flags), b"x"));
            fails(Errno::EBADF, pwrite(&open(place, "file", flags), b"x", 0));
        }
        fails(Errno::EBADF, lseek(open(place, "file", OFlag::O_PATH), 0, Whence::SeekCur));
    }),
    case("a directory that is read is EISDIR", |place| {
        place.dir("dir");
        let dir = open(place, "dir", OFlag::O_RDONLY);
        fails(Errno::EISDIR, read(&dir, 10));
        fails(Errno::EISDIR, pread(&dir, 10, 0));
    }),
    case("a FIFO has no positions: ESPIPE", |place| {
        place.fifo("fifo");
        let fifo = open(place, "fifo", BOTH | OFlag::O_NONBLOCK);
        fails(Errno::EAGAIN, read(&fifo, 1));
        fails(Errno::ESPIPE, lseek(&fifo, 0, Whence::SeekCur));
        fails(Errno::ESPIPE, pread(&fifo, 1, 0));
        fails(Errno::ESPIPE, pwrite(&fifo, b"x", 0));
        assert_eq!(write(&fifo, b"xy"), Ok(2));
        assert_eq!(read(&fifo, 10), Ok(b"xy".to_vec()));
    }),
    case("each read and write begins where the one before ended", |place| {
        let file = open(place, "file", BOTH);
        assert_eq!(write(&file, b"one"), Ok(3));
        assert_eq!(write(&file, b"two"), Ok(3));
        assert_eq!(position(&file), 6);
        lseek(&file, 1, Whence::SeekSet).expect("moved");
        assert_eq!(read(&file, 3), Ok(b"net".to_vec()));
        assert_eq!(write(&file, b"!"), Ok(1));
        assert_eq!(read(&file, 10), Ok(b"o".to_vec()));
        assert_eq!(read(&file, 10), Ok(vec![]));
        assert_eq!(position(&file), 6);
    }),
    case("pread and pwrite do not move the position", |place| {
        let file = open(place, "file", BOTH);
        assert_eq!(write(&file, b"some bytes"), Ok(10));
        lseek(&file, 2, Whence::SeekSet).expect("moved");
        assert_eq!(pread(&file, 3, 5), Ok(b"byt".to_vec()));
        assert_eq!(pwrite(&file, b"BYTES!", 5), Ok(6));
        assert_eq!(position(&file), 2);
        assert_eq!(read(&file, 20), Ok(b"me BYTES!".to_vec()));
        for end in [11, 12, 1 << 33] {
            assert_eq!(pread(&file, 3, end), Ok(vec![]));
        }
    }),
    case("each open has its own position, and a duplicate shares it", |place| {
        place.file("file");
        let (one, two) = (open(place, "file", BOTH), open(place, "file", BOTH));
        let same = nix::unistd::dup(&one).expect("a duplicate");
        assert_eq!(read(&one, 5), Ok(b"some ".to_vec()));
        assert_eq!(write(&same, b"BY"), Ok(2));
        assert_eq!((position(&one), position(&two)), (7, 0));
        assert_eq!(read(&two, 20), Ok(b"some BYtes".to_vec()));
    }),
    case("vectors are read and written in their order", |place| {
        let file = open(place, "file", BOTH);
        let parts = [b"one".as_slice(), b"", b"three"].map(IoSlice::new);
        assert_eq!(as_nix(rustix::io::writev(&file, &parts)), Ok(8));
        assert_eq!(as_nix(rustix::io::pwritev(&file, &parts, 4)), Ok(8));
        let (mut first, mut second) = ([0; 6], [0; 20]);
        let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(as_nix(rustix::io::preadv(&file, &mut parts, 1)), Ok(11));
        assert_eq!((&first, &second[..5]), (b"netone", b"three".as_slice()));
    }),
    case("a write after the end leaves zeroes before it", |place| {
        let file = open(place, "file", BOTH);
        for at in [3, 5_000, 1 << 20, (1 << 33) + 1] {
            let end = size(&file);
            assert_eq!(pwrite(&file, b"x", at), Ok(1));
            assert_eq!(size(&file), at + 1);
            for hole in [end, at - 2] {
                assert_eq!(pread(&file, 2, hole), Ok(vec![0; 2]));
            }
            assert_eq!(pread(&file, 10, at), Ok(b"x".to_vec()));
        }
    }),
    case("large reads and writes at odd offsets keep each byte", |place| {
        let file = open(place, "file", BOTH);
        let mut expected = pattern(1_000_000);
        assert_eq!(write(&file, &expected), Ok(1_000_000));
        for (offset, length) in [(4_095, 2), (8_191, 4_097), (100_001, 300_003), (999_990, 10)] {
            let new: Vec<u8> = pattern(length).iter().map(|byte| byte ^ 0xff).collect();
            expected[offset..offset + length].copy_from_slice(&new);
            assert_eq!(pwrite(&file, &new, offset as i64), Ok(length));
        }
        assert!(pread(&file, 2_000_000, 0).expect("read") == expected);
        assert!(pread(&file, 500_000, 77_777).expect("read") == expected[77_777..577_777]);
    }),
    case("with O_APPEND, each write is at the end", |place| {
        place.file("file");
        let append = OFlag::O_APPEND | BOTH;
        let (one, two) = (open(place, "file", append), open(place, "file", append));
        lseek(&one, 0, Whence::SeekSet).expect("moved");
        assert_eq!(write(&one, b" one"), Ok(4));
        assert_eq!(position(&one), 14);
        assert_eq!(write(&two, b" two"), Ok(4));
        assert_eq!(write(&one, b" three"), Ok(6));
        assert_eq!(pread(&two, 100, 0), Ok(b"some bytes one two three".to_vec()));
        // POSIX says at the offset. Linux writes at the end, which pwrite(2) calls a bug.
        assert_eq!(pwrite(&one, b"!", 0), Ok(1));
        assert_eq!(pread(&two, 100, 19), Ok(b"three!".to_vec()));
    }),
    case("fcntl switches O_APPEND on and off", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        fcntl::fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND)).expect("set");
        assert_eq!(write(&file, b"!"), Ok(1));
        fcntl::fcntl(&file, FcntlArg::F_SETFL(OFlag::empty())).expect("set");
        assert_eq!(pwrite(&file, b"S", 0), Ok(1));
        assert_eq!(pread(&file, 100, 0), Ok(b"Some bytes!".to_vec()));
    }),
    case("lseek counts from the start, the position and the end", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        for (offset, whence, expected) in [
            (3, Whence::SeekSet, 3),
            (4, Whence::SeekCur, 7),
            (-7, Whence::SeekCur, 0),
            (-3, Whence::SeekEnd, 7),
            (0, Whence::SeekEnd, 10),
            (100, Whence::SeekEnd, 110),
            (1 << 40, Whence::SeekSet, 1 << 40),
        ] {
            assert_eq!(lseek(&file, offset, whence), Ok(expected));
            assert_eq!((position(&file), size(&file)), (expected, 10));
        }
        assert_eq!(read(&file, 1), Ok(vec![]));
    }),
    case("a negative position is EINVAL, and the position stays", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        lseek(&file, 5, Whence::SeekSet).expect("moved");
        for (offset, whence) in [(-1, Whence::SeekSet), (-6, Whence::SeekCur), (-11, Whence::SeekEnd)] {
            fails(Errno::EINVAL, lseek(&file, offset, whence));
        }
        assert_eq!(position(&file), 5);
        for offset in [-1, i64::MIN] {
            fails(Errno::EINVAL, pread(&file, 1, offset));
            fails(Errno::EINVAL, pwrite(&file, b"x", offset));
        }
    }),
    case("SEEK_DATA and SEEK_HOLE find data and holes", |place| {
        let (writer, block) = (open(place, "file", OFlag::O_WRONLY), 1 << 20);
        // After a write past the end, XFS may have more space allocated than was written.
        nix::unistd::ftruncate(&writer, 3 * block).expect("grown");
        pwrite(&writer, &pattern(1 << 20), block).expect("written");
        let file = open(place, "file", OFlag::O_RDONLY);
        let seek = |offset, whence| lseek(&file, offset, whence);
        assert_eq!(seek(0, Whence::SeekData), Ok(block));
        assert_eq!(seek(block + 5, Whence::SeekData), Ok(block + 5));
        assert_eq!(seek(7, Whence::SeekHole), Ok(7));
        assert_eq!(seek(block, Whence::SeekHole), Ok(2 * block));
        assert_eq!(position(&file), 2 * block);
        fails(Errno::ENXIO, seek(2 * block, Whence::SeekData));
        assert_eq!(position(&file), 2 * block);
        pwrite(&writer, b"x", 3 * block - 1).expect("written");
        assert_eq!(seek(3 * block - 1, Whence::SeekHole), Ok(3 * block));
    }),
    case("SEEK_DATA and SEEK_HOLE skip no data while the file can be mapped for writing", |place| {
        let (file, block) = (open(place, "file", BOTH), 1 << 20);
        pwrite(&file, &pattern(1 << 20), block).expect("written");
        nix::unistd::ftruncate(&file, 3 * block).expect("grown");
        // A file system may report a hole as data. Trees of pandofs do if the file can be mapped.
        let data = lseek(&file, 0, Whence::SeekData).expect("there");
        assert!((0..=block).contains(&data), "{data}");
        let hole = lseek(&file, block, Whence::SeekHole).expect("there is one at the end");
        assert!((2 * block..=3 * block).contains(&hole), "{hole}");
    }),
    case("SEEK_DATA and SEEK_HOLE past the end are ENXIO", |place| {
        place.file("file");
        let (file, empty) = (open(place, "file", BOTH), open(place, "empty", BOTH));
        for whence in [Whence::SeekData, Whence::SeekHole] {
            // A negative offset is ENXIO on most file systems too, but btrfs treats it as 0.
            for offset in [10, 11, 1 << 40] {
                fails(Errno::ENXIO, lseek(&file, offset, whence));
            }
            fails(Errno::ENXIO, lseek(&empty, 0, whence));
        }
        assert_eq!(lseek(&file, 4, Whence::SeekData), Ok(4));
        assert_eq!(lseek(&file, 4, Whence::SeekHole), Ok(10));
    }),
    case("other descriptors see a write at once, even after the file was removed", |place| {
        let (one, two) = (open(place, "file", BOTH), open(place, "file", OFlag::O_RDONLY));
        fs::remove_file(place.path("file")).expect("removed");
        for (text, whole) in [("some", "some"), (" bytes", "some bytes")] {
            assert_eq!(write(&one, text.as_bytes()), Ok(text.len()));
            assert_eq!((size(&two), pread(&two, 100, 0)), (whole.len() as i64, Ok(whole.as_bytes().to_vec())));
        }
    }),
    case("a write modifies the file, and not its directory", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        assert_eq!(place.changed(&["", "file"], || write(&file, b"xxxxxxxxxxxx")), "file: mtime ctime");
        assert_eq!(place.changed(&["", "file"], || pwrite(&file, b"x", 0)), "file: mtime ctime");
    }),
    case("a read changes at most the atime", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        let changed = place.changed(&["", "file"], || read(&file, 4));
        // A mount with noatime keeps it.
        assert!(matches!(changed.as_str(), "file: atime" | ""), "{changed}");
    }),
    case("a read and a write of no bytes have no effect", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        let nothing = || {
            assert_eq!((write(&file, b""), pwrite(&file, b"", 100)), (Ok(0), Ok(0)));
            Ok(())
        };
        assert_eq!(place.changed(&["", "file"], nothing), "");
        assert_eq!((read(&file, 0), pread(&file, 0, 100)), (Ok(vec![]), Ok(vec![])));
        assert_eq!((position(&file), size(&file)), (0, 10));
    }),
    case("a move of the position changes no time", |place| {
        place.file("file");
        let file = open(place, "file", BOTH);
        assert_eq!(place.changed(&["", "file"], || lseek(&file, 0, Whence::SeekEnd)), "");
    }),
    users("the permission stays that of the call that opened the file", |place| {
        place.file("file");
        place.give("file", 0o600);
        OWNER.does(|| {
            let file = open(place, "file", BOTH);
            set_mode(&place.path("file"), 0);
            assert_eq!(write(&file, b"SOME"), Ok(4));
            assert_eq!(read(&file, 10), Ok(b" bytes".to_vec()));
        });
    }),
    users("a write by a caller other than root drops setuid and setgid", |place| {
        place.file("file");
        for user in [OWNER, STRANGER] {
            place.give("file", 0o6777);
            let file = open(place, "file", BOTH);
            user.does(|| read(&file, 1)).expect("read");
            user.does(|| write(&file, b"")).expect("nothing is written");
            assert_eq!(mode(&place.path("file")), 0o6777);
            user.does(|| write(&file, b"x")).expect("written");
            assert_eq!(mode(&place.path("file")), 0o777);
        }
    }),
];
