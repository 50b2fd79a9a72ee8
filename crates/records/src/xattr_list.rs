//! Extended attributes one after the other in one block of memory, in the form that they have in a
//! record. So a record takes them as they are.

use std::ops::Range;

use crate::{
    XattrValue,
    packed::{PackedXattrs, put_xattr, xattr_bytes},
};

/// Extended attributes, each name once, in the order of the names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XattrList {
    bytes: Vec<u8>,
    count: u32,
}

impl XattrList {
    /// The number of attributes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All bytes, as in a record.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        PackedXattrs::new(&self.bytes, self.count).filter_map(|xattr| match xattr.value {
            XattrValue::Bytes(value) => Some((xattr.name, value)),
            XattrValue::NotRead | XattrValue::Errno(_) => None,
        })
    }

    /// The value of an attribute.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Sets an attribute. Returns the length of its old value.
    ///
    /// # Panics
    /// If the name has more than 255 bytes.
    pub fn insert(&mut self, name: &[u8], value: &[u8]) -> Option<usize> {
        let (place, old) = self.find(name);
        self.count += u32::from(old.is_none());
        let mut bytes = Vec::with_capacity(self.bytes.len() - place.len() + xattr_bytes(name.len(), value.len()));
        bytes.extend_from_slice(&self.bytes[..place.start]);
        put_xattr(&mut bytes, name, value);
        bytes.extend_from_slice(&self.bytes[place.end..]);
        self.bytes = bytes;
        old
    }

    /// Removes an attribute. Returns the length of its value.
    pub fn remove(&mut self, name: &[u8]) -> Option<usize> {
        let (place, old) = self.find(name);
        if old.is_some() {
            self.bytes.drain(place);
            self.bytes.shrink_to_fit();
            self.count -= 1;
        }
        old
    }

    /// Where an attribute is, and the length of its value; or where it would be.
    fn find(&self, name: &[u8]) -> (Range<usize>, Option<usize>) {
        let mut at = 0;
        for (found, value) in self.iter() {
            let end = at + xattr_bytes(found.len(), value.len());
            match found.cmp(name) {
                std::cmp::Ordering::Less => at = end,
                std::cmp::Ordering::Equal => return (at..end, Some(value.len())),
                std::cmp::Ordering::Greater => break,
            }
        }
        (at..at, None)
    }
}

/// Of several values of one name, the last one stays.
impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for XattrList {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(xattrs: I) -> Self {
        let mut sorted: Vec<(N, V)> = xattrs.into_iter().collect();
        // Stable, and so the last one of a name stays the last.
        sorted.sort_by(|(one, _), (other, _)| one.as_ref().cmp(other.as_ref()));
        let mut list = Self::default();
        for (place, (name, value)) in sorted.iter().enumerate() {
            if sorted.get(place + 1).is_none_or(|(next, _)| next.as_ref() != name.as_ref()) {
                put_xattr(&mut list.bytes, name.as_ref(), value.as_ref());
                list.count += 1;
            }
        }
        list.bytes.shrink_to_fit();
        list
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Random changes, compared with a map.
    #[test]
    fn list_is_a_map() {
        let (mut list, mut map) = (XattrList::default(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let name = format!("user.{}", "n".repeat(next(20) as usize)).into_bytes();
            let value = vec![next(256) as u8; next(40) as usize];
            if next(3) == 0 {
                assert_eq!(list.remove(&name), map.remove(&name).map(|old| old.len()));
            } else {
                assert_eq!(list.insert(&name, &value), map.insert(name.clone(), value).map(|old| old.len()));
            }
            assert_eq!(list.get(&name), map.get(&name).map(|value| &value[..]));
            assert!(list.iter().eq(map.iter().map(|(name, value)| (&name[..], &value[..]))));
            assert_eq!((list.len(), list.is_empty()), (map.len(), map.is_empty()));
            assert_eq!(list, map.iter().collect());
        }
    }

    #[test]
    fn of_several_values_the_last_one_stays() {
        let list: XattrList = [("b", "1"), ("a", "2"), ("b", "3"), ("b", "")].into_iter().collect();
        assert!(list.iter().eq([(&b"a"[..], &b"2"[..]), (b"b", b"")]));
    }
}
