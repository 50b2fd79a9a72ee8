//! Limits of a store, which count what is stored.

use std::time::Duration;

use pando_kvfs::{KvFs, StoreOptions};
use pando_vfs::{
    At, Context, Credentials, Error,
    fs::{Fs, OpenOptions},
};

const LIMIT: u64 = 1 << 20;

/// A removed file gives its inode and its space back without a commit, also if it was committed
/// after it had lost its name.
#[test]
fn removed_files_are_freed_without_a_commit() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = StoreOptions::new().bytes(LIMIT).interval(Duration::MAX);
    let store = KvFs::open(dir.path(), options).expect("a store");
    let (closed, fs) = (store.closed(), Fs::new(store).expect("a tree"));
    let context = Context::new(fs.vfs(), Credentials::root());
    let free = || {
        let stat = fs.vfs().statfs(&context, At::Cwd, "/").expect("there");
        (stat.bfree * u64::from(stat.bsize), stat.files - stat.ffree)
    };
    for number in 0..100 {
        fs.write("/file", [1; 5000]).expect("room");
        let open = fs.open("/file").expect("there");
        fs.remove_file("/file").expect("there");
        if number % 2 == 0 {
            fs.vfs().sync().expect("stored");
        }
        drop(open);
    }
    pandofs_testkit::await_value((LIMIT, 1), free);
    drop((context, fs));
    closed.wait().expect("stored");
}

#[test]
fn bytes_and_inodes_are_limited_and_counted_when_the_store_is_opened_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = || {
        let store = KvFs::open(dir.path(), StoreOptions::new().bytes(LIMIT).inodes(200)).expect("a store");
        let closed = store.closed();
        (Fs::new(store).expect("a tree"), closed)
    };
    let free = |fs: &Fs| {
        let context = Context::new(fs.vfs(), Credentials::root());
        let stat = fs.vfs().statfs(&context, At::Cwd, "/").expect("there");
        (stat.bfree * u64::from(stat.bsize), stat.ffree)
    };
    let (fs, closed) = open();
    assert_eq!(free(&fs), (LIMIT, 199));
    fs.write("/small", [1; 5000]).expect("room");
    fs.write("/large", vec![2; 300_000]).expect("room");
    let (bytes, inodes) = free(&fs);
    assert!(bytes <= LIMIT - 305_000 && bytes > LIMIT - 400_000 && inodes == 197, "{bytes} {inodes}");
    drop(fs);
    closed.wait().expect("stored");

    let (fs, closed) = open();
    assert_eq!(free(&fs), (bytes, inodes));
    let refused = (0..100).map(|i| fs.write(format!("/more{i}"), vec![3; 50_000])).find(Result::is_err);
    assert_eq!(refused, Some(Err(Error::NoSpace)));
    assert!(free(&fs).0 < 50_000);
    (0..100).for_each(|i| _ = fs.remove_file(format!("/more{i}")));
    fs.remove_file("/large").expect("there");
    assert_eq!(fs.write("/again", vec![4; 900_000]), Ok(()));
    // What is there may be overwritten, and what is cut off is free again.
    let again = OpenOptions::new().write(true).open(&fs, "/again").expect("there");
    assert!(free(&fs).0 < 200_000);
    assert_eq!(again.pwrite(&vec![5; 300_000], 1000), Ok(300_000));
    again.truncate(100_000).expect("shorter");
    drop(again);
    assert!(free(&fs).0 > 700_000, "{}", free(&fs).0);
    let refused = (0..200).map(|i| fs.write(format!("/empty{i}"), [])).find(Result::is_err);
    assert_eq!((refused, free(&fs).1), (Some(Err(Error::NoSpace)), 0));
    drop(fs);
    closed.wait().expect("stored");
    assert_eq!(free(&open().0).1, 0);
}
