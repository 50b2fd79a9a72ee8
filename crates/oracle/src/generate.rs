//! Random operations on a few names, so that they collide.
//!
//! The next operation depends only on the seed, and never on earlier results. So one operation can
//! be left out while all others stay the same, which shrinking a failure needs.

use pando_vfs::LockKind;

use crate::op::{At, COMMON_GROUP, Caller, Flags, Mode, Op, Place, SLOTS, When, Whence};

/// The last byte that a file can have.
const LAST: u64 = i64::MAX as u64;

/// xorshift64* (Marsaglia, *Xorshift RNGs*, 2003; Vigna, 2016).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        // Similar seeds must not give similar sequences, and the state must not be zero.
        let mixed = (seed ^ (seed >> 31)).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Self((mixed ^ (mixed >> 27)) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True in `percent` of the cases.
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// The kind of a run.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// The seed of the run.
    pub seed: u64,
    /// The tree has a backing: no anonymous files, and no block counts.
    pub backed: bool,
    /// The tree under test is mounted.
    pub mounted: bool,
    /// Ordinary users take turns with root.
    pub users: bool,
    /// The sticky bit may be set. Not on a machine with policies for sticky directories
    /// (`fs.protected_symlinks` and the like), which are not those of the file system.
    pub sticky: bool,
    /// With the rights of root on the machine. In a user namespace, `trusted.*` may not be set, and
    /// there are no other users.
    pub root: bool,
    /// There are ACLs.
    pub acls: bool,
    /// The flags of inodes that may be set (`FS_*_FL`).
    pub inode_flags: u32,
    /// The limits of the tree, if any.
    pub limits: Option<Limits>,
}

impl Style {
    /// Whether the kernel may answer for a mount from its caches, in half of the runs. What it
    /// reads there stamps no atime.
    #[must_use]
    pub const fn keeps_caches(&self) -> bool {
        self.mounted && self.seed % 4 < 2
    }
}

/// The limits of a tree.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes, in pages.
    pub bytes: u64,
    /// Inodes, the root included.
    pub inodes: u64,
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const MODES: [u32; 16] = [
    0o777, 0o755, 0o755, 0o700, 0o644, 0o666, 0o600, 0o000, 0o070, 0o007, 0o555, 0o2755, 0o4755, 0o6777, 0o1777, 0o444,
];
const USERS: [u32; 2] = [1000, 1001];
const ACL_ACCESS: &str = "system.posix_acl_access";
const ACL_DEFAULT: &str = "system.posix_acl_default";

/// Generates the operations of one run.
pub struct Generator {
    rng: Rng,
    style: Style,
}

impl Generator {
    pub fn new(seed: u64, style: Style) -> Self {
        Self { rng: Rng::new(seed), style }
    }

    fn slot(&mut self) -> usize {
        self.rng.below(SLOTS as u64) as usize
    }

    fn name(&mut self) -> String {
        match self.rng.below(60) {
            0 if self.rng.chance(20) => "x".repeat(255),
            0 if self.rng.chance(20) => "x".repeat(256),
            0 => ".".into(),
            1 | 2 => "..".into(),
            // Some names are more frequent than others, so that existing files are used again.
            3..=40 => self.rng.pick(&NAMES[..3]).into(),
            _ => self.rng.pick(&NAMES).into(),
        }
    }

    fn path(&mut self) -> String {
        if self.rng.chance(1) {
            return self.rng.pick(&["", "/", ".", "..", "//", "./", "/..", "../.."]).into();
        }
        let mut path = String::new();
        if self.rng.chance(12) {
            path.push('/');
        }
        for i in 0..self.rng.pick(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 3]) {
            if i > 0 {
                path.push_str(if self.rng.chance(3) { "//" } else { "/" });
            }
            let name = self.name();
            path.push_str(&name);
        }
        if self.rng.chance(4) {
            path.push_str(self.rng.pick(&["/", "/", "/.", "//", "/.."]));
        }
        path
    }

    /// The target of a symbolic link. Sometimes it is long enough to cost a page.
    fn target(&mut self) -> String {
        match self.rng.below(20) {
            0 => "x".repeat(127),
            1 => "./".repeat(64),
            _ => self.path(),
        }
    }

    fn at(&mut self) -> At {
        if self.rng.chance(20) { At::Slot(self.slot()) } else { At::Cwd }
    }

    fn place(&mut self) -> Place {
        Place { at: self.at(), path: self.path() }
    }

    fn mode(&mut self) -> Mode {
        let mode = self.rng.pick(&MODES);
        let mode = if self.style.sticky { mode } else { mode & !0o1000 };
        // In a user namespace, root has not the capability that keeps these bits at a write.
        Mode(if self.style.root { mode } else { mode & !0o6000 })
    }

    fn flags(&mut self) -> Flags {
        let mut flags = self.rng.pick(&[0, 1, 2, 2, 0, 2]);
        if self.rng.chance(1) {
            flags = 3;
        }
        for (percent, flag) in [
            (50, Flags::CREAT),
            (15, Flags::EXCL),
            (18, Flags::TRUNC),
            (15, Flags::APPEND),
            (10, Flags::NONBLOCK),
            (10, Flags::DIRECTORY),
            (10, Flags::NOFOLLOW),
            (5, Flags::NOATIME),
            (5, Flags::PATH),
            (5, Flags::TMPFILE),
        ] {
            if self.rng.chance(percent) {
                flags |= flag;
            }
        }
        // For directories only: whether tmpfs permits O_DIRECT for files depends on the kernel
        // (since Linux 6.6).
        if flags & Flags::TMPFILE == Flags::DIRECTORY && self.rng.chance(20) {
            flags |= Flags::DIRECT;
        }
        Flags(flags)
    }

    fn len(&mut self) -> usize {
        match self.rng.below(4) {
            0 => self.rng.below(10) as usize,
            1 => self.rng.below(4097) as usize,
            2 => self.rng.pick(&[0, 1, 4096, 8192, 12288]),
            _ => self.rng.below(15000) as usize,
        }
    }

    /// The lengths of some buffers, or of none.
    fn lens(&mut self) -> Vec<usize> {
        (0..self.rng.below(5)).map(|_| self.len()).collect()
    }

    fn offset_or_position(&mut self) -> Option<u64> {
        (self.rng.below(2) == 0).then(|| self.offset())
    }

    /// An offset beyond the maximum, or well below it. Never in the last pages that a file can
    /// have, where tmpfs does not find existing data.
    fn offset(&mut self) -> u64 {
        match self.rng.below(20) {
            0 => i64::MAX as u64 - self.rng.below(3) * 4096 - self.rng.below(3) - 8 * 4096,
            1 => u64::MAX - self.rng.below(3),
            2 => 1 << (12 + self.rng.below(50)),
            3 => i64::MAX as u64,
            4..=8 => self.rng.below(8) * 4096,
            _ => self.rng.below(30_000),
        }
    }

    fn signed_offset(&mut self) -> i64 {
        match self.rng.below(12) {
            0 => i64::MAX,
            1 => i64::MIN + self.rng.below(3) as i64,
            2 => 1 << (12 + self.rng.below(50)),
            3..=5 => -(self.rng.below(10_000) as i64),
            6 => 0,
            _ => self.rng.below(30_000) as i64,
        }
    }

    /// Sizes are moderate more often than offsets. Otherwise every file would be a huge hole.
    fn size(&mut self) -> u64 {
        let size = if self.rng.chance(90) { self.rng.below(30_000) } else { self.offset() };
        if size == i64::MAX as u64 { size + 1 } else { size }
    }

    fn when(&mut self) -> When {
        match self.rng.below(4) {
            0 => When::Omit,
            1 => When::Now,
            _ => When::At { secs: self.rng.below(100_000_000) as i64, nanos: self.rng.below(1_000_000_000) as u32 },
        }
    }

    fn xattr_name(&mut self) -> String {
        match self.rng.below(30) {
            0 => "user.".into(),
            1 => self.rng.pick(&["nonsense.a", "system.a", "system."]).into(),
            2 => "nodot".into(),
            3 => format!("user.{}", "x".repeat(250)),
            4 => format!("user.{}", "x".repeat(251)),
            5..=8 if self.style.root => self.rng.pick(&["trusted.a", "trusted.b"]).into(),
            9..=16 if self.style.acls => self.rng.pick(&[ACL_ACCESS, ACL_ACCESS, ACL_DEFAULT]).into(),
            _ => self.rng.pick(&["user.a", "user.b", "user.c"]).into(),
        }
    }

    /// The value of an ACL, mostly a valid one. An empty one removes the ACL.
    fn acl(&mut self) -> Vec<u8> {
        if self.rng.chance(5) {
            return Vec::new();
        }
        let (owner, user, group, named_group, mask, other) = (0x01, 0x02, 0x04, 0x08, 0x10, 0x20);
        let mut tags = vec![owner];
        tags.extend((0..self.rng.below(3)).map(|_| user));
        tags.push(group);
        tags.extend((0..self.rng.below(3)).map(|_| named_group));
        if tags.len() > 2 || self.rng.chance(20) {
            tags.push(mask);
        }
        tags.push(other);
        match self.rng.below(30) {
            0 => drop(tags.remove(self.rng.below(tags.len() as u64) as usize)),
            1 => tags.reverse(),
            2 => tags.clear(),
            3 => tags.push(self.rng.pick(&[0, owner, user, 3, 0x40])),
            _ => {}
        }
        let mut value = self.rng.pick(&[2_u32, 2, 2, 2, 2, 2, 2, 2, 2, 1]).to_le_bytes().to_vec();
        for tag in tags {
            let permissions = if self.rng.chance(1) { 8 } else { self.rng.pick(&[0, 1, 4, 5, 6, 7, 7]) };
            let id = if tag == user {
                self.rng.pick(&[0, USERS[0], USERS[0], USERS[1]])
            } else if tag == named_group {
                self.rng.pick(&[0, USERS[0], USERS[1], COMMON_GROUP])
            } else {
                u32::MAX
            };
            value.extend([tag, permissions].iter().flat_map(|number: &u16| number.to_le_bytes()));
            value.extend(if self.rng.chance(1) { u32::MAX } else { id }.to_le_bytes());
        }
        if self.rng.chance(2) {
            value.pop();
        }
        value
    }

    fn id(&mut self) -> Option<u32> {
        if !self.style.root {
            return self.rng.pick(&[None, Some(0)]);
        }
        self.rng.pick(&[None, Some(0), Some(USERS[0]), Some(USERS[1]), Some(COMMON_GROUP)])
    }

    /// The next operation.
    pub fn op(&mut self) -> Op {
        match self.rng.below(100) {
            0..=30 => self.op_on_handle(),
            31..=66 => self.op_on_names(),
            67..=90 => self.op_on_attributes(),
            _ => self.op_on_caller(),
        }
    }

    fn op_on_handle(&mut self) -> Op {
        let slot = self.slot();
        match self.rng.below(46) {
            0..=11 => Op::Open { slot, place: self.place(), flags: self.flags(), mode: self.mode() },
            12 => Op::Close { slot },
            13 => Op::Read { slot, len: self.len() },
            14..=17 => Op::Write { slot, len: self.len(), fill: self.rng.next() as u8 },
            18 => Op::Pread { slot, len: self.len(), offset: self.offset() },
            19 => Op::Readv { slot, lens: self.lens(), offset: self.offset_or_position() },
            20 | 21 => Op::Pwrite { slot, len: self.len(), fill: self.rng.next() as u8, offset: self.offset() },
            22 => {
                let fill = self.rng.next() as u8;
                Op::Writev { slot, lens: self.lens(), fill, offset: self.offset_or_position() }
            }
            23..=27 => {
                let whence = self.rng.pick(&[Whence::Set, Whence::Cur, Whence::End, Whence::Data, Whence::Hole]);
                Op::Lseek { slot, whence, offset: self.signed_offset() }
            }
            28 | 29 => Op::Ftruncate { slot, size: self.size() },
            30 | 31 => {
                // Plain, KEEP_SIZE, and PUNCH_HOLE with KEEP_SIZE. Rarely a mode that tmpfs does
                // not support (COLLAPSE_RANGE) or that is unknown.
                let mode = self.rng.pick(&[0, 0, 1, 1, 3, 3, 3, 3, 2, 8, 0x4000]);
                let (offset, len) = (self.size(), self.size());
                // A range that is written to later must not be 2^60 bytes of memory.
                let len = if mode < 2 { len % 100_000 } else { len };
                Op::Fallocate { slot, mode, offset, len }
            }
            32 => Op::Fsync { slot },
            33 => Op::Fstat { slot },
            34 => self.op_on_flags(slot),
            35 => Op::Fchmod { slot, mode: self.mode() },
            36 | 37 => Op::PathOf { slot },
            38 | 39 => {
                let (from, from_offset, offset, len) = (self.slot(), self.offset(), self.offset(), self.len());
                Op::CopyRange { from, from_offset, slot, offset, len }
            }
            40 | 41 => Op::Readdir { slot },
            _ => self.op_on_locks(slot),
        }
    }

    /// The ranges of different open files often touch.
    fn op_on_locks(&mut self, slot: usize) -> Op {
        let start = self.rng.pick(&[0, 1, 2, 3, 4, 5, 6, 7, LAST - 1, LAST, LAST + 1]);
        let len = self.rng.pick(&[0, 1, 2, 3, 4, LAST]);
        let lock = self.rng.pick(&[LockKind::Shared, LockKind::Exclusive]);
        match self.rng.below(8) {
            0..=2 => Op::LockRange { slot, lock: Some(lock), start, len },
            3 => Op::LockRange { slot, lock: None, start, len },
            4 | 5 => Op::IsExcluded { slot, lock, start, len },
            6 => Op::Flock { slot, lock: Some(lock) },
            _ => Op::Flock { slot, lock: None },
        }
    }

    /// Protecting flags are rare, and are often taken away: what they protect changes no more.
    fn op_on_flags(&mut self, slot: usize) -> Op {
        let flags = self.rng.pick(&[0, 0, 0, 0x40, 0x80, 0xc0, 0x10, 0x20, 0xa0, 0x8]);
        match self.style.inode_flags {
            0 => Op::Fstat { slot },
            settable if self.rng.chance(70) => Op::SetInodeFlags { slot, flags: flags & (settable | 0x8) },
            _ => Op::InodeFlags { slot },
        }
    }

    fn op_on_names(&mut self) -> Op {
        let place = self.place();
        match self.rng.below(40) {
            0..=7 => Op::Mkdir { place, mode: self.mode() },
            8 | 9 => {
                let kind = self.rng.pick(&[0o010_000, 0o140_000, 0o100_000, 0o020_000, 0o060_000, 0o040_000]);
                // Without root there are no devices.
                let is_device = [0o020_000, 0o060_000].contains(&kind);
                let kind = if is_device && !self.style.root { 0o010_000 } else { kind };
                Op::Mknod { place, mode: Mode(kind | self.mode().0), rdev: self.rng.pick(&[0, 0x103, 0x801]) }
            }
            10..=12 => Op::Symlink { target: self.target(), place },
            13 => Op::Readlink { place },
            14..=18 => Op::Link { old: place, new: self.place(), follow: self.rng.chance(30) },
            19 => Op::LinkHandle { slot: self.slot(), new: place },
            20..=24 => Op::Unlink { place },
            25..=28 => Op::Rmdir { place },
            _ => {
                let flags = self.rng.pick(&[0, 0, 0, 0, 1, 2, 2, 3, 4, 5, 6, 8]);
                Op::Rename { old: place, new: self.place(), flags }
            }
        }
    }

    fn op_on_attributes(&mut self) -> Op {
        let follow = self.rng.chance(60);
        match self.rng.below(40) {
            0..=7 => Op::Stat { place: self.place(), follow },
            8..=11 => Op::Access { place: self.place(), mask: self.rng.below(8) as u32 },
            12..=17 => Op::Chmod { place: self.place(), mode: self.mode() },
            18..=21 => Op::Chown { place: self.place(), uid: self.id(), gid: self.id(), follow },
            22..=25 => Op::Utimens { place: self.place(), atime: self.when(), mtime: self.when(), follow },
            26 | 27 => Op::Truncate { path: self.path(), size: self.size() },
            28..=32 => {
                let (path, name) = (self.path(), self.xattr_name());
                let value = if [ACL_ACCESS, ACL_DEFAULT].contains(&&*name) {
                    self.acl()
                } else {
                    vec![b'v'; self.rng.pick(&[0, 1, 10, 300, 3000])]
                };
                Op::Setxattr { path, name, value, flags: self.rng.pick(&[0, 0, 1, 2, 3]), follow }
            }
            33 | 34 => Op::Getxattr { path: self.path(), name: self.xattr_name(), follow },
            35 => Op::Listxattr { path: self.path(), follow },
            36 | 37 => Op::Removexattr { path: self.path(), name: self.xattr_name(), follow },
            // In pandofs's library an empty path means the start of the walk, since callers have
            // dentries.
            _ => Op::Statfs { path: Some(self.path()).filter(|path| !path.is_empty()).unwrap_or_else(|| "/".into()) },
        }
    }

    fn op_on_caller(&mut self) -> Op {
        match self.rng.below(12) {
            0..=3 => Op::Chdir { path: self.path() },
            4 => Op::Chdir { path: "/".into() },
            5 => Op::Fchdir { slot: self.slot() },
            6 | 7 => Op::Getcwd,
            8 => Op::Umask { mask: Mode(self.rng.pick(&[0, 0o022, 0o077, 0o777, 0o027])) },
            _ if self.style.users => {
                let caller = self.rng.pick(&[
                    Caller::Root,
                    Caller::User(USERS[0]),
                    Caller::User(USERS[0]),
                    Caller::User(USERS[1]),
                ]);
                Op::Become { caller }
            }
            _ => Op::Getcwd,
        }
    }
}
