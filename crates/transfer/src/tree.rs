//! A tree of pandofs, as source and as target.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use pando_vfs::{
    At, Context, DentryRef, Error as Errno, File, FileKind, OpenFlags, SetAttr, SetTime, Stat, Vfs, Walk,
    XATTR_ACL_DEFAULT, XattrFlags, fs::Fs,
};

use crate::{
    Error, Options, Result,
    entry::{Body, FirstNames, Meta, Sink, copies_xattr, remove_lacked_acls},
    target::Dir,
};

/// Puts all entries below `from` into `sink`.
pub(crate) fn read(fs: &Fs, from: &Path, options: &Options, sink: &mut impl Sink) -> Result<()> {
    let here = |error: Errno| Error::new("", error);
    let (vfs, context) = (fs.vfs(), fs.context());
    let root = vfs.lookup(context, At::Cwd, from.as_os_str().as_bytes(), Walk::empty()).map_err(here)?;
    let meta = meta_of(vfs, context, &root, &vfs.getattr(&root).map_err(here)?, options).map_err(here)?;
    sink.put(Path::new(""), &meta, Body::Directory)?;
    let mut first_names = FirstNames::default();
    for entry in fs.walk(from) {
        let entry = entry.map_err(|error| {
            let path = error.path().strip_prefix(from).unwrap_or(error.path());
            Error::new(path, error.error())
        })?;
        let path = entry.path();
        let path = path.strip_prefix(from).unwrap_or(&path);
        let failed = |error: Errno| Error::new(path, error);
        let dentry = match entry.dentry() {
            // It was removed after its directory was read.
            Err(Errno::NoEntry) => continue,
            dentry => dentry.map_err(failed)?,
        };
        let stat = vfs.getattr(&dentry).map_err(failed)?;
        let meta = meta_of(vfs, context, &dentry, &stat, options).map_err(failed)?;
        if let Some(first) = first_names.of(stat.kind, stat.nlink, (stat.dev, stat.ino), path) {
            sink.put(path, &meta, Body::HardLink(first))?;
            continue;
        }
        match stat.kind {
            FileKind::Directory => sink.put(path, &meta, Body::Directory)?,
            FileKind::File => {
                let mut file = vfs.open_dentry(context, &dentry, OpenFlags::RDONLY).map_err(failed)?;
                sink.put(path, &meta, Body::File { size: stat.size, contents: &mut file })?;
            }
            FileKind::Symlink => {
                let target = vfs.readlink(context, At::Dir(&dentry), "", Walk::EMPTY_PATH).map_err(failed)?;
                sink.put(path, &meta, Body::Symlink(&std::ffi::OsString::from_vec(target)))?;
            }
            kind => sink.put(path, &meta, Body::Special(kind, stat.rdev))?,
        }
    }
    Ok(())
}

fn meta_of(
    vfs: &Vfs,
    context: &Context,
    dentry: &DentryRef,
    stat: &Stat,
    options: &Options,
) -> std::result::Result<Meta, Errno> {
    let itself = At::Dir(dentry);
    let mut xattrs = Vec::new();
    for name in vfs.listxattr(context, itself, "", Walk::EMPTY_PATH)? {
        if !copies_xattr(&name, options) {
            continue;
        }
        match vfs.getxattr(context, itself, "", &name, Walk::EMPTY_PATH) {
            Ok(value) => xattrs.push((name, value)),
            // It was removed after the list was read.
            Err(Errno::NoData) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Meta { mode: stat.mode, uid: stat.uid, gid: stat.gid, mtime: stat.mtime, xattrs })
}

/// A directory of a tree.
pub(crate) struct TreeDir {
    vfs: Vfs,
    /// With an empty umask.
    context: Context,
    dentry: DentryRef,
}

impl TreeDir {
    pub(crate) fn open(fs: &Fs, path: &Path) -> Result<Self> {
        let (vfs, context) = (fs.vfs().clone(), fs.context().clone().with_umask(0));
        let dentry = vfs.lookup(&context, At::Cwd, path.as_os_str().as_bytes(), Walk::empty());
        let dentry = dentry.map_err(|error| Error::new("", error))?;
        Ok(Self { vfs, context, dentry })
    }

    fn at(&self) -> At<'_> {
        At::Dir(&self.dentry)
    }

    fn lookup(&self, name: &OsStr) -> std::result::Result<DentryRef, Errno> {
        self.vfs.lookup(&self.context, self.at(), name.as_bytes(), Walk::NOFOLLOW)
    }

    /// Sets the metadata. The owner first: a change of it removes file capabilities.
    fn set(&self, dentry: &DentryRef, kind: FileKind, meta: &Meta, options: &Options) -> io::Result<()> {
        if options.privileged {
            let owner = SetAttr::new().uid(Some(meta.uid)).gid(Some(meta.gid));
            self.vfs.setattr(&self.context, dentry, &owner)?;
        }
        for (name, value) in meta.xattrs.iter().filter(|(name, _)| copies_xattr(name, options)) {
            self.set_xattr(dentry, name, value)?;
        }
        // Linux changes no permission bits of a symbolic link.
        let mode = (kind != FileKind::Symlink).then_some(meta.mode);
        self.vfs.setattr(&self.context, dentry, &SetAttr::new().mode(mode).mtime(SetTime::At(meta.mtime)))?;
        Ok(())
    }

    fn set_xattr(&self, dentry: &DentryRef, name: &[u8], value: &[u8]) -> io::Result<()> {
        let how = XattrFlags::empty();
        Ok(self.vfs.setxattr(&self.context, At::Dir(dentry), "", name, value, how, Walk::EMPTY_PATH)?)
    }

    fn has_acl(&self, dentry: &DentryRef, acl: &str) -> io::Result<bool> {
        match self.vfs.getxattr(&self.context, At::Dir(dentry), "", acl, Walk::EMPTY_PATH) {
            Ok(_) => Ok(true),
            Err(Errno::NoData | Errno::NotSupported) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn remove(&self, dentry: &DentryRef, meta: &Meta) -> io::Result<()> {
        remove_lacked_acls(
            meta,
            |acl| self.has_acl(dentry, acl),
            |acl, value| self.set_xattr(dentry, acl.as_bytes(), value),
        )
    }
}

impl Dir for TreeDir {
    type File = File;

    fn open_dir(&self, name: &OsStr) -> io::Result<Self> {
        let dentry = self.lookup(name)?;
        if !self.vfs.getattr(&dentry)?.is_dir() {
            return Err(Errno::NotDirectory.into());
        }
        Ok(Self { vfs: self.vfs.clone(), context: self.context.clone(), dentry })
    }

    fn make_dir(&self, name: &OsStr) -> io::Result<()> {
        self.vfs.mkdir(&self.context, self.at(), name.as_bytes(), 0o700)?;
        Ok(())
    }

    fn make_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OpenFlags::WRONLY | OpenFlags::CREAT | OpenFlags::EXCL;
        Ok(self.vfs.open(&self.context, self.at(), name.as_bytes(), flags, 0o600)?)
    }

    fn make_symlink(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        self.vfs.symlink(&self.context, target.as_bytes(), self.at(), name.as_bytes())?;
        Ok(())
    }

    fn make_special(&self, name: &OsStr, kind: FileKind, rdev: u64) -> io::Result<()> {
        let rdev = u32::try_from(rdev).map_err(|_| Errno::Invalid)?;
        self.vfs.mknod(&self.context, self.at(), name.as_bytes(), kind.to_mode() | 0o600, rdev)?;
        Ok(())
    }

    fn hard_link(&self, old_dir: &Self, old: &OsStr, new: &OsStr) -> io::Result<()> {
        let (from, to) = (old_dir.at(), self.at());
        self.vfs.link(&self.context, from, old.as_bytes(), to, new.as_bytes(), Walk::NOFOLLOW)?;
        Ok(())
    }

    fn set_file_meta(&self, file: &File, meta: &Meta, options: &Options) -> io::Result<()> {
        self.set(file.dentry(), FileKind::File, meta, options)
    }

    fn set_meta(&self, name: &OsStr, kind: FileKind, meta: &Meta, options: &Options) -> io::Result<()> {
        self.set(&self.lookup(name)?, kind, meta, options)
    }

    fn set_own_meta(&self, meta: &Meta, options: &Options) -> io::Result<()> {
        self.set(&self.dentry, FileKind::Directory, meta, options)
    }

    fn gives_acls(&self) -> io::Result<bool> {
        self.has_acl(&self.dentry, XATTR_ACL_DEFAULT)
    }

    fn remove_file_acls(&self, file: &File, meta: &Meta) -> io::Result<()> {
        self.remove(file.dentry(), meta)
    }

    fn remove_acls(&self, name: &OsStr, meta: &Meta) -> io::Result<()> {
        self.remove(&self.lookup(name)?, meta)
    }

    fn remove_own_acls(&self, meta: &Meta) -> io::Result<()> {
        self.remove(&self.dentry, meta)
    }
}
