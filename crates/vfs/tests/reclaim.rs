//! Objects that are removed and only wait to be reclaimed are no reason to refuse an operation.

use std::sync::{Arc, Barrier};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    At, Context, Credentials, Driver, File, OpenFlags, RenameFlags, Result, Vfs, Walk, XattrFlags, introspection,
};

/// A tree without free space, except for objects that were removed while another thread was
/// reading.
fn full_of_garbage() -> (Vfs, Context) {
    let vfs = Vfs::new(MemFs::new(MemOptions::new().inodes(3).size_bytes(4096))).expect("a new tree");
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
        // A hard link holds its inode until it is reclaimed.
        vfs.unlink(&context, At::Cwd, "/b").expect("removed");
        ends.wait();
        reader.join().expect("ends");
    });
    (vfs, context)
}

fn make(vfs: &Vfs, context: &Context, path: &str) -> Result<File> {
    vfs.open(context, At::Cwd, path, OpenFlags::RDWR | OpenFlags::CREAT, 0o600)
}

/// Retired memory includes attribute values that were replaced, and targets of removed symbolic
/// links.
fn retired_bytes_include_held_memory() {
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    drop(make(&vfs, &context, "/a").expect("made"));
    let set = || vfs.setxattr(&context, At::Cwd, "/a", "user.a", [1; 65536], XattrFlags::empty(), Walk::empty());
    let link = |n| vfs.symlink(&context, [b'x'; 4095], At::Cwd, format!("/{n}")).map(drop);
    set().expect("set");
    (0..16).for_each(|n| link(n).expect("made"));
    pando_sync::collect();
    let reading = pando_sync::pin();
    let before = pando_sync::retired_bytes();
    (0..16).for_each(|_| set().expect("replaced"));
    assert!(pando_sync::retired_bytes() - before >= 16 * 65536);
    let before = pando_sync::retired_bytes();
    (0..16).for_each(|n| vfs.unlink(&context, At::Cwd, format!("/{n}")).expect("removed"));
    assert!(pando_sync::retired_bytes() - before >= 16 * 4095);
    drop(reading);
}

/// If no thread reads, all objects of a removed file are freed at once, when its name is removed or
/// its last user releases it.
fn removed_file_is_free_at_once() {
    let memfs = Arc::new(MemFs::new(MemOptions::new().inodes(3).size_bytes(4096)));
    let vfs = Vfs::new(memfs.clone()).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    let free = || (memfs.statfs().unwrap().ffree, memfs.statfs().unwrap().bfree);
    let rename = |from, to| vfs.rename(&context, At::Cwd, from, At::Cwd, to, RenameFlags::empty());
    let written = |path| {
        let file = make(&vfs, &context, path).expect("made");
        file.write(b"x").expect("written");
        file
    };
    // A hard link that is replaced.
    drop(written("/f"));
    vfs.link(&context, At::Cwd, "/f", At::Cwd, "/g", Walk::empty()).expect("linked");
    vfs.unlink(&context, At::Cwd, "/f").expect("removed");
    drop(make(&vfs, &context, "/h").expect("made"));
    assert_eq!((free(), rename("/h", "/g"), free()), ((0, 0), Ok(()), (1, 1)));
    vfs.unlink(&context, At::Cwd, "/g").expect("removed");
    // A file that many threads opened.
    let file = written("/f");
    introspection::force_per_cpu_count(&vfs, file.dentry());
    let opened = make(&vfs, &context, "/f").expect("opens");
    drop(file);
    vfs.unlink(&context, At::Cwd, "/f").expect("removed");
    assert_eq!(free(), (1, 0));
    drop(opened);
    assert_eq!(free(), (2, 1));
}

/// The remains of the entry of each directory hold its parent, so they are freed from the innermost
/// directory outward.
fn nested_directories_are_free_at_once() {
    const DEEP: u64 = 64;
    let memfs = Arc::new(MemFs::new(MemOptions::new().inodes(2 + DEEP)));
    let vfs = Vfs::new(memfs.clone()).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    drop(make(&vfs, &context, "/a").expect("made"));
    for want_space in [true, false] {
        let mut dirs = vec![vfs.root()];
        for _ in 0..DEEP {
            let made = vfs.mkdir(&context, At::Dir(&dirs[dirs.len() - 1]), "d", 0o755).expect("room");
            dirs.push(made);
        }
        for dir in dirs[..dirs.len() - 1].iter().rev() {
            vfs.rmdir(&context, At::Dir(dir), "d").expect("empty");
        }
        drop(dirs);
        if want_space {
            // As much as 63 inodes, and a page.
            let value = vec![0; 63 * 1024];
            vfs.setxattr(&context, At::Cwd, "/a", "user.a", value, XattrFlags::empty(), Walk::empty()).expect("room");
            vfs.removexattr(&context, At::Cwd, "/a", "user.a", Walk::empty()).expect("there");
        } else {
            assert_eq!(vfs.statfs(&context, At::Cwd, "/").expect("statfs").ffree, DEEP);
        }
    }
}

/// The same for objects that were removed by a thread that does nothing more. The thread that needs
/// the space is another one.
fn objects_removed_by_another_thread_are_free_at_once() {
    const DEEP: u64 = 64;
    let memfs = Arc::new(MemFs::new(MemOptions::new().inodes(1 + DEEP)));
    let vfs = Vfs::new(memfs).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    for wants_statfs in [true, false] {
        let (removed, asked) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let path = "/d".repeat(DEEP as usize);
                let paths = (1..=DEEP as usize).map(|depth| &path[..2 * depth]);
                paths.clone().for_each(|path| drop(vfs.mkdir(&context, At::Cwd, path, 0o755).expect("room")));
                paths.rev().for_each(|path| vfs.rmdir(&context, At::Cwd, path).expect("empty"));
                vfs.thread_idle();
                removed.wait();
                asked.wait();
            });
            removed.wait();
            let had = if wants_statfs {
                vfs.statfs(&context, At::Cwd, "/").map(|found| found.ffree)
            } else {
                let dirs = (0..DEEP).map(|number| format!("/{number}"));
                let made = dirs.clone().try_for_each(|path| vfs.mkdir(&context, At::Cwd, path, 0o755).map(drop));
                made.and_then(|()| dirs.clone().try_for_each(|path| vfs.rmdir(&context, At::Cwd, path))).map(|()| DEEP)
            };
            asked.wait();
            assert_eq!(had, Ok(DEEP));
        });
    }
}

/// The drop of the last clone of a `Vfs` frees its tree and its driver at once, since no other
/// thread can reach them.
fn dropped_vfs_frees_tree_and_driver() {
    let memfs = Arc::new(MemFs::new(MemOptions::default()));
    let vfs = Vfs::new(memfs.clone()).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
    drop(make(&vfs, &context, "/d/f").expect("made"));
    drop((context, vfs));
    assert_eq!(Arc::strong_count(&memfs), 1);
    let fs = pando_vfs::fs::Fs::new(memfs.clone()).expect("a new tree");
    fs.create_dir_all("/a/b/c").expect("made");
    drop(fs);
    assert_eq!(Arc::strong_count(&memfs), 1);
}

// One test, since another one beside it would be a reader.
#[test]
fn retired_objects_are_reclaimed_before_enospc() {
    retired_bytes_include_held_memory();
    removed_file_is_free_at_once();
    nested_directories_are_free_at_once();
    objects_removed_by_another_thread_are_free_at_once();
    dropped_vfs_frees_tree_and_driver();
    let (vfs, context) = full_of_garbage();
    make(&vfs, &context, "/new").expect("an inode");
    let (vfs, context) = full_of_garbage();
    let anonymous = OpenFlags::RDWR | OpenFlags::TMPFILE | OpenFlags::DIRECTORY;
    vfs.open(&context, At::Cwd, "/", anonymous, 0o600).expect("an inode without a name");
    let (vfs, context) = full_of_garbage();
    make(&vfs, &context, "/other").expect("opens").write(b"x").expect("a page");
    let (vfs, context) = full_of_garbage();
    make(&vfs, &context, "/other").expect("opens").fallocate(0, 0, 4096).expect("a page");
}
