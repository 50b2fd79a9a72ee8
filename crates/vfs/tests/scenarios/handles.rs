//! File handles.

use pando_vfs::{At, Context, Credentials, Error, FileHandle, OpenFlags, RenameFlags, Vfs, Walk};

use super::{FOLLOW, RW, touch, tree};
use crate::{TRAITS, driver};

fn handle(vfs: &Vfs, context: &Context, path: &str) -> FileHandle {
    let found = vfs.lookup(context, At::Cwd, path, Walk::NOFOLLOW).expect("there");
    vfs.name_to_handle(&found).expect("there are handles")
}

/// The path of what a handle leads to.
fn path(vfs: &Vfs, context: &Context, handle: FileHandle) -> Result<String, Error> {
    let found = vfs.find_by_handle(context, handle)?;
    Ok(String::from_utf8(vfs.d_path(context, &found, 4096)?).expect("text"))
}

/// Asserts that a handle leads to what has this name, though the file has lost its first name. The
/// path may be that of the first name: a tree in memory may know no other one.
#[track_caller]
fn assert_leads(vfs: &Vfs, context: &Context, handle: FileHandle, name: &str) {
    let found = vfs.find_by_handle(context, handle).expect("it has a name");
    let named = vfs.lookup(context, At::Cwd, name, Walk::NOFOLLOW).expect("there");
    assert_eq!((found.ino(), found.stat().nlink), (named.ino(), 1));
    assert!(TRAITS.unique_numbers || path(vfs, context, handle).as_deref() == Ok(name));
}

#[test]
fn handles_follow_their_inodes() {
    let (vfs, context) = tree();
    vfs.mkdir(&context, At::Cwd, "/d", 0o700).expect("made");
    vfs.mkdir(&context, At::Cwd, "/d/e", 0o700).expect("made");
    touch(&vfs, &context, "/d/e/file");
    vfs.symlink(&context, "nowhere", At::Cwd, "/d/link").expect("made");
    if !TRAITS.handles {
        let found = vfs.lookup(&context, At::Cwd, "/d", FOLLOW).expect("there");
        assert_eq!(vfs.name_to_handle(&found), Err(Error::NotSupported));
        return;
    }
    let paths = ["/", "/d", "/d/e", "/d/e/file", "/d/link"];
    let handles = paths.map(|path| handle(&vfs, &context, path));
    let expect = |expected: [&str; 5]| {
        for (handle, expected) in handles.iter().zip(expected) {
            assert_eq!(path(&vfs, &context, *handle).as_deref(), Ok(expected));
            assert_eq!(FileHandle::from_bytes(handle.to_bytes()), *handle);
            vfs.evict(usize::MAX).expect("evicted");
        }
    };
    expect(paths);
    let rename = |from: &str, to: &str, flags: RenameFlags| {
        vfs.rename(&context, At::Cwd, from, At::Cwd, to, flags).expect("renamed");
    };
    rename("/d/e/file", "/moved", RenameFlags::empty());
    rename("/d", "/f", RenameFlags::empty());
    expect(["/", "/f", "/f/e", "/moved", "/f/link"]);
    rename("/f/e", "/f/link", RenameFlags::EXCHANGE);
    expect(["/", "/f", "/f/link", "/moved", "/f/e"]);

    let file = vfs.find_by_handle(&context, handles[3]).expect("there");
    assert!(vfs.open_dentry(&context, &file, RW).is_ok());
    drop(file);
    vfs.link(&context, At::Cwd, "/moved", At::Cwd, "/f/second", Walk::NOFOLLOW).expect("linked");
    vfs.unlink(&context, At::Cwd, "/moved").expect("removed");
    vfs.evict(usize::MAX).expect("evicted");
    assert_leads(&vfs, &context, handles[3], "/f/second");
    for gone in ["/f/second", "/f/e"] {
        vfs.unlink(&context, At::Cwd, gone).expect("removed");
    }
    vfs.rmdir(&context, At::Cwd, "/f/link").expect("removed");
    for gone in &handles[2..] {
        assert_eq!(path(&vfs, &context, *gone), Err(Error::Stale));
    }
}

#[test]
fn handles_are_for_callers_with_capabilities() {
    let (vfs, context) = tree();
    touch(&vfs, &context, "/file");
    if !TRAITS.handles {
        return;
    }
    let user = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    let handle = handle(&vfs, &user, "/file");
    assert_eq!(path(&vfs, &user, handle), Err(Error::NotPermitted));
}

#[test]
fn forged_handles_are_stale() {
    let (vfs, context) = tree();
    touch(&vfs, &context, "/file");
    if !TRAITS.handles {
        return;
    }
    let handle = handle(&vfs, &context, "/file");
    for byte in 0..24 {
        for forged in [1, 0x80, 0xff] {
            let mut bytes = handle.to_bytes();
            bytes[byte] ^= forged;
            assert_eq!(path(&vfs, &context, FileHandle::from_bytes(bytes)), Err(Error::Stale), "{byte} {forged}");
        }
    }
    assert_eq!(path(&vfs, &context, FileHandle::from_bytes([0; 24])), Err(Error::Stale));
    let other = Vfs::new(driver(None)).expect("a new tree");
    let theirs = Context::new(&other, Credentials::root());
    touch(&other, &theirs, "/file");
    assert_eq!(path(&other, &theirs, handle), Err(Error::Stale), "it is of another tree");
    assert_eq!(path(&vfs, &context, handle).as_deref(), Ok("/file"));
}

/// Each handle leads into its own tree, also where inodes of two trees have one number.
#[test]
fn handles_of_mounted_trees() {
    let (vfs, context) = tree();
    vfs.mkdir(&context, At::Cwd, "/m", 0o755).expect("made");
    touch(&vfs, &context, "/m/hidden");
    if !TRAITS.handles {
        return;
    }
    let hidden = handle(&vfs, &context, "/m/hidden");
    let point = handle(&vfs, &context, "/m");
    vfs.mount(&context, At::Cwd, "/m", driver(None)).expect("mounted");
    touch(&vfs, &context, "/m/file");
    let (file, root) = (handle(&vfs, &context, "/m/file"), handle(&vfs, &context, "/m"));
    vfs.evict(usize::MAX).expect("evicted");
    let number = |handle| vfs.find_by_handle(&context, handle).map(|found| found.stat().ino);
    assert_eq!(path(&vfs, &context, file).as_deref(), Ok("/m/file"));
    assert_eq!(path(&vfs, &context, root).as_deref(), Ok("/m"));
    assert!(number(point).is_ok() && point != root);
    vfs.umount(&context, At::Cwd, "/m").expect("unmounted");
    for gone in [file, root] {
        assert_eq!(path(&vfs, &context, gone), Err(Error::Stale));
    }
    assert_eq!(path(&vfs, &context, hidden).as_deref(), Ok("/m/hidden"));
}

/// The handle of an open file becomes stale with the last name of the file.
#[test]
fn a_file_without_a_name_has_no_handle() {
    let (vfs, context) = tree();
    if !TRAITS.handles {
        return;
    }
    let flags = RW | OpenFlags::TMPFILE | OpenFlags::DIRECTORY;
    let file = vfs.open(&context, At::Cwd, "/", flags, 0o644).expect("made");
    let handle = vfs.name_to_handle(file.dentry()).expect("there are handles");
    assert_eq!(path(&vfs, &context, handle), Err(Error::Stale));
    vfs.link(&context, At::Dir(file.dentry()), "", At::Cwd, "/named", Walk::EMPTY_PATH).expect("linked");
    let handle = vfs.name_to_handle(file.dentry()).expect("there are handles");
    drop(file);
    assert_leads(&vfs, &context, handle, "/named");
}
