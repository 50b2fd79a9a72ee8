//! Many large files: their contents are flushed at once, and few of them are open.

use std::{fs, path::Path, sync::Arc, time::Duration};

use pando_kv::Embedded;
use pando_kvfs::{KvFs, StoreOptions};
use pando_vfs::{
    At, Context, Credentials, OpenFlags, Vfs,
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
