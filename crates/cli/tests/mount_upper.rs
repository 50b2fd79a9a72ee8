//! A mount as the upper layer of an overlay, as container engines use it.

mod common;
mod requests;
mod source_pair;

use std::{
    ffi::CString,
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use common::{Mounted, can_mount, names, skipped};
use requests::alone;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use source_pair::has_all_users;
use tempfile::TempDir;

/// An overlay. It is unmounted when this is dropped.
struct Overlay {
    point: TempDir,
}

impl Overlay {
    /// An overlay with the directories `upper` and `work` in a directory.
    fn new(lower: &Path, layers: &Path) -> rustix::io::Result<Self> {
        let point = tempfile::tempdir().expect("a directory");
        let [upper, work] = ["upper", "work"].map(|name| layers.join(name));
        for dir in [&upper, &work] {
            fs::create_dir_all(dir).expect("made");
        }
        let [lower, upper, work] = [lower, &upper, &work].map(|path| path.display().to_string());
        // Without `redirect_dir`, a program that renames a directory of the lower layer copies it.
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work},redirect_dir=on,index=off");
        let options = CString::new(options).expect("no NUL");
        mount("overlay", point.path(), "overlay", MountFlags::empty(), &*options).map(|()| Self { point })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = unmount(self.point.path(), UnmountFlags::DETACH);
    }
}

/// A file system that can be an upper layer, whatever the machine has for temporary files.
struct Tmpfs {
    point: TempDir,
}

impl Tmpfs {
    fn new() -> Self {
        let point = tempfile::tempdir().expect("a directory");
        mount("none", point.path(), "tmpfs", MountFlags::empty(), None).expect("a tmpfs");
        Self { point }
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = unmount(self.point.path(), UnmountFlags::DETACH);
    }
}

/// Whether this machine has overlays. If not, says so.
fn has_overlays() -> bool {
    if !can_mount() || !has_all_users("an overlay") {
        return false;
    }
    let (lower, layers) = (tempfile::tempdir().expect("a directory"), Tmpfs::new());
    let made = Overlay::new(lower.path(), layers.point.path());
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
    let overlay = Overlay::new(lower.path(), &mounted.root()).expect("an upper layer");
    fs::write(overlay.path("file"), "changed").unwrap();
    fs::remove_file(overlay.path("removed")).unwrap();
    fs::rename(overlay.path("renamed"), overlay.path("dir/renamed")).unwrap();
    fs::remove_dir_all(overlay.path("gone")).unwrap();
    fs::create_dir(overlay.path("gone")).unwrap();
    fs::rename(overlay.path("moved"), overlay.path("dir/moved")).unwrap();
    fs::write(overlay.path("dir/sub/new"), "new").unwrap();
    let expect_changes = |overlay: &Overlay| {
        assert_eq!(names(overlay.point.path()), ["dir", "file", "gone"]);
        assert_eq!(names(&overlay.path("dir")), ["moved", "renamed", "sub"]);
        assert_eq!(names(&overlay.path("dir/sub")), ["below", "new"]);
        assert_eq!(names(&overlay.path("gone")), Vec::<String>::new());
        for (file, contents) in [("file", "changed"), ("dir/renamed", "renamed"), ("dir/moved/in", "moved/in")] {
            assert_eq!(fs::read_to_string(overlay.path(file)).unwrap(), contents, "{file}");
        }
    };
    expect_changes(&overlay);
    drop(overlay);
    // The first is made by mknod(2), the others by RENAME_WHITEOUT.
    for name in ["removed", "renamed", "moved"] {
        assert!(is_whiteout(&mounted.path("upper").join(name)), "{name}");
    }
    let overlay = Overlay::new(lower.path(), &mounted.root()).expect("the same layers");
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
        let source = Tmpfs::new();
        let mounted = Mounted::new(&["--source", source.point.path().to_str().expect("text")]);
        changes_go_to_the_upper_layer(&mounted);
        assert!(is_whiteout(&source.point.path().join("upper/moved")));
        mounted.umount();
    }
}
