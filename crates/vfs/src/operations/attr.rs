//! Attributes: stat, access, chmod, chown, utimens, truncate.
//!
//! The checks mirror `notify_change()` and `setattr_prepare()` in fs/attr.c.

use pando_sync::{Guard, SeqGuard, pin};

use crate::{
    At, AttrMask, Context, Credentials, DentryRef, Error, InodeFlags, Result, SetAttr, SetTime, Stat, Timestamp, Vfs,
    caches::{
        ask::{revalidate, stat_settled},
        refresh::refresh_if_outdated,
    },
    objects::{dentry::Dentry, inode::Inode, notify, stat::stat_in_place},
    operations::{
        attempt::{apply_back_pressure, run_lockless},
        namei::{walk, walk_and_read},
        permit::revoking,
        remote,
    },
    trace::TraceOp,
    types::{
        Access, FileKind, Walk,
        cred::{PermView, Permissions, Writer},
        stat::{S_ISGID, S_ISUID, S_IXGRP},
    },
};

impl Vfs {
    /// All attributes of the inode at a path (statx). Takes no lock, counts no reference and writes
    /// nothing.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG.
    #[doc(alias = "statx")]
    pub fn stat(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, flags: Walk) -> Result<Stat> {
        let path = path.as_ref();
        self.traced(TraceOp::Stat, (context, at, path), || {
            let read = |dentry: &Dentry, guard: &Guard| stat_in_place(dentry.inode(), guard);
            walk_and_read(self.namespace(), (context, at, path, flags | Walk::ATTRIBUTES), read)
        })
    }

    /// All attributes of the inode of a dentry (fstat).
    ///
    /// # Errors
    /// Those of a backing that is asked because others have changed the inode.
    pub fn getattr(&self, dentry: &DentryRef) -> Result<Stat> {
        self.traced_itself(TraceOp::Stat, dentry, || {
            revalidate(&dentry.0)?;
            Ok(dentry.stat())
        })
    }

    /// The contents or attributes of this inode were changed past the tree, as through
    /// [`File::backing_file`](crate::File::backing_file). The next use of the attributes asks the
    /// backing. In memory it does nothing.
    pub fn changed_elsewhere(&self, dentry: &DentryRef) {
        let inode = dentry.0.inode();
        if inode.is_backed() {
            inode.set_reported();
        }
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
            run_lockless(self.namespace(), |guard| {
                let inode = walk(self.namespace(), context, &at, path, flags, guard)?.to_ref().inode();
                Ok(context.check(inode, want, guard)?)
            })
        })
    }

    /// Changes the permission bits (fchmodat).
    ///
    /// # Errors
    /// EPERM for a caller that is not the owner, EOPNOTSUPP for a symbolic link, and those of the
    /// walk.
    pub fn chmod(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, mode: u32, flags: Walk) -> Result<()> {
        let path = path.as_ref();
        self.traced(TraceOp::Setattr, (context, at, path), || {
            let dentry = self.lookup_at(context, at, path, flags)?;
            change(context, &dentry, &SetAttr::new().mode(mode))
        })
    }

    /// Changes owner and group (fchownat). A regular file loses setuid and its capabilities. It
    /// also loses setgid if its group may execute it, or if the caller is not capable and not in
    /// that group.
    ///
    /// # Errors
    /// EPERM if a caller without the capability gives a file away or chooses a group that it is not
    /// in; EINVAL for the invalid id 2^32 - 1; and those of the walk.
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
            apply_back_pressure();
            context.writable()?;
            // A chown that changes neither owner nor group still drops setuid and setgid.
            chown_inode(context, &dentry, uid, gid)
        })
    }

    /// Changes the flags of a file or directory (`FS_IOC_SETFLAGS`, chattr). Once this call has
    /// returned, an immutable or append-only inode keeps its names: none is removed, renamed or
    /// added. In such a directory no name is removed, and in an immutable one none is made.
    /// [`Stat::flags`] shows the flags.
    ///
    /// # Errors
    /// EPERM for a caller that is not the owner, or one that changes `IMMUTABLE` or `APPEND`
    /// without the capability; EOPNOTSUPP in a tree without flags, for what is no file or
    /// directory, and for other flags; and those of the walk.
    pub fn set_inode_flags(
        &self,
        context: &Context,
        at: At<'_>,
        path: impl AsRef<[u8]>,
        new: InodeFlags,
        flags: Walk,
    ) -> Result<()> {
        let path = path.as_ref();
        self.traced(TraceOp::Setattr, (context, at, path), || {
            let dentry = self.lookup_at(context, at, path, flags)?;
            change(context, &dentry, &SetAttr::new().flags(new))
        })
    }

    /// Sets the times (utimensat).
    ///
    /// # Errors
    /// EPERM for a caller that is not the owner; EACCES if both times are "now" and the caller may
    /// not write; and those of the walk.
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
            // In this case Linux does not resolve the path either.
            return Ok(());
        }
        let path = path.as_ref();
        self.traced(TraceOp::Setattr, (context, at, path), || {
            let dentry = self.lookup_at(context, at, path, flags)?;
            change(context, &dentry, &SetAttr::new().atime(atime).mtime(mtime))
        })
    }

    /// Shrinks or extends a regular file (truncate).
    ///
    /// # Errors
    /// EISDIR for a directory, EINVAL for any other kind that is not a regular file or for a size
    /// beyond 2^63 - 1, EACCES, ENOSPC, and those of the walk.
    pub fn truncate(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, size: u64) -> Result<()> {
        let path = path.as_ref();
        self.traced(TraceOp::Truncate, (context, at, path), || self.truncate_at(context, at, path, size))
    }

    fn truncate_at(&self, context: &Context, at: At<'_>, path: &[u8], size: u64) -> Result<()> {
        if size > i64::MAX as u64 {
            return Err(Error::Invalid);
        }
        let dentry = self.lookup_at(context, at, path, Walk::empty())?;
        may_truncate(context, &dentry, size, Stamp::IfChanged)
    }

    /// Changes several attributes of a dentry, in the order size, owner, mode, times, flags. Each
    /// change has its own checks.
    ///
    /// # Errors
    /// Those of truncate, chown, chmod, utimens and [`Vfs::set_inode_flags`]. The changes before
    /// the failing one have been made.
    pub fn setattr(&self, context: &Context, dentry: &DentryRef, change_to: &SetAttr) -> Result<Stat> {
        self.traced_itself(TraceOp::Setattr, dentry, || change(context, dentry, change_to).map(|()| dentry.stat()))
    }

    /// Drops setuid and setgid of a regular file, as a write by a caller with the credentials
    /// `of_writer` would (analogous to `file_remove_privs()` in fs/inode.c). A server uses this if
    /// its own context is capable and its client is not. The other mode bits keep their current
    /// values. `of_writer` is called only if the file has one of the two bits.
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
        if writer.after_write(perm) == perm {
            return Ok(());
        }
        self.traced_itself(TraceOp::Setattr, dentry, || {
            apply_back_pressure();
            change_permissions(inode, AttrMask::empty(), |old| Ok(old.after_write(writer)))
        })
    }
}

impl DentryRef {
    /// All attributes of its inode, as far as the tree knows them. Unlike [`Vfs::getattr`], it does
    /// not ask a backing for changes by others, and makes no trace event: for a caller that returns
    /// attributes beside its own answer.
    #[must_use]
    pub fn stat(&self) -> Stat {
        stat_settled(&self.0)
    }

    /// Whether the inode has lost its last name, as far as the tree knows. False for the root. Asks
    /// no backing.
    #[must_use]
    pub fn is_unlinked(&self) -> bool {
        self.0.inode().is_unlinked(&pin())
    }
}

/// Changes several attributes, each with its own checks.
fn change(context: &Context, dentry: &DentryRef, to: &SetAttr) -> Result<()> {
    apply_back_pressure();
    context.writable()?;
    let inode = dentry.0.inode();
    if let Some(size) = to.size {
        let stamp = if to.if_resized { Stamp::IfChanged } else { Stamp::Always };
        may_truncate(context, dentry, size, stamp)?;
    }
    if to.uid.is_some() || to.gid.is_some() {
        chown_inode(context, dentry, to.uid, to.gid)?;
    }
    if let Some(mode) = to.mode {
        chmod_inode(context, inode, mode)?;
        notify::attr_changed(dentry.0.as_shared());
    }
    set_times(context, inode, to.atime, to.mtime)?;
    match [to.atime, to.mtime].map(|time| !matches!(time, SetTime::Omit)) {
        [true, true] => notify::attr_changed(dentry.0.as_shared()),
        [false, true] => notify::modified(dentry.0.as_shared()),
        [true, false] => notify::atime_set(dentry.0.as_shared()),
        [false, false] => {}
    }
    if let Some(flags) = to.flags {
        set_inode_flags(context, inode, flags)?;
        notify::changed_without_event(inode);
    }
    Ok(())
}

fn set_inode_flags(context: &Context, inode: &Inode, flags: InodeFlags) -> Result<()> {
    let has_flags = inode.shard.sb.keeps_flags && matches!(inode.kind, FileKind::File | FileKind::Directory);
    if !has_flags {
        return Err(Error::NotSupported);
    }
    change_permissions(inode, AttrMask::FLAGS, |old| {
        let needs_capability = (old.flags ^ flags).intersects(InodeFlags::PROTECTING);
        if !context.owns(&old.perm) || needs_capability && !context.capable() {
            return Err(Error::NotPermitted);
        }
        if !InodeFlags::all().contains(flags) {
            return Err(Error::NotSupported);
        }
        Ok(Permissions { flags, ..old })
    })?;
    if flags.intersects(InodeFlags::PROTECTING) {
        // A thread that removes or renames the inode has checked its flags under a name's lock.
        inode.shard.sb.namespace.names.synchronize();
    }
    Ok(())
}

fn chmod_inode(context: &Context, inode: &Inode, mode: u32) -> Result<()> {
    if inode.kind == FileKind::Symlink {
        return Err(Error::NotSupported);
    }
    change_permissions(inode, AttrMask::MODE, |old| {
        if old.is_protected() || !context.owns(&old.perm) {
            return Err(Error::NotPermitted);
        }
        let cut = if keeps_setgid(context, &old.perm) { 0 } else { S_ISGID };
        Ok(old.with_mode(mode & 0o7777 & !cut))
    })
}

/// Whether a caller that sets mode or ACL may set or keep setgid.
pub(crate) fn keeps_setgid(context: &Context, perm: &PermView) -> bool {
    context.capable() || context.cred.in_group(perm.gid)
}

fn chown_inode(context: &Context, dentry: &DentryRef, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    let inode = dentry.0.inode();
    let before = inode.perm(&pin());
    if [uid, gid].contains(&Some(u32::MAX)) {
        return Err(Error::Invalid);
    }
    let mut meant = AttrMask::empty();
    meant.set(AttrMask::UID, uid.is_some());
    meant.set(AttrMask::GID, gid.is_some());
    let change = |old: Permissions| {
        let perm = old.perm;
        let owner = context.cred.uid == perm.uid;
        let uid_ok = uid.is_none_or(|uid| owner && uid == perm.uid);
        let gid_ok = gid.is_none_or(|gid| owner && (gid == perm.gid || context.cred.in_group(gid)));
        let is_protected = !meant.is_empty() && old.is_protected();
        if is_protected || !(context.capable() || uid_ok && gid_ok) {
            return Err(Error::NotPermitted);
        }
        let mode = if inode.is_dir() { perm.mode } else { after_chown(&perm, &context.cred) };
        if mode != perm.mode && !context.owns(&perm) {
            // Even a chown that changes no owner drops these bits, and only the owner may do that.
            return Err(Error::NotPermitted);
        }
        let perm = PermView { mode, uid: uid.unwrap_or(perm.uid), gid: gid.unwrap_or(perm.gid) };
        Ok(Permissions { perm, ..old })
    };
    if inode.is_dir() {
        change_permissions(inode, meant, change)?;
    } else {
        change(inode.permissions(&pin()).into())?;
        inode.drop_capabilities()?;
        change_permissions(inode, meant, change)?;
        // Capabilities that were set meanwhile were given to the file as it was before the chown.
        inode.drop_capabilities()?;
    }
    if !meant.is_empty() || inode.perm(&pin()).mode != before.mode {
        notify::attr_changed(dentry.0.as_shared());
    }
    Ok(())
}

/// Changes mode, owner, group and ACLs as one record. `meant` are those that a backing must store.
/// The caller holds no guard and no lock.
pub(crate) fn change_permissions(
    inode: &Inode,
    meant: AttrMask,
    change: impl Fn(Permissions) -> Result<Permissions>,
) -> Result<()> {
    if inode.shard.sb.driver.backing().is_some() {
        return remote::attr::change_permissions(inode, meant, change);
    }
    revoking(inode, change, |change, takes_away| {
        let now = Timestamp::now().0;
        {
            // Search permission is part of a path's meaning, and the path-prefix cache validates it
            // by the rename sequence.
            let mut paths = takes_away.then(|| inode.shard.sb.namespace.rename_seq.lock());
            let guard = pin();
            let _changing = paths.as_mut().map(SeqGuard::write);
            inode.change_permissions(&guard, change)?;
        }
        inode.touch(now);
        Ok(())
    })
}

/// The mode after a chown. Even a capable caller clears setuid, and clears setgid if the group may
/// execute.
fn after_chown(perm: &PermView, cred: &Credentials) -> u32 {
    let keep_setgid = perm.mode & S_IXGRP == 0 && (cred.capable || cred.in_group(perm.gid));
    perm.mode & !S_ISUID & if keep_setgid { !0 } else { !S_ISGID }
}

/// Returns the flags with which the times must not be set.
fn may_set_times(context: &Context, inode: &Inode, is_touch: bool, guard: &Guard) -> Result<InodeFlags> {
    let permissions = inode.permissions(guard);
    let refusing = if is_touch { InodeFlags::IMMUTABLE } else { InodeFlags::PROTECTING };
    permissions.expect_without(refusing)?;
    match context.owns(permissions.perm) {
        true => Ok(refusing),
        false if is_touch => context.check(inode, Access::WRITE, guard).map(|()| refusing),
        false => Err(Error::NotPermitted),
    }
}

fn set_times(context: &Context, inode: &Inode, atime: SetTime, mtime: SetTime) -> Result<()> {
    if atime == SetTime::Omit && mtime == SetTime::Omit {
        return Ok(());
    }
    let refusing = may_set_times(context, inode, atime == SetTime::Now && mtime == SetTime::Now, &pin())?;
    let now = Timestamp::now();
    let value = |time| match time {
        SetTime::Omit => None,
        SetTime::Now => Some(now),
        SetTime::At(time) => Some(time),
    };
    let (atime, mtime) = (value(atime), value(mtime));
    if inode.shard.sb.driver.backing().is_some() {
        return remote::attr::set_times(inode, refusing, atime, mtime, now.0);
    }
    inode.times.set(&pin(), atime, mtime, inode.striped_stamp(), now.0);
    inode.touch(now.0);
    Ok(())
}

/// When a truncation counts as a modification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// Always, whatever the size was (ftruncate, O_TRUNC).
    Always,
    /// Only if the size changes, or if there are pages to look through (truncate).
    IfChanged,
}

/// Like [`truncate_inode`], after a check that this is a regular file and the caller may write to
/// it.
fn may_truncate(context: &Context, dentry: &DentryRef, size: u64, stamp: Stamp) -> Result<()> {
    let inode = dentry.0.inode();
    match inode.kind {
        FileKind::File => {}
        FileKind::Directory => return Err(Error::IsDirectory),
        _ => return Err(Error::Invalid),
    }
    context.check(inode, Access::WRITE, &pin())?;
    truncate_inode(inode, size, context.writer(inode), stamp)?;
    notify::modified(dentry.0.as_shared());
    Ok(())
}

/// Changes the size of a regular file (analogous to `do_truncate()` in fs/open.c). Waits for the
/// data lock. The caller holds no guard.
pub(crate) fn truncate_inode(inode: &Inode, size: u64, writer: Writer, stamp: Stamp) -> Result<()> {
    if size > i64::MAX as u64 {
        return Err(Error::Invalid);
    }
    inode.permissions(&pin()).expect_without(InodeFlags::APPEND)?;
    let state = inode.file_state()?;
    file_remove_privs_before(inode, writer)?;
    if stamp == Stamp::IfChanged {
        // The number of blocks counts.
        refresh_if_outdated(inode)?;
    }
    state.change(inode, |data| {
        let old = inode.size();
        let now = Timestamp::now().0;
        file_remove_privs(inode, writer);
        let blocks = data.blocks().unwrap_or_else(|| state.blocks());
        if size == old && stamp == Stamp::IfChanged && blocks == 0 {
            return Ok(());
        }
        data.truncate(old, size)?;
        state.resize(inode, data, size);
        inode.times.modified(now);
        inode.set_dirty(AttrMask::MTIME | AttrMask::CTIME);
        Ok(())
    })
}

/// Drops privileges before the contents change: capabilities, and the mode bits that
/// [`Writer::after_write`] clears. A backing stores this before the first byte changes. Without a
/// backing, [`file_remove_privs`] is early enough. The caller holds no guard and no lock.
pub(crate) fn file_remove_privs_before(inode: &Inode, writer: Writer) -> Result<()> {
    if !inode.is_backed() {
        return Ok(());
    }
    inode.drop_capabilities()?;
    let perm = inode.perm(&pin());
    if writer.after_write(perm).mode == perm.mode {
        return Ok(());
    }
    change_permissions(inode, AttrMask::empty(), |old| Ok(old.after_write(writer)))
}

/// Drops privileges while the contents change and the data lock is held. In a backed tree this
/// covers the mode bits that were set since [`file_remove_privs_before`], but not capabilities.
pub(crate) fn file_remove_privs(inode: &Inode, writer: Writer) {
    inode.drop_capabilities_in_memory();
    if writer.capable {
        return;
    }
    let guard = pin();
    let perm = inode.perm(&guard);
    if writer.after_write(perm).mode != perm.mode {
        // Infallible: this closure never returns an error.
        let _ = inode.change_permissions(&guard, |old| Ok(old.after_write(writer)));
        inode.set_dirty(AttrMask::MODE);
    }
}
