//! The tables of a superblock. Their operations are on the floor of the caches.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
};

use pando_sync::{Counted, Departures};

use crate::objects::{by_number::ByNumber, dentry::Dentry};

/// The inode cache of a tree with a backing.
pub(crate) struct InodeCache {
    /// The entries. The note says whether an entry is leaving the table.
    pub table: ByNumber<AtomicBool>,
    /// The position at which the next search for idle inodes begins (a clock hand).
    pub hand: AtomicU64,
    /// The inodes that were evicted, and those that the backing was told to forget. An answer that
    /// was requested before may be older than what was cached, or the backing may not know the
    /// number any more.
    pub departures: Departures,
}

/// The inodes whose numbers were handed out to a server. The note counts how often each was. A
/// count of `u64::MAX` means that the entry is about to leave the table; zero means that only the
/// tree's own name keeps it.
pub(crate) struct Nodes {
    pub table: ByNumber<AtomicU64>,
}

impl InodeCache {
    pub(crate) fn new(key: (u64, u64)) -> Self {
        Self { table: ByNumber::new(key), hand: AtomicU64::new(0), departures: Departures::new() }
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
