//! Open files: bytes, positions, flags.

use std::io::{IoSlice, IoSliceMut};

use pando_vfs::{At, Context, Credentials, Error, FileKind, OpenFlags, Seek, SetTime, Timestamp};

use super::{FOLLOW, RW, tree};

#[test]
fn files_are_made_written_read_and_removed() {
    let (vfs, context) = tree();
    let file = vfs.open(&context, At::Cwd, "/a", RW | OpenFlags::CREAT | OpenFlags::EXCL, 0o666).expect("made");
    assert_eq!(file.write(b"hello"), Ok(5));
    assert_eq!(file.tell(), 5);
    assert_eq!(file.lseek(Seek::Set(1)), Ok(1));
    let mut buffer = [0; 10];
    assert_eq!(file.read(&mut buffer), Ok(4));
    assert_eq!(&buffer[..4], b"ello");
    let stat = vfs.stat(&context, At::Cwd, "a", FOLLOW).expect("there");
    assert_eq!((stat.size, stat.mode, stat.nlink, stat.kind), (5, 0o644, 1, FileKind::File));
    assert_eq!(
        vfs.open(&context, At::Cwd, "/a", RW | OpenFlags::CREAT | OpenFlags::EXCL, 0).err(),
        Some(Error::Exists)
    );
    assert_eq!(vfs.unlink(&context, At::Cwd, "/a"), Ok(()));
    assert_eq!(vfs.stat(&context, At::Cwd, "/a", FOLLOW), Err(Error::NoEntry));
    assert_eq!(file.stat().nlink, 0);
    assert_eq!(file.pread(&mut buffer, 0), Ok(5), "an open file lives on");
    assert_eq!(vfs.d_path(&context, file.dentry(), 12), Ok(b"/a (deleted)".to_vec()));
    assert_eq!(vfs.d_path(&context, file.dentry(), 11), Err(Error::NameTooLong));
}

#[test]
fn seeks_out_of_range_are_refused() {
    let (vfs, context) = tree();
    let file = vfs.open(&context, At::Cwd, "/a", RW | OpenFlags::CREAT, 0o600).expect("made");
    assert_eq!(file.lseek(Seek::Set(-1)), Err(Error::Invalid));
    assert_eq!(file.lseek(Seek::Set(i64::MAX)), Ok(i64::MAX as u64));
    assert_eq!(file.lseek(Seek::Cur(1)), Err(Error::Overflow));
    assert_eq!(file.lseek(Seek::Cur(i64::MIN)), Err(Error::Invalid));
    assert_eq!(file.tell(), i64::MAX as u64, "unchanged");
    assert_eq!(file.write(b"x"), Err(Error::Invalid), "as Linux: the range would end beyond 2^63 - 1");
    file.truncate(100_000).expect("grown");
    assert_eq!(file.lseek(Seek::End(-1)), Ok(99_999));
    assert_eq!(file.lseek(Seek::Hole(5)), Ok(5));
    assert_eq!(file.lseek(Seek::Data(5)), Err(Error::NoDeviceAddress));
    file.pwrite(b"data", 50_000).expect("written");
    assert_eq!(file.lseek(Seek::Data(5)), Ok(49_152));
    assert_eq!(file.lseek(Seek::Hole(50_000)), Ok(53_248));
    assert_eq!(file.lseek(Seek::Data(100_000)), Err(Error::NoDeviceAddress));
    let dir = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opens");
    assert_eq!(dir.read(&mut [0; 4]), Err(Error::IsDirectory));
    assert_eq!(dir.write(b"x"), Err(Error::BadHandle));
    assert_eq!(dir.lseek(Seek::End(0)), Err(Error::Invalid));
    assert_eq!(file.fallocate(0, 0, 0), Err(Error::Invalid));
}

/// By ZERO_RANGE, in holes, in data, over the end and behind it.
#[test]
fn zeroed_ranges_read_as_zeros() {
    const KEEP_SIZE: u32 = 1;
    const ZERO_RANGE: u32 = 0x10;
    let (vfs, context) = tree();
    for len in [0, 10, 10_000, 40_000_u64] {
        for (offset, count) in [(0, 1), (3, 7), (9_990, 20), (4096, 8192), (0, 50_000), (30_000, 30_000), (60_000, 5)] {
            for keep in [0, KEEP_SIZE] {
                let file = vfs.open(&context, At::Cwd, "/a", RW | OpenFlags::CREAT, 0o600).expect("made");
                file.pwrite(&vec![7; len as usize], 0).expect("written");
                file.truncate(len + 20_000).expect("grown");
                let mut model = [vec![7; len as usize], vec![0; 20_000]].concat();
                assert_eq!(file.fallocate(ZERO_RANGE | keep, offset, count), Ok(()));
                let end = (offset + count) as usize;
                model.resize(if keep == 0 { model.len().max(end) } else { model.len() }, 0);
                let range = (offset as usize).min(model.len())..end.min(model.len());
                model[range].fill(0);
                let mut found = vec![1; 100_000];
                let read = file.pread(&mut found, 0).expect("read");
                let case = format!("{len} bytes, {count} zeros at {offset}, keep {keep}");
                assert!(found[..read] == model, "{case}");
                assert!(file.stat().blocks * 512 >= count, "{case}: {} blocks", file.stat().blocks);
                vfs.unlink(&context, At::Cwd, "/a").expect("removed");
            }
        }
    }
    let file = vfs.open(&context, At::Cwd, "/a", RW | OpenFlags::CREAT, 0o600).expect("made");
    assert_eq!(file.fallocate(ZERO_RANGE, 0, 0), Err(Error::Invalid));
    assert_eq!(file.fallocate(ZERO_RANGE, u64::MAX >> 1, 1), Err(Error::TooBig));
    assert_eq!(file.fallocate(ZERO_RANGE | 2, 0, 1), Err(Error::NotSupported));
    let reader = vfs.open(&context, At::Cwd, "/a", OpenFlags::RDONLY, 0).expect("opened");
    assert_eq!(reader.fallocate(ZERO_RANGE, 0, 1), Err(Error::BadHandle));
}

/// An append stops at the maximum offset. Of several buffers it writes those that fit.
#[test]
fn appends_stop_at_the_maximum_offset() {
    const LAST: u64 = i64::MAX as u64;
    let (vfs, context) = tree();
    let file = vfs.open(&context, At::Cwd, "/a", RW | OpenFlags::CREAT | OpenFlags::APPEND, 0o600).expect("made");
    for (buffers, written) in [(&["abcd"][..], 3), (&["abcd", "e"], 3), (&["ab", "cd"], 2), (&["a", "b", "c"], 3)] {
        file.truncate(LAST - 3).expect("grown");
        let slices: Vec<_> = buffers.iter().map(|part| IoSlice::new(part.as_bytes())).collect();
        assert_eq!(
            (file.pwritev(&slices, 0), file.stat().size),
            (Ok(written), LAST - 3 + written as u64),
            "{buffers:?}"
        );
    }
    assert_eq!(file.pwrite(b"x", 0), Err(Error::TooBig));
}

/// An O_PATH handle can be neither read nor written, whatever other flags it was opened with.
#[test]
fn o_path_handle_permits_no_io() {
    let (vfs, context) = tree();
    vfs.open(&context, At::Cwd, "/a", RW | OpenFlags::CREAT, 0o600).expect("made");
    vfs.symlink(&context, "a", At::Cwd, "/l").expect("made");
    let open = |path, flags| vfs.open(&context, At::Cwd, path, OpenFlags::PATH | flags, 0);
    assert_eq!(open("/a", OpenFlags::DIRECTORY).err(), Some(Error::NotDirectory));
    assert_eq!(open("/l", OpenFlags::NOFOLLOW).map(|link| link.stat().kind).ok(), Some(FileKind::Symlink));
    let found = vfs.lookup(&context, At::Cwd, "/a", FOLLOW).expect("there");
    let again = vfs.open_dentry(&context, &found, OpenFlags::PATH | RW).expect("opens");
    let place = open("/a", RW | OpenFlags::APPEND).expect("opens");
    assert_eq!(place.flags(), OpenFlags::PATH);
    for place in [place, again] {
        let mut byte = [0];
        let refused = [
            place.read(&mut byte).err(),
            place.readv(&mut [IoSliceMut::new(&mut byte)]).err(),
            place.pread(&mut byte, 0).err(),
            place.preadv(&mut [IoSliceMut::new(&mut byte)], 0).err(),
            place.write(b"x").err(),
            place.pwrite(b"x", 0).err(),
            place.lseek(Seek::Set(0)).err(),
            place.lseek(Seek::End(0)).err(),
            place.truncate(0).err(),
            place.fallocate(0, 0, 1).err(),
            place.fsync().err(),
            place.readdir(0, |_| true).err(),
        ];
        assert_eq!(refused, [Some(Error::BadHandle); 12]);
    }
}

#[test]
fn set_flags_changes_only_settable_flags() {
    let (vfs, root) = tree();
    let file = vfs.open(&root, At::Cwd, "/a", RW | OpenFlags::CREAT, 0o644).expect("made");
    assert_eq!((file.write(b"one"), file.lseek(Seek::Set(0))), (Ok(3), Ok(0)));
    let (append, quiet) = (OpenFlags::APPEND, OpenFlags::NOATIME);
    assert_eq!(file.set_flags(&root, append | OpenFlags::NONBLOCK | OpenFlags::WRONLY | OpenFlags::SYNC), Ok(()));
    assert_eq!(file.flags(), RW | append | OpenFlags::NONBLOCK, "what else was asked for is ignored");
    assert_eq!((file.write(b"two"), file.tell()), (Ok(3), 6));
    assert_eq!(file.set_flags(&root, quiet), Ok(()));
    assert_eq!((file.flags(), file.pwrite(b"T", 3), file.stat().size), (RW | quiet, Ok(1), 6));
    let old = SetTime::At(Timestamp(5));
    let atime_after_read = || {
        file.pread(&mut [0; 9], 0).expect("reads");
        file.stat().atime
    };
    vfs.utimens(&root, At::Cwd, "/a", old, old, FOLLOW).expect("set");
    assert_eq!(atime_after_read(), Timestamp(5));
    // O_NOATIME can be kept by any caller, but only the owner may set it.
    let other = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    assert_eq!(file.set_flags(&other, quiet), Ok(()));
    assert_eq!(file.set_flags(&other, OpenFlags::empty()), Ok(()));
    assert_eq!(file.set_flags(&other, quiet | append), Err(Error::NotPermitted));
    assert_eq!(file.flags(), RW);
    assert!(atime_after_read() > Timestamp(5));
    let place = vfs.open(&root, At::Cwd, "/a", OpenFlags::PATH, 0).expect("opens");
    assert_eq!(place.set_flags(&root, append), Err(Error::BadHandle));
    let reader = root.clone().read_only(true);
    let silent = vfs.open(&reader, At::Cwd, "/a", OpenFlags::RDONLY, 0).expect("opens");
    vfs.utimens(&root, At::Cwd, "/a", old, old, FOLLOW).expect("set");
    assert_eq!(silent.set_flags(&root, OpenFlags::empty()), Ok(()));
    assert_eq!(silent.pread(&mut [0; 9], 0).map(|_| silent.stat().atime), Ok(Timestamp(5)));
}

/// O_DIRECT bypasses a cache that does not exist here. Files may be opened with it, directories may
/// not, as in Linux.
#[test]
fn o_direct_is_refused_for_directories() {
    let (vfs, root) = tree();
    vfs.mkdir(&root, At::Cwd, "/d", 0o755).expect("made");
    vfs.mkdir(&root, At::Cwd, "/closed", 0o700).expect("made");
    vfs.open(&root, At::Cwd, "/a", RW | OpenFlags::CREAT | OpenFlags::DIRECT, 0o644).expect("made");
    let user = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    let direct = OpenFlags::DIRECT;
    let open = |path, flags| vfs.open(&user, At::Cwd, path, direct | flags, 0).map(|file| file.flags());
    assert_eq!(open("/a", OpenFlags::RDONLY), Ok(direct));
    assert_eq!(open("/d", OpenFlags::PATH), Ok(OpenFlags::PATH));
    for flags in [OpenFlags::RDONLY, OpenFlags::DIRECTORY] {
        assert_eq!(open("/d", flags), Err(Error::Invalid));
    }
    assert_eq!((open("/d", RW), open("/a", OpenFlags::DIRECTORY)), (Err(Error::IsDirectory), Err(Error::NotDirectory)));
    assert_eq!((open("/closed", OpenFlags::RDONLY), open("/d", OpenFlags::NOATIME)), {
        (Err(Error::Access), Err(Error::NotPermitted))
    });
    let [dir, file] = ["/d", "/a"].map(|path| vfs.open(&user, At::Cwd, path, OpenFlags::RDONLY, 0).expect("opens"));
    assert_eq!((file.set_flags(&user, direct), file.flags()), (Ok(()), direct));
    assert_eq!(dir.set_flags(&user, direct | OpenFlags::NOATIME), Err(Error::NotPermitted));
    assert_eq!((dir.set_flags(&user, direct | OpenFlags::NONBLOCK), dir.flags()), {
        (Err(Error::Invalid), OpenFlags::RDONLY)
    });
}

#[test]
fn vectored_io_is_one_operation() {
    let (vfs, context) = tree();
    let file = vfs.open(&context, At::Cwd, "/a", RW | OpenFlags::CREAT, 0o600).expect("made");
    let slices = ["gro", "", "ve of ", "aspen"].map(|part| IoSlice::new(part.as_bytes()));
    assert_eq!((file.writev(&slices), file.tell()), (Ok(14), 14));
    assert_eq!((file.pwritev(&slices[3..], 20), file.tell(), file.stat().size), (Ok(5), 14, 25));
    let (mut first, mut second, mut third) = ([9; 6], [9; 17], [9; 4]);
    let mut into = [&mut first[..], &mut [], &mut second[..], &mut third[..]].map(IoSliceMut::new);
    assert_eq!(file.preadv(&mut into, 0), Ok(25), "all there is");
    assert_eq!((&first, &second, third), (b"grove ", b"of aspen\0\0\0\0\0\0asp", [b'e', b'n', 9, 9]));
    let mut part = [0; 3];
    assert_eq!((file.lseek(Seek::Set(6)), file.readv(&mut [IoSliceMut::new(&mut part)])), (Ok(6), Ok(3)));
    assert_eq!((&part, file.tell()), (b"of ", 9));
    // A file that was never written to has no contents object.
    let grown = vfs.open(&context, At::Cwd, "/b", RW | OpenFlags::CREAT, 0o600).expect("made");
    grown.truncate(8).expect("grown");
    let mut into = [&mut first[..], &mut second[..]].map(IoSliceMut::new);
    assert_eq!((grown.readv(&mut into), first, &second[..3]), (Ok(8), [0; 6], &[0, 0, b' '][..]));
    // Zero bytes are a no-op, even in a directory. The order of the error checks is that of the
    // kernel.
    let dir = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opens");
    assert_eq!((dir.readv(&mut []), dir.preadv(&mut [], u64::MAX)), (Ok(0), Err(Error::Invalid)));
    assert_eq!(dir.readv(&mut [IoSliceMut::new(&mut part)]), Err(Error::IsDirectory));
    assert_eq!(dir.writev(&[]), Err(Error::BadHandle));
    let (most, more) = (vec![IoSlice::new(b"x"); 1024], vec![IoSlice::new(b"x"); 1025]);
    assert_eq!(
        (file.writev(&more), file.pwritev(&more, 0), file.tell()),
        (Err(Error::Invalid), Err(Error::Invalid), 9)
    );
    assert_eq!((file.writev(&most), file.tell()), (Ok(1024), 1033));
}
