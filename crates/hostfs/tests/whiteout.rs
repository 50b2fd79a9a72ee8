//! Whiteouts in a directory of the host.
#![forbid(unsafe_code)]

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown},
};

use pando_hostfs::{HostFs, HostOptions};
use pando_vfs::{At, Context, Credentials, OpenFlags, RenameFlags, Vfs, Walk};
use pandofs_testkit::{is_root, skipped};
use rustix::{
    fs::{CWD, RenameFlags as HostFlags, renameat_with},
    io::Errno,
};

/// A whiteout belongs to the caller, and in a directory with setgid to its group. The rights of the
/// caller were checked by the tree, also in a sticky directory.
#[test]
fn a_whiteout_belongs_to_the_caller() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let host = |name: &str| dir.path().join(name);
    fs::write(host("probe"), "").unwrap();
    if renameat_with(CWD, host("probe"), CWD, host("moved"), HostFlags::WHITEOUT) == Err(Errno::INVAL) {
        skipped("the file system of temporary files has no RENAME_WHITEOUT");
        return;
    }
    for (name, mode) in [("open", 0o777), ("sticky", 0o1777), ("setgid", 0o2777)] {
        fs::create_dir(host(name)).unwrap();
        chown(host(name), Some(7), Some(8)).unwrap();
        fs::set_permissions(host(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(host(""), fs::Permissions::from_mode(0o755)).unwrap();
    let vfs = Vfs::new(HostFs::open(dir.path(), HostOptions::new()).unwrap()).unwrap();
    let user = Context::new(&vfs, Credentials::user(1000, 1001, &[]));
    for (name, group) in [("open", 1001), ("sticky", 1001), ("setgid", 8)] {
        let [old, new] = ["old", "new"].map(|file| format!("{name}/{file}"));
        // The second rename replaces a file.
        for old in [&*old, &format!("{name}/again")] {
            drop(vfs.open(&user, At::Cwd, old, OpenFlags::CREAT, 0o600).unwrap());
            vfs.rename(&user, At::Cwd, old, At::Cwd, &new, RenameFlags::WHITEOUT).unwrap();
            let found = fs::symlink_metadata(host(old)).unwrap();
            assert!(found.file_type().is_char_device() && found.rdev() == 0, "{old}");
            assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (1000, group, 0), "{old}");
            let stat = vfs.stat(&user, At::Cwd, old, Walk::NOFOLLOW).unwrap();
            assert_eq!((stat.ino, stat.uid, stat.gid), (found.ino(), 1000, group), "{old}");
        }
    }
}
