//! The second way into the store: tests read it and change it, bypassing the namespace.

use std::{collections::BTreeMap, sync::Arc};

use pando_vfs::{Error, FileKind, NodeAttr, RenameFlags, Result, Timestamp};

use crate::{
    Call, Delay, Fault, Parked,
    driver::Shared,
    store::{ROOT, Store},
};

/// A handle to the store of a [`crate::MapFs`]. Cheap to clone.
///
/// A change made through it is reported to the trees on the store, as in a store that other
/// machines change too. Delays and faults do not apply to it, and its calls are not counted.
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
    /// Its attributes. A removed directory has no links.
    pub attr: NodeAttr,
    /// The bytes of a file.
    pub bytes: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Box<[u8]>, Box<[u8]>>,
    /// The names in a directory.
    pub names: BTreeMap<Box<[u8]>, u64>,
}

impl MapHandle {
    /// The inode number of the root directory.
    pub const ROOT: u64 = ROOT;

    /// The number of calls of a kind so far.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.0.injector.calls(call)
    }

    /// The number of entries that scans have returned so far.
    #[must_use]
    pub fn scanned(&self) -> u64 {
        self.0.injector.scanned()
    }

    /// The number of calls that wait at the moment, because they are delayed or parked.
    #[must_use]
    pub fn calls_waiting(&self) -> u64 {
        self.0.injector.waiting()
    }

    /// The number of calls that an injected fault has failed.
    #[must_use]
    pub fn calls_failed(&self) -> u64 {
        self.0.injector.failed()
    }

    /// Injects a further fault.
    pub fn inject(&self, fault: Fault) {
        self.0.injector.inject(fault);
    }

    /// Makes the next call of a kind wait, before it changes anything, until the returned value is
    /// dropped.
    pub fn park(&self, call: Call) -> Parked {
        self.0.injector.park(call)
    }

    /// Makes the next look-up, scan or change wait with its reply until the returned value is
    /// dropped.
    pub fn park_reply(&self, call: Call) -> Parked {
        self.0.injector.park_reply(call)
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.0.injector.clear();
    }

    /// Replaces the delays.
    pub fn set_delays(&self, delays: Vec<Delay>) {
        self.0.injector.set_delays(delays);
    }

    /// The number of inodes in the store, with and without names.
    #[must_use]
    pub fn inodes(&self) -> u64 {
        self.0.store().len()
    }

    /// The number of inodes in the caches of namespaces.
    #[must_use]
    pub fn cached_inodes(&self) -> u64 {
        self.0.cached()
    }

    /// The numbers of inodes without a name that have not been forgotten yet.
    #[must_use]
    pub fn unnamed_inodes(&self) -> Vec<u64> {
        let store = self.0.store();
        store.numbers().filter(|ino| store.node(*ino).is_ok_and(|node| !node.is_named())).collect()
    }

    /// An inode. All bytes of a file are copied, holes included.
    ///
    /// # Errors
    /// ESTALE if there is no inode of this number.
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

    /// The inode number that a name is bound to, or `None`.
    ///
    /// # Errors
    /// ENOENT and ENOTDIR.
    pub fn lookup(&self, dir: u64, name: impl AsRef<[u8]>) -> Result<Option<u64>> {
        self.0.store().lookup(dir, name.as_ref())
    }

    /// Makes an inode and a name for it, owned by 0. Returns its number.
    ///
    /// # Errors
    /// EEXIST, ENOENT, ENOTDIR, ENOSPC.
    pub fn create(&self, dir: u64, name: impl AsRef<[u8]>, kind: FileKind, mode: u32) -> Result<u64> {
        let attr = NodeAttr::new(0, kind, mode, Timestamp::now());
        self.change_in_store(&[(dir, name.as_ref())], &[], |store| store.create(dir, name.as_ref(), &attr))
    }

    /// Makes a hard link to a file.
    ///
    /// # Errors
    /// EEXIST, ENOENT, ENOTDIR, EPERM.
    pub fn link(&self, ino: u64, dir: u64, name: impl AsRef<[u8]>) -> Result<()> {
        self.change_in_store(&[(dir, name.as_ref())], &[ino], |store| store.link(ino, dir, name.as_ref()))
    }

    /// Makes a second name of a directory. Only a damaged store has one.
    ///
    /// # Errors
    /// EEXIST, ENOENT, ENOTDIR.
    pub fn link_directory(&self, ino: u64, dir: u64, name: impl AsRef<[u8]>) -> Result<()> {
        self.change_in_store(&[(dir, name.as_ref())], &[ino], |store| store.link_directory(ino, dir, name.as_ref()))
    }

    /// Removes a name. An inode without names stays until it is forgotten.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENOTEMPTY.
    pub fn remove(&self, dir: u64, name: impl AsRef<[u8]>) -> Result<()> {
        let ino = self.lookup(dir, &name)?.ok_or(Error::NoEntry)?;
        self.change_in_store(&[(dir, name.as_ref())], &[ino], |store| store.remove(dir, name.as_ref()).map(drop))
    }

    /// Renames: replaces an existing name, or exchanges two (EXCHANGE).
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EISDIR, ENOTEMPTY, EINVAL (also for WHITEOUT); EEXIST (NOREPLACE).
    pub fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Result<()> {
        if flags.contains(RenameFlags::WHITEOUT) {
            return Err(Error::Invalid);
        }
        let inodes: Vec<u64> = [self.lookup(from.0, from.1)?, self.lookup(to.0, to.1)?].into_iter().flatten().collect();
        self.change_in_store(&[from, to], &inodes, |store| store.rename(from, to, flags, None))
    }

    /// Changes the permission bits.
    ///
    /// # Errors
    /// ESTALE if there is no such inode.
    pub fn chmod(&self, ino: u64, mode: u32) -> Result<()> {
        self.change_in_store(&[], &[ino], |store| {
            let attr = &mut store.node_mut(ino)?.attr;
            attr.mode = mode & 0o7777;
            attr.ctime = Timestamp::now();
            Ok(())
        })
    }

    /// Sets an extended attribute, or removes it. The time of change stays: the clock of a file
    /// system may have the same time at the next change.
    ///
    /// # Errors
    /// ESTALE if there is no such inode.
    pub fn set_xattr(&self, ino: u64, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.change_in_store(&[], &[ino], |store| {
            let node = store.node_mut(ino)?;
            match value {
                Some(value) => drop(node.xattrs.insert(name.into(), value.into())),
                None => drop(node.xattrs.remove(name)),
            }
            Ok(())
        })
    }

    /// Replaces a file's bytes.
    ///
    /// # Errors
    /// ESTALE if there is no such inode.
    pub fn write(&self, ino: u64, bytes: &[u8]) -> Result<()> {
        self.change_in_store(&[], &[ino], |store| {
            let node = store.node_mut(ino)?;
            node.bytes.replace(bytes);
            node.attr.mtime = Timestamp::now();
            node.attr.ctime = node.attr.mtime;
            Ok(())
        })
    }

    /// Reports names and inodes as changed by others, whether they are or not.
    pub fn report(&self, names: &[(u64, &[u8])], inodes: &[u64]) {
        let _store = self.0.store();
        self.0.report_exactly(names, inodes);
    }

    /// Makes a change of names and inodes. It is reported for these. Or it is reported for the
    /// directories among them, and for those that contain one of them before or after the change.
    fn change_in_store<T>(
        &self,
        names: &[(u64, &[u8])],
        inodes: &[u64],
        change: impl FnOnce(&mut Store) -> Result<T>,
    ) -> Result<T> {
        let mut store = self.0.store();
        if self.0.exact_reports {
            let result = change(&mut store)?;
            self.0.report_exactly(names, inodes);
            return Ok(result);
        }
        let concerned: Vec<u64> = names.iter().map(|(dir, _)| *dir).chain(inodes.iter().copied()).collect();
        let around = |store: &Store| -> Vec<u64> { concerned.iter().flat_map(|ino| store.parents(*ino)).collect() };
        let before = around(&store);
        let result = change(&mut store)?;
        for dir in [&before[..], &around(&store), &concerned].concat() {
            self.0.report(dir);
        }
        Ok(result)
    }
}
