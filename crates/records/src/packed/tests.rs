use super::*;
use crate::{Fields, Time};

fn attr(seed: u64) -> Attr {
    let number = |place: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place) as u32;
    let time = |place: u32| Time { secs: -i64::from(place) - 1, nanos: 999_999_999 - place };
    Attr {
        have: Fields::BASIC,
        mode: number(1),
        nlink: number(2),
        uid: number(3),
        gid: number(4),
        blksize: number(5),
        rdev_major: number(6),
        rdev_minor: number(7),
        dev_major: number(8),
        dev_minor: number(9),
        ino: u64::MAX - seed,
        size: u64::MAX - 2,
        blocks: u64::MAX - 3,
        attributes: u64::MAX - 4,
        attributes_mask: u64::MAX - 5,
        atime: time(1),
        mtime: time(2),
        ctime: time(3),
        btime: time(4),
    }
}

/// The fields of a record.
type Said = (Vec<u8>, Option<FileKind>, u64, u64, Option<i32>, Option<Attr>, Option<Vec<u8>>, Option<i32>);

fn said(record: &PackedRecord<'_>) -> Said {
    let target = record.target().map(<[u8]>::to_vec);
    (
        record.name().to_vec(),
        record.kind(),
        record.ino(),
        record.cookie(),
        record.errno(),
        record.attr(),
        target,
        record.xattr_errno(),
    )
}

fn meant(entry: &Entry<'_>) -> Said {
    let some = |errno: i32| (errno != 0).then_some(errno);
    (
        entry.name.to_vec(),
        entry.kind,
        entry.ino,
        entry.cookie,
        some(entry.errno),
        entry.attr.copied(),
        entry.target.map(<[u8]>::to_vec),
        some(entry.xattr_errno),
    )
}

/// Extended attributes with values of these lengths.
fn values(lengths: &[usize]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let name = |place: usize| format!("user.{}", "x".repeat(place)).into_bytes();
    lengths.iter().enumerate().map(|(place, &len)| (name(place), vec![place as u8; len])).collect()
}

fn bulk(values: &[(Vec<u8>, Vec<u8>)]) -> impl Iterator<Item = BulkXattr<'_>> + Clone {
    values.iter().map(|(name, value)| BulkXattr { name, value: XattrValue::Bytes(value) })
}

fn pack(bytes: &mut [u8], entry: &Entry<'_>, values: &[(Vec<u8>, Vec<u8>)]) -> (Pushed, usize) {
    let mut packer = Packer::new(bytes);
    let pushed = packer.push(entry, bulk(values));
    (pushed, packer.used())
}

#[test]
fn records_come_back_as_they_were_packed() {
    let kinds =
        [None, Some(FileKind::File), Some(FileKind::Directory), Some(FileKind::Symlink), Some(FileKind::Socket)];
    let long = vec![b't'; 4095];
    let targets: [Option<&[u8]>; 4] = [None, Some(b""), Some(b"a"), Some(&long)];
    let mut bytes = vec![0xff; 1 << 20];
    let mut packer = Packer::new(&mut bytes);
    let mut all = Vec::new();
    for place in 0..200_usize {
        let name = vec![b'n'; 1 + place % 255];
        let attr = attr(place as u64);
        let mut entry = Entry::new(&name, kinds[place % kinds.len()], place as u64, u64::MAX - place as u64);
        entry.attr = (place % 3 > 0).then_some(&attr);
        entry.errno = if place % 3 == 0 { 13 } else { 0 };
        entry.target = targets[place % targets.len()];
        entry.xattr_errno = if place % 7 == 0 { 5 } else { 0 };
        let values = values(&[place % 9, 0, place][..place % 4]);
        assert_eq!(packer.push(&entry, bulk(&values)), Pushed::Packed);
        all.push((meant(&entry), values));
    }
    let (used, entries) = (packer.used(), packer.entries());
    assert_eq!(entries, 200);
    let mut unpacked = Unpacked::new(&bytes[..used]);
    for (meant, values) in all {
        let record = unpacked.next().expect("a record");
        assert_eq!(said(&record), meant);
        let found: Vec<_> = record.xattrs().collect();
        let wanted = values.iter();
        let wanted =
            wanted.map(|(name, value)| PackedXattr { name, value: XattrValue::Bytes(value), size: value.len() });
        assert_eq!(found, wanted.collect::<Vec<_>>());
    }
    assert!(unpacked.next().is_none() && unpacked.rest().is_empty());
}

#[test]
fn names_without_values_and_errors_of_values_come_back() {
    let mut bytes = [0; 256];
    let given = [
        BulkXattr { name: b"user.a", value: XattrValue::NotRead },
        BulkXattr { name: b"user.b", value: XattrValue::Errno(13) },
    ];
    let mut packer = Packer::new(&mut bytes);
    assert_eq!(packer.push(&Entry::new(b"f", None, 1, 1), given.into_iter()), Pushed::Packed);
    let used = packer.used();
    let record = Unpacked::new(&bytes[..used]).next().expect("a record");
    let found: Vec<_> =
        record.xattrs().map(|xattr| (BulkXattr { name: xattr.name, value: xattr.value }, xattr.size)).collect();
    assert_eq!(found, given.map(|xattr| (xattr, 0)));
}

/// For each size of the buffer: the whole record, or all names with the values that fit, or the
/// size that is needed.
#[test]
fn a_record_that_does_not_fit_keeps_its_names_and_sizes() {
    let values = values(&[100, 7, 0, 300]);
    let attr = attr(1);
    let mut entry = Entry::new(b"name", Some(FileKind::File), 1, 2);
    entry.attr = Some(&attr);
    let (pushed, whole) = pack(&mut [0; 4096], &entry, &values);
    assert_eq!(pushed, Pushed::Packed);
    let without: Vec<_> = values.iter().map(|(name, _)| (name.clone(), Vec::new())).collect();
    let (_, least) = pack(&mut [0; 4096], &entry, &without);
    let mut fewest = usize::MAX;
    for size in 0..=whole {
        let mut bytes = vec![0; size];
        let (pushed, used) = pack(&mut bytes, &entry, &values);
        if size < least {
            assert_eq!((pushed, used), (Pushed::Needs(whole), 0), "{size}");
            continue;
        }
        assert_eq!(pushed, Pushed::Packed, "{size}");
        let record = Unpacked::new(&bytes[..used]).next().expect("a record");
        assert_eq!(said(&record), meant(&entry));
        let found: Vec<_> = record.xattrs().collect();
        assert_eq!(found.len(), values.len());
        let mut left_out = 0;
        for (found, (name, value)) in found.iter().zip(&values) {
            assert_eq!((found.name, found.size), (&name[..], value.len()));
            if found.value == XattrValue::Errno(34) {
                left_out += 1;
            } else {
                assert_eq!(found.value, XattrValue::Bytes(value));
            }
        }
        assert_eq!(left_out == 0, size == whole, "{size}: {left_out}");
        fewest = fewest.min(left_out);
    }
    assert_eq!(fewest, 0);
}

#[test]
fn a_record_that_fits_into_an_empty_buffer_is_not_cut() {
    let values = values(&[64]);
    let entry = Entry::new(b"name", None, 1, 2);
    let (_, whole) = pack(&mut [0; 4096], &entry, &values);
    let mut bytes = vec![0; 2 * whole - 1];
    let mut packer = Packer::new(&mut bytes);
    assert_eq!(packer.push(&entry, bulk(&values)), Pushed::Packed);
    assert_eq!(packer.push(&entry, bulk(&values)), Pushed::Full);
    assert_eq!((packer.used(), packer.entries(), packer.room()), (whole, 1, whole - 1));
}

#[test]
fn numbers_and_attributes_are_changed_in_place() {
    let values = values(&[9]);
    let mut bytes = [0; 1024];
    let mut packer = Packer::new(&mut bytes);
    let attr = attr(1);
    let plain = Entry::new(b"plain", Some(FileKind::File), 1, 7);
    let whole = Entry { attr: Some(&attr), name: b"whole", ino: 2, target: Some(b"to"), ..plain };
    assert_eq!(packer.push(&plain, bulk(&values)), Pushed::Packed);
    assert_eq!(packer.push(&whole, bulk(&values)), Pushed::Packed);
    let used = packer.used();
    update_records(&mut bytes[..used], |ino, attr| {
        *ino += 10;
        attr.into_iter().for_each(|attr| attr.blocks = *ino);
    });
    let said: Vec<_> = Unpacked::new(&bytes[..used]).map(|record| (said(&record), record.xattrs().count())).collect();
    let changed = Attr { blocks: 12, ..attr };
    let expected = [Entry { ino: 11, ..plain }, Entry { ino: 12, attr: Some(&changed), ..whole }];
    assert_eq!(said, expected.map(|entry| (meant(&entry), 1)));
}

#[test]
fn least_bytes_are_those_of_a_name_of_one_byte() {
    let attr = attr(1);
    let mut entry = Entry::new(b"n", None, 1, 2);
    assert_eq!(pack(&mut [0; 256], &entry, &[]).1, least_bytes(false));
    entry.attr = Some(&attr);
    assert_eq!(pack(&mut [0; 256], &entry, &[]).1, least_bytes(true));
}

/// A buffer may come from another process.
#[test]
fn bytes_that_are_no_record_end_the_sequence() {
    let attr = attr(1);
    let mut entry = Entry::new(b"some name", Some(FileKind::Symlink), 1, 2);
    entry.attr = Some(&attr);
    entry.target = Some(b"target");
    let values = values(&[5, 9]);
    let mut bytes = [0; 1024];
    let (_, used) = pack(&mut bytes, &entry, &values);
    for cut in 0..used {
        assert!(Unpacked::new(&bytes[..cut]).next().is_none(), "{cut}");
    }
    let read = |bytes: &[u8]| {
        Unpacked::new(bytes).take(100).map(|record| record.xattrs().count() + said(&record).0.len()).sum::<usize>()
    };
    let whole = read(&bytes[..used]);
    assert_eq!(whole, 2 + 9);
    for place in 0..used {
        for value in [0, 1, 7, 8, 0x7f, 0x80, 0xff] {
            let mut bytes = bytes;
            bytes[place] = value;
            assert!(read(&bytes[..used]) <= used, "{place} {value}");
        }
    }
}
