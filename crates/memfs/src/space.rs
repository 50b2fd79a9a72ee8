//! The space of a tree in memory: pages and inodes, each with a quota that several threads charge
//! concurrently.
//!
//! Links and extended attributes are charged as inodes, and long targets of symbolic links as
//! pages. The prices are those of Linux's tmpfs, so that `df -i` and ENOSPC agree with it.

use pando_sync::Quota;
use pando_vfs::{Charge, Error, Result, StatFs};

use crate::{MemOptions, PAGE_BYTES};

/// The price of an inode with its name, and of a hard link: the maximum that they occupy, rounded
/// up.
pub const INODE_BYTES: u64 = 1024;
/// The price of an extended attribute, besides its name and value.
const XATTR_BYTES: u64 = 40;
/// A shorter target of a symbolic link costs nothing beyond the inode. Others cost a page.
const TARGET_PAGE: usize = 128;

/// The limits and the usage of one tree.
#[derive(Debug)]
pub(crate) struct Space {
    options: MemOptions,
    pages: Quota,
    /// In bytes: [`INODE_BYTES`] for each inode of the limit.
    inode_bytes: Quota,
}

impl Space {
    pub(crate) fn new(options: MemOptions) -> Self {
        let pages = options.size_bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(PAGE_BYTES as u64));
        let inode_bytes = options.inodes.map_or(u64::MAX, |inodes| inodes.saturating_mul(INODE_BYTES));
        Self { options, pages: Quota::new(pages), inode_bytes: Quota::new(inode_bytes) }
    }

    /// Brings the limits into the state that contention would cause.
    #[cfg(feature = "introspection")]
    pub(crate) fn spread(&self) {
        self.pages.spread();
        self.inode_bytes.spread();
    }

    /// Charges `pages`, all or none.
    pub(crate) fn charge_pages(&self, pages: u64) -> Result<()> {
        self.pages.charge(pages).map_err(|_| Error::NoSpace)
    }

    pub(crate) fn release_pages(&self, pages: u64) {
        if pages > 0 {
            self.pages.release(pages);
        }
    }

    pub(crate) fn used_pages(&self) -> u64 {
        self.pages.used()
    }

    /// Whether this many pages could ever be available. Checked before a range is allocated, so
    /// that an impossible allocation fails at once and does not first use up the machine's memory.
    pub(crate) fn is_conceivable(&self, pages: u64) -> bool {
        let most = match self.options.size_bytes {
            Some(bytes) => bytes.div_ceil(PAGE_BYTES as u64),
            None => machine_memory().map_or(1 << 32, |memory| memory.total_bytes / PAGE_BYTES as u64),
        };
        pages <= most
    }

    #[inline]
    pub(crate) fn charge(&self, what: Charge) -> Result<()> {
        match what {
            Charge::Target(bytes) if bytes < TARGET_PAGE => Ok(()),
            Charge::Target(_) => self.charge_pages(1),
            _ => self.inode_bytes.charge(inode_bytes(what)).map_err(|_| Error::NoSpace),
        }
    }

    #[inline]
    pub(crate) fn release(&self, what: Charge) {
        match what {
            Charge::Target(bytes) => self.release_pages(u64::from(bytes >= TARGET_PAGE)),
            _ => self.inode_bytes.release(inode_bytes(what)),
        }
    }

    /// Shows a configured limit as it is. Without a limit, shows the usage and the machine's
    /// available memory.
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
        // A partly used inode counts as used.
        let inodes = self.inode_bytes.used().div_ceil(INODE_BYTES);
        let ffree = match self.options.inodes {
            Some(limit) => limit.saturating_sub(inodes),
            None => left_bytes / INODE_BYTES,
        };
        StatFs::new(PAGE_BYTES as u32).blocks(used + bfree, bfree).inodes(inodes + ffree, ffree)
    }
}

/// The bytes that are charged as inodes.
fn inode_bytes(what: Charge) -> u64 {
    match what {
        Charge::Inode | Charge::Link => INODE_BYTES,
        Charge::Xattr(bytes) => XATTR_BYTES + bytes as u64,
        _ => 0,
    }
}

struct Memory {
    total_bytes: u64,
    available_bytes: u64,
}

/// The machine's memory from `/proc/meminfo`. `None` if the kernel does not report it.
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
