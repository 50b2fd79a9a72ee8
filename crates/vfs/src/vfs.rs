//! The `Vfs`: one name space, from its root on, with what is mounted in it.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{Ordering, fence},
};

use pando_sync::{BlockBox, Counted, lock, pin};

use crate::{
    At, Backing, Charge, Context, DentryRef, Driver, Error, Result, StatFs, Timestamp,
    backed::change_count,
    create::shard_of,
    dentry::Dentry,
    directory::Directory,
    inode::{Body, Inode, PermView},
    locks::{Lockable, Stop, look, run},
    namei::walk,
    superblock::{NameSpace, SuperBlock},
    trace::TraceOp,
    types::{Access, FileKind, Walk},
};

/// A name space: a tree, and the trees mounted in it.
///
/// Cheap to clone; all clones are the same name space. It has no thread of its own and no state outside itself but the
/// reclaimer's. When the last clone goes, the trees are taken down; files still open keep what they need. Contexts and
/// dentries belong to one name space: paths that start in another one's are refused (EXDEV), and what is done to a dentry itself is
/// done in the tree that it belongs to.
#[derive(Clone)]
pub struct Vfs(Arc<Inner>);

struct Inner {
    name_space: Arc<NameSpace>,
    root: DentryRef,
    mounts: Mutex<Vec<Mount>>,
    /// The last field: what the others let go of is reclaimed.
    _reclaims: Reclaims,
}

/// Reclaims what it can when it is dropped: nobody else may ever come to it.
struct Reclaims;

impl Drop for Reclaims {
    fn drop(&mut self) {
        pando_sync::collect_all();
    }
}

/// A tree mounted in another.
struct Mount {
    point: DentryRef,
    root: DentryRef,
}

impl std::fmt::Debug for Vfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vfs").field("root", &self.0.root).finish_non_exhaustive()
    }
}

impl Vfs {
    /// A name space whose root is a new tree of `driver`.
    ///
    /// # Errors
    /// ENOSPC when the driver has no room for the root directory.
    pub fn new(driver: impl Driver) -> Result<Self> {
        Self::with_root(driver, RootAttributes { uid: 0, gid: 0, mode: 0o755 }, NameSpace::new())
    }

    /// As [`Vfs::new`], with the owner, group and mode of the root directory.
    ///
    /// # Errors
    /// As [`Vfs::new`].
    pub fn with_root_attributes(driver: impl Driver, uid: u32, gid: u32, mode: u32) -> Result<Self> {
        Self::with_root(driver, RootAttributes { uid, gid, mode: mode & 0o7777 }, NameSpace::new())
    }

    /// See [`crate::probe::vfs_with_hash_key`].
    pub(crate) fn with_hash_key(driver: impl Driver, uid: u32, gid: u32, mode: u32, key: (u64, u64)) -> Result<Self> {
        let root = RootAttributes { uid, gid, mode: mode & 0o7777 };
        Self::with_root(driver, root, NameSpace::with_hash_key(key))
    }

    fn with_root(driver: impl Driver, root: RootAttributes, name_space: NameSpace) -> Result<Self> {
        let name_space = Arc::new(name_space);
        let root = new_tree(Box::new(driver), name_space.clone(), root)?;
        Ok(Self(Arc::new(Inner { name_space, root, mounts: Mutex::new(Vec::new()), _reclaims: Reclaims })))
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> DentryRef {
        self.0.root.clone()
    }

    pub(crate) fn name_space(&self) -> &NameSpace {
        &self.0.name_space
    }

    fn mounts(&self) -> MutexGuard<'_, Vec<Mount>> {
        lock(&self.0.mounts)
    }

    /// The first answer that a superblock gives, the root's first. No guard is held; and `ask` does not wait, since others wait
    /// for the list of mounts.
    pub(crate) fn superblocks<T>(&self, mut ask: impl FnMut(&Arc<SuperBlock>) -> Option<T>) -> Option<T> {
        ask(&self.0.root.0.inode().shard.sb)
            .or_else(|| self.mounts().iter().find_map(|mount| ask(&mount.root.0.inode().shard.sb)))
    }

    /// The roots of all trees, the name space's first: for what may wait.
    pub(crate) fn roots(&self) -> Vec<DentryRef> {
        std::iter::once(self.root()).chain(self.mounts().iter().map(|mount| mount.root.clone())).collect()
    }

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

    /// Walks a path to its dentry. The reference keeps it, and costs one count of that file.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG; EINVAL for a NUL inside the path.
    pub fn lookup(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, flags: Walk) -> Result<DentryRef> {
        let path = path.as_ref();
        self.traced(TraceOp::Lookup, (context, at, path), || self.lookup_at(context, at, path, flags))
    }

    pub(crate) fn lookup_at(&self, context: &Context, at: At<'_>, path: &[u8], flags: Walk) -> Result<DentryRef> {
        look(self.name_space(), |guard| {
            // A dentry that died between the walk and here: another walk tells what is there now.
            walk(self.name_space(), context, &at, path, flags, guard)?.get().map(DentryRef).ok_or(Stop::Again)
        })
    }

    /// Changes the working directory of a context.
    ///
    /// # Errors
    /// ENOTDIR, EACCES without search permission, and those of the walk.
    pub fn chdir(&self, context: &mut Context, at: At<'_>, path: impl AsRef<[u8]>) -> Result<()> {
        context.set_cwd(self.enterable(context, at, path.as_ref())?);
        Ok(())
    }

    /// Changes the root directory of a context. The working directory stays, inside or not: change it as well.
    ///
    /// # Errors
    /// EPERM without the capability, ENOTDIR, and those of the walk.
    pub fn chroot(&self, context: &mut Context, at: At<'_>, path: impl AsRef<[u8]>) -> Result<()> {
        let root = self.enterable(context, at, path.as_ref())?;
        if !context.cred.capable {
            return Err(Error::NotPermitted);
        }
        context.set_root(root);
        Ok(())
    }

    fn enterable(&self, context: &Context, at: At<'_>, path: &[u8]) -> Result<DentryRef> {
        let dentry = self.lookup_at(context, at, path, Walk::empty())?;
        let inode = dentry.0.expect_dir()?;
        context.check(inode, &inode.perm(&pin()), Access::EXEC)?;
        Ok(dentry)
    }

    /// What a superblock has and has left (statfs), by a path on it. What is gone is not counted, as far as nobody reads it
    /// ([`Vfs::hand_over`]).
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

    /// For a thread that may now wait for long: what it has removed can be reclaimed by others. (Some of the names that it has
    /// removed last would else hold their directories, which are counted; a thread that goes on, or ends, hands them over by
    /// itself.) It frees nothing itself: others do, as they change names, and [`Vfs::statfs`] does.
    pub fn hand_over(&self) {
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
            self.0.name_space.clone(),
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
        if self.0.root.0.sb().id != id && mounts.iter().all(|mount| mount.root.0.sb().id != id) {
            return Err(Error::NoEntry);
        }
        mounts.push(Mount { point: point.clone(), root: root.clone() });
        Ok(())
    }

    /// Attaches a tree: with the lock of the mount point's name, so that nobody removes or moves it meanwhile.
    fn attach(&self, point: &DentryRef, root: &DentryRef) -> Result<()> {
        run(self.name_space(), |attempt, locks| {
            let guard = attempt.guard;
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
    /// something in them is ESTALE. What is being made there meanwhile is waited for, and goes with the rest. A [`Backing`]
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

/// Owner and mode of a new root.
struct RootAttributes {
    uid: u32,
    gid: u32,
    mode: u32,
}

fn new_tree(driver: Box<dyn Driver>, name_space: Arc<NameSpace>, root: RootAttributes) -> Result<DentryRef> {
    // First: the superblock's shards hold it, and it them, so that it would outlive a refusal or a panic.
    let stored = driver.backing().map(Backing::root).transpose()?;
    driver.charge(Charge::Inode)?;
    let sb = SuperBlock::new(driver, name_space);
    let shard = shard_of(&sb, &pin())?;
    if let Some(attr) = stored {
        let body = Body::Directory(BlockBox::new(Directory::backed(change_count(&sb, attr.ino), attr.nlink)));
        return Ok(DentryRef(Counted::new(Dentry::new(Inode::loaded(shard, &attr, body)))));
    }
    let perm = PermView { mode: root.mode, uid: root.uid, gid: root.gid };
    let body = Body::Directory(BlockBox::new(Directory::new()));
    let inode = Inode::new(shard, FileKind::Directory, perm, body, 1, Timestamp::now().0);
    Ok(DentryRef(Counted::new(Dentry::new(inode))))
}

fn detach(mount: &Mount) {
    if let Ok(directory) = mount.point.0.directory() {
        drop(directory.mounted.swap(None));
    }
    drop(mount.root.0.sb().covers.swap(None));
}

/// Takes a tree apart, so that no reference within it keeps it alive: every slot is emptied, every directory lets go of
/// itself. Goes by a list, not by recursion: a tree may be deeper than a stack.
fn take_down(root: &DentryRef) {
    let _alone = root.0.sb().evicting.write().unwrap_or_else(PoisonError::into_inner);
    // Where others may be at work, it is closed already.
    drop(root.0.sb().shards.swap(None));
    let mut todo: Vec<Counted<Dentry>> = vec![root.0.clone()];
    if root.0.sb().driver.backing().is_some() {
        // Directories that others have moved or removed may lead nowhere, and still hold what was cached of them.
        let guard = pin();
        let known: Vec<_> = root.0.sb().inodes.all().into_iter().chain(root.0.sb().links.take()).collect();
        let mut parents: Vec<_> = known.iter().filter_map(|known| known.to_parent(&guard)).collect();
        // Each once: to see that a large directory is empty takes a look at all of its buckets.
        parents.sort_unstable_by_key(|parent| std::ptr::from_ref::<Dentry>(parent));
        parents.dedup_by(|one, other| one.ptr_eq(other));
        todo.extend(known.into_iter().filter(|known| known.is_dir()));
        todo.append(&mut parents);
    }
    while let Some(dentry) = todo.pop() {
        let Ok(directory) = dentry.directory() else { continue };
        let mut position = 0;
        loop {
            // In batches, each under a guard of its own: garbage must not wait for the whole tree.
            let guard = pin();
            let mut count = 0;
            for slot in directory.slots_after(position, &guard).take(1024) {
                count += 1;
                position = slot.to_ref().position();
                // Somebody may be moving it.
                if let Some(child) = slot.to_ref().value.take() {
                    child.proxies.collapse();
                    if child.is_dir() {
                        todo.push(child);
                    }
                }
                directory.remove(slot, &guard);
            }
            if count == 0 {
                break;
            }
        }
        directory.detach();
    }
    // As `Vfs::remember` has it.
    fence(Ordering::SeqCst);
    root.0.sb().nodes.forget_all();
    root.0.sb().inodes.clear();
    root.0.sb().drain_forgotten();
}

/// Nothing comes into a tree any more, and it is taken apart. Errors of its backing go nowhere: whoever wants to hear of
/// them calls `sync` before.
fn close_down(root: &DentryRef) {
    root.0.sb().close();
    // As the drop of `File` has it.
    fence(Ordering::SeqCst);
    let _taken_down = AtEnd(|| take_down(root));
    // Files that are written to from here on are stored when they are closed.
    let _ = root.0.sb().store_times(root);
}

/// What is done in the end, also if a backing panics before.
struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mounts = std::mem::take(&mut *lock(&self.mounts));
        mounts.iter().for_each(detach);
        let roots = mounts.iter().rev().map(|mount| &mount.root).chain([&self.root]);
        drop(roots.map(|root| AtEnd(move || close_down(root))).collect::<Vec<_>>());
    }
}
