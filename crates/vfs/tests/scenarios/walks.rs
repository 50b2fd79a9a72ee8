//! Path walks: symbolic links, mounts, roots, and paths that lead nowhere.

use pando_vfs::{At, Context, Credentials, Error, FileKind, OpenFlags, RenameFlags, Resolve, Walk};

use super::{FOLLOW, RW, names, touch, tree};
use crate::{TRAITS, driver};

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
    vfs.symlink(&context, "/d/f", At::Cwd, "/1").expect("made");
    (2..=41).for_each(|n| drop(vfs.symlink(&context, format!("{}", n - 1), At::Cwd, format!("/{n}")).expect("made")));
    let chain = |links: u32| vfs.stat(&context, At::Cwd, format!("/{links}"), FOLLOW).map(|stat| stat.ino);
    assert_eq!((chain(40), chain(41)), (Ok(ino), Err(Error::Loop)));
    for path in ["/d/f/", "/l/f/", "/1/", "/d/back/", "/d/f/x"] {
        assert_eq!(vfs.stat(&context, At::Cwd, path, FOLLOW).err(), Some(Error::NotDirectory), "{path}");
    }
    assert_eq!(vfs.readlink(&context, At::Cwd, "/d", FOLLOW), Err(Error::Invalid));
}

#[test]
fn mounts_are_crossed_and_protected() {
    let (vfs, context) = tree();
    for dir in ["/m", "/m/below", "/n"] {
        vfs.mkdir(&context, At::Cwd, dir, 0o777).expect("made");
    }
    let [point, below] = ["/m", "/m/below"].map(|path| vfs.lookup(&context, At::Cwd, path, FOLLOW).expect("made"));
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
    let number = |dir: &str, name: &[u8]| {
        let dir = vfs.open(&context, At::Cwd, dir, OpenFlags::DIRECTORY, 0).expect("opens");
        let mut number = None;
        dir.readdir(0, |entry| {
            number = number.or((entry.name == name).then_some(entry.ino));
            true
        })
        .expect("lists");
        number
    };
    assert_eq!((number("/", b"m"), number("/m", b"..")), (Some(point.ino()), Some(root.ino)), "as getdents has it");
    let above = vfs.stat(&context, At::Dir(&below), "..", FOLLOW).map(|stat| stat.dev);
    assert_eq!(above, Ok(mounted.dev), "from under a mount, up is into it");
    let limited = |limit| vfs.d_path(&context, file.dentry(), limit).is_ok();
    assert_eq!((limited(5), limited(6)), (false, true));
    let none = RenameFlags::empty();
    assert_eq!(vfs.rename(&context, At::Cwd, "/m/x", At::Cwd, "/x", none), Err(Error::CrossDevice));
    for (context, error) in [(context.clone(), Error::CrossDevice), (context.clone().read_only(true), Error::ReadOnly)]
    {
        assert_eq!(vfs.link(&context, At::Cwd, "/m/x/f", At::Cwd, "/x", FOLLOW).err(), Some(error));
    }
    assert_eq!(vfs.rename(&context, At::Cwd, "/m", At::Cwd, "/x", none), Err(Error::Busy));
    assert_eq!(vfs.rmdir(&context, At::Cwd, "/m"), Err(Error::Busy));
    for (at, path) in [(At::Cwd, "/m"), (At::Dir(&point), ".")] {
        assert_eq!(vfs.mount(&context, at, path, driver(None)), Err(Error::Busy), "{path}");
    }
    assert_eq!(vfs.umount(&context, At::Cwd, "/n"), Err(Error::Invalid));
    let root = vfs.lookup(&context, At::Cwd, "/m", FOLLOW).expect("mounted");
    // Inodes are found by number and forgotten in each mounted tree, unless another inode may have
    // the same number.
    let ino = file.dentry().ino();
    let known = || vfs.exports().ilookup(ino).is_some();
    let remembered = if TRAITS.unique_numbers { Ok(()) } else { Err(Error::CrossDevice) };
    assert_eq!(vfs.exports().remember(file.dentry(), 1), remembered);
    assert_eq!(known(), TRAITS.unique_numbers);
    vfs.exports().forget(ino, 1);
    assert_eq!(known(), TRAITS.unique_numbers, "it has a name");
    assert_eq!(vfs.exports().remember(file.dentry(), 1), remembered);
    vfs.exports().forget_all();
    assert!(!known());
    assert_eq!(vfs.mount(&context, At::Cwd, "/m/x/f", driver(None)), Err(Error::NotDirectory));
    vfs.mount(&context, At::Cwd, "/m/x", driver(None)).expect("mounted");
    assert_eq!(vfs.umount(&context, At::Cwd, "/m"), Err(Error::Busy), "something is mounted in it");
    assert_eq!(vfs.umount(&context, At::Cwd, "/m/x"), Ok(()));
    assert_eq!(vfs.umount(&context, At::Cwd, "/m/x"), Err(Error::Invalid), "a directory of it is not its root");
    assert_eq!(vfs.umount(&context, At::Cwd, "/m"), Ok(()));
    assert_eq!(vfs.mkdir(&context, At::Dir(&root), "late", 0o777).err(), Some(Error::Stale));
    assert_eq!(names(&vfs, &context, "/m"), [".", "..", "below"]);
    assert_eq!(file.write(b"still open"), Ok(10));
}

/// EBUSY for a mount point is the last error. A caller that may not move it, or not to this place,
/// gets that error instead.
#[test]
fn ebusy_of_a_mount_point_is_the_last_error() {
    const NONE: RenameFlags = RenameFlags::empty();
    let (vfs, root) = tree();
    for dir in ["/own", "/own/m", "/own/n", "/own/d", "/own/full", "/own/full/d", "/own/low", "/d", "/d/m", "/tmp"] {
        vfs.mkdir(&root, At::Cwd, dir, 0o755).expect("made");
        if dir.starts_with("/own") && dir != "/own/low" {
            vfs.chown(&root, At::Cwd, dir, Some(1000), Some(1000), FOLLOW).expect("given");
        }
    }
    for dir in ["/tmp/d", "/tmp/m"] {
        vfs.mkdir(&root, At::Cwd, dir, 0o755).expect("made");
    }
    vfs.chmod(&root, At::Cwd, "/tmp", 0o1777, FOLLOW).expect("sticky");
    for file in ["/own/f", "/tmp/f"] {
        touch(&vfs, &root, file);
    }
    for point in ["/own/m", "/own/n", "/own/low", "/d/m", "/tmp/m"] {
        vfs.mount(&root, At::Cwd, point, driver(None)).expect("mounted");
    }
    let user = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    let (busy, access, sticky) = (Error::Busy, Error::Access, Error::NotPermitted);
    let (no_dir, is_dir) = (Error::NotDirectory, Error::IsDirectory);
    // The errors for the user, and for root.
    for (old, new, how, refused) in [
        ("/own/m", "/own/new", NONE, [busy, busy]),
        ("/own/m", "/d/new", NONE, [access, busy]),
        ("/own/m", "/own/f", NONE, [no_dir, no_dir]),
        ("/own/m", "/own/full", NONE, [busy, busy]),
        ("/own/m", "/own/n", NONE, [busy, busy]),
        ("/own/m", "/tmp/d", NONE, [sticky, busy]),
        ("/own/m", "/tmp/f", NONE, [sticky, no_dir]),
        ("/own/m", "/tmp/m", NONE, [sticky, busy]),
        ("/own/m", "/d/m", NONE, [access, busy]),
        ("/own/low", "/own/new", NONE, [busy, busy]),
        ("/own/low", "/tmp/new", NONE, [access, busy]),
        ("/own/d", "/own/m", NONE, [busy, busy]),
        ("/own/f", "/own/m", NONE, [is_dir, is_dir]),
        ("/own/d", "/d/m", NONE, [access, busy]),
        ("/tmp/d", "/own/m", NONE, [sticky, busy]),
        ("/tmp/m", "/own/new", NONE, [sticky, busy]),
        ("/d/m", "/own/new", NONE, [access, busy]),
        ("/own/m", "/own/d", RenameFlags::NOREPLACE, [Error::Exists; 2]),
        ("/own/m", "/own/none", RenameFlags::EXCHANGE, [Error::NoEntry; 2]),
        ("/own/m", "/own/f", RenameFlags::EXCHANGE, [busy, busy]),
        ("/own/f", "/own/m", RenameFlags::EXCHANGE, [busy, busy]),
        ("/own/m", "/d/m", RenameFlags::EXCHANGE, [access, busy]),
        ("/own/low", "/tmp/m", RenameFlags::EXCHANGE, [sticky, busy]),
    ] {
        let errors = [&user, &root].map(|caller| vfs.rename(caller, At::Cwd, old, At::Cwd, new, how));
        assert_eq!(errors, refused.map(Err), "{old} to {new} {how:?}");
    }
    assert_eq!(vfs.rename(&user, At::Cwd, "/own/m", At::Cwd, "/own/m", NONE), Ok(()), "which is no move");
    for (point, refused) in [("/own/m", busy), ("/d/m", access), ("/tmp/m", sticky)] {
        assert_eq!(vfs.rmdir(&user, At::Cwd, point), Err(refused), "{point}");
    }
}

#[test]
fn chdir_chroot_and_getcwd() {
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
    let mut user = context.clone().with_credentials(Credentials::user(1000, 1000, &[]));
    assert_eq!(vfs.chroot(&mut user, At::Cwd, "/z"), Err(Error::NotPermitted));
    let mut outside = context.clone();
    vfs.chdir(&mut outside, At::Cwd, "/a").expect("entered");
    vfs.chroot(&mut outside, At::Cwd, "/z").expect("confined");
    let unreachable = b"(unreachable)/a".to_vec();
    assert_eq!((vfs.getcwd(&outside, 15), vfs.getcwd(&outside, 14)), (Ok(unreachable), Err(Error::Range)));
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
fn removed_root_is_rendered_as_deleted() {
    let (vfs, host) = tree();
    let jail = vfs.mkdir(&host, At::Cwd, "/jail", 0o777).expect("made");
    let guest = Context::rooted(&jail, Credentials::user(1000, 1000, &[])).expect("a directory");
    let sub = vfs.mkdir(&host, At::Cwd, "/jail/sub", 0o777).expect("made");
    let mut below = guest.clone();
    vfs.chdir(&mut below, At::Cwd, "/sub").expect("entered");
    vfs.rmdir(&host, At::Cwd, "/jail/sub").expect("removed");
    assert_eq!((vfs.getcwd(&guest, 1), vfs.d_path(&guest, &jail, 1)), (Ok(b"/".to_vec()), Ok(b"/".to_vec())));
    vfs.rmdir(&host, At::Cwd, "/jail").expect("removed");
    assert_eq!((vfs.getcwd(&guest, 100), vfs.getcwd(&below, 100)), (Err(Error::NoEntry), Err(Error::NoEntry)));
    assert_eq!(vfs.d_path(&guest, &jail, 11), Ok(b"/ (deleted)".to_vec()));
    assert_eq!(vfs.d_path(&guest, &jail, 10), Err(Error::NameTooLong));
    assert_eq!(vfs.d_path(&guest, &sub, 100), Ok(b"/sub (deleted)".to_vec()));
    assert_eq!(vfs.d_path(&host, &jail, 100), Ok(b"/jail (deleted)".to_vec()));
}

#[test]
fn dotdot_outside_the_root_is_enoent() {
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
    // A directory that was never below the root.
    let secret = vfs.lookup(&root, At::Cwd, "/secret", FOLLOW).expect("there");
    assert_eq!(vfs.stat(&confined, At::Dir(&secret), "..", FOLLOW), Err(Error::NoEntry));
    vfs.rename(&root, At::Cwd, "/out/d", At::Cwd, "/in/back", RenameFlags::empty()).expect("moved");
    assert_eq!(stat("../../../back"), ino("/in/back"));
}

/// A tree that was unmounted has nothing above it. A context with its root there is still confined
/// to it.
#[test]
fn root_in_unmounted_tree_still_confines() {
    let (vfs, host) = tree();
    for dir in ["/jail", "/secret", "/shared", "/shared/x"] {
        vfs.mkdir(&host, At::Cwd, dir, 0o777).expect("made");
    }
    vfs.mount(&host, At::Cwd, "/jail", driver(None)).expect("mounted");
    let inside = vfs.mkdir(&host, At::Cwd, "/jail/d", 0o777).expect("made");
    let [root, outside] = ["/jail", "/shared/x"].map(|path| vfs.lookup(&host, At::Cwd, path, FOLLOW).expect("made"));
    let guest = Context::rooted(&root, Credentials::user(1000, 1000, &[])).expect("a directory");
    let mut confined = host.clone();
    vfs.chdir(&mut confined, At::Cwd, "/shared/x").expect("entered");
    vfs.chroot(&mut confined, At::Cwd, "/jail").expect("confined");
    let beneath = guest.clone().with_resolve(Resolve::BENEATH);
    let stat = |context, at, path: &str| vfs.stat(context, at, path, FOLLOW).map(|stat| stat.ino);
    let expect_confined = |what: &str| {
        for path in ["..", "../../secret", "./../.."] {
            assert_eq!(stat(&guest, At::Dir(&outside), path), Err(Error::NoEntry), "{what}: {path}");
            assert_eq!(stat(&confined, At::Cwd, path), Err(Error::NoEntry), "{what}: {path}");
        }
        for path in ["..", "../..", "/..", "/"] {
            assert_eq!(stat(&guest, At::Dir(&inside), path), Ok(root.ino()), "{what}: {path}");
        }
        assert_eq!(stat(&beneath, At::Dir(&inside), ".."), Err(Error::CrossDevice), "{what}");
        assert_eq!(stat(&beneath, At::Dir(&root), ".."), Err(Error::CrossDevice), "{what}");
        assert_eq!(stat(&host, At::Dir(&outside), "../../secret"), stat(&host, At::Cwd, "/secret"), "{what}");
        assert_eq!(vfs.getcwd(&confined, 100), Ok(b"(unreachable)/shared/x".to_vec()), "{what}");
        assert_eq!(vfs.getcwd(&guest, 100), Ok(b"/".to_vec()), "{what}");
        assert_eq!(vfs.d_path(&guest, &root, 100), Ok(b"/".to_vec()), "{what}");
    };
    expect_confined("mounted");
    vfs.umount(&host, At::Cwd, "/jail").expect("unmounted");
    expect_confined("unmounted");
    assert_eq!(stat(&host, At::Dir(&root), "../secret"), Err(Error::NoEntry), "no path leads from it to the rest");
}

#[test]
fn resolve_beneath_confines_to_the_start() {
    let (vfs, root) = tree();
    for dir in ["/in", "/in/d", "/secret"] {
        vfs.mkdir(&root, At::Cwd, dir, 0o777).expect("made");
    }
    for (target, link) in [
        ("/in/d", "/in/absolute"),
        ("../secret", "/in/out"),
        ("../in/d", "/in/round"),
        ("d/..", "/in/in"),
        ("..", "/in/up"),
    ] {
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
    // Refused even if the path would lead back in.
    for path in ["..", "d/../..", "../in/d", "/in/d", "/", "absolute", "absolute/", "out", "round", "in/../d"] {
        assert_eq!(stat(path, FOLLOW), Err(Error::CrossDevice), "{path}");
    }
    assert!(stat("out", Walk::NOFOLLOW).is_ok(), "the link itself is in there");
    // This holds for every call and each of its paths. Each walk has its own start.
    let out = Err(Error::CrossDevice);
    let at = At::Dir(&start);
    assert_eq!(vfs.mkdir(&beneath, at, "../x", 0o777).map(drop), out);
    for path in ["out/x", "..", "d/../..", "up"] {
        assert_eq!(vfs.open(&beneath, at, path, OpenFlags::CREAT, 0o600).map(drop), out, "{path}");
    }
    let new = OpenFlags::CREAT | OpenFlags::EXCL;
    assert_eq!(vfs.open(&beneath, at, "..", new, 0o600).map(drop), out);
    assert_eq!(vfs.open(&beneath, at, "d/..", new, 0o600).map(drop), Err(Error::Exists));
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
fn resolve_no_symlinks_and_no_xdev() {
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
    for how in [OpenFlags::CREAT, OpenFlags::CREAT | OpenFlags::EXCL] {
        assert_eq!(vfs.open(&here, At::Cwd, "/m", how, 0o600).err(), Some(Error::CrossDevice));
    }
    let sub = vfs.lookup(&root, At::Cwd, "/m/sub", FOLLOW).expect("made");
    for (path, expected) in
        [("..", None), ("../..", Some(Error::CrossDevice)), ("../away", Some(Error::CrossDevice)), ("/d", None)]
    {
        assert_eq!(vfs.stat(&here, At::Dir(&sub), path, FOLLOW).err(), expected, "{path}");
    }
}

#[test]
fn rooted_context_cannot_leave_its_root() {
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
    // A tree that is mounted over the root is not visible to the guest.
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
