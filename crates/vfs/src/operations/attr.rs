//! Attributes: stat, access, chmod, chown, utimens, truncate.

use pando_sync::{Guard, SeqGuard, pin};

use crate::{
    At, AttrMask, Context, Credentials, DentryRef, Error, Result, SetAttr, SetTime, Stat, Timestamp, Vfs,
    objects::{
        dentry::Dentry,
        inode::Inode,
        stat::{stat_of, stat_there},
    },
    operations::{
        attempt::{breathe, look},
        namei::{walk, walk_and_tell},
        permit::revoking,
        remote,
    },
    trace::TraceOp,
    types::{
        Access, FileKind, Walk,
        cred::{PermView, Writer},
        stat::{S_ISGID, S_ISUID, S_IXGRP},
    },
};

impl Vfs {
    /// Everything about the inode at a path (statx). Answered without a lock, a count or a write.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG.
    #[doc(alias = "statx")]
    pub fn stat(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, flags: Walk) -> Result<Stat> {
        let path = path.as_ref();
        self.traced(TraceOp::Stat, (context, at, path), || {
            let tell = |dentry: &Dentry, guard: &Guard| stat_there(dentry.inode(), guard);
            walk_and_tell(self.name_space(), (context, at, path, flags), tell)
        })
    }

    /// Everything about the inode of a dentry (fstat).
    #[must_use]
    pub fn getattr(&self, dentry: &DentryRef) -> Stat {
        self.traced_always(TraceOp::Stat, dentry, || dentry.stat())
    }

    /// Whether the caller may do `want` with the file at a path (faccessat).
    ///
    /// # Errors
    /// EACCES, and those of the walk.
    pub fn access(
        &self,
        context: &Context,
        at: At<'_>,
        path: impl AsRef<[u8]>,
        want: Access,
        flags: Walk,
    ) -> Result<()> {
        let path = path.as_ref();
        self.traced(TraceOp::Access, (context, at, path), || {
            look(self.name_space(), |guard| {
                let inode = walk(self.name_space(), context, &at, path, flags, guard)?.to_ref().inode();
                Ok(context.check(inode, &inode.perm(guard), want)?)
            })
        })
    }

    /// Changes the permission bits (fchmodat).
    ///
    /// # Errors
    /// EPERM for others than the owner, EOPNOTSUPP for a symbolic link, and those of the walk.
    pub fn chmod(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, mode: u32, flags: Walk) -> Result<()> {
        let path = path.as_ref();
        self.traced(TraceOp::Setattr, (context, at, path), || {
            let dentry = self.lookup_at(context, at, path, flags)?;
            change(context, &dentry, &SetAttr::new().mode(mode))
        })
    }

    /// Changes owner and group (fchownat). A regular file loses setuid, its capabilities, and setgid if its group may execute
    /// it or the caller, without being capable, is not in that group.
    ///
    /// # Errors
    /// EPERM: only the capable give files away, owners may choose among their groups; EINVAL for 2^32 - 1, which is nobody's;
    /// and those of the walk.
    pub fn chown(
        &self,
        context: &Context,
        at: At<'_>,
        path: impl AsRef<[u8]>,
        uid: Option<u32>,
        gid: Option<u32>,
        flags: Walk,
    ) -> Result<()> {
        let path = path.as_ref();
        self.traced(TraceOp::Setattr, (context, at, path), || {
            let dentry = self.lookup_at(context, at, path, flags)?;
            breathe();
            context.writable()?;
            // Also where neither is to change: that is a change of its own.
            chown_inode(context, dentry.0.inode(), uid, gid)
        })
    }

    /// Sets the times (utimensat).
    ///
    /// # Errors
    /// EPERM for others than the owner; EACCES when both are "now" and the caller may not write; those of the walk.
    pub fn utimens(
        &self,
        context: &Context,
        at: At<'_>,
        path: impl AsRef<[u8]>,
        atime: SetTime,
        mtime: SetTime,
        flags: Walk,
    ) -> Result<()> {
        if atime == SetTime::Omit && mtime == SetTime::Omit {
            // Linux does not even look at the path then.
            return Ok(());
        }
        let path = path.as_ref();
        self.traced(TraceOp::Setattr, (context, at, path), || {
            let dentry = self.lookup_at(context, at, path, flags)?;
            change(context, &dentry, &SetAttr::new().atime(atime).mtime(mtime))
        })
    }

    /// Cuts or grows a regular file (truncate).
    ///
    /// # Errors
    /// EISDIR, EINVAL for anything else that is no regular file or a size beyond 2^63 - 1, EACCES, ENOSPC, those of the walk.
    pub fn truncate(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, size: u64) -> Result<()> {
        let path = path.as_ref();
        self.traced(TraceOp::Truncate, (context, at, path), || self.truncate_at(context, at, path, size))
    }

    fn truncate_at(&self, context: &Context, at: At<'_>, path: &[u8], size: u64) -> Result<()> {
        if size > i64::MAX as u64 {
            return Err(Error::Invalid);
        }
        let dentry = self.lookup_at(context, at, path, Walk::empty())?;
        may_truncate(context, dentry.0.inode(), size, Stamp::IfChanged)
    }

    /// Changes several attributes of a dentry, each with its own checks, in the order size, owner, mode, times.
    ///
    /// # Errors
    /// Those of truncate, chown, chmod and utimens; what came before the failing one is done.
    pub fn setattr(&self, context: &Context, dentry: &DentryRef, change_to: &SetAttr) -> Result<Stat> {
        self.traced_itself(TraceOp::Setattr, dentry, || change(context, dentry, change_to).map(|()| dentry.stat()))
    }

    /// Takes setuid and setgid from a regular file as a write by a caller with the credentials `of_writer` does: for servers
    /// whose own context is capable while their client is not. The other bits stay whatever they are by then. `of_writer` is
    /// called only if the file has one of the two bits.
    ///
    /// # Errors
    /// Those of a backing.
    pub fn file_remove_privs(&self, dentry: &DentryRef, of_writer: impl FnOnce() -> Credentials) -> Result<()> {
        let inode = dentry.0.inode();
        if inode.kind != FileKind::File || inode.perm(&pin()).mode & (S_ISUID | S_ISGID) == 0 {
            return Ok(());
        }
        let cred = of_writer();
        let perm = inode.perm(&pin());
        let writer = Writer::new(cred.capable, &cred, &perm);
        if writer.leaves(perm) == perm {
            return Ok(());
        }
        self.traced_itself(TraceOp::Setattr, dentry, || {
            breathe();
            change_perm(inode, AttrMask::empty(), |perm| Ok(writer.leaves(perm)))
        })
    }
}

impl DentryRef {
    /// Everything about its inode: [`Vfs::getattr`] without being traced, for who answers more with it than it was asked.
    #[must_use]
    pub fn stat(&self) -> Stat {
        stat_of(self.0.inode(), &pin())
    }
}

/// Changes several attributes.
fn change(context: &Context, dentry: &DentryRef, to: &SetAttr) -> Result<()> {
    breathe();
    context.writable()?;
    let inode = dentry.0.inode();
    if let Some(size) = to.size {
        let stamp = if to.if_resized { Stamp::IfChanged } else { Stamp::Always };
        may_truncate(context, inode, size, stamp)?;
    }
    if to.uid.is_some() || to.gid.is_some() {
        chown_inode(context, inode, to.uid, to.gid)?;
    }
    if let Some(mode) = to.mode {
        chmod_inode(context, inode, mode)?;
    }
    set_times(context, inode, to.atime, to.mtime)
}

fn chmod_inode(context: &Context, inode: &Inode, mode: u32) -> Result<()> {
    if inode.kind == FileKind::Symlink {
        return Err(Error::NotSupported);
    }
    change_perm(inode, AttrMask::MODE, |perm| {
        if !context.owns(&perm) {
            return Err(Error::NotPermitted);
        }
        let foreign_group = !context.capable() && !context.cred.in_group(perm.gid);
        let cut = if foreign_group { S_ISGID } else { 0 };
        Ok(PermView { mode: mode & 0o7777 & !cut, ..perm })
    })
}

fn chown_inode(context: &Context, inode: &Inode, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    if [uid, gid].contains(&Some(u32::MAX)) {
        return Err(Error::Invalid);
    }
    let mut meant = AttrMask::empty();
    meant.set(AttrMask::UID, uid.is_some());
    meant.set(AttrMask::GID, gid.is_some());
    let change = |perm: PermView| {
        let owner = context.cred.uid == perm.uid;
        let uid_ok = uid.is_none_or(|uid| owner && uid == perm.uid);
        let gid_ok = gid.is_none_or(|gid| owner && (gid == perm.gid || context.cred.in_group(gid)));
        if !(context.capable() || uid_ok && gid_ok) {
            return Err(Error::NotPermitted);
        }
        let mode = if inode.is_dir() { perm.mode } else { after_chown(&perm, &context.cred) };
        if mode != perm.mode && !context.owns(&perm) {
            // Even a chown that changes no owner takes these bits away, which only the owner may.
            return Err(Error::NotPermitted);
        }
        Ok(PermView { mode, uid: uid.unwrap_or(perm.uid), gid: gid.unwrap_or(perm.gid) })
    };
    if inode.is_dir() {
        return change_perm(inode, meant, change);
    }
    change(inode.perm(&pin()))?;
    inode.drop_capabilities()?;
    change_perm(inode, meant, change)?;
    // Those that were given meanwhile were given to what it was before.
    inode.drop_capabilities()
}

/// Changes mode, owner and group as a whole; a backing hears of what is `meant`. No guard and no lock is held.
fn change_perm(inode: &Inode, meant: AttrMask, change: impl Fn(PermView) -> Result<PermView>) -> Result<()> {
    if inode.shard.sb.driver.backing().is_some() {
        return remote::attr::change_perm(inode, meant, change);
    }
    revoking(inode, change, |change, takes_away| {
        let now = Timestamp::now().0;
        {
            // Who may go through a directory is a part of what paths lead to, and remembered with the sequence.
            let mut paths = takes_away.then(|| inode.shard.sb.name_space.rename_seq.lock());
            let guard = pin();
            let _changing = paths.as_mut().map(SeqGuard::write);
            inode.change_perm(&guard, change)?;
        }
        inode.touch(now);
        Ok(())
    })
}

/// The mode after a chown: also a capable caller takes setuid away, and setgid if the group may execute.
fn after_chown(perm: &PermView, cred: &Credentials) -> u32 {
    let keep_setgid = perm.mode & S_IXGRP == 0 && (cred.capable || cred.in_group(perm.gid));
    perm.mode & !S_ISUID & if keep_setgid { !0 } else { !S_ISGID }
}

fn set_times(context: &Context, inode: &Inode, atime: SetTime, mtime: SetTime) -> Result<()> {
    if atime == SetTime::Omit && mtime == SetTime::Omit {
        return Ok(());
    }
    let perm = inode.perm(&pin());
    if !context.owns(&perm) {
        if atime != SetTime::Now || mtime != SetTime::Now {
            return Err(Error::NotPermitted);
        }
        context.check(inode, &perm, Access::WRITE)?;
    }
    let now = Timestamp::now();
    let value = |time| match time {
        SetTime::Omit => None,
        SetTime::Now => Some(now),
        SetTime::At(time) => Some(time),
    };
    let (atime, mtime) = (value(atime), value(mtime));
    if inode.shard.sb.driver.backing().is_some() {
        return remote::attr::set_times(inode, atime, mtime, now.0);
    }
    inode.times.set(&pin(), atime, mtime, inode.striped_stamp(), now.0);
    inode.touch(now.0);
    Ok(())
}

/// When a truncation is a modification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// Whatever the size was (ftruncate, O_TRUNC).
    Always,
    /// If the size changes, or there are pages to go through (truncate).
    IfChanged,
}

/// As [`truncate_inode`], if the caller may write to it and it is a regular file.
fn may_truncate(context: &Context, inode: &Inode, size: u64, stamp: Stamp) -> Result<()> {
    match inode.kind {
        FileKind::File => {}
        FileKind::Directory => return Err(Error::IsDirectory),
        _ => return Err(Error::Invalid),
    }
    context.check(inode, &inode.perm(&pin()), Access::WRITE)?;
    truncate_inode(inode, size, context.writer(inode), stamp)
}

/// Changes the size of a regular file. Waits for the data lock; the caller holds no guard.
pub(crate) fn truncate_inode(inode: &Inode, size: u64, writer: Writer, stamp: Stamp) -> Result<()> {
    if size > i64::MAX as u64 {
        return Err(Error::Invalid);
    }
    let state = inode.file_state()?;
    file_remove_privs_before(inode, writer)?;
    state.change(inode, |data| {
        let old = inode.size();
        let now = Timestamp::now().0;
        file_remove_privs(inode, writer);
        let untouched = size == old && stamp == Stamp::IfChanged && data.blocks() == 0;
        data.truncate(old, size)?;
        if untouched {
            return Ok(());
        }
        state.resize(inode, data, size);
        inode.times.modified(now);
        inode.set_dirty(AttrMask::MTIME | AttrMask::CTIME);
        Ok(())
    })
}

/// Contents are about to change: capabilities go, and so does what [`Writer::leaves`] does not leave. A backing knows before one
/// byte of them does; without one, [`file_remove_privs`] is soon enough. No guard and no lock is held.
pub(crate) fn file_remove_privs_before(inode: &Inode, writer: Writer) -> Result<()> {
    if !inode.is_backed() {
        return Ok(());
    }
    inode.drop_capabilities()?;
    let perm = inode.perm(&pin());
    if writer.leaves(perm) == perm {
        return Ok(());
    }
    change_perm(inode, AttrMask::empty(), |perm| Ok(writer.leaves(perm)))
}

/// Contents change, with the data locked: what is there of privileges goes. With a backing, those that were given since
/// [`file_remove_privs_before`], but for capabilities.
pub(crate) fn file_remove_privs(inode: &Inode, writer: Writer) {
    inode.drop_capabilities_in_memory();
    if writer.capable {
        return;
    }
    let guard = pin();
    let perm = inode.perm(&guard);
    if writer.leaves(perm) != perm {
        // Infallible: the change never refuses.
        let _ = inode.change_perm(&guard, |perm| Ok(writer.leaves(perm)));
        inode.set_dirty(AttrMask::MODE);
    }
}
