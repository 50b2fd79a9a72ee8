//! The extended attributes of an inode: in memory all there are, of a backing those that were asked for.

use std::sync::{
    Arc,
    atomic::{Ordering, fence},
};

use pando_sync::{Counted, Guard, pin};

use crate::{
    Backing, Error, Result,
    objects::{
        inode::Inode,
        xattr_map::{CAPABILITIES, XattrMap, Xattrs, cost_of},
    },
};

fn stored(backing: &dyn Backing, ino: u64) -> Result<XattrMap> {
    Ok(backing.xattrs(ino)?.into_iter().map(|(name, value)| (Arc::from(name), Arc::from(value))).collect())
}

impl Inode {
    /// The extended attributes, as far as they can be had without asking: the outer none says that a backing has to be asked
    /// ([`Inode::load_xattrs`]), the inner one that there are none.
    pub(crate) fn cached_xattrs<'g>(&self, guard: &'g Guard) -> Option<Option<&'g XattrMap>> {
        match self.xattrs.load(guard) {
            Some(xattrs) => Some(xattrs.to_ref().get(guard)),
            None => (!self.is_backed()).then_some(None),
        }
    }

    /// Changes the extended attributes where no backing is to be told of it: no lock. `change` may run more than once.
    /// What the attribute `name` was and is to be is paid for by the driver.
    pub(crate) fn change_xattrs(
        &self,
        (name, value): (&[u8], Option<&[u8]>),
        change: impl Fn(&mut XattrMap) -> Result<Option<Arc<[u8]>>>,
        guard: &Guard,
    ) -> Result<()> {
        let driver = &self.shard.sb.driver;
        if value.is_some() && name == CAPABILITIES {
            self.set_capable();
        }
        let price = value.map(|value| cost_of(name, value));
        // As on tmpfs: before it is known whether the change can be made, and the old value is still there.
        price.map_or(Ok(()), |price| driver.charge(price))?;
        let changed = match self.xattrs.load(guard) {
            Some(xattrs) => xattrs.to_ref().exchange(change, guard),
            None => self.keep_xattrs(XattrMap::new()).exchange(change, guard),
        };
        match changed {
            Ok(None) => Ok(()),
            Ok(Some(old)) => {
                driver.release(cost_of(name, &old));
                Ok(())
            }
            Err(error) => {
                price.into_iter().for_each(|price| driver.release(price));
                Err(error)
            }
        }
    }

    /// The extended attributes of a backing, to be looked at or changed. No guard is held.
    pub(crate) fn load_xattrs(&self, backing: &dyn Backing) -> Result<Counted<Xattrs>> {
        if let Some(cached) = self.held_xattrs() {
            return Ok(cached);
        }
        let refreshes = &self.shard.sb.refreshes;
        let before = refreshes.load(Ordering::SeqCst);
        let kept = self.keep_xattrs(stored(backing, self.ino)?);
        // A refresh that did not find these yet has been counted: one of the two sees the other.
        fence(Ordering::SeqCst);
        if refreshes.load(Ordering::SeqCst) != before {
            self.reload_xattrs(backing)?;
        }
        Ok(kept)
    }

    /// Keeps these, unless somebody else was faster, which is as good: changes are made afterwards only.
    fn keep_xattrs(&self, map: XattrMap) -> Counted<Xattrs> {
        let xattrs = Xattrs::new(map);
        match self.xattrs.compare_exchange(None, Some(xattrs.clone())) {
            Ok(_) => xattrs,
            Err(_) => self.held_xattrs().expect("once there, they stay while the inode does"),
        }
    }

    fn held_xattrs(&self) -> Option<Counted<Xattrs>> {
        self.xattrs.load(&pin())?.get()
    }

    /// Somebody else may have changed the extended attributes: those that are cached are asked for again. No guard is held.
    pub(crate) fn refresh_xattrs(&self) -> Result<()> {
        let sb = &self.shard.sb;
        sb.refreshes.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        sb.ask_backing().map_or(Ok(()), |backing| self.reload_xattrs(backing))
    }

    /// With the attributes locked, as they are while the backing is told of a change: neither undoes the other.
    fn reload_xattrs(&self, backing: &dyn Backing) -> Result<()> {
        let Some(cached) = self.held_xattrs() else { return Ok(()) };
        cached.change(|map| match stored(backing, self.ino) {
            Ok(stored) => {
                *map = stored;
                Ok(())
            }
            // Gone: whoever has it open keeps what was known of it.
            Err(Error::NoEntry | Error::Stale) => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// Contents or owner change: capabilities were given to what was there before. They go, whoever changes it. No guard is
    /// held, and no lock but those that come before the extended attributes'.
    ///
    /// A backing is not asked for the attributes of what nobody executes: that would be a call for each file that is written.
    pub(crate) fn drop_capabilities(&self) -> Result<()> {
        self.drop_capabilities_in_memory();
        if !self.is_backed() || !self.has_xattrs() && self.perm(&pin()).mode & 0o111 == 0 {
            return Ok(());
        }
        let Some(backing) = self.shard.sb.ask_backing() else { return Ok(()) };
        let xattrs = self.load_xattrs(backing)?;
        if !xattrs.get(&pin()).is_some_and(|map| map.contains_key(CAPABILITIES)) {
            return Ok(());
        }
        xattrs.change(|map| match map.remove(CAPABILITIES).map(|_| backing.set_xattr(self.ino, CAPABILITIES, None)) {
            // Others were faster.
            None | Some(Err(Error::NoData)) => Ok(()),
            Some(told) => told,
        })
    }

    /// The same, unless a backing has them: there it does nothing. Locks may be held.
    #[inline]
    pub(crate) fn drop_capabilities_in_memory(&self) {
        if self.was_capable() {
            self.remove_capabilities(&pin());
        }
    }

    #[cold]
    fn remove_capabilities(&self, guard: &Guard) {
        if self.cached_xattrs(guard).flatten().is_some_and(|map| map.contains_key(CAPABILITIES)) {
            let remove = |map: &mut XattrMap| Ok(map.remove(CAPABILITIES));
            // Infallible: what goes is not paid for, and the change never refuses.
            let _ = self.change_xattrs((CAPABILITIES, None), remove, guard);
        }
    }
}
