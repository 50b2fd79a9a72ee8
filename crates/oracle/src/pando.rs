//! The tree under test: a namespace of pando-vfs over the driver of the test.

use std::{collections::HashSet, sync::Arc};

use pando_vfs::{
    Access, At as VfsAt, Context, Credentials, Error, File, InodeFlags, LockOwner, LockRange, LockWait, OpenFlags,
    RenameFlags, Result, Seek, SetTime, Stat, Timestamp, Vfs, Walk, XattrFlags,
};

use crate::{
    events::{Seen, Watches},
    generate::Style,
    op::{
        Answer, At, COMMON_GROUP, Caller, Entry, Facts, Mode, NotCompared, Op, Outcome, Place, RawStat, SLOTS, Tested,
        Tree, When, Whence, mask_number, read, readv, writev,
    },
};

/// The input of a driver's test.
pub struct Subject {
    /// The tree: an empty root directory, owner 0, mode 0755.
    pub vfs: Vfs,
    /// The faults of its store, if it has one.
    pub injector: Option<Box<dyn FaultInjector>>,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject").field("vfs", &self.vfs).field("injector", &self.injector.is_some()).finish()
    }
}

/// Injects faults by the number of an operation, and by nothing else. So a failure can be
/// reproduced.
pub trait FaultInjector {
    /// Before operation `index`: evicts some inodes, and makes a later call to the store fail.
    fn arm(&mut self, vfs: &Vfs, index: u64);

    /// Whether it injects faults at all, or only evicts. If it does, some operations of a whole
    /// test must have failed.
    fn injects(&self) -> bool {
        true
    }

    /// After the operation: removes the faults. Returns the injected error if a call has failed
    /// since [`FaultInjector::arm`]. No other failure returns this error.
    fn disarm(&mut self) -> Option<Error>;
}

/// A `Vfs`, and its open handles.
pub struct Pando {
    vfs: Vfs,
    context: Context,
    umask: u32,
    slots: [Option<Arc<File>>; SLOTS + 1],
    style: Style,
    injector: Option<Box<dyn FaultInjector>>,
    watches: Watches,
    /// The number of operations that returned the injected error, and of those that met it and did
    /// not return it.
    injected: [u64; 2],
}

impl Pando {
    pub fn new(subject: Subject, style: &Style) -> Self {
        let Subject { vfs, injector } = subject;
        let context = Context::new(&vfs, Credentials::root()).with_umask(0o022);
        let watches = Watches::new(&vfs);
        let slots = Default::default();
        Self { vfs, context, umask: 0o022, slots, style: *style, injector, watches, injected: [0; 2] }
    }

    fn facts(&self, stat: &Stat) -> Facts {
        let raw = RawStat {
            mode: stat.kind.to_mode() | stat.mode,
            nlink: stat.nlink,
            uid: stat.uid,
            gid: stat.gid,
            rdev: stat.rdev,
            size: stat.size,
            blocks: stat.blocks,
            ino: stat.ino,
            times: [stat.atime.0, stat.mtime.0, stat.ctime.0],
        };
        Facts::new(raw, &self.style)
    }

    fn file(&self, slot: usize) -> Result<&File> {
        self.slots[slot].as_deref().ok_or(Error::BadHandle)
    }

    /// An open file, unless it is a place only (O_PATH). The library's calls take dentries. A
    /// caller with handles of its own must refuse these.
    fn opened(&self, slot: usize) -> Result<&File> {
        let file = self.file(slot)?;
        if file.flags().contains(OpenFlags::PATH) { Err(Error::BadHandle) } else { Ok(file) }
    }

    fn at(&self, place: &Place) -> Result<VfsAt<'_>> {
        Ok(match place.at {
            At::Cwd => VfsAt::Cwd,
            At::Slot(slot) => VfsAt::Dir(self.file(slot)?.dentry()),
        })
    }

    fn on_handle(&mut self, op: &Op) -> Result<Answer> {
        Ok(match *op {
            Op::Open { slot, ref place, flags, mode } => {
                let flags = OpenFlags::from_bits_retain(flags.0);
                let file = self.vfs.open(&self.context, self.at(place)?, &place.path, flags, mode.0)?;
                self.slots[slot] = Some(Arc::new(file));
                Answer::Done
            }
            Op::Close { slot } => self.slots[slot].take().map(|_| Answer::Done).ok_or(Error::BadHandle)?,
            Op::Read { slot, len } => read(len, |buf| self.file(slot)?.read(buf))?,
            Op::Pread { slot, len, offset } => read(len, |buf| self.file(slot)?.pread(buf, offset))?,
            Op::Write { slot, len, fill } => Answer::Number(self.file(slot)?.write(&vec![fill; len])? as u64),
            Op::Pwrite { slot, len, fill, offset } => {
                Answer::Number(self.file(slot)?.pwrite(&vec![fill; len], offset)? as u64)
            }
            Op::Readv { slot, ref lens, offset } => readv(lens, |into| match offset {
                None => self.file(slot)?.readv(into),
                Some(offset) => self.file(slot)?.preadv(into, offset),
            })?,
            Op::Writev { slot, ref lens, fill, offset } => writev(lens, fill, |from| match offset {
                None => self.file(slot)?.writev(from),
                Some(offset) => self.file(slot)?.pwritev(from, offset),
            })?,
            Op::Lseek { slot, whence, offset } => Answer::Number(self.file(slot)?.lseek(match whence {
                Whence::Set => Seek::Set(offset),
                Whence::Cur => Seek::Cur(offset),
                Whence::End => Seek::End(offset),
                Whence::Data => Seek::Data(offset),
                Whence::Hole => Seek::Hole(offset),
            })?),
            Op::Ftruncate { slot, size } => done(self.file(slot)?.truncate(size)?),
            Op::Fallocate { slot, mode, offset, len } => done(self.file(slot)?.fallocate(mode, offset, len)?),
            Op::CopyRange { from, from_offset, slot, offset, len } => {
                let (from, to) = (self.file(from)?, self.file(slot)?);
                Answer::Number(to.copy_range(offset, from, from_offset, len)? as u64)
            }
            Op::Fsync { slot } => done(self.file(slot)?.fsync()?),
            Op::Fstat { slot } => Answer::Facts(self.facts(&self.file(slot)?.stat())),
            Op::SetInodeFlags { slot, flags } => {
                let (file, flags) = (self.opened(slot)?, InodeFlags::from_bits_retain(flags));
                done(self.vfs.set_inode_flags(&self.context, VfsAt::Dir(file.dentry()), "", flags, Walk::EMPTY_PATH)?)
            }
            Op::InodeFlags { slot } => {
                let flags = self.opened(slot)?.stat().flags;
                Answer::Number(flags.map_or(0, |flags| flags.bits().into()))
            }
            Op::LockRange { slot, lock, start, len } => {
                let (file, owner) = (self.opened(slot)?, LockOwner::OpenFile);
                let range = LockRange::new(start, len)?;
                match lock {
                    Some(kind) => file.lock_range(owner, kind, range, LockWait::No),
                    None => file.unlock_range(owner, range),
                }
                .map(done)?
            }
            Op::IsExcluded { slot, lock, start, len } => {
                let (file, range) = (self.opened(slot)?, LockRange::new(start, len)?);
                Answer::Number(file.conflicting_lock(LockOwner::OpenFile, lock, range)?.is_some().into())
            }
            Op::Flock { slot, lock: Some(kind) } => done(self.opened(slot)?.flock(kind, LockWait::No)?),
            Op::Flock { slot, lock: None } => done(self.opened(slot)?.unlock()?),
            Op::Fchmod { slot, mode } => {
                let file = self.opened(slot)?;
                done(self.vfs.chmod(&self.context, VfsAt::Dir(file.dentry()), "", mode.0, Walk::EMPTY_PATH)?)
            }
            Op::PathOf { slot } => {
                let path = self.vfs.d_path(&self.context, self.file(slot)?.dentry(), pando_vfs::PATH_MAX)?;
                Answer::Bytes(mask_number(path))
            }
            Op::Readdir { slot } => readdir(self.file(slot)?)?,
            _ => unreachable!("not an operation on a handle"),
        })
    }

    fn on_names(&mut self, op: &Op) -> Result<Answer> {
        let (vfs, context) = (&self.vfs, &self.context);
        match op {
            Op::Mkdir { place, mode } => vfs.mkdir(context, self.at(place)?, &place.path, mode.0).map(drop)?,
            Op::Mknod { place, mode, rdev } => {
                vfs.mknod(context, self.at(place)?, &place.path, mode.0, *rdev as u32).map(drop)?;
            }
            Op::Symlink { target, place } => {
                vfs.symlink(context, target, self.at(place)?, &place.path).map(drop)?;
            }
            Op::Readlink { place } => {
                return vfs.readlink(context, self.at(place)?, &place.path, Walk::EMPTY_PATH).map(Answer::Bytes);
            }
            Op::Link { old, new, follow } => {
                let (old_at, new_at) = (self.at(old)?, self.at(new)?);
                vfs.link(context, old_at, &old.path, new_at, &new.path, walk(*follow)).map(drop)?;
            }
            Op::LinkHandle { slot, new } => {
                let (old_at, new_at) = (VfsAt::Dir(self.file(*slot)?.dentry()), self.at(new)?);
                vfs.link(context, old_at, "", new_at, &new.path, Walk::EMPTY_PATH | Walk::NOFOLLOW).map(drop)?;
            }
            Op::Unlink { place } => vfs.unlink(context, self.at(place)?, &place.path)?,
            Op::Rmdir { place } => vfs.rmdir(context, self.at(place)?, &place.path)?,
            Op::Rename { old, new, flags } => {
                let flags = RenameFlags::from_bits_retain(*flags);
                vfs.rename(context, self.at(old)?, &old.path, self.at(new)?, &new.path, flags)?;
            }
            _ => return self.on_attributes(op),
        }
        Ok(Answer::Done)
    }

    fn on_attributes(&mut self, op: &Op) -> Result<Answer> {
        let (vfs, context) = (&self.vfs, &self.context);
        match op {
            Op::Stat { place, follow } => {
                let stat = vfs.stat(context, self.at(place)?, &place.path, walk(*follow))?;
                return Ok(Answer::Facts(self.facts(&stat)));
            }
            Op::Access { place, mask } => {
                vfs.access(context, self.at(place)?, &place.path, Access::from_bits_retain(*mask), Walk::empty())?;
            }
            Op::Chmod { place, mode } => vfs.chmod(context, self.at(place)?, &place.path, mode.0, Walk::empty())?,
            Op::Chown { place, uid, gid, follow } => {
                vfs.chown(context, self.at(place)?, &place.path, *uid, *gid, walk(*follow))?;
            }
            Op::Utimens { place, atime, mtime, follow } => {
                let (atime, mtime) = (set_time(*atime), set_time(*mtime));
                vfs.utimens(context, self.at(place)?, &place.path, atime, mtime, walk(*follow))?;
            }
            Op::Truncate { path, size } => vfs.truncate(context, VfsAt::Cwd, path, *size)?,
            Op::Statfs { path } => {
                // Replaced and removed objects are freed when their last reader is gone. tmpfs
                // frees them at once.
                pando_sync::back_pressure(1);
                let stat = vfs.statfs(context, VfsAt::Cwd, path)?;
                let limited = self.style.limits.is_some();
                return Ok(Answer::Space(limited.then_some([stat.blocks, stat.bfree, stat.files, stat.ffree])));
            }
            _ => return self.on_xattrs(op),
        }
        Ok(Answer::Done)
    }

    fn on_xattrs(&mut self, op: &Op) -> Result<Answer> {
        let (vfs, context, at) = (&self.vfs, &self.context, VfsAt::Cwd);
        match op {
            Op::Setxattr { path, name, value, flags, follow } => {
                let how = XattrFlags::from_bits_retain(*flags);
                vfs.setxattr(context, at, path, name, value, how, walk(*follow))?;
            }
            Op::Getxattr { path, name, follow } => {
                return vfs.getxattr(context, at, path, name, walk(*follow)).map(Answer::Bytes);
            }
            Op::Listxattr { path, follow } => {
                let mut names = vfs.listxattr(context, at, path, walk(*follow))?;
                names.sort();
                return Ok(Answer::Names(names));
            }
            Op::Removexattr { path, name, follow } => vfs.removexattr(context, at, path, name, walk(*follow))?,
            _ => return self.on_caller(op),
        }
        Ok(Answer::Done)
    }

    fn on_caller(&mut self, op: &Op) -> Result<Answer> {
        match op {
            Op::Chdir { path } => self.vfs.chdir(&mut self.context, VfsAt::Cwd, path)?,
            Op::Fchdir { slot } => {
                let file = self.slots[*slot].clone().ok_or(Error::BadHandle)?;
                // Empty paths are accepted at a dentry. fchdir needs search permission, as chdir
                // does.
                self.vfs.chdir(&mut self.context, VfsAt::Dir(file.dentry()), ".")?;
            }
            Op::Getcwd => return self.vfs.getcwd(&self.context, pando_vfs::PATH_MAX).map(Answer::Bytes),
            Op::Umask { mask } => {
                let before = std::mem::replace(&mut self.umask, mask.0);
                self.context = self.context.clone().with_umask(mask.0);
                return Ok(Answer::Number(before.into()));
            }
            Op::Become { caller } => {
                let cred = match *caller {
                    Caller::Root => Credentials::root(),
                    Caller::User(user) => Credentials::user(user, user, &[COMMON_GROUP]),
                };
                self.context = self.context.clone().with_credentials(cred);
            }
            _ => unreachable!("every operation is carried out somewhere"),
        }
        Ok(Answer::Done)
    }
}

impl Tested for Pando {
    /// If the operation returns an injected error, it has had no effect, and is repeated.
    fn apply_disturbed(&mut self, index: u64, op: &Op) -> Outcome {
        let Some(injector) = &mut self.injector else { return self.apply(op) };
        injector.arm(&self.vfs, index);
        let outcome = self.apply(op);
        let Some(injected) = self.injector.as_mut().and_then(|injector| injector.disarm()) else { return outcome };
        let is_injected = outcome == Err(injected.errno());
        self.injected[usize::from(!is_injected)] += 1;
        if is_injected { self.apply(op) } else { outcome }
    }

    fn watch(&mut self, path: &str) -> bool {
        self.watches.watch(&self.context, path).expect("root may watch every directory");
        true
    }

    fn take_events(&mut self) -> Option<(Vec<Seen>, &HashSet<usize>)> {
        Some(self.watches.take())
    }

    fn injected_errors(&self) -> Option<[u64; 2]> {
        self.injector.as_ref().is_some_and(|injector| injector.injects()).then_some(self.injected)
    }
}

impl Tree for Pando {
    fn apply(&mut self, op: &Op) -> Outcome {
        let outcome = match op {
            Op::Open { .. }
            | Op::Close { .. }
            | Op::Read { .. }
            | Op::Write { .. }
            | Op::Pread { .. }
            | Op::Pwrite { .. }
            | Op::Readv { .. }
            | Op::Writev { .. }
            | Op::Lseek { .. }
            | Op::Ftruncate { .. }
            | Op::Fallocate { .. }
            | Op::CopyRange { .. }
            | Op::Fsync { .. }
            | Op::Fstat { .. }
            | Op::Fchmod { .. }
            | Op::SetInodeFlags { .. }
            | Op::InodeFlags { .. }
            | Op::LockRange { .. }
            | Op::IsExcluded { .. }
            | Op::Flock { .. }
            | Op::PathOf { .. }
            | Op::Readdir { .. } => self.on_handle(op),
            _ => self.on_names(op),
        };
        outcome.map_err(Error::errno)
    }
}

fn done((): ()) -> Answer {
    Answer::Done
}

fn walk(follow: bool) -> Walk {
    if follow { Walk::empty() } else { Walk::NOFOLLOW }
}

fn set_time(when: When) -> SetTime {
    match when {
        When::Omit => SetTime::Omit,
        When::Now => SetTime::Now,
        When::At { secs, nanos } => SetTime::At(Timestamp::from_parts(secs, nanos)),
    }
}

fn readdir(file: &File) -> Result<Answer> {
    let mut entries = Vec::new();
    file.readdir(0, |entry| {
        entries.push(Entry {
            name: entry.name.to_vec(),
            kind: Mode(entry.kind.to_mode()),
            ino: NotCompared(entry.ino),
        });
        true
    })?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Answer::Entries(entries))
}
