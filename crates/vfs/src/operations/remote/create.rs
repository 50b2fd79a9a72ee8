//! Making an inode and its name in a backing.

use std::sync::Arc;

use pando_sync::{Counted, Detached, Guard, OpCell};

use crate::{
    Ack, Backing, Change, Charge, Context, Error, NodeAttr, Result, Timestamp,
    caches::{
        binding::{adopt, adopt_loaded, body_of},
        commit::commit,
    },
    objects::{
        dentry::{Dentry, Dirent},
        inode::Inode,
        lockable::Lockable,
        notify,
        superblock::{Shard, SuperBlock},
    },
    operations::{
        locks::Locks,
        make::{ChargeGuard, Make, bind, may_make, new_permissions},
        parent::Parent,
        remote::change::{ChangingName, PreparedChange},
        remote::lookup::expect_free,
        step::Step,
    },
    types::cred::Permissions,
};

/// An inode that is to be made.
pub(crate) struct Create<'m> {
    place: ChangingName,
    make: Make<'m>,
    permissions: Permissions,
    /// The permission bits that the umask has cleared.
    umasked: u32,
    now: i64,
}

/// Checks whether the inode may be made, and locks its name.
pub(crate) fn prepare<'m>(
    context: &Context,
    place: Parent<'_>,
    make: Make<'m>,
    mode: u32,
    guard: &Guard,
    locks: &mut Locks<'_>,
) -> Step<Box<Create<'m>>> {
    let (parent, name) = (place.dir.to_ref().expect_dir()?, place.name(Error::Exists)?);
    let hash = expect_free(place, name, guard)?;
    locks.names(&[Lockable::name(parent, hash)?])?;
    may_make(context, parent, make, guard)?;
    parent.shard.sb.expect_mounted()?;
    if parent.directory()?.is_removed(guard) {
        return Err(Error::NoEntry.into());
    }
    let permissions = new_permissions(context, parent, make.kind(), mode, guard);
    let umasked = mode & !permissions.perm.mode & 0o777;
    let (place, now) = (ChangingName::new(&place, name, guard)?, Timestamp::now().0);
    Ok(Box::new(Create { place, make, permissions, umasked, now }))
}

/// The attributes of an inode that is to be made, except for its number.
pub(crate) fn attr_of_new(make: Make<'_>, permissions: &Permissions, nlink: u32, now: i64) -> NodeAttr {
    let perm = &permissions.perm;
    let target: Box<[u8]> = if let Make::Symlink(target) = make { target.into() } else { Box::default() };
    let now = Timestamp(now);
    NodeAttr {
        ino: 0,
        kind: make.kind(),
        mode: perm.mode,
        uid: perm.uid,
        gid: perm.gid,
        nlink,
        size: target.len() as u64,
        blocks: 0,
        rdev: if let Make::Special(_, rdev) = make { rdev } else { 0 },
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        target,
        flags: permissions.flags,
        acls: permissions.acls.clone(),
    }
}

/// The inode that the backing has made. It is already charged.
pub(crate) fn loaded_inode(shard: Arc<Shard>, made: &NodeAttr) -> Inode {
    let body = body_of(&shard.sb, made);
    Inode::loaded(shard, made, body)
}

impl PreparedChange for Create<'_> {
    type Ack = NodeAttr;
    type Done = Counted<Dentry>;

    fn sb(&self) -> &Arc<SuperBlock> {
        &self.place.parent().shard.sb
    }

    fn commit(&self, backing: &dyn Backing) -> Result<NodeAttr> {
        // Charged before the commit: what the backing has committed must not be refused afterwards.
        let charge = ChargeGuard::take(&*self.sb().driver, Charge::Inode)?;
        let (dir, name) = (self.place.parent().ino, &*self.place.name);
        let nlink = if matches!(self.make, Make::Directory) { 2 } else { 1 };
        let attr = &attr_of_new(self.make, &self.permissions, nlink, self.now);
        let change = Change::Create { dir, name, attr, umasked: self.umasked };
        let Ack::Made(made) = commit(self.sb(), backing, &change)? else {
            // The backing has made an inode and has not said which.
            self.place.report();
            return Err(Error::Io);
        };
        charge.keep();
        Ok(made)
    }

    fn refused(&self, error: Error, guard: &Guard) {
        self.place.note_refusal(error, guard);
    }

    fn publish(&self, made: &NodeAttr, guard: &Guard, _locks: &mut Locks<'_>) -> Step<Counted<Dentry>> {
        let (sb, parent) = (self.sb(), self.place.parent());
        self.place.entries_changed();
        self.place.unbind_stale(guard)?;
        // The committed entry is published even if the tree is being shut down: the thread that
        // shuts it down waits for the name's lock.
        let shard = sb.shard(guard).unwrap_or_else(|_| parent.shard.clone());
        let parent_ref = self.place.directory()?.parent_ref(self.place.dir(guard), guard).inspect_err(|_| {
            // The directory is removed. The inode's charge is refunded, and the backing will be
            // told that it is unused.
            let dentry = Counted::new(Dentry::new(loaded_inode(shard.clone(), made)));
            adopt(sb, &dentry, guard);
            drop(sb.inodes.remove_unlinked(&dentry, guard));
        })?;
        let (dirent, dirent_place, dentry) = Detached::pair(
            || Dentry::new(loaded_inode(shard, made)),
            |dentry| Dirent::new(parent_ref, &self.place.name, OpCell::new_pending(dentry)),
        );
        dentry.place.fill(dirent_place);
        // Registered before any thread can reach it by its name.
        adopt_loaded(sb, &dentry, self.place.inode_reports, guard);
        // The backing may have taken long since the inode was stamped.
        let now = Timestamp::now().0;
        bind(parent, (self.place.hash, &self.place.name), dirent, &dentry, now, guard)
            .inspect_err(|_| drop(sb.inodes.remove_unlinked(&dentry, guard)))?;
        self.place.remove_negative(guard);
        self.place.entries_changed();
        notify::made(self.place.dir(guard), &self.place.name, dentry.is_dir(), guard);
        Ok(dentry)
    }
}
