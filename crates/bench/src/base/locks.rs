//! Locks that the library took and waited for. The cargo feature `lock-stats` counts them.

use serde::{Deserialize, Serialize};

/// The classes of locks, by their names in reports.
pub(crate) const CLASSES: [&str; 8] =
    ["permissions", "topology", "names", "rename_seq", "handle", "data", "xattrs", "single_flight"];

/// Counts of all classes for the whole process: up to now, or in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Locks {
    pub(crate) acquired: [u64; CLASSES.len()],
    pub(crate) waited: [u64; CLASSES.len()],
}

impl Locks {
    /// Counted up to now; none if this program does not count locks.
    pub(crate) fn now() -> Option<Self> {
        #[cfg(feature = "lock-stats")]
        return pando_sync::lock_counts().map(|counts| Self {
            acquired: counts.map(|count| count.acquired),
            waited: counts.map(|count| count.waited),
        });
        #[cfg(not(feature = "lock-stats"))]
        None
    }

    fn zip(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        let zip =
            |a: [u64; CLASSES.len()], b: [u64; CLASSES.len()]| std::array::from_fn(|class| with(a[class], b[class]));
        Self { acquired: zip(self.acquired, other.acquired), waited: zip(self.waited, other.waited) }
    }

    /// Counted since an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    /// The sum of two readings.
    pub(crate) fn and(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
}

#[cfg(all(test, feature = "lock-stats"))]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_library() {
        let classes =
            pando_sync::lock_counts().expect("counted").map(|count| format!("{:?}", count.class).to_lowercase());
        assert_eq!(classes, CLASSES.map(|class| class.replace('_', "")));
    }
}
