//! The other way in: what a test sees of the store, and changes in it behind the name space's back.

use std::{collections::BTreeMap, sync::Arc};

use pando_vfs::{Error, FileKind, NodeAttr, RenameFlags, Result, Timestamp};

use crate::{
    Call, Delay, Fault, Parked,
    driver::Shared,
    store::{ROOT, Store},
};

/// A handle to the store of a [`crate::MapFs`]. Cheap to clone.
///
/// What is changed through it raises the change counts of the directories concerned, as a store does that others change
/// too. Delays and faults do not touch it, and its calls are not counted.
#[derive(Clone)]
pub struct MapHandle(pub(crate) Arc<Shared>);

impl std::fmt::Debug for MapHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MapHandle").field("inodes", &self.inodes()).finish_non_exhaustive()
    }
}

/// An inode as it is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapNode {
    /// Its attributes; of a directory that was removed, no links.
    pub attr: NodeAttr,
    /// A file's bytes.
    pub bytes: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Box<[u8]>, Box<[u8]>>,
    /// A directory's names.
    pub names: BTreeMap<Box<[u8]>, u64>,
}

impl MapHandle {
    /// The root directory's number.
    pub const ROOT: u64 = ROOT;

    /// How many calls of a kind there were.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.0.trouble.calls(call)
    }

    /// How many calls were made to fail.
    #[must_use]
    pub fn faults_struck(&self) -> u64 {
        self.0.trouble.struck()
    }

    /// Makes calls fail from now on, besides those that fail already.
    pub fn inject(&self, fault: Fault) {
        self.0.trouble.inject(fault);
    }

    /// Has the next call of a kind wait, before it changes anything, until what is returned is dropped.
    pub fn park(&self, call: Call) -> Parked {
        self.0.trouble.park(call)
    }

    /// Has the next look-up, creation or removal wait with its answer until what is returned is dropped.
    pub fn park_answer(&self, call: Call) -> Parked {
        self.0.trouble.park_answer(call)
    }

    /// No more calls fail.
    pub fn clear_faults(&self) {
        self.0.trouble.clear();
    }

    /// Other delays from now on.
    pub fn set_delays(&self, delays: Vec<Delay>) {
        self.0.trouble.set_delays(delays);
    }

    /// Inodes in the store, with a name or without.
    #[must_use]
    pub fn inodes(&self) -> u64 {
        self.0.store().len()
    }

    /// Inodes that name spaces have in their caches.
    #[must_use]
    pub fn cached_inodes(&self) -> u64 {
        self.0.cached()
    }

    /// Numbers of inodes that nobody has forgotten although they have no name.
    #[must_use]
    pub fn nameless(&self) -> Vec<u64> {
        let store = self.0.store();
        store.numbers().filter(|ino| store.node(*ino).is_ok_and(|node| !node.is_named())).collect()
    }

    /// An inode. All of a file's bytes are copied, those of its holes too.
    ///
    /// # Errors
    /// ESTALE if there is none of this number.
    ///
    /// # Panics
    /// If a file is larger than memory.
    pub fn node(&self, ino: u64) -> Result<MapNode> {
        let store = self.0.store();
        let node = store.node(ino)?;
        Ok(MapNode {
            attr: store.attr(ino)?,
            bytes: node.bytes.to_vec(),
            xattrs: node.xattrs.clone(),
            names: node.names.after(0).map(|(_, name, ino)| (name.into(), ino)).collect(),
        })
    }

    /// The number of what a name is bound to; none: nothing.
    ///
    /// # Errors
    /// ENOENT and ENOTDIR.
    pub fn lookup(&self, dir: u64, name: impl AsRef<[u8]>) -> Result<Option<u64>> {
        self.0.store().lookup(dir, name.as_ref())
    }

    /// Makes an inode and a name for it, owned by 0, and returns its number.
    ///
    /// # Errors
    /// EEXIST, ENOENT, ENOTDIR, ENOSPC.
    pub fn create(&self, dir: u64, name: impl AsRef<[u8]>, kind: FileKind, mode: u32) -> Result<u64> {
        let attr = NodeAttr::new(0, kind, mode, Timestamp::now());
        self.underneath(&[dir], |store| store.create(dir, name.as_ref(), &attr))
    }

    /// Makes a further name for a file.
    ///
    /// # Errors
    /// EEXIST, ENOENT, ENOTDIR, EPERM.
    pub fn link(&self, ino: u64, dir: u64, name: impl AsRef<[u8]>) -> Result<()> {
        self.underneath(&[dir, ino], |store| store.link(ino, dir, name.as_ref()))
    }

    /// Makes a further name for a directory, which only a damaged store has.
    ///
    /// # Errors
    /// EEXIST, ENOENT, ENOTDIR.
    pub fn link_directory(&self, ino: u64, dir: u64, name: impl AsRef<[u8]>) -> Result<()> {
        self.underneath(&[dir, ino], |store| store.link_directory(ino, dir, name.as_ref()))
    }

    /// Takes a name away. An inode without names stays until it is forgotten.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENOTEMPTY.
    pub fn remove(&self, dir: u64, name: impl AsRef<[u8]>) -> Result<()> {
        let ino = self.lookup(dir, &name)?.ok_or(Error::NoEntry)?;
        self.underneath(&[dir, ino], |store| store.remove(dir, name.as_ref()).map(drop))
    }

    /// Moves a name, over what is there, or (EXCHANGE) exchanges two.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EISDIR, ENOTEMPTY, EINVAL; EEXIST (NOREPLACE).
    pub fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Result<()> {
        let concerned: Vec<u64> =
            [self.lookup(from.0, from.1)?, self.lookup(to.0, to.1)?].into_iter().flatten().collect();
        self.underneath(&[&[from.0, to.0][..], &concerned].concat(), |store| store.rename(from, to, flags))
    }

    /// Changes the permission bits.
    ///
    /// # Errors
    /// ESTALE if there is no such inode.
    pub fn chmod(&self, ino: u64, mode: u32) -> Result<()> {
        self.underneath(&[ino], |store| {
            let attr = &mut store.node_mut(ino)?.attr;
            attr.mode = mode & 0o7777;
            attr.ctime = Timestamp::now();
            Ok(())
        })
    }

    /// Sets an extended attribute, or removes it.
    ///
    /// # Errors
    /// ESTALE if there is no such inode.
    pub fn set_xattr(&self, ino: u64, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.underneath(&[ino], |store| {
            let node = store.node_mut(ino)?;
            match value {
                Some(value) => drop(node.xattrs.insert(name.into(), value.into())),
                None => drop(node.xattrs.remove(name)),
            }
            node.attr.ctime = Timestamp::now();
            Ok(())
        })
    }

    /// Replaces a file's bytes.
    ///
    /// # Errors
    /// ESTALE if there is no such inode.
    pub fn write(&self, ino: u64, bytes: &[u8]) -> Result<()> {
        self.underneath(&[ino], |store| {
            let node = store.node_mut(ino)?;
            node.bytes.replace(bytes);
            node.attr.mtime = Timestamp::now();
            node.attr.ctime = node.attr.mtime;
            Ok(())
        })
    }

    /// A change that concerns inodes: it is noticed in them (if they are directories), and in the directories that lead
    /// to them before the change or after it.
    fn underneath<T>(&self, concerned: &[u64], change: impl FnOnce(&mut Store) -> Result<T>) -> Result<T> {
        let mut store = self.0.store();
        let around = |store: &Store| -> Vec<u64> { concerned.iter().flat_map(|ino| store.parents(*ino)).collect() };
        let before = around(&store);
        let result = change(&mut store)?;
        for dir in [&before[..], &around(&store), concerned].concat() {
            self.0.changed_underneath(dir);
        }
        Ok(result)
    }
}
