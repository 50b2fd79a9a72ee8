//! What making a name consists of, in memory and in a backing.
//!
//! Protocol 2 (create against rmdir): all that can fail comes first; the slot is inserted *pending*, seen by nobody;
//! then the directory's life is looked at. Alive: published, and that store is the instant of the operation. Removed:
//! the slot is taken back, ENOENT.

use std::sync::{Arc, OnceLock};

use pando_sync::{BlockBox, Counted, Detached, Guard, OpCell, Shared};

use crate::{
    Charge, Context, Driver, Error, FileKind, Result, Timestamp,
    objects::{
        dentry::{Anchor, Dentry, Slot},
        directory::Directory,
        inode::{Body, Inode},
    },
    operations::{
        parent::Parent,
        permit::may_change,
        step::{Step, Stop},
    },
    types::{
        cred::PermView,
        stat::{S_ISGID, S_IXGRP},
    },
};

/// What is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Make<'a> {
    File,
    Directory,
    Symlink(&'a [u8]),
    /// A fifo, socket or device node, with its device number.
    Special(FileKind, u32),
}

impl Make<'_> {
    pub(crate) fn kind(&self) -> FileKind {
        match self {
            Make::File => FileKind::File,
            Make::Directory => FileKind::Directory,
            Make::Symlink(_) => FileKind::Symlink,
            Make::Special(kind, _) => *kind,
        }
    }

    pub(crate) fn body(&self) -> Body {
        match self {
            Make::File => Body::File(OnceLock::new()),
            Make::Directory => Body::Directory(BlockBox::new(Directory::new())),
            Make::Symlink(target) => Body::Symlink((*target).into()),
            Make::Special(_, rdev) => Body::Special(*rdev),
        }
    }
}

/// Whether the caller may make this in `dir`. The lock of the name is held.
#[inline]
pub(crate) fn may_make(context: &Context, dir: &Inode, make: Make<'_>, guard: &Guard) -> Step<()> {
    may_change(context, dir, guard)?;
    match make {
        // A whiteout (character device 0/0) may be made by anybody.
        Make::Special(FileKind::CharDevice, 0) => {}
        Make::Special(FileKind::CharDevice | FileKind::BlockDevice, _) if !context.capable() => {
            return Err(dir.directory()?.refusal(Error::NotPermitted, guard).into());
        }
        _ => {}
    }
    Ok(())
}

/// What a new slot in a directory holds of it.
#[inline]
pub(crate) fn anchor_in(dir: Shared<'_, Dentry>, guard: &Guard) -> Step<Counted<Anchor>> {
    let directory = dir.to_ref().directory()?;
    match directory.anchor(dir, guard) {
        // Not removed, but evicted since the walk, or taken down: another walk finds what is there.
        Err(Error::NoEntry) if !directory.is_removed(guard) => Err(Stop::Again),
        anchor => Ok(anchor?),
    }
}

/// Owner and mode of a new inode in `parent`: the mode cut by the umask, the group by the setgid rules.
pub(crate) fn new_perm(context: &Context, parent: &Inode, kind: FileKind, mode: u32, guard: &Guard) -> PermView {
    let dir_perm = parent.perm(guard);
    let (asked, mut mode) = (mode, mode & if kind == FileKind::Symlink { 0o777 } else { !context.umask });
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
    PermView { mode, uid: context.cred.uid, gid }
}

/// Puts a slot, in which a new dentry is pending whose place it is, into the directory `parent`. The caller holds the
/// name's lock.
pub(crate) fn bind(
    parent: &Inode,
    (hash, name): (u64, &[u8]),
    slot: Detached<Slot>,
    dentry: &Counted<Dentry>,
    now: i64,
    guard: &Guard,
) -> Result<()> {
    let directory = parent.directory()?;
    let is_dir = dentry.is_dir();
    let node = directory.insert(hash, name, slot, guard).inspect_err(|_| drop(dentry.place.replace(None)))?;
    // Counted before it can be seen, so that no removal is counted before its creation.
    directory.count_up(is_dir, guard);
    let creation = node.to_ref().value.creation();
    if directory.life.keep_alive(guard) {
        creation.publish(guard);
        parent.entries_changed(now);
        return Ok(());
    }
    let Some(_taken_back) = creation.retract() else {
        // Whoever tried to remove the directory published it for us: then it has been there.
        parent.entries_changed(now);
        return Ok(());
    };
    drop(dentry.place.replace(None));
    directory.remove(node, guard);
    directory.count_down(is_dir, guard);
    directory.detach();
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

/// Whether the caller may make a link to an inode in `dir`. The lock of the name is held.
pub(crate) fn may_link(context: &Context, inode: &Inode, dir: &Inode, guard: &Guard) -> Step<()> {
    may_change(context, dir, guard)?;
    dir.shard.sb.expect_open()?;
    if inode.is_dir() {
        return Err(dir.directory()?.refusal(Error::NotPermitted, guard).into());
    }
    Ok(())
}

/// Makes a further name for the inode of `old`, in the directory `dir`. `id`: the number of the new dentry among the cached
/// links. The caller holds the name's lock.
pub(crate) fn bind_link(
    old: &Counted<Dentry>,
    dir: Shared<'_, Dentry>,
    (hash, name): (u64, &[u8]),
    id: u64,
    guard: &Guard,
) -> Result<Counted<Dentry>> {
    let (inode, parent) = (old.inode(), dir.to_ref().inode());
    let directory = parent.directory()?;
    // Counted before the name is there, so the count is never too low (protocol 6).
    // In a removed directory there is no room to ask for.
    inode.link_comes().map_err(|error| directory.refusal(error, guard))?;
    let now = Timestamp::now().0;
    let dentry = Dentry::new_link(Dentry::first(old), id);
    let bound = directory.anchor(dir, guard).and_then(|anchor| {
        let slot = Detached::new(Slot::new(anchor, name, OpCell::new_pending(dentry.clone())));
        dentry.place.fill(slot.reference());
        bind(parent, (hash, name), slot, &dentry, now, guard)
    });
    if bound.is_err() {
        inode.link_stays_away();
    }
    bound?;
    inode.touch(now);
    Ok(dentry)
}

/// What was paid for, until it is known to be used: otherwise it is given back, also if the driver panics meanwhile.
pub(crate) struct Credit<'d> {
    driver: &'d dyn Driver,
    what: Charge,
}

impl<'d> Credit<'d> {
    pub(crate) fn take(driver: &'d dyn Driver, what: Charge) -> Result<Self> {
        driver.charge(what)?;
        Ok(Self { driver, what })
    }

    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Credit<'_> {
    fn drop(&mut self) {
        self.driver.release(self.what);
    }
}
