//! The name space, one operation after the other: what each does, and which errno each refusal gets.
//!
//! The same on every driver: a test crate that includes this module defines `driver`, which makes an empty tree (with a
//! limit of inodes, or without), and says in `TRAITS` where its driver legitimately differs.

use std::io::{IoSlice, IoSliceMut};

use pando_vfs::{
    Access, At, Context, Credentials, Error, FileKind, OpenFlags, RenameFlags, Resolve, Seek, SetAttr, SetTime,
    Timestamp, Vfs, Walk, XattrFlags,
};

const FOLLOW: Walk = Walk::empty();
const RW: OpenFlags = OpenFlags::RDWR;

use super::{TRAITS, driver};

/// In what drivers may differ.
#[derive(Debug, Clone, Copy)]
pub struct Traits {
    /// Files without a name can be made (O_TMPFILE). A backing has no place for them.
    pub tmpfile: bool,
    /// A directory's size counts its entries, 20 bytes each, as tmpfs has it. A backing's directory has the backing's size.
    pub dir_size: bool,
}

fn tree() -> (Vfs, Context) {
    let vfs = Vfs::new(driver(None)).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root()).with_umask(0o022);
    (vfs, context)
}

fn touch(vfs: &Vfs, context: &Context, path: &str) {
    vfs.open(context, At::Cwd, path, RW | OpenFlags::CREAT, 0o644).unwrap_or_else(|e| panic!("{path}: {e}"));
}

fn names(vfs: &Vfs, context: &Context, path: &str) -> Vec<String> {
    let dir = vfs.open(context, At::Cwd, path, OpenFlags::DIRECTORY, 0).expect("opens");
    let mut names = Vec::new();
    dir.readdir(0, |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    })
    .expect("reads");
    names.sort();
    names
}

#[test]
fn files_are_made_written_read_and_removed() {
    let (vfs, context) = tree();
    let file = vfs.open(&context, At::Cwd, "/a", RW | OpenFlags::CREAT | OpenFlags::EXCL, 0o666).expect("made");
    assert_eq!(file.write(b"hello"), Ok(5));
    assert_eq!(file.tell(), 5);
    assert_eq!(file.lseek(Seek::Set(1)), Ok(1));
    let mut buffer = [0; 10];
    assert_eq!(file.read(&mut buffer), Ok(4));
    assert_eq!(&buffer[..4], b"ello");
    let stat = vfs.stat(&context, At::Cwd, "a", FOLLOW).expect("there");
    assert_eq!((stat.size, stat.mode, stat.nlink, stat.kind), (5, 0o644, 1, FileKind::File));
    assert_eq!(
        vfs.open(&context, At::Cwd, "/a", RW | OpenFlags::CREAT | OpenFlags::EXCL, 0).err(),
        Some(Error::Exists)
    );
    assert_eq!(vfs.unlink(&context, At::Cwd, "/a"), Ok(()));
    assert_eq!(vfs.stat(&context, At::Cwd, "/a", FOLLOW), Err(Error::NoEntry));
    assert_eq!(file.stat().nlink, 0);
    assert_eq!(file.pread(&mut buffer, 0), Ok(5), "an open file lives on");
    assert_eq!(vfs.d_path(&context, file.dentry(), 100), Ok(b"/a (deleted)".to_vec()));
}

#[test]
fn directories_count_and_refuse() {
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
    assert_eq!(vfs.rmdir(&context, At::Cwd, "/d/e"), Ok(()));
    assert_eq!(open.readdir(0, |_| true), Err(Error::NoEntry));
    assert_eq!(open.stat().nlink, 0);
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
    assert_eq!(vfs.mkdir(&context, At::Cwd, ".", 0o777).err(), Some(Error::Exists));
    assert_eq!(vfs.mknod(&context, At::Cwd, "n/", 0o644, 0).err(), Some(Error::NoEntry));
    assert_eq!(vfs.open(&context, At::Cwd, "n/", RW | OpenFlags::CREAT, 0o644).err(), Some(Error::IsDirectory));
}

#[test]
fn symlinks_are_followed_and_loops_end() {
    let (vfs, context) = tree();
    vfs.mkdir(&context, At::Cwd, "/d", 0o777).expect("made");
    touch(&vfs, &context, "/d/f");
    vfs.symlink(&context, "d", At::Cwd, "/l").expect("made");
    vfs.symlink(&context, "/l/f", At::Cwd, "/d/back").expect("made");
    vfs.symlink(&context, "loop", At::Cwd, "/loop").expect("made");
    vfs.symlink(&context, "l/new", At::Cwd, "/dangling").expect("made");
    let ino = vfs.stat(&context, At::Cwd, "/d/f", FOLLOW).expect("there").ino;
    assert_eq!(vfs.stat(&context, At::Cwd, "/l/back", FOLLOW).map(|s| s.ino), Ok(ino));
    assert_eq!(vfs.stat(&context, At::Cwd, "/l/back", Walk::NOFOLLOW).map(|s| s.kind), Ok(FileKind::Symlink));
    assert_eq!(vfs.stat(&context, At::Cwd, "/l/", Walk::NOFOLLOW).map(|s| s.kind), Ok(FileKind::Directory));
    assert_eq!(vfs.stat(&context, At::Cwd, "/loop", FOLLOW), Err(Error::Loop));
    assert_eq!(vfs.open(&context, At::Cwd, "/l", OpenFlags::NOFOLLOW, 0).err(), Some(Error::Loop));
    touch(&vfs, &context, "/dangling");
    assert!(vfs.stat(&context, At::Cwd, "/d/new", FOLLOW).is_ok(), "O_CREAT goes through a dangling link");
    assert_eq!(vfs.readlink(&context, At::Cwd, "/l", FOLLOW), Ok(b"d".to_vec()));
    assert_eq!(vfs.readlink(&context, At::Cwd, "/d", FOLLOW), Err(Error::Invalid));
}

#[test]
fn links_share_an_inode() {
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
    if !TRAITS.tmpfile {
        assert_eq!(vfs.open(&context, At::Cwd, "/", tmpfile, 0o600).err(), Some(Error::NotSupported));
        return;
    }
    let nameless = vfs.open(&context, At::Cwd, "/", tmpfile, 0o600).expect("made");
    assert_eq!(nameless.stat().nlink, 0);
    vfs.link(&context, At::Dir(nameless.dentry()), "", At::Cwd, "/t", Walk::EMPTY_PATH).expect("linked");
    assert_eq!(vfs.stat(&context, At::Cwd, "/t", FOLLOW).map(|s| s.ino), Ok(nameless.dentry().ino()));
    vfs.unlink(&context, At::Cwd, "/t").expect("unlinked");
    assert_eq!(
        vfs.link(&context, At::Dir(nameless.dentry()), "", At::Cwd, "/u", Walk::EMPTY_PATH).err(),
        Some(Error::NoEntry),
        "the last name is gone for good"
    );
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
    let both = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
    assert_eq!(rename("/e", "/h", both), Err(Error::Invalid));
}

#[test]
fn permissions_are_checked() {
    let (vfs, root) = tree();
    let user = Context::new(&vfs, Credentials::user(1000, 1000, &[])).with_umask(0o022);
    assert_eq!(vfs.mkdir(&user, At::Cwd, "/mine", 0o777).err(), Some(Error::Access));
    vfs.mkdir(&root, At::Cwd, "/tmp", 0o777).expect("made");
    vfs.chmod(&root, At::Cwd, "/tmp", 0o1777, FOLLOW).expect("sticky");
    touch(&vfs, &root, "/tmp/roots");
    touch(&vfs, &user, "/tmp/users");
    assert_eq!(vfs.unlink(&user, At::Cwd, "/tmp/roots"), Err(Error::NotPermitted));
    assert_eq!(vfs.chmod(&user, At::Cwd, "/tmp/roots", 0, FOLLOW), Err(Error::NotPermitted));
    assert_eq!(vfs.open(&user, At::Cwd, "/tmp/roots", RW, 0).err(), Some(Error::Access));
    assert_eq!(vfs.access(&user, At::Cwd, "/tmp/roots", Access::READ, FOLLOW), Ok(()));
    let cut = |context: &Context, path| {
        let found = vfs.lookup(context, At::Cwd, path, FOLLOW).expect("found");
        vfs.setattr(context, &found, &SetAttr { size: Some(0), ..SetAttr::default() }).map(|stat| stat.size)
    };
    assert_eq!((cut(&user, "/tmp/roots"), cut(&user, "/tmp")), (Err(Error::Access), Err(Error::IsDirectory)));
    assert_eq!(cut(&user.clone().checked_by_caller(true), "/tmp/roots"), Ok(0));
    assert_eq!(vfs.chown(&user, At::Cwd, "/tmp/users", Some(0), None, FOLLOW), Err(Error::NotPermitted));
    vfs.chmod(&user, At::Cwd, "/tmp/users", 0o4755, FOLLOW).expect("setuid");
    vfs.chown(&root, At::Cwd, "/tmp/users", Some(1001), None, FOLLOW).expect("given away");
    let stat = vfs.stat(&root, At::Cwd, "/tmp/users", FOLLOW).expect("there");
    assert_eq!((stat.mode, stat.uid), (0o755, 1001), "setuid does not go with the file");
    vfs.chmod(&root, At::Cwd, "/tmp", 0o700, FOLLOW).expect("closed");
    assert_eq!(vfs.stat(&user, At::Cwd, "/tmp/users", FOLLOW), Err(Error::Access));
}

#[test]
fn who_may_not_search_a_directory_sees_names_only() {
    let (vfs, root) = tree();
    vfs.mkdir(&root, At::Cwd, "/d", 0o744).expect("made");
    touch(&vfs, &root, "/d/f");
    let user = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    let dir = vfs.open(&user, At::Cwd, "/d", OpenFlags::DIRECTORY, 0).expect("opens");
    let shown = |context: &Context| {
        let mut shown = Vec::new();
        dir.readdir_plus(context, 0, |entry, plus| {
            shown.push((String::from_utf8_lossy(entry.name).into_owned(), plus.is_some()));
            true
        })
        .expect("lists");
        shown.split_off(2)
    };
    assert_eq!(shown(&user), [("f".to_owned(), false)]);
    assert_eq!(shown(&user.clone().checked_by_caller(true)), [("f".to_owned(), true)]);
    assert_eq!(shown(&root), [("f".to_owned(), true)]);
}

#[test]
fn a_directory_that_has_changed_since_it_was_read_is_read_anew() {
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
fn times_are_set_and_rise() {
    let (vfs, context) = tree();
    touch(&vfs, &context, "/a");
    let old = Timestamp::from_parts(1, 5);
    vfs.utimens(&context, At::Cwd, "/a", SetTime::At(old), SetTime::At(old), FOLLOW).expect("set");
    let stat = vfs.stat(&context, At::Cwd, "/a", FOLLOW).expect("there");
    assert_eq!((stat.atime, stat.mtime), (old, old));
    let file = vfs.open(&context, At::Cwd, "/a", RW, 0).expect("opens");
    file.write(b"x").expect("written");
    let first = file.stat();
    assert!(first.mtime > old && first.ctime > stat.ctime);
    file.write(b"x").expect("written");
    assert!(file.stat().mtime > first.mtime, "two changes in a row differ");
    assert_eq!(file.stat().atime, old);
    assert_eq!(file.pread(&mut [], 0), Ok(0));
    assert!(file.stat().atime > old, "who reads nothing has read, as on tmpfs");
    vfs.utimens(&context, At::Cwd, "/", SetTime::Omit, SetTime::At(old), FOLLOW).expect("set");
    assert_eq!(vfs.stat(&context, At::Cwd, "/", FOLLOW).map(|s| s.mtime), Ok(old));
    touch(&vfs, &context, "/b");
    assert!(vfs.stat(&context, At::Cwd, "/", FOLLOW).expect("there").mtime > old);
}

#[test]
fn xattrs_by_name_space() {
    let (vfs, root) = tree();
    let user = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    touch(&vfs, &root, "/a");
    let set = |context: &Context, name: &str, value: &str, how| {
        vfs.setxattr(context, At::Cwd, "/a", name, value, how, FOLLOW)
    };
    let any = XattrFlags::empty();
    assert_eq!(set(&root, "user.k", "v", XattrFlags::REPLACE), Err(Error::NoData));
    assert_eq!(set(&root, "user.k", "v", any), Ok(()));
    assert_eq!(set(&root, "user.k", "v", XattrFlags::CREATE), Err(Error::Exists));
    assert_eq!(set(&root, "trusted.k", "v", any), Ok(()));
    assert_eq!(set(&root, "nobody.k", "v", any), Err(Error::NotSupported));
    assert_eq!(set(&user, "user.k", "v", any), Err(Error::Access));
    assert_eq!(vfs.getxattr(&user, At::Cwd, "/a", "user.k", FOLLOW), Ok(b"v".to_vec()));
    assert_eq!(vfs.getxattr(&user, At::Cwd, "/a", "trusted.k", FOLLOW), Err(Error::NoData));
    assert_eq!(vfs.listxattr(&user, At::Cwd, "/a", FOLLOW), Ok(vec![b"user.k".to_vec()]));
    let mounted = user.clone().checked_by_caller(true);
    assert_eq!(vfs.listxattr(&mounted, At::Cwd, "/a", FOLLOW), Ok(vec![b"user.k".to_vec()]));
    assert_eq!(vfs.listxattr(&root, At::Cwd, "/a", FOLLOW).map(|l| l.len()), Ok(2));
    let set = |name: &[u8]| vfs.setxattr(&root, At::Cwd, "/a", name, b"v", XattrFlags::empty(), FOLLOW);
    assert_eq!((set(b"user.\0"), set(b"user.a\0b")), (Err(Error::Invalid), Err(Error::Invalid)));
    assert_eq!(vfs.removexattr(&root, At::Cwd, "/a", "user.k", FOLLOW), Ok(()));
    assert_eq!(vfs.removexattr(&root, At::Cwd, "/a", "user.k", FOLLOW), Err(Error::NoData));
}

/// None of them undoes another's change.
#[test]
fn xattrs_of_one_file_are_changed_side_by_side() {
    const THREADS: u32 = 4;
    const NAMES: u32 = 50;
    let (vfs, root) = tree();
    vfs.mknod(&root, At::Cwd, "/a", 0o100_644, 0).expect("made");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (vfs, root) = (&vfs, &root);
            scope.spawn(move || {
                for n in 0..NAMES {
                    let name = format!("user.{thread}.{n}");
                    let set = |value: &str, how| vfs.setxattr(root, At::Cwd, "/a", &name, value, how, FOLLOW);
                    set("old", XattrFlags::CREATE).expect("not there yet");
                    set(&name, XattrFlags::REPLACE).expect("there");
                    let value = vfs.getxattr(root, At::Cwd, "/a", &name, FOLLOW);
                    assert_eq!(value, Ok(name.clone().into_bytes()));
                    if n % 2 == 1 {
                        vfs.removexattr(root, At::Cwd, "/a", &name, FOLLOW).expect("there");
                    }
                }
            });
        }
    });
    let mut names = vfs.listxattr(&root, At::Cwd, "/a", FOLLOW).expect("listed");
    names.sort_unstable();
    let expected = (0..THREADS).flat_map(|t| (0..NAMES).step_by(2).map(move |n| format!("user.{t}.{n}").into_bytes()));
    let mut expected: Vec<_> = expected.collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn seeks_refuse_what_does_not_fit() {
    let (vfs, context) = tree();
    let file = vfs.open(&context, At::Cwd, "/a", RW | OpenFlags::CREAT, 0o600).expect("made");
    assert_eq!(file.lseek(Seek::Set(-1)), Err(Error::Invalid));
    assert_eq!(file.lseek(Seek::Set(i64::MAX)), Ok(i64::MAX as u64));
    assert_eq!(file.lseek(Seek::Cur(1)), Err(Error::Overflow));
    assert_eq!(file.lseek(Seek::Cur(i64::MIN)), Err(Error::Invalid));
    assert_eq!(file.tell(), i64::MAX as u64, "unchanged");
    assert_eq!(file.write(b"x"), Err(Error::Invalid), "as Linux: the range would end beyond 2^63 - 1");
    file.truncate(100_000).expect("grown");
    assert_eq!(file.lseek(Seek::End(-1)), Ok(99_999));
    assert_eq!(file.lseek(Seek::Hole(5)), Ok(5));
    assert_eq!(file.lseek(Seek::Data(5)), Err(Error::NoDeviceAddress));
    file.pwrite(b"data", 50_000).expect("written");
    assert_eq!(file.lseek(Seek::Data(5)), Ok(49_152));
    assert_eq!(file.lseek(Seek::Hole(50_000)), Ok(53_248));
    assert_eq!(file.lseek(Seek::Data(100_000)), Err(Error::NoDeviceAddress));
    let dir = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opens");
    assert_eq!(dir.read(&mut [0; 4]), Err(Error::IsDirectory));
    assert_eq!(dir.write(b"x"), Err(Error::BadHandle));
}

#[test]
fn flags_of_an_open_file_are_set() {
    let (vfs, root) = tree();
    let file = vfs.open(&root, At::Cwd, "/a", RW | OpenFlags::CREAT, 0o644).expect("made");
    assert_eq!((file.write(b"one"), file.lseek(Seek::Set(0))), (Ok(3), Ok(0)));
    let (append, quiet) = (OpenFlags::APPEND, OpenFlags::NOATIME);
    assert_eq!(file.set_flags(&root, append | OpenFlags::NONBLOCK | OpenFlags::WRONLY | OpenFlags::SYNC), Ok(()));
    assert_eq!(file.flags(), RW | append | OpenFlags::NONBLOCK, "what else was asked for is ignored");
    assert_eq!((file.write(b"two"), file.tell()), (Ok(3), 6));
    assert_eq!(file.set_flags(&root, quiet), Ok(()));
    assert_eq!((file.flags(), file.pwrite(b"T", 3), file.stat().size), (RW | quiet, Ok(1), 6));
    let old = SetTime::At(Timestamp(5));
    let atime_after_read = || {
        file.pread(&mut [0; 9], 0).expect("reads");
        file.stat().atime
    };
    vfs.utimens(&root, At::Cwd, "/a", old, old, FOLLOW).expect("set");
    assert_eq!(atime_after_read(), Timestamp(5));
    // It stays whoever asks; anew it is the owner's to ask for.
    let other = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    assert_eq!(file.set_flags(&other, quiet), Ok(()));
    assert_eq!(file.set_flags(&other, OpenFlags::empty()), Ok(()));
    assert_eq!(file.set_flags(&other, quiet | append), Err(Error::NotPermitted));
    assert_eq!(file.flags(), RW);
    assert!(atime_after_read() > Timestamp(5));
    let place = vfs.open(&root, At::Cwd, "/a", OpenFlags::PATH, 0).expect("opens");
    assert_eq!(place.set_flags(&root, append), Err(Error::BadHandle));
    let reader = root.clone().read_only(true);
    let silent = vfs.open(&reader, At::Cwd, "/a", OpenFlags::RDONLY, 0).expect("opens");
    vfs.utimens(&root, At::Cwd, "/a", old, old, FOLLOW).expect("set");
    assert_eq!(silent.set_flags(&root, OpenFlags::empty()), Ok(()));
    assert_eq!(silent.pread(&mut [0; 9], 0).map(|_| silent.stat().atime), Ok(Timestamp(5)));
}

#[test]
fn several_buffers_are_read_and_written_as_one() {
    let (vfs, context) = tree();
    let file = vfs.open(&context, At::Cwd, "/a", RW | OpenFlags::CREAT, 0o600).expect("made");
    let slices = ["gro", "", "ve of ", "aspen"].map(|part| IoSlice::new(part.as_bytes()));
    assert_eq!((file.writev(&slices), file.tell()), (Ok(14), 14));
    assert_eq!((file.pwritev(&slices[3..], 20), file.tell(), file.stat().size), (Ok(5), 14, 25));
    let (mut first, mut second, mut third) = ([9; 6], [9; 17], [9; 4]);
    let mut into = [&mut first[..], &mut [], &mut second[..], &mut third[..]].map(IoSliceMut::new);
    assert_eq!(file.preadv(&mut into, 0), Ok(25), "all there is");
    assert_eq!((&first, &second, third), (b"grove ", b"of aspen\0\0\0\0\0\0asp", [b'e', b'n', 9, 9]));
    let mut part = [0; 3];
    assert_eq!((file.lseek(Seek::Set(6)), file.readv(&mut [IoSliceMut::new(&mut part)])), (Ok(6), Ok(3)));
    assert_eq!((&part, file.tell()), (b"of ", 9));
    // A file that was never written to has no contents to ask.
    let grown = vfs.open(&context, At::Cwd, "/b", RW | OpenFlags::CREAT, 0o600).expect("made");
    grown.truncate(8).expect("grown");
    let mut into = [&mut first[..], &mut second[..]].map(IoSliceMut::new);
    assert_eq!((grown.readv(&mut into), first, &second[..3]), (Ok(8), [0; 6], &[0, 0, b' '][..]));
    // No bytes are nothing to do, even in a directory; the order of refusals is the kernel's.
    let dir = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opens");
    assert_eq!((dir.readv(&mut []), dir.preadv(&mut [], u64::MAX)), (Ok(0), Err(Error::Invalid)));
    assert_eq!(dir.readv(&mut [IoSliceMut::new(&mut part)]), Err(Error::IsDirectory));
    assert_eq!(dir.writev(&[]), Err(Error::BadHandle));
    let (most, more) = (vec![IoSlice::new(b"x"); 1024], vec![IoSlice::new(b"x"); 1025]);
    assert_eq!(
        (file.writev(&more), file.pwritev(&more, 0), file.tell()),
        (Err(Error::Invalid), Err(Error::Invalid), 9)
    );
    assert_eq!((file.writev(&most), file.tell()), (Ok(1024), 1033));
}

#[test]
fn mounts_are_crossed_and_protected() {
    let (vfs, context) = tree();
    for dir in ["/m", "/m/below", "/n"] {
        vfs.mkdir(&context, At::Cwd, dir, 0o777).expect("made");
    }
    vfs.mount(&context, At::Cwd, "/m", driver(None)).expect("mounted");
    assert_eq!(names(&vfs, &context, "/m"), [".", ".."]);
    vfs.mkdir(&context, At::Cwd, "/m/x", 0o777).expect("made");
    touch(&vfs, &context, "/m/x/f");
    let file = vfs.open(&context, At::Cwd, "/m/x/../x/f", RW, 0).expect("opens");
    assert_eq!(vfs.d_path(&context, file.dentry(), 100), Ok(b"/m/x/f".to_vec()));
    let root = vfs.stat(&context, At::Cwd, "/", FOLLOW).expect("there");
    assert_eq!(vfs.stat(&context, At::Cwd, "/m/..", FOLLOW).map(|s| (s.dev, s.ino)), Ok((root.dev, root.ino)));
    let mounted = vfs.stat(&context, At::Cwd, "/m", FOLLOW).expect("there");
    assert_ne!(mounted.dev, root.dev);
    let dir = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opens");
    let mut listed = None;
    dir.readdir_plus(&context, 0, |entry, plus| {
        listed = listed.or(plus.filter(|_| entry.name == b"m").map(|(stat, dentry)| (stat.ino, dentry.stat().ino)));
        true
    })
    .expect("lists");
    assert_eq!(listed, Some((mounted.ino, mounted.ino)), "with attributes, a listing shows what a look-up finds");
    let none = RenameFlags::empty();
    assert_eq!(vfs.rename(&context, At::Cwd, "/m/x", At::Cwd, "/x", none), Err(Error::CrossDevice));
    assert_eq!(vfs.rename(&context, At::Cwd, "/m", At::Cwd, "/x", none), Err(Error::Busy));
    assert_eq!(vfs.rmdir(&context, At::Cwd, "/m"), Err(Error::Busy));
    assert_eq!(vfs.umount(&context, At::Cwd, "/n"), Err(Error::Invalid));
    let root = vfs.lookup(&context, At::Cwd, "/m", FOLLOW).expect("mounted");
    assert_eq!(vfs.umount(&context, At::Cwd, "/m"), Ok(()));
    assert_eq!(vfs.mkdir(&context, At::Dir(&root), "late", 0o777).err(), Some(Error::Stale));
    assert_eq!(names(&vfs, &context, "/m"), [".", "..", "below"]);
    assert_eq!(file.write(b"still open"), Ok(10));
}

#[test]
fn working_directory_and_root() {
    let (vfs, mut context) = tree();
    for dir in ["/a", "/a/b", "/a/b/c"] {
        vfs.mkdir(&context, At::Cwd, dir, 0o777).expect("made");
    }
    vfs.chdir(&mut context, At::Cwd, "a/b").expect("entered");
    assert_eq!(vfs.getcwd(&context, 100), Ok(b"/a/b".to_vec()));
    assert_eq!(vfs.getcwd(&context, 3), Err(Error::Range));
    assert!(vfs.stat(&context, At::Cwd, "c", FOLLOW).is_ok());
    vfs.rename(&context, At::Cwd, "/a/b", At::Cwd, "/z", RenameFlags::empty()).expect("moved");
    assert_eq!(vfs.getcwd(&context, 100), Ok(b"/z".to_vec()));
    vfs.chroot(&mut context, At::Cwd, "/z").expect("confined");
    assert_eq!(vfs.getcwd(&context, 100), Ok(b"/".to_vec()));
    assert_eq!(names(&vfs, &context, "/../.."), [".", "..", "c"]);
    assert_eq!(vfs.d_path(&context, &vfs.root(), 100), Ok(b"/".to_vec()));
    vfs.chdir(&mut context, At::Cwd, "/c").expect("entered");
    vfs.rmdir(&context, At::Cwd, "/c").expect("removed");
    assert_eq!(vfs.getcwd(&context, 100), Err(Error::NoEntry));
    assert_eq!(vfs.mkdir(&context, At::Cwd, "x", 0o777).err(), Some(Error::NoEntry));
    assert_eq!(names(&vfs, &context, ".."), [".", ".."]);
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
        // What was just read goes; the cookie of a gone entry still leads on.
        if let Some(name) = seen.last().filter(|name| name.starts_with("file")) {
            vfs.unlink(&context, At::Cwd, name).expect("removed");
        }
    }
    seen.sort();
    assert_eq!(seen[..2], [".", ".."]);
    assert_eq!(seen[2..], all);
}

#[test]
fn limits_are_exact_and_given_back() {
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
    assert_eq!(vfs.statfs(&context, At::Cwd, "/").map(|s| s.ffree), Ok(9));
}

#[test]
fn what_was_moved_out_of_a_root_leads_nowhere() {
    let (vfs, root) = tree();
    for dir in ["/in", "/in/d", "/in/d/e", "/out", "/secret"] {
        vfs.mkdir(&root, At::Cwd, dir, 0o777).expect("made");
    }
    let mut confined = root.clone();
    vfs.chroot(&mut confined, At::Cwd, "/in").expect("confined");
    vfs.chdir(&mut confined, At::Cwd, "/d/e").expect("entered");
    let stat = |path: &str| vfs.stat(&confined, At::Cwd, path, FOLLOW).map(|stat| stat.ino);
    let ino = |path: &str| vfs.stat(&root, At::Cwd, path, FOLLOW).map(|stat| stat.ino);
    assert_eq!((stat("../.."), stat("../../.."), stat("/..")), (ino("/in"), ino("/in"), ino("/in")));
    vfs.rename(&root, At::Cwd, "/in/d", At::Cwd, "/out/d", RenameFlags::empty()).expect("moved");
    for path in ["..", "../d", "../../../secret", "./../../.."] {
        assert_eq!(stat(path), Err(Error::NoEntry), "{path}");
    }
    assert_eq!((stat("."), stat("/..")), (ino("/out/d/e"), ino("/in")));
    // Where it was never in.
    let secret = vfs.lookup(&root, At::Cwd, "/secret", FOLLOW).expect("there");
    assert_eq!(vfs.stat(&confined, At::Dir(&secret), "..", FOLLOW), Err(Error::NoEntry));
    vfs.rename(&root, At::Cwd, "/out/d", At::Cwd, "/in/back", RenameFlags::empty()).expect("moved");
    assert_eq!(stat("../../../back"), ino("/in/back"));
}

#[test]
fn beneath_where_it_starts() {
    let (vfs, root) = tree();
    for dir in ["/in", "/in/d", "/secret"] {
        vfs.mkdir(&root, At::Cwd, dir, 0o777).expect("made");
    }
    for (target, link) in
        [("/in/d", "/in/absolute"), ("../secret", "/in/out"), ("../in/d", "/in/round"), ("d/..", "/in/in")]
    {
        vfs.symlink(&root, target, At::Cwd, link).expect("made");
    }
    let start = vfs.lookup(&root, At::Cwd, "/in", FOLLOW).expect("made");
    let beneath = root.clone().with_resolve(Resolve::BENEATH);
    assert_eq!((root.resolve(), beneath.resolve()), (Resolve::empty(), Resolve::BENEATH));
    let stat = |path: &str, how| vfs.stat(&beneath, At::Dir(&start), path, how).map(|stat| stat.ino);
    let ino = |path: &str| vfs.stat(&root, At::Cwd, path, FOLLOW).map(|stat| stat.ino);
    assert_eq!(
        (stat("d", FOLLOW), stat("d/../d/.", FOLLOW), stat("in/d/..", FOLLOW)),
        (ino("/in/d"), ino("/in/d"), ino("/in"))
    );
    // Also where it would lead back in.
    for path in ["..", "d/../..", "../in/d", "/in/d", "/", "absolute", "absolute/", "out", "round", "in/../d"] {
        assert_eq!(stat(path, FOLLOW), Err(Error::CrossDevice), "{path}");
    }
    assert!(stat("out", Walk::NOFOLLOW).is_ok(), "the link itself is in there");
    // Every call, and every path of it; the walk of each starts where it says.
    let out = Err(Error::CrossDevice);
    let at = At::Dir(&start);
    assert_eq!(vfs.mkdir(&beneath, at, "../x", 0o777).map(drop), out);
    assert_eq!(vfs.open(&beneath, at, "out/x", OpenFlags::CREAT, 0o600).map(drop), out);
    assert_eq!(vfs.rename(&beneath, at, "d", at, "../d", RenameFlags::empty()), out);
    assert_eq!(vfs.rename(&beneath, at, "../secret", at, "s", RenameFlags::empty()), out);
    assert_eq!(vfs.link(&beneath, at, "out", at, "/l", Walk::NOFOLLOW).map(drop), out);
    assert_eq!(vfs.rmdir(&beneath, at, "../secret"), out);
    let mut inside = beneath.clone();
    assert_eq!(vfs.chdir(&mut inside, at, "d/../.."), out);
    vfs.chdir(&mut inside, at, "d").expect("beneath");
    assert_eq!(vfs.stat(&inside, At::Cwd, "..", FOLLOW).err(), Some(Error::CrossDevice), "it starts in d");
    assert_eq!(names(&vfs, &root, "/"), [".", "..", "in", "secret"]);
}

#[test]
fn paths_without_links_and_without_mounts() {
    let (vfs, root) = tree();
    for dir in ["/d", "/m"] {
        vfs.mkdir(&root, At::Cwd, dir, 0o777).expect("made");
    }
    vfs.symlink(&root, "d", At::Cwd, "/link").expect("made");
    vfs.symlink(&root, "/d", At::Cwd, "/m.link").expect("made");
    vfs.mount(&root, At::Cwd, "/m", driver(None)).expect("mounted");
    vfs.mkdir(&root, At::Cwd, "/m/sub", 0o777).expect("made");
    vfs.symlink(&root, "/d", At::Cwd, "/m/away").expect("made");
    let plain = root.clone().with_resolve(Resolve::NO_SYMLINKS);
    for path in ["/link", "/link/", "/link/x", "/m/away"] {
        assert_eq!(vfs.stat(&plain, At::Cwd, path, FOLLOW).err(), Some(Error::Loop), "{path}");
    }
    assert!(vfs.stat(&plain, At::Cwd, "/link", Walk::NOFOLLOW).is_ok());
    assert_eq!(vfs.readlink(&plain, At::Cwd, "/link", FOLLOW), Ok(b"d".to_vec()));
    assert_eq!(vfs.open(&plain, At::Cwd, "/link", OpenFlags::CREAT, 0o600).err(), Some(Error::Loop));
    vfs.unlink(&plain, At::Cwd, "/link").expect("not followed");
    let here = root.clone().with_resolve(Resolve::NO_XDEV);
    for path in ["/m", "/m/", "/m/sub", "m.link/../m"] {
        assert_eq!(vfs.stat(&here, At::Cwd, path, FOLLOW).err(), Some(Error::CrossDevice), "{path}");
    }
    assert_eq!(vfs.mkdir(&here, At::Cwd, "/m/new", 0o777).err(), Some(Error::CrossDevice));
    let sub = vfs.lookup(&root, At::Cwd, "/m/sub", FOLLOW).expect("made");
    for (path, expected) in
        [("..", None), ("../..", Some(Error::CrossDevice)), ("../away", Some(Error::CrossDevice)), ("/d", None)]
    {
        assert_eq!(vfs.stat(&here, At::Dir(&sub), path, FOLLOW).err(), expected, "{path}");
    }
}

#[test]
fn attributes_are_no_more_than_can_be_listed() {
    let (vfs, context) = tree();
    touch(&vfs, &context, "/a");
    let set = |name: &str| vfs.setxattr(&context, At::Cwd, "/a", name, b"", XattrFlags::empty(), FOLLOW);
    let name = |n| format!("user.{n:0>250}");
    (0..256).for_each(|n| set(&name(n)).expect("in all 65536 bytes, with a NUL behind each"));
    assert_eq!((set("user.x"), set(&name(7))), (Err(Error::NoSpace), Ok(())));
    assert_eq!(vfs.listxattr(&context, At::Cwd, "/a", FOLLOW).map(|names| names.len()), Ok(256));
}

#[test]
fn a_context_with_a_root_of_its_own() {
    let (vfs, root) = tree();
    let jail = vfs.mkdir(&root, At::Cwd, "/jail", 0o755).expect("made");
    touch(&vfs, &root, "/jail/file");
    touch(&vfs, &root, "/outside");
    let guest = Context::rooted(&jail, Credentials::user(1000, 1000, &[])).expect("a directory");
    for path in ["file", "/file", "/../file", "../../file"] {
        assert!(vfs.stat(&guest, At::Cwd, path, FOLLOW).is_ok(), "{path}");
    }
    assert_eq!(vfs.stat(&guest, At::Cwd, "../outside", FOLLOW).err(), Some(Error::NoEntry));
    assert_eq!(vfs.getcwd(&guest, 100), Ok(b"/".to_vec()));
    // A tree that is mounted over the root is not the guest's.
    vfs.mkdir(&root, At::Cwd, "/jail/sub", 0o755).expect("made");
    vfs.mount(&root, At::Cwd, "/jail", driver(None)).expect("mounted");
    assert!(
        ["sub/..", "sub/../sub/..", ".."]
            .iter()
            .all(|path| { vfs.stat(&guest, At::Cwd, path, FOLLOW).map(|stat| stat.ino) == Ok(jail.stat().ino) })
    );
    let file = vfs.lookup(&root, At::Cwd, "/outside", FOLLOW).expect("there");
    assert_eq!(Context::rooted(&file, Credentials::root()).err(), Some(Error::NotDirectory));
}

#[test]
fn a_read_only_context_changes_nothing() {
    let (vfs, root) = tree();
    let long_ago = SetTime::At(Timestamp(1_000_000_007));
    vfs.mkdir(&root, At::Cwd, "/d", 0o777).expect("made");
    vfs.mkdir(&root, At::Cwd, "/mounted", 0o777).expect("made");
    vfs.mount(&root, At::Cwd, "/mounted", driver(None)).expect("mounted");
    touch(&vfs, &root, "/mounted/x");
    touch(&vfs, &root, "/file");
    vfs.symlink(&root, "file", At::Cwd, "/link").expect("made");
    vfs.setxattr(&root, At::Cwd, "/file", "user.a", b"v", XattrFlags::empty(), FOLLOW).expect("set");
    for path in ["/", "/d", "/file", "/link"] {
        vfs.utimens(&root, At::Cwd, path, long_ago, long_ago, Walk::NOFOLLOW).expect("set");
    }
    let all =
        || ["/", "/d", "/file", "/link"].map(|path| vfs.stat(&root, At::Cwd, path, Walk::NOFOLLOW).expect("there"));
    let before = all();
    let reader = root.clone().read_only(true);
    let refused: Result<(), _> = Err(Error::ReadOnly);
    let open = |path, flags| vfs.open(&reader, At::Cwd, path, flags, 0o600).map(drop);
    for flags in [OpenFlags::WRONLY, RW, OpenFlags::TRUNC, RW | OpenFlags::APPEND] {
        assert_eq!(open("/file", flags), refused, "{flags:?}");
    }
    assert_eq!(open("/new", OpenFlags::CREAT), refused);
    assert!(open("/d", RW | OpenFlags::TMPFILE | OpenFlags::DIRECTORY).is_err());
    assert_eq!(open("/file", OpenFlags::CREAT), Ok(()), "it is there");
    assert_eq!(vfs.mkdir(&reader, At::Cwd, "/new", 0o777).map(drop), refused);
    assert_eq!(vfs.mkdir(&reader, At::Cwd, "/d", 0o777).map(drop), Err(Error::Exists));
    assert_eq!(vfs.mknod(&reader, At::Cwd, "/new", 0o010_600, 0).map(drop), refused);
    assert_eq!(vfs.symlink(&reader, "x", At::Cwd, "/new").map(drop), refused);
    assert_eq!(vfs.link(&reader, At::Cwd, "/file", At::Cwd, "/new", FOLLOW).map(drop), refused);
    assert_eq!(vfs.unlink(&reader, At::Cwd, "/file"), refused);
    assert_eq!(vfs.rmdir(&reader, At::Cwd, "/d"), refused);
    for path in ["/missing", "/missing/", "/file/"] {
        assert_eq!((vfs.unlink(&reader, At::Cwd, path), vfs.rmdir(&reader, At::Cwd, path)), (refused, refused));
    }
    assert_eq!(vfs.rename(&reader, At::Cwd, "/missing", At::Cwd, "/new", RenameFlags::empty()), refused);
    assert_eq!(vfs.unlink(&reader, At::Cwd, "/missing/x"), Err(Error::NoEntry), "the directory is asked for first");
    for flags in [RenameFlags::empty(), RenameFlags::EXCHANGE] {
        assert_eq!(vfs.rename(&reader, At::Cwd, "/file", At::Cwd, "/link", flags), refused);
    }
    assert_eq!(vfs.chmod(&reader, At::Cwd, "/file", 0o777, FOLLOW), refused);
    assert_eq!(vfs.chown(&reader, At::Cwd, "/file", Some(1), None, FOLLOW), refused);
    assert_eq!(vfs.utimens(&reader, At::Cwd, "/file", SetTime::Now, SetTime::Now, FOLLOW), refused);
    assert_eq!(vfs.truncate(&reader, At::Cwd, "/file", 1), refused);
    let file = vfs.lookup(&reader, At::Cwd, "/file", FOLLOW).expect("there");
    let cut = SetAttr { size: Some(1), ..SetAttr::default() };
    assert_eq!(vfs.setattr(&reader, &file, &cut).map(drop), refused);
    for name in ["user.a", "trusted.a", "security.a"] {
        assert_eq!(vfs.setxattr(&reader, At::Cwd, "/file", name, b"w", XattrFlags::empty(), FOLLOW), refused);
        assert_eq!(vfs.removexattr(&reader, At::Cwd, "/file", name, FOLLOW), refused);
    }
    assert_eq!(vfs.access(&reader, At::Cwd, "/file", Access::WRITE, FOLLOW), refused);
    assert_eq!(vfs.mount(&reader, At::Cwd, "/d", driver(None)), refused);
    assert_eq!(vfs.umount(&reader, At::Cwd, "/mounted"), refused);
    assert_eq!(names(&vfs, &root, "/mounted"), [".", "..", "x"]);
    // Looking is allowed, and leaves no trace.
    assert_eq!(vfs.access(&reader, At::Cwd, "/file", Access::READ, FOLLOW), Ok(()));
    assert_eq!(vfs.open(&reader, At::Cwd, "/file", OpenFlags::RDONLY, 0).expect("opens").read(&mut [0; 9]), Ok(0));
    assert_eq!(vfs.readlink(&reader, At::Cwd, "/link", FOLLOW), Ok(b"file".to_vec()));
    assert_eq!(names(&vfs, &reader, "/").len(), 6);
    assert_eq!(all(), before);
}

#[test]
fn what_belongs_to_another_tree_is_refused() {
    let ((vfs, context), (other, others)) = (tree(), tree());
    vfs.mkdir(&context, At::Cwd, "/d", 0o777).expect("made");
    let theirs = other.mkdir(&others, At::Cwd, "/d", 0o777).expect("made");
    assert_eq!(vfs.stat(&context, At::Dir(&theirs), "..", FOLLOW).err(), Some(Error::CrossDevice));
    assert_eq!(vfs.stat(&context, At::Dir(&theirs), "", Walk::EMPTY_PATH).err(), Some(Error::CrossDevice));
    assert_eq!(vfs.stat(&others, At::Cwd, "/d", FOLLOW).err(), Some(Error::CrossDevice));
    assert_eq!(vfs.mkdir(&context, At::Dir(&theirs), "e", 0o777).err(), Some(Error::CrossDevice));
    let moved = vfs.rename(&context, At::Cwd, "/d", At::Dir(&theirs), "e", RenameFlags::empty());
    assert_eq!(moved, Err(Error::CrossDevice));
    assert_eq!(names(&other, &others, "/d"), [".", ".."]);
}

#[test]
fn a_mode_is_permission_bits() {
    let (vfs, context) = tree();
    let context = context.with_umask(0);
    for (name, mode) in [("/a", 0o100_644), ("/b", 0o40_755), ("/c", u32::MAX)] {
        let file = vfs.open(&context, At::Cwd, name, RW | OpenFlags::CREAT, mode).expect("made");
        assert_eq!((file.stat().mode, file.stat().kind), (mode & 0o7777, FileKind::File));
    }
}
