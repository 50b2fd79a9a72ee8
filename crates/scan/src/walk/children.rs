//! The directories within a directory, kept until their turn.
//!
//! A directory may hold more of them than there is memory for. So only some are kept in memory, and
//! the ones after them in an anonymous temporary file, one portion each: `now`, the stored ones,
//! `last`. If the file cannot be written, they stay in memory, and nothing is lost.

use std::{cmp::Ordering, collections::VecDeque, fmt, fs::File, io, os::unix::fs::FileExt, sync::Arc};

use pando_records::Record;

use super::{
    ahead::Ahead,
    open::Expected,
    options::Descent,
    portion::{Child, Portion},
};
use crate::MAX_FIXED_WORKERS;

/// Children in one portion: 1 MiB with names of some ten bytes.
const PORTION: usize = if cfg!(test) { 8 } else { 16 << 10 };

/// A child whose turn it is.
pub(super) struct Taken<'a> {
    pub name: &'a [u8],
    pub expected: Option<Expected>,
    pub ahead: Option<Arc<Ahead>>,
}

/// A child whose turn has not come.
pub(super) struct Coming<'a> {
    pub name: &'a [u8],
    pub expected: Option<Expected>,
    pub ahead: &'a mut Option<Arc<Ahead>>,
}

/// A portion between `now` and `last`.
enum Stored {
    /// In the file: its offset, its length in bytes, and the number of children.
    InFile { at: u64, bytes: usize, len: usize },
    /// The file could not be written.
    InMemory(Portion),
}

impl Stored {
    fn len(&self) -> usize {
        match self {
            Self::InFile { len, .. } => *len,
            Self::InMemory(portion) => portion.len(),
        }
    }
}

/// The directories found in a directory, in its order. The caller of the walk may sort them, or
/// remove some. Memory for them is not in the budget. It is 56 bytes and the name for each of up to
/// 32,768 that are still to be entered, on all levels down to the one that is being read. In that
/// one, it may be three times as much meanwhile. More of them go through a temporary file (in
/// `TMPDIR`), unless they are to be sorted ([`Descent`]): then all are in memory.
#[derive(Default)]
pub struct Children {
    sorted: bool,
    now: Portion,
    stored: VecDeque<Stored>,
    last: Portion,
    file: Option<File>,
    /// How many bytes of the file are in use.
    end: u64,
    /// The errno if some children could not be read back.
    lost: Option<i32>,
}

/// `STATX_ATTR_AUTOMOUNT`.
const ATTR_AUTOMOUNT: u64 = 0x1000;

impl Children {
    pub(super) fn new(descent: Descent) -> Self {
        Self { sorted: descent == Descent::Sorted, ..Self::default() }
    }

    pub(super) fn push(&mut self, record: &Record<'_>, position: u64) {
        let expected = record.attr().filter(|attr| attr.have.contains(crate::Fields::INO)).map(|attr| Expected {
            dev: attr.dev(),
            ino: attr.ino,
            automount: attr.attributes & ATTR_AUTOMOUNT != 0,
        });
        self.add(record.name(), position, expected);
    }

    pub(super) fn add(&mut self, name: &[u8], position: u64, expected: Option<Expected>) {
        let fits = self.stored.is_empty() && self.last.len() == 0 && self.now.len() < PORTION;
        if fits || self.sorted {
            return self.now.push(name, position, expected);
        }
        self.last.push(name, position, expected);
        if self.last.len() == PORTION {
            let full = std::mem::take(&mut self.last);
            let stored = self.store(full, self.end);
            if let Stored::InFile { bytes, .. } = stored {
                self.end += bytes as u64;
            }
            self.stored.push_back(stored);
        }
    }

    /// Writes a portion to an offset in the file.
    fn store(&mut self, portion: Portion, at: u64) -> Stored {
        let (bytes, len) = (portion.encode(), portion.len());
        if self.file.is_none() {
            self.file = tempfile::tempfile().ok();
        }
        match self.file.as_ref().map(|file| file.write_all_at(&bytes, at)) {
            Some(Ok(())) => Stored::InFile { at, bytes: bytes.len(), len },
            _ => Stored::InMemory(portion),
        }
    }

    /// Reads a portion back. If that fails, the errno is kept.
    fn read(&mut self, stored: Stored) -> Portion {
        let (at, bytes) = match stored {
            Stored::InMemory(portion) => return portion,
            Stored::InFile { at, bytes, .. } => (at, bytes),
        };
        let read = |file: &File| {
            let mut buffer = vec![0; bytes];
            file.read_exact_at(&mut buffer, at)?;
            let mut portion = Portion::decode(&buffer).ok_or(io::Error::from_raw_os_error(libc::EIO))?;
            portion.settle();
            Ok(portion)
        };
        let file = self.file.as_ref().ok_or(io::Error::from_raw_os_error(libc::EBADF));
        file.and_then(read).unwrap_or_else(|error| {
            self.lost = Some(error.raw_os_error().unwrap_or(libc::EIO));
            Portion::default()
        })
    }

    /// How many will still be entered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.now.len() + self.stored.iter().map(Stored::len).sum::<usize>() + self.last.len()
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sorts them. All are in memory for that.
    pub fn sort_by(&mut self, compare: impl FnMut(Child<'_>, Child<'_>) -> Ordering) {
        while let Some(stored) = self.stored.pop_front() {
            let portion = self.read(stored);
            self.now.append(&portion);
        }
        self.now.append(&std::mem::take(&mut self.last));
        (self.file, self.end) = (None, 0);
        self.now.sort_by(compare);
    }

    /// Keeps only those for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(Child<'_>) -> bool) {
        self.now.retain(&mut keep);
        for _ in 0..self.stored.len() {
            let Some(stored) = self.stored.pop_front() else { break };
            let place = if let Stored::InFile { at, bytes, len } = stored { Some((at, bytes, len)) } else { None };
            let mut portion = self.read(stored);
            portion.retain(&mut keep);
            let stored = match place {
                Some((at, bytes, len)) if portion.len() == len => Stored::InFile { at, bytes, len },
                // At the same offset: it is shorter now.
                Some((at, ..)) => self.store(portion, at),
                None => Stored::InMemory(portion),
            };
            self.stored.push_back(stored);
        }
        self.last.retain(&mut keep);
    }

    /// Removes all of them.
    pub fn clear(&mut self) {
        *self = Self { sorted: self.sorted, ..Self::default() };
    }

    /// No more will be added: spare capacity is freed.
    pub(super) fn settle(&mut self) {
        self.now.settle();
        self.last.settle();
    }

    /// The next one. Fails once when some could not be read back, and continues with those after
    /// them.
    pub(super) fn take(&mut self) -> Result<Option<Taken<'_>>, i32> {
        while self.now.len() == 0 {
            match self.stored.pop_front() {
                Some(stored) => self.now = self.read(stored),
                None if self.last.len() > 0 => self.now = std::mem::take(&mut self.last),
                None => break,
            }
        }
        if let Some(errno) = self.lost.take() {
            return Err(errno);
        }
        let taken = self.now.take();
        Ok(taken.map(|(name, kept)| Taken { name, expected: kept.expected, ahead: kept.ahead.take() }))
    }

    /// The next ones, at most so many.
    pub(super) fn coming(&mut self, most: usize) -> impl Iterator<Item = Coming<'_>> {
        self.now.left_mut().take(most).map(|(name, kept)| Coming {
            name,
            expected: kept.expected,
            ahead: &mut kept.ahead,
        })
    }

    /// Drops the last one that is read ahead. None if there is none. It is among those that
    /// [`Children::coming`] returns for the largest number of threads, so the search stops there:
    /// very many may follow.
    pub(super) fn drop_last_ahead(&mut self) -> Option<()> {
        self.now.left_mut().take(MAX_FIXED_WORKERS).rev().find_map(|(_, kept)| kept.ahead.take()).map(drop)
    }
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Children").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Vec<u8> {
        format!("dir{number}").into_bytes()
    }

    fn filled(count: usize) -> Children {
        let mut children = Children::default();
        for number in 0..count {
            children.add(&name(number), number as u64, None);
        }
        children.settle();
        assert_eq!(children.len(), count);
        children
    }

    fn drained(children: &mut Children) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        while let Some(taken) = children.take().expect("read") {
            names.push(taken.name.to_vec());
        }
        assert!(children.is_empty());
        names
    }

    /// Fewer than fit, as many as fit, then a part of a portion, whole portions, and both.
    const COUNTS: [usize; 7] = [0, 5, PORTION, PORTION + 3, 3 * PORTION, 3 * PORTION + 1, 20 * PORTION + 7];

    #[test]
    fn children_come_in_their_order() {
        for count in COUNTS {
            let mut children = filled(count);
            assert_eq!(children.file.is_some(), count >= 2 * PORTION, "{count}");
            assert_eq!(drained(&mut children), (0..count).map(name).collect::<Vec<_>>());
        }
    }

    #[test]
    fn children_can_be_removed() {
        for count in COUNTS {
            let mut children = filled(count);
            children.retain(|child| child.position % 3 == 1);
            let kept = (0..count).filter(|number| number % 3 == 1);
            assert_eq!(drained(&mut children), kept.map(name).collect::<Vec<_>>());
        }
    }

    #[test]
    fn children_are_sorted_in_memory() {
        for count in COUNTS {
            let mut children = filled(count);
            children.sort_by(|one, other| other.position.cmp(&one.position));
            assert!(children.file.is_none());
            assert_eq!(drained(&mut children), (0..count).rev().map(name).collect::<Vec<_>>());
            let mut children = filled(count);
            children.clear();
            assert!(drained(&mut children).is_empty());
        }
        let mut children = Children::new(Descent::Sorted);
        (0..5 * PORTION).for_each(|number| children.add(&name(number), number as u64, None));
        assert!(children.file.is_none());
        assert_eq!(drained(&mut children).len(), 5 * PORTION);
    }

    #[test]
    fn full_file_loses_nothing() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("there");
        let mut children = Children { file: Some(full), ..Children::default() };
        for number in 0..5 * PORTION {
            children.add(&name(number), number as u64, None);
        }
        children.retain(|child| child.position % 2 == 0);
        let kept = (0..5 * PORTION).filter(|number| number % 2 == 0);
        assert_eq!(drained(&mut children), kept.map(name).collect::<Vec<_>>());
    }

    #[test]
    fn lost_portion_is_reported_and_the_rest_follows() {
        let mut children = filled(4 * PORTION + 2);
        // Keeps one portion of the three that are stored.
        let Some(Stored::InFile { at, .. }) = children.stored.get(1) else { panic!("stored") };
        children.file.as_ref().expect("a file").set_len(*at).expect("cut");
        let (mut names, mut failures) = (0, 0);
        loop {
            match children.take() {
                Ok(Some(_)) => names += 1,
                Ok(None) => break,
                Err(errno) => {
                    assert_eq!(errno, libc::EIO);
                    failures += 1;
                }
            }
        }
        assert_eq!((names, failures), (2 * PORTION + 2, 1));
    }
}
