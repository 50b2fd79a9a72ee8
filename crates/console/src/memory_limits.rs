//! The memory that this process may use: that of the machine, and the limits of its control groups
//! and all groups above them (cgroups(7); Documentation/admin-guide/cgroup-v2.rst and
//! cgroup-v1/memory.rst).
//!
//! `/proc/self/cgroup` names the group in each hierarchy. `/proc/self/mountinfo` has the mount
//! point of a hierarchy, and its group at the mount point. In a container that may be the
//! container's own group, and the groups above it are not visible.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use crate::{
    mountinfo::{self, Mount},
    quote::for_shell,
};

/// A limit and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// In bytes.
    pub bytes: u64,
    /// The origin, as in `memory.max of /sys/fs/cgroup/box`.
    pub set_by: String,
    /// Whether it is the limit of a control group, which the kernel enforces by killing processes.
    pub is_of_group: bool,
}

/// A control group, and the names of its files.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
    files: &'static Files,
}

#[derive(Debug)]
struct Files {
    limits: &'static [&'static str],
    current: &'static str,
    inactive: &'static str,
    droppable: &'static [&'static str],
}

const V2: Files = Files {
    limits: &["memory.max", "memory.high"],
    current: "memory.current",
    inactive: "inactive_file",
    droppable: &["inactive_file", "active_file", "slab_reclaimable"],
};
const V1: Files = Files {
    limits: &["memory.limit_in_bytes"],
    current: "memory.usage_in_bytes",
    inactive: "total_inactive_file",
    droppable: &["total_inactive_file", "total_active_file"],
};

/// A line in `memory.stat` of version 1: the smallest limit of the group and all groups above, even
/// those that are not visible from here.
const OF_ALL_ABOVE: &str = "hierarchical_memory_limit";

/// The smallest limit of this process. None if nothing is known, not even the memory of the
/// machine.
pub fn smallest() -> Option<Limit> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| number(&text, "MemTotal"));
    let machine = machine.map(|kib| Limit {
        bytes: kib.saturating_mul(1024),
        set_by: "the machine's memory".into(),
        is_of_group: false,
    });
    machine.into_iter().chain(groups().iter().flat_map(Group::limits)).min_by_key(|limit| limit.bytes)
}

/// The control groups of this process.
pub fn groups() -> Vec<Group> {
    let of_process = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups_of(&of_process, &mountinfo::all().unwrap_or_default())
}

/// The control groups of a process, from its `/proc/PID/cgroup` and the mount table. Within a
/// hierarchy the lowest group comes first.
pub fn groups_of(of_process: &str, mounts: &[Mount]) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in of_process.lines() {
        // `number:controllers:path`; version 2 names no controllers.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (kind, files): (_, &'static Files) = match controllers {
            "" => ("cgroup2", &V2),
            _ if controllers.split(',').any(|controller| controller == "memory") => ("cgroup", &V1),
            _ => continue,
        };
        let is_it = |mount: &&Mount| mount.kind == kind && (kind == "cgroup2" || mount.has_of_superblock("memory"));
        let Some(mount) = mounts.iter().rev().find(is_it) else { continue };
        let Some(rest) = below(Path::new(path), &mount.root) else { continue };
        let lowest = mount.point.join(rest);
        let dirs = lowest.ancestors().take_while(|dir| dir.starts_with(&mount.point));
        let dirs = dirs.filter(|dir| dir.join(files.current).exists());
        // Collecting the components drops the slash that joining an empty path leaves.
        groups.extend(dirs.map(|dir| Group { dir: dir.components().collect(), files }));
    }
    groups
}

/// The path from `root`, the group at the mount point, down to `group`. None if `group` is not
/// below `root`. A root above this process's namespace (`/../..`) only tells that the group is
/// somewhere below it.
fn below<'a>(group: &'a Path, root: &Path) -> Option<&'a Path> {
    let is_above = |path: &Path| path.components().any(|part| part == Component::ParentDir);
    match (is_above(group), is_above(root)) {
        (false, true) => Some(Path::new("")),
        (false, false) => group.strip_prefix(root).ok(),
        (true, _) => None,
    }
}

impl Group {
    /// Its limits. `max`, which is no limit, is left out.
    pub fn limits(&self) -> impl Iterator<Item = Limit> {
        let own = |name: &&str| Some(self.limit(self.read(name).trim().parse().ok()?, name));
        let above = number(&self.read("memory.stat"), OF_ALL_ABOVE).map(|bytes| self.limit(bytes, OF_ALL_ABOVE));
        self.files.limits.iter().filter_map(own).chain(above)
    }

    fn limit(&self, bytes: u64, name: &str) -> Limit {
        Limit { bytes, set_by: format!("{name} of {}", for_shell(&self.dir)), is_of_group: true }
    }

    /// The used part of its limits, without the contents of files that were not used lately. Those
    /// are reclaimed when memory is needed.
    pub fn used_bytes(&self) -> Option<u64> {
        let current: u64 = self.read(self.files.current).trim().parse().ok()?;
        let idle = number(&self.read("memory.stat"), self.files.inactive).unwrap_or(0);
        Some(current.saturating_sub(idle))
    }

    /// The used part without what the kernel can drop: contents of files, and (version 2) its own
    /// caches.
    pub fn needed_bytes(&self) -> Option<u64> {
        let current: u64 = self.read(self.files.current).trim().parse().ok()?;
        let stat = self.read("memory.stat");
        let droppable = self.files.droppable.iter().filter_map(|name| number(&stat, name)).sum();
        Some(current.saturating_sub(droppable))
    }

    /// The file that says how long its programs have waited for memory. Version 1 has none.
    pub fn pressure(&self) -> PathBuf {
        self.dir.join("memory.pressure")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.join(name)).unwrap_or_default()
    }
}

/// The number after a name, as in `MemFree:  1234 kB` and `inactive_file 1234`.
pub fn number(text: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().map(str::split_whitespace);
    let value = words.find_map(|mut line| (line.next()?.trim_end_matches(':') == name).then(|| line.next()))?;
    value?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with mounted control groups, as in a mount table.
    struct Layout(tempfile::TempDir);

    impl Layout {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn group(&self, dir: &str, files: &[(&str, &str)]) {
            let dir = self.0.path().join(dir);
            fs::create_dir_all(&dir).unwrap();
            files.iter().for_each(|(name, text)| fs::write(dir.join(name), text).unwrap());
        }

        /// The limits. `TOP` in `table` stands for this directory.
        fn limits(&self, of_process: &str, table: &str) -> Vec<(u64, String)> {
            let top = self.0.path().to_str().unwrap();
            let mounts = mountinfo::parse(table.replace("TOP", top).as_bytes());
            let limits = groups_of(of_process, &mounts).iter().flat_map(Group::limits).collect::<Vec<_>>();
            limits.into_iter().map(|limit| (limit.bytes, limit.set_by.replace(top, "TOP"))).collect()
        }
    }

    fn said(limits: &[(u64, &str)]) -> Vec<(u64, String)> {
        limits.iter().map(|&(bytes, set_by)| (bytes, set_by.to_owned())).collect()
    }

    #[test]
    fn version_2_limits_are_those_of_the_group_and_its_parents() {
        let layout = Layout::new();
        let table = "30 23 0:26 / TOP rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";
        layout.group("system.slice", &[("memory.current", "9\n"), ("memory.max", "4000\n"), ("memory.high", "max\n")]);
        layout.group("system.slice/x.service", &[("memory.current", "1\n"), ("memory.high", "3000\n")]);
        let expected =
            said(&[(3000, "memory.high of TOP/system.slice/x.service"), (4000, "memory.max of TOP/system.slice")]);
        assert_eq!(layout.limits("0::/system.slice/x.service\n", table), expected);
        assert_eq!(layout.limits("0::/system.slice/not seen\n", table), expected[1..]);
        assert_eq!(layout.limits("0::/system.slice/x.service\n", ""), []);
        assert_eq!(layout.limits("nonsense\n0:\n", table), []);
    }

    #[test]
    fn version_1_limits_are_found_at_the_mount_of_the_memory_controller() {
        let layout = Layout::new();
        // systemd with both versions: version 1 has the memory controller, and version 2 has no
        // controllers.
        let table = "24 23 0:21 / TOP ro - tmpfs tmpfs rw,mode=755\n\
            25 24 0:22 / TOP/unified rw - cgroup2 cgroup2 rw,nsdelegate\n\
            27 24 0:23 / TOP/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            28 24 0:24 / TOP/memory rw - cgroup cgroup rw,memory\n";
        let of_process = "9:cpu,cpuacct:/a\n5:memory:/a/b\n1:name=systemd:/a\n0::/a\n";
        let none = "9223372036854771712\n";
        layout.group("unified/a", &[("cgroup.procs", "")]);
        layout.group("memory", &[("memory.usage_in_bytes", "9\n"), ("memory.limit_in_bytes", none)]);
        layout.group("memory/a", &[("memory.usage_in_bytes", "5\n"), ("memory.limit_in_bytes", "700\n")]);
        layout.group("memory/a/b", &[("memory.usage_in_bytes", "5\n"), ("memory.limit_in_bytes", "900\n")]);
        let limits = layout.limits(of_process, table);
        let near = said(&[
            (900, "memory.limit_in_bytes of TOP/memory/a/b"),
            (700, "memory.limit_in_bytes of TOP/memory/a"),
            (9223372036854771712, "memory.limit_in_bytes of TOP/memory"),
        ]);
        assert_eq!(limits, near);
    }

    #[test]
    fn a_container_may_see_only_its_own_group() {
        let layout = Layout::new();
        let files = [("memory.usage_in_bytes", "5\n"), ("memory.limit_in_bytes", "900\n")];
        layout.group("memory", &files);
        layout.group("memory", &[("memory.stat", "cache 0\nhierarchical_memory_limit 800\ntotal_inactive_file 4\n")]);
        let expected =
            said(&[(900, "memory.limit_in_bytes of TOP/memory"), (800, "hierarchical_memory_limit of TOP/memory")]);
        // Without a cgroup namespace: the full path of the group, which is the root of the mount.
        let table = "28 24 0:24 /docker/0123 TOP/memory ro - cgroup cgroup rw,memory\n";
        assert_eq!(layout.limits("5:memory:/docker/0123\n", table), expected);
        assert_eq!(layout.limits("5:memory:/docker/0123/not/seen\n", table), expected);
        assert_eq!(layout.limits("5:memory:/docker/4567\n", table), [], "another's");
        // With a cgroup namespace.
        let table = "28 24 0:24 / TOP/memory ro - cgroup cgroup rw,memory\n";
        assert_eq!(layout.limits("5:memory:/\n", table), expected);
        // Mounted outside of the cgroup namespace: the root is a group above.
        let table = "28 24 0:24 /../.. TOP/memory ro - cgroup cgroup rw,memory\n";
        assert_eq!(layout.limits("5:memory:/\n", table), expected);
        assert_eq!(layout.limits("5:memory:/../x\n", table), []);
        let used: Vec<_> = groups_of(
            "5:memory:/\n",
            &mountinfo::parse(table.replace("TOP", layout.0.path().to_str().unwrap()).as_bytes()),
        )
        .iter()
        .map(Group::used_bytes)
        .collect();
        assert_eq!(used, [Some(1)]);
    }

    #[test]
    fn needed_memory_is_what_the_kernel_cannot_drop() {
        let layout = Layout::new();
        let stat = "anon 500\nfile 300\ninactive_file 100\nactive_file 200\nslab_reclaimable 50\n";
        layout.group("box", &[("memory.current", "1000\n"), ("memory.max", "2000\n"), ("memory.stat", stat)]);
        let table = "30 23 0:26 / TOP rw - cgroup2 cgroup2 rw\n".replace("TOP", layout.0.path().to_str().unwrap());
        let groups = groups_of("0::/box\n", &mountinfo::parse(table.as_bytes()));
        assert_eq!((groups[0].used_bytes(), groups[0].needed_bytes()), (Some(900), Some(650)));
    }

    #[test]
    fn numbers_are_found_by_their_whole_name() {
        let text = "MemTotal:        3200 kB\nMemFree: 5\nInactive(file):   200 kB\ninactive_file 7\nbroken\n";
        assert_eq!((number(text, "MemTotal"), number(text, "Inactive(file)")), (Some(3200), Some(200)));
        assert_eq!((number(text, "inactive_file"), number(text, "Mem"), number(text, "broken")), (Some(7), None, None));
    }

    #[test]
    fn this_process_has_a_limit() {
        let limit = smallest().expect("there is a /proc here");
        assert!(limit.bytes > 0 && !limit.set_by.is_empty(), "{limit:?}");
    }
}
