//! How an open file holds its dentry: by its count, or, if many open it at the same time, by a core's proxy.
//!
//! Each open writes the dentry's count, and each close: one line, that all who use one file fight for. When openers have
//! been in one another's way, the dentry gets proxies ([`pando_sync::PerCpuRefs`]), and from then on openers count on a line of
//! their core. The proxies hold the dentry, which holds them: they are made under the lock of its name, if the name is
//! bound still, and let go of by whoever takes the name away, under the same lock, or takes the tree down, which is closed
//! then. A tree with a backing has none: its cache counts who uses what.

use std::cell::Cell;

use pando_sync::{Counted, CpuRef, NameGuard, NameKey, pin};

use crate::objects::{
    dentry::{Dentry, DentryRef},
    superblock::NameSpace,
};

/// What an open file holds.
pub(crate) enum Held {
    Itself(DentryRef),
    Proxy(Counted<CpuRef<DentryRef>>),
}

impl Held {
    #[inline]
    pub(crate) fn dentry(&self) -> &DentryRef {
        match self {
            Self::Itself(dentry) => dentry,
            Self::Proxy(proxy) => proxy.object(),
        }
    }

    /// Whether what is held by way of a proxy is going: its name was taken away.
    #[inline]
    pub(crate) fn outlives_name(&self) -> bool {
        matches!(self, Self::Proxy(proxy) if !proxy.object().0.proxies.is_active())
    }

    /// Lets go of the proxy: what it holds it holds until it is reclaimed, which is tried at once.
    #[cold]
    pub(crate) fn leave_proxy(&mut self) {
        *self = Self::Itself(self.dentry().clone());
        pando_sync::collect();
    }

    /// Holds once more what is held.
    pub(crate) fn again(dentry: &DentryRef) -> Self {
        dentry.0.proxies.local(&pin()).map_or_else(|| Self::Itself(dentry.clone()), Self::Proxy)
    }
}

/// Of so many openers that a thread found in its way, one counts.
const PATIENCE: u32 = 8;

#[cold]
pub(crate) fn note_contention(dentry: &Counted<Dentry>, name_space: &NameSpace) {
    std::thread_local!(static REPORTS: Cell<u32> = const { Cell::new(0) });
    let reports = REPORTS.get();
    REPORTS.set(reports.wrapping_add(1));
    if reports.is_multiple_of(PATIENCE) {
        // In the same stripe a backing may be asked about another name: who is next in the way tries again.
        make_proxies(dentry, |name| name_space.names.try_lock(&[name]));
    }
}

/// Spreads the references of a dentry over the cores, if it has a name and `lock` locks that.
pub(crate) fn make_proxies<'n>(dentry: &Counted<Dentry>, lock: impl FnOnce(NameKey) -> Option<NameGuard<'n>>) {
    let sb = dentry.sb();
    if sb.driver.backing().is_some() {
        return;
    }
    sb.while_bound(dentry, lock, |_, _| {
        if sb.expect_open().is_ok() {
            dentry.proxies.activate(|| DentryRef(dentry.clone()));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{At, Context, Credentials, Vfs, driver::tests::Nothing, objects::lockable::Lockable};

    /// A backing may be asked with the lock held in which such a name falls. Seen to hang: with a lock that is waited for.
    #[test]
    fn an_opener_waits_for_no_name() {
        let vfs = Vfs::new(Nothing).expect("a tree");
        let context = Context::new(&vfs, Credentials::root());
        let dentry = vfs.mkdir(&context, At::Cwd, "d", 0o755).expect("mkdir").0;
        let (sb, top) = (dentry.sb(), vfs.root());
        let root = top.0.inode();
        let report = || (0..PATIENCE).for_each(|_| note_contention(&dentry, vfs.name_space()));
        let name = Lockable::name(root, sb.hash(root.ino, b"d")).expect("a directory");
        let locked = vfs.name_space().names.lock(&[name.key]);
        std::thread::scope(|scope| scope.spawn(report).join().expect("no panic"));
        assert!(!dentry.proxies.is_active());
        drop(locked);
        report();
        assert_eq!(dentry.proxies.is_active(), std::thread::available_parallelism().map_or(1, usize::from) > 1);
    }
}
