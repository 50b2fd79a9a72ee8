//! The disk that files lie on: an arm that has to move, and a list of where it was.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    time::{Duration, Instant},
};

/// One read, as the disk sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadAt {
    /// Which file: to the disk, each is a disk of its own.
    pub(crate) node: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// How large the file is: the way from one end to the other.
    pub(crate) file_size: u64,
}

/// One arm. It is where the last read ended, in order of arrival.
#[derive(Debug)]
pub(crate) struct Disk {
    full_stroke: Duration,
    at: Option<(u64, u64)>,
}

impl Disk {
    pub(crate) fn new(full_stroke: Duration) -> Self {
        Self { full_stroke, at: None }
    }

    /// How long the arm needs to get to `read`; it is behind it then. Nothing if it is there already, the full stroke
    /// to another file, and in between the square root of the part of the way: arms speed up and slow down (Chris
    /// Ruemmler, John Wilkes, "An introduction to disk drive modeling", 1994).
    pub(crate) fn seek(&mut self, read: &ReadAt) -> Duration {
        let before = self.at.replace((read.node, read.offset.saturating_add(read.len)));
        match before {
            Some((node, at)) if node == read.node => {
                let way = at.abs_diff(read.offset) as f64 / read.file_size.max(1) as f64;
                self.full_stroke.mul_f64(way.clamp(0.0, 1.0).sqrt())
            }
            _ => self.full_stroke,
        }
    }
}

/// A list of reads, as CSV: `start_us,end_us,node,offset,bytes`, times since the list was begun.
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

    /// Adds one. What fails is said at the end: a read does not fail for its trace.
    pub(crate) fn add(&mut self, start: Instant, end: Instant, read: &ReadAt) {
        let since = |instant: Instant| instant.saturating_duration_since(self.begun).as_micros();
        let ReadAt { node, offset, len, .. } = read;
        let line = format!("{},{},{node},{offset},{len}\n", since(start), since(end));
        if let Err(error) = self.out.write_all(line.as_bytes()) {
            self.failed.get_or_insert(error);
        }
    }

    /// Writes what is still in memory.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(node: u64, offset: u64, len: u64) -> ReadAt {
        ReadAt { node, offset, len, file_size: 1_000_000 }
    }

    #[test]
    fn the_arm_needs_longer_for_a_longer_way() {
        let mut disk = Disk::new(Duration::from_millis(8));
        assert_eq!(disk.seek(&read(1, 0, 1000)).as_micros(), 8000, "from elsewhere");
        assert_eq!(disk.seek(&read(1, 1000, 4000)).as_micros(), 0, "right behind");
        assert_eq!(disk.seek(&read(1, 255_000, 5000)).as_micros(), 4000, "a quarter of the way, half of the time");
        assert_eq!(disk.seek(&read(1, 250_000, 10_000)).as_micros(), 800, "backwards too");
        assert_eq!(disk.seek(&read(2, 260_000, 1)).as_micros(), 8000);
        let beyond = ReadAt { node: 2, offset: u64::MAX, len: u64::MAX, file_size: 0 };
        assert_eq!(disk.seek(&beyond).as_micros(), 8000, "nonsense is no further than the full stroke");
    }
}
