//! `ring`: a bounded queue of records from one thread to another. The writer never waits.
//!
//! For tracing that does not disturb what it traces: a record that does not fit is dropped and
//! counted. The writer stores into memory that only it writes, and reads the reader's progress only
//! when it seems to have no room left. The reader reads the writer's progress when it has read all
//! records that it knew of. (Two indices, each with one writer: Leslie Lamport, *Proving the
//! correctness of multiprocess programs*, 1977; each side's copy of the other's index: John
//! Giacomoni, Tipp Moseley and Manish Vachharajani, *FastForward for efficient pipeline
//! parallelism*, 2008, and its successors.)
//!
//! A record is some words. The words are atomics, so nothing here is `unsafe`. On the machines that
//! we run on, a relaxed store is a plain store.

use std::sync::Arc;

use crate::{
    base::padded::Padded,
    facade::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

struct Ring {
    /// A power of two of them. A record is a word with its length, then that many words.
    words: Box<[AtomicU64]>,
    /// The data that each side writes is on cache lines of its own.
    writer: Padded<WriterSide>,
    /// How many words were ever read. Written by the reader.
    read: Padded<AtomicUsize>,
}

struct WriterSide {
    /// How many words were ever written. All of them belong to complete records. Written by the
    /// writer.
    written: AtomicUsize,
    lost: AtomicU64,
    ended: AtomicBool,
}

impl Ring {
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.words[index & (self.words.len() - 1)]
    }
}

/// The writing end of a ring.
pub struct RingWriter {
    ring: Arc<Ring>,
    written: usize,
    /// The last known value of the reader's index.
    read: usize,
    lost: u64,
}

/// The reading end of a ring.
pub struct RingReader {
    ring: Arc<Ring>,
    read: usize,
    /// The last known value of the writer's index.
    written: usize,
}

impl std::fmt::Debug for RingWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingWriter").field("written", &self.written).field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RingReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingReader").field("read", &self.read).finish_non_exhaustive()
    }
}

/// A ring with room for `words` words (rounded up to a power of two), including one word for each
/// record.
///
/// # Panics
/// If so many words cannot be addressed.
#[must_use]
pub fn ring(words: usize) -> (RingWriter, RingReader) {
    let words = (0..words.next_power_of_two()).map(|_| AtomicU64::new(0)).collect();
    let side = WriterSide { written: AtomicUsize::new(0), lost: AtomicU64::new(0), ended: AtomicBool::new(false) };
    let ring = Arc::new(Ring { words, writer: Padded(side), read: Padded(AtomicUsize::new(0)) });
    (RingWriter { ring: ring.clone(), written: 0, read: 0, lost: 0 }, RingReader { ring, read: 0, written: 0 })
}

impl RingWriter {
    /// Whether a record of `words` words would fit now. Reads only this thread's own data, unless
    /// there seems to be no room.
    #[inline]
    #[must_use]
    pub fn has_room(&mut self, words: usize) -> bool {
        let capacity = self.ring.words.len();
        if capacity - (self.written - self.read) > words {
            return true;
        }
        // Acquire: pairs with the release of the reader after its reads, so the words may be
        // overwritten.
        self.read = self.ring.read.0.load(Ordering::Acquire);
        capacity - (self.written - self.read) > words
    }

    /// Appends a record of `words` words that `fill` writes. A word that it does not write keeps
    /// its old value. Returns false, and counts the record as lost, if there is no room.
    #[inline]
    pub fn push(&mut self, words: usize, fill: impl FnOnce(&mut Record<'_>)) -> bool {
        if !self.has_room(words) {
            self.lose();
            return false;
        }
        // Relaxed: the store of `written` publishes them.
        self.ring.word(self.written).store(words as u64, Ordering::Relaxed);
        let mut record = Record { ring: &self.ring, next: self.written + 1, end: self.written + 1 + words };
        fill(&mut record);
        self.written += words + 1;
        // Release: a thread that sees the number sees the words.
        self.ring.writer.0.written.store(self.written, Ordering::Release);
        true
    }

    /// Counts a record as lost that was not even made.
    #[inline]
    pub fn lose(&mut self) {
        self.lost += 1;
        // Relaxed: a statistic.
        self.ring.writer.0.lost.store(self.lost, Ordering::Relaxed);
    }
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        // Release: a thread that sees the end sees all that was written.
        self.ring.writer.0.ended.store(true, Ordering::Release);
    }
}

/// A record that is being written.
pub struct Record<'a> {
    ring: &'a Ring,
    next: usize,
    end: usize,
}

impl std::fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record").field("words_left", &(self.end - self.next)).finish()
    }
}

impl Record<'_> {
    /// The next word.
    ///
    /// # Panics
    /// When the record is full.
    #[inline]
    pub fn word(&mut self, word: u64) {
        assert!(self.next < self.end, "the record is full");
        self.ring.word(self.next).store(word, Ordering::Relaxed);
        self.next += 1;
    }

    /// Some bytes, in as many words as they need ([`words_of`]). [`bytes_of`] reads them.
    ///
    /// # Panics
    /// When the record is full.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(word));
        }
    }
}

impl RingReader {
    /// Moves the words of the oldest record into `into`, which is cleared first. Returns false if
    /// there is no record.
    pub fn pop(&mut self, into: &mut Vec<u64>) -> bool {
        into.clear();
        if self.read == self.written {
            // Acquire: sees the words that it counts.
            self.written = self.ring.writer.0.written.load(Ordering::Acquire);
            if self.read == self.written {
                return false;
            }
        }
        let words = self.ring.word(self.read).load(Ordering::Relaxed) as usize;
        let from = self.read + 1;
        into.extend((from..from + words).map(|index| self.ring.word(index).load(Ordering::Relaxed)));
        self.read = from + words;
        // Release: the words have been read before the writer learns that it may overwrite them.
        self.ring.read.0.store(self.read, Ordering::Release);
        true
    }

    /// How many records were lost because there was no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.ring.writer.0.lost.load(Ordering::Relaxed)
    }

    /// Whether the writer has been dropped. If it has, and [`RingReader::pop`] then finds nothing,
    /// no more records will come.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ring.writer.0.ended.load(Ordering::Acquire)
    }
}

/// How many words [`Record::bytes`] needs.
#[inline]
#[must_use]
pub fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// The first `len` bytes that [`Record::bytes`] wrote.
///
/// # Panics
/// When `words` holds fewer.
#[must_use]
pub fn bytes_of(words: &[u64], len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = words[..words_of(len)].iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip() {
        let (mut writer, mut reader) = ring(64);
        let mut words = Vec::new();
        assert_eq!([0, 1, 8, 9].map(words_of), [0, 1, 1, 2]);
        for text in [&b""[..], b"a", b"12345678", b"123456789", &[0xff; 200]] {
            assert!(writer.push(1 + words_of(text.len()), |record| {
                record.word(text.len() as u64);
                record.bytes(text);
            }));
            assert!(reader.pop(&mut words));
            assert_eq!(bytes_of(&words[1..], words[0] as usize), text);
        }
        assert!(!reader.pop(&mut words));
        assert_eq!(reader.lost(), 0);
    }

    /// Seen to fail: a ring of exactly the requested number of words; no room for a record that
    /// just fits, when the writer has to read the reader's index.
    #[test]
    fn record_without_room_is_lost_and_counted() {
        let (mut writer, mut reader) = ring(5);
        let mut words = Vec::new();
        assert!(!writer.push(8, |_| unreachable!("it has no room")));
        for round in 0..100 {
            assert!(writer.push(2, |record| (0..2).for_each(|_| record.word(round))));
            assert!(writer.push(4, |record| (0..4).for_each(|_| record.word(round))));
            assert!(!writer.push(0, |_| unreachable!("it has no room")));
            assert_eq!(reader.lost(), 2 + 2 * round);
            writer.lose();
            assert!(reader.pop(&mut words));
            assert_eq!(words, [round; 2]);
            assert!(reader.pop(&mut words));
            assert_eq!(words, [round; 4]);
            assert!(!reader.pop(&mut words));
        }
        assert!(writer.push(7, |_| {}), "the whole ring is free, as the writer learns from the reader's index");
        assert!(!reader.has_ended());
        drop(writer);
        assert!(reader.has_ended());
    }

    #[test]
    #[should_panic(expected = "the record is full")]
    fn record_longer_than_declared_panics() {
        let (mut writer, _reader) = ring(8);
        writer.push(1, |record| record.bytes(b"123456789"));
    }

    #[test]
    fn two_threads_lose_only_counted_records() {
        const RECORDS: u64 = if cfg!(miri) { 1_000 } else { 100_000 };
        let (mut writer, mut reader) = ring(128);
        let writes = std::thread::spawn(move || {
            let pushed = |n: u64, writer: &mut RingWriter| {
                writer.push((n % 5) as usize, |record| (0..n % 5).for_each(|_| record.word(n)))
            };
            (0..RECORDS).filter(|&n| pushed(n, &mut writer)).collect::<Vec<_>>()
        });
        let (mut words, mut seen) = (Vec::new(), 0);
        let mut found = Vec::new();
        loop {
            let ended = reader.has_ended();
            while reader.pop(&mut words) {
                seen += 1;
                if let Some(&n) = words.first() {
                    assert_eq!(words, vec![n; (n % 5) as usize]);
                    found.push(n);
                }
            }
            if ended {
                break;
            }
            std::hint::spin_loop();
        }
        let pushed = writes.join().expect("ends");
        assert_eq!((pushed.len() as u64, reader.lost()), (seen, RECORDS - seen));
        assert_eq!(found, pushed.into_iter().filter(|n| n % 5 != 0).collect::<Vec<_>>());
    }
}

#[cfg(all(test, loom))]
mod loom_model;
