//! A transaction: what must hold, and what then changes.

use std::ops::Range;

use crate::{Delta, Result, Snapshot};

/// What must hold when a transaction is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assertion {
    /// A key has this value. None: it has no record.
    Value {
        /// The key.
        key: Vec<u8>,
        /// Its value.
        value: Option<Vec<u8>>,
    },
    /// No key is in this range.
    Empty {
        /// The first key of the range.
        start: Vec<u8>,
        /// The first key after the range.
        end: Vec<u8>,
    },
}

/// A change of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key has this value, whether it had one before or not.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The new value.
        value: Vec<u8>,
    },
    /// The key has no record.
    Remove {
        /// The key.
        key: Vec<u8>,
    },
    /// A number of the value changes. Such changes of different transactions may be made in any
    /// order with the same result, so they are no conflict.
    Merge {
        /// The key. Its value holds numbers ([`Numbers`](crate::Numbers)); without a record all are
        /// 0.
        key: Vec<u8>,
        /// Which of the numbers.
        index: usize,
        /// How it changes.
        delta: Delta,
    },
}

/// A list of assertions and changes, which are committed as a whole. Changes are made in the order
/// of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    assertions: Vec<Assertion>,
    changes: Vec<Change>,
    bytes: usize,
}

impl Transaction {
    /// An empty transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asserts that a key has this value, or no record.
    pub fn expect(&mut self, key: impl Into<Vec<u8>>, value: Option<Vec<u8>>) {
        let key = key.into();
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        self.assertions.push(Assertion::Value { key, value });
    }

    /// Asserts that a key has no record.
    pub fn expect_absent(&mut self, key: impl Into<Vec<u8>>) {
        self.expect(key, None);
    }

    /// Asserts that no key is in a range.
    pub fn expect_empty(&mut self, range: Range<&[u8]>) {
        let (start, end) = (range.start.to_vec(), range.end.to_vec());
        self.bytes += start.len() + end.len();
        self.assertions.push(Assertion::Empty { start, end });
    }

    /// Reads a key and asserts that its value does not change before the commit: a tracked read.
    ///
    /// # Errors
    /// The engine cannot be read.
    pub fn read(&mut self, snapshot: &dyn Snapshot, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = snapshot.get_one(key)?;
        self.expect(key, value.clone());
        Ok(value)
    }

    /// Gives a key a value.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        let (key, value) = (key.into(), value.into());
        self.bytes += key.len() + value.len();
        self.changes.push(Change::Put { key, value });
    }

    /// Removes a record, if there is one.
    pub fn remove(&mut self, key: impl Into<Vec<u8>>) {
        let key = key.into();
        self.bytes += key.len();
        self.changes.push(Change::Remove { key });
    }

    /// Changes a number in the value of a key.
    pub fn merge(&mut self, key: impl Into<Vec<u8>>, index: usize, delta: Delta) {
        let key = key.into();
        self.bytes += key.len() + size_of::<i64>();
        self.changes.push(Change::Merge { key, index, delta });
    }

    /// What must hold.
    #[must_use]
    pub fn assertions(&self) -> &[Assertion] {
        &self.assertions
    }

    /// What changes.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The bytes of all keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
