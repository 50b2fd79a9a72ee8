//! copy_file_range between files in memory.

use std::thread;

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, Error, File, OpenFlags, Vfs};

fn tree(options: MemOptions) -> (Vfs, Context) {
    let vfs = Vfs::new(MemFs::new(options)).expect("a tree");
    let root = Context::new(&vfs, Credentials::root());
    (vfs, root)
}

fn open((vfs, root): &(Vfs, Context), path: &str, flags: OpenFlags) -> File {
    vfs.open(root, At::Cwd, path, flags, 0o644).expect("opens")
}

/// A new file with these bytes.
fn file(tree: &(Vfs, Context), path: &str, bytes: &[u8]) -> File {
    let file = open(tree, path, OpenFlags::RDWR | OpenFlags::CREAT | OpenFlags::TRUNC);
    assert_eq!(file.pwrite(bytes, 0), Ok(bytes.len()));
    file
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.stat().size).expect("small")];
    assert_eq!(file.pread(&mut bytes, 0), Ok(bytes.len()));
    bytes
}

#[test]
fn bytes_are_copied_up_to_the_end_of_the_source() {
    let tree = tree(MemOptions::default());
    // Several parts.
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (from, to) = (file(&tree, "/from", &bytes), file(&tree, "/to", b"0123456789"));
    assert_eq!(to.copy_range(5, &from, 100, usize::MAX >> 1), Ok(bytes.len() - 100));
    assert_eq!(contents(&to), [b"01234", &bytes[100..]].concat());
    assert_eq!(to.copy_range(0, &from, bytes.len() as u64, 10), Ok(0), "at the end");
    assert_eq!(to.copy_range(0, &from, 1 << 40, 10), Ok(0), "beyond the end");
    assert_eq!((from.tell(), to.tell()), (0, 0), "the positions do not move");
    // Within one file, if the ranges do not overlap.
    let this = file(&tree, "/this", b"abcdef");
    assert_eq!(this.copy_range(3, &this, 0, 3), Ok(3));
    assert_eq!(contents(&this), b"abcabc");
    // A range that reaches beyond the end is shortened first.
    assert_eq!(this.copy_range(6, &this, 3, 100), Ok(3));
    assert_eq!(contents(&this), b"abcabcabc");
    // Behind the end: the gap is a hole.
    assert_eq!(this.copy_range(20, &from, 0, 2), Ok(2));
    assert_eq!(contents(&this), b"abcabcabc\0\0\0\0\0\0\0\0\0\0\0\x00\x01");
}

#[test]
fn what_cannot_be_copied_is_refused() {
    let tree = tree(MemOptions::default());
    let (from, to) = (file(&tree, "/from", b"bytes"), file(&tree, "/to", b""));
    let read_only = open(&tree, "/to", OpenFlags::RDONLY);
    let write_only = open(&tree, "/from", OpenFlags::WRONLY);
    let appends = open(&tree, "/to", OpenFlags::WRONLY | OpenFlags::APPEND);
    let path_only = open(&tree, "/from", OpenFlags::PATH);
    let directory = open(&tree, "/", OpenFlags::DIRECTORY);
    let last = i64::MAX as u64;
    for (to, offset, from, from_offset, len, error) in [
        (&read_only, 0, &from, 0, 1, Error::BadHandle),
        (&to, 0, &write_only, 0, 1, Error::BadHandle),
        (&appends, 0, &from, 0, 1, Error::BadHandle),
        (&to, 0, &path_only, 0, 1, Error::BadHandle),
        (&to, 0, &directory, 0, 1, Error::IsDirectory),
        (&directory, 0, &from, 0, 1, Error::IsDirectory),
        (&to, u64::MAX, &from, 0, 1, Error::Overflow),
        (&to, last + 1, &from, 0, 1, Error::Invalid),
        (&to, 0, &from, last + 1, 1, Error::Invalid),
        (&to, last, &from, 0, 0, Error::TooBig),
        (&from, 1, &from, 0, 2, Error::Invalid),
        (&from, 0, &from, 4, usize::MAX >> 2, Error::Invalid),
    ] {
        let copied = to.copy_range(offset, from, from_offset, len);
        // The last case is shortened to one byte, and then does not overlap.
        let expected = if len == usize::MAX >> 2 { Ok(1) } else { Err(error) };
        assert_eq!(copied, expected, "{offset} {from_offset} {len}");
    }
    assert_eq!(contents(&to), b"");
}

#[test]
fn a_copy_ends_where_the_space_ends() {
    let tree = tree(MemOptions::new().size_bytes(6 << 20));
    let bytes = vec![7; 4 << 20];
    let (from, to) = (file(&tree, "/from", &bytes), file(&tree, "/to", b""));
    let copied = to.copy_range(0, &from, 0, bytes.len()).expect("a part");
    assert!((1 << 20..=2 << 20).contains(&copied), "{copied}");
    assert_eq!(contents(&to), bytes[..copied]);
    assert_eq!(to.copy_range(copied as u64, &from, 0, 1 << 20), Err(Error::NoSpace));
}

/// No thread holds the locks of two files.
#[test]
fn copies_in_opposite_directions_end() {
    let tree = tree(MemOptions::default());
    let (a, b) = (file(&tree, "/a", &[1; 100_000]), file(&tree, "/b", &[2; 100_000]));
    thread::scope(|scope| {
        for (from, to) in [(&a, &b), (&b, &a), (&a, &b), (&b, &a)] {
            scope.spawn(move || (0..200).for_each(|_| assert_eq!(to.copy_range(0, from, 0, 100_000), Ok(100_000))));
        }
    });
    assert!(contents(&a).iter().all(|byte| matches!(byte, 1 | 2)));
}
