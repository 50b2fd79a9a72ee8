//! Pages: the memory for names, link targets and extended attributes.

use crate::XATTR_SIZE_MAX;

/// Bytes in a page of a batch. The largest value of an extended attribute fits, with its name and
/// head.
pub const PAGE_BYTES: usize = XATTR_SIZE_MAX + 512;

/// A page: a fixed number of bytes, of which the first `used` are in use.
#[derive(Debug)]
pub struct Page {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) used: usize,
}

impl Page {
    /// A page of zeros.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: vec![0; PAGE_BYTES].into_boxed_slice(), used: 0 }
    }

    /// Empties it. The bytes keep their values.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// All its bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// All its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::new()
    }
}
