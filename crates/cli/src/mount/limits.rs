//! How large a mounted tree may grow: the default limits, and a warning if given limits exceed the
//! memory.
//!
//! A tree that is full to both default limits fits, with everything else that its server needs,
//! into the memory that the server may use. Otherwise the kernel would kill the server before a
//! program gets ENOSPC, and all files would be lost.

use pando_console::memory_limits::{self, Limit};
use pando_memfs::MemOptions;
use pando_vfs::VfsOptions;
use rustix::process::{Resource, Rlimit};

/// The server of an empty tree, and the kernel's memory for it.
const SERVER_BYTES: u64 = 16 << 20;

/// A thread of the server: its buffers (four of 1.1 MiB through io_uring), its stack, and memory
/// that it keeps for reuse.
const THREAD_BYTES: u64 = 6 << 20;

/// Retired memory that waits for readers. docs/semantics.md has the limits.
const RETIRED_BYTES: u64 = 64 << 20;

/// The most that 4096 bytes of the size limit cost: a page, and the index down to it if it is alone
/// in 256 KiB of its file (measured: 6.1 KB).
const PAGE_COST: u64 = 6272;

/// The most that one inode of the limit costs: one that is charged for many small extended
/// attributes (measured: 2.1 KB; a directory with the longest name costs 0.8 KB).
const INODE_COST: u64 = 2176;

/// The least that an inode of the limit costs.
const EMPTY_FILE_BYTES: u64 = 256;

/// Room in the cache for an inode of the source with a few extended attributes.
const CACHED_INODE_BYTES: usize = 2 << 10;

/// A smaller cache would be of little use.
const LEAST_CACHED_INODES: usize = 10_000;

/// A smaller limit would be of no use.
const LEAST_BYTES: u64 = 1 << 20;
const LEAST_INODES: u64 = 1024;

/// The memory that is assumed if `/proc` is missing: that of a small machine.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// The limits of a tree whose server has `threads` threads. Given limits are kept. The default size
/// is half of the memory that the server leaves, and the default number of inodes fits into the
/// rest.
pub fn choose(asked: MemOptions, threads: usize, memory: Option<&Limit>) -> MemOptions {
    let limit = memory.map_or(UNKNOWN_BYTES, |memory| memory.bytes);
    // With little memory or many cores, the largest need of the server would leave nothing. The
    // server rarely needs that much.
    let usable = limit.saturating_sub(server_bytes(threads) + RETIRED_BYTES).max(limit / 4);
    let half = usable / 2;
    let size_bytes = asked.size_bytes.unwrap_or_else(|| {
        let left = asked.inodes.map_or(usable, |inodes| usable.saturating_sub(inodes.saturating_mul(INODE_COST)));
        half.min(left / PAGE_COST * 4096).max(LEAST_BYTES)
    });
    let inodes = asked.inodes.unwrap_or_else(|| {
        let for_data = u128::from(size_bytes) * u128::from(PAGE_COST) / 4096;
        let left = u64::try_from(u128::from(usable).saturating_sub(for_data)).unwrap_or(0);
        (left / INODE_COST).max(LEAST_INODES)
    });
    MemOptions::new().size_bytes(size_bytes).inodes(inodes)
}

/// The limits of the inode cache of a source, in inodes and in bytes. The default is an eighth of
/// the memory.
pub fn inode_cache(asked: Option<usize>, memory: Option<&Limit>) -> (usize, usize) {
    let bytes = |inodes: usize| inodes.saturating_mul(CACHED_INODE_BYTES);
    match asked {
        Some(inodes) => (inodes, bytes(inodes).max(VfsOptions::new().cached_bytes)),
        None => {
            let eighth = memory.map_or(UNKNOWN_BYTES, |memory| memory.bytes) / 8;
            let inodes = usize::try_from(eighth).unwrap_or(usize::MAX) / CACHED_INODE_BYTES;
            let inodes = inodes.max(LEAST_CACHED_INODES);
            (inodes, bytes(inodes))
        }
    }
}

/// Allows this process as many descriptors as it may have. Returns how many it is allowed.
pub fn raise_descriptors() -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let limit = rustix::process::getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The warning if a control group allows less than the given limits.
pub fn warning(asked: MemOptions, threads: usize, memory: Option<&Limit>) -> Option<String> {
    let memory = memory.filter(|memory| memory.is_of_group)?;
    let of_inodes = asked.inodes.unwrap_or(0).saturating_mul(EMPTY_FILE_BYTES);
    let tree = asked.size_bytes.unwrap_or(0).saturating_add(of_inodes);
    let option = if asked.size_bytes.is_some_and(|bytes| bytes >= of_inodes) { "size" } else { "inodes" };
    if tree == 0 || tree.saturating_add(server_bytes(threads)) <= memory.bytes {
        return None;
    }
    let fits = choose(MemOptions::default(), threads, Some(memory));
    let least = match option {
        "size" => format!("{}M", fits.size_bytes.unwrap_or_default() >> 20),
        _ => fits.inodes.unwrap_or_default().to_string(),
    };
    Some(format!(
        "--{option} allows more than the {} MiB of {}:\n  the kernel may kill the server before the tree is full, and all \
         files would be lost\n  omit --{option} (it is {least} then), or raise that limit",
        memory.bytes >> 20,
        memory.set_by,
    ))
}

fn server_bytes(threads: usize) -> u64 {
    SERVER_BYTES + THREAD_BYTES.saturating_mul(threads as u64)
}

/// `percent` of the memory that this process may use.
pub fn percentage(percent: u64) -> Option<u64> {
    let memory = memory_limits::smallest()?;
    u64::try_from(u128::from(memory.bytes) * u128::from(percent) / 100).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(mib: u64) -> Limit {
        Limit { bytes: mib << 20, set_by: "memory.max of /box".into(), is_of_group: true }
    }

    fn chosen(size_bytes: Option<u64>, inodes: Option<u64>, mib: u64, threads: usize) -> (u64, u64) {
        let chosen = choose(MemOptions::new().size_bytes(size_bytes).inodes(inodes), threads, Some(&limit(mib)));
        (chosen.size_bytes.unwrap(), chosen.inodes.unwrap())
    }

    #[test]
    fn both_defaults_fit_at_once() {
        for (mib, threads) in [(192, 1), (256, 2), (1024, 8), (4096, 64), (24 << 10, 2), (1 << 20, 256)] {
            let (size, inodes) = chosen(None, None, mib, threads);
            let needed = size / 4096 * PAGE_COST + inodes * INODE_COST + server_bytes(threads);
            assert!(needed <= mib << 20, "{mib} MiB: {size}, {inodes}");
            assert!(
                size > (mib << 20) / 5 && size <= (mib << 20) / 2 && inodes > size / 8192,
                "{mib} MiB: {size}, {inodes}"
            );
        }
        // With little memory.
        for (mib, threads) in [(16, 1), (64, 2), (256, 64)] {
            let (size, inodes) = chosen(None, None, mib, threads);
            assert!(size >= 1 << 20 && size <= (mib << 20) / 8 && inodes >= 1024, "{mib} MiB: {size}, {inodes}");
        }
        assert!(choose(MemOptions::default(), 2, None).size_bytes.is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn an_inode_cache_fits_into_an_eighth_of_the_memory() {
        assert_eq!(inode_cache(None, Some(&limit(24 << 10))), (24 << 16, 3 << 30));
        assert_eq!(inode_cache(None, Some(&limit(1 << 10))), (1 << 16, 128 << 20));
        assert_eq!(inode_cache(None, Some(&limit(1))), (10_000, 10_000 << 11), "the least");
        assert!(inode_cache(None, None).0 >= 10_000);
        assert_eq!(inode_cache(Some(7), Some(&limit(1))), (7, 256 << 20), "as given");
        assert_eq!(inode_cache(Some(1_000_000), None), (1_000_000, 1_000_000 << 11));
    }

    #[test]
    fn the_other_default_shrinks_with_a_given_limit() {
        let (size, inodes) = chosen(None, None, 1024, 2);
        assert!(chosen(Some(1 << 20), None, 1024, 2).1 > inodes);
        assert!(chosen(None, Some(inodes * 2), 1024, 2).0 < size);
        assert_eq!(chosen(None, Some(10), 1024, 2).0, (1024 - 92) << 19, "half of the memory beside the server");
        assert_eq!(chosen(Some(u64::MAX), None, 1024, 2), (u64::MAX, 1024));
        assert_eq!(chosen(None, Some(u64::MAX), 1024, 2), (1 << 20, u64::MAX));
    }

    #[test]
    fn limits_above_those_of_a_control_group_are_warned_of() {
        let warned = |size_bytes, inodes, memory| {
            warning(MemOptions::new().size_bytes(size_bytes).inodes(inodes), 2, Some(&memory))
        };
        let machine = Limit { is_of_group: false, ..limit(256) };
        for (size, inodes) in [(None, None), (Some(200 << 20), None), (Some(100 << 20), Some(100_000))] {
            assert_eq!(warned(size, inodes, limit(256)), None, "{size:?}, {inodes:?}");
        }
        assert_eq!(warned(Some(1 << 30), None, machine), None);
        let size = warned(Some(1 << 30), None, limit(256)).unwrap();
        assert!(
            size.contains("--size") && size.contains("256 MiB of memory.max of /box") && size.contains("82M"),
            "{size}"
        );
        let inodes = warned(Some(1), Some(1 << 40), limit(256)).unwrap();
        assert!(inodes.contains("omit --inodes (it is 18522 then)"), "{inodes}");
    }
}
