//! What is done to the name space as a whole, and to superblocks: mounts, statfs, sync, eviction.

use crate::{
    At, Context, DentryRef, Driver, Error, Result, StatFs, Vfs,
    handles::{
        teardown::{close_down, take_down},
        vfs::{Mount, RootAttributes, detach, new_tree},
    },
    objects::lockable::Lockable,
    operations::attempt::run,
    trace::TraceOp,
    types::Walk,
};

impl Vfs {
    /// Evicts up to `count` inodes that nobody uses from the caches of trees with a backing; how many went. What only the
    /// cache knew of them is stored first. Trees in memory are their cache: nothing of them is evicted.
    ///
    /// # Errors
    /// What a backing answers when it is to store something; nothing is lost then.
    pub fn evict(&self, count: usize) -> Result<usize> {
        self.roots().iter().try_fold(0, |gone, root| {
            let more = root.0.inode().shard.sb.evict(self.name_space(), count - gone)?;
            Ok(gone + more)
        })
    }

    /// What a superblock has and has left (statfs), by a path on it. What is gone is not counted, as far as nobody reads it
    /// ([`Vfs::thread_idle`]).
    ///
    /// # Errors
    /// Those of the walk.
    pub fn statfs(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>) -> Result<StatFs> {
        let path = path.as_ref();
        self.traced(TraceOp::Statfs, (context, at, path), || {
            let dentry = self.lookup_at(context, at, path, Walk::EMPTY_PATH)?;
            pando_sync::collect_all();
            Ok(dentry.0.sb().driver.statfs())
        })
    }

    /// A thread calls this before it waits for a long time, as a server's thread does when it has
    /// answered all requests. Other threads can then free the memory of what it has removed last.
    ///
    /// Without the call that memory stays allocated until the thread makes another call or ends, and
    /// some of the removed names keep their directories, which count as inodes. The call itself frees
    /// nothing; threads that change names do, and [`Vfs::statfs`].
    pub fn thread_idle(&self) {
        pando_sync::flush_retired();
    }

    /// Mounts a new tree of `driver` on a directory.
    ///
    /// # Errors
    /// EPERM without the capability, EROFS for a read-only context, ENOTDIR, EBUSY when something is mounted there or it is
    /// the root, and those of the walk.
    pub fn mount(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, driver: impl Driver) -> Result<()> {
        may_mount(context)?;
        let path = path.as_ref();
        let point = self.lookup_at(context, at, path, Walk::empty())?;
        point.0.expect_dir()?;
        let root = new_tree(
            Box::new(driver),
            self.to_name_space(),
            RootAttributes { uid: context.cred.uid, gid: context.cred.gid, mode: 0o755 },
        )?;
        self.enlist(&point, &root).and_then(|()| self.attach(&point, &root)).inspect_err(|_| {
            self.mounts().retain(|mount| !mount.root.ptr_eq(&root));
            take_down(&root);
        })
    }

    /// Takes a tree into the list before it is attached: the one that it is mounted in stays from here on, if it is still
    /// in there itself.
    fn enlist(&self, point: &DentryRef, root: &DentryRef) -> Result<()> {
        let mut mounts = self.mounts();
        let id = point.0.sb().id;
        if self.root_sb().id != id && mounts.iter().all(|mount| mount.root.0.sb().id != id) {
            return Err(Error::NoEntry);
        }
        mounts.push(Mount { point: point.clone(), root: root.clone() });
        Ok(())
    }

    /// Attaches a tree: with the lock of the mount point's name, so that nobody removes or moves it meanwhile.
    fn attach(&self, point: &DentryRef, root: &DentryRef) -> Result<()> {
        run(self.name_space(), |guard, locks| {
            // A root (of the name space, or of a mounted tree) has no place: nothing is mounted over it.
            let slot = point.0.place.load(guard).ok_or(Error::Busy)?.to_ref();
            let parent = slot.anchor_dir().to_ref().inode();
            let hash = parent.shard.sb.hash(parent.ino, slot.name.as_bytes());
            locks.all(false, &[Lockable::name(parent, hash)?], true)?;
            let still_there = point.0.place.load(guard).is_some_and(|now| std::ptr::eq(&**now.to_ref(), &**slot))
                && slot.value.load(guard).is_some_and(|now| now.ptr_eq(point.0.as_shared()));
            if !still_there {
                return Err(Error::NoEntry.into());
            }
            let directory = point.0.directory()?;
            if !directory.mounted.is_none() {
                return Err(Error::Busy.into());
            }
            // What paths lead to changes: as where a directory is moved.
            locks.moving(|| {
                drop(root.0.sb().covers.swap(Some(point.0.clone())));
                drop(directory.mounted.swap(Some(root.0.clone())));
            });
            Ok(())
        })
    }

    /// Takes a mounted tree away again, by a path to its root.
    ///
    /// The tree is taken down: files still open keep their contents, and its directories are empty from then on; to make
    /// something in them is ESTALE. What is being made there meanwhile is waited for, and goes with the rest. A [`Backing`](crate::Backing)
    /// still hears of what such files are written, and of their times when they are closed.
    ///
    /// # Errors
    /// EPERM without the capability, EROFS for a read-only context, EINVAL if nothing is mounted there, EBUSY if something is
    /// mounted within, and those of the walk.
    pub fn umount(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>) -> Result<()> {
        may_mount(context)?;
        let root = self.lookup_at(context, at, path.as_ref(), Walk::empty())?;
        let id = root.0.sb().id;
        let find = |mounts: &[Mount]| {
            let index = mounts.iter().position(|m| m.root.ptr_eq(&root)).ok_or(Error::Invalid)?;
            if mounts.iter().any(|m| m.point.0.sb().id == id) { Err(Error::Busy) } else { Ok(index) }
        };
        find(&self.mounts())?;
        root.0.sb().store_times(&root)?;
        let mount = {
            let mut mounts = self.mounts();
            // Asked again: others may have been quicker meanwhile.
            let index = find(&mounts)?;
            mounts.swap_remove(index)
        };
        // Paths that lead into the tree are no more: whoever keeps one that was rendered must see it.
        let mut seq = self.name_space().rename_seq.lock();
        let moved = seq.write();
        detach(&mount);
        drop(moved);
        drop(seq);
        close_down(&mount.root);
        Ok(())
    }

    /// Makes everything durable: all mounted trees (sync).
    ///
    /// # Errors
    /// The first error of a driver; the others are synchronised all the same.
    pub fn sync(&self) -> Result<()> {
        let sync = |root: &DentryRef| root.0.sb().store_times(root).and(root.0.sb().driver.sync());
        self.roots().iter().map(sync).fold(Ok(()), Result::and)
    }
}

/// Whether trees may be mounted and taken away: with one of those, all that is in it goes.
fn may_mount(context: &Context) -> Result<()> {
    if context.cred.capable { context.writable() } else { Err(Error::NotPermitted) }
}
