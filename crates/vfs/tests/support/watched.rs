//! A driver that reports its calls, for the tests of several crates (`#[path]`).

use pando_vfs::{Backing, Charge, Driver, FileData, Result, StatFs};

/// The reasons for which a namespace calls its driver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Used {
    Charge,
    Release(Charge),
    Backing,
    /// The contents of a file that had none.
    Data,
}

/// A driver that calls a function before a charge, after a release, and before it is asked for its
/// backing or for the contents of a file.
pub struct Watched<D, F>(pub D, pub F);

impl<D: Driver, F: Fn(Used) + Send + Sync + 'static> Driver for Watched<D, F> {
    fn statfs(&self) -> Result<StatFs> {
        self.0.statfs()
    }
    fn charge(&self, what: Charge) -> Result<()> {
        (self.1)(Used::Charge);
        self.0.charge(what)
    }
    fn release(&self, what: Charge) {
        self.0.release(what);
        (self.1)(Used::Release(what));
    }
    fn data(&self, ino: u64) -> Box<dyn FileData> {
        (self.1)(Used::Data);
        self.0.data(ino)
    }
    fn backing(&self) -> Option<&dyn Backing> {
        (self.1)(Used::Backing);
        self.0.backing()
    }
}
