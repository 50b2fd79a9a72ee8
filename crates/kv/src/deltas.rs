//! Changes of numbers that may be made in any order.

/// A change of a number. Changes of one kind may be made in any order with the same result, so a
/// number is changed by one kind only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta {
    /// Adds to the number. It wraps around.
    Add(i64),
    /// The number becomes this one if it is less.
    AtLeast(i64),
}

/// A value that holds numbers, each of eight bytes, the least significant first. Numbers that the
/// value is too short for are 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers(Vec<u8>);

impl Numbers {
    /// The numbers in a value. Bytes after the last whole number are dropped.
    #[must_use]
    pub fn of(value: Option<&[u8]>) -> Self {
        let value = value.unwrap_or_default();
        Self(value[..value.len() / 8 * 8].to_vec())
    }

    /// The number at an index.
    #[must_use]
    pub fn get(&self, index: usize) -> i64 {
        let bytes = self.0.chunks_exact(8).nth(index);
        bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, i64::from_le_bytes)
    }

    /// Changes the number at an index.
    pub fn merge(&mut self, index: usize, delta: Delta) {
        let now = self.get(index);
        let then = match delta {
            Delta::Add(more) => now.wrapping_add(more),
            Delta::AtLeast(least) => now.max(least),
        };
        let place = index * 8..(index + 1) * 8;
        if self.0.len() < place.end {
            self.0.resize(place.end, 0);
        }
        self.0[place].copy_from_slice(&then.to_le_bytes());
    }

    /// The value that holds them.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.0
    }
}
