//! A directory of the host, as source and as target.

use std::{
    cell::Cell,
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    rc::Rc,
};

use pando_records::{Record, XATTR_SIZE_MAX, XCREATE, XCREATE_ROOT, XattrValue};
use pando_scan::{Descent, Event, Mask, Walk, WalkOptions};
use pando_vfs::{FileKind, Timestamp, XATTR_ACL_DEFAULT};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, StatxFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
    },
    io::Errno,
};

use crate::{
    Error, Options, Result,
    entry::{Body, FirstNames, Meta, Sink, copies_xattr, remove_lacked_acls},
    target::Dir,
};

/// Files of the host that are copied, perhaps from several places.
pub(crate) struct Reader<'a, S> {
    options: &'a Options,
    sink: &'a mut S,
    first_names: FirstNames,
}

impl<'a, S: Sink> Reader<'a, S> {
    pub(crate) fn new(options: &'a Options, sink: &'a mut S) -> Self {
        Self { options, sink, first_names: FirstNames::default() }
    }

    /// Puts `from`, which may be of any kind, and what is below it, into the sink under the path
    /// `to`.
    pub(crate) fn read(&mut self, from: &Path, to: &Path) -> Result<()> {
        let failed = |error: io::Error| Error::new(from, error);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let itself = rustix::fs::openat(CWD, from, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let (stat, meta) = meta_of(&itself, self.options).map_err(failed)?;
        let Some(kind) = FileKind::from_mode(stat.st_mode) else { return Err(failed(Errno::IO.into())) };
        if kind == FileKind::Directory {
            return self.read_dir(from, to);
        }
        let nlink = u32::try_from(stat.st_nlink).unwrap_or(u32::MAX);
        if let Some(first) = self.first_names.of(kind, nlink, (stat.st_dev, stat.st_ino), to) {
            return self.sink.put(to, &meta, Body::HardLink(first));
        }
        match kind {
            FileKind::File => {
                let mut file = fs::File::open(proc_path(&itself)).map_err(failed)?;
                let size = stat.st_size.unsigned_abs();
                self.sink.put(to, &meta, Body::File { size, contents: &mut file })
            }
            FileKind::Symlink => {
                let target = rustix::fs::readlinkat(&itself, "", Vec::new()).map_err(|error| failed(error.into()))?;
                self.sink.put(to, &meta, Body::Symlink(OsStr::from_bytes(target.as_bytes())))
            }
            kind => self.sink.put(to, &meta, Body::Special(kind, stat.st_rdev)),
        }
    }

    /// Puts the directory `from` and all entries below into the sink under the path `to`.
    pub(crate) fn read_dir(&mut self, from: &Path, to: &Path) -> Result<()> {
        let here = |error: io::Error| Error::new(from, error);
        let root = open_dir(CWD, from.as_os_str(), OFlags::empty()).map_err(here)?;
        let (stat, meta) = meta_of(&root, self.options).map_err(here)?;
        self.put_dir((stat.st_dev, stat.st_ino), to, &meta)?;
        let mut walk_options = WalkOptions::new().descent(Descent::Sorted);
        walk_options.scan.mask = Mask::STAT | Mask::XATTR_VALUES | Mask::LINK_TARGETS;
        let mut walk = Walk::new(walk_options).map_err(|error| here(io::Error::other(error)))?;
        walk.push_fd(root, to);
        while let Some(event) = walk.next_event() {
            match event {
                Event::Batch(dir, batch) => {
                    for record in batch.iter() {
                        let path = dir.path.join(OsStr::from_bytes(record.name()));
                        self.put(dir.fd, &path, &record)?;
                    }
                }
                Event::Failed(failure) => {
                    return Err(Error::new(failure.path, io::Error::from_raw_os_error(failure.errno)));
                }
                Event::Enter(_) | Event::Leave(..) => {}
            }
        }
        Ok(())
    }

    /// A directory, given also by device and inode number. Its copy would have a copy of itself,
    /// without end, if it were the target.
    fn put_dir(&mut self, itself: (u64, u64), path: &Path, meta: &Meta) -> Result<()> {
        if self.sink.is_into(itself) {
            let error =
                io::Error::new(io::ErrorKind::InvalidInput, "the directory to copy into is inside of the source");
            return Err(Error::new(path, error));
        }
        self.sink.put(path, meta, Body::Directory)
    }

    fn put(&mut self, dir: BorrowedFd<'_>, path: &Path, record: &Record<'_>) -> Result<()> {
        let failed = |errno: i32| Error::new(path, io::Error::from_raw_os_error(errno));
        match record.errno().or(record.xattr_errno()) {
            // It was removed after its directory was read.
            Some(errno) if errno == Errno::NOENT.raw_os_error() => return Ok(()),
            Some(errno) => return Err(failed(errno)),
            None => {}
        }
        let Some(attr) = record.attr() else { return Err(failed(Errno::IO.raw_os_error())) };
        let mut xattrs = Vec::new();
        for xattr in record.xattrs().filter(|xattr| copies_xattr(xattr.name, self.options)) {
            match xattr.value {
                XattrValue::Bytes(value) => xattrs.push((xattr.name.to_vec(), value.to_vec())),
                XattrValue::Errno(errno) => return Err(failed(errno)),
                XattrValue::NotRead => {}
            }
        }
        let mtime = Timestamp::from_parts(attr.mtime.secs, attr.mtime.nanos);
        let meta = Meta { mode: attr.mode & 0o7777, uid: attr.uid, gid: attr.gid, mtime, xattrs };
        let kind = attr.kind().ok_or_else(|| failed(Errno::IO.raw_os_error()))?;
        let device = rustix::fs::makedev(attr.dev_major, attr.dev_minor);
        if let Some(first) = self.first_names.of(kind, attr.nlink, (device, attr.ino), path) {
            return self.sink.put(path, &meta, Body::HardLink(first));
        }
        match kind {
            FileKind::Directory => self.put_dir((device, attr.ino), path, &meta),
            FileKind::File => {
                // NONBLOCK: a fifo that has taken the place of the file must not block the copy.
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = rustix::fs::openat(dir, record.name_c(), flags, Mode::empty());
                let mut file = fs::File::from(file.map_err(|error| Error::new(path, error))?);
                let now = file.metadata().map_err(|error| Error::new(path, error))?;
                if !now.is_file() {
                    return Err(failed(Errno::STALE.raw_os_error()));
                }
                self.sink.put(path, &meta, Body::File { size: now.len(), contents: &mut file })
            }
            FileKind::Symlink => match record.link_target() {
                Some(Ok(target)) => self.sink.put(path, &meta, Body::Symlink(OsStr::from_bytes(target))),
                Some(Err(errno)) => Err(failed(errno)),
                None => Err(failed(Errno::IO.raw_os_error())),
            },
            kind => {
                let rdev = rustix::fs::makedev(attr.rdev_major, attr.rdev_minor);
                self.sink.put(path, &meta, Body::Special(kind, rdev))
            }
        }
    }
}

/// The metadata of a file that is open, perhaps with O_PATH: a walk has records only of what is
/// below its root.
fn meta_of(itself: &OwnedFd, options: &Options) -> io::Result<(Stat, Meta)> {
    let (stat, path) = (rustix::fs::fstat(itself)?, proc_path(itself));
    let (mut names, mut value) = (vec![0; XATTR_SIZE_MAX], vec![0; XATTR_SIZE_MAX]);
    let len = match rustix::fs::listxattr(&path, &mut names) {
        Err(Errno::OPNOTSUPP) => 0,
        len => len?,
    };
    let mut xattrs = Vec::new();
    for name in names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty() && copies_xattr(name, options)) {
        match rustix::fs::getxattr(&path, name, &mut value) {
            Ok(len) => xattrs.push((name.to_vec(), value[..len].to_vec())),
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mtime = Timestamp::from_parts(stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0));
    let meta = Meta { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid, mtime, xattrs };
    Ok((stat, meta))
}

fn open_dir(at: impl AsFd, name: &OsStr, more: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

/// A directory of the host. Opening it with O_PATH sends no request to the server of a mount.
pub(crate) struct HostDir {
    fd: OwnedFd,
    /// The device where setting the attribute has made entries, in a directory of this copy. A file
    /// system that stores any attribute would have stored them.
    proven: Rc<Cell<Option<(u32, u32)>>>,
}

impl HostDir {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let fd = open_dir(CWD, path.as_os_str(), OFlags::PATH).map_err(|error| Error::new("", error))?;
        Ok(Self { fd, proven: Rc::default() })
    }

    /// Whether this directory is on the device where entries were made.
    fn is_proven(&self) -> bool {
        self.proven.get().is_some_and(|proven| self.device() == Some(proven))
    }

    /// The device, without a request to the server of a mount.
    fn device(&self) -> Option<(u32, u32)> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(&self.fd, "", flags, StatxFlags::empty()).ok()?;
        Some((found.stx_dev_major, found.stx_dev_minor))
    }

    /// A descriptor of the entry itself: by it, no other file is changed.
    fn entry(&self, name: &OsStr) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(&self.fd, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// A path of the directory itself, for calls that take no descriptor with O_PATH.
    fn path(&self) -> PathBuf {
        proc_path(&self.fd)
    }

    /// How many entries the last call of this thread made here, if it failed. None if the directory
    /// takes no records.
    fn made(&self) -> Option<usize> {
        let mut value = [0; 20];
        let length = rustix::fs::getxattr(self.path(), xcreate(), &mut value[..]).ok()?;
        std::str::from_utf8(&value[..length]).ok()?.parse().ok()
    }
}

/// The attribute that makes entries for this process.
fn xcreate() -> &'static str {
    if rustix::process::geteuid().is_root() { XCREATE_ROOT } else { XCREATE }
}

/// Removes the ACLs that the source lacks of what a path leads to.
fn remove(path: &Path, meta: &Meta) -> io::Result<()> {
    let set = |acl: &str, value: &[u8]| match value {
        // Before Linux 6.2 an empty value was an error.
        [] => Ok(rustix::fs::removexattr(path, acl)?),
        value => Ok(rustix::fs::setxattr(path, acl, value, XattrFlags::empty())?),
    };
    remove_lacked_acls(meta, |acl| has_acl(path, acl), set)
}

fn has_acl(path: &Path, acl: &str) -> io::Result<bool> {
    match rustix::fs::getxattr(path, acl, &mut [0; 0][..]) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether a copy must get another owner or group. Most have them already, and on a mount a chown
/// is a request.
fn is_others(now: &Stat, meta: &Meta, options: &Options) -> bool {
    options.privileged && (now.st_uid, now.st_gid) != (meta.uid, meta.gid)
}

/// Sets the metadata of an open file. The owner first: chown(2) clears setuid and setgid.
fn set_open(fd: impl AsFd, meta: &Meta, options: &Options) -> io::Result<()> {
    if is_others(&rustix::fs::fstat(&fd)?, meta, options) {
        rustix::fs::fchown(&fd, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)))?;
    }
    for (name, value) in meta.xattrs.iter().filter(|(name, _)| copies_xattr(name, options)) {
        rustix::fs::fsetxattr(&fd, name.as_slice(), value, XattrFlags::empty())?;
    }
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(meta.mode))?;
    Ok(rustix::fs::futimens(&fd, &times(meta))?)
}

/// As [`set_open`], of what a path leads to.
fn set_path(path: &Path, kind: FileKind, meta: &Meta, options: &Options) -> io::Result<()> {
    if is_others(&rustix::fs::stat(path)?, meta, options) {
        rustix::fs::chown(path, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)))?;
    }
    for (name, value) in meta.xattrs.iter().filter(|(name, _)| copies_xattr(name, options)) {
        rustix::fs::setxattr(path, name.as_slice(), value, XattrFlags::empty())?;
    }
    // Linux changes no permission bits of a symbolic link.
    if kind != FileKind::Symlink {
        rustix::fs::chmod(path, Mode::from_raw_mode(meta.mode))?;
    }
    Ok(rustix::fs::utimensat(CWD, path, &times(meta), AtFlags::empty())?)
}

/// A path of the open file itself, whatever its name is now.
fn proc_path(file: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn times(meta: &Meta) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: meta.mtime.secs(), tv_nsec: meta.mtime.nanos().into() },
    }
}

impl Dir for HostDir {
    type File = fs::File;

    fn open_dir(&self, name: &OsStr) -> io::Result<Self> {
        let fd = open_dir(&self.fd, name, OFlags::PATH | OFlags::NOFOLLOW)?;
        Ok(Self { fd, proven: self.proven.clone() })
    }

    fn make_dir(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.fd, name, Mode::RWXU)?)
    }

    fn make_file(&self, name: &OsStr) -> io::Result<fs::File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(fs::File::from(rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    fn make_symlink(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.fd, name)?)
    }

    fn make_special(&self, name: &OsStr, kind: FileKind, rdev: u64) -> io::Result<()> {
        let file_type = FileType::from_raw_mode(kind.to_mode());
        Ok(rustix::fs::mknodat(&self.fd, name, file_type, Mode::RUSR | Mode::WUSR, rdev)?)
    }

    fn hard_link(&self, old_dir: &Self, old: &OsStr, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(&old_dir.fd, old, &self.fd, new, AtFlags::empty())?)
    }

    fn set_file_meta(&self, file: &fs::File, meta: &Meta, options: &Options) -> io::Result<()> {
        set_open(file, meta, options)
    }

    fn set_meta(&self, name: &OsStr, kind: FileKind, meta: &Meta, options: &Options) -> io::Result<()> {
        // By a path without this descriptor, chmod(2) would follow links.
        set_path(&proc_path(&self.entry(name)?), kind, meta, options)
    }

    fn set_own_meta(&self, meta: &Meta, options: &Options) -> io::Result<()> {
        set_path(&self.path(), FileKind::Directory, meta, options)
    }

    fn is_host_dir(&self, file: (u64, u64)) -> bool {
        rustix::fs::fstat(&self.fd).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == file)
    }

    fn gives_acls(&self) -> io::Result<bool> {
        has_acl(&self.path(), XATTR_ACL_DEFAULT)
    }

    fn remove_file_acls(&self, file: &fs::File, meta: &Meta) -> io::Result<()> {
        remove(&proc_path(file), meta)
    }

    fn remove_acls(&self, name: &OsStr, meta: &Meta) -> io::Result<()> {
        remove(&proc_path(&self.entry(name)?), meta)
    }

    fn remove_own_acls(&self, meta: &Meta) -> io::Result<()> {
        remove(&self.path(), meta)
    }

    /// On a mount of pandofs whose server allows it.
    fn takes_records(&self) -> bool {
        self.is_proven() || self.made().is_some()
    }

    fn make_many(&self, records: &[u8]) -> std::result::Result<(), (usize, io::Error)> {
        let path = self.path();
        rustix::fs::setxattr(&path, xcreate(), records, XattrFlags::empty())
            .map_err(|error| (self.made().unwrap_or(0), error.into()))?;
        if !self.is_proven() {
            if self.made() != Some(0) {
                let _ = rustix::fs::removexattr(&path, xcreate());
                return Err((0, Errno::OPNOTSUPP.into()));
            }
            self.proven.set(self.device());
        }
        Ok(())
    }
}
