//! Differences that the oracle found. Each test is the shortest sequence to a result that once
//! differed from that of tmpfs.

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    At, Context, Credentials, Error, File, OpenFlags, RenameFlags, SetTime, Timestamp, Vfs, Walk, XattrFlags,
};

const FOLLOW: Walk = Walk::empty();
const MAX: u64 = i64::MAX as u64;

fn tree() -> (Vfs, Context) {
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a tree in memory");
    let context = Context::new(&vfs, Credentials::root()).with_umask(0);
    (vfs, context)
}

fn user(vfs: &Vfs) -> Context {
    Context::new(vfs, Credentials::user(1000, 1000, &[100])).with_umask(0)
}

fn open(vfs: &Vfs, context: &Context, path: &str, flags: OpenFlags) -> Result<File, Error> {
    vfs.open(context, At::Cwd, path, flags, 0o644)
}

fn make(vfs: &Vfs, context: &Context, path: &str) -> File {
    open(vfs, context, path, OpenFlags::RDWR | OpenFlags::CREAT).expect("made")
}

/// A time that no clock returns.
const LONG_AGO: SetTime = SetTime::At(Timestamp(1_000_000_007));

fn set_long_ago(vfs: &Vfs, context: &Context, path: &str) {
    vfs.utimens(context, At::Cwd, path, LONG_AGO, LONG_AGO, FOLLOW).expect("set");
}

#[test]
fn path_is_checked_before_the_xattr_name() {
    let (vfs, root) = tree();
    for name in ["nonsense.a", "user."] {
        assert_eq!(vfs.getxattr(&root, At::Cwd, "/a", name, FOLLOW), Err(Error::NoEntry));
        assert_eq!(vfs.removexattr(&root, At::Cwd, "/a", name, FOLLOW), Err(Error::NoEntry));
        let how = XattrFlags::empty();
        assert_eq!(vfs.setxattr(&root, At::Cwd, "/a", name, b"v", how, FOLLOW), Err(Error::NoEntry));
    }
}

#[test]
fn permission_is_checked_before_the_xattr_name() {
    let (vfs, root) = tree();
    make(&vfs, &root, "/a");
    vfs.chmod(&root, At::Cwd, "/a", 0, FOLLOW).expect("chmod");
    for name in ["nonsense.a", "user."] {
        assert_eq!(vfs.getxattr(&user(&vfs), At::Cwd, "/a", name, FOLLOW), Err(Error::Access));
    }
    assert_eq!(vfs.getxattr(&user(&vfs), At::Cwd, "/a", "system.a", FOLLOW), Err(Error::NotSupported), "nobody has");
    assert_eq!(vfs.getxattr(&root, At::Cwd, "/a", "nonsense.a", FOLLOW), Err(Error::NotSupported));
    assert_eq!(vfs.getxattr(&root, At::Cwd, "/a", "user.", FOLLOW), Err(Error::Invalid));
}

#[test]
fn xattr_create_and_replace_together_always_fail() {
    let (vfs, root) = tree();
    make(&vfs, &root, "/a");
    let set = |how| vfs.setxattr(&root, At::Cwd, "/a", "user.a", b"v", how, FOLLOW);
    assert_eq!(set(XattrFlags::all()), Err(Error::NoData));
    assert_eq!(set(XattrFlags::empty()), Ok(()));
    assert_eq!(set(XattrFlags::all()), Err(Error::Exists));
}

#[test]
fn range_beyond_the_maximum_offset_is_einval() {
    let (vfs, root) = tree();
    let file = make(&vfs, &root, "/a");
    assert_eq!(file.pread(&mut [0; 2], MAX - 1), Err(Error::Invalid));
    assert_eq!(file.pwrite(&[0; 2], MAX - 1), Err(Error::Invalid));
    assert_eq!(file.pread(&mut [0; 1], MAX - 1), Ok(0));
    file.lseek(pando_vfs::Seek::Set(i64::MAX - 1)).expect("seek");
    assert_eq!(file.read(&mut [0; 2]), Err(Error::Invalid));
    assert_eq!(file.write(&[0; 2]), Err(Error::Invalid));
    assert_eq!(file.tell(), MAX - 1);
    let write_only = open(&vfs, &root, "/a", OpenFlags::WRONLY).expect("opened");
    assert_eq!(write_only.pread(&mut [0; 1], u64::MAX), Err(Error::Invalid), "before the access mode is looked at");
    assert_eq!(vfs.truncate(&root, At::Cwd, "/none", u64::MAX), Err(Error::Invalid), "before the path is");
}

#[test]
fn readdir_with_o_noatime_keeps_atime() {
    let (vfs, root) = tree();
    vfs.mkdir(&root, At::Cwd, "/d", 0o755).expect("made");
    set_long_ago(&vfs, &root, "/d");
    let list = |flags| open(&vfs, &root, "/d", flags).expect("opened").readdir(0, |_| true).expect("listed");
    let atime = || vfs.stat(&root, At::Cwd, "/d", FOLLOW).expect("stat").atime;
    list(OpenFlags::DIRECTORY | OpenFlags::NOATIME);
    assert_eq!(SetTime::At(atime()), LONG_AGO);
    list(OpenFlags::DIRECTORY);
    assert_ne!(SetTime::At(atime()), LONG_AGO);
}

#[test]
fn readdir_of_a_file_is_enotdir() {
    let (vfs, root) = tree();
    make(&vfs, &root, "/a");
    let file = open(&vfs, &root, "/a", OpenFlags::WRONLY).expect("opened");
    assert_eq!(file.readdir(0, |_| true), Err(Error::NotDirectory));
}

#[test]
fn same_size_truncate_modifies_only_through_a_handle() {
    let (vfs, root) = tree();
    let file = make(&vfs, &root, "/a");
    let unchanged = || SetTime::At(vfs.stat(&root, At::Cwd, "/a", FOLLOW).expect("stat").mtime) == LONG_AGO;
    set_long_ago(&vfs, &root, "/a");
    vfs.truncate(&root, At::Cwd, "/a", 0).expect("truncated");
    assert!(unchanged());
    file.truncate(0).expect("truncated");
    assert!(!unchanged());
    set_long_ago(&vfs, &root, "/a");
    open(&vfs, &root, "/a", OpenFlags::RDWR | OpenFlags::TRUNC).expect("opened");
    assert!(!unchanged());
}

/// In this case tmpfs looks through its pages, and stamps the file.
#[test]
fn same_size_truncate_with_pages_modifies() {
    let (vfs, root) = tree();
    let file = make(&vfs, &root, "/a");
    let modified = || SetTime::At(vfs.stat(&root, At::Cwd, "/a", FOLLOW).expect("stat").mtime) != LONG_AGO;
    let truncate = |size: u64| {
        set_long_ago(&vfs, &root, "/a");
        vfs.truncate(&root, At::Cwd, "/a", size).expect("truncated");
        modified()
    };
    file.truncate(5000).expect("grown");
    assert!(!truncate(5000), "all of it is a hole");
    file.pwrite(b"x", 0).expect("written");
    assert!(truncate(5000));
    file.truncate(0).expect("emptied");
    file.fallocate(1, 0, 4096).expect("allocated");
    assert!(truncate(0), "it has a page beyond its end");
    assert!(!truncate(0), "now it has none");
}

#[test]
fn same_size_truncate_drops_setuid() {
    let (vfs, root) = tree();
    make(&vfs, &root, "/a");
    vfs.chmod(&root, At::Cwd, "/a", 0o4777, FOLLOW).expect("chmod");
    let truncated = |context: &Context| {
        vfs.truncate(context, At::Cwd, "/a", 0).expect("truncated");
        vfs.stat(&root, At::Cwd, "/a", FOLLOW).expect("stat").mode
    };
    assert_eq!(truncated(&root), 0o4777);
    assert_eq!(truncated(&user(&vfs)), 0o777);
}

#[test]
fn space_allocated_beyond_the_end_is_freed() {
    let (vfs, root) = tree();
    let file = make(&vfs, &root, "/a");
    let blocks = || file.stat().blocks;
    file.fallocate(1, 0, 20_000).expect("allocated");
    assert_eq!((file.stat().size, blocks()), (0, 40));
    file.truncate(0).expect("truncated");
    assert_eq!(blocks(), 0, "truncated to the same size");
    file.fallocate(1, 0, 20_000).expect("allocated");
    file.fallocate(3, 0, 20_000).expect("punched");
    assert_eq!(blocks(), 8, "only the page that is not covered stays");
    file.pwrite(b"x", 5000).expect("written");
    file.fallocate(3, 4096, 100_000).expect("punched");
    assert_eq!(blocks(), 0, "the last page lies in the hole as a whole");
}

#[test]
fn fallocate_checks_the_handle_first() {
    let (vfs, root) = tree();
    make(&vfs, &root, "/a");
    let file = open(&vfs, &root, "/a", OpenFlags::PATH).expect("opened");
    assert_eq!(file.fallocate(3, 0, 0), Err(Error::BadHandle));
    let file = open(&vfs, &root, "/a", OpenFlags::RDONLY).expect("opened");
    for mode in [0x8, 0x10, 0x11, 0x20, 0x40, 0x41, 0x80] {
        assert_eq!(file.fallocate(mode, 0, 1), Err(Error::BadHandle), "{mode:#x}: known, and not to be had here");
    }
    for mode in [0x2, 0x9, 0x21, 0x81, 0x82, 0x90, 0x4000] {
        assert_eq!(file.fallocate(mode, 0, 1), Err(Error::NotSupported), "{mode:#x}: unknown");
    }
    let file = open(&vfs, &root, "/a", OpenFlags::RDWR).expect("opened");
    assert_eq!((file.fallocate(8, 0, 1), file.fallocate(8, 1, MAX)), (Err(Error::NotSupported), Err(Error::TooBig)));
}

#[test]
fn utimens_with_both_omitted_ignores_the_path() {
    let (vfs, root) = tree();
    assert_eq!(vfs.utimens(&root, At::Cwd, "/none", SetTime::Omit, SetTime::Omit, FOLLOW), Ok(()));
}

#[test]
fn chown_that_drops_setuid_needs_the_owner() {
    let (vfs, root) = tree();
    make(&vfs, &root, "/a");
    let chown = || vfs.chown(&user(&vfs), At::Cwd, "/a", None, None, FOLLOW);
    assert_eq!(chown(), Ok(()));
    vfs.chmod(&root, At::Cwd, "/a", 0o4755, FOLLOW).expect("chmod");
    assert_eq!(chown(), Err(Error::NotPermitted));
}

#[test]
fn device_permission_is_checked_after_the_path() {
    let (vfs, root) = tree();
    vfs.mkdir(&root, At::Cwd, "/d", 0o777).expect("made");
    vfs.mkdir(&root, At::Cwd, "/shut", 0o755).expect("made");
    let mknod = |path: &str| vfs.mknod(&user(&vfs), At::Cwd, path, 0o060_644, 0x801).map(drop);
    assert_eq!(mknod("/none/x"), Err(Error::NoEntry));
    assert_eq!(mknod("/d"), Err(Error::Exists));
    assert_eq!(mknod("/shut/x"), Err(Error::Access));
    assert_eq!(mknod("/d/x"), Err(Error::NotPermitted));
}

#[test]
fn open_flags_with_symlinks() {
    let (vfs, root) = tree();
    vfs.symlink(&root, "none", At::Cwd, "/l").expect("made");
    vfs.mkdir(&root, At::Cwd, "/d", 0o777).expect("made");
    vfs.symlink(&root, "d", At::Cwd, "/to_d").expect("made");
    let open = |path, flags| open(&vfs, &root, path, flags).map(drop);
    let tmpfile = OpenFlags::TMPFILE | OpenFlags::DIRECTORY;
    assert_eq!(open("/l", OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW), Err(Error::NotDirectory));
    assert_eq!(open("/l/", OpenFlags::RDWR | OpenFlags::CREAT), Err(Error::IsDirectory));
    assert_eq!(open("/to_d", OpenFlags::RDWR | OpenFlags::NOFOLLOW | tmpfile), Err(Error::NotDirectory));
    assert_eq!(open("/d", OpenFlags::from_bits_retain(3) | tmpfile), Ok(()));
    assert_eq!(open("/d", OpenFlags::TRUNC | tmpfile), Err(Error::Invalid));
}

#[test]
fn rename_looks_up_the_old_name_before_the_length_check() {
    let (vfs, root) = tree();
    let long = format!("/{}", "x".repeat(256));
    let rename = |old: &str, new: &str| vfs.rename(&root, At::Cwd, old, At::Cwd, new, RenameFlags::empty());
    assert_eq!(rename("/a", &long), Err(Error::NoEntry));
    assert_eq!(rename(&long, "/none/a"), Err(Error::NoEntry));
    make(&vfs, &root, "/a");
    assert_eq!(rename("/a", &long), Err(Error::NameTooLong));
    assert_eq!(rename(&long, "/a"), Err(Error::NameTooLong));
    assert_eq!(vfs.rmdir(&root, At::Cwd, &long), Err(Error::NameTooLong));
}

#[test]
fn removed_directory_has_no_names() {
    let (vfs, mut root) = tree();
    vfs.mkdir(&root, At::Cwd, "/d", 0o777).expect("made");
    vfs.chdir(&mut root, At::Cwd, "/d").expect("entered");
    vfs.rmdir(&root, At::Cwd, "/d").expect("removed");
    assert_eq!(vfs.stat(&root, At::Cwd, "x".repeat(256), FOLLOW).map(drop), Err(Error::NoEntry));
    assert_eq!(vfs.link(&root, At::Cwd, "..", At::Cwd, "a", FOLLOW).map(drop), Err(Error::NoEntry));
    // Even for a name that is too long, or that the caller may not make.
    let long = "x".repeat(256);
    assert_eq!(vfs.unlink(&root, At::Cwd, &long), Err(Error::NoEntry));
    assert_eq!(vfs.rmdir(&root, At::Cwd, &long), Err(Error::NoEntry));
    assert_eq!(vfs.mkdir(&root, At::Cwd, &long, 0o755).map(drop), Err(Error::NoEntry));
    assert_eq!(vfs.rename(&root, At::Cwd, &long, At::Cwd, "/a", RenameFlags::empty()), Err(Error::NoEntry));
    let user = root.clone().with_credentials(Credentials::user(1, 1, &[]));
    assert_eq!(vfs.mknod(&user, At::Cwd, "x", 0o060_644, 0x801).map(drop), Err(Error::NoEntry));
}

#[test]
fn removed_directory_is_enoent_before_ancestry() {
    let (vfs, mut root) = tree();
    for dir in ["/c", "/c/a"] {
        vfs.mkdir(&root, At::Cwd, dir, 0o777).expect("made");
    }
    let rename = |context: &Context| vfs.rename(context, At::Cwd, "/c", At::Cwd, "b", RenameFlags::empty());
    vfs.chdir(&mut root, At::Cwd, "/c/a").expect("entered");
    assert_eq!(rename(&root), Err(Error::Invalid));
    vfs.rmdir(&root, At::Cwd, "/c/a").expect("removed");
    assert_eq!(rename(&root), Err(Error::NoEntry));
    make(&vfs, &root, "/f");
    let slash = vfs.rename(&root, At::Cwd, "/f", At::Cwd, "b/", RenameFlags::empty());
    assert_eq!(slash, Err(Error::NoEntry));
}

#[test]
fn create_in_removed_directory_is_enoent_for_users() {
    let (vfs, root) = tree();
    vfs.mkdir(&root, At::Cwd, "/d", 0o755).expect("made");
    let mut user = user(&vfs);
    vfs.chdir(&mut user, At::Cwd, "/d").expect("entered");
    assert_eq!(vfs.mkdir(&user, At::Cwd, "a", 0o777).map(drop), Err(Error::Access));
    vfs.rmdir(&root, At::Cwd, "/d").expect("removed");
    assert_eq!(vfs.mkdir(&user, At::Cwd, "a", 0o777).map(drop), Err(Error::NoEntry));
}

#[test]
fn setgid_is_decided_before_the_umask() {
    let (vfs, root) = tree();
    vfs.mkdir(&root, At::Cwd, "/d", 0o777).expect("made");
    vfs.chmod(&root, At::Cwd, "/d", 0o2777, FOLLOW).expect("chmod");
    let user = user(&vfs).with_umask(0o777);
    vfs.open(&user, At::Cwd, "/d/a", OpenFlags::RDWR | OpenFlags::CREAT, 0o2777).expect("made");
    assert_eq!(vfs.stat(&root, At::Cwd, "/d/a", FOLLOW).expect("stat").mode, 0);
}

#[test]
fn truncate_size_is_checked_before_the_handle() {
    let (vfs, root) = tree();
    make(&vfs, &root, "/a");
    assert_eq!(open(&vfs, &root, "/a", OpenFlags::PATH).expect("opened").truncate(MAX + 1), Err(Error::Invalid));
}

#[test]
fn o_creat_refuses_foreign_files_in_a_sticky_directory() {
    let (vfs, root) = tree();
    let how = OpenFlags::RDWR | OpenFlags::CREAT;
    for (mode, refused) in [(0o1777, true), (0o777, false), (0o1775, false)] {
        vfs.mkdir(&root, At::Cwd, "/d", 0o777).expect("made");
        vfs.chmod(&root, At::Cwd, "/d", mode, FOLLOW).expect("chmod");
        vfs.mknod(&root, At::Cwd, "/d/socket", 0o140_666, 0).expect("made");
        vfs.symlink(&root, "/nowhere", At::Cwd, "/d/link").expect("made");
        for (name, otherwise) in [("/d/socket", Error::NoDeviceAddress), ("/d/link", Error::Loop)] {
            let as_found = |owner: u32| {
                vfs.chown(&root, At::Cwd, name, Some(owner), None, Walk::NOFOLLOW).expect("chown");
                open(&vfs, &root, name, how | OpenFlags::NOFOLLOW).err()
            };
            // Root is not exempt.
            assert_eq!(as_found(1000), Some(if refused { Error::Access } else { otherwise }), "{mode:o} {name}");
            assert_eq!(as_found(0), Some(otherwise));
            vfs.unlink(&root, At::Cwd, name).expect("unlinked");
        }
        make(&vfs, &root, "/d/file");
        vfs.chown(&root, At::Cwd, "/d/file", Some(1000), None, FOLLOW).expect("chown");
        // For regular files, this is a setting of the machine that is off by default.
        assert!(open(&vfs, &root, "/d/file", how).is_ok());
        vfs.unlink(&root, At::Cwd, "/d/file").expect("unlinked");
        vfs.rmdir(&root, At::Cwd, "/d").expect("removed");
    }
}

#[test]
fn o_creat_with_trailing_slash_is_eisdir() {
    let (vfs, root) = tree();
    let how = OpenFlags::RDONLY | OpenFlags::CREAT;
    for path in ["/a/", "/./", "/"] {
        assert_eq!(open(&vfs, &root, path, how).err(), Some(Error::IsDirectory));
    }
    let long = "/".to_owned() + &"a".repeat(300);
    assert_eq!(open(&vfs, &root, &long, how).err(), Some(Error::NameTooLong));
    assert_eq!(open(&vfs, &root, &(long + "/"), how).err(), Some(Error::IsDirectory));
    assert_eq!(open(&vfs, &root, "/", how | OpenFlags::EXCL).err(), Some(Error::Exists));
}
