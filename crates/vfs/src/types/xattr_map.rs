//! The extended attributes of an inode, as a value.

use std::{collections::BTreeMap, sync::Arc};

use pando_records::XattrList;
use pando_sync::prefetch;

use crate::types::xattr_class::Class;

/// Names and values.
///
/// Small values lie next to each other, as in a record of xgetdents: reading all of them costs few
/// cache misses. A change copies them. It does not copy large ones, of which there may be
/// megabytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct XattrMap {
    small: XattrList,
    large: BTreeMap<Arc<[u8]>, Arc<[u8]>>,
    /// A bit for each class of the names.
    classes: u8,
}

/// The longest value that is small.
const SMALL_MAX: usize = 512;

/// The size of a cache line.
const LINE_BYTES: usize = 64;

/// The estimated size of an entry of the map of large values, whose nodes may be half full.
const ENTRY_BYTES: usize = 2 * size_of::<(Arc<[u8]>, Arc<[u8]>)>();

impl XattrMap {
    pub(crate) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.small.get(name).or_else(|| self.large.get(name).map(|value| &**value))
    }

    /// Sets an attribute. Returns the length of its old value.
    pub(crate) fn insert(&mut self, name: &[u8], value: &[u8]) -> Option<usize> {
        self.classes |= bit(Class::of(name));
        if value.len() > SMALL_MAX {
            let old = self.small.remove(name);
            let large = self.large.insert(Arc::from(name), Arc::from(value));
            old.or(large.map(|old| old.len()))
        } else {
            let old = self.large.remove(name).map(|old| old.len());
            old.or(self.small.insert(name, value))
        }
    }

    /// Removes an attribute. Returns the length of its value.
    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<usize> {
        let old = self.small.remove(name).or_else(|| self.large.remove(name).map(|old| old.len()));
        self.classes = self.used_classes();
        old
    }

    fn used_classes(&self) -> u8 {
        self.names().fold(0, |classes, name| classes | bit(Class::of(name)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.small.iter().chain(self.large.iter().map(|(name, value)| (&**name, &**value)))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().map(|(name, _)| name)
    }

    /// All attributes, if all values are small and the class of every name passes.
    pub(crate) fn as_list(&self, passes: impl Fn(Class) -> bool) -> Option<&XattrList> {
        let passes = |class: &Class| self.classes & bit(*class) == 0 || passes(*class);
        (self.large.is_empty() && Class::ALL.iter().all(passes)).then_some(&self.small)
    }

    /// Prefetches the small values.
    pub(crate) fn prefetch(&self) {
        self.small.bytes().iter().step_by(LINE_BYTES).for_each(|byte| prefetch(byte));
    }

    /// The bytes of memory that only this map has. A large value may also belong to the map that
    /// replaces this one.
    pub(crate) fn held_bytes(&self) -> usize {
        self.small.bytes().len() + self.large.len() * ENTRY_BYTES
    }
}

const fn bit(class: Class) -> u8 {
    1 << class as u8
}

/// Whether a value of this length is shared by the maps before and after a change of another one.
pub(crate) const fn is_large(len: usize) -> bool {
    len > SMALL_MAX
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for XattrMap {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(xattrs: I) -> Self {
        let (large, small): (Vec<_>, Vec<_>) =
            xattrs.into_iter().partition(|(_, value)| value.as_ref().len() > SMALL_MAX);
        let mut map = Self { small: small.into_iter().collect(), ..Self::default() };
        map.classes = map.used_classes();
        for (name, value) in large {
            map.insert(name.as_ref(), value.as_ref());
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value that grows or shrinks past the limit is there once.
    #[test]
    fn a_name_has_one_value_whatever_its_size() {
        let (mut map, sizes) = (XattrMap::default(), [0, SMALL_MAX, SMALL_MAX + 1, 65_536, 1, SMALL_MAX + 1, 3]);
        let mut old = None;
        for size in sizes {
            assert_eq!(map.insert(b"user.a", &vec![7; size]), old, "{size}");
            map.insert(b"user.b", b"other");
            assert_eq!((map.get(b"user.a").map(<[u8]>::len), map.iter().count()), (Some(size), 2));
            assert_eq!(map.as_list(|_| true).is_some(), !is_large(size));
            old = Some(size);
        }
        map.insert(b"user.a", &[1; 1000]);
        assert_eq!((map.remove(b"user.a"), map.remove(b"user.a"), map.names().count()), (Some(1000), None, 1));
        assert_eq!(map.remove(b"user.b"), Some(5));
        assert!(map.is_empty());
    }

    #[test]
    fn a_list_has_only_classes_that_pass() {
        let names: [&[u8]; 3] = [b"user.a", b"trusted.b", b"odd"];
        let mut map: XattrMap = names.map(|name| (name, b"value")).into_iter().collect();
        let passes = |map: &XattrMap, refused: Class| map.as_list(|class| class != refused).is_some();
        for (name, class) in names.into_iter().zip([Class::User, Class::Trusted, Class::Unknown]) {
            assert!(!passes(&map, class) && passes(&map, Class::Security));
            map.remove(name);
            assert!(passes(&map, class));
            map.insert(b"security.c", b"");
            assert!(!passes(&map, Class::Security));
            map.remove(b"security.c");
        }
    }
}
