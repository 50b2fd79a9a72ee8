//! Options of a read-ahead.

use std::num::{NonZeroU32, NonZeroUsize};

use crate::Order;

/// The most workers, whatever the options say.
const WORKERS: usize = 1 << 16;

/// Options of a read-ahead.
#[derive(Debug, Clone)]
#[must_use]
#[non_exhaustive]
pub struct WarmOptions {
    /// Subdirectories too.
    pub recursive: bool,
    /// The names and the values of extended attributes too.
    pub xattrs: bool,
    /// Directories on another file system than the path above them are not entered.
    pub one_file_system: bool,
    /// How many calls may wait at once, besides those of the thread that reads directories. With
    /// `recursive`, a quarter of them may read the next directories, unless `yields` or `rate` is
    /// set.
    pub max_in_flight: NonZeroUsize,
    /// The most entries in a second. Names, with which some servers send attributes, are read
    /// somewhat ahead: those of three seconds at most, and what one call of getdents64 returns.
    pub rate: Option<NonZeroU32>,
    /// Make fewer calls at once when they get slower: others want the same disk or server.
    pub yields: bool,
    /// The most entries that are not yet in the kernel's caches. Then it ends as if cancelled.
    /// Before Linux 5.12, the kernel does not say which are, and all count.
    pub at_most: Option<u64>,
    /// The order in which a directory's entries are read. [`Order::Auto`] is by inode.
    pub order: Order,
}

impl Default for WarmOptions {
    fn default() -> Self {
        Self {
            recursive: false,
            xattrs: false,
            one_file_system: false,
            max_in_flight: NonZeroUsize::new(32).expect("not zero"),
            rate: None,
            yields: false,
            at_most: None,
            order: Order::Inode,
        }
    }
}

impl WarmOptions {
    /// One directory, names and attributes, and at most 32 calls that wait at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`WarmOptions::recursive`].
    pub fn recursive(mut self, recursive: bool) -> Self {
        self.recursive = recursive;
        self
    }

    /// Sets [`WarmOptions::xattrs`].
    pub fn xattrs(mut self, xattrs: bool) -> Self {
        self.xattrs = xattrs;
        self
    }

    /// Sets [`WarmOptions::one_file_system`].
    pub fn one_file_system(mut self, one_file_system: bool) -> Self {
        self.one_file_system = one_file_system;
        self
    }

    /// Sets [`WarmOptions::max_in_flight`].
    pub fn max_in_flight(mut self, max_in_flight: NonZeroUsize) -> Self {
        self.max_in_flight = max_in_flight;
        self
    }

    /// Sets [`WarmOptions::rate`].
    pub fn rate(mut self, rate: impl Into<Option<NonZeroU32>>) -> Self {
        self.rate = rate.into();
        self
    }

    /// Sets [`WarmOptions::yields`].
    pub fn yields(mut self, yields: bool) -> Self {
        self.yields = yields;
        self
    }

    /// Sets [`WarmOptions::at_most`].
    pub fn at_most(mut self, at_most: impl Into<Option<u64>>) -> Self {
        self.at_most = at_most.into();
        self
    }

    /// Sets [`WarmOptions::order`].
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }
}

impl WarmOptions {
    /// How many of the calls that may wait at once are left to threads that read directories ahead.
    /// One such thread would be of no use.
    pub(super) fn readers(&self) -> usize {
        let readers = self.max_in_flight.get() / 4;
        let may_hurry = !self.yields && self.rate.is_none();
        if self.recursive && may_hurry && readers > 1 { readers } else { 0 }
    }

    /// The most workers.
    pub(super) fn workers(&self) -> NonZeroUsize {
        let workers = (self.max_in_flight.get() - self.readers()).min(WORKERS);
        NonZeroUsize::new(workers).expect("readers are a quarter at most")
    }

    /// `names`, or the entries of one second if that is less.
    pub(super) fn at_once(&self, names: usize) -> usize {
        self.rate.map_or(names, |rate| names.min(rate.get() as usize))
    }
}
