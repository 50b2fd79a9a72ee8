//! What is gone, and only waits for a reader to be reclaimed, is no reason to refuse anything.

use std::sync::Barrier;

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, File, OpenFlags, Result, Vfs, Walk};

/// A tree in which nothing is free but what was removed while somebody was reading.
fn full_of_garbage() -> (Vfs, Context) {
    let vfs = Vfs::new(MemFs::new(MemOptions { inodes: Some(3), size_bytes: Some(4096) })).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    make(&vfs, &context, "/a").expect("made").write(b"x").expect("written");
    vfs.link(&context, At::Cwd, "/a", At::Cwd, "/b", Walk::empty()).expect("linked");
    vfs.unlink(&context, At::Cwd, "/a").expect("removed");
    make(&vfs, &context, "/other").expect("made");
    let (reads, ends) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let _reading = pando_sync::pin();
            reads.wait();
            ends.wait();
        });
        reads.wait();
        // A further link holds its inode until it is reclaimed.
        vfs.unlink(&context, At::Cwd, "/b").expect("removed");
        ends.wait();
        reader.join().expect("ends");
    });
    (vfs, context)
}

fn make(vfs: &Vfs, context: &Context, path: &str) -> Result<File> {
    vfs.open(context, At::Cwd, path, OpenFlags::RDWR | OpenFlags::CREAT, 0o600)
}

// One test: another one beside it would read, too.
#[test]
fn there_is_space_for_what_only_waits_to_be_reclaimed() {
    let (vfs, context) = full_of_garbage();
    make(&vfs, &context, "/new").expect("an inode");
    let (vfs, context) = full_of_garbage();
    let nameless = OpenFlags::RDWR | OpenFlags::TMPFILE | OpenFlags::DIRECTORY;
    vfs.open(&context, At::Cwd, "/", nameless, 0o600).expect("an inode without a name");
    let (vfs, context) = full_of_garbage();
    make(&vfs, &context, "/other").expect("opens").write(b"x").expect("a page");
    let (vfs, context) = full_of_garbage();
    make(&vfs, &context, "/other").expect("opens").fallocate(0, 0, 4096).expect("a page");
}
