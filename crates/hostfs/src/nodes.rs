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
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use pando_sync::{Detached, Guard, HashTable, lock, pin};
use pando_vfs::FileKind;

use crate::sys::Handle;

/// The first number that no inode of the host has.
const FIRST_OWN: u64 = 1 << 63;
/// With fewer forgotten directories, it does not pay to look for those that nothing refers to.
const DEPARTED_LEAST: usize = 64;
/// Longer than a tick of any file system's clock. FAT counts in 2 seconds.
pub(crate) const SETTLES: Duration = Duration::from_secs(3);

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

/// All inodes that the tree uses: an inode cache by two keys. A look-up takes no lock.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// By the number in the tree.
    by_number: HashTable<Arc<Node>>,
    /// By what the host says. An inode is put here last, and removed first.
    by_identity: HashTable<Arc<Node>>,
    /// The secret key of the hashes.
    hasher: RandomState,
    /// How many numbers of our own were given. Atomic: a single independent value.
    own_given: AtomicU64,
    /// Atomic: a single independent value.
    next_serial: AtomicU64,
    /// None if inodes are opened by their handles: then nothing needs a place.
    departed: Option<Mutex<Departed>>,
}

/// Directories that the tree has forgotten, some of which it has found again. The places of inodes
/// below may still refer to them. If the tree finds such a directory again, it must be the same
/// object: a rename changes the place in it, and so the paths of the inodes below.
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

    fn get(&self, identity: &Identity) -> Option<Arc<HostInode>> {
        self.inodes.get(identity)?.upgrade()
    }
}

impl Nodes {
    /// `by_handle`: inodes are opened by their handles.
    pub(crate) fn new(by_handle: bool) -> Self {
        Self {
            by_number: HashTable::new(),
            by_identity: HashTable::new(),
            hasher: RandomState::new(),
            own_given: AtomicU64::new(0),
            next_serial: AtomicU64::new(0),
            departed: (!by_handle).then(Mutex::default),
        }
    }

    /// The inode with this number in the tree. Analogous to `ilookup()`.
    pub(crate) fn ilookup(&self, number: u64) -> Option<Arc<Node>> {
        let guard = pin();
        let found = self.by_number.get(self.hasher.hash_one(number), |node| node.number == number, &guard)?;
        Some((**found.to_ref()).clone())
    }

    /// The inode with this identity. Analogous to `ilookup5()`.
    fn ilookup5(&self, identity: &Identity) -> Option<Arc<Node>> {
        let guard = pin();
        let found = self.by_identity.get(self.hash_of(identity), |node| node.identity == *identity, &guard)?;
        Some((**found.to_ref()).clone())
    }

    /// The number of the inode with this handle, if the tree uses it.
    pub(crate) fn number_of(&self, handle: &Handle) -> Option<u64> {
        let guard = pin();
        let is_it = |node: &Arc<Node>| matches!(&node.identity.version, Version::Handle(other) if other == handle);
        Some(self.by_identity.get(self.hasher.hash_one(handle), is_it, &guard)?.to_ref().number)
    }

    fn hash_of(&self, identity: &Identity) -> u64 {
        match &identity.version {
            Version::Handle(handle) => self.hasher.hash_one(handle),
            Version::Born(_) => self.hasher.hash_one(identity),
        }
    }

    /// The inode with this identity. If it is new, it gets a number. Analogous to `iget5_locked()`.
    pub(crate) fn iget5(&self, identity: &Identity, kind: FileKind, born: i64) -> Arc<Node> {
        loop {
            if let Some(node) = self.ilookup5(identity) {
                node.found_again();
                return node;
            }
            if let Some(node) = self.insert_new(identity, kind, born) {
                return node;
            }
            // Another thread is inserting this inode, or removing it, and may need the CPU.
            thread::yield_now();
        }
    }

    /// Gives an inode a number and inserts it. None if another thread is doing the same, or has
    /// done it.
    fn insert_new(&self, identity: &Identity, kind: FileKind, born: i64) -> Option<Arc<Node>> {
        // Held until the inode is inserted: otherwise another thread could insert and remove it
        // meanwhile, and there would be two objects.
        let departed = self.departed.as_ref().filter(|_| kind == FileKind::Directory).map(lock);
        let inode = departed.as_ref().and_then(|departed| departed.get(identity)).unwrap_or_else(|| {
            Arc::new(HostInode {
                serial: self.next_serial.fetch_add(1, Ordering::Relaxed),
                identity: identity.clone(),
                kind,
                born,
                found: Instant::now(),
                is_settled: AtomicBool::new(false),
                place: Mutex::default(),
                pinned: Mutex::default(),
            })
        });
        let guard = pin();
        // First the number, so that no thread finds an inode that has none.
        let mut number = if identity.ino < FIRST_OWN { identity.ino } else { self.next_own() };
        let node = loop {
            let node = Arc::new(Node { number, inode: inode.clone() });
            let new = Detached::new(node.clone());
            let hash = self.hasher.hash_one(number);
            match self.by_number.insert(hash, |other| other.number == number, new, &guard) {
                Ok(_) => break node,
                // It may not be in the other table yet, or not any more.
                Err((other, _)) if other.to_ref().identity == *identity => return None,
                Err(_) => number = self.next_own(),
            }
        };
        let new = Detached::new(node.clone());
        match self.by_identity.insert(self.hash_of(identity), |other| other.identity == *identity, new, &guard) {
            Ok(_) => Some(node),
            Err(_) => {
                self.remove_number(&node, &guard);
                None
            }
        }
    }

    fn next_own(&self) -> u64 {
        FIRST_OWN + self.own_given.fetch_add(1, Ordering::Relaxed)
    }

    /// Removes an inode from the table of numbers. False if another thread has.
    fn remove_number(&self, node: &Arc<Node>, guard: &Guard) -> bool {
        let found = self.by_number.get(self.hasher.hash_one(node.number), |other| Arc::ptr_eq(other, node), guard);
        found.is_some_and(|found| self.by_number.remove(found, guard))
    }

    /// The tree does not use an inode any more. Returns the inode. If the caller closes its last
    /// descriptor, and it has no names, the host frees it.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<Node>> {
        let node = self.ilookup(number)?;
        // Closed at the end. The tables put their references to the inode later.
        let _pinned = node.pinned().take();
        if node.kind == FileKind::Directory
            && node.place().is_some()
            && let Some(departed) = &self.departed
        {
            // Before the inode is removed: a thread that finds it again from then on takes this
            // object.
            lock(departed).add(&node.inode);
        }
        let guard = pin();
        let hash = self.hash_of(&node.identity);
        let found = self.by_identity.get(hash, |other| Arc::ptr_eq(other, &node), &guard)?;
        if !self.by_identity.remove(found, &guard) {
            return None;
        }
        self.remove_number(&node, &guard);
        Some(node)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_identity.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(dev: u64, ino: u64, born: i64) -> Identity {
        Identity { dev, ino, version: Version::Born(born) }
    }

    fn number(nodes: &Nodes, identity: Identity) -> u64 {
        nodes.iget5(&identity, FileKind::File, 1).number
    }

    #[test]
    fn a_time_of_creation_identifies_an_inode_that_is_known_for_long() {
        let nodes = Nodes::new(false);
        let node = nodes.iget5(&identity(1, 7, 0), FileKind::File, 5);
        nodes.iget5(&identity(1, 7, 0), FileKind::File, 5);
        assert!(!node.is_born(5), "another may be created in this tick");
        thread::sleep(SETTLES);
        assert!(!node.is_born(5), "it may have been removed since");
        nodes.iget5(&identity(1, 7, 0), FileKind::File, 5);
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
        assert!(nodes.ilookup(recreated).is_none());
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
        assert_eq!(nodes.ilookup(large).unwrap().identity.ino, u64::MAX);
    }

    /// Threads find, make and remove the same few inodes. While nobody removes an inode, its number
    /// is its own. A directory that something refers to is always the same object.
    #[test]
    fn one_inode_has_one_number_at_a_time() {
        const INODES: usize = 4;
        for kind in [FileKind::File, FileKind::Directory] {
            // Two inodes share each number of the host.
            let identity = |of: usize| identity(of as u64 % 2, 7 + of as u64 / 2, 0);
            let nodes = Nodes::new(kind == FileKind::File);
            let parent = nodes.iget5(&super::tests::identity(9, 9, 0), FileKind::Directory, 1);
            let known: [_; INODES] = std::array::from_fn(|of| nodes.iget5(&identity(of), kind, 1).inode.clone());
            known.iter().for_each(|inode| *inode.place() = Some((parent.inode.clone(), b"name"[..].into())));
            let removing: [Mutex<()>; INODES] = Default::default();
            thread::scope(|scope| {
                for seed in 0..4 {
                    let (nodes, removing, known) = (&nodes, &removing, &known);
                    scope.spawn(move || {
                        for step in 0..30_000 {
                            let of = (step + seed * step / 3) % INODES;
                            let node = nodes.iget5(&identity(of), kind, 1);
                            assert_eq!(node.identity, identity(of));
                            if kind == FileKind::Directory {
                                assert!(Arc::ptr_eq(&node.inode, &known[of]));
                            }
                            // As the tree does, one thread at a time.
                            if step % 7 == seed
                                && let Ok(_removing) = removing[of].try_lock()
                            {
                                let again = nodes.iget5(&identity(of), kind, 1);
                                assert!(Arc::ptr_eq(&nodes.ilookup(again.number).unwrap(), &again));
                                assert!(Arc::ptr_eq(&nodes.remove(again.number).unwrap(), &again));
                            }
                        }
                    });
                }
            });
            for of in 0..INODES {
                nodes.remove(nodes.iget5(&identity(of), kind, 1).number);
            }
            nodes.remove(parent.number);
            assert_eq!((nodes.len(), nodes.by_number.len()), (0, 0));
        }
    }
}
