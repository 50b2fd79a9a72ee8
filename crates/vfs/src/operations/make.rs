//! The steps that make a name, shared by trees in memory and backed trees.
//!
//! [`bind`] is protocol 2, which orders a create against the rmdir of its directory.

use std::sync::{Arc, OnceLock};

use pando_sync::{BlockBox, Counted, Detached, Guard, OpCell, Shared};

use crate::{
    Charge, Context, Driver, Error, FileKind, InodeFlags, Result, Timestamp,
    objects::{
        dentry::{Dentry, Dirent, ParentRef},
        directory::Directory,
        inode::{Body, Inode},
        permissions::cost_of_acl,
        stored_blocks::StoredBlocks,
        superblock::SuperBlock,
    },
    operations::{
        parent::Parent,
        permit::may_change,
        step::{Step, Stop},
    },
    types::{
        acl::{Acl, Acls},
        cred::{PermView, Permissions, PermissionsRef},
        stat::{S_ISGID, S_IXGRP},
    },
};

/// The object to make.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Make<'a> {
    File,
    Directory,
    Symlink(&'a [u8]),
    /// A fifo, socket or device node, with its device number.
    Special(FileKind, u32),
}

/// The inode that a rename with WHITEOUT leaves at the old name.
pub(crate) const WHITEOUT: Make<'static> = Make::Special(FileKind::CharDevice, 0);

impl Make<'_> {
    pub(crate) fn kind(&self) -> FileKind {
        match self {
            Make::File => FileKind::File,
            Make::Directory => FileKind::Directory,
            Make::Symlink(_) => FileKind::Symlink,
            Make::Special(kind, _) => *kind,
        }
    }

    pub(crate) fn body(&self, sb: &SuperBlock) -> Body {
        match self {
            Make::File => Body::File(OnceLock::new(), StoredBlocks::default()),
            Make::Directory => Body::Directory(BlockBox::new(Directory::new(sb.whole_directories))),
            Make::Symlink(target) => Body::Symlink((*target).into(), StoredBlocks::default()),
            Make::Special(_, rdev) => Body::Special(*rdev, StoredBlocks::default()),
        }
    }
}

/// Whether the caller may make this in `dir` (analogous to `may_create()` and `vfs_mknod()` in
/// fs/namei.c). The caller holds the lock of the name.
#[inline]
pub(crate) fn may_make(context: &Context, dir: &Inode, make: Make<'_>, guard: &Guard) -> Step<()> {
    may_change(context, dir, guard)?;
    match make {
        // Every caller may make a whiteout (character device 0/0).
        Make::Special(FileKind::CharDevice, 0) => {}
        Make::Special(FileKind::CharDevice | FileKind::BlockDevice, _) if !context.capable() => {
            return Err(dir.directory()?.refusal(Error::NotPermitted, guard).into());
        }
        _ => {}
    }
    Ok(())
}

/// The striped parent reference that a new entry of a directory holds.
#[inline]
pub(crate) fn parent_ref_in(dir: Shared<'_, Dentry>, guard: &Guard) -> Step<Counted<ParentRef>> {
    let directory = dir.to_ref().directory()?;
    match directory.parent_ref(dir, guard) {
        // The directory is not removed. It was evicted since the walk, or its tree is shut down.
        // Another walk finds the current state.
        Err(Error::NoEntry) if !directory.is_removed(guard) => Err(Stop::Again),
        parent_ref => Ok(parent_ref?),
    }
}

/// Owner, mode, flags and ACLs of a new inode in `parent`, after the setgid rules, and the umask or
/// the default ACL of `parent`. Analogous to `inode_init_owner()` in fs/inode.c and
/// `posix_acl_create()` in fs/posix_acl.c.
#[inline]
pub(crate) fn new_permissions(
    context: &Context,
    parent: &Inode,
    kind: FileKind,
    mode: u32,
    guard: &Guard,
) -> Permissions {
    let PermissionsRef { perm: dir_perm, flags, acls: dir_acls } = parent.permissions(guard);
    let asked = mode;
    let (mut mode, acls) = match dir_acls.and_then(|acls| acls.default.as_ref()) {
        _ if kind == FileKind::Symlink => (mode & 0o777, None),
        None => (mode & !context.umask, None),
        Some(default) => inherited(default, kind, mode),
    };
    let mut gid = context.cred.gid;
    if dir_perm.mode & S_ISGID != 0 {
        gid = dir_perm.gid;
        if kind == FileKind::Directory {
            mode |= S_ISGID;
        } else if asked & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP && !context.capable() && !context.cred.in_group(gid)
        {
            mode &= !S_ISGID;
        }
    }
    Permissions { perm: PermView { mode, uid: context.cred.uid, gid }, flags: flags & InodeFlags::INHERITED, acls }
}

/// Mode and ACLs of a new inode in a directory with this default ACL.
#[cold]
fn inherited(default: &Acl, kind: FileKind, mode: u32) -> (u32, Option<Arc<Acls>>) {
    let (access, mode) = default.clone().inherited(mode);
    let acls = Acls { access, default: (kind == FileKind::Directory).then(|| default.clone()) };
    (mode, (!acls.is_empty()).then(|| Arc::new(acls)))
}

/// Inserts a directory entry into the directory `parent` (protocol 2: create against rmdir). A new
/// dentry is pending in the entry, and the entry is already the dentry's place. The caller holds
/// the lock of the name, and has made all checks that can fail.
///
/// ```text
/// this thread                          rmdir of `parent`
/// insert the entry, pending
///                                      life := removing
/// fence                                fence
/// read life: removing -> abort it      read the entries: pending -> publish it
/// publish (the linearization point)    ENOTEMPTY
/// ```
///
/// The thread whose fence comes second sees what the other thread stored before its fence. If
/// `life` says removed, this thread retracts the entry: ENOENT.
pub(crate) fn bind(
    parent: &Inode,
    (hash, name): (u64, &[u8]),
    dirent: Detached<Dirent>,
    dentry: &Counted<Dentry>,
    now: i64,
    guard: &Guard,
) -> Result<()> {
    let directory = parent.directory()?;
    let is_dir = dentry.is_dir();
    let node = directory.insert(hash, name, dirent, guard).inspect_err(|_| drop(dentry.place.replace(None)))?;
    // Counted before the entry becomes visible, so that no removal is counted before its creation.
    directory.count_up(is_dir, guard);
    let creation = node.to_ref().value.creation();
    if directory.life.keep_alive(guard) {
        creation.publish(guard);
        parent.entries_changed(now);
        return Ok(());
    }
    let Some(_taken_back) = creation.retract() else {
        // A thread that tried to remove the directory has published the entry for this thread. So
        // the entry existed.
        parent.entries_changed(now);
        return Ok(());
    };
    drop(dentry.place.replace(None));
    directory.remove(node, guard);
    directory.count_down(is_dir, guard);
    directory.drop_parent_refs();
    Err(Error::NoEntry)
}

/// Whether a free name in a directory may become a link to an inode at all.
pub(crate) fn may_link_there(context: &Context, inode: &Inode, place: Parent<'_>) -> Result<()> {
    if place.slash {
        return Err(Error::NoEntry);
    }
    context.writable()?;
    let same_tree = Arc::ptr_eq(&place.dir.to_ref().inode().shard.sb, &inode.shard.sb);
    if same_tree { Ok(()) } else { Err(Error::CrossDevice) }
}

/// Whether the caller may make a link to an inode in `dir` (analogous to `vfs_link()` in
/// fs/namei.c). The caller holds the lock of the name.
pub(crate) fn may_link(context: &Context, inode: &Inode, dir: &Inode, guard: &Guard) -> Step<()> {
    may_change(context, dir, guard)?;
    dir.shard.sb.expect_mounted()?;
    if inode.is_dir() || inode.permissions(guard).flags.intersects(InodeFlags::PROTECTING) {
        return Err(dir.directory()?.refusal(Error::NotPermitted, guard).into());
    }
    Ok(())
}

/// Makes a hard link to the inode of `old` in the directory `dir`. `id` is the number of the new
/// dentry among the cached links. The caller holds the lock of the name.
pub(crate) fn bind_link(
    old: &Counted<Dentry>,
    dir: Shared<'_, Dentry>,
    (hash, name): (u64, &[u8]),
    id: u64,
    guard: &Guard,
) -> Result<Counted<Dentry>> {
    let (inode, parent) = (old.inode(), dir.to_ref().inode());
    let directory = parent.directory()?;
    // The link count increases before the name exists, so it is never too low (protocol 6). In a
    // removed directory this error becomes ENOENT, since there is no space to ask for.
    inode.count_link_up().map_err(|error| directory.refusal(error, guard))?;
    let now = Timestamp::now().0;
    let dentry = Dentry::new_link(Dentry::first(old), id);
    let bound = directory.parent_ref(dir, guard).and_then(|parent_ref| {
        let dirent = Detached::new(Dirent::new(parent_ref, name, OpCell::new_pending(dentry.clone())));
        dentry.place.fill(dirent.reference());
        bind(parent, (hash, name), dirent, &dentry, now, guard)
    });
    if bound.is_err() {
        inode.undo_count_link_up();
    }
    bound?;
    inode.touch(now);
    Ok(dentry)
}

/// Charges an inode of a tree in memory. The drop of its dentry refunds it.
#[inline]
pub(crate) fn charge_for(driver: &dyn Driver, make: Make<'_>, permissions: &Permissions) -> Result<()> {
    let charge = ChargeGuard::take(driver, Charge::Inode)?;
    if let Make::Symlink(target) = make {
        driver.charge(Charge::Target(target.len()))?;
    }
    if let Some(acls) = &permissions.acls {
        charge_for_acls(driver, acls)?;
    }
    charge.keep();
    Ok(())
}

#[cold]
fn charge_for_acls(driver: &dyn Driver, acls: &Acls) -> Result<()> {
    let charges: Result<Vec<_>> =
        acls.iter().map(|(kind, acl)| ChargeGuard::take(driver, cost_of_acl(kind, acl))).collect();
    charges?.into_iter().for_each(ChargeGuard::keep);
    Ok(())
}

/// A charge that is refunded on drop, unless it is kept. This holds also if the driver panics
/// meanwhile.
pub(crate) struct ChargeGuard<'d> {
    driver: &'d dyn Driver,
    what: Charge,
}

impl<'d> ChargeGuard<'d> {
    pub(crate) fn take(driver: &'d dyn Driver, what: Charge) -> Result<Self> {
        driver.charge(what)?;
        Ok(Self { driver, what })
    }

    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for ChargeGuard<'_> {
    fn drop(&mut self) {
        self.driver.release(self.what);
    }
}
