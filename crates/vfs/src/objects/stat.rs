//! All attributes of an inode, in the form of stat and in the form of a backing.

use pando_sync::{Guard, LifeState};

use crate::{
    AttrMask, InodeFlags, NodeAttr, Stat, Timestamp,
    objects::inode::{Body, Inode},
    types::cred::PermissionsRef,
};

/// Each entry, and also `.` and `..`, adds this much to the size of a directory, as on tmpfs
/// (`BOGO_DIRENT_SIZE`).
const DIRENT_BYTES: u64 = 20;
/// The preferred unit of I/O (`st_blksize`).
const BLOCK_BYTES: u32 = 4096;

/// All attributes of an inode. Takes no lock and counts no reference.
pub(crate) fn stat_of(inode: &Inode, guard: &Guard) -> Stat {
    stat_in_place(inode, guard)
}

/// [`stat_of`], inlined into the caller so that the result is built at its final address. A copy
/// right after the field-by-field stores would stall on store forwarding.
#[inline(always)]
pub(crate) fn stat_in_place(inode: &Inode, guard: &Guard) -> Stat {
    let PermissionsRef { perm, flags, .. } = inode.permissions(guard);
    let (mut nlink, mut size, mut blocks, mut rdev, mut stamp) = (inode.links.count(), inode.size(), 0, 0, i64::MIN);
    match &inode.body {
        Body::Directory(directory) => {
            let census = directory.census();
            let removed = matches!(directory.life.state(guard), LifeState::Removed);
            nlink = if removed { 0 } else { u32::try_from(census.subdirs).map_or(u32::MAX, |n| n.saturating_add(2)) };
            match &directory.backed {
                Some(backed) => blocks = backed.blocks(),
                None => size = census.entries.saturating_add(2).saturating_mul(DIRENT_BYTES),
            }
            stamp = census.stamp;
        }
        Body::File(state, stored) => blocks = state.get().map_or_else(|| stored.get(), |state| state.blocks()),
        Body::Symlink(_, stored) => blocks = stored.get(),
        Body::Special(device, stored) => (rdev, blocks) = (u64::from(*device), stored.get()),
    }
    Stat {
        dev: inode.shard.sb.id,
        ino: inode.ino,
        kind: inode.kind,
        mode: perm.mode,
        nlink,
        uid: perm.uid,
        gid: perm.gid,
        rdev,
        size,
        blocks,
        blksize: BLOCK_BYTES,
        atime: Timestamp(inode.times.atime(guard)),
        mtime: Timestamp(inode.times.mtime(guard, stamp)),
        ctime: Timestamp(inode.times.ctime(stamp)),
        btime: Timestamp(inode.times.btime()),
        flags: inode.shard.sb.keeps_flags.then_some(flags),
    }
}

/// The attributes of an inode in the form that a backing stores.
pub(crate) fn attr_of(inode: &Inode, guard: &Guard) -> NodeAttr {
    let stat = stat_of(inode, guard);
    let PermissionsRef { perm, flags, acls } = inode.permissions(guard);
    NodeAttr {
        ino: stat.ino,
        kind: stat.kind,
        mode: perm.mode,
        uid: perm.uid,
        gid: perm.gid,
        nlink: stat.nlink,
        size: stat.size,
        blocks: stat.blocks,
        rdev: stat.rdev as u32,
        atime: stat.atime,
        mtime: stat.mtime,
        ctime: stat.ctime,
        btime: stat.btime,
        target: match &inode.body {
            Body::Symlink(target, _) => target.clone(),
            _ => Box::default(),
        },
        flags,
        acls: acls.cloned(),
    }
}

/// The contents were read, or the entries listed. Stamps atime if relatime requires it and the
/// flags permit it. `striped`: as for [`Times::accessed`](super::times::Times::accessed).
#[inline]
pub(crate) fn note_access(inode: &Inode, striped: i64, guard: &Guard) {
    let is_stamped = !inode.permissions(guard).flags.contains(InodeFlags::NOATIME);
    if is_stamped && inode.times.accessed(guard, striped, || Timestamp::now().0) {
        inode.set_dirty(AttrMask::ATIME);
    }
}
