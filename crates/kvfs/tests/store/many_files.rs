//! Many large files: their contents are flushed at once, and few of them are open.

use std::{fs, path::Path, sync::Arc, time::Duration};

use pando_kv::Embedded;
use pando_kvfs::{KvFs, StoreOptions};
use pando_vfs::{
    At, Context, Credentials, Error, OpenFlags, Vfs,
    fs::{Fs, OpenOptions},
};

use crate::{
    crash::open,
    machine::{Image, Machine},
    support::{difference, seen},
};

const FILES: u64 = 200;

/// Seen to fail: the contents are not flushed.
#[test]
fn contents_that_are_flushed_at_once_survive_a_crash() {
    let machine = Machine::new(&Image::default());
    drop(Embedded::create(Arc::new(machine.clone())).expect("made"));
    let engine = Embedded::open(Arc::new(machine.clone())).expect("undamaged");
    let options = StoreOptions::new().descriptors(10_000).interval(Duration::MAX);
    let store = KvFs::new(Box::new(engine), Box::new(machine.clone()), options).expect("a store");
    let vfs = Vfs::new(store).expect("a tree");
    let context = Context::new(&vfs, Credentials::root());
    for number in 0..FILES {
        let flags = OpenFlags::RDWR | OpenFlags::CREAT;
        let file = vfs.open(&context, At::Cwd, format!("/{number}"), flags, 0o644).expect("made");
        file.pwrite(&vec![number as u8; 20_000], 0).expect("written");
    }
    vfs.sync().expect("stored");
    let before = seen(&vfs, &context);
    let (vfs, context) = open(&machine.crashed());
    assert_eq!(difference(&seen(&vfs, &context), &before), None);
}

/// How many files below a directory this process has open.
fn open_below(dir: &Path) -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").expect("there").filter_map(Result::ok);
    let files = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    files.filter(|file| file.starts_with(dir)).count()
}

/// Seen to fail: no commit is made for the files that were written.
#[test]
fn few_files_of_the_host_are_open() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = StoreOptions::new().descriptors(64).interval(Duration::MAX);
    let store = KvFs::open(dir.path(), options).expect("a store");
    let (closed, fs) = (store.closed(), Fs::new(store).expect("a tree"));
    let contents = dir.path().join("pandofs-contents");
    let mut kept = Vec::new();
    for number in 0..FILES {
        fs.write(format!("/{number}"), vec![number as u8; 20_000]).expect("written");
        // Open in the tree.
        kept.push(OpenOptions::new().read(true).write(true).open(&fs, format!("/{number}")).expect("there"));
        assert!(open_below(&contents) <= 65, "the directory, and 64: {}", open_below(&contents));
    }
    for round in 0..2 {
        for (number, file) in kept.iter().enumerate() {
            let mut bytes = [0; 20_000];
            assert_eq!(file.pread(&mut bytes, 0), Ok(20_000));
            assert_eq!(bytes, [number as u8; 20_000], "round {round}");
            file.pwrite(&bytes[..10], 0).expect("written");
            assert!(open_below(&contents) <= 65, "the directory, and 64: {}", open_below(&contents));
        }
    }
    for number in 0..FILES {
        fs.remove_file(format!("/{number}")).expect("there");
    }
    drop((kept, fs));
    closed.wait().expect("stored");
    assert_eq!(fs::read_dir(&contents).expect("there").count(), 0);
    assert_eq!(open_below(&contents), 0);
}

/// A large file is copied by the host. Bytes that are a record, and ranges that stay one, are not.
#[test]
fn large_files_are_copied_by_the_host() {
    const LARGE: usize = 300_000;
    let dir = tempfile::tempdir().expect("a directory");
    let store = KvFs::open(dir.path(), StoreOptions::new()).expect("a store");
    let (closed, vfs) = (store.closed(), Vfs::new(store).expect("a tree"));
    let context = Context::new(&vfs, Credentials::root());
    let open =
        |path: &str| vfs.open(&context, At::Cwd, path, OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("opens");
    let bytes: Vec<u8> = (0..LARGE).map(|at| (at / 7) as u8).collect();
    let (large, small, to) = (open("/large"), open("/small"), open("/to"));
    assert_eq!((large.pwrite(&bytes, 0), small.pwrite(b"record", 0)), (Ok(LARGE), Ok(6)));
    assert_eq!(to.copy_range_on_host(0, &small, 0, 6), Err(Error::NotSupported));
    assert_eq!(to.copy_range_on_host(0, &large, 0, 100), Err(Error::NotSupported));
    // All of it, behind a hole, and once more with the end of the source.
    assert_eq!(to.copy_range_on_host(50_000, &large, 0, 1 << 30), Ok(LARGE));
    assert_eq!(to.copy_range_on_host(50_000, &large, LARGE as u64 - 10, 100), Ok(10));
    // Within one file.
    assert_eq!(large.copy_range_on_host(LARGE as u64, &large, 1, 20_000), Ok(20_000));
    vfs.sync().expect("stored");
    drop((large, small, to, vfs, context));
    closed.wait().expect("stored");

    let fs = Fs::new(KvFs::open(dir.path(), StoreOptions::new()).expect("a store")).expect("a tree");
    let mut expected = [&[0; 50_000][..], &bytes].concat();
    expected[50_000..50_010].copy_from_slice(&bytes[LARGE - 10..]);
    assert!(fs.read("/to").expect("there") == expected);
    assert!(fs.read("/large").expect("there") == [&bytes, &bytes[1..20_001]].concat());
}
