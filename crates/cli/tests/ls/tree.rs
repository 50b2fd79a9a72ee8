//! A tree with entries of every kind.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::Path,
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use crate::{
    acl::{ACCESS, DEFAULT, access_list},
    mount::Mounted,
};

/// Names that are hard to print.
pub const NAMES: &[&[u8]] = &[
    b"plain",
    b"a b",
    b"it's",
    b"it's $v",
    b"new\nline",
    b"tab\t",
    b"\xff\xfe",
    b"\xc3\xbcml",
    b"\xe6\xbc\xa2\xe5\xad\x97",
    b"e\xcc\x81",
    b"-dash",
    b"~t",
    b"a~",
    b"#h",
    b"a#b",
    b"{",
    b"a{b",
    b"\x1b[31m",
    &[b'x'; 255],
    b".hidden",
    b"star*",
    b"q?",
    b"back\\slash",
    b"\"dq\"",
    b"c:colon",
    b"=eq",
    b"a,b",
    b"\x7f",
    b"trail ",
    b"notes.txt",
    b"archive.tar.gz",
    b"a@b",
    b"it's@",
];

/// Seconds since the epoch that fit into the inodes of all file systems here, and times around the
/// ends of half a year.
fn times() -> Vec<i64> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    vec![0, 1, (1 << 31) - 1, now - 3600, now - 15_000_000, now - 16_000_000, now + 86_400, 1_000_000_000]
}

/// Sets the mtime, and another atime.
pub fn set_times(path: &Path, secs: i64, nanos: i64) {
    let time = Timespec { tv_sec: secs, tv_nsec: nanos };
    let times = Timestamps { last_access: Timespec { tv_sec: secs / 2, ..time }, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Fills a directory. Entries that need root are left out for other users.
pub fn populate(root: &Path) {
    let path = |name: &str| root.join(name);
    for (index, name) in NAMES.iter().enumerate() {
        let file = root.join(OsStr::from_bytes(name));
        fs::write(&file, vec![b'x'; index * 377]).unwrap();
        set_times(&file, 1_700_000_000 - index as i64 * 98_765_432 % 1_600_000_000, index as i64 * 12_345_678);
    }
    fs::OpenOptions::new().write(true).open(path("plain")).unwrap().set_len(1 << 40).unwrap();
    for (index, secs) in times().into_iter().enumerate() {
        let file = path(&format!("t{index}"));
        fs::write(&file, "").unwrap();
        set_times(&file, secs, 999_999_999);
    }
    for dir in ["dir/sub/deep", "empty", "sticky", "open", "both", "at@/below", "\u{fc}/a b"] {
        fs::create_dir_all(path(dir)).unwrap();
    }
    for (index, file) in ["dir/f", "dir/sub/g.txt", "dir/.h", "\u{fc}/a b/x"].iter().enumerate() {
        fs::write(path(file), vec![0; 1000 * index]).unwrap();
    }
    for (name, mode) in [("a b", 0o6755), ("star*", 0o4644), ("it's", 0o1777), ("q?", 0o755), ("~t", 0)] {
        rustix::fs::chmod(path(name), Mode::from_raw_mode(mode)).unwrap();
    }
    for (name, mode) in [("sticky", 0o1755), ("open", 0o777), ("both", 0o1777)] {
        rustix::fs::chmod(path(name), Mode::from_raw_mode(mode)).unwrap();
    }
    for (target, link) in [
        ("plain", "ln"),
        ("nowhere here", "broken"),
        ("dir", "lndir"),
        ("it's", "ln k"),
        ("q?", "lnx"),
        ("a@b", "lnat"),
    ] {
        symlink(target, path(link)).unwrap();
    }
    fs::hard_link(path("plain"), path("hard")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(path("sock")).unwrap());
    let node = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, path(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
    };
    node("fifo", FileType::Fifo, 0);
    if rustix::process::geteuid().is_root() {
        node("chr", FileType::CharacterDevice, rustix::fs::makedev(4, 64));
        node("blk", FileType::BlockDevice, rustix::fs::makedev(259, 262_143));
        std::os::unix::fs::chown(path("tab\t"), Some(12_345), Some(54_321)).unwrap();
        std::os::unix::fs::lchown(path("broken"), Some(1), Some(65_534)).unwrap();
    }
}

/// Extended attributes and access control lists, which not every file system supports.
pub fn populate_attributes(root: &Path) {
    let set = |file: &str, name: &str, value: &[u8]| {
        rustix::fs::lsetxattr(root.join(file), name, value, XattrFlags::empty()).unwrap();
    };
    set("plain", "user.a", b"1");
    set("plain", "user.binary", b"\0\xff\n'");
    set("plain", "user.empty", b"");
    set("dir", "user.\u{fc}=", &[b'v'; 300]);
    if rustix::process::geteuid().is_root() {
        set("ln", "trusted.link", b"of the link itself");
    }
    set("a b", ACCESS, &access_list(1, [7, 4, 5, 5, 5]));
    set("dir", DEFAULT, &access_list(1, [7, 5, 5, 5, 5]));
}

/// Runs a test on the tree, on each file system that this machine can mount.
pub fn on_each_file_system(test: impl Fn(&Path)) {
    on_each_empty_file_system(50, |_, root| {
        populate(root);
        populate_attributes(root);
        test(root);
    });
}

/// Runs a test in an empty directory on each file system that this machine can mount, large enough
/// for `entries`. The test gets the name of the file system.
pub fn on_each_empty_file_system(entries: u64, test: impl Fn(&str, &Path)) {
    // Images are sparse: unused space costs nothing. The size is the smallest for XFS.
    let bytes = (320 << 20) + entries * 8192;
    let inodes = format!("{}", entries + 10_000);
    let mounted: [(&str, &dyn Fn() -> Option<Mounted>); 4] = [
        ("tmpfs", &|| Mounted::tmpfs(&format!("size=50%,nr_inodes={inodes}"))),
        ("ext4", &|| Mounted::image("mkfs.ext4", &["-q", "-N", &inodes], bytes)),
        ("xfs", &|| Mounted::image("mkfs.xfs", &["-q"], bytes)),
        ("btrfs", &|| Mounted::image("mkfs.btrfs", &["-q"], bytes)),
    ];
    for (name, mount) in mounted {
        let Some(mounted) = mount() else { continue };
        let root = mounted.path().join("tree");
        fs::create_dir(&root).unwrap();
        test(name, &root);
    }
}
