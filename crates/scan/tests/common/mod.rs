//! Shared by the tests: a random tree with odd names, and a plain model of it.
#![allow(dead_code)]

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

pub mod mount;
#[path = "../../../vfs/tests/support/splitmix.rs"]
mod splitmix;

use pando_records::FileKind;
use pando_scan::{Mask, Record, XattrValue};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

/// Random numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        splitmix::next(&mut self.0) % limit
    }

    /// A name of 1 to 255 bytes. Some are not UTF-8, have newlines, or begin with a dot.
    pub fn name(&mut self) -> OsString {
        let len = match self.below(8) {
            0 => 255,
            1 => 1 + self.below(255),
            _ => 3 + self.below(20),
        };
        let plain = self.below(2) == 0;
        let mut name: Vec<u8> = (0..len)
            .map(|_| match if plain { b'a' + self.below(26) as u8 } else { self.below(256) as u8 } {
                0 | b'/' => b'\n',
                byte => byte,
            })
            .collect();
        if name == b"." || name == b".." {
            name.push(b'x');
        }
        OsString::from_vec(name)
    }
}

/// Makes `count` entries of all kinds, some with extended attributes. Kinds that the file system or
/// the user may not create are left out.
pub fn populate(dir: &Path, count: u64, random: &mut Random) {
    for _ in 0..count {
        let path = dir.join(random.name());
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match random.below(12) {
            0 => fs::create_dir(&path).unwrap(),
            1 => make_link(&path, random),
            2 => drop(std::os::unix::net::UnixListener::bind(&path)),
            3 => rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap(),
            4 => drop(rustix::fs::mknodat(
                CWD,
                &path,
                FileType::CharacterDevice,
                Mode::from_raw_mode(0o600),
                rustix::fs::makedev(300, 70_000),
            )),
            _ => {
                let file = fs::File::create(&path).unwrap();
                file.set_len(random.below(1 << 40)).unwrap();
                if random.below(4) == 0 {
                    file.set_permissions(fs::Permissions::from_mode(0o755)).unwrap();
                    if random.below(2) == 0 {
                        // Only root may.
                        let _ = rustix::fs::fsetxattr(&file, "security.capability", &CAPABILITIES, XattrFlags::empty());
                    }
                }
            }
        }
        set_xattrs(&path, random);
    }
}

/// `struct vfs_cap_data` of version 2: net_bind_service, permitted and effective.
const CAPABILITIES: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A link to nothing, to a directory, to itself, or of the greatest length on most file systems.
fn make_link(path: &Path, random: &mut Random) {
    let made = match random.below(4) {
        0 => symlink("nowhere/\u{e9}\n", path),
        1 => symlink("..", path),
        2 => symlink(path, path),
        _ => symlink("./".repeat(500 + random.below(1500) as usize), path),
    };
    // XFS has no targets longer than 1024 bytes.
    made.or_else(|_| symlink("nowhere", path)).unwrap();
    // Reading a link is an access, which is recorded if it is the first after a change. This atime
    // is later than that.
    let times = Timestamps {
        last_access: Timespec { tv_sec: 2_100_000_000, tv_nsec: 0 },
        last_modification: Timespec { tv_sec: 1, tv_nsec: 0 },
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn set_xattrs(path: &Path, random: &mut Random) {
    for number in 0..random.below(4) {
        let name = format!("{}.grove{number}", if random.below(3) == 0 { "trusted" } else { "user" });
        let value = vec![random.below(256) as u8; random.below(300) as usize];
        // Not on symbolic links, for each user, or on every file system. The model sees the same.
        let _ = rustix::fs::lsetxattr(path, name, &value, XattrFlags::empty());
    }
}

/// The whole record of an entry, in one comparable form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub kind: Option<FileKind>,
    pub ino: u64,
    pub stat: Option<Stat>,
    pub link_target: Option<Vec<u8>>,
    pub link_end: Option<Result<u32, i32>>,
    pub has_capabilities: bool,
    pub xattrs: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// Attributes in the order of `struct stat`, and btime as std returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    pub dev: u64,
    pub numbers: [u64; 9],
    pub times: [(i64, i64); 3],
    pub born: Option<std::time::SystemTime>,
}

fn kind_of(kind: fs::FileType) -> FileKind {
    match kind {
        kind if kind.is_dir() => FileKind::Directory,
        kind if kind.is_symlink() => FileKind::Symlink,
        kind if kind.is_fifo() => FileKind::Fifo,
        kind if kind.is_socket() => FileKind::Socket,
        kind if kind.is_char_device() => FileKind::CharDevice,
        kind if kind.is_block_device() => FileKind::BlockDevice,
        _ => FileKind::File,
    }
}

/// The extended attributes of an entry, by the older calls.
fn xattrs_of(path: &Path, values: bool) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut list = vec![0; 65536];
    let len = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or(0);
    let mut found = BTreeMap::new();
    for name in list[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 65536];
        let len = if values { rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap() } else { 0 };
        found.insert(name.to_vec(), values.then(|| value[..len].to_vec()));
    }
    found
}

/// The masks to test: the levels, links alone, and everything.
pub const MASKS: [Mask; 7] = [
    Mask::empty(),
    Mask::STAT,
    Mask::STAT.union(Mask::XATTR_NAMES),
    Mask::STAT.union(Mask::XATTR_NAMES).union(Mask::XATTR_VALUES),
    Mask::LINK_TARGETS.union(Mask::LINK_ENDS),
    Mask::STAT.union(Mask::LINK_TARGETS).union(Mask::CAPABILITIES),
    Mask::all(),
];

/// The model: the answers of readdir, lstat, readlink and lgetxattr for a directory.
pub fn model(dir: &Path, mask: Mask) -> BTreeMap<OsString, Known> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let meta = path.symlink_metadata().unwrap();
        let known = Known {
            kind: Some(kind_of(meta.file_type())),
            ino: meta.ino(),
            stat: mask.contains(Mask::STAT).then(|| Stat {
                dev: meta.dev(),
                numbers: [
                    meta.ino(),
                    u64::from(meta.mode()),
                    meta.nlink(),
                    u64::from(meta.uid()),
                    u64::from(meta.gid()),
                    meta.rdev(),
                    meta.size(),
                    meta.blksize(),
                    meta.blocks(),
                ],
                times: [
                    (meta.atime(), meta.atime_nsec()),
                    (meta.mtime(), meta.mtime_nsec()),
                    (meta.ctime(), meta.ctime_nsec()),
                ],
                born: meta.created().ok(),
            }),
            link_target: (meta.is_symlink() && mask.contains(Mask::LINK_TARGETS))
                .then(|| fs::read_link(&path).unwrap().into_os_string().into_vec()),
            link_end: (meta.is_symlink() && mask.contains(Mask::LINK_ENDS))
                .then(|| path.metadata().map(|meta| meta.mode()).map_err(|error| error.raw_os_error().unwrap())),
            has_capabilities: mask.contains(Mask::CAPABILITIES)
                && xattrs_of(&path, false).contains_key(&b"security.capability"[..]),
            xattrs: if mask.wants_xattrs() {
                xattrs_of(&path, mask.contains(Mask::XATTR_VALUES))
            } else {
                BTreeMap::new()
            },
        };
        found.insert(entry.file_name(), known);
    }
    found
}

/// The same form, from a record.
pub fn known(record: &Record<'_>) -> (OsString, Known) {
    assert_eq!((record.errno(), record.xattr_errno(), record.changed()), (None, None, false), "{record:?}");
    let stat = record.attr().map(|attr| Stat {
        dev: rustix::fs::makedev(attr.dev_major, attr.dev_minor),
        numbers: [
            attr.ino,
            u64::from(attr.mode),
            u64::from(attr.nlink),
            u64::from(attr.uid),
            u64::from(attr.gid),
            rustix::fs::makedev(attr.rdev_major, attr.rdev_minor),
            attr.size,
            u64::from(attr.blksize),
            attr.blocks,
        ],
        times: [attr.atime, attr.mtime, attr.ctime].map(|time| (time.secs, i64::from(time.nanos))),
        born: attr.have.contains(pando_scan::Fields::BTIME).then(|| {
            std::time::UNIX_EPOCH + std::time::Duration::new(attr.btime.secs.try_into().unwrap(), attr.btime.nanos)
        }),
    });
    let xattrs = record.xattrs().map(|xattr| {
        let value = match xattr.value {
            XattrValue::NotRead => None,
            XattrValue::Bytes(value) => Some(value.to_vec()),
            XattrValue::Errno(errno) => panic!("{:?}: errno {errno}", record.name()),
        };
        (xattr.name.to_vec(), value)
    });
    let known = Known {
        kind: record.kind(),
        ino: record.ino(),
        stat,
        link_target: record.link_target().map(|target| target.unwrap().to_vec()),
        link_end: record.link_end(),
        has_capabilities: record.has_capabilities(),
        xattrs: xattrs.collect(),
    };
    (OsStr::from_bytes(record.name()).to_owned(), known)
}

/// A directory for one test.
pub fn temp() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The path of an entry.
pub fn join(dir: &Path, name: &[u8]) -> PathBuf {
    dir.join(OsStr::from_bytes(name))
}
