//! The reference of an open file to its dentry: in the dentry's own count or, if many threads open
//! the file at the same time, in a per-CPU count.
//!
//! Each open and each close writes the dentry's reference count: one cache line, for which all
//! users of the file contend. After some contention the dentry gets per-CPU reference counts
//! ([`pando_sync::PerCpuRefs`]), and each opener then counts on a line of its CPU. The technique is
//! that of Linux's `percpu_ref`.
//!
//! The per-CPU counts hold the dentry, and the dentry holds them. The dentry cannot be freed before
//! this cycle is broken. So the counts are created under the dentry's name lock, and only while the
//! name is bound. The thread that removes the name collapses them under the same lock. The thread
//! that shuts the tree down collapses them after the tree is closed, when no others can be created.
//! A tree with a backing has none, because its cache decides by the reference count which inodes
//! are in use.

use std::cell::Cell;

use pando_sync::{Counted, CpuRef, NameGuard, NameKey, pin};

use crate::objects::{
    dentry::{Dentry, DentryRef},
    superblock::Namespace,
};

/// The reference that an open file holds.
pub(crate) enum Held {
    Counted(DentryRef),
    PerCpu(Counted<CpuRef<DentryRef>>),
}

impl Held {
    #[inline]
    pub(crate) fn dentry(&self) -> &DentryRef {
        match self {
            Self::Counted(dentry) => dentry,
            Self::PerCpu(count) => count.object(),
        }
    }

    /// Whether the reference is in a per-CPU count, and the file's name has been removed since.
    #[inline]
    pub(crate) fn is_unlinked(&self) -> bool {
        matches!(self, Self::PerCpu(count) if !count.object().0.open_counts.is_active())
    }

    /// Replaces the per-CPU reference by a counted one. The per-CPU count holds the dentry until it
    /// is reclaimed, which is tried at once.
    #[cold]
    pub(crate) fn release_per_cpu_ref(&mut self) {
        *self = Self::Counted(self.dentry().clone());
        pando_sync::collect();
    }

    /// Another reference to the same dentry.
    pub(crate) fn another(dentry: &DentryRef) -> Self {
        dentry.0.open_counts.local(&pin()).map_or_else(|| Self::Counted(dentry.clone()), Self::PerCpu)
    }
}

/// A thread acts on one of this many contended opens.
const REPORT_INTERVAL: u32 = 8;

#[cold]
pub(crate) fn note_contention(dentry: &Counted<Dentry>, namespace: &Namespace) {
    std::thread_local!(static REPORTS: Cell<u32> = const { Cell::new(0) });
    let reports = REPORTS.get();
    REPORTS.set(reports.wrapping_add(1));
    if reports.is_multiple_of(REPORT_INTERVAL) {
        // A thread that holds this stripe may be waiting for a backing, about another name. So this
        // does not wait; the next opener that meets contention tries again.
        make_per_cpu_refs(dentry, |name| namespace.names.try_lock(&[name]));
    }
}

/// Gives a dentry per-CPU reference counts, if it has a name and `lock` locks that name.
pub(crate) fn make_per_cpu_refs<'n>(dentry: &Counted<Dentry>, lock: impl FnOnce(NameKey) -> Option<NameGuard<'n>>) {
    let sb = dentry.sb();
    if sb.driver.backing().is_some() {
        return;
    }
    sb.with_bound_entry(dentry, lock, |_, _| {
        if sb.expect_mounted().is_ok() {
            dentry.open_counts.activate(|| DentryRef(dentry.clone()));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{At, Context, Credentials, Vfs, driver::tests::Nothing, objects::lockable::Lockable};

    /// A backing may be called while the lock of this stripe is held. Seen to hang: a lock that is
    /// waited for.
    #[test]
    fn contended_open_does_not_wait_for_the_name_lock() {
        let vfs = Vfs::new(Nothing).expect("a tree");
        let context = Context::new(&vfs, Credentials::root());
        let dentry = vfs.mkdir(&context, At::Cwd, "d", 0o755).expect("mkdir").0;
        let (sb, top) = (dentry.sb(), vfs.root());
        let root = top.0.inode();
        let report = || (0..REPORT_INTERVAL).for_each(|_| note_contention(&dentry, vfs.namespace()));
        let name = Lockable::name(root, sb.hash(root.ino, b"d")).expect("a directory");
        let locked = vfs.namespace().names.lock(&[name.key]);
        std::thread::scope(|scope| scope.spawn(report).join().expect("no panic"));
        assert!(!dentry.open_counts.is_active());
        drop(locked);
        report();
        assert_eq!(dentry.open_counts.is_active(), std::thread::available_parallelism().map_or(1, usize::from) > 1);
    }
}
