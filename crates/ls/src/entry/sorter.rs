//! Sorts entries within a memory limit.
//!
//! Entries are kept encoded, in chunks, with a key and a place for each. When the memory is used
//! up, the entries are sorted and written to an anonymous temporary file: a run. At the end the
//! runs are merged. [`FAN_IN`] runs are merged into one. (External
//! merge sort: Donald Knuth, "The Art of Computer Programming", volume 3, 1973, section 5.4.)

use std::{
    collections::BinaryHeap,
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek, Write},
};

use pando_console::{
    cache_room::Memory,
    failure::{Failure, Result},
};
use rustix::process::{Resource, getrlimit};

use crate::entry::{
    Entry,
    order::{Key, Order, Sorted},
};

/// The number of runs that are merged at once.
const FAN_IN: usize = 64;
const CHUNK_BYTES: usize = 1 << 20;
/// The buffer of a run. The buffers of all runs together are smaller than the least memory.
const READ_BYTES: usize = 16 << 10;
/// The least useful memory: two chunks and an index.
const MIN_MEMORY_BYTES: usize = 4 * CHUNK_BYTES;
const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;

/// A quarter of the memory that this process may use (by its resource limit, and by what its
/// control groups and the machine have left), and at most the default.
fn default_memory() -> u64 {
    let limit = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
    let room = Memory::here().room().map_or(u64::MAX, |room| room.bytes);
    DEFAULT_MEMORY_BYTES.min(limit.min(room) / 4)
}

/// An entry in memory.
#[derive(Debug, Clone, Copy)]
struct Place {
    key: Key,
    chunk: u32,
    at: u32,
    len: u32,
    /// Whether it comes before all others.
    first: bool,
}

/// Takes entries in any order and returns them in order.
pub struct Sorter {
    order: Order,
    /// The most memory to use. It is determined when the least memory is used up.
    memory_bytes: Option<u64>,
    chunks: Vec<Vec<u8>>,
    /// Chunks to reuse.
    free: Vec<Vec<u8>>,
    places: Vec<Place>,
    runs: Vec<File>,
    encoded: Vec<u8>,
}

impl Sorter {
    /// A sorter that keeps about `memory_bytes` in memory. None: as much as there is room for.
    pub fn new(order: Order, memory_bytes: Option<u64>) -> Self {
        Self {
            order,
            memory_bytes,
            chunks: Vec::new(),
            free: Vec::new(),
            places: Vec::new(),
            runs: Vec::new(),
            encoded: Vec::new(),
        }
    }

    /// Takes an entry.
    ///
    /// # Errors
    /// A temporary file cannot be written.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<()> {
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        entry.encode(&mut encoded);
        let result = self.keep(self.order.sorted(entry), &encoded);
        self.encoded = encoded;
        result.map_err(|error| temporary(&error))
    }

    fn keep(&mut self, Sorted { first, key, .. }: Sorted<'_>, encoded: &[u8]) -> io::Result<()> {
        if self.chunks.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < encoded.len()) {
            self.add_chunk(encoded.len())?;
        }
        if self.places.len() == self.places.capacity() {
            self.grow_index()?;
            if self.chunks.is_empty() {
                self.add_chunk(encoded.len())?;
            }
        }
        let chunk = self.chunks.len() - 1;
        let into = &mut self.chunks[chunk];
        self.places.push(Place { key, chunk: chunk as u32, at: into.len() as u32, len: encoded.len() as u32, first });
        into.extend_from_slice(encoded);
        Ok(())
    }

    fn add_chunk(&mut self, len: usize) -> io::Result<()> {
        let held: usize = self.chunks.iter().map(Vec::capacity).sum();
        if !self.fits(held + CHUNK_BYTES.max(len) + self.index_bytes(self.places.capacity())) {
            self.spill()?;
        }
        let chunk = match self.free.pop() {
            Some(chunk) if len <= CHUNK_BYTES => chunk,
            _ => Vec::with_capacity(CHUNK_BYTES.max(len)),
        };
        self.chunks.push(chunk);
        Ok(())
    }

    fn grow_index(&mut self) -> io::Result<()> {
        let more = (self.places.capacity() / 2).max(1024);
        let held: usize = self.chunks.iter().map(Vec::capacity).sum();
        // While the index grows, the old one is in memory beside the new one.
        if !self.fits(held + self.index_bytes(self.places.capacity() * 2 + more)) && !self.places.is_empty() {
            return self.spill();
        }
        self.places.reserve_exact(more);
        Ok(())
    }

    fn fits(&mut self, bytes: usize) -> bool {
        bytes <= MIN_MEMORY_BYTES || bytes as u64 <= *self.memory_bytes.get_or_insert_with(default_memory)
    }

    fn index_bytes(&self, places: usize) -> usize {
        places * size_of::<Place>()
    }

    fn sort(&mut self) {
        let (order, chunks) = (self.order, &self.chunks);
        self.places.sort_unstable_by(|one, other| {
            let sorted = |place: &Place| {
                let name = Entry::decode_name(bytes(chunks, place));
                Sorted { first: place.first, key: place.key, name }
            };
            order.compare(sorted(one), sorted(other))
        });
    }

    /// Writes the entries in memory as a run.
    fn spill(&mut self) -> io::Result<()> {
        if self.places.is_empty() {
            return Ok(());
        }
        self.sort();
        let mut run = BufWriter::new(tempfile::tempfile()?);
        for place in &self.places {
            write_entry(&mut run, bytes(&self.chunks, place))?;
        }
        self.add_run(run)?;
        self.empty_memory();
        if self.runs.len() == FAN_IN {
            let mut merged = BufWriter::new(tempfile::tempfile()?);
            let mut merge = Merge::new(self.order, std::mem::take(&mut self.runs))?;
            while let Some(entry) = merge.next()? {
                write_entry(&mut merged, entry)?;
            }
            self.add_run(merged)?;
        }
        Ok(())
    }

    fn add_run(&mut self, run: BufWriter<File>) -> io::Result<()> {
        let mut file = run.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        self.runs.push(file);
        Ok(())
    }

    fn empty_memory(&mut self) {
        self.places.clear();
        for mut chunk in self.chunks.drain(..) {
            if chunk.capacity() == CHUNK_BYTES {
                chunk.clear();
                self.free.push(chunk);
            }
        }
    }

    /// Passes all entries to `each` in order, and empties the sorter.
    ///
    /// # Errors
    /// A temporary file cannot be read, or `each` failed.
    pub fn drain(&mut self, mut each: impl FnMut(&Entry<'_>) -> Result<()>) -> Result<()> {
        if self.runs.is_empty() {
            self.sort();
            for place in &self.places {
                each(&Entry::decode(bytes(&self.chunks, place)))?;
            }
            self.empty_memory();
            return Ok(());
        }
        let mut merge = self.merge().map_err(|error| temporary(&error))?;
        while let Some(entry) = merge.next().map_err(|error| temporary(&error))? {
            each(&Entry::decode(entry))?;
        }
        Ok(())
    }

    /// Merges all runs. The entries in memory are one more run.
    fn merge(&mut self) -> io::Result<Merge> {
        self.spill()?;
        // The memory of the entries is freed first, for the buffers of the runs.
        self.free.clear();
        Merge::new(self.order, std::mem::take(&mut self.runs))
    }
}

fn temporary(error: &io::Error) -> Failure {
    let dir = std::env::temp_dir();
    Failure::system(format_args!("temporary file in {} for sorting", dir.display()), error)
        .remedy("Give sorting more memory (--sort-memory), another place (TMPDIR), or do without (-U).")
}

fn bytes<'a>(chunks: &'a [Vec<u8>], place: &Place) -> &'a [u8] {
    &chunks[place.chunk as usize][place.at as usize..][..place.len as usize]
}

fn write_entry(out: &mut impl Write, entry: &[u8]) -> io::Result<()> {
    out.write_all(&(entry.len() as u32).to_ne_bytes())?;
    out.write_all(entry)
}

/// The next entry of a run. The first in the order is the greatest, because the heap has that on
/// top.
struct Head {
    order: Order,
    first: bool,
    key: Key,
    entry: Vec<u8>,
    run: usize,
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let [one, another] = [other, self].map(|head| {
            let name = Entry::decode_name(&head.entry);
            Sorted { first: head.first, key: head.key, name }
        });
        self.order.compare(one, another).then_with(|| other.run.cmp(&self.run))
    }
}

/// Merges runs.
struct Merge {
    order: Order,
    runs: Vec<BufReader<File>>,
    heads: BinaryHeap<Head>,
    /// The run of the entry that was returned last. The next call advances it.
    last: Option<Head>,
}

impl Merge {
    fn new(order: Order, files: Vec<File>) -> io::Result<Self> {
        let runs = files.into_iter().map(|file| BufReader::with_capacity(READ_BYTES, file)).collect::<Vec<_>>();
        let mut merge = Self { order, heads: BinaryHeap::with_capacity(runs.len()), runs, last: None };
        for run in 0..merge.runs.len() {
            merge.advance(run, Vec::new())?;
        }
        Ok(merge)
    }

    /// Puts the next entry of a run on the heap.
    fn advance(&mut self, run: usize, mut entry: Vec<u8>) -> io::Result<()> {
        let mut len = [0; 4];
        match self.runs[run].read_exact(&mut len) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            result => result?,
        }
        entry.resize(u32::from_ne_bytes(len) as usize, 0);
        self.runs[run].read_exact(&mut entry)?;
        let Sorted { first, key, .. } = self.order.sorted(&Entry::decode(&entry));
        self.heads.push(Head { order: self.order, first, key, entry, run });
        Ok(())
    }

    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        if let Some(last) = self.last.take() {
            self.advance(last.run, last.entry)?;
        }
        self.last = self.heads.pop();
        Ok(self.last.as_ref().map(|head| head.entry.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        entry::{order::tests::plain, tests::example},
        text::values::SortBy,
    };

    /// Pseudorandom numbers, the same in each run.
    fn scrambled(index: u64) -> u64 {
        (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    fn sorted(by: SortBy, reverse: bool, count: u64, memory: u64) -> (Vec<(u64, Vec<u8>)>, bool) {
        let order = plain(by, reverse);
        let mut sorter = Sorter::new(order, Some(memory));
        for index in 0..count {
            let name =
                format!("{}.{}", "n".repeat((index % 40) as usize), scrambled(index) % 1_000_000 * count + index);
            let mut entry = example(name.as_bytes());
            let attr = entry.attr.as_mut().unwrap().to_mut();
            attr.size = scrambled(index) % 7;
            attr.mtime.secs = scrambled(index) as i64 >> 61;
            sorter.push(&entry).unwrap();
        }
        let spilled = !sorter.runs.is_empty();
        let mut all = Vec::new();
        let each = |entry: &Entry<'_>| {
            let key = match by {
                SortBy::Size => entry.attr().unwrap().size,
                SortBy::Time => entry.attr().unwrap().mtime.secs as u64,
                _ => 0,
            };
            all.push((key, entry.name.to_vec()));
            Ok(())
        };
        sorter.drain(each).unwrap();
        assert_eq!(all.len() as u64, count);
        (all, spilled)
    }

    /// The expected result is the model: a vector, sorted by the definition of the order.
    #[test]
    fn each_order_matches_its_definition() {
        let extension = |name: &[u8]| name.rsplit(|&byte| byte == b'.').next().unwrap().to_vec();
        for by in [SortBy::Name, SortBy::Size, SortBy::Time, SortBy::Extension] {
            for reverse in [false, true] {
                let (all, spilled) = sorted(by, reverse, 500, MIN_MEMORY_BYTES as u64);
                assert!(!spilled);
                let mut model = all.clone();
                model.sort_by(|(one_key, one), (other_key, other)| {
                    let order = match by {
                        SortBy::Size => other_key.cmp(one_key),
                        SortBy::Time => (*other_key as i64).cmp(&(*one_key as i64)),
                        SortBy::Extension => extension(one).cmp(&extension(other)),
                        _ => std::cmp::Ordering::Equal,
                    };
                    let order = order.then_with(|| one.cmp(other));
                    if reverse { order.reverse() } else { order }
                });
                assert_eq!(all, model, "{by:?} {reverse}");
            }
        }
    }

    #[test]
    fn runs_are_merged_completely() {
        let count = 50_000;
        for by in [SortBy::Name, SortBy::Time] {
            let (small, spilled) = sorted(by, false, count, 0);
            assert!(spilled, "it is too small for all");
            let (large, spilled) = sorted(by, false, count, 1 << 30);
            assert!(!spilled);
            assert_eq!(small.len() as u64, count);
            assert!(small == large, "{by:?}");
        }
    }
}
