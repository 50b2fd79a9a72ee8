//! The tables of a superblock. What is done with them is on the floor of the caches.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
};

use pando_sync::Counted;

use crate::objects::{by_number::ByNumber, dentry::Dentry};

/// The inodes of a tree with a backing that are in its cache.
pub(crate) struct InodeCache {
    /// With whether the entry is leaving.
    pub table: ByNumber<AtomicBool>,
    /// Where the search for idle inodes goes on.
    pub hand: AtomicU64,
    /// How many were evicted: whoever knew attributes before one of them may know old ones.
    pub evictions: AtomicU64,
}

/// The inodes whose numbers are known outside, with how often each was handed out. Zero is dead: the entry is about to
/// leave the table.
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

/// The further links that are in the cache of a tree with a backing. Nobody else would find them.
#[derive(Default)]
pub(crate) struct CachedLinks {
    pub next: AtomicU64,
    pub table: Mutex<LinkTable>,
}

#[derive(Default)]
pub(crate) struct LinkTable {
    pub links: BTreeMap<u64, Counted<Dentry>>,
    /// Where the search for idle links goes on.
    pub hand: u64,
}
