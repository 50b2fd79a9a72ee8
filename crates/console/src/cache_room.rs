//! How much memory the kernel's caches can still take before they evict entries.
//!
//! `MemAvailable` does not tell: it counts the contents of the caches as available, so it hardly
//! changes while they fill. The caches can grow into free memory, and into the memory of file
//! contents that were not used lately. The same holds for control groups, because inodes and names
//! count against their limits.

use std::{fs, path::PathBuf};

use crate::memory_limits::{self, Group, number};

/// The approximate size of an entry in the caches: its inode and its name. See the help of `pando
/// warm`.
pub const ENTRY_BYTES: u64 = 1536;

/// One part in this many stays free, in the machine and in each control group.
const RESERVE: u64 = 32;

/// Room in the caches, and the limit that bounds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// In bytes.
    pub bytes: u64,
    /// The limit.
    pub bound_by: String,
}

impl Room {
    /// The number of entries that fit.
    pub fn entries(&self) -> u64 {
        self.bytes / ENTRY_BYTES
    }
}

/// The sources to read. They do not change while the process runs.
#[derive(Debug)]
pub struct Memory {
    meminfo: PathBuf,
    groups: Vec<Group>,
}

impl Memory {
    /// The sources of this process.
    pub fn here() -> Self {
        Self { meminfo: "/proc/meminfo".into(), groups: memory_limits::groups() }
    }

    /// The room now: the smallest of the machine and the control groups. None if nothing is known.
    pub fn room(&self) -> Option<Room> {
        let machine = machine(&fs::read_to_string(&self.meminfo).unwrap_or_default());
        let groups = self.groups.iter().flat_map(rooms);
        machine.into_iter().chain(groups).min_by_key(|room| room.bytes)
    }
}

fn machine(meminfo: &str) -> Option<Room> {
    let kib = |name| number(meminfo, name);
    let (total, free) = (kib("MemTotal")?, kib("MemFree")?);
    let idle = kib("Inactive(file)").unwrap_or(0);
    let bytes = (free + idle).saturating_sub(total / RESERVE) * 1024;
    Some(Room { bytes, bound_by: "the machine's memory".into() })
}

/// The room below each limit of a group.
fn rooms(group: &Group) -> impl Iterator<Item = Room> {
    let used = group.used_bytes();
    group.limits().filter_map(move |limit| {
        let bytes = limit.bytes.saturating_sub(used?).saturating_sub(limit.bytes / RESERVE);
        Some(Room { bytes, bound_by: limit.set_by })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{memory_limits::groups_of, mountinfo};

    #[test]
    fn room_of_the_machine_is_free_and_idle_memory() {
        let meminfo = "MemTotal:        3200 kB\nMemFree:          500 kB\nMemAvailable:    3000 kB\n\
                       Inactive:         999 kB\nInactive(file):   200 kB\n";
        assert_eq!(machine(meminfo).map(|room| room.bytes), Some(600 * 1024));
        assert_eq!(machine("MemTotal: 3200 kB\nMemFree: 50 kB\n").map(|room| room.bytes), Some(0));
        assert_eq!(machine("nonsense"), None);
        assert!(Memory::here().room().is_some_and(|room| !room.bound_by.is_empty()), "there is a /proc here");
    }

    #[test]
    fn the_control_group_with_the_least_room_counts() {
        let temp = tempfile::tempdir().unwrap();
        let dir = |name: &str, files: &[(&str, &str)]| {
            let dir = temp.path().join(name);
            fs::create_dir_all(&dir).unwrap();
            files.iter().for_each(|(name, text)| fs::write(dir.join(name), text).unwrap());
        };
        let stat = "anon 5\ninactive_file 100\n";
        dir("", &[("memory.current", "0\n")]);
        dir("a", &[("memory.current", "4000\n"), ("memory.max", "6400\n"), ("memory.stat", stat)]);
        dir("a/b", &[("memory.current", "1000\n"), ("memory.max", "max\n"), ("memory.high", "3200\n")]);
        dir("memory/x", &[("memory.usage_in_bytes", "500\n"), ("memory.limit_in_bytes", "9223372036854771712\n")]);
        let meminfo = temp.path().join("meminfo");
        fs::write(&meminfo, "MemTotal: 1000000 kB\nMemFree: 900000 kB\n").unwrap();
        let top = temp.path().display();
        let table = format!(
            "30 23 0:26 / {top} rw - cgroup2 cgroup2 rw\n31 30 0:27 / {top}/memory rw - cgroup cgroup rw,memory\n"
        );
        let mounts = mountinfo::parse(table.as_bytes());
        let memory = |of_process| Memory { meminfo: meminfo.clone(), groups: groups_of(of_process, &mounts) };

        let room = memory("0::/a/b\n").room().unwrap();
        assert_eq!((room.bytes, room.entries()), (3200 - 1000 - 100, 1));
        assert!(room.bound_by.contains("memory.high of") && room.bound_by.ends_with("a/b"), "{room:?}");
        let room = memory("0::/a/unseen\n").room().unwrap();
        assert_eq!((room.bytes, room.bound_by.contains("memory.max")), (6400 - 3900 - 200, true));
        let room = memory("4:cpu,memory:/x\n0::/\n").room().unwrap();
        assert_eq!(room.bound_by, "the machine's memory");
    }
}
