//! The extended attributes of an inode. In memory the cached ones are all there are; with a backing
//! they are loaded at the first use.

use std::sync::{
    Arc,
    atomic::{Ordering, fence},
};

use pando_sync::{Counted, Guard, pin};

use crate::{
    Backing, Change, Error, Result, Xattr,
    caches::commit::commit,
    objects::{
        inode::Inode,
        superblock::SuperBlock,
        xattr_map::{CAPABILITIES, Xattrs, cost_of},
    },
    types::xattr_map::XattrMap,
};

fn stored(backing: &dyn Backing, ino: u64) -> Result<XattrMap> {
    backing.xattrs_one(ino).map(map_of)
}

fn bytes_of(map: &XattrMap) -> usize {
    map.iter().map(|(name, value)| name.len() + value.len()).sum()
}

fn map_of(xattrs: Vec<Xattr>) -> XattrMap {
    xattrs.into_iter().collect()
}

/// Loads the extended attributes of inodes that have none cached, in one call for each tree that
/// they are of. Returns the places of those that could not be loaded. The caller holds no guard.
pub(crate) fn load_many_xattrs<'i>(inodes: impl Iterator<Item = (usize, &'i Inode)>) -> Vec<(usize, Error)> {
    let mut failed = Vec::new();
    let mut left: Vec<(usize, &Inode)> = inodes.filter(|(_, inode)| inode.cached_xattrs(&pin()).is_none()).collect();
    while let Some(sb) = left.first().map(|(_, inode)| &inode.shard.sb) {
        sb.make_room(left.len());
        let (here, others): (Vec<_>, Vec<_>) = left.iter().partition(|(_, inode)| Arc::ptr_eq(&inode.shard.sb, sb));
        failed.extend(match sb.ask_backing() {
            Some(backing) => load_xattrs_of(sb, backing, &here),
            None => here.iter().map(|(place, _)| (*place, Error::NotSupported)).collect(),
        });
        left = others;
    }
    failed
}

/// As [`load_many_xattrs`], for inodes of one tree.
fn load_xattrs_of(sb: &SuperBlock, backing: &dyn Backing, inodes: &[(usize, &Inode)]) -> Vec<(usize, Error)> {
    let before = sb.refreshes.load(Ordering::SeqCst);
    let numbers: Vec<u64> = inodes.iter().map(|(_, inode)| inode.ino).collect();
    let mut answers: Vec<_> = numbers.iter().map(|_| Err(Error::Io)).collect();
    let result = backing.xattrs(&numbers, &mut |place, xattrs| {
        if let Some(answer) = answers.get_mut(place) {
            *answer = xattrs.map(map_of);
        }
    });
    if let Err(error) = result {
        return inodes.iter().map(|(place, _)| (*place, error)).collect();
    }
    let mut failed = Vec::new();
    let mut kept = Vec::new();
    for (&(place, inode), answer) in inodes.iter().zip(answers) {
        match answer {
            Ok(map) => {
                inode.keep_xattrs(map);
                kept.push((place, inode));
            }
            Err(error) => failed.push((place, error)),
        }
    }
    // Pairs with `refresh_xattrs`: either that refresh has found these, or it has been counted by
    // now.
    fence(Ordering::SeqCst);
    if sb.refreshes.load(Ordering::SeqCst) != before {
        failed.extend(kept.iter().filter_map(|(place, inode)| Some((*place, inode.reload_xattrs(backing).err()?))));
    }
    failed
}

impl Inode {
    /// The extended attributes, as far as no request is needed. The outer none: the backing must be
    /// asked ([`Inode::load_xattrs`]). The inner none: there are none.
    pub(crate) fn cached_xattrs<'g>(&self, guard: &'g Guard) -> Option<Option<&'g XattrMap>> {
        match self.xattrs.load(guard) {
            Some(xattrs) => Some(xattrs.to_ref().get(guard)),
            None => (!self.is_backed()).then_some(None),
        }
    }

    /// Changes the extended attributes of an inode in memory, without a lock. `change` may run more
    /// than once. The driver is charged for the new `value` of the attribute `name`, and the charge
    /// for the old one is released.
    pub(crate) fn change_xattrs(
        &self,
        (name, value): (&[u8], Option<&[u8]>),
        change: impl Fn(&mut XattrMap) -> Result<Option<usize>>,
        guard: &Guard,
    ) -> Result<()> {
        let driver = &self.shard.sb.driver;
        if value.is_some() && name == CAPABILITIES {
            self.set_capable();
        }
        let price = value.map(|value| cost_of(name, value.len()));
        // As on tmpfs, the new value is charged for first: before it is known whether the change is
        // possible, and while the old value is still charged for.
        price.map_or(Ok(()), |price| driver.charge(price))?;
        let changed = match self.xattrs.load(guard) {
            Some(xattrs) => xattrs.to_ref().exchange(change, guard),
            None => self.keep_xattrs(XattrMap::default()).exchange(change, guard),
        };
        match changed {
            Ok(None) => Ok(()),
            Ok(Some(old)) => {
                driver.release(cost_of(name, old));
                Ok(())
            }
            Err(error) => {
                price.into_iter().for_each(|price| driver.release(price));
                Err(error)
            }
        }
    }

    /// The extended attributes of an inode in a backing, for a change. The caller holds no guard.
    pub(crate) fn load_xattrs(&self, backing: &dyn Backing) -> Result<Counted<Xattrs>> {
        if let Some(cached) = self.held_xattrs() {
            return Ok(cached);
        }
        let _waiting = self.shard.sb.foreground.enter();
        self.request_xattrs(backing)
    }

    /// The extended attributes of an inode in a backing. The backing is asked. The caller holds no
    /// guard.
    pub(crate) fn request_xattrs(&self, backing: &dyn Backing) -> Result<Counted<Xattrs>> {
        match load_xattrs_of(&self.shard.sb, backing, &[(0, self)]).pop() {
            Some((_, error)) => Err(error),
            None => Ok(self.held_xattrs().expect("just loaded, and they stay while the inode does")),
        }
    }

    /// Stores the first map. If another thread has stored one, that is as good, because changes are
    /// made afterwards only.
    pub(crate) fn keep_xattrs(&self, map: XattrMap) -> Counted<Xattrs> {
        let bytes = if self.is_backed() { bytes_of(&map) } else { 0 };
        let xattrs = Xattrs::new(map);
        match self.xattrs.compare_exchange(None, Some(xattrs.clone())) {
            Ok(_) => {
                self.count_xattrs(&xattrs, bytes);
                xattrs
            }
            Err(_) => self.held_xattrs().expect("once there, they stay while the inode does"),
        }
    }

    fn held_xattrs(&self) -> Option<Counted<Xattrs>> {
        self.xattrs.load(&pin())?.get()
    }

    /// Changes the extended attributes of an inode in a backing, one change at a time. The caller
    /// holds no guard.
    pub(crate) fn change_stored_xattrs(
        &self,
        xattrs: &Xattrs,
        change: impl FnOnce(&mut XattrMap) -> Result<()>,
    ) -> Result<()> {
        xattrs.change(|map| {
            change(map)?;
            self.count_xattrs(xattrs, bytes_of(map));
            Ok(())
        })
    }

    /// Others may have changed the extended attributes: requests those that are cached again. The
    /// caller holds no guard.
    pub(crate) fn refresh_xattrs(&self) -> Result<()> {
        let sb = &self.shard.sb;
        sb.refreshes.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        sb.ask_backing().map_or(Ok(()), |backing| self.reload_xattrs(backing))
    }

    /// Runs under the lock of the attributes, which is also held while the backing acknowledges a
    /// change. So neither undoes the other.
    fn reload_xattrs(&self, backing: &dyn Backing) -> Result<()> {
        let Some(cached) = self.held_xattrs() else { return Ok(()) };
        self.change_stored_xattrs(&cached, |map| match stored(backing, self.ino) {
            Ok(stored) => {
                *map = stored;
                Ok(())
            }
            // The inode was removed. Threads that have it open keep the attributes that were
            // cached.
            Err(Error::NoEntry | Error::Stale) => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// Removes file capabilities before contents or owner change, also if root changes them: they
    /// were granted to the previous contents. The caller holds no guard, and only locks that
    /// precede the one of the extended attributes. Analogous to `cap_inode_killpriv()`.
    ///
    /// A backing is not asked for the attributes of a file without an execute bit, because that
    /// would be a call for each file that is written.
    pub(crate) fn drop_capabilities(&self) -> Result<()> {
        self.drop_capabilities_in_memory();
        if !self.is_backed() || !self.has_xattrs() && self.perm(&pin()).mode & 0o111 == 0 {
            return Ok(());
        }
        let Some(backing) = self.shard.sb.ask_backing() else { return Ok(()) };
        let xattrs = self.load_xattrs(backing)?;
        if xattrs.get(&pin()).is_none_or(|map| map.get(CAPABILITIES).is_none()) {
            return Ok(());
        }
        let store = |_| self.store_xattr(backing, CAPABILITIES, None);
        self.change_stored_xattrs(&xattrs, |map| match map.remove(CAPABILITIES).map(store) {
            // Others have removed it already.
            None | Some(Err(Error::NoData)) => Ok(()),
            Some(told) => told,
        })
    }

    /// Sets an extended attribute in the backing, or removes it. The caller holds the lock of the
    /// attributes.
    pub(crate) fn store_xattr(&self, backing: &dyn Backing, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        commit(&self.shard.sb, backing, &Change::SetXattr { ino: self.ino, name, value }).map(drop)
    }

    /// As [`Inode::drop_capabilities`], in memory only. No effect with a backing. The caller may
    /// hold locks.
    #[inline]
    pub(crate) fn drop_capabilities_in_memory(&self) {
        if self.was_capable() {
            self.remove_capabilities(&pin());
        }
    }

    #[cold]
    fn remove_capabilities(&self, guard: &Guard) {
        if self.cached_xattrs(guard).flatten().is_some_and(|map| map.get(CAPABILITIES).is_some()) {
            let remove = |map: &mut XattrMap| Ok(map.remove(CAPABILITIES));
            // Infallible: a removal is not charged for, and this change returns no error.
            let _ = self.change_xattrs((CAPABILITIES, None), remove, guard);
        }
    }
}
