//! The encoding of a record in the words of a ring.
//!
//! ```text
//! an operation   head: op, errno, places    start    end    place ...
//! a base         head: BASE                 a place: which base, and its path
//! a place        what it is, which base, length in bytes; then the bytes
//! ```
//!
//! A *base* is the rendered path of a directory. A thread numbers its bases, up to [`BASES`], and
//! places refer to these numbers.

use std::time::Duration;

use pando_sync::ring::{Record, RingWriter, bytes_of, words_of};
use quanta::Clock;

use super::{Event, TraceOp};
use crate::{Error, PATH_MAX};

/// The number of directories whose paths a thread keeps.
pub(super) const BASES: usize = 16;

/// The head's operation code for a base.
const BASE: u64 = 0xff;

const ERRNO_SHIFT: u32 = 8;
const PLACES_SHIFT: u32 = 32;
const NUMBER_SHIFT: u32 = 8;
const LENGTH_SHIFT: u32 = 32;

/// The kind of a place: a path below a base.
const BELOW: u64 = 0;
/// The kind of a place: whole bytes.
const WHOLE: u64 = 1;

/// A place, as it is recorded.
pub(super) enum RecordedPlace<'a> {
    /// A path below the directory of this number.
    Below(usize, &'a [u8]),
    /// A whole path, rendered for this operation alone.
    Rendered(Vec<u8>),
    /// Bytes that are no path of this tree.
    Text(&'a [u8]),
}

impl RecordedPlace<'_> {
    fn bytes(&self) -> &[u8] {
        let bytes = match self {
            Self::Below(_, bytes) | Self::Text(bytes) => bytes,
            Self::Rendered(bytes) => &bytes[..],
        };
        // Longer paths are refused anyway, and their ends contain nothing of interest.
        &bytes[..bytes.len().min(PATH_MAX)]
    }

    #[inline]
    fn words(&self) -> usize {
        1 + words_of(self.bytes().len())
    }

    #[inline]
    fn write(&self, record: &mut Record<'_>) {
        let (kind, number) = if let Self::Below(number, _) = self { (BELOW, *number as u64) } else { (WHOLE, 0) };
        let bytes = self.bytes();
        record.word(kind | number << NUMBER_SHIFT | (bytes.len() as u64) << LENGTH_SHIFT);
        record.bytes(bytes);
    }
}

/// Writes the record of an operation.
#[inline]
pub(super) fn write_op(
    ring: &mut RingWriter,
    op: TraceOp,
    error: Option<Error>,
    (start, end): (u64, u64),
    first: &RecordedPlace<'_>,
    second: Option<&RecordedPlace<'_>>,
) {
    let errno = error.map_or(0, Error::errno).unsigned_abs();
    let places = 1 + u64::from(second.is_some());
    let words = 3 + first.words() + second.map_or(0, RecordedPlace::words);
    ring.push(words, |record| {
        record.word(u64::from(op.index()) | u64::from(errno) << ERRNO_SHIFT | places << PLACES_SHIFT);
        record.word(start);
        record.word(end);
        first.write(record);
        if let Some(second) = second {
            second.write(record);
        }
    });
}

/// Writes the path of a base, which the number refers to from now on. False if there is no space;
/// the operation that needed it is lost then.
pub(super) fn write_base(ring: &mut RingWriter, number: usize, path: &[u8]) -> bool {
    let place = RecordedPlace::Below(number, path);
    ring.push(1 + place.words(), |record| {
        record.word(BASE);
        place.write(record);
    })
}

/// The bases of one thread, as its reader knows them.
#[derive(Default)]
pub(super) struct Bases([Vec<u8>; BASES]);

impl Bases {
    /// Decodes a record. None for a base, which is stored.
    pub(super) fn decode(&mut self, words: &[u64], clock: &Clock, began: u64, thread: u32) -> Option<Event> {
        let head = words[0];
        if head & 0xff == BASE {
            let (place, _) = DecodedPlace::read(&words[1..]);
            self.0[place.number] = place.bytes;
            return None;
        }
        let (first, rest) = DecodedPlace::read(&words[3..]);
        let second = (head >> PLACES_SHIFT > 1).then(|| DecodedPlace::read(rest).0);
        let errno = (head >> ERRNO_SHIFT) as u16;
        let nanos = |from, to| Duration::from_nanos(clock.delta_as_nanos(from, to));
        Some(Event {
            op: TraceOp::from_index(head as u8)?,
            start: nanos(began, words[1]),
            latency: nanos(words[1], words[2]),
            error: (errno != 0).then(|| Error::from_errno(errno.into())),
            path: self.path(first),
            second: second.map(|place| self.path(place)),
            thread,
        })
    }

    fn path(&self, place: DecodedPlace) -> Vec<u8> {
        if place.whole {
            return place.bytes;
        }
        let mut path = self.0[place.number].clone();
        let below = &place.bytes[place.bytes.iter().take_while(|byte| **byte == b'/').count()..];
        if !below.is_empty() {
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(below);
        }
        path
    }
}

struct DecodedPlace {
    whole: bool,
    number: usize,
    bytes: Vec<u8>,
}

impl DecodedPlace {
    /// Decodes the first place in `words`, and returns the words after it.
    fn read(words: &[u64]) -> (Self, &[u64]) {
        let (head, words) = (words[0], &words[1..]);
        let len = (head >> LENGTH_SHIFT) as usize;
        let number = (head >> NUMBER_SHIFT) as u8;
        let place = Self { whole: head & 0xff == WHOLE, number: number.into(), bytes: bytes_of(words, len) };
        (place, &words[words_of(len)..])
    }
}
