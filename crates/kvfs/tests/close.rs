//! A store is closed when nobody else frees what its tree was made of: in a process of its own.

use std::{sync::mpsc, thread};

use pando_kvfs::{KvFs, StoreOptions};
use pando_vfs::fs::Fs;

/// While the tree is dropped, another thread reads, so that nothing can be freed. That thread then
/// does nothing more.
#[test]
fn store_is_closed_after_the_last_reader() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = KvFs::open(dir.path(), StoreOptions::new()).expect("a new store");
    let (closed, fs) = (store.closed(), Fs::new(store).expect("a tree"));
    fs.create_dir_all("/a/b/c").expect("made");
    let (reads, when_it_reads) = mpsc::channel();
    let (end_reading, when_to_end) = mpsc::channel::<()>();
    let (end, when_all_ends) = mpsc::channel::<()>();
    let reader = thread::spawn(move || {
        let guard = pando_sync::pin();
        reads.send(()).expect("awaited");
        let _ = when_to_end.recv();
        drop(guard);
        let _ = when_all_ends.recv();
    });
    when_it_reads.recv().expect("it reads");
    drop(fs);
    let waiting = thread::spawn(move || closed.wait());
    // The thread that waits may have begun to.
    thread::yield_now();
    drop(end_reading);
    assert_eq!(waiting.join().expect("no panic"), Ok(()));
    drop(end);
    reader.join().expect("no panic");
    KvFs::open_existing(dir.path(), StoreOptions::new()).expect("closed");
}
