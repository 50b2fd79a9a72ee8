//! The changes that others make in a backing, as the backing reports them to the namespace.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Directories whose numbers are equal modulo this share a count. A report for one of them makes
/// the namespace read the others again as well, once.
const CLASSES: usize = 1024;

/// The channel through which a [`Backing`](super::Backing) reports changes by others. It gets one
/// for each tree ([`Backing::connect`](super::Backing::connect)), and may use it from any thread,
/// also after the tree was unmounted. A report never waits. Cheap to clone.
///
/// Each walk through a directory checks whether something was reported, and then reads what is
/// cached of the directory again. So does [`Vfs::getattr`](crate::Vfs::getattr). Until the report
/// arrives, they may show what is cached. To be noticed at once, a change is reported no later than
/// the first answer of the backing that shows it. No change may be reported too early: every call
/// that begins after the report must show it.
///
/// A report about a change that the tree itself has made does no harm, and costs a refresh.
#[derive(Clone)]
pub struct Feed(Arc<Counts>);

/// Counts of reports. All are monotonic.
struct Counts {
    /// Reports that concern every directory.
    everything: AtomicU64,
    classes: Box<[AtomicU64]>,
}

impl Feed {
    pub(crate) fn new() -> Self {
        let classes = (0..CLASSES).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Counts { everything: AtomicU64::new(0), classes }))
    }

    /// Another user of the store has changed a name of this directory, or an inode that a name of
    /// it leads to, or its own attributes. An inode with several names is reported for the
    /// directory of each.
    pub fn directory_changed(&self, dir: u64) {
        // SeqCst: ordered with the store's own state, which may be a plain atomic.
        self.class(dir).fetch_add(1, Ordering::SeqCst);
    }

    /// Anything may have changed: reports were lost, for example, or the directories of a changed
    /// inode are not known.
    pub fn everything_changed(&self) {
        self.0.everything.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of reports that concern a directory.
    pub(crate) fn count(&self, dir: u64) -> u64 {
        self.0.everything.load(Ordering::SeqCst) + self.class(dir).load(Ordering::SeqCst)
    }

    fn class(&self, dir: u64) -> &AtomicU64 {
        &self.0.classes[dir as usize % CLASSES]
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").finish_non_exhaustive()
    }
}
