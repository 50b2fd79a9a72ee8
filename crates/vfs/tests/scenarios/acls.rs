//! POSIX ACLs. The oracle compares what they permit with Linux.

use pando_vfs::{Access, At, Context, Credentials, Error, FileKind, OpenFlags, Result, Vfs, Walk, XattrFlags};

use super::{
    FOLLOW, RW,
    acl::{ACCESS, DEFAULT, GROUP_OBJ, MASK, OTHER, USER as NAMED, USER_OBJ, acl, value},
    names, touch, tree,
};

const USER: u32 = 1000;

fn set(vfs: &Vfs, context: &Context, path: &str, name: &str, value: &[u8]) -> Result<()> {
    vfs.setxattr(context, At::Cwd, path, name, value, XattrFlags::empty(), FOLLOW)
}

fn get(vfs: &Vfs, path: &str, name: &str) -> Result<Vec<u8>> {
    vfs.getxattr(&Context::new(vfs, Credentials::root()), At::Cwd, path, name, FOLLOW)
}

fn users(vfs: &Vfs) -> [Context; 2] {
    [USER, 2000].map(|uid| Context::new(vfs, Credentials::user(uid, uid, &[])))
}

#[test]
fn an_acl_lets_a_user_in_and_keeps_a_user_out() {
    let (vfs, root) = tree();
    vfs.mkdir(&root, At::Cwd, "/d", 0o700).expect("made");
    touch(&vfs, &root, "/d/f");
    let [user, other] = users(&vfs);
    let tries = |context: &Context| {
        [
            vfs.stat(context, At::Cwd, "/d/f", FOLLOW).map(drop),
            vfs.open(context, At::Cwd, "/d", OpenFlags::DIRECTORY, 0).map(drop),
            vfs.open(context, At::Cwd, "/d/new", RW | OpenFlags::CREAT, 0o600).map(drop),
            vfs.unlink(context, At::Cwd, "/d/new"),
            vfs.access(context, At::Cwd, "/d", Access::WRITE, FOLLOW),
        ]
    };
    let (all, none) = ([Ok(()); 5], [Err(Error::Access); 5]);
    for _ in 0..3 {
        assert_eq!((tries(&user), tries(&other)), (none, none));
        set(&vfs, &root, "/d", ACCESS, &acl(0o700, USER, 7)).expect("set");
        assert_eq!((tries(&user), tries(&other)), (all, none));
        set(&vfs, &root, "/d", ACCESS, &acl(0o707, USER, 0)).expect("set");
        assert_eq!((tries(&user), tries(&other)), (none, all));
        // The mask stands in the mode. Without it the ACL has no say.
        vfs.chmod(&root, At::Cwd, "/d", 0o707, FOLLOW).expect("changed");
        assert_eq!((tries(&user), tries(&other)), (all, all));
        vfs.removexattr(&root, At::Cwd, "/d", ACCESS, FOLLOW).expect("removed");
        vfs.chmod(&root, At::Cwd, "/d", 0o700, FOLLOW).expect("changed");
    }
    assert_eq!(set(&vfs, &user, "/d/f", ACCESS, &acl(0o777, USER, 7)), Err(Error::Access), "no way to the file");
    set(&vfs, &root, "/d", ACCESS, &acl(0o700, USER, 7)).expect("set");
    assert_eq!(set(&vfs, &user, "/d/f", ACCESS, &acl(0o777, USER, 7)), Err(Error::NotPermitted), "not the owner");
    let reader = root.clone().read_only(true);
    assert_eq!(set(&vfs, &reader, "/d/f", ACCESS, &acl(0o777, USER, 7)), Err(Error::ReadOnly));
    assert_eq!(vfs.removexattr(&reader, At::Cwd, "/d/f", ACCESS, FOLLOW), Err(Error::ReadOnly));
}

/// Whatever the cache has forgotten meanwhile.
#[test]
fn acls_stay_and_are_inherited() {
    let (vfs, root) = tree();
    vfs.mkdir(&root, At::Cwd, "/d", 0o755).expect("made");
    let (access, default) = (acl(0o750, USER, 6), acl(0o770, USER, 5));
    set(&vfs, &root, "/d", ACCESS, &access).expect("set");
    set(&vfs, &root, "/d", DEFAULT, &default).expect("set");
    set(&vfs, &root, "/d", "user.name", b"value").expect("set");
    vfs.evict(usize::MAX).expect("evicted");
    let masked = root.clone().with_umask(0o777);
    vfs.mkdir(&masked, At::Cwd, "/d/sub", 0o777).expect("made");
    vfs.open(&masked, At::Cwd, "/d/file", RW | OpenFlags::CREAT, 0o666).expect("made");
    vfs.symlink(&masked, "file", At::Cwd, "/d/link").expect("made");
    let file = vfs.open(&masked, At::Cwd, "/d", RW | OpenFlags::TMPFILE | OpenFlags::DIRECTORY, 0o600).expect("made");
    vfs.link(&masked, At::Dir(file.dentry()), "", At::Cwd, "/d/linked", Walk::EMPTY_PATH).expect("linked");
    drop(file);
    let mode = |path: &str| vfs.stat(&root, At::Cwd, path, Walk::NOFOLLOW).map(|stat| stat.mode);
    for _ in 0..2 {
        vfs.evict(usize::MAX).expect("evicted");
        assert_eq!((get(&vfs, "/d", ACCESS), get(&vfs, "/d", DEFAULT)), (Ok(access.clone()), Ok(default.clone())));
        assert_eq!(
            [mode("/d"), mode("/d/sub"), mode("/d/file"), mode("/d/link"), mode("/d/linked")],
            [Ok(0o770), Ok(0o770), Ok(0o660), Ok(0o777), Ok(0o600)]
        );
        assert_eq!(
            (get(&vfs, "/d/sub", ACCESS), get(&vfs, "/d/sub", DEFAULT)),
            (Ok(default.clone()), Ok(default.clone()))
        );
        let inherited = get(&vfs, "/d/file", ACCESS).expect("inherited");
        assert_eq!((inherited.len(), get(&vfs, "/d/file", DEFAULT)), (default.len(), Err(Error::NoData)));
        assert!(get(&vfs, "/d/linked", ACCESS).is_ok());
        let list = |path: &str| vfs.listxattr(&root, At::Cwd, path, Walk::NOFOLLOW).expect("lists");
        assert_eq!(list("/d"), [ACCESS, DEFAULT, "user.name"].map(|name| name.as_bytes().to_vec()));
        assert_eq!(list("/d/link"), Vec::<Vec<u8>>::new());
    }
    assert_eq!(names(&vfs, &root, "/d"), [".", "..", "file", "link", "linked", "sub"]);
    let kind = vfs.lookup(&root, At::Cwd, "/d/link", Walk::NOFOLLOW).expect("found").kind();
    assert_eq!(kind, FileKind::Symlink);
}

/// The kernel could not read a longer one from a mount.
#[test]
fn an_acl_has_at_most_511_entries() {
    let (vfs, root) = tree();
    touch(&vfs, &root, "/f");
    let with = |entries: u32| {
        let named = (0..entries - 4).map(|uid| (NAMED, 4, uid));
        let all = [(USER_OBJ, 6, 0)].into_iter().chain(named).chain([(GROUP_OBJ, 4, 0), (MASK, 4, 0), (OTHER, 0, 0)]);
        value(&all.collect::<Vec<_>>())
    };
    set(&vfs, &root, "/f", ACCESS, &with(511)).expect("set");
    assert_eq!(set(&vfs, &root, "/f", ACCESS, &with(512)), Err(Error::NoSpace));
    assert_eq!(get(&vfs, "/f", ACCESS), Ok(with(511)));
}
