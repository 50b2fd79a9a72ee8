//! One thread's access to a tree of the library, in memory or backed.

use std::{
    borrow::Borrow,
    ffi::CStr,
    hint::black_box,
    io::{self, SeekFrom},
};

use pando_vfs::{
    At, Context, Credentials, Error, File, Next, OpenFlags, PATH_MAX, RenameFlags, Seek, Vfs, Walk, XattrFlags,
    records::{Mask, Unpacked},
};

use super::{
    Actor, Caches, Handle, Level, Listed, NO_CACHE, Open, ReadAhead, Work, calls::DirActor, consume,
    unsupported_because,
};
use crate::base::path::TreePath;

/// One thread's access to a tree of the library.
pub(super) struct TreeActor<'a> {
    vfs: &'a Vfs,
    /// The context of this thread, as each task has one; its working directory is the root.
    context: Context,
    /// A context with the working directory, once one was set.
    cwd: Option<Context>,
    /// The tree is kept elsewhere, and this is a cache of it.
    has_cache: bool,
    /// The directory of the host where it is kept.
    below: Option<DirActor>,
    /// For records. Empty until it is used.
    buffer: Vec<u8>,
}

/// The size of a buffer for records: it stays in the cache of the processor.
const RECORDS: usize = 64 << 10;

impl<'a> TreeActor<'a> {
    /// `has_cache`: the tree is kept elsewhere.
    pub(super) fn new(vfs: &'a Vfs, who: Credentials, has_cache: bool) -> Self {
        Self { vfs, context: Context::new(vfs, who), cwd: None, has_cache, below: None, buffer: Vec::new() }
    }

    /// `below`: the directory of the host where the tree is kept.
    pub(super) fn over(below: DirActor, vfs: &'a Vfs, who: Credentials) -> Self {
        Self { below: Some(below), ..Self::new(vfs, who, true) }
    }

    fn file(&self, path: &TreePath, how: Open) -> io::Result<File> {
        let flags = match how {
            Open::Read => OpenFlags::RDONLY,
            Open::Create => OpenFlags::RDWR | OpenFlags::CREAT,
        };
        Ok(self.vfs.open(&self.context, At::Cwd, path.relative(), flags, 0o600)?)
    }

    fn directory(&self, path: &TreePath) -> io::Result<File> {
        let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
        Ok(self.vfs.open(&self.context, At::Cwd, path.relative(), flags, 0)?)
    }
}

fn mask_of(level: Level) -> Mask {
    Mask::level(level as u32).expect("a level is from 0 to 3")
}

impl Actor for TreeActor<'_> {
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()> {
        Ok(self.vfs.mkdir(&self.context, At::Cwd, path.relative(), 0o700).map(drop)?)
    }

    fn create(&mut self, path: &TreePath) -> io::Result<()> {
        let flags = OpenFlags::WRONLY | OpenFlags::CREAT | OpenFlags::EXCL;
        Ok(self.vfs.open(&self.context, At::Cwd, path.relative(), flags, 0o600).map(drop)?)
    }

    fn unlink(&mut self, path: &TreePath) -> io::Result<()> {
        Ok(self.vfs.unlink(&self.context, At::Cwd, path.relative())?)
    }

    fn stat(&mut self, path: &TreePath) -> io::Result<()> {
        Ok(consume(self.vfs.stat(&self.context, At::Cwd, path.relative(), Walk::empty()))?)
    }

    fn rmdir(&mut self, path: &TreePath) -> io::Result<()> {
        Ok(self.vfs.rmdir(&self.context, At::Cwd, path.relative())?)
    }

    fn rename(&mut self, from: &TreePath, to: &TreePath) -> io::Result<()> {
        let (from, to) = (from.relative(), to.relative());
        Ok(self.vfs.rename(&self.context, At::Cwd, from, At::Cwd, to, RenameFlags::empty())?)
    }

    fn open_close(&mut self, path: &TreePath) -> io::Result<()> {
        Ok(self.vfs.open(&self.context, At::Cwd, path.relative(), OpenFlags::RDONLY, 0).map(drop)?)
    }

    fn open(&mut self, path: &TreePath) -> io::Result<Box<dyn Handle>> {
        let file = self.file(path, Open::Create)?;
        Ok(Box::new(TreeHandle { file, vfs: self.vfs.clone(), context: self.context.clone() }))
    }

    fn with_open(&mut self, path: &TreePath, how: Open, work: Work<'_>) -> io::Result<()> {
        work(&TreeHandle { file: self.file(path, how)?, vfs: self.vfs, context: &self.context })
    }

    fn list(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        let file = self.directory(dir)?;
        let (mut listed, mut failed) = (Listed::default(), None);
        file.readdir(0, |entry| {
            if matches!(entry.name, b"." | b"..") {
                return true;
            }
            listed.entries += 1;
            let looked = look(self.vfs, &self.context, At::Dir(file.dentry()), entry.name, level, &mut listed);
            failed = looked.err();
            failed.is_none()
        })?;
        failed.map_or(Ok(listed), |error| Err(error.into()))
    }

    fn records(&mut self, dir: &TreePath, level: Level) -> io::Result<Listed> {
        let (dir, mask) = (self.directory(dir)?, mask_of(level));
        self.buffer.resize(RECORDS, 0);
        let (mut listed, mut cookie) = (Listed::default(), 0);
        loop {
            let packed = dir.xgetdents(&self.context, cookie, mask, &mut self.buffer)?;
            for record in Unpacked::new(&self.buffer[..packed.bytes]) {
                if let Some(errno) = record.errno().or(record.xattr_errno()) {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                if matches!(record.name(), b"." | b"..") {
                    continue;
                }
                listed.entries += 1;
                black_box(record.name());
                black_box(record.attr());
                listed.add_xattrs(record.xattrs().map(|xattr| xattr.value));
            }
            match packed.next {
                Next::End => return Ok(listed),
                Next::More => cookie = packed.cookie,
                Next::Needs(bytes) => self.buffer.resize(bytes, 0),
            }
        }
    }

    fn read_ahead(&mut self, dir: &TreePath, level: Level) -> io::Result<Box<dyn ReadAhead>> {
        Ok(Box::new(self.directory(dir)?.readahead(&self.context, 0, usize::MAX, mask_of(level))?))
    }

    fn set_xattr(&mut self, path: &TreePath, name: &CStr, value: &[u8]) -> io::Result<()> {
        let (flags, how) = (Walk::empty(), XattrFlags::empty());
        Ok(self.vfs.setxattr(&self.context, At::Cwd, path.relative(), name.to_bytes(), value, how, flags)?)
    }

    fn chdir(&mut self, path: &TreePath) -> io::Result<()> {
        let mut cwd = self.context.clone();
        self.vfs.chdir(&mut cwd, At::Cwd, path.relative())?;
        self.cwd = Some(cwd);
        Ok(())
    }

    fn getcwd(&mut self) -> io::Result<usize> {
        Ok(black_box(self.vfs.getcwd(self.cwd.as_ref().unwrap_or(&self.context), PATH_MAX)?).len())
    }

    fn drop_caches(&mut self, what: Caches) -> io::Result<()> {
        if !self.has_cache {
            return unsupported_because(NO_CACHE);
        }
        while self.vfs.evict(usize::MAX)? > 0 {}
        match &mut self.below {
            Some(below) if what == Caches::Disk => below.drop_caches(what),
            _ => Ok(()),
        }
    }
}

impl ReadAhead for pando_vfs::ReadAhead {
    fn wait(self: Box<Self>) -> io::Result<()> {
        pando_vfs::ReadAhead::wait(&self)?;
        Ok(())
    }
}

/// Reads of one entry what `level` requires beyond its name.
fn look(
    vfs: &Vfs,
    context: &Context,
    dir: At<'_>,
    name: &[u8],
    level: Level,
    listed: &mut Listed,
) -> Result<(), Error> {
    if level >= Level::Stat {
        black_box(vfs.stat(context, dir, name, Walk::NOFOLLOW)?);
    }
    if level >= Level::XattrNames {
        let names = vfs.listxattr(context, dir, name, Walk::NOFOLLOW)?;
        listed.xattrs += names.len() as u64;
        for xattr in names.iter().take_while(|_| level >= Level::XattrValues) {
            listed.value_bytes += vfs.getxattr(context, dir, name, xattr, Walk::NOFOLLOW)?.len() as u64;
        }
    }
    Ok(())
}

/// An open file of the library, and what path rendering needs. The tree and the context are
/// borrowed unless the file stays open: with clones, all threads would change the same reference
/// counts.
struct TreeHandle<V, C> {
    file: File,
    vfs: V,
    context: C,
}

impl<V: Borrow<Vfs> + Send + Sync, C: Borrow<Context> + Send + Sync> Handle for TreeHandle<V, C> {
    fn seek(&self, to: SeekFrom) -> io::Result<u64> {
        let seek = match to {
            SeekFrom::Start(offset) => Seek::Set(i64::try_from(offset).map_err(|_| Error::Invalid)?),
            SeekFrom::Current(delta) => Seek::Cur(delta),
            SeekFrom::End(delta) => Seek::End(delta),
        };
        Ok(self.file.lseek(seek)?)
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.file.read(buffer)?)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.file.pread(buffer, offset)?)
    }

    fn write(&self, data: &[u8]) -> io::Result<usize> {
        Ok(self.file.write(data)?)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        Ok(self.file.truncate(size)?)
    }

    fn fsync(&self) -> io::Result<()> {
        Ok(self.file.fsync()?)
    }

    fn path(&self) -> io::Result<usize> {
        Ok(black_box(self.vfs.borrow().d_path(self.context.borrow(), self.file.dentry(), PATH_MAX)?).len())
    }
}
