//! What a tree in memory may use: pages and inodes, each under a quota that several threads charge at once.

use pando_sync::Quota;
use pando_vfs::{Error, Result, StatFs};

use crate::{MemOptions, PAGE_BYTES};

/// A rough price of an inode with its name, for showing how many would fit where only memory is the limit.
const INODE_BYTES: u64 = 1024;

/// The limits of one tree and what is used of them.
#[derive(Debug)]
pub(crate) struct Space {
    options: MemOptions,
    pages: Quota,
    inodes: Quota,
}

impl Space {
    pub(crate) fn new(options: MemOptions) -> Self {
        let pages = options.size_bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(PAGE_BYTES as u64));
        Self { options, pages: Quota::new(pages), inodes: Quota::new(options.inodes.unwrap_or(u64::MAX)) }
    }

    /// Puts the limits into the state that contention would bring about.
    pub(crate) fn spread(&self) {
        self.pages.spread();
        self.inodes.spread();
    }

    /// Pays for `pages`, all or none.
    pub(crate) fn charge(&self, pages: u64) -> Result<()> {
        self.pages.charge(pages).map_err(|_| Error::NoSpace)
    }

    pub(crate) fn release(&self, pages: u64) {
        if pages > 0 {
            self.pages.release(pages);
        }
    }

    pub(crate) fn used_pages(&self) -> u64 {
        self.pages.used()
    }

    /// Whether so many pages could ever be had: asked before a range is allocated, so that an absurd one fails at once
    /// and not after the machine's memory is used up.
    pub(crate) fn is_conceivable(&self, pages: u64) -> bool {
        let most = match self.options.size_bytes {
            Some(bytes) => bytes.div_ceil(PAGE_BYTES as u64),
            None => machine_memory().map_or(1 << 32, |memory| memory.total_bytes / PAGE_BYTES as u64),
        };
        pages <= most
    }

    pub(crate) fn charge_inode(&self) -> Result<()> {
        self.inodes.charge(1).map_err(|_| Error::NoSpace)
    }

    pub(crate) fn release_inode(&self) {
        self.inodes.release(1);
    }

    /// A limit that was given is shown; one that was not is shown as what is used and what the machine has left.
    pub(crate) fn statfs(&self) -> StatFs {
        let left_bytes = match self.options {
            MemOptions { size_bytes: Some(_), inodes: Some(_) } => 0,
            _ => machine_memory().map_or(0, |memory| memory.available_bytes),
        };
        let used = self.used_pages();
        let bfree = match self.options.size_bytes {
            Some(bytes) => bytes.div_ceil(PAGE_BYTES as u64).saturating_sub(used),
            None => left_bytes / PAGE_BYTES as u64,
        };
        let inodes = self.inodes.used();
        let ffree = match self.options.inodes {
            Some(limit) => limit.saturating_sub(inodes),
            None => left_bytes / INODE_BYTES,
        };
        StatFs {
            bsize: PAGE_BYTES as u32,
            blocks: used + bfree,
            bfree,
            bavail: bfree,
            files: inodes + ffree,
            ffree,
            namelen: 255,
        }
    }
}

struct Memory {
    total_bytes: u64,
    available_bytes: u64,
}

/// The machine's memory as the kernel tells it; none where it does not.
fn machine_memory() -> Option<Memory> {
    parse_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_meminfo(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(Memory { total_bytes: field("MemTotal:")?, available_bytes: field("MemAvailable:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read() {
        let memory = parse_meminfo("MemTotal:       16 kB\nMemFree: 1 kB\nMemAvailable:    8 kB\n").unwrap();
        assert_eq!((memory.total_bytes, memory.available_bytes), (16384, 8192));
        for bad in ["", "MemTotal: 1 kB\n", "MemTotal: x kB\nMemAvailable: 1 kB\n", "MemTotal: 1\nMemAvailable: 1\n"] {
            assert!(parse_meminfo(bad).is_none(), "{bad:?}");
        }
    }
}
