//! The result of xgetdents.

/// How far [`File::xgetdents`](crate::File::xgetdents) has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Packed {
    /// The number of bytes at the front of the buffer that hold records.
    pub bytes: usize,
    /// The number of records.
    pub entries: usize,
    /// Where the next call continues.
    pub cookie: u64,
    /// Whether entries follow.
    pub next: Next,
}

/// Whether entries follow the records that [`File::xgetdents`](crate::File::xgetdents) has
/// returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the directory ended.
    End,
    /// More entries may follow.
    More,
    /// An entry that does not fit into the whole buffer, not even without the values of its
    /// extended attributes. With them it needs this many bytes. The buffer holds no record.
    Needs(usize),
}
