//! The simulated disk under the files: an arm that must move, and a list of the reads.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    time::{Duration, Instant},
};

/// One read, as the disk sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadAt {
    /// The file. To the model, each file is a disk of its own.
    pub(crate) node: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The size of the file: the distance of a full stroke.
    pub(crate) file_size: u64,
}

/// One arm. It stays where the last read ended; reads are taken in order of arrival.
#[derive(Debug)]
pub(crate) struct Disk {
    full_stroke: Duration,
    /// Node and offset.
    position: Option<(u64, u64)>,
}

impl Disk {
    pub(crate) fn new(full_stroke: Duration) -> Self {
        Self { full_stroke, position: None }
    }

    /// Moves the arm to `read`, and behind it. Returns the seek time: zero if the arm is there
    /// already, and the full stroke if it is at another file. Between these, the time grows with
    /// the square root of the distance, because an arm accelerates and brakes (Chris Ruemmler, John
    /// Wilkes, "An introduction to disk drive modeling", 1994).
    pub(crate) fn seek(&mut self, read: &ReadAt) -> Duration {
        let before = self.position.replace((read.node, read.offset.saturating_add(read.len)));
        match before {
            Some((node, offset)) if node == read.node => {
                let distance = offset.abs_diff(read.offset) as f64 / read.file_size.max(1) as f64;
                self.full_stroke.mul_f64(distance.clamp(0.0, 1.0).sqrt())
            }
            _ => self.full_stroke,
        }
    }
}

/// A list of reads, as CSV: `start_us,end_us,node,offset,bytes`. Times count from the first line.
#[derive(Debug)]
pub(crate) struct ReadTrace {
    out: BufWriter<File>,
    begun: Instant,
    failed: Option<io::Error>,
}

impl ReadTrace {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        writeln!(out, "start_us,end_us,node,offset,bytes")?;
        Ok(Self { out, begun: Instant::now(), failed: None })
    }

    /// Adds one read. An error is returned at the end: no read fails because of its trace.
    pub(crate) fn add(&mut self, start: Instant, end: Instant, read: &ReadAt) {
        let since = |instant: Instant| instant.saturating_duration_since(self.begun).as_micros();
        let ReadAt { node, offset, len, .. } = read;
        let line = format!("{},{},{node},{offset},{len}\n", since(start), since(end));
        if let Err(error) = self.out.write_all(line.as_bytes()) {
            self.failed.get_or_insert(error);
        }
    }

    /// Writes what is still in memory.
    ///
    /// # Errors
    /// The first one of all writes.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests;
