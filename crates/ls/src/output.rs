//! Standard output, in pieces that are large enough for a call.

pub mod failed;
pub mod interrupt;

use std::{
    io,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use self::interrupt::Restorer;

/// Half of what a pipe holds. A writer that fills the pipe waits until it is read, which costs more
/// than twice as many calls.
const FLUSH_BYTES: usize = 32 << 10;
/// Output is written after this time, however little it is.
const FLUSH_AFTER: Duration = Duration::from_millis(50);

/// A buffer for standard output.
pub struct Output {
    /// The buffer. All parts of the listing append to it.
    pub buffer: Vec<u8>,
    /// The number of bytes that were written and have left the buffer.
    pub flushed: u64,
    written: Instant,
    restorer: Option<Restorer>,
}

impl Output {
    /// An empty buffer. `restorer` is for a terminal and colours.
    pub fn new(restorer: Option<Restorer>) -> Self {
        Self { buffer: Vec::with_capacity(FLUSH_BYTES + (16 << 10)), flushed: 0, written: Instant::now(), restorer }
    }

    /// Writes if there is enough for a call.
    ///
    /// # Errors
    /// As write(2) on standard output.
    pub fn flush_if_full(&mut self) -> io::Result<()> {
        if self.buffer.len() >= FLUSH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes if there is enough for a call, or if it is time.
    ///
    /// # Errors
    /// As write(2) on standard output.
    pub fn flush_if_due(&mut self) -> io::Result<()> {
        if self.buffer.len() >= FLUSH_BYTES || self.written.elapsed() >= FLUSH_AFTER { self.flush() } else { Ok(()) }
    }

    /// Writes all.
    ///
    /// # Errors
    /// As write(2) on standard output.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut rest = self.buffer.as_slice();
        while !rest.is_empty() {
            let written = match &self.restorer {
                Some(restorer) => restorer.write(rest),
                None => rustix::io::write(rustix::stdio::stdout(), rest),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        self.written = Instant::now();
        Ok(())
    }
}
