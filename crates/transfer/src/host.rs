//! A directory of the host, as source and as target.

use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use pando_records::{Record, XATTR_SIZE_MAX, XattrValue};
use pando_scan::{Descent, Event, Mask, Walk, WalkOptions};
use pando_vfs::{FileKind, Timestamp};
use rustix::{
    fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags},
    io::Errno,
};

use crate::{
    Error, Options, Result,
    entry::{Body, FirstNames, Meta, Sink, copies_xattr},
    target::Dir,
};

/// Puts all entries below `from` into `sink`.
pub(crate) fn read(from: &Path, options: &Options, sink: &mut impl Sink) -> Result<()> {
    let here = |error: io::Error| Error::new("", error);
    let root = open_dir(CWD, from.as_os_str(), OFlags::empty()).map_err(here)?;
    sink.put(Path::new(""), &meta_of_root(&root, options).map_err(here)?, Body::Directory)?;
    let mut walk_options = WalkOptions::new().descent(Descent::Sorted);
    walk_options.scan.mask = Mask::STAT | Mask::XATTR_VALUES | Mask::LINK_TARGETS;
    let mut walk = Walk::new(walk_options).map_err(|error| here(io::Error::other(error)))?;
    walk.push_fd(root, "");
    let mut first_names = FirstNames::default();
    while let Some(event) = walk.next_event() {
        match event {
            Event::Batch(dir, batch) => {
                for record in batch.iter() {
                    let path = dir.path.join(OsStr::from_bytes(record.name()));
                    put(dir.fd, &path, &record, options, &mut first_names, sink)?;
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

fn put(
    dir: BorrowedFd<'_>,
    path: &Path,
    record: &Record<'_>,
    options: &Options,
    first_names: &mut FirstNames,
    sink: &mut impl Sink,
) -> Result<()> {
    let failed = |errno: i32| Error::new(path, io::Error::from_raw_os_error(errno));
    match record.errno().or(record.xattr_errno()) {
        // It was removed after its directory was read.
        Some(errno) if errno == Errno::NOENT.raw_os_error() => return Ok(()),
        Some(errno) => return Err(failed(errno)),
        None => {}
    }
    let Some(attr) = record.attr() else { return Err(failed(Errno::IO.raw_os_error())) };
    let mut xattrs = Vec::new();
    for xattr in record.xattrs().filter(|xattr| copies_xattr(xattr.name, options)) {
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
    if let Some(first) = first_names.of(kind, attr.nlink, (device, attr.ino), path) {
        return sink.put(path, &meta, Body::HardLink(first));
    }
    match kind {
        FileKind::Directory => sink.put(path, &meta, Body::Directory),
        FileKind::File => {
            // NONBLOCK: a fifo that has taken the place of the file must not block the copy.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::openat(dir, record.name_c(), flags, Mode::empty());
            let mut file = fs::File::from(file.map_err(|error| Error::new(path, error))?);
            let now = file.metadata().map_err(|error| Error::new(path, error))?;
            if !now.is_file() {
                return Err(failed(Errno::STALE.raw_os_error()));
            }
            sink.put(path, &meta, Body::File { size: now.len(), contents: &mut file })
        }
        FileKind::Symlink => match record.link_target() {
            Some(Ok(target)) => sink.put(path, &meta, Body::Symlink(OsStr::from_bytes(target))),
            Some(Err(errno)) => Err(failed(errno)),
            None => Err(failed(Errno::IO.raw_os_error())),
        },
        kind => {
            let rdev = rustix::fs::makedev(attr.rdev_major, attr.rdev_minor);
            sink.put(path, &meta, Body::Special(kind, rdev))
        }
    }
}

/// The root's own metadata: a walk has records only of what is below.
fn meta_of_root(root: &OwnedFd, options: &Options) -> io::Result<Meta> {
    let stat = rustix::fs::fstat(root)?;
    let (mut names, mut value) = (vec![0; XATTR_SIZE_MAX], vec![0; XATTR_SIZE_MAX]);
    let len = match rustix::fs::flistxattr(root, &mut names) {
        Err(Errno::OPNOTSUPP) => 0,
        len => len?,
    };
    let mut xattrs = Vec::new();
    for name in names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty() && copies_xattr(name, options)) {
        match rustix::fs::fgetxattr(root, name, &mut value) {
            Ok(len) => xattrs.push((name.to_vec(), value[..len].to_vec())),
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mtime = Timestamp::from_parts(stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0));
    Ok(Meta { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid, mtime, xattrs })
}

fn open_dir(at: impl AsFd, name: &OsStr, more: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

/// A directory of the host.
pub(crate) struct HostDir(OwnedFd);

impl HostDir {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        open_dir(CWD, path.as_os_str(), OFlags::empty()).map(Self).map_err(|error| Error::new("", error))
    }
}

/// Sets the metadata of an open file or directory. The owner first: chown(2) clears setuid and
/// setgid.
fn set_open(fd: impl AsFd, meta: &Meta, options: &Options) -> io::Result<()> {
    if options.privileged {
        rustix::fs::fchown(&fd, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)))?;
    }
    for (name, value) in meta.xattrs.iter().filter(|(name, _)| copies_xattr(name, options)) {
        rustix::fs::fsetxattr(&fd, name.as_slice(), value, XattrFlags::empty())?;
    }
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(meta.mode))?;
    rustix::fs::futimens(&fd, &times(meta))?;
    Ok(())
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
        open_dir(&self.0, name, OFlags::NOFOLLOW).map(Self)
    }

    fn make_dir(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.0, name, Mode::RWXU)?)
    }

    fn make_file(&self, name: &OsStr) -> io::Result<fs::File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(fs::File::from(rustix::fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    fn make_symlink(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.0, name)?)
    }

    fn make_special(&self, name: &OsStr, kind: FileKind, rdev: u64) -> io::Result<()> {
        let file_type = FileType::from_raw_mode(kind.to_mode());
        Ok(rustix::fs::mknodat(&self.0, name, file_type, Mode::RUSR | Mode::WUSR, rdev)?)
    }

    fn hard_link(&self, old_dir: &Self, old: &OsStr, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(&old_dir.0, old, &self.0, new, AtFlags::empty())?)
    }

    fn set_file_meta(&self, file: &fs::File, meta: &Meta, options: &Options) -> io::Result<()> {
        set_open(file, meta, options)
    }

    fn set_meta(&self, name: &OsStr, kind: FileKind, meta: &Meta, options: &Options) -> io::Result<()> {
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        if options.privileged {
            let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
            rustix::fs::chownat(&self.0, name, Some(uid), Some(gid), nofollow)?;
        }
        if kind != FileKind::Symlink {
            // chmod(2) follows links. Through a descriptor of the entry itself it changes no other
            // file.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let itself = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
            let path = PathBuf::from(format!("/proc/self/fd/{}", itself.as_raw_fd()));
            rustix::fs::chmod(path, Mode::from_raw_mode(meta.mode))?;
        }
        Ok(rustix::fs::utimensat(&self.0, name, &times(meta), nofollow)?)
    }

    fn set_own_meta(&self, meta: &Meta, options: &Options) -> io::Result<()> {
        set_open(&self.0, meta, options)
    }
}
