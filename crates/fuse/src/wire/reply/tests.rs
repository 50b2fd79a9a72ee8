use super::*;

fn entry(name: &[u8]) -> DirEntry<'_> {
    DirEntry { name, ino: 9, kind: FileKind::Symlink, cookie: 77 }
}

#[test]
fn directory_entries_are_padded_and_must_fit() {
    let mut buffer = [0xff; 64];
    let mut writer = ReplyWriter::new(&mut buffer);
    assert!(writer.dirent(&entry(b"12345678")));
    assert_eq!(writer.len(), 32);
    assert!(writer.dirent(&entry(b"1")), "24 and 1, up to the next 8");
    assert!(!writer.dirent(&entry(b"")), "no space for its header");
    assert_eq!(writer.len(), 64);
    let (dirent, rest) = Dirent::read_from_prefix(&buffer[32..]).unwrap();
    assert_eq!((dirent.ino, dirent.cookie, dirent.name_len, dirent.kind), (9, 77, 1, 10));
    assert_eq!(rest, b"1\0\0\0\0\0\0\0");
}

#[test]
fn body_is_limited_to_size_of_request() {
    let mut buffer = [0; 256];
    let mut writer = ReplyWriter::new(&mut buffer);
    writer.at_most(1000);
    writer.at_most(160);
    assert!(writer.dirent_plus(&EntryOut::default(), &entry(b"a name")));
    assert_eq!(writer.len(), 160);
    assert_eq!(writer.put(&[1_u8][..]), Err(Error::Io));
    assert_eq!(writer.fill(1, |_| Ok(1)), Err(Error::Io));
    assert_eq!(writer.fill(0, |room| Ok(room.len())), Ok(()));
}

#[test]
fn attributes_are_encoded_as_kernel_reads_them() {
    let mut stat = Stat::new(FileKind::CharDevice);
    stat.dev = 1;
    stat.ino = 2;
    stat.mode = 0o4755;
    stat.nlink = 1;
    stat.uid = 3;
    stat.gid = 4;
    stat.rdev = rustix::fs::makedev(0xabc, 0x12345);
    stat.size = 5;
    stat.blocks = 6;
    stat.blksize = 4096;
    stat.atime = Timestamp::from_parts(-2, 800_000_000);
    stat.mtime = Timestamp::from_parts(1, 5);
    stat.ctime = Timestamp(i64::MIN);
    stat.btime = Timestamp(-1);
    let attr = Attr { node: 8, generation: 5, stat, expired: false };
    let (bytes, statx) = (attr_bytes(&attr), statx_out(&attr, Duration::from_millis(1500)));
    assert_eq!((bytes.atime, bytes.atime_nsec), (-2, 800_000_000));
    assert_eq!((statx.btime.secs, statx.btime.nanos), (-1, 999_999_999));
    assert_eq!((bytes.mode, u32::from(statx.mode)), (0o024_755, 0o024_755));
    assert_eq!((statx.rdev_major, statx.rdev_minor), (0xabc, 0x12345));
    assert_eq!((statx.attr_valid, statx.attr_valid_nsec), (1, 500_000_000));
}

#[test]
fn expired_entry_has_no_validity_time() {
    let valid = Duration::from_millis(1500);
    let mut body = [negative_out(valid).as_bytes(), b"more"].concat();
    AttrFormat::Entry.expire(&mut body[..100]);
    assert_eq!(EntryOut::read_from_prefix(&body).unwrap().0.entry_valid, 1, "too short for an entry");
    AttrFormat::Entry.expire(&mut body);
    let (out, more) = EntryOut::read_from_prefix(&body).unwrap();
    assert_eq!((out.entry_valid, out.entry_valid_nsec, more), (0, 0, &b"more"[..]));
}

#[test]
fn directory_entries_are_found_again() {
    let mut buffer = [0; 1024];
    for plus in [false, true] {
        let mut writer = ReplyWriter::new(&mut buffer);
        for name in [&b"."[..], b"12345678", b"123456789"] {
            assert!(if plus {
                writer.dirent_plus(&EntryOut::default(), &entry(name))
            } else {
                writer.dirent(&entry(name))
            });
        }
        let len = writer.len();
        let body = &buffer[..len];
        let found: Vec<_> = directory_entries(body, plus).map(|(_, name)| &body[name]).collect();
        assert_eq!(found, [&b"."[..], b"12345678", b"123456789"]);
        let cut = &body[..body.len() - 16];
        assert_eq!(directory_entries(cut, plus).count(), 2, "the last one is not whole");
    }
    // A length that is beyond the end.
    let wrong = Dirent { ino: 1, cookie: 1, name_len: u32::MAX, kind: 0 };
    assert_eq!(directory_entries(wrong.as_bytes(), false).count(), 0);
}
