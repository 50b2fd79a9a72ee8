//! Attributes: permissions, times, extended attributes.

use pando_vfs::{
    Access, At, Context, Credentials, Error, FileKind, OpenFlags, RenameFlags, Result, SetAttr, SetTime, Timestamp,
    Vfs, Walk, XattrFlags,
};

use super::{FOLLOW, RW, names, touch, tree};
use crate::driver;

type Change = fn(&Vfs, &Context) -> Result<()>;

/// Each way to change the contents of `/f`.
const CHANGES_OF_CONTENTS: [Change; 6] = [
    |vfs, caller| vfs.open(caller, At::Cwd, "/f", RW, 0)?.write(b"x").map(drop),
    |vfs, caller| vfs.open(caller, At::Cwd, "/f", RW, 0)?.pwrite(b"x", 9).map(drop),
    |vfs, caller| vfs.open(caller, At::Cwd, "/f", RW, 0)?.fallocate(0, 0, 9),
    |vfs, caller| vfs.open(caller, At::Cwd, "/f", RW, 0)?.truncate(3),
    |vfs, caller| vfs.open(caller, At::Cwd, "/f", RW | OpenFlags::TRUNC, 0).map(drop),
    |vfs, caller| vfs.truncate(caller, At::Cwd, "/f", 3),
];

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
        vfs.setattr(context, &found, &SetAttr::new().size(0)).map(|stat| stat.size)
    };
    assert_eq!((cut(&user, "/tmp/roots"), cut(&user, "/tmp")), (Err(Error::Access), Err(Error::IsDirectory)));
    let checked = user.clone().checked_by_caller(true);
    assert_eq!(cut(&checked, "/tmp/roots"), Ok(0));
    assert_eq!(vfs.chmod(&checked, At::Cwd, "/tmp/roots", 0o644, FOLLOW), Ok(()), "as if it were the owner");
    let device = |context| vfs.mknod(context, At::Cwd, "/tmp/device", 0o060_600, 1).map(drop);
    assert_eq!((device(&user), device(&checked)), (Err(Error::NotPermitted), Ok(())), "as if it were capable");
    assert_eq!(vfs.chown(&user, At::Cwd, "/tmp/users", Some(0), None, FOLLOW), Err(Error::NotPermitted));
    vfs.chmod(&user, At::Cwd, "/tmp/users", 0o4755, FOLLOW).expect("setuid");
    vfs.chown(&root, At::Cwd, "/tmp/users", Some(1001), None, FOLLOW).expect("given away");
    for (uid, gid) in [(Some(u32::MAX), None), (Some(0), Some(u32::MAX))] {
        assert_eq!(vfs.chown(&root, At::Cwd, "/tmp/users", uid, gid, FOLLOW), Err(Error::Invalid), "the invalid id");
    }
    let stat = vfs.stat(&root, At::Cwd, "/tmp/users", FOLLOW).expect("there");
    assert_eq!((stat.mode, stat.uid), (0o755, 1001), "setuid does not go with the file");
    vfs.chmod(&root, At::Cwd, "/tmp", 0o700, FOLLOW).expect("closed");
    assert_eq!(vfs.stat(&user, At::Cwd, "/tmp/users", FOLLOW), Err(Error::Access));
}

/// A caller that may not write to a directory, or not search it, changes no name in it, whatever it
/// may do to the files there.
#[test]
fn name_changes_need_write_and_search_permission() {
    const NONE: RenameFlags = RenameFlags::empty();
    let changes: [Change; 11] = [
        |vfs, user| vfs.mkdir(user, At::Cwd, "/d/new", 0o755).map(drop),
        |vfs, user| vfs.mknod(user, At::Cwd, "/d/new", 0o010_600, 0).map(drop),
        |vfs, user| vfs.symlink(user, "x", At::Cwd, "/d/new").map(drop),
        |vfs, user| vfs.link(user, At::Cwd, "/own/f", At::Cwd, "/d/new", FOLLOW).map(drop),
        |vfs, user| vfs.open(user, At::Cwd, "/d/new", RW | OpenFlags::CREAT, 0o600).map(drop),
        |vfs, user| vfs.unlink(user, At::Cwd, "/d/f"),
        |vfs, user| vfs.rmdir(user, At::Cwd, "/d/e"),
        |vfs, user| vfs.rename(user, At::Cwd, "/d/f", At::Cwd, "/own/new", NONE),
        |vfs, user| vfs.rename(user, At::Cwd, "/own/f", At::Cwd, "/d/new", NONE),
        |vfs, user| vfs.rename(user, At::Cwd, "/own/f", At::Cwd, "/d/f", NONE),
        |vfs, user| vfs.rename(user, At::Cwd, "/d/e", At::Cwd, "/own/e", RenameFlags::EXCHANGE),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (vfs, root) = tree();
        let user = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
        for dir in ["/d", "/d/e", "/own", "/own/e"] {
            vfs.mkdir(&root, At::Cwd, dir, 0o755).expect("made");
        }
        for file in ["/d/f", "/own/f"] {
            touch(&vfs, &root, file);
        }
        for path in ["/d/e", "/d/f", "/own", "/own/e", "/own/f"] {
            vfs.chown(&root, At::Cwd, path, Some(1000), Some(1000), FOLLOW).expect("given");
        }
        for mode in [0o755, 0o776, 0o750] {
            vfs.chmod(&root, At::Cwd, "/d", mode, FOLLOW).expect("changed");
            assert_eq!(change(&vfs, &user), Err(Error::Access), "{number} {mode:o}");
        }
        vfs.chmod(&root, At::Cwd, "/d", 0o777, FOLLOW).expect("changed");
        assert_eq!(change(&vfs, &user), Ok(()), "{number}");
    }
}

/// A caller that is neither capable nor in the file's group drops setuid and setgid when it changes
/// the contents.
#[test]
fn content_changes_drop_setuid_and_setgid() {
    let by_request: Change = |vfs, caller| {
        vfs.file_remove_privs(&vfs.lookup(caller, At::Cwd, "/f", FOLLOW)?, || Credentials::user(9, 9, &[]))
    };
    let (vfs, root) = tree();
    let user = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    touch(&vfs, &root, "/f");
    for (number, change) in CHANGES_OF_CONTENTS.into_iter().chain([by_request]).enumerate() {
        for (given, left) in [(0o6777, 0o777), (0o2777, 0o777), (0o2767, 0o767), (0o6767, 0o767)] {
            // The last one is for servers, which are capable themselves.
            for (caller, left) in
                [(&user, left), (&root, if number == CHANGES_OF_CONTENTS.len() { left } else { given })]
            {
                vfs.chmod(&root, At::Cwd, "/f", given, FOLLOW).expect("given");
                assert_eq!(change(&vfs, caller), Ok(()), "{number}");
                let mode = vfs.stat(&root, At::Cwd, "/f", FOLLOW).map(|stat| stat.mode);
                assert_eq!(mode, Ok(left), "{number} {given:o}");
            }
        }
    }
    let dir = vfs.mkdir(&root, At::Cwd, "/d", 0o755).expect("made");
    vfs.chmod(&root, At::Cwd, "/d", 0o6777, FOLLOW).expect("given");
    assert_eq!(
        (vfs.file_remove_privs(&dir, || Credentials::user(9, 9, &[])), dir.stat().mode),
        (Ok(()), 0o6777),
        "of files only"
    );
}

/// The mode bits that depend on the owner, the group, or the caller's membership in the group.
#[test]
fn chmod_and_chown_check_the_caller() {
    let (vfs, root) = tree();
    let owner = Context::new(&vfs, Credentials::user(1000, 1000, &[2000])).with_umask(0);
    let other = Context::new(&vfs, Credentials::user(1001, 1001, &[3000]));
    touch(&vfs, &root, "/f");
    let give = |gid, mode| {
        vfs.chown(&root, At::Cwd, "/f", Some(1000), Some(gid), FOLLOW).expect("given");
        vfs.chmod(&root, At::Cwd, "/f", mode, FOLLOW).expect("changed");
    };
    let chown = |context: &Context, uid, gid| vfs.chown(context, At::Cwd, "/f", uid, gid, FOLLOW);
    let stat = || vfs.stat(&root, At::Cwd, "/f", FOLLOW).map(|stat| (stat.mode, stat.uid, stat.gid)).expect("there");
    let denied = Err(Error::NotPermitted);
    give(1000, 0o644);
    assert_eq!((chown(&owner, Some(1000), None), chown(&owner, None, Some(2000))), (Ok(()), Ok(())));
    assert_eq!((chown(&owner, Some(1001), None), chown(&owner, None, Some(3000))), (denied, denied));
    assert_eq!((chown(&other, None, Some(3000)), chown(&other, Some(1000), None)), (denied, denied));
    assert_eq!(stat(), (0o644, 1000, 2000));
    // A chmod keeps setgid for members of the group, and uses only permission bits.
    for (gid, mode) in [(2000, 0o2755), (3000, 0o755)] {
        give(gid, 0o644);
        assert_eq!(vfs.chmod(&owner, At::Cwd, "/f", 0o102_755, FOLLOW), Ok(()));
        assert_eq!(stat(), (mode, 1000, gid));
    }
    // A chown drops setuid. It drops setgid if the group may execute the file, or if the caller is
    // not in the group.
    for (gid, given, left) in [(2000, 0o6755, 0o755), (2000, 0o2745, 0o2745), (3000, 0o2745, 0o745)] {
        give(gid, given);
        assert_eq!((chown(&owner, None, None), stat()), (Ok(()), (left, 1000, gid)));
    }
    give(2000, 0o4755);
    vfs.setxattr(&root, At::Cwd, "/f", "security.capability", "v", XattrFlags::empty(), FOLLOW).expect("set");
    assert_eq!((chown(&other, None, None), chown(&other, Some(1001), None)), (denied, denied));
    assert!(vfs.getxattr(&root, At::Cwd, "/f", "security.capability", FOLLOW).is_ok(), "refused, it takes nothing");
    vfs.symlink(&root, "f", At::Cwd, "/l").expect("made");
    assert_eq!(vfs.chmod(&root, At::Cwd, "/l", 0o600, Walk::NOFOLLOW), Err(Error::NotSupported));
    // Times that are both set to now need only write permission.
    let utimens = |context: &Context, atime, mtime| vfs.utimens(context, At::Cwd, "/f", atime, mtime, FOLLOW);
    assert_eq!(utimens(&other, SetTime::Now, SetTime::Now), Err(Error::Access));
    give(2000, 0o666);
    assert_eq!((utimens(&other, SetTime::Now, SetTime::Now), utimens(&other, SetTime::Now, SetTime::Omit)), {
        (Ok(()), denied)
    });
    // Files and directories made in a directory with setgid.
    vfs.mkdir(&root, At::Cwd, "/d", 0o777).expect("made");
    for (gid, file) in [(2000, 0o2770), (3000, 0o770)] {
        vfs.chown(&root, At::Cwd, "/d", None, Some(gid), FOLLOW).expect("given");
        vfs.chmod(&root, At::Cwd, "/d", 0o2777, FOLLOW).expect("changed");
        let made = vfs.open(&owner, At::Cwd, format!("/d/f{gid}"), OpenFlags::CREAT, 0o2770).expect("made").stat();
        assert_eq!((made.mode, made.gid), (file, gid));
        let made = vfs.mkdir(&owner, At::Cwd, format!("/d/d{gid}"), 0o6700).expect("made").stat();
        assert_eq!((made.mode, made.gid), (0o2700, gid));
    }
}

/// In a world-writable sticky directory, O_CREAT opens no socket or device that another user has
/// put there.
#[test]
fn o_creat_opens_no_foreign_device_in_a_sticky_directory() {
    let (vfs, root) = tree();
    let users = [1000, 1001, 1002].map(|id| Context::new(&vfs, Credentials::user(id, id, &[])).with_umask(0));
    vfs.mkdir(&root, At::Cwd, "/tmp", 0o777).expect("made");
    vfs.chown(&root, At::Cwd, "/tmp", Some(1000), None, FOLLOW).expect("given");
    vfs.chmod(&root, At::Cwd, "/tmp", 0o1777, FOLLOW).expect("sticky");
    for (name, user) in ["/tmp/0", "/tmp/1"].into_iter().zip(&users) {
        vfs.mknod(user, At::Cwd, name, 0o140_666, 0).expect("made");
    }
    let open = |name, user: usize| vfs.open(&users[user], At::Cwd, name, RW | OpenFlags::CREAT, 0o600).err();
    let (found, refused) = (Some(Error::NoDeviceAddress), Some(Error::Access));
    assert_eq!((open("/tmp/0", 2), open("/tmp/1", 1), open("/tmp/1", 2)), (found, found, refused));
    vfs.chmod(&root, At::Cwd, "/tmp", 0o1775, FOLLOW).expect("changed");
    assert_eq!(open("/tmp/1", 2), found);
}

#[test]
fn readdir_plus_needs_search_permission() {
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
fn times_are_set_and_increase() {
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
    let empty = vfs.open(&context, At::Cwd, "/empty", RW | OpenFlags::CREAT, 0o644).expect("made");
    for (if_resized, stamped) in [(true, false), (false, true)] {
        let (before, same) = (empty.stat().mtime, SetAttr::new().size(0).if_resized(if_resized));
        let mtime = vfs.setattr(&context, empty.dentry(), &same).expect("set").mtime;
        assert_eq!(mtime > before, stamped);
    }
    assert_eq!(file.pread(&mut [], 0), Ok(0));
    assert!(file.stat().atime > old, "a read of zero bytes updates atime, as on tmpfs");
    vfs.utimens(&context, At::Cwd, "/", SetTime::Omit, SetTime::At(old), FOLLOW).expect("set");
    assert_eq!(vfs.stat(&context, At::Cwd, "/", FOLLOW).map(|s| s.mtime), Ok(old));
    touch(&vfs, &context, "/b");
    assert!(vfs.stat(&context, At::Cwd, "/", FOLLOW).expect("there").mtime > old);
}

#[test]
fn xattrs_by_namespace() {
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
    assert_eq!((set(b""), set(b"user."), set(&[b"user.", &[b'x'; 251][..]].concat())), {
        (Err(Error::Range), Err(Error::Invalid), Err(Error::Range))
    });
    let value = |len, how| vfs.setxattr(&root, At::Cwd, "/a", "user.v", vec![1; len], how, FOLLOW);
    assert_eq!((value(65_536, any), value(65_537, any)), (Ok(()), Err(Error::ArgListTooLong)));
    assert_eq!(value(1, XattrFlags::from_bits_retain(4)), Err(Error::Invalid));
    assert_eq!(vfs.removexattr(&root, At::Cwd, "/a", "user.v", FOLLOW), Ok(()));
    let set = |name| vfs.setxattr(&user, At::Cwd, "/a", name, "v", any, FOLLOW);
    assert_eq!((set("security.k"), set("trusted.k")), (Err(Error::NotPermitted), Err(Error::NotPermitted)));
    assert_eq!(vfs.removexattr(&root, At::Cwd, "/a", "user.k", FOLLOW), Ok(()));
    assert_eq!(vfs.removexattr(&root, At::Cwd, "/a", "user.k", FOLLOW), Err(Error::NoData));
}

/// No thread undoes the change of another.
#[test]
fn concurrent_xattr_changes_do_not_undo_each_other() {
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
fn xattr_names_are_limited_to_the_list_size() {
    let (vfs, context) = tree();
    touch(&vfs, &context, "/a");
    let set = |name: &str| vfs.setxattr(&context, At::Cwd, "/a", name, b"", XattrFlags::empty(), FOLLOW);
    let name = |n| format!("user.{n:0>250}");
    (0..256).for_each(|n| set(&name(n)).expect("in all 65536 bytes, with a NUL behind each"));
    assert_eq!((set("user.x"), set(&name(7))), (Err(Error::NoSpace), Ok(())));
    assert_eq!(vfs.listxattr(&context, At::Cwd, "/a", FOLLOW).map(|names| names.len()), Ok(256));
    vfs.removexattr(&context, At::Cwd, "/a", name(7), FOLLOW).expect("there");
    assert_eq!(set(&format!("user.{}", "x".repeat(95))), Ok(()));
    let last = |len| set(&format!("user.{}", "y".repeat(len)));
    assert_eq!((last(150), last(149)), (Err(Error::NoSpace), Ok(())), "to the byte");
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
    vfs.mknod(&root, At::Cwd, "/mounted/fifo", 0o010_600, 0).expect("made");
    vfs.symlink(&root, "file", At::Cwd, "/link").expect("made");
    vfs.setxattr(&root, At::Cwd, "/file", "user.a", b"v", XattrFlags::empty(), FOLLOW).expect("set");
    for path in ["/", "/d", "/file", "/link"] {
        vfs.utimens(&root, At::Cwd, path, long_ago, long_ago, Walk::NOFOLLOW).expect("set");
    }
    let all =
        || ["/", "/d", "/file", "/link"].map(|path| vfs.stat(&root, At::Cwd, path, Walk::NOFOLLOW).expect("there"));
    let before = all();
    let reader = root.clone().read_only(true);
    let refused: Result<()> = Err(Error::ReadOnly);
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
    assert_eq!((vfs.unlink(&reader, At::Cwd, "/"), vfs.rmdir(&reader, At::Cwd, "/d/.")), {
        (Err(Error::IsDirectory), Err(Error::Invalid))
    });
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
    let cut = SetAttr::new().size(1);
    assert_eq!(vfs.setattr(&reader, &file, &cut).map(drop), refused);
    for name in ["user.a", "trusted.a", "security.a"] {
        assert_eq!(vfs.setxattr(&reader, At::Cwd, "/file", name, b"w", XattrFlags::empty(), FOLLOW), refused);
        assert_eq!(vfs.removexattr(&reader, At::Cwd, "/file", name, FOLLOW), refused);
    }
    assert_eq!(vfs.access(&reader, At::Cwd, "/file", Access::WRITE, FOLLOW), refused);
    assert_eq!(vfs.mount(&reader, At::Cwd, "/d", driver(None)), refused);
    assert_eq!(vfs.umount(&reader, At::Cwd, "/mounted"), refused);
    assert_eq!(names(&vfs, &root, "/mounted"), [".", "..", "fifo", "x"]);
    assert_eq!(vfs.access(&reader, At::Cwd, "/mounted/fifo", Access::WRITE, FOLLOW), Ok(()), "it holds nothing");
    // Reads are allowed, and change nothing.
    assert_eq!(vfs.access(&reader, At::Cwd, "/file", Access::READ, FOLLOW), Ok(()));
    assert_eq!(vfs.open(&reader, At::Cwd, "/file", OpenFlags::RDONLY, 0).expect("opens").read(&mut [0; 9]), Ok(0));
    assert_eq!(vfs.readlink(&reader, At::Cwd, "/link", FOLLOW), Ok(b"file".to_vec()));
    assert_eq!(names(&vfs, &reader, "/").len(), 6);
    assert_eq!(all(), before);
}

#[test]
fn create_uses_only_permission_bits_of_the_mode() {
    let (vfs, context) = tree();
    let context = context.with_umask(0);
    for (name, mode) in [("/a", 0o100_644), ("/b", 0o40_755), ("/c", u32::MAX)] {
        let file = vfs.open(&context, At::Cwd, name, RW | OpenFlags::CREAT, mode).expect("made");
        assert_eq!((file.stat().mode, file.stat().kind), (mode & 0o7777, FileKind::File));
    }
    let context = context.with_umask(u32::MAX);
    let file = vfs.open(&context, At::Cwd, "/d", RW | OpenFlags::CREAT, 0o4755).expect("made");
    assert_eq!(file.stat().mode, 0o4000, "a mask is of nine bits");
}

/// Capabilities belong to the contents and the owner of a file. A change of either drops them, even
/// by root.
#[test]
fn content_and_owner_changes_drop_capabilities() {
    const CAPABILITIES: &str = "security.capability";
    let changes_of_owner: [Change; 2] = [
        |vfs, root| vfs.chown(root, At::Cwd, "/f", Some(1), None, FOLLOW),
        |vfs, root| vfs.chown(root, At::Cwd, "/f", None, None, FOLLOW),
    ];
    let leaves: [Change; 4] = [
        |vfs, root| vfs.open(root, At::Cwd, "/f", RW, 0)?.write(b"").map(drop),
        |vfs, root| vfs.chmod(root, At::Cwd, "/f", 0o700, FOLLOW),
        |vfs, root| vfs.utimens(root, At::Cwd, "/f", SetTime::Now, SetTime::Now, FOLLOW),
        |vfs, root| vfs.chown(root, At::Cwd, "/d", Some(1), None, FOLLOW),
    ];
    let takes_away = CHANGES_OF_CONTENTS.into_iter().chain(changes_of_owner);
    let cases = takes_away.map(|change| (change, false)).chain(leaves.map(|change| (change, true)));
    for (number, (change, stay)) in cases.enumerate() {
        for evicted in [false, true] {
            let (vfs, root) = tree();
            vfs.mkdir(&root, At::Cwd, "/d", 0o755).expect("made");
            vfs.open(&root, At::Cwd, "/f", RW | OpenFlags::CREAT, 0o755).expect("made").write(b"abc").expect("written");
            for (path, name) in [("/f", CAPABILITIES), ("/f", "user.k"), ("/d", CAPABILITIES)] {
                vfs.setxattr(&root, At::Cwd, path, name, b"v", XattrFlags::empty(), FOLLOW).expect("set");
            }
            if evicted {
                vfs.evict(usize::MAX).expect("stored");
            }
            assert_eq!(change(&vfs, &root), Ok(()), "{number}");
            vfs.evict(usize::MAX).expect("stored");
            let has = |path, name| vfs.getxattr(&root, At::Cwd, path, name, FOLLOW).is_ok();
            assert_eq!(has("/f", CAPABILITIES), stay, "{number}, evicted before: {evicted}");
            assert!(has("/f", "user.k") && has("/d", CAPABILITIES), "{number}");
        }
    }
}
