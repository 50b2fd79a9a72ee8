//! What an engine can do.

use std::ops::Range;

use crate::{Result, Transaction};

/// An ordered, transactional key-value engine.
pub trait Engine: Send + Sync {
    /// What this engine can do beyond the rest of this trait, and its limits.
    fn capabilities(&self) -> Capabilities;

    /// The records of this instant. It includes all transactions that were committed before.
    ///
    /// # Errors
    /// The engine cannot be read.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>>;

    /// Checks all assertions of a transaction and makes all of its changes, at one instant. In the
    /// order of commits, each transaction sees those before it.
    ///
    /// # Errors
    /// Nothing was committed, unless the error is [`Error::Stopped`](crate::Error::Stopped): then
    /// the outcome is known when the engine is opened again.
    fn commit(&self, transaction: &Transaction) -> Result<Outcome>;
}

/// The records of one instant. Later commits do not change it.
pub trait Snapshot: Send + Sync {
    /// The values of keys, in the order of the keys. None for a key without a record.
    ///
    /// # Errors
    /// The engine cannot be read.
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>>;

    /// The value of one key.
    ///
    /// # Errors
    /// The engine cannot be read.
    fn get_one(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get(&[key])?.pop().flatten())
    }

    /// Calls `each` with the keys and values in a range, in the order of keys, for `limit` records
    /// at most: one page. It may be fewer, but at least one if there is one and `limit` is not 0.
    /// Returns the key with which the next page begins. None at the end of the range.
    ///
    /// # Errors
    /// The engine cannot be read. `each` may have been called before.
    fn page(&self, range: Range<&[u8]>, limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Vec<u8>>>;

    /// Calls `each` with all keys and values in a range, in the order of keys, page by page.
    ///
    /// # Errors
    /// The engine cannot be read. `each` may have been called before.
    fn scan(&self, range: Range<&[u8]>, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        const PAGE: usize = 1024;
        let mut next = Some(range.start.to_vec());
        while let Some(start) = next {
            next = self.page(&start..range.end, PAGE, each)?;
        }
        Ok(())
    }
}

/// The outcome of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The changes are made. If the engine is durable on commit, they survive a crash.
    Committed,
    /// An assertion does not hold. Nothing was changed.
    Conflict,
    /// The engine did not answer. The changes are made, or will be made later if the assertions
    /// hold then, or will never be made. To find out, the client commits a transaction that changes
    /// a key of which this one asserts the value.
    Unknown,
    /// The transaction is larger than the engine takes. Nothing was changed.
    TooLarge,
}

/// What an engine can do, and its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The largest transaction, in bytes of its keys and values ([`Transaction::bytes`]). None: the
    /// engine has no limit of its own.
    pub largest: Option<usize>,
    /// What is committed survives a crash of this machine.
    pub durable_on_commit: bool,
    /// Other clients may change records.
    pub is_shared: bool,
}
