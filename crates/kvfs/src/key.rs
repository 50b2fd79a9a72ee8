//! The keys of records. Each begins with a letter for its table, and numbers are big-endian, so
//! that the records of one directory, or of neighbouring inodes, stand side by side.

use std::{borrow::Borrow, cmp::Ordering, fmt, hash::Hasher};

use siphasher::sip::SipHasher13;

/// The tables. A key is the letter, and then one or two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Table {
    /// What there is once.
    Once = b'0',
    Contents = b'c',
    Inodes = b'i',
    Names = b'n',
    Unnamed = b'u',
    Xattrs = b'x',
}

/// The bits of a name's hash. With the slot and the smallest cookie they fit into 63 bits.
pub(crate) const HASH_BITS: u32 = 59;
/// The longest key.
const LEN: usize = 17;

/// The key of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    bytes: [u8; LEN],
    len: u8,
}

impl Key {
    /// What the store is: its format, its identity, and the key of its hashes.
    pub(crate) const HEADER: Self = Self::one(Table::Once, 0);
    /// The totals of the store, as numbers.
    pub(crate) const TOTALS: Self = Self::one(Table::Once, 1);

    const fn one(table: Table, number: u64) -> Self {
        let mut bytes = [0; LEN];
        bytes[0] = table as u8;
        let number = number.to_be_bytes();
        let mut at = 0;
        while at < 8 {
            bytes[1 + at] = number[at];
            at += 1;
        }
        Self { bytes, len: 9 }
    }

    /// The attributes of an inode.
    pub(crate) const fn inode(ino: u64) -> Self {
        Self::one(Table::Inodes, ino)
    }

    /// The extended attributes of an inode.
    pub(crate) const fn xattrs(ino: u64) -> Self {
        Self::one(Table::Xattrs, ino)
    }

    /// The contents of a small file.
    pub(crate) const fn contents(ino: u64) -> Self {
        Self::one(Table::Contents, ino)
    }

    /// An inode without a name, which is freed when its last user has gone.
    pub(crate) const fn unnamed(ino: u64) -> Self {
        Self::one(Table::Unnamed, ino)
    }

    /// The names of a directory with one hash.
    pub(crate) const fn names(dir: u64, hash: u64) -> Self {
        let mut key = Self::one(Table::Names, dir);
        let hash = hash.to_be_bytes();
        let mut at = 0;
        while at < 8 {
            key.bytes[9 + at] = hash[at];
            at += 1;
        }
        key.len = LEN as u8;
        key
    }

    /// The names of a directory that have the hash of this one.
    pub(crate) fn of_name(hash_key: &[u8; 16], dir: u64, name: &[u8]) -> Self {
        let mut hasher = SipHasher13::new_with_key(hash_key);
        hasher.write(name);
        Self::names(dir, hasher.finish() >> (64 - HASH_BITS))
    }

    /// A key as an engine returns it. None if no record of this store has such a key.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let mut key = Self { bytes: [0; LEN], len: bytes.len() as u8 };
        key.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(key)
    }

    /// The number after the letter.
    pub(crate) fn number(&self) -> u64 {
        let mut number = [0; 8];
        number.copy_from_slice(&self.bytes[1..9]);
        u64::from_be_bytes(number)
    }

    /// The hash of a key of names.
    pub(crate) fn hash(&self) -> u64 {
        let mut hash = [0; 8];
        hash.copy_from_slice(&self.bytes[9..17]);
        u64::from_be_bytes(hash)
    }

    /// None if it is of no table.
    pub(crate) fn table(&self) -> Option<Table> {
        let tables = [Table::Once, Table::Contents, Table::Inodes, Table::Names, Table::Unnamed, Table::Xattrs];
        tables.into_iter().find(|table| *table as u8 == self.bytes[0])
    }

    /// Whether it is a key of names.
    pub(crate) fn is_names(&self) -> bool {
        self.bytes[0] == Table::Names as u8
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", char::from(self.bytes[0]), self.number())?;
        if self.is_names() { write!(f, " {:016x}", self.hash()) } else { Ok(()) }
    }
}
