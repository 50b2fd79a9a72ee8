//! File data compared with a model: the bytes in a `Vec`, and the set of existing pages.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use pando_memfs::{MemFs, MemOptions, PAGE_BYTES};
use pando_vfs::{Driver, Error, FileData};

#[path = "../../vfs/tests/support/splitmix.rs"]
mod splitmix;

/// The last offset that a file can reach.
const END: u64 = i64::MAX as u64;

/// A small generator, so that a failing seed reruns exactly.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        splitmix::next(&mut self.0) % n
    }
}

/// The model of a file of at most `WINDOW` bytes. The window can be anywhere: `base` is added to
/// every offset.
struct Model {
    base: u64,
    bytes: Vec<u8>,
    /// The charged pages, and whether each was written to.
    pages: BTreeMap<u64, bool>,
    limit: u64,
}

const WINDOW: u64 = 160 * PAGE_BYTES as u64;
const PAGE: u64 = PAGE_BYTES as u64;

impl Model {
    fn write(&mut self, data: &[u8], at: u64) -> Result<usize, Error> {
        let mut done = 0;
        while done < data.len() {
            let from = at as usize + done;
            let page = from as u64 / PAGE;
            if !self.pages.contains_key(&page) && self.pages.len() as u64 == self.limit {
                break;
            }
            self.pages.insert(page, true);
            let here = (data.len() - done).min(PAGE_BYTES - from % PAGE_BYTES);
            self.bytes.resize(self.bytes.len().max(from + here), 0);
            self.bytes[from..from + here].copy_from_slice(&data[done..done + here]);
            done += here;
        }
        if done == 0 && !data.is_empty() { Err(Error::NoSpace) } else { Ok(done) }
    }

    fn truncate(&mut self, size: u64) {
        if size <= self.bytes.len() as u64 {
            self.pages.retain(|&page, _| page * PAGE < size);
        }
        self.bytes.resize(size as usize, 0);
    }

    fn allocate(&mut self, at: u64, len: u64) -> Result<(), Error> {
        let range = at / PAGE..(at + len).div_ceil(PAGE);
        let missing = range.clone().filter(|page| !self.pages.contains_key(page)).count() as u64;
        if self.pages.len() as u64 + missing > self.limit {
            return Err(Error::NoSpace);
        }
        for page in range {
            self.pages.entry(page).or_insert(false);
        }
        Ok(())
    }

    fn zero(&mut self, at: u64, len: u64) -> Result<(), Error> {
        self.allocate(at, len)?;
        let size = self.bytes.len() as u64;
        self.bytes[at.min(size) as usize..(at + len).min(size) as usize].fill(0);
        Ok(())
    }

    fn punch(&mut self, at: u64, len: u64) {
        self.pages.retain(|&page, _| !(page * PAGE >= at && (page + 1) * PAGE <= at + len));
        let size = self.bytes.len() as u64;
        self.bytes[at.min(size) as usize..(at + len).min(size) as usize].fill(0);
    }

    fn seek(&self, at: u64, data: bool) -> Option<u64> {
        let size = self.bytes.len() as u64;
        let page = (at / PAGE..size.div_ceil(PAGE)).find(|page| self.pages.get(page).is_some_and(|&x| x) == data)?;
        Some(at.max(page * PAGE)).filter(|&found| found < size)
    }

    fn size(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }
}

/// Compares the space after every operation, and the bytes after some.
fn compare(model: &Model, data: &dyn FileData, memfs: &MemFs, contents: bool) {
    assert_eq!(data.blocks(), Some(model.pages.len() as u64 * PAGE / 512));
    assert_eq!(memfs.used_bytes(), model.pages.len() as u64 * PAGE);
    if !contents {
        return;
    }
    let mut read = vec![0xAA; WINDOW as usize + 10];
    assert_eq!(data.read_at(&mut read, model.base, model.size()), Ok(model.bytes.len()));
    assert!(read[..model.bytes.len()] == model.bytes[..], "contents");
}

fn compare_seeks(model: &Model, data: &dyn FileData, at: u64) {
    let size = model.bytes.len() as u64;
    let found = data.seek_data(model.base + at, model.size());
    assert_eq!(found, Ok(model.seek(at, true).map(|at| model.base + at)), "seek_data from {at} of {size}");
    if at < size {
        let found = data.seek_hole(model.base + at, model.size());
        assert_eq!(found, Ok(model.base + model.seek(at, false).unwrap_or(size)), "seek_hole from {at} of {size}");
    }
}

fn run(seed: u64, base: u64, limit: u64) {
    println!("PANDO_SEED={seed}, base {base:#x}, limit {limit}");
    let mut rng = Rng(seed);
    let memfs = MemFs::new(MemOptions::new().size_bytes(limit * PAGE));
    let mut data = memfs.data(2);
    let mut model = Model { base, bytes: Vec::new(), pages: BTreeMap::new(), limit };
    for step in 0..400 {
        // Half of the offsets are near page or chunk borders, where bugs are likely.
        let at = match rng.below(4) {
            0 => rng.below(140) * PAGE + rng.below(3),
            1 => (64 * PAGE * (1 + rng.below(2))).saturating_sub(rng.below(3)),
            _ => rng.below(140 * PAGE),
        };
        let len = match rng.below(3) {
            0 => rng.below(10),
            1 => rng.below(3 * PAGE),
            _ => rng.below(4) * PAGE,
        };
        match rng.below(11) {
            0..=3 => {
                let bytes: Vec<u8> = (0..len).map(|_| rng.below(255) as u8 + 1).collect();
                assert_eq!(data.write_at(&bytes, base + at), model.write(&bytes, at), "write {len} at {at}");
            }
            4 => {
                data.truncate(model.size(), base + at).unwrap();
                model.truncate(at);
            }
            5 => {
                let at = rng.below(model.bytes.len() as u64 + 1);
                data.truncate(model.size(), base + at).unwrap();
                model.truncate(at);
            }
            6 if len > 0 => {
                assert_eq!(data.allocate(base + at, len), model.allocate(at, len), "allocate {len} at {at}");
            }
            7 => {
                let len = if rng.below(4) == 0 { len * 8 } else { len };
                data.punch(base + at, len).unwrap();
                model.punch(at, len);
            }
            8 => {
                let mut read = vec![0xAA; len as usize];
                let n = data.read_at(&mut read, base + at, model.size()).unwrap();
                let from = at.min(model.bytes.len() as u64) as usize;
                assert!(read[..n] == model.bytes[from..(from + len as usize).min(model.bytes.len())]);
                assert!(read[n..].iter().all(|&byte| byte == 0xAA), "bytes beyond the answer were touched");
            }
            9 if len > 0 => {
                let size = model.size();
                assert_eq!(data.zero(base + at, len, size), model.zero(at, len), "zero {len} at {at}");
            }
            _ => compare_seeks(&model, &*data, at),
        }
        compare(&model, &*data, &memfs, step % 16 == 15);
    }
    drop(data);
    assert_eq!(memfs.used_bytes(), 0, "what a dropped file used is given back");
}

#[test]
fn random_operations_agree_with_the_model() {
    let seed = pandofs_testkit::number("PANDO_SEED");
    for i in 0..if seed.is_some() { 1 } else { 20 } {
        let seed = seed.unwrap_or(i + 1);
        run(seed, 0, 1000);
        run(seed, 0, 20);
        run(seed, 1 << 40, 1000);
        run(seed, (END - WINDOW) & !(64 * PAGE - 1), 60);
    }
}

#[test]
fn last_byte_of_the_largest_file_is_accessible() {
    let memfs = MemFs::new(MemOptions::default());
    let mut data = memfs.data(2);
    assert_eq!(data.write_at(b"z", END - 1), Ok(1));
    let mut byte = [0; 4];
    assert_eq!(data.read_at(&mut byte, END - 2, END), Ok(2));
    assert_eq!(byte, [0, b'z', 0, 0]);
    let page = (END - 1) & !(PAGE - 1);
    assert_eq!(data.seek_data(0, END), Ok(Some(page)));
    assert_eq!(data.seek_hole(page, END), Ok(END));
    assert_eq!(data.seek_hole(5, END), Ok(5));
    data.punch(0, END).unwrap();
    assert_eq!(data.read_at(&mut byte, END - 1, END), Ok(1));
    assert_eq!(byte[0], 0);
    data.truncate(END, 0).unwrap();
    assert_eq!(memfs.used_bytes(), 0);
}

#[test]
fn impossible_allocation_fails_at_once() {
    for size_bytes in [None, Some(1 << 20)] {
        let memfs = MemFs::new(MemOptions::new().size_bytes(size_bytes));
        let mut data = memfs.data(2);
        assert_eq!(data.allocate(1, END - 1), Err(Error::NoSpace));
        assert_eq!((data.blocks(), memfs.used_bytes()), (Some(0), 0));
    }
}

#[test]
fn allocated_range_is_writable_when_the_space_is_full() {
    let memfs = MemFs::new(MemOptions::new().size_bytes(4 * PAGE));
    let (mut kept, mut other) = (memfs.data(2), memfs.data(3));
    kept.allocate(PAGE + 1, 2 * PAGE).unwrap(); // three pages are touched
    assert_eq!(other.write_at(&[1; 2 * PAGE_BYTES], 0), Ok(PAGE_BYTES));
    assert_eq!(other.write_at(&[1], PAGE), Err(Error::NoSpace));
    assert_eq!(kept.write_at(&[2; 3 * PAGE_BYTES], PAGE), Ok(3 * PAGE_BYTES));
    assert_eq!(kept.allocate(0, 1), Err(Error::NoSpace));
    drop(other);
    assert_eq!(kept.write_at(&[2], 0), Ok(1));
}

/// Several threads write, truncate and drop files in a space that is too small for them. The test
/// counts the pages that the threads have written: there are never more than the limit. No page is
/// lost, so no thread is refused forever.
#[test]
fn page_limit_is_exact_across_threads() {
    const LIMIT: u64 = 50;
    let memfs = MemFs::new(MemOptions::new().size_bytes(LIMIT * PAGE));
    let (written, done, refused) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2_u64)
            .map(|thread| {
                let (memfs, written, refused) = (&memfs, &written, &refused);
                scope.spawn(move || {
                    let mut rng = Rng(thread + 1);
                    for _ in 0..3000 {
                        let mut data = memfs.data(2);
                        let mut mine = 0;
                        for _ in 0..rng.below(60) {
                            match data.write_at(&[7; 100], (mine * 3) * PAGE) {
                                Ok(n) => {
                                    assert_eq!(n, 100);
                                    mine += 1;
                                    // Increased after the charge and decreased before the release,
                                    // so it is a lower bound.
                                    assert!(written.fetch_add(1, Ordering::SeqCst) < LIMIT);
                                }
                                Err(error) => {
                                    assert_eq!(error, Error::NoSpace);
                                    refused.fetch_add(1, Ordering::SeqCst);
                                }
                            }
                        }
                        assert_eq!(data.blocks(), Some(mine * 8));
                        written.fetch_sub(mine, Ordering::SeqCst);
                        if rng.below(2) == 0 {
                            data.truncate(mine * 3 * PAGE, 0).unwrap();
                        }
                    }
                })
            })
            .collect();
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                assert!(memfs.used_bytes() <= LIMIT * PAGE);
            }
        });
        let results: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::SeqCst);
        watcher.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert!(refused.load(Ordering::SeqCst) > 0, "the space was never full: the test tests nothing");
    assert_eq!(memfs.used_bytes(), 0);
    let mut data = memfs.data(2);
    let all = vec![1; (LIMIT * PAGE) as usize + 1];
    assert_eq!(data.write_at(&all, 0), Ok((LIMIT * PAGE) as usize), "every page can be had again");
}

/// A thread that needs a page does not wait until all of a large file is freed. Seen to fail: the
/// space of all chunks is released at the end.
#[test]
fn pages_of_a_large_file_are_released_incrementally() {
    const PAGES: u64 = 20_000;
    let memfs = MemFs::new(MemOptions::new().size_bytes(PAGES * PAGE));
    let bytes = vec![1; (PAGES * PAGE) as usize];
    // The scheduler decides in which rounds this thread runs at the right moment. In one of them it
    // does: mostly in one of the first, and on a busy machine in one of many.
    let gone_in_part = (0..2000).any(|_| {
        let mut data = memfs.data(2);
        data.write_at(&bytes, 0).unwrap();
        let freed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(data);
                freed.store(true, Ordering::SeqCst);
            });
            let mut other = memfs.data(3);
            while other.write_at(&[1], 0) == Err(Error::NoSpace) {}
            !freed.load(Ordering::SeqCst) && memfs.used_bytes() > PAGE
        })
    });
    assert!(gone_in_part, "nothing of a file could be had before all of it");
}
