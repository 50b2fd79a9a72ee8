//! The upper limit: only the keys, in a concurrent map.
//!
//! There are no directories, inodes, attributes or permissions. A whole path is one key, and one
//! look-up stands for four. Keys are copied into the map, as a file system copies names. Both maps
//! use the standard library's SipHash.

use std::{collections::hash_map::RandomState, io};

use super::{Actor, Session, Target};
use crate::base::{failure::Failure, path::TreePath};

type Key = Box<[u8]>;

fn key(path: &TreePath) -> Key {
    path.relative().as_bytes().into()
}

fn found(found: bool) -> io::Result<()> {
    if found { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

fn inserted(inserted: bool) -> io::Result<()> {
    if inserted { Ok(()) } else { Err(io::ErrorKind::AlreadyExists.into()) }
}

/// The crate `papaya`, a lock-free map.
pub(crate) struct PapayaTarget;

impl Target for PapayaTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(PapayaSession(papaya::HashMap::default())))
    }
}

struct PapayaSession(papaya::HashMap<Key, u64, RandomState>);

impl Session for PapayaSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(PapayaActor(&self.0)))
    }
}

struct PapayaActor<'a>(&'a papaya::HashMap<Key, u64, RandomState>);

impl Actor for PapayaActor<'_> {
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()> {
        self.create(path)
    }

    fn create(&mut self, path: &TreePath) -> io::Result<()> {
        inserted(self.0.pin().insert(key(path), 1).is_none())
    }

    fn unlink(&mut self, path: &TreePath) -> io::Result<()> {
        found(self.0.pin().remove(path.relative().as_bytes()).is_some())
    }

    fn stat(&mut self, path: &TreePath) -> io::Result<()> {
        found(std::hint::black_box(self.0.pin().get(path.relative().as_bytes())).is_some())
    }
}

/// The crate `scc`, a map with a lock per bucket.
pub(crate) struct SccTarget;

impl Target for SccTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(SccSession(scc::HashMap::default())))
    }
}

struct SccSession(scc::HashMap<Key, u64, RandomState>);

impl Session for SccSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(SccActor(&self.0)))
    }
}

struct SccActor<'a>(&'a scc::HashMap<Key, u64, RandomState>);

impl Actor for SccActor<'_> {
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()> {
        self.create(path)
    }

    fn create(&mut self, path: &TreePath) -> io::Result<()> {
        inserted(self.0.insert_sync(key(path), 1).is_ok())
    }

    fn unlink(&mut self, path: &TreePath) -> io::Result<()> {
        found(self.0.remove_sync(path.relative().as_bytes()).is_some())
    }

    fn stat(&mut self, path: &TreePath) -> io::Result<()> {
        let value = self.0.read_sync(path.relative().as_bytes(), |_, value| *value);
        found(std::hint::black_box(value).is_some())
    }
}
