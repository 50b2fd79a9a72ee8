//! A mount as the upper layer of an overlay, as container engines use it.

mod common;
mod requests;
mod source_pair;

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use common::{KernelMount, Mounted, can_mount, names, skipped};
use requests::alone;
use source_pair::has_all_users;

/// Without `redirect_dir`, a program that renames a directory of the lower layer copies it.
const OPTIONS: &str = ",redirect_dir=on,index=off";

/// Whether this machine has overlays. If not, says so.
fn has_overlays() -> bool {
    if !can_mount() || !has_all_users("an overlay") {
        return false;
    }
    // A file system that can have the upper layer, whatever the machine has for temporary files.
    let (lower, layers) = (tempfile::tempdir().expect("a directory"), KernelMount::tmpfs(c""));
    let made = KernelMount::overlay(lower.path(), layers.path(), OPTIONS);
    if let Err(error) = &made {
        skipped(&format!("no overlay can be mounted: {error}"));
    }
    made.is_ok()
}

fn is_whiteout(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_char_device() && found.rdev() == 0)
}

/// Changes on the overlay do not reach the lower layer. They are still there when the layers are
/// mounted again. The kernel refuses an upper layer through FUSE that has no RENAME_WHITEOUT.
fn changes_go_to_the_upper_layer(mounted: &Mounted) {
    let lower = tempfile::tempdir().expect("a directory");
    let host = |name: &str| lower.path().join(name);
    for dir in ["dir", "dir/sub", "gone", "moved"] {
        fs::create_dir(host(dir)).unwrap();
    }
    for file in ["file", "removed", "renamed", "dir/sub/below", "gone/in", "moved/in"] {
        fs::write(host(file), file).unwrap();
    }
    let overlay = KernelMount::overlay(lower.path(), &mounted.root(), OPTIONS).expect("an upper layer");
    fs::write(overlay.path().join("file"), "changed").unwrap();
    fs::remove_file(overlay.path().join("removed")).unwrap();
    fs::rename(overlay.path().join("renamed"), overlay.path().join("dir/renamed")).unwrap();
    fs::remove_dir_all(overlay.path().join("gone")).unwrap();
    fs::create_dir(overlay.path().join("gone")).unwrap();
    fs::rename(overlay.path().join("moved"), overlay.path().join("dir/moved")).unwrap();
    fs::write(overlay.path().join("dir/sub/new"), "new").unwrap();
    let expect_changes = |overlay: &KernelMount| {
        assert_eq!(names(overlay.path()), ["dir", "file", "gone"]);
        assert_eq!(names(&overlay.path().join("dir")), ["moved", "renamed", "sub"]);
        assert_eq!(names(&overlay.path().join("dir/sub")), ["below", "new"]);
        assert_eq!(names(&overlay.path().join("gone")), Vec::<String>::new());
        for (file, contents) in [("file", "changed"), ("dir/renamed", "renamed"), ("dir/moved/in", "moved/in")] {
            assert_eq!(fs::read_to_string(overlay.path().join(file)).unwrap(), contents, "{file}");
        }
    };
    expect_changes(&overlay);
    drop(overlay);
    // The first is made by mknod(2), the others by RENAME_WHITEOUT.
    for name in ["removed", "renamed", "moved"] {
        assert!(is_whiteout(&mounted.path("upper").join(name)), "{name}");
    }
    let overlay = KernelMount::overlay(lower.path(), &mounted.root(), OPTIONS).expect("the same layers");
    expect_changes(&overlay);
    drop(overlay);
    assert_eq!(names(lower.path()), ["dir", "file", "gone", "moved", "removed", "renamed"]);
    assert_eq!(fs::read_to_string(host("file")).unwrap(), "file");
}

#[test]
fn a_mount_in_memory_can_be_an_upper_layer() {
    let _alone = alone();
    if has_overlays() {
        let mounted = Mounted::new(&[]);
        changes_go_to_the_upper_layer(&mounted);
        mounted.umount();
    }
}

#[test]
fn a_mounted_directory_can_be_an_upper_layer() {
    let _alone = alone();
    if has_overlays() {
        let source = KernelMount::tmpfs(c"");
        let mounted = Mounted::new(&["--source", source.path().to_str().expect("text")]);
        changes_go_to_the_upper_layer(&mounted);
        assert!(is_whiteout(&source.path().join("upper/moved")));
        mounted.umount();
    }
}
