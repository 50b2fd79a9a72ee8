//! The numbers of inodes, and what is known of each.
//!
//! An inode is identified by its device, its number on the host, and its file handle. So an inode
//! whose number the host has used again is another one. In the tree it usually has the number that
//! it has on the host. If another inode of the tree has that number, because it is on another
//! device or was removed while it was in use, it gets one from [`FIRST_OWN`] on.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    ops::Deref,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use pando_sync::lock;
use pando_vfs::FileKind;

use crate::sys::Handle;

/// The first number that no inode of the host has.
const FIRST_OWN: u64 = 1 << 63;
/// With fewer forgotten directories, it does not pay to look for those that nothing refers to.
const DEPARTED_LEAST: usize = 64;
/// Longer than a tick of any file system's clock. FAT counts in 2 seconds.
pub(crate) const SETTLES: Duration = Duration::from_secs(3);
/// Two inodes seldom share the lock of a part of the table.
const PARTS: usize = 256;

/// Distinguishes an inode from all others of the host, at all times.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub dev: u64,
    pub ino: u64,
    pub version: Version,
}

/// Distinguishes an inode from others that had its number before.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Version {
    Handle(Handle),
    /// The file system has no handles: the time of the creation, in nanoseconds.
    Born(i64),
}

/// The path to an inode: its directory, and the last name by which it was looked up there.
pub(crate) type Place = (Arc<HostInode>, Box<[u8]>);

/// An inode of the host that the tree uses.
#[derive(Debug)]
pub(crate) struct Node {
    /// The number in the tree.
    pub number: u64,
    pub inode: Arc<HostInode>,
}

impl Deref for Node {
    type Target = HostInode;
    fn deref(&self) -> &HostInode {
        &self.inode
    }
}

/// An inode of the host. It lives as long as a [`Node`], or the place of an inode below, refers to
/// it. So the rename of a directory changes the paths of all inodes below it.
#[derive(Debug)]
pub(crate) struct HostInode {
    /// A number that no other inode gets, also later. A thread may still work with an inode that
    /// the tree has forgotten, and its number may be that of another by then.
    pub serial: u64,
    pub identity: Identity,
    pub kind: FileKind,
    /// The time of the creation in nanoseconds; 0 if the file system has none.
    born: i64,
    /// When it was found first.
    found: Instant,
    /// Whether it was found again by its handle at least [`SETTLES`] later. A single independent
    /// value.
    is_settled: AtomicBool,
    /// None for the root, if the name there was removed, and if inodes are opened by their handles.
    place: Mutex<Option<Place>>,
    /// Open while the inode may have no name.
    pinned: Mutex<Option<Arc<OwnedFd>>>,
}

impl HostInode {
    /// Whether its number and its time of creation identify it. An inode that is created after this
    /// one was removed may have the same number. It would have the same time of creation, too, if
    /// both were created within one tick of the file system's clock. But this one was found again
    /// long after its creation, so the other was created later than that.
    pub(crate) fn is_settled(&self) -> bool {
        self.born != 0 && self.is_settled.load(Ordering::Relaxed)
    }

    /// Whether it is the inode that was created at this time and has its number.
    pub(crate) fn is_born(&self, born: i64) -> bool {
        born == self.born && self.is_settled()
    }

    /// It was found by its handle.
    fn found_again(&self) {
        if !self.is_settled.load(Ordering::Relaxed) && self.found.elapsed() >= SETTLES {
            self.is_settled.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn place(&self) -> MutexGuard<'_, Option<Place>> {
        lock(&self.place)
    }

    pub(crate) fn pinned(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        lock(&self.pinned)
    }
}

/// All inodes that the tree uses. The locks of parts come before that of the renumbered. Then come
/// that of the departed, and those of the handles.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// The inodes with the number that they have on the host.
    parts: Box<[Mutex<Part>]>,
    renumbered: Mutex<Renumbered>,
    /// How many are renumbered. Changed with the lock of the inode's part held.
    renumbered_len: AtomicUsize,
    /// Atomic: a single independent value.
    next_serial: AtomicU64,
    departed: Mutex<Departed>,
    /// The numbers by handle, if the host reports changes.
    by_handle: Option<Handles>,
}

/// Numbers of inodes by their handles.
#[derive(Debug)]
struct Handles {
    hasher: RandomState,
    parts: Box<[Mutex<HashMap<Handle, u64>>]>,
}

impl Handles {
    fn new() -> Self {
        Self { hasher: RandomState::new(), parts: (0..PARTS).map(|_| Mutex::default()).collect() }
    }

    fn part(&self, handle: &Handle) -> MutexGuard<'_, HashMap<Handle, u64>> {
        lock(&self.parts[self.hasher.hash_one(handle) as usize % PARTS])
    }
}

/// Directories that the tree has forgotten. The places of inodes below may still refer to them. If
/// the tree finds such a directory again, it must be the same object: a rename changes the place in
/// it, and so the paths of the inodes below.
#[derive(Debug, Default)]
struct Departed {
    inodes: HashMap<Identity, Weak<HostInode>>,
    /// When there are so many, those that nothing refers to are removed.
    most: usize,
}

impl Departed {
    fn add(&mut self, inode: &Arc<HostInode>) {
        if self.inodes.len() >= self.most {
            self.inodes.retain(|_, inode| inode.strong_count() > 0);
            self.most = (2 * self.inodes.len()).max(DEPARTED_LEAST);
        }
        self.inodes.insert(inode.identity.clone(), Arc::downgrade(inode));
    }

    fn take(&mut self, identity: &Identity) -> Option<Arc<HostInode>> {
        self.inodes.remove(identity)?.upgrade()
    }
}

/// Inodes by number.
type Part = HashMap<u64, Arc<Node>>;

/// The inodes with a number of our own.
#[derive(Debug, Default)]
struct Renumbered {
    by_identity: HashMap<Identity, Arc<Node>>,
    by_number: Part,
    /// How many numbers were given.
    given: u64,
}

impl Nodes {
    /// `watched`: inodes are to be found by their handles.
    pub(crate) fn new(watched: bool) -> Self {
        Self {
            by_handle: watched.then(Handles::new),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            renumbered: Mutex::default(),
            renumbered_len: AtomicUsize::new(0),
            next_serial: AtomicU64::new(0),
            departed: Mutex::default(),
        }
    }

    /// The part of the inodes that have this number on the host.
    fn part(&self, host: u64) -> MutexGuard<'_, Part> {
        lock(&self.parts[host as usize % PARTS])
    }

    fn renumbered(&self) -> MutexGuard<'_, Renumbered> {
        lock(&self.renumbered)
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Node>> {
        if number < FIRST_OWN {
            self.part(number).get(&number).cloned()
        } else {
            self.renumbered().by_number.get(&number).cloned()
        }
    }

    /// The number of the inode with this handle, if the tree uses it.
    pub(crate) fn number_of(&self, handle: &Handle) -> Option<u64> {
        self.by_handle.as_ref()?.part(handle).get(handle).copied()
    }

    /// The inode with this identity. If it is new, it gets a number.
    pub(crate) fn intern(&self, identity: Identity, kind: FileKind, born: i64) -> Arc<Node> {
        // Held until the number is chosen, so that an inode does not get two.
        let mut part = self.part(identity.ino);
        let host = part.get(&identity.ino);
        if let Some(node) = host.filter(|node| node.identity == identity) {
            node.found_again();
            return node.clone();
        }
        let is_free = host.is_none() && identity.ino < FIRST_OWN;
        let make = |number, identity: Identity| {
            if let (Some(handles), Version::Handle(handle)) = (&self.by_handle, &identity.version) {
                handles.part(handle).insert(handle.clone(), number);
            }
            let known = lock(&self.departed).take(&identity);
            let inode = known.unwrap_or_else(|| {
                Arc::new(HostInode {
                    serial: self.next_serial.fetch_add(1, Ordering::Relaxed),
                    identity,
                    kind,
                    born,
                    found: Instant::now(),
                    is_settled: AtomicBool::new(false),
                    place: Mutex::default(),
                    pinned: Mutex::default(),
                })
            });
            Arc::new(Node { number, inode })
        };
        if is_free && self.renumbered_len.load(Ordering::Relaxed) == 0 {
            return part.entry(identity.ino).insert_entry(make(identity.ino, identity)).get().clone();
        }
        let mut renumbered = self.renumbered();
        // An inode with a number of our own keeps it as long as it is in use.
        if let Some(node) = renumbered.by_identity.get(&identity) {
            return node.clone();
        }
        if is_free {
            return part.entry(identity.ino).insert_entry(make(identity.ino, identity)).get().clone();
        }
        let node = make(FIRST_OWN + renumbered.given, identity.clone());
        renumbered.given += 1;
        renumbered.by_number.insert(node.number, node.clone());
        renumbered.by_identity.insert(identity, node.clone());
        self.renumbered_len.fetch_add(1, Ordering::Relaxed);
        node
    }

    /// The tree does not use an inode any more. Returns the inode. If the caller drops its last
    /// descriptor, and it has no names, the host frees it.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<Node>> {
        let node = self.get(number)?;
        let mut part = self.part(node.identity.ino);
        if number < FIRST_OWN {
            part.remove(&number);
        } else {
            let mut renumbered = self.renumbered();
            if renumbered.by_number.remove(&number).is_some() {
                renumbered.by_identity.remove(&node.identity);
                self.renumbered_len.fetch_sub(1, Ordering::Relaxed);
            }
        }
        if let (Some(handles), Version::Handle(handle)) = (&self.by_handle, &node.identity.version) {
            handles.part(handle).remove(handle);
        }
        if node.kind == FileKind::Directory && node.place().is_some() {
            lock(&self.departed).add(&node.inode);
        }
        Some(node)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        let in_parts = |part: &Mutex<Part>| lock(part).len();
        self.parts.iter().map(in_parts).sum::<usize>() + self.renumbered_len.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn identity(dev: u64, ino: u64, born: i64) -> Identity {
        Identity { dev, ino, version: Version::Born(born) }
    }

    fn number(nodes: &Nodes, identity: Identity) -> u64 {
        nodes.intern(identity, FileKind::File, 1).number
    }

    #[test]
    fn a_time_of_creation_identifies_an_inode_that_is_known_for_long() {
        let nodes = Nodes::new(false);
        let node = nodes.intern(identity(1, 7, 0), FileKind::File, 5);
        nodes.intern(identity(1, 7, 0), FileKind::File, 5);
        assert!(!node.is_born(5), "another may be created in this tick");
        thread::sleep(SETTLES);
        assert!(!node.is_born(5), "it may have been removed since");
        nodes.intern(identity(1, 7, 0), FileKind::File, 5);
        assert!(node.is_born(5) && !node.is_born(6) && !node.is_born(0));
    }

    #[test]
    fn an_inode_has_the_number_of_the_host_unless_it_is_in_use() {
        let nodes = Nodes::new(false);
        assert_eq!(number(&nodes, identity(1, 7, 0)), 7);
        assert_eq!(number(&nodes, identity(1, 7, 0)), 7, "the same inode");
        let other_device = number(&nodes, identity(2, 7, 0));
        let recreated = number(&nodes, identity(1, 7, 1));
        assert_eq!((other_device, recreated), (FIRST_OWN, FIRST_OWN + 1));
        assert_eq!(nodes.len(), 3);
    }

    #[test]
    fn a_number_stays_as_long_as_the_inode_is_in_use() {
        let nodes = Nodes::new(false);
        number(&nodes, identity(1, 7, 0));
        let recreated = number(&nodes, identity(1, 7, 1));
        nodes.remove(7);
        assert_eq!(number(&nodes, identity(1, 7, 1)), recreated, "although 7 is free now");
        nodes.remove(recreated);
        assert!(nodes.get(recreated).is_none());
        assert_eq!(number(&nodes, identity(1, 7, 1)), 7);
        nodes.remove(7);
        nodes.remove(7);
        assert_eq!(nodes.len(), 0);
    }

    /// The host may have numbers as large as our own.
    #[test]
    fn large_numbers_of_the_host_are_replaced() {
        let nodes = Nodes::new(false);
        let large = number(&nodes, identity(1, u64::MAX, 0));
        assert_eq!(large, FIRST_OWN);
        assert_eq!(nodes.get(large).unwrap().identity.ino, u64::MAX);
    }
}
