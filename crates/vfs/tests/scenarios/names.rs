//! Names: create, rename, remove, list.

use pando_vfs::{At, Context, Credentials, Error, FileKind, OpenFlags, RenameFlags, Vfs, Walk};

use pandofs_testkit::await_value;

use super::{FOLLOW, RW, names, touch, tree};
use crate::{TRAITS, driver};

#[test]
fn directory_link_counts_and_refusals() {
    let (vfs, context) = tree();
    vfs.mkdir(&context, At::Cwd, "/d/", 0o777).expect("made, trailing slash and all");
    vfs.mkdir(&context, At::Cwd, "/d/e", 0o777).expect("made");
    touch(&vfs, &context, "/d/f");
    let stat = vfs.stat(&context, At::Cwd, "/d", FOLLOW).expect("there");
    assert_eq!(stat.nlink, 3);
    assert!(!TRAITS.dir_size || stat.size == 80);
    assert_eq!(names(&vfs, &context, "/d"), [".", "..", "e", "f"]);
    assert_eq!(vfs.rmdir(&context, At::Cwd, "/d"), Err(Error::NotEmpty));
    assert_eq!(vfs.rmdir(&context, At::Cwd, "/d/f"), Err(Error::NotDirectory));
    assert_eq!(vfs.unlink(&context, At::Cwd, "/d/e"), Err(Error::IsDirectory));
    assert_eq!(vfs.rmdir(&context, At::Cwd, "/d/."), Err(Error::Invalid));
    assert_eq!(vfs.rmdir(&context, At::Cwd, "/d/.."), Err(Error::NotEmpty));
    assert_eq!(vfs.rmdir(&context, At::Cwd, "/"), Err(Error::Busy));
    let open = vfs.open(&context, At::Cwd, "/d/e", OpenFlags::DIRECTORY, 0).expect("opens");
    let before = open.stat();
    assert_eq!(vfs.rmdir(&context, At::Cwd, "/d/e"), Ok(()));
    assert_eq!(open.readdir(0, |_| true), Err(Error::NoEntry));
    assert!(open.stat().nlink == 0 && open.stat().ctime > before.ctime);
    assert_eq!(vfs.mkdir(&context, At::Dir(open.dentry()), "x", 0o777).err(), Some(Error::NoEntry));
    assert_eq!(vfs.unlink(&context, At::Cwd, "/d/f"), Ok(()));
    assert_eq!(vfs.rmdir(&context, At::Cwd, "/d"), Ok(()));
    assert_eq!(names(&vfs, &context, "/"), [".", ".."]);
}

#[test]
fn names_are_checked() {
    let (vfs, context) = tree();
    let long = "x".repeat(256);
    assert_eq!(vfs.mkdir(&context, At::Cwd, &long, 0o777).err(), Some(Error::NameTooLong));
    assert_eq!(vfs.stat(&context, At::Cwd, &long, FOLLOW), Err(Error::NameTooLong));
    vfs.mkdir(&context, At::Cwd, &long[..255], 0o777).expect("255 bytes are a name");
    assert_eq!(vfs.stat(&context, At::Cwd, "a\0b", FOLLOW), Err(Error::Invalid));
    assert_eq!(vfs.stat(&context, At::Cwd, "", FOLLOW), Err(Error::NoEntry));
    assert_eq!(vfs.stat(&context, At::Cwd, "a/".repeat(2048), FOLLOW), Err(Error::NameTooLong));
    let link = |target: &[u8]| vfs.symlink(&context, target, At::Cwd, "l").map(drop);
    assert_eq!((link(b""), link(b"a\0b"), link(&[b'x'; 4096])), {
        (Err(Error::NoEntry), Err(Error::Invalid), Err(Error::NameTooLong))
    });
    assert_eq!(link(&[b'x'; 4095]), Ok(()));
    assert_eq!(vfs.readlink(&context, At::Cwd, "", Walk::EMPTY_PATH), Err(Error::NoEntry));
    assert_eq!(vfs.mkdir(&context, At::Cwd, ".", 0o777).err(), Some(Error::Exists));
    assert_eq!(vfs.mknod(&context, At::Cwd, "n/", 0o644, 0).err(), Some(Error::NoEntry));
    assert_eq!(vfs.open(&context, At::Cwd, "n/", RW | OpenFlags::CREAT, 0o644).err(), Some(Error::IsDirectory));
}

#[test]
fn hard_links_share_an_inode() {
    let (vfs, context) = tree();
    touch(&vfs, &context, "/a");
    vfs.link(&context, At::Cwd, "/a", At::Cwd, "/b", Walk::NOFOLLOW).expect("linked");
    let (a, b) = (vfs.stat(&context, At::Cwd, "/a", FOLLOW), vfs.stat(&context, At::Cwd, "/b", FOLLOW));
    assert_eq!(a, b);
    assert_eq!(a.map(|s| s.nlink), Ok(2));
    assert_eq!(vfs.rename(&context, At::Cwd, "/a", At::Cwd, "/b", RenameFlags::empty()), Ok(()));
    assert!(vfs.stat(&context, At::Cwd, "/a", FOLLOW).is_ok(), "two names of one file: rename does nothing");
    assert_eq!(vfs.unlink(&context, At::Cwd, "/a"), Ok(()));
    assert_eq!(vfs.stat(&context, At::Cwd, "/b", FOLLOW).map(|s| s.nlink), Ok(1));
    assert_eq!(vfs.link(&context, At::Cwd, "/", At::Cwd, "/c", Walk::NOFOLLOW).err(), Some(Error::NotPermitted));
    let tmpfile = RW | OpenFlags::TMPFILE | OpenFlags::DIRECTORY;
    let anonymous = vfs.open(&context, At::Cwd, "/", tmpfile, 0o600).expect("made");
    assert_eq!(anonymous.stat().nlink, 0);
    vfs.link(&context, At::Dir(anonymous.dentry()), "", At::Cwd, "/t", Walk::EMPTY_PATH).expect("linked");
    assert_eq!(vfs.stat(&context, At::Cwd, "/t", FOLLOW).map(|s| s.ino), Ok(anonymous.dentry().ino()));
    vfs.unlink(&context, At::Cwd, "/t").expect("unlinked");
    assert_eq!(
        vfs.link(&context, At::Dir(anonymous.dentry()), "", At::Cwd, "/u", Walk::EMPTY_PATH).err(),
        Some(Error::NoEntry),
        "the last name is gone for good"
    );
    let private = vfs.open(&context, At::Cwd, "/", tmpfile | OpenFlags::EXCL, 0o600).expect("made");
    let linked = vfs.link(&context, At::Dir(private.dentry()), "", At::Cwd, "/u", Walk::EMPTY_PATH);
    assert_eq!(linked.err(), Some(Error::NoEntry), "it is never to have a name");
    let not_a_directory = tmpfile - OpenFlags::DIRECTORY;
    assert_eq!(vfs.open(&context, At::Cwd, "/", not_a_directory, 0o600).err(), Some(Error::Invalid));
}

#[test]
fn rename_moves_replaces_and_exchanges() {
    let (vfs, context) = tree();
    let rename = |old: &str, new: &str, flags| vfs.rename(&context, At::Cwd, old, At::Cwd, new, flags);
    let none = RenameFlags::empty();
    for dir in ["/d", "/d/sub", "/e", "/empty"] {
        vfs.mkdir(&context, At::Cwd, dir, 0o777).expect("made");
    }
    touch(&vfs, &context, "/d/f");
    touch(&vfs, &context, "/e/g");
    let f = vfs.open(&context, At::Cwd, "/d/f", RW, 0).expect("opens");
    let g = vfs.open(&context, At::Cwd, "/e/g", RW, 0).expect("opens");
    assert_eq!(rename("/d/f", "/e/f", none), Ok(()));
    assert_eq!(vfs.d_path(&context, f.dentry(), 100), Ok(b"/e/f".to_vec()));
    assert_eq!(rename("/e/f", "/e/g", RenameFlags::NOREPLACE), Err(Error::Exists));
    assert_eq!(rename("/e/f", "/e/g", RenameFlags::EXCHANGE), Ok(()));
    assert_eq!(vfs.d_path(&context, f.dentry(), 100), Ok(b"/e/g".to_vec()));
    assert_eq!(rename("/e/f", "/e/g", none), Ok(()));
    assert_eq!(vfs.d_path(&context, g.dentry(), 100), Ok(b"/e/g".to_vec()));
    assert_eq!(vfs.d_path(&context, f.dentry(), 100), Ok(b"/e/g (deleted)".to_vec()));
    assert_eq!(rename("/d", "/d/sub/x", none), Err(Error::Invalid));
    assert_eq!(rename("/d/sub", "/d", none), Err(Error::NotEmpty));
    assert_eq!(rename("/d/sub", "/e", none), Err(Error::NotEmpty));
    assert_eq!(rename("/e/g", "/empty", none), Err(Error::IsDirectory));
    assert_eq!(rename("/d", "/e/g", none), Err(Error::NotDirectory));
    assert_eq!(rename("/nothing", "/x", none), Err(Error::NoEntry));
    assert_eq!(rename("/e/g", "/x/", none), Err(Error::NotDirectory));
    assert_eq!(rename("/e/.", "/x", none), Err(Error::Busy));
    let empty = vfs.open(&context, At::Cwd, "/empty", OpenFlags::DIRECTORY, 0).expect("opens");
    assert_eq!(rename("/d", "/empty", none), Ok(()), "over an empty directory");
    assert_eq!(empty.stat().nlink, 0);
    assert_eq!(vfs.stat(&context, At::Cwd, "/", FOLLOW).map(|s| s.nlink), Ok(4));
    assert_eq!(names(&vfs, &context, "/empty"), [".", "..", "sub"]);
    assert_eq!(rename("/empty/sub", "/e/sub", none), Ok(()));
    assert_eq!(vfs.stat(&context, At::Cwd, "/empty", FOLLOW).map(|s| s.nlink), Ok(2));
    assert_eq!(vfs.stat(&context, At::Cwd, "/e", FOLLOW).map(|s| s.nlink), Ok(3));
    assert_eq!(rename("/e", "/e", none), Ok(()));
    for other in [RenameFlags::NOREPLACE, RenameFlags::WHITEOUT] {
        assert_eq!(rename("/e", "/h", RenameFlags::EXCHANGE | other), Err(Error::Invalid));
    }
}

/// A rename with WHITEOUT leaves a character device 0/0 of the caller at the old name.
#[test]
fn rename_leaves_a_whiteout() {
    let (vfs, context) = tree();
    for dir in ["/d", "/d/sub", "/e"] {
        vfs.mkdir(&context, At::Cwd, dir, 0o777).expect("made");
        vfs.chmod(&context, At::Cwd, dir, 0o777, Walk::empty()).expect("changed");
    }
    let user = Context::new(&vfs, Credentials::user(1000, 1001, &[]));
    let rename = |old: &str, new: &str, flags| vfs.rename(&user, At::Cwd, old, At::Cwd, new, flags);
    touch(&vfs, &user, "/d/f");
    touch(&vfs, &user, "/e/g");
    let nlink = |path| vfs.stat(&context, At::Cwd, path, FOLLOW).expect("there").nlink;
    let expect_whiteout = |path: &str| {
        let stat = vfs.stat(&context, At::Cwd, path, Walk::NOFOLLOW).expect("there");
        assert_eq!((stat.kind, stat.rdev, stat.mode & 0o7777, stat.nlink), (FileKind::CharDevice, 0, 0, 1), "{path}");
        assert_eq!((stat.uid, stat.gid), (1000, 1001), "{path}");
    };
    let file = vfs.open(&user, At::Cwd, "/d/f", RW, 0).expect("opens");
    // To a free name, and over a file in another directory.
    assert_eq!(rename("/d/f", "/d/free", RenameFlags::WHITEOUT | RenameFlags::NOREPLACE), Ok(()));
    assert_eq!(rename("/d/free", "/e/g", RenameFlags::WHITEOUT), Ok(()));
    assert_eq!(names(&vfs, &context, "/d"), [".", "..", "f", "free", "sub"]);
    ["/d/f", "/d/free"].into_iter().for_each(expect_whiteout);
    assert_eq!(vfs.d_path(&context, file.dentry(), 100), Ok(b"/e/g".to_vec()));
    // A directory to another one: the whiteout is no subdirectory.
    assert_eq!(rename("/d/sub", "/e/sub", RenameFlags::WHITEOUT), Ok(()));
    expect_whiteout("/d/sub");
    assert_eq!((nlink("/d"), nlink("/e")), (2, 3));
    assert!(!TRAITS.dir_size || vfs.stat(&context, At::Cwd, "/d", FOLLOW).map(|stat| stat.size) == Ok(100));
    // A rename that is refused or does nothing leaves no whiteout.
    assert_eq!(rename("/e/g", "/d/f", RenameFlags::WHITEOUT | RenameFlags::NOREPLACE), Err(Error::Exists));
    assert_eq!(rename("/e/g", "/e/g", RenameFlags::WHITEOUT), Ok(()));
    assert_eq!(vfs.stat(&context, At::Cwd, "/e/g", FOLLOW).map(|stat| stat.ino), Ok(file.dentry().ino()));
    // A whiteout is moved, replaced and removed as any file.
    assert_eq!(rename("/e/g", "/d/f", RenameFlags::WHITEOUT), Ok(()));
    assert_eq!(rename("/e/g", "/d/free", RenameFlags::empty()), Ok(()));
    expect_whiteout("/d/free");
    assert_eq!(vfs.d_path(&context, file.dentry(), 100), Ok(b"/d/f".to_vec()));
    assert_eq!(vfs.rmdir(&context, At::Cwd, "/d"), Err(Error::NotEmpty));
    for path in ["/d/f", "/d/free", "/d/sub"] {
        assert_eq!(vfs.unlink(&context, At::Cwd, path), Ok(()), "{path}");
    }
    assert_eq!(vfs.rmdir(&context, At::Cwd, "/d"), Ok(()));
}

#[test]
fn readdir_updates_atime_after_a_change() {
    let (vfs, context) = tree();
    vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
    let stat = || vfs.stat(&context, At::Cwd, "/d", FOLLOW).expect("there");
    names(&vfs, &context, "/d");
    touch(&vfs, &context, "/d/f");
    let changed = stat();
    assert!(changed.atime < changed.mtime);
    names(&vfs, &context, "/d");
    assert!(stat().atime > changed.atime);
}

#[test]
fn scans_resume_from_any_cookie() {
    let (vfs, context) = tree();
    let all: Vec<String> = (0..1000).map(|i| format!("file{i:04}")).collect();
    all.iter().for_each(|name| touch(&vfs, &context, name));
    let dir = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opens");
    let (mut cookie, mut seen) = (0, Vec::new());
    loop {
        let mut left = 7;
        let before = seen.len();
        dir.readdir(cookie, |entry| {
            left -= 1;
            if left < 0 {
                return false;
            }
            seen.push(String::from_utf8_lossy(entry.name).into_owned());
            cookie = entry.cookie;
            true
        })
        .expect("reads");
        if seen.len() == before {
            break;
        }
        // The name just read is removed. The cookie of a removed entry must still be valid.
        if let Some(name) = seen.last().filter(|name| name.starts_with("file")) {
            vfs.unlink(&context, At::Cwd, name).expect("removed");
        }
    }
    seen.sort();
    assert_eq!(seen[..2], [".", ".."]);
    assert_eq!(seen[2..], all);
    assert_eq!(dir.readdir(1 << 63, |_| true), Err(Error::Invalid));
}

#[test]
fn limits_are_exact_and_refunded() {
    let vfs = Vfs::new(driver(Some(10))).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    for round in 0..100 {
        for i in 0..9 {
            touch(&vfs, &context, &format!("/{i}"));
        }
        assert_eq!(vfs.mkdir(&context, At::Cwd, "/more", 0o777).err(), Some(Error::NoSpace), "round {round}");
        for i in 0..9 {
            vfs.unlink(&context, At::Cwd, format!("/{i}")).expect("removed");
        }
    }
    // Tests that run beside this one may be reading, each for a moment.
    await_value(Ok(9), || vfs.statfs(&context, At::Cwd, "/").map(|s| s.ffree));
}

#[test]
fn dentry_of_another_vfs_is_refused() {
    let ((vfs, context), (other, others)) = (tree(), tree());
    vfs.mkdir(&context, At::Cwd, "/d", 0o777).expect("made");
    let theirs = other.mkdir(&others, At::Cwd, "/d", 0o777).expect("made");
    assert_eq!(vfs.stat(&context, At::Dir(&theirs), "..", FOLLOW).err(), Some(Error::CrossDevice));
    assert_eq!(vfs.stat(&context, At::Dir(&theirs), "", Walk::EMPTY_PATH).err(), Some(Error::CrossDevice));
    assert_eq!(vfs.stat(&others, At::Cwd, "/d", FOLLOW).err(), Some(Error::CrossDevice));
    assert_eq!(vfs.mkdir(&context, At::Dir(&theirs), "e", 0o777).err(), Some(Error::CrossDevice));
    let moved = vfs.rename(&context, At::Cwd, "/d", At::Dir(&theirs), "e", RenameFlags::empty());
    assert_eq!(moved, Err(Error::CrossDevice));
    // Also if only the context's root is in another tree, since absolute paths lead there.
    assert_eq!(other.stat(&context, At::Dir(&theirs), "/d", FOLLOW).err(), Some(Error::CrossDevice));
    assert_eq!(names(&other, &others, "/d"), [".", ".."]);
}
