//! How large a mounted tree may grow: its default limits, and whether limits that were asked for can be held.
//!
//! A tree that is full to both of its default limits stays, with everything else that its server needs, below the memory that
//! the server may use. Otherwise the kernel would kill the server before a program is told ENOSPC, and all files would be lost.

use pando_console::memory_limits::{self, Limit};
use pando_memfs::MemOptions;

/// The server of an empty tree, and what the kernel keeps for it.
const SERVER_BYTES: u64 = 16 << 20;

/// A thread of the server: its buffers (through io_uring four of 1.1 MiB), its stack, and memory that it keeps for reuse.
const THREAD_BYTES: u64 = 6 << 20;

/// What was removed and waits for readers: docs/semantics.md has the limits.
const RETIRED_BYTES: u64 = 64 << 20;

/// What 4096 bytes of the size limit take at most: the page, and what leads to it if it is alone in 256 KiB of its file
/// (measured: 6.1 KB).
const PAGE_COST: u64 = 6272;

/// What one inode of the limit takes at most: one that is paid for by many small extended attributes (measured: 2.1 KB;
/// a directory with the longest name takes 0.8 KB).
const INODE_COST: u64 = 2176;

/// The least that an inode of the limit takes.
const EMPTY_FILE_BYTES: u64 = 256;

/// A limit below this would be of no use.
const LEAST: MemOptions = MemOptions { size_bytes: Some(1 << 20), inodes: Some(1024) };

/// What the kernel cannot know if `/proc` is missing: a small machine.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// The limits of a tree whose server has so many threads. Each that was asked for is obeyed. The default of the size is half of
/// what the server leaves, and that of inodes is what then remains for them.
pub fn choose(asked: MemOptions, threads: usize, memory: Option<&Limit>) -> MemOptions {
    let limit = memory.map_or(UNKNOWN_BYTES, |memory| memory.bytes);
    // With little memory, or many processors, what the server needs at most would leave nothing; it hardly ever does.
    let usable = limit.saturating_sub(server_bytes(threads) + RETIRED_BYTES).max(limit / 4);
    let half = usable / 2;
    let size_bytes = asked.size_bytes.unwrap_or_else(|| {
        let left = asked.inodes.map_or(usable, |inodes| usable.saturating_sub(inodes.saturating_mul(INODE_COST)));
        half.min(left / PAGE_COST * 4096).max(LEAST.size_bytes.unwrap_or_default())
    });
    let inodes = asked.inodes.unwrap_or_else(|| {
        let for_data = u128::from(size_bytes) * u128::from(PAGE_COST) / 4096;
        let left = u64::try_from(u128::from(usable).saturating_sub(for_data)).unwrap_or(0);
        (left / INODE_COST).max(LEAST.inodes.unwrap_or_default())
    });
    MemOptions { size_bytes: Some(size_bytes), inodes: Some(inodes) }
}

/// What to say where a control group allows less than was asked for.
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
         files would be lost\n  leave --{option} away (it is {least} then), or raise that limit",
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
        let chosen = choose(MemOptions { size_bytes, inodes }, threads, Some(&limit(mib)));
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
        // With less memory than is good.
        for (mib, threads) in [(16, 1), (64, 2), (256, 64)] {
            let (size, inodes) = chosen(None, None, mib, threads);
            assert!(size >= 1 << 20 && size <= (mib << 20) / 8 && inodes >= 1024, "{mib} MiB: {size}, {inodes}");
        }
        assert!(choose(MemOptions::default(), 2, None).size_bytes.is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn one_default_leaves_room_for_what_was_asked() {
        let (size, inodes) = chosen(None, None, 1024, 2);
        assert!(chosen(Some(1 << 20), None, 1024, 2).1 > inodes);
        assert!(chosen(None, Some(inodes * 2), 1024, 2).0 < size);
        assert_eq!(chosen(None, Some(10), 1024, 2).0, (1024 - 92) << 19, "half of what the server leaves");
        assert_eq!(chosen(Some(u64::MAX), None, 1024, 2), (u64::MAX, 1024));
        assert_eq!(chosen(None, Some(u64::MAX), 1024, 2), (1 << 20, u64::MAX));
    }

    #[test]
    fn limits_that_a_group_does_not_allow_are_warned_of() {
        let warned = |size_bytes, inodes, memory| warning(MemOptions { size_bytes, inodes }, 2, Some(&memory));
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
        assert!(inodes.contains("leave --inodes away (it is 18522 then)"), "{inodes}");
    }
}
