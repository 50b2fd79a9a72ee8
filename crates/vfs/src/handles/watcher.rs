//! Watchers: how a program in this process learns of changes.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering, fence},
    },
    time::Duration,
};

use pando_sync::{lock, pin};

use crate::{
    At, Context, DentryRef, Error, Result, Vfs,
    objects::{
        notify::key_of,
        watches::{Queue, Watch},
    },
    types::{
        Access, Walk,
        watch_event::{WatchEvent, WatchEvents, WatchId},
    },
};

/// Options of a [`Watcher`].
#[derive(Debug, Clone, Copy)]
pub struct WatcherOptions {
    capacity: usize,
    watches: usize,
}

impl WatcherOptions {
    /// As inotify by default: 16,384 events and 65,536 watches.
    #[must_use]
    pub const fn new() -> Self {
        Self { capacity: 16 << 10, watches: 64 << 10 }
    }

    /// The most events that wait to be received. Further ones are lost, which the event
    /// [`WatchEvents::Q_OVERFLOW`] says. At least 1.
    #[must_use]
    pub const fn capacity(self, events: usize) -> Self {
        Self { capacity: if events == 0 { 1 } else { events }, ..self }
    }

    /// The most watches.
    #[must_use]
    pub const fn watches(self, watches: usize) -> Self {
        Self { watches, ..self }
    }
}

impl Default for WatcherOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Watches, and the queue of their events, as inotify(7) has them. When it is dropped, its watches
/// end.
///
/// * **While nobody asks for events, they cost nothing**: an operation reads one word, in a cache
///   line that it reads in any case, and which is not written.
/// * **The order of names is exact.** An event of a name is queued while the name is locked. So the
///   events of one name come in the order of the changes, and those of an operation come before
///   those of an operation that begins after its end.
/// * **A watch can be for everything below a directory** ([`Watcher::add_recursive`]). The path in
///   an event is as it was at one instant of the operation. A directory that is made or moved there
///   is watched from then on. What it had before its move is not reported.
/// * **A slow reader loses events, and is told so** ([`WatchEvents::Q_OVERFLOW`]). No operation
///   waits for it.
///
/// Not reported: changes that others make in a backing ([`Vfs::subscribe`]); on a mount, what the
/// kernel does without asking the server, such as reads from its cache, and writes to a mapping.
///
/// It keeps its [`Vfs`] alive, and what it watches stays in the cache. A watched file that is
/// removed is freed when the watcher is called next.
///
/// ```
/// use pando_memfs::{MemFs, MemOptions};
/// use pando_vfs::{At, Context, Credentials, Error, Vfs, Walk, WatchEvents, WatcherOptions};
///
/// let vfs = Vfs::new(MemFs::new(MemOptions::default()))?;
/// let context = Context::new(&vfs, Credentials::root());
/// let watcher = vfs.watcher(WatcherOptions::new());
/// let wanted = WatchEvents::CREATE | WatchEvents::MOVE;
/// let watch = watcher.add_recursive(&context, At::Cwd, "/", wanted, Walk::empty())?;
/// vfs.mkdir(&context, At::Cwd, "/grove", 0o755)?;
/// vfs.mkdir(&context, At::Cwd, "/grove/oak", 0o755)?;
/// let seen: Vec<_> = std::iter::from_fn(|| watcher.try_recv()).collect();
/// assert_eq!(seen[1].path, b"grove/oak");
/// assert_eq!(seen[1].events, WatchEvents::CREATE | WatchEvents::ISDIR);
/// assert_eq!(seen[1].watch, Some(watch));
/// # Ok::<(), Error>(())
/// ```
#[doc(alias = "inotify")]
pub struct Watcher {
    vfs: Vfs,
    queue: Arc<Queue>,
    options: WatcherOptions,
    /// Atomic: a single independent value.
    next: AtomicU64,
    /// The watched files and directories. Locked before the table of the namespace.
    watched: Mutex<HashMap<WatchId, DentryRef>>,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("vfs", &self.vfs).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Vfs {
    /// Makes a watcher, which has no watches yet (inotify_init).
    #[must_use]
    pub fn watcher(&self, options: WatcherOptions) -> Watcher {
        let queue = Arc::new(Queue::new(options.capacity));
        Watcher { vfs: self.clone(), queue, options, next: AtomicU64::new(1), watched: Mutex::default() }
    }
}

impl Watcher {
    /// Watches a file, or a directory and what has a name in it (inotify_add_watch). If this
    /// watcher has a watch of this inode already, this one takes its place and number.
    ///
    /// # Errors
    /// ENOENT for a file that has lost its last name, ESTALE if its tree is unmounted, EACCES
    /// without read permission, EINVAL if no event is asked for or one that cannot be, ENOSPC if
    /// there are too many watches, EXDEV for a context of another namespace, and those of the walk.
    pub fn add(
        &self,
        context: &Context,
        at: At<'_>,
        path: impl AsRef<[u8]>,
        events: WatchEvents,
        flags: Walk,
    ) -> Result<WatchId> {
        self.add_watch(context, (at, path.as_ref()), events, flags, false)
    }

    /// As [`Watcher::add`], for a directory and everything below it, also what will be made there,
    /// and in trees that are mounted there.
    ///
    /// # Errors
    /// EPERM for a caller without the capability, ENOTDIR for anything but a directory, and those
    /// of [`Watcher::add`].
    pub fn add_recursive(
        &self,
        context: &Context,
        at: At<'_>,
        path: impl AsRef<[u8]>,
        events: WatchEvents,
        flags: Walk,
    ) -> Result<WatchId> {
        self.add_watch(context, (at, path.as_ref()), events, flags, true)
    }

    fn add_watch(
        &self,
        context: &Context,
        (at, path): (At<'_>, &[u8]),
        events: WatchEvents,
        flags: Walk,
        recursive: bool,
    ) -> Result<WatchId> {
        if events.is_empty() || !WatchEvents::ALL_EVENTS.contains(events) {
            return Err(Error::Invalid);
        }
        let dentry = self.vfs.lookup(context, at, path, flags)?;
        let inode = dentry.0.inode();
        if recursive {
            dentry.0.expect_dir()?;
            if !context.capable() {
                // Names would be shown of directories that the caller may not read.
                return Err(Error::NotPermitted);
            }
        }
        context.check(inode, Access::READ, &pin())?;
        let id = WatchId(self.next.fetch_add(1, Ordering::Relaxed));
        self.release_ended();
        let mut watched = lock(&self.watched);
        let may_be_new = watched.len() < self.options.watches;
        let key = key_of(inode);
        let found = self.vfs.namespace().observers.watches.change(|table| {
            let is_known = table.of(key).iter().any(|watch| Arc::ptr_eq(&watch.queue, &self.queue));
            let watch = Watch { queue: self.queue.clone(), id, events, recursive };
            (is_known || may_be_new).then(|| table.add(key, watch))
        });
        let found = found.ok_or(Error::NoSpace)?;
        if found == id {
            watched.insert(id, dentry.clone());
        }
        drop(watched);
        // Either this thread sees that the last name is gone, or the thread that removes it sees
        // the watch.
        fence(Ordering::SeqCst);
        let inode_is_gone = inode.is_unlinked(&pin()) && (inode.is_dir() || !inode.links.has_or_may_get_name());
        let gone = inode.shard.sb.expect_mounted().and(if inode_is_gone { Err(Error::NoEntry) } else { Ok(()) });
        match gone {
            // Otherwise the watch has ended as others do.
            Err(error) if self.end(&dentry, found) => Err(error),
            _ => Ok(found),
        }
    }

    /// Ends a watch (inotify_rm_watch). Its events that were not received yet stay in the queue.
    ///
    /// # Errors
    /// EINVAL if there is no such watch.
    pub fn remove(&self, watch: WatchId) -> Result<()> {
        let watched = lock(&self.watched).get(&watch).cloned().ok_or(Error::Invalid)?;
        let was_there = self.end(&watched, watch);
        self.release_ended();
        if was_there { Ok(()) } else { Err(Error::Invalid) }
    }

    /// Ends a watch, if it is still there.
    fn end(&self, watched: &DentryRef, id: WatchId) -> bool {
        let is_own = |watch: &Watch| watch.id == id && Arc::ptr_eq(&watch.queue, &self.queue);
        let key = key_of(watched.0.inode());
        self.vfs.namespace().observers.watches.change(|table| table.remove(key, WatchEvents::empty(), is_own))
    }

    /// The next event, if there is one.
    #[must_use]
    pub fn try_recv(&self) -> Option<WatchEvent> {
        self.recv_timeout(Duration::ZERO)
    }

    /// The next event. Waits for one, at most this long.
    #[must_use]
    pub fn recv_timeout(&self, timeout: Duration) -> Option<WatchEvent> {
        let event = self.queue.pop(timeout);
        self.release_ended();
        event
    }

    /// Releases what was watched by watches that have ended.
    fn release_ended(&self) {
        let ended = self.queue.take_ended();
        if !ended.is_empty() {
            let mut watched = lock(&self.watched);
            let gone: Vec<DentryRef> = ended.iter().filter_map(|watch| watched.remove(watch)).collect();
            // Dropped without the lock.
            drop(watched);
            drop(gone);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let watched = std::mem::take(&mut *lock(&self.watched));
        watched.iter().for_each(|(id, watched)| _ = self.end(watched, *id));
    }
}
