//! Listings by the record stream of `pando ls`: many entries at once, with a thread pool where
//! calls are slow. And read-ahead, as `pando warm` does it.

use std::{hint::black_box, io, os::fd::OwnedFd, path::PathBuf, time::Duration};

use pando_scan::{Mask, Options, Scan, Warm, WarmEvent, WarmOptions};

use super::{Level, Listed, ReadAhead};

/// Lists an open directory.
pub(super) fn list(dir: OwnedFd, level: Level) -> io::Result<Listed> {
    let mask = Mask::level(level as u32).expect("a level is from 0 to 3");
    let options = Options::new().mask(mask);
    let mut scan = Scan::from_fd(dir, &options).map_err(io::Error::other)?;
    let mut listed = Listed::default();
    while let Some(batch) = scan.next_batch().map_err(io::Error::other)? {
        for record in batch.iter() {
            if let Some(errno) = record.errno() {
                return Err(io::Error::from_raw_os_error(errno));
            }
            listed.entries += 1;
            black_box(record.name());
            black_box(record.attr());
            listed.add_xattrs(record.xattrs().map(|xattr| xattr.value));
        }
    }
    Ok(listed)
}

/// Reads a directory's entries ahead, into the caches of the kernel.
pub(super) fn read_ahead(dir: PathBuf, level: Level) -> io::Result<Box<dyn ReadAhead>> {
    let options = WarmOptions::new().recursive(false).xattrs(level >= Level::XattrNames);
    Ok(Box::new(Warm::start(vec![dir], options)?))
}

impl ReadAhead for Warm {
    fn wait(self: Box<Self>) -> io::Result<()> {
        loop {
            match self.next_event(Duration::MAX) {
                WarmEvent::Failed(failure) => return Err(failure.error),
                WarmEvent::Nothing => {}
                WarmEvent::Ended => return Ok(()),
            }
        }
    }
}
