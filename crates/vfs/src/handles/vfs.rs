//! The `Vfs`: one namespace, that is, a tree and the trees that are mounted in it.

use std::sync::{Arc, Mutex, MutexGuard};

use pando_sync::{BlockBox, Counted, lock, pin};

use crate::{
    Backing, Charge, DentryRef, Driver, Feed, Result, Subscriber, Timestamp, VfsOptions,
    caches::reported::ReportedCache,
    handles::teardown::{Defer, shut_down},
    objects::{
        dentry::Dentry,
        directory::Directory,
        inode::{Body, Inode},
        superblock::{Namespace, SuperBlock},
        watches::Itself,
    },
    types::{FileKind, cred::PermView},
};

/// A namespace: a tree, and the trees that are mounted in it.
///
/// A clone is cheap, and all clones are the same namespace. It starts no thread, except for
/// read-ahead in a tree with a backing, and shares no state with other namespaces except the memory
/// reclaimer. When the last clone is dropped, the trees are unmounted; files that are still open
/// keep the objects that they need.
///
/// A context and a dentry belong to one namespace. A path that starts at a dentry of another
/// namespace is refused (EXDEV). A call on a dentry itself works on the dentry's own tree.
#[derive(Clone)]
pub struct Vfs(Arc<Inner>);

struct Inner {
    namespace: Arc<Namespace>,
    root: DentryRef,
    mounts: Mutex<Vec<Mount>>,
    /// The last field. Its drop reclaims the objects that the other fields have released.
    _reclaims: Reclaims,
}

/// Reclaims memory when it is dropped: no other thread may ever do it.
struct Reclaims;

impl Drop for Reclaims {
    fn drop(&mut self) {
        pando_sync::collect_all();
    }
}

/// A function that is told of changes, until this is dropped
/// ([`Vfs::subscribe_in_process`]). It keeps its [`Vfs`] alive.
pub struct Subscription {
    vfs: Vfs,
    subscriber: Arc<Subscriber>,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").field("vfs", &self.vfs).finish_non_exhaustive()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.vfs.namespace().observers.watches.change(|table| table.unsubscribe(&self.subscriber));
    }
}

/// A tree mounted in another.
pub(crate) struct Mount {
    pub point: DentryRef,
    pub root: DentryRef,
}

impl std::fmt::Debug for Vfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vfs").field("root", &self.0.root).finish_non_exhaustive()
    }
}

impl Vfs {
    /// A namespace whose root is a new tree of `driver`.
    ///
    /// # Errors
    /// ENOSPC if the driver has no space for the root directory.
    pub fn new(driver: impl Driver) -> Result<Self> {
        Self::with_options(driver, VfsOptions::new())
    }

    /// As [`Vfs::new`], with options.
    ///
    /// # Errors
    /// As [`Vfs::new`].
    pub fn with_options(driver: impl Driver, options: VfsOptions) -> Result<Self> {
        let root = RootAttributes { uid: options.uid, gid: options.gid, mode: options.mode & 0o7777 };
        let namespace = Arc::new(Namespace::new(&options));
        let root = new_tree(Box::new(driver), namespace.clone(), root)?;
        Ok(Self(Arc::new(Inner { namespace, root, mounts: Mutex::new(Vec::new()), _reclaims: Reclaims })))
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> DentryRef {
        self.0.root.clone()
    }

    /// Tells a function of the changes that others make in the backing of this tree, as long as the
    /// caller keeps the function. A server whose clients have caches needs it. The function is
    /// called by the thread that reports the change, after the report: from then on the tree shows
    /// the change. It must not wait, nor call the tree. In memory nobody else can change the tree.
    pub fn subscribe(&self, subscriber: &Arc<Subscriber>) {
        if let Some(feed) = &self.root_sb().feed {
            feed.subscribe(subscriber);
        }
    }

    /// As [`Vfs::subscribe`], for the changes that threads of this process make through the
    /// namespace, except in [`Vfs::as_subscriber`]. The function is called in the middle of the
    /// operation, which has taken effect. A change of a name is also one of its directory.
    #[must_use = "the subscription ends when this is dropped"]
    pub fn subscribe_in_process(&self, subscriber: Arc<Subscriber>) -> Subscription {
        self.namespace().observers.watches.change(|table| table.subscribe(subscriber.clone()));
        Subscription { vfs: self.clone(), subscriber }
    }

    /// Runs a function whose changes this subscriber makes itself, as a server does for its
    /// clients. It is not told of them ([`Vfs::subscribe_in_process`]).
    pub fn as_subscriber<T>(subscriber: &Arc<Subscriber>, run: impl FnOnce() -> T) -> T {
        let _itself = Itself::new(subscriber);
        run()
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.0.namespace
    }

    /// As [`Vfs::namespace`], held.
    pub(crate) fn to_namespace(&self) -> Arc<Namespace> {
        self.0.namespace.clone()
    }

    /// The superblock of the root directory.
    pub(crate) fn root_sb(&self) -> &SuperBlock {
        self.0.root.0.sb()
    }

    pub(crate) fn mounts(&self) -> MutexGuard<'_, Vec<Mount>> {
        lock(&self.0.mounts)
    }

    /// The first result that `ask` returns for a superblock, that of the root first. The caller
    /// holds no guard. `ask` must not wait, since other threads wait for the list of mounts.
    pub(crate) fn superblocks<T>(&self, mut ask: impl FnMut(&Arc<SuperBlock>) -> Option<T>) -> Option<T> {
        ask(&self.0.root.0.inode().shard.sb)
            .or_else(|| self.mounts().iter().find_map(|mount| ask(&mount.root.0.inode().shard.sb)))
    }

    /// The roots of all trees, that of the namespace first. For callers that may wait.
    pub(crate) fn roots(&self) -> Vec<DentryRef> {
        std::iter::once(self.root()).chain(self.mounts().iter().map(|mount| mount.root.clone())).collect()
    }
}

/// Owner and mode of a new root.
pub(crate) struct RootAttributes {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
}

pub(crate) fn new_tree(driver: Box<dyn Driver>, namespace: Arc<Namespace>, root: RootAttributes) -> Result<DentryRef> {
    // Before the superblock is made: it and its shards refer to each other, so after an error or a
    // panic it would never be freed.
    let connect = |backing: &dyn Backing| {
        let feed = Feed::new();
        backing.connect(feed.clone()).map(|attr| (feed, attr))
    };
    let (feed, stored) = driver.backing().map(connect).transpose()?.unzip();
    driver.charge(Charge::Inode)?;
    let sb = SuperBlock::new(driver, namespace, feed);
    let shard = sb.shard(&pin())?;
    if let Some(attr) = stored {
        // No report was seen yet: none of those that came after the answer is lost.
        let body = Body::Directory(BlockBox::new(Directory::backed(sb.whole_directories, 0, attr.nlink)));
        let root = Counted::new(Dentry::new(Inode::loaded(shard, &attr, body)));
        if let Some(feed) = &sb.feed {
            drop(sb.reported_root.swap(Some(root.clone())));
            feed.connect(Box::new(ReportedCache(Arc::downgrade(&sb))));
        }
        return Ok(DentryRef(root));
    }
    let perm = PermView { mode: root.mode, uid: root.uid, gid: root.gid };
    let body = Body::Directory(BlockBox::new(Directory::new(sb.whole_directories)));
    let inode = Inode::new(shard, FileKind::Directory, perm.into(), body, 1, Timestamp::now().0);
    Ok(DentryRef(Counted::new(Dentry::new(inode))))
}

pub(crate) fn detach(mount: &Mount) {
    if let Ok(directory) = mount.point.0.directory() {
        drop(directory.mounted.swap(None));
    }
    drop(mount.root.0.sb().mountpoint.swap(None));
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mounts = std::mem::take(&mut *lock(&self.mounts));
        mounts.iter().for_each(detach);
        let roots = mounts.iter().rev().map(|mount| &mount.root).chain([&self.root]);
        drop(roots.map(|root| Defer(move || shut_down(root))).collect::<Vec<_>>());
    }
}
