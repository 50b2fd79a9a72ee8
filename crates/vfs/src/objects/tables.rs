//! The tables of a superblock. Their operations are on the floor of the caches.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
};

use pando_sync::Counted;

use crate::objects::{by_number::ByNumber, dentry::Dentry};

/// The inode cache of a tree with a backing.
pub(crate) struct InodeCache {
    /// The entries. The note says whether an entry is leaving the table.
    pub table: ByNumber<AtomicBool>,
    /// The position at which the next search for idle inodes begins (a clock hand).
    pub hand: AtomicU64,
    /// The number of evictions. Attributes that were read before one of them may be stale.
    /// Monotonic.
    pub evictions: AtomicU64,
}

/// The inodes whose numbers were handed out to a server. The note counts how often each was. A
/// count of `u64::MAX` means that the entry is about to leave the table; zero means that only the
/// tree's own name keeps it.
pub(crate) struct Nodes {
    pub table: ByNumber<AtomicU64>,
}

impl InodeCache {
    pub(crate) fn new(key: (u64, u64)) -> Self {
        Self { table: ByNumber::new(key), hand: AtomicU64::new(0), evictions: AtomicU64::new(0) }
    }
}

impl Nodes {
    pub(crate) fn new(key: (u64, u64)) -> Self {
        Self { table: ByNumber::new(key) }
    }
}

/// The cached aliases of a tree with a backing. Eviction finds them here, because no other table
/// has them.
#[derive(Default)]
pub(crate) struct CachedLinks {
    /// The last number that was given to an alias. Atomic: a single independent value.
    pub next: AtomicU64,
    /// A leaf of the lock tree. An alias is added and removed under its name lock, too.
    pub table: Mutex<LinkTable>,
}

#[derive(Default)]
pub(crate) struct LinkTable {
    /// The aliases by number. The table holds a reference to each.
    pub links: BTreeMap<u64, Counted<Dentry>>,
    /// The number after which the next search for idle aliases begins (a clock hand).
    pub hand: u64,
}
