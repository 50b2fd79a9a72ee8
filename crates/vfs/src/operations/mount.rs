//! Operations on the whole namespace and on superblocks: mount, umount, statfs, sync, eviction.

use crate::{
    At, CacheCounts, Context, DentryRef, Driver, Error, Result, StatFs, Vfs,
    handles::{
        teardown::{shut_down, take_apart},
        vfs::{Mount, RootAttributes, detach, new_tree},
    },
    objects::{lockable::Lockable, notify},
    operations::attempt::run,
    trace::TraceOp,
    types::Walk,
};

impl Vfs {
    /// Evicts up to `count` unused inodes from the caches of backed trees, and returns how many it
    /// evicted. State that only the cache has is stored first. A tree in memory is its own cache,
    /// and nothing of it is evicted.
    ///
    /// # Errors
    /// The error of a backing that could not store something. Nothing is lost then.
    pub fn evict(&self, count: usize) -> Result<usize> {
        self.roots().iter().try_fold(0, |gone, root| {
            let more = root.0.inode().shard.sb.evict(self.namespace(), count - gone)?;
            Ok(gone + more)
        })
    }

    /// How many inodes the caches of backed trees have, how often the caches were missed, and what
    /// became of the inodes that were read ahead. Sums over all trees of the namespace.
    #[must_use]
    pub fn cache_counts(&self) -> CacheCounts {
        let counts = |root: &DentryRef| root.0.sb().counts.get(root.0.sb().inodes.table.len());
        self.roots().iter().map(counts).fold(CacheCounts::default(), CacheCounts::plus)
    }

    /// Total and free resources of a superblock (statfs), by a path on it. Removed objects are not
    /// counted, unless a thread may still be reading them ([`Vfs::thread_idle`]).
    ///
    /// # Errors
    /// Those of the walk and of the store.
    pub fn statfs(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>) -> Result<StatFs> {
        let path = path.as_ref();
        self.traced(TraceOp::Statfs, (context, at, path), || {
            let dentry = self.lookup_at(context, at, path, Walk::EMPTY_PATH)?;
            pando_sync::collect_all();
            dentry.0.sb().try_send_forgets();
            dentry.0.sb().driver.statfs()
        })
    }

    /// A thread calls this before it waits for a long time, as a server's thread does when it has
    /// answered all requests. Other threads can then free the memory of what it has removed last.
    ///
    /// Without the call that memory stays allocated until the thread makes another call or ends,
    /// and some of the removed names keep their directories, which count as inodes. The call itself
    /// frees no memory; threads that change names do, and [`Vfs::statfs`].
    ///
    /// It also tells the backing of the root's tree which inodes are no longer used
    /// ([`Backing::forget`](crate::Backing::forget)). If the last file of a removed inode was
    /// closed, the backing can free its space. The caller must not hold a lock that the backing
    /// takes.
    pub fn thread_idle(&self) {
        pando_sync::flush_retired();
        // A backing that panics once more would end the process.
        if !std::thread::panicking() {
            self.root_sb().try_send_forgets();
        }
    }

    /// Mounts a new tree of `driver` on a directory.
    ///
    /// # Errors
    /// EPERM without the capability, EROFS for a read-only context, ENOTDIR, EBUSY if something is
    /// mounted there or it is the root, and those of the walk.
    pub fn mount(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, driver: impl Driver) -> Result<()> {
        may_mount(context)?;
        let path = path.as_ref();
        let point = self.lookup_at(context, at, path, Walk::empty())?;
        point.0.expect_dir()?;
        let root = new_tree(
            Box::new(driver),
            self.to_namespace(),
            RootAttributes { uid: context.cred.uid, gid: context.cred.gid, mode: 0o755 },
        )?;
        self.enlist(&point, &root).and_then(|()| self.attach(&point, &root)).inspect_err(|_| {
            self.mounts().retain(|mount| !mount.root.ptr_eq(&root));
            take_apart(&root);
        })
    }

    /// Adds a tree to the list of mounts before it is attached. From here on the tree that holds
    /// the mount point stays mounted. Fails if that tree is no longer mounted.
    fn enlist(&self, point: &DentryRef, root: &DentryRef) -> Result<()> {
        let mut mounts = self.mounts();
        let id = point.0.sb().id;
        if self.root_sb().id != id && mounts.iter().all(|mount| mount.root.0.sb().id != id) {
            return Err(Error::NoEntry);
        }
        mounts.push(Mount { point: point.clone(), root: root.clone() });
        Ok(())
    }

    /// Attaches a tree. The lock of the mount point's name is held, so that no thread removes or
    /// moves it meanwhile.
    fn attach(&self, point: &DentryRef, root: &DentryRef) -> Result<()> {
        run(self.namespace(), |guard, locks| {
            // A root, of the namespace or of a mounted tree, has no place. Nothing can be mounted
            // over it.
            let dirent = point.0.place.load(guard).ok_or(Error::Busy)?.to_ref();
            let parent = dirent.parent_dir().to_ref().inode();
            let hash = parent.shard.sb.hash(parent.ino, dirent.name.as_bytes());
            locks.all(false, &[Lockable::name(parent, hash)?], true)?;
            let still_there = point.0.place.load(guard).is_some_and(|now| std::ptr::eq(&**now.to_ref(), &**dirent))
                && dirent.value.load(guard).is_some_and(|now| now.ptr_eq(point.0.as_shared()));
            if !still_there {
                return Err(Error::NoEntry.into());
            }
            let directory = point.0.directory()?;
            if !directory.mounted.is_none() {
                return Err(Error::Busy.into());
            }
            // The meaning of paths changes, as when a directory moves.
            locks.moving(|| {
                drop(root.0.sb().mountpoint.swap(Some(point.0.clone())));
                drop(directory.mounted.swap(Some(root.0.clone())));
            });
            notify::covered(point.0.as_shared());
            Ok(())
        })
    }

    /// Unmounts a tree, by a path to its root.
    ///
    /// The tree is shut down. Open files keep their contents. Its directories are empty from then
    /// on, and creating an entry in one fails with ESTALE. Operations that are creating entries in
    /// it are waited for, and their entries are removed with the rest. A
    /// [`Backing`](crate::Backing) is still told of writes to such files, and of their times when
    /// they are closed.
    ///
    /// # Errors
    /// EPERM without the capability, EROFS for a read-only context, EINVAL if nothing is mounted
    /// there, EBUSY if something is mounted inside it, and those of the walk.
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
            // Checked again: another thread may have unmounted it, or mounted inside it, meanwhile.
            let index = find(&mounts)?;
            mounts.swap_remove(index)
        };
        // Paths into the tree become invalid. A thread that keeps a rendered path must notice it by
        // the sequence.
        let mut seq = self.namespace().rename_seq.lock();
        let moved = seq.write();
        detach(&mount);
        drop(moved);
        drop(seq);
        shut_down(&mount.root);
        notify::unmounted(mount.root.0.sb());
        notify::covered(mount.point.0.as_shared());
        Ok(())
    }

    /// Stores nothing any more, in all mounted trees: what is not durable is lost, as if the
    /// machine had crashed. For tests of what a crash leaves.
    pub fn shut_down(&self) {
        self.roots().iter().for_each(|root| root.0.sb().driver.shut_down());
    }

    /// Makes everything durable, in all mounted trees (sync).
    ///
    /// # Errors
    /// The first error of a driver. The other trees are synchronized nevertheless.
    pub fn sync(&self) -> Result<()> {
        let sync = |root: &DentryRef| {
            root.0.sb().send_forgets();
            root.0.sb().store_times(root).and(root.0.sb().driver.sync())
        };
        self.roots().iter().map(sync).fold(Ok(()), Result::and)
    }
}

/// Whether the caller may mount and unmount trees. An unmount removes everything that is in the
/// tree.
fn may_mount(context: &Context) -> Result<()> {
    if context.cred.capable { context.writable() } else { Err(Error::NotPermitted) }
}
