//! The watches of a namespace, and the queues of their events. [`crate::objects::notify`] fills
//! them.

use std::{
    cell::Cell,
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use pando_sync::lock;

use crate::{
    ChangeByOthers, Subscriber,
    types::watch_event::{WatchEvent, WatchEvents, WatchId},
};

/// The key of an inode in the namespace: the number of its superblock, and its own.
pub(crate) type InodeKey = (u64, u64);

/// See the module.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Watches {
    /// The kinds of events that some watch asks for. Relaxed: an operation that runs while a watch
    /// is added may miss it. Written under the lock of the table.
    wanted: AtomicU32,
    /// The last cookie of a move. Atomic: a single independent value.
    cookie: AtomicU32,
    /// A leaf, but for the queues. Threads that hold locks of names read it.
    table: RwLock<Table>,
}

#[derive(Default)]
pub(crate) struct Table {
    watches: HashMap<InodeKey, Vec<Watch>>,
    /// How many watches ask for each kind of event, by the place of its bit.
    asked: [usize; 16],
    /// How many watch everything below a directory.
    recursive: usize,
    /// Functions that are told of all changes in the namespace.
    subscribers: Vec<Arc<Subscriber>>,
}

/// The events of which subscribers are told.
const CHANGES: WatchEvents = WatchEvents::CREATE
    .union(WatchEvents::DELETE)
    .union(WatchEvents::MOVE)
    .union(WatchEvents::ATTRIB)
    .union(WatchEvents::MODIFY);

std::thread_local! {
    /// The address of the subscriber that makes this thread's changes itself, or 0.
    static ITSELF: Cell<usize> = const { Cell::new(0) };
}

fn address_of(subscriber: &Arc<Subscriber>) -> usize {
    Arc::as_ptr(subscriber).cast::<()>() as usize
}

/// While this is there, the subscriber is not told of changes that this thread makes.
pub(crate) struct Itself {
    before: usize,
}

impl Itself {
    pub(crate) fn new(subscriber: &Arc<Subscriber>) -> Self {
        Self { before: ITSELF.replace(address_of(subscriber)) }
    }
}

impl Drop for Itself {
    fn drop(&mut self) {
        ITSELF.set(self.before);
    }
}

/// The watch of an inode.
pub(crate) struct Watch {
    pub queue: Arc<Queue>,
    pub id: WatchId,
    pub events: WatchEvents,
    /// It is for everything below the directory.
    pub recursive: bool,
}

impl Watches {
    /// Whether some watch asks for one of these events. One load.
    #[inline]
    pub(crate) fn wants(&self, events: WatchEvents) -> bool {
        self.wanted.load(Ordering::Relaxed) & events.bits() != 0
    }

    pub(crate) fn next_cookie(&self) -> u32 {
        self.cookie.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1)
    }

    pub(crate) fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the table.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut table);
        let asked = table.asked.iter().enumerate().filter(|(_, watches)| **watches > 0);
        self.wanted.store(asked.map(|(bit, _)| 1 << bit).sum(), Ordering::Relaxed);
        result
    }
}

impl Table {
    pub(crate) fn has_recursive(&self) -> bool {
        self.recursive > 0
    }

    /// Counts a watch that is there now, or is gone.
    fn count(&mut self, watch: &Watch, is_there: bool) {
        // A watch also has to end.
        self.count_asked(watch.events | WatchEvents::DELETE_SELF | WatchEvents::UNMOUNT, is_there);
        self.recursive = changed(self.recursive, usize::from(watch.recursive), is_there);
    }

    fn count_asked(&mut self, asked: WatchEvents, is_there: bool) {
        for (bit, count) in self.asked.iter_mut().enumerate() {
            *count = changed(*count, usize::from(asked.bits() & 1 << bit != 0), is_there);
        }
    }

    /// From now on, this function is told of changes.
    pub(crate) fn subscribe(&mut self, subscriber: Arc<Subscriber>) {
        self.count_asked(CHANGES, true);
        self.subscribers.push(subscriber);
    }

    /// This function is told of changes no more.
    pub(crate) fn unsubscribe(&mut self, subscriber: &Arc<Subscriber>) {
        if let Some(place) = self.subscribers.iter().position(|known| Arc::ptr_eq(known, subscriber)) {
            self.subscribers.swap_remove(place);
            self.count_asked(CHANGES, false);
        }
    }

    /// Tells the subscribers of a change.
    pub(crate) fn tell(&self, change: ChangeByOthers<'_>) {
        let itself = ITSELF.try_with(Cell::get).unwrap_or_default();
        let others = self.subscribers.iter().filter(|subscriber| address_of(subscriber) != itself);
        others.for_each(|subscriber| subscriber(change));
    }

    /// An event for watches of everything below a directory is lost.
    pub(crate) fn lose_events(&self) {
        let recursive = self.watches.values().flatten().filter(|watch| watch.recursive);
        recursive.for_each(|watch| watch.queue.lose_event());
    }

    pub(crate) fn of(&self, key: InodeKey) -> &[Watch] {
        self.watches.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Adds a watch, or replaces the one that this queue has of this inode. Returns its number.
    pub(crate) fn add(&mut self, key: InodeKey, mut watch: Watch) -> WatchId {
        self.count(&watch, true);
        let watches = self.watches.entry(key).or_default();
        let known = watches.iter_mut().find(|known| Arc::ptr_eq(&known.queue, &watch.queue));
        let Some(known) = known else {
            let id = watch.id;
            watches.push(watch);
            return id;
        };
        let id = known.id;
        watch.id = id;
        let replaced = std::mem::replace(known, watch);
        self.count(&replaced, false);
        id
    }

    /// Removes the watches of an inode for which `is_gone`. Each queue gets the event `reason`, if
    /// it asks for it, and IGNORED. Returns whether there were any.
    pub(crate) fn remove(&mut self, key: InodeKey, reason: WatchEvents, is_gone: impl Fn(&Watch) -> bool) -> bool {
        let Some(watches) = self.watches.get_mut(&key) else { return false };
        let gone: Vec<Watch> = watches.extract_if(.., |watch| is_gone(watch)).collect();
        if watches.is_empty() {
            self.watches.remove(&key);
        }
        for watch in &gone {
            self.count(watch, false);
            watch.end(reason);
        }
        !gone.is_empty()
    }

    /// The watched inodes of a superblock.
    pub(crate) fn inodes_of(&self, sb: u64) -> Vec<InodeKey> {
        self.watches.keys().copied().filter(|(id, _)| *id == sb).collect()
    }
}

fn changed(count: usize, by: usize, is_there: bool) -> usize {
    if is_there { count + by } else { count - by }
}

impl Watch {
    /// Whether it asks for events of this kind.
    pub(crate) fn asks_for(&self, events: WatchEvents) -> bool {
        self.events.intersects(events - WatchEvents::ISDIR)
    }

    fn end(&self, reason: WatchEvents) {
        let asked = self.events | WatchEvents::UNMOUNT;
        [reason & asked, WatchEvents::IGNORED]
            .into_iter()
            .filter(|events| !events.is_empty())
            .for_each(|events| self.send(events, 0, Vec::new()));
        lock(&self.queue.state).ended.push(self.id);
    }

    /// Queues an event.
    pub(crate) fn send(&self, events: WatchEvents, cookie: u32, path: Vec<u8>) {
        self.queue.push(WatchEvent { watch: Some(self.id), events, cookie, path });
    }
}

/// The events that a watcher has not received yet.
pub(crate) struct Queue {
    /// A leaf of the lock tree.
    state: Mutex<QueueState>,
    filled: Condvar,
    capacity: usize,
}

#[derive(Default)]
struct QueueState {
    events: VecDeque<WatchEvent>,
    /// The last event is Q_OVERFLOW.
    has_overflowed: bool,
    /// The watches that have ended since the watcher has asked.
    ended: Vec<WatchId>,
}

impl QueueState {
    /// Says that events are lost, from now on until all before were received.
    fn overflow(&mut self) {
        if !std::mem::replace(&mut self.has_overflowed, true) {
            let lost = WatchEvent { watch: None, events: WatchEvents::Q_OVERFLOW, cookie: 0, path: Vec::new() };
            self.events.push_back(lost);
        }
    }
}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { state: Mutex::default(), filled: Condvar::new(), capacity }
    }

    /// Adds an event, unless the last one is the same. Never waits for a reader.
    fn push(&self, event: WatchEvent) {
        let state = &mut *lock(&self.state);
        if state.has_overflowed || state.events.back() == Some(&event) {
            return;
        }
        if state.events.len() >= self.capacity {
            state.overflow();
        } else {
            state.events.push_back(event);
        }
        self.filled.notify_one();
    }

    /// An event is lost.
    fn lose_event(&self) {
        lock(&self.state).overflow();
        self.filled.notify_one();
    }

    /// The next event. Waits for one, this long at most.
    pub(crate) fn pop(&self, timeout: Duration) -> Option<WatchEvent> {
        let is_empty = |state: &mut QueueState| state.events.is_empty();
        let mut state = lock(&self.state);
        if is_empty(&mut state) && !timeout.is_zero() {
            state = self.filled.wait_timeout_while(state, timeout, is_empty).unwrap_or_else(PoisonError::into_inner).0;
        }
        let event = state.events.pop_front()?;
        state.has_overflowed &= !state.events.is_empty();
        Some(event)
    }

    /// The watches that have ended since the last call.
    pub(crate) fn take_ended(&self) -> Vec<WatchId> {
        std::mem::take(&mut lock(&self.state).ended)
    }
}
