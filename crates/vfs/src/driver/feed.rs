//! The changes that others make in a backing, as the backing reports them to the namespace.

use std::sync::{
    Arc, PoisonError, RwLock, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Directories whose numbers are equal modulo this share a count. A report for one of them makes
/// the namespace read the others again as well, once.
const CLASSES: usize = 1024;

/// The channel through which a [`Backing`](super::Backing) reports changes by others. It gets one
/// for each tree ([`Backing::connect`](super::Backing::connect)), and may use it from any thread,
/// also after the tree was unmounted. A report never waits. Cheap to clone.
///
/// A report of a name or of an inode costs the tree one request, when that name or inode is used
/// next. After the report of a directory, each walk through it checks whether it was reported, and
/// then reads what is cached of it again. So does [`Vfs::getattr`](crate::Vfs::getattr). Until the
/// report arrives, they may show what is cached. To be noticed at once, a change is reported no
/// later than the first answer of the backing that shows it. No change may be reported too early:
/// every call that begins after the report must show it.
///
/// A report about a change that the tree itself has made does no harm, and costs a request.
#[derive(Clone)]
pub struct Feed(Arc<Inner>);

struct Inner {
    /// Reports that concern every directory. Monotonic.
    everything: AtomicU64,
    /// Reports of directories. Monotonic.
    directories: Box<[AtomicU64]>,
    /// Reports of names, by the class of their directory. Monotonic.
    names: Box<[AtomicU64]>,
    /// Reports of inodes. Monotonic.
    inodes: AtomicU64,
    /// The cache of the tree, as long as there is one. A report is made under this lock, so the
    /// thread that takes the tree apart waits for it.
    cache: RwLock<Option<Box<dyn ReportedTo>>>,
    /// See [`Feed::is_connected`]. Atomic, with release and acquire.
    is_connected: AtomicBool,
    subscribers: RwLock<Vec<Weak<Subscriber>>>,
}

/// The cache of a tree, as a feed sees it.
pub(crate) trait ReportedTo: Send + Sync {
    /// Others have changed a name of a directory, or the inode that it leads to. False if the cache
    /// must treat this as a report of the whole directory.
    fn name_changed(&self, dir: u64, name: &[u8]) -> bool;

    /// Others have changed an inode.
    fn inode_changed(&self, ino: u64);
}

/// A change that a backing has reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeByOthers<'a> {
    /// A name was made, removed or bound to another inode.
    Name {
        /// The inode number of the directory.
        dir: u64,
        /// The name.
        name: &'a [u8],
    },
    /// The attributes or the contents of the inode with this number.
    Inode(u64),
    /// Names of the directory with this number, inodes that they lead to, or its own attributes.
    Directory(u64),
    /// Anything.
    Everything,
}

/// A function that is told of changes by others ([`Vfs::subscribe`](crate::Vfs::subscribe)).
pub type Subscriber = dyn Fn(ChangeByOthers<'_>) + Send + Sync;

impl Feed {
    pub(crate) fn new() -> Self {
        let classes = || (0..CLASSES).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Inner {
            everything: AtomicU64::new(0),
            directories: classes(),
            names: classes(),
            inodes: AtomicU64::new(0),
            cache: RwLock::default(),
            is_connected: AtomicBool::new(false),
            subscribers: RwLock::default(),
        }))
    }

    /// Another user of the store has made or removed this name of a directory, or bound it to
    /// another inode. The report includes the attributes of the directory, and not those of the
    /// inode: removing one of its names changes its link count, for instance, and is reported by
    /// [`Feed::inode_changed`] as well.
    pub fn name_changed(&self, dir: u64, name: &[u8]) {
        // The directory itself may be on its way into the cache, with its attributes from before.
        self.uncached_inode_changed();
        count_in(&self.0.names, dir);
        let known = self.with_cache(|cache| {
            cache.inode_changed(dir);
            cache.name_changed(dir, name)
        });
        if known != Some(true) {
            count_in(&self.0.directories, dir);
        }
        self.tell(ChangeByOthers::Name { dir, name });
    }

    /// Another user of the store has changed the attributes, the extended attributes or the
    /// contents of an inode.
    pub fn inode_changed(&self, ino: u64) {
        self.uncached_inode_changed();
        if self.with_cache(|cache| cache.inode_changed(ino)).is_none() {
            self.everything_changed();
            return;
        }
        self.tell(ChangeByOthers::Inode(ino));
    }

    /// Another user of the store has changed an inode of which the backing was told to forget the
    /// number, or has not given the number to the tree yet. This concerns only answers that the
    /// backing is giving just now.
    pub fn uncached_inode_changed(&self) {
        // SeqCst: a thread that has put an inode into the cache looks at this count. Either it sees
        // this report, or this report finds the inode.
        self.0.inodes.fetch_add(1, Ordering::SeqCst);
    }

    /// Another user of the store has changed a name of this directory, or an inode that a name of
    /// it leads to, or its own attributes. An inode with several names is reported for the
    /// directory of each. The tree requests all cached names of the directory again. If these are
    /// more than 4,096, it drops those that are not in use.
    pub fn directory_changed(&self, dir: u64) {
        count_in(&self.0.directories, dir);
        self.tell(ChangeByOthers::Directory(dir));
    }

    /// Anything may have changed: reports were lost, for example, or the directories of a changed
    /// inode are not known.
    pub fn everything_changed(&self) {
        self.0.everything.fetch_add(1, Ordering::SeqCst);
        self.tell(ChangeByOthers::Everything);
    }

    /// Makes the tree read a directory again that it has in its cache. Nobody else is told.
    pub(crate) fn read_again(&self, dir: u64) {
        count_in(&self.0.directories, dir);
    }

    /// The number of reports after which everything that is cached of a directory must be read
    /// again.
    pub(crate) fn count(&self, dir: u64) -> u64 {
        self.0.everything.load(Ordering::SeqCst) + self.0.directories[class(dir)].load(Ordering::SeqCst)
    }

    /// The number of reports that concern a name of a directory. It has grown if an answer about a
    /// name may be older than a report.
    pub(crate) fn count_with_names(&self, dir: u64) -> u64 {
        self.count(dir) + self.0.names[class(dir)].load(Ordering::SeqCst)
    }

    /// The number of reports of inodes.
    pub(crate) fn inodes(&self) -> u64 {
        self.0.inodes.load(Ordering::SeqCst)
    }

    /// Whether the tree has been made and was not shut down. After the shutdown only files that are
    /// still open call the backing, and the thread that drops the driver forgets their numbers.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.0.is_connected.load(Ordering::Acquire)
    }

    /// From now on the cache is told of single names and inodes.
    pub(crate) fn connect(&self, cache: Box<dyn ReportedTo>) {
        *self.0.cache.write().unwrap_or_else(PoisonError::into_inner) = Some(cache);
        self.0.is_connected.store(true, Ordering::Release);
    }

    /// The tree was shut down.
    pub(crate) fn end(&self) {
        self.0.is_connected.store(false, Ordering::Release);
    }

    /// The cache is not used any more when this returns.
    pub(crate) fn disconnect(&self) {
        *self.0.cache.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn subscribe(&self, subscriber: &Arc<Subscriber>) {
        let mut subscribers = self.0.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        subscribers.retain(|known| known.strong_count() > 0);
        subscribers.push(Arc::downgrade(subscriber));
    }

    /// None if the tree is not made yet, or is gone.
    fn with_cache<T>(&self, tell: impl FnOnce(&dyn ReportedTo) -> T) -> Option<T> {
        self.0.cache.read().unwrap_or_else(PoisonError::into_inner).as_deref().map(tell)
    }

    fn tell(&self, change: ChangeByOthers<'_>) {
        let subscribers = self.0.subscribers.read().unwrap_or_else(PoisonError::into_inner);
        subscribers.iter().filter_map(Weak::upgrade).for_each(|subscriber| subscriber(change));
    }
}

fn class(dir: u64) -> usize {
    dir as usize % CLASSES
}

fn count_in(classes: &[AtomicU64], dir: u64) {
    // SeqCst: ordered with the store's own state, which may be a plain atomic.
    classes[class(dir)].fetch_add(1, Ordering::SeqCst);
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").finish_non_exhaustive()
    }
}
