//! A sequence of directories in one directory.

use std::{ops::Range, sync::Arc};

use super::{ahead::Ahead, open::Expected};

/// A directory that will be entered.
#[derive(Debug, Clone, Copy)]
pub struct Child<'a> {
    /// Its name in its parent.
    pub name: &'a [u8],
    /// Its position in its parent: 0 for the first record returned, and so on.
    pub position: u64,
}

/// A child, with its name in the portion's `names`.
pub(super) struct Kept {
    name: Range<usize>,
    position: u64,
    pub expected: Option<Expected>,
    pub ahead: Option<Arc<Ahead>>,
}

// There may be many. The documentation of `Children` has this number.
const _: () = assert!(size_of::<Kept>() <= 56);

/// Children. Those before `next` were entered.
#[derive(Default)]
pub(super) struct Portion {
    names: Vec<u8>,
    kept: Vec<Kept>,
    next: usize,
}

impl Portion {
    pub(super) fn push(&mut self, name: &[u8], position: u64, expected: Option<Expected>) {
        let begin = self.names.len();
        self.names.extend_from_slice(name);
        self.kept.push(Kept { name: begin..self.names.len(), position, expected, ahead: None });
    }

    /// How many are left.
    pub(super) fn len(&self) -> usize {
        self.kept.len() - self.next
    }

    /// Those that are left.
    pub(super) fn left(&self) -> impl Iterator<Item = (Child<'_>, &Kept)> {
        self.kept[self.next..].iter().map(|kept| (Self::child(&self.names, kept), kept))
    }

    /// As [`Portion::left`], mutable.
    pub(super) fn left_mut(&mut self) -> impl DoubleEndedIterator<Item = (&[u8], &mut Kept)> + ExactSizeIterator {
        let names = &self.names;
        self.kept[self.next..].iter_mut().map(|kept| (&names[kept.name.clone()], kept))
    }

    /// The next one, which counts as entered.
    pub(super) fn take(&mut self) -> Option<(&[u8], &mut Kept)> {
        let kept = self.kept.get_mut(self.next)?;
        self.next += 1;
        Some((&self.names[kept.name.clone()], kept))
    }

    pub(super) fn sort_by(&mut self, mut compare: impl FnMut(Child<'_>, Child<'_>) -> std::cmp::Ordering) {
        let names = &self.names;
        self.kept[self.next..].sort_by(|a, b| compare(Self::child(names, a), Self::child(names, b)));
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(Child<'_>) -> bool) {
        let names = &self.names;
        self.kept.drain(..self.next);
        self.next = 0;
        self.kept.retain(|kept| keep(Self::child(names, kept)));
    }

    /// Adds the children of another portion.
    pub(super) fn append(&mut self, other: &Self) {
        for (child, kept) in other.left() {
            self.push(child.name, child.position, kept.expected);
        }
    }

    /// No more will be added: spare capacity is freed.
    pub(super) fn settle(&mut self) {
        self.kept.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    fn child<'a>(names: &'a [u8], kept: &Kept) -> Child<'a> {
        Child { name: &names[kept.name.clone()], position: kept.position }
    }

    /// The bytes of the portion in a file that only this process reads.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.names.len() + self.len() * HEAD);
        for (child, kept) in self.left() {
            let known = kept.expected.map_or(0, |expected| KNOWN | if expected.automount { AUTOMOUNT } else { 0 });
            let Expected { dev, ino, .. } = kept.expected.unwrap_or(Expected { dev: (0, 0), ino: 0, automount: false });
            bytes.extend((child.name.len() as u32 | known).to_ne_bytes());
            bytes.extend(dev.0.to_ne_bytes());
            bytes.extend(dev.1.to_ne_bytes());
            bytes.extend(ino.to_ne_bytes());
            bytes.extend(child.position.to_ne_bytes());
            bytes.extend(child.name);
        }
        bytes
    }

    /// The portion of these bytes. None if they are not from [`Portion::encode`].
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut portion = Self::default();
        while !bytes.is_empty() {
            let word = u32::from_ne_bytes(chunk(&mut bytes)?);
            let dev = (u32::from_ne_bytes(chunk(&mut bytes)?), u32::from_ne_bytes(chunk(&mut bytes)?));
            let (ino, position) = (u64::from_ne_bytes(chunk(&mut bytes)?), u64::from_ne_bytes(chunk(&mut bytes)?));
            let (name, rest) = bytes.split_at_checked((word & !(KNOWN | AUTOMOUNT)) as usize)?;
            bytes = rest;
            let expected = Expected { dev, ino, automount: word & AUTOMOUNT != 0 };
            portion.push(name, position, (word & KNOWN != 0).then_some(expected));
        }
        Some(portion)
    }
}

/// The bytes before each name: its length and two flags, device, inode, position.
const HEAD: usize = 28;
const KNOWN: u32 = 1 << 31;
const AUTOMOUNT: u32 = 1 << 30;

fn chunk<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (chunk, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portion_is_decoded_as_encoded() {
        let mut portion = Portion::default();
        let known = Expected { dev: (8, 1), ino: u64::MAX, automount: false };
        let expected = [None, Some(known), Some(Expected { automount: true, ..known })];
        for position in 0..300 {
            let name = vec![position as u8; position];
            portion.push(&name, position as u64 * 7, expected[position % 3]);
        }
        portion.take();
        let bytes = portion.encode();
        let back = Portion::decode(&bytes).expect("whole");
        let all = |portion: &Portion| -> Vec<_> {
            portion.left().map(|(child, kept)| (child.name.to_vec(), child.position, kept.expected)).collect()
        };
        assert_eq!(back.len(), 299);
        assert_eq!(all(&back), all(&portion));
        assert!(Portion::decode(&bytes[..bytes.len() - 1]).is_none(), "a byte is missing");
        assert_eq!(Portion::decode(&[]).expect("none").len(), 0);
    }
}
