//! The bytes of a stream, as many at a time as a parser needs.

use std::io::{self, Read};

/// How many bytes are asked for at least.
const PART_BYTES: usize = 64 << 10;

/// A stream, and those of its bytes that have been read and not used.
pub(super) struct Input<R> {
    from: R,
    buffer: Vec<u8>,
    /// The part of the buffer with bytes.
    start: usize,
    end: usize,
}

impl<R: Read> Input<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, buffer: Vec::new(), start: 0, end: 0 }
    }

    /// The bytes that have been read and not used.
    pub(super) fn unused(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads until there are `count` bytes or more. False if the stream ends before. Nothing waits
    /// for more bytes than these.
    pub(super) fn fill(&mut self, count: usize) -> io::Result<bool> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let room = count.max(PART_BYTES);
        if self.buffer.len() < room {
            self.buffer.resize(room, 0);
        }
        while self.end < count {
            match self.from.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Uses up the first `count` of [`Input::unused`].
    pub(super) fn consume(&mut self, count: usize) {
        self.start = self.end.min(self.start + count);
    }

    /// Leaves out the next `count` bytes.
    ///
    /// # Errors
    /// `UnexpectedEof`, and those of the stream.
    pub(super) fn skip(&mut self, count: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.by_ref().take(count), &mut io::sink())?;
        if skipped < count { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unused().is_empty() {
            return self.from.read(buffer);
        }
        let count = self.unused().read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}
