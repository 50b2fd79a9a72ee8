//! How much the kernel's caches can take before they push something out.
//!
//! `MemAvailable` does not tell: it counts what the caches hold as available, so it hardly moves while they fill. What
//! counts here is what they can grow into: free memory, and contents of files that were not used lately. The same goes
//! for control groups, whose limit the inodes and names count against.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What an entry takes in the caches, roughly: its inode and its name. See the help of `pando warm`.
pub const ENTRY_BYTES: u64 = 1536;

/// One part in so many is left alone, in the machine and in each control group.
const RESERVE: u64 = 32;

/// Room, and what bounds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// In bytes.
    pub bytes: u64,
    /// Which limit it is.
    pub bound_by: String,
}

impl Room {
    /// How many entries that is.
    pub fn entries(&self) -> u64 {
        self.bytes / ENTRY_BYTES
    }
}

/// Where to look; it does not change while we run.
#[derive(Debug)]
pub struct Memory {
    meminfo: PathBuf,
    groups: Vec<Group>,
}

/// A control group, and the names of its files.
#[derive(Debug)]
struct Group {
    dir: PathBuf,
    files: &'static Files,
}

#[derive(Debug)]
struct Files {
    limits: &'static [&'static str],
    current: &'static str,
    inactive: &'static str,
}

const V2: Files =
    Files { limits: &["memory.max", "memory.high"], current: "memory.current", inactive: "inactive_file" };
const V1: Files =
    Files { limits: &["memory.limit_in_bytes"], current: "memory.usage_in_bytes", inactive: "total_inactive_file" };

impl Memory {
    /// That of this process.
    pub fn here() -> Self {
        let of_process = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self { meminfo: "/proc/meminfo".into(), groups: groups(&of_process, Path::new("/sys/fs/cgroup")) }
    }

    /// The room there is now: the least of what the machine and the control groups have. None if nothing is known.
    pub fn room(&self) -> Option<Room> {
        let machine = machine(&fs::read_to_string(&self.meminfo).unwrap_or_default());
        let groups = self.groups.iter().flat_map(Group::rooms);
        machine.into_iter().chain(groups).min_by_key(|room| room.bytes)
    }
}

/// The groups that this process is in, with all those above. Groups that cannot be seen from here have no directory.
fn groups(of_process: &str, mounted: &Path) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in of_process.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (roots, files): (&[&str], &'static Files) = match controllers {
            "" => (&["", "unified"], &V2),
            _ if controllers.split(',').any(|controller| controller == "memory") => (&["memory"], &V1),
            _ => continue,
        };
        for root in roots {
            let root = mounted.join(root);
            let lowest = root.join(path.trim_start_matches('/'));
            let dirs = lowest.ancestors().take_while(|dir| dir.starts_with(&root));
            let seen = dirs.filter(|dir| dir.join(files.current).exists());
            groups.extend(seen.map(|dir| Group { dir: dir.to_owned(), files }));
        }
    }
    groups
}

/// A number after its name, as in `MemFree:  1234 kB` and `inactive_file 1234`.
fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
}

fn machine(meminfo: &str) -> Option<Room> {
    let kib = |name| number(meminfo, name);
    let (total, free) = (kib("MemTotal:")?, kib("MemFree:")?);
    let idle = kib("Inactive(file):").unwrap_or(0);
    let bytes = (free + idle).saturating_sub(total / RESERVE) * 1024;
    Some(Room { bytes, bound_by: "the machine's memory".into() })
}

impl Group {
    fn rooms(&self) -> impl Iterator<Item = Room> {
        let read = |name: &str| fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        let current = read(self.files.current).trim().parse::<u64>().ok();
        let idle = number(&read("memory.stat"), self.files.inactive).unwrap_or(0);
        self.files.limits.iter().filter_map(move |name| {
            // "max" is no limit.
            let limit = fs::read_to_string(self.dir.join(name)).ok()?.trim().parse::<u64>().ok()?;
            let used = current?.saturating_sub(idle);
            let bytes = limit.saturating_sub(used).saturating_sub(limit / RESERVE);
            Some(Room { bytes, bound_by: format!("{name} of {}", self.dir.display()) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_what_is_free_or_idle() {
        let meminfo = "MemTotal:        3200 kB\nMemFree:          500 kB\nMemAvailable:    3000 kB\n\
                       Inactive:         999 kB\nInactive(file):   200 kB\n";
        assert_eq!(machine(meminfo).map(|room| room.bytes), Some(600 * 1024));
        assert_eq!(machine("MemTotal: 3200 kB\nMemFree: 50 kB\n").map(|room| room.bytes), Some(0));
        assert_eq!(machine("nonsense"), None);
        assert!(Memory::here().room().is_some_and(|room| !room.bound_by.is_empty()), "there is a /proc here");
    }

    #[test]
    fn the_tightest_group_counts() {
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
        let memory = |of_process| Memory { meminfo: meminfo.clone(), groups: groups(of_process, temp.path()) };

        let room = memory("0::/a/b\n").room().unwrap();
        assert_eq!((room.bytes, room.entries()), (3200 - 1000 - 100, 1));
        assert!(room.bound_by.contains("memory.high of") && room.bound_by.ends_with("a/b"), "{room:?}");
        let room = memory("0::/a/unseen\n").room().unwrap();
        assert_eq!((room.bytes, room.bound_by.contains("memory.max")), (6400 - 3900 - 200, true));
        let room = memory("4:cpu,memory:/x\n0::/\n").room().unwrap();
        assert_eq!(room.bound_by, "the machine's memory");
    }
}
