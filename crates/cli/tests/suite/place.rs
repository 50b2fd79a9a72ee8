//! A directory in which a case runs, and what cases share.

use std::{
    fmt::Debug,
    fs,
    io::ErrorKind,
    os::{
        fd::OwnedFd,
        unix::{
            fs::{MetadataExt, PermissionsExt},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
};

use nix::{
    errno::Errno,
    fcntl::{self, OFlag},
    sys::{
        stat::{Mode, SFlag, UtimensatFlags, mknod, utimensat},
        time::TimeSpec,
    },
    time::{ClockId, clock_gettime},
    unistd::{Whence, lseek, mkfifo},
};
use rustix::fs::{StatVfsMountFlags, statvfs};
use tempfile::TempDir;

/// One expectation.
pub struct Case {
    /// The expectation, in words.
    pub name: &'static str,
    /// Panics if it is not met.
    pub run: fn(&Place),
    /// Whether only root can run it.
    pub needs_root: bool,
}

/// A case for any user.
pub const fn case(name: &'static str, run: fn(&Place)) -> Case {
    Case { name, run, needs_root: false }
}

/// A case with several users.
pub const fn users(name: &'static str, run: fn(&Place)) -> Case {
    Case { name, run, needs_root: true }
}

/// A user who owns nothing and is in no other user's group.
pub const STRANGER: User = User { uid: 31_001, gid: 31_001, groups: &[] };
/// The user who gets files from [`Place::give`].
pub const OWNER: User = User { uid: 31_002, gid: 31_002, groups: &[] };
/// A user in the owner's group.
pub const MEMBER: User = User { uid: 31_003, gid: 31_003, groups: &[31_002] };

/// A caller without capabilities.
#[derive(Debug, Clone, Copy)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: &'static [u32],
}

impl User {
    /// Runs `act` as this user, in a thread of its own.
    pub fn does<T: Send>(self, act: impl FnOnce() -> T + Send) -> T {
        let as_user = || {
            use rustix::{
                process::{Gid, Uid},
                thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
            };
            let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            set_thread_groups(&groups).expect("root");
            set_thread_res_gid(gid, gid, gid).expect("root");
            set_thread_res_uid(uid, uid, uid).expect("root");
            act()
        };
        thread::scope(|scope| scope.spawn(as_user).join().expect("no panic"))
    }
}

/// A new directory. All users may search it, and only its owner may change it.
pub struct Place(TempDir);

impl Drop for Place {
    /// Opens the directories that a case has closed. Otherwise they could not be removed.
    fn drop(&mut self) {
        let mut dirs = vec![self.0.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            let _ = fs::set_permissions(&dir, fs::Permissions::from_mode(0o700));
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            dirs.extend(
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
            );
        }
    }
}

impl Place {
    pub fn new(dir: &Path) -> Self {
        let place = tempfile::tempdir_in(dir).expect("made");
        set_mode(place.path(), 0o755);
        Self(place)
    }

    /// The path of an entry. `""` is the directory itself.
    pub fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.0.path().to_owned() } else { self.0.path().join(name) }
    }

    /// A new directory.
    pub fn dir(&self, name: &str) -> PathBuf {
        fs::create_dir(self.path(name)).expect("made");
        self.path(name)
    }

    /// A new file with some bytes.
    pub fn file(&self, name: &str) -> PathBuf {
        fs::write(self.path(name), "some bytes").expect("made");
        self.path(name)
    }

    /// A new symbolic link.
    pub fn symlink(&self, target: &str, name: &str) -> PathBuf {
        std::os::unix::fs::symlink(target, self.path(name)).expect("made");
        self.path(name)
    }

    /// A new FIFO.
    pub fn fifo(&self, name: &str) -> PathBuf {
        mkfifo(&self.path(name), Mode::S_IRWXU).expect("made");
        self.path(name)
    }

    /// A new socket. bind(2) would limit the length of its path.
    pub fn socket(&self, name: &str) -> PathBuf {
        mknod(&self.path(name), SFlag::S_IFSOCK, Mode::S_IRWXU, 0).expect("made");
        self.path(name)
    }

    /// A new program, which runs. The caller kills it.
    pub fn running_program(&self, name: &str) -> Child {
        fs::copy("/bin/sleep", self.path(name)).expect("copied");
        loop {
            // Some systems have all such programs in one file, which looks at argv[0].
            match Command::new(self.path(name)).arg0("sleep").arg("60").spawn() {
                // A child of another test may hold the copy open for writing until it has run exec.
                Err(busy) if busy.kind() == ErrorKind::ExecutableFileBusy => thread::yield_now(),
                child => return child.expect("started"),
            }
        }
    }

    /// Whether the mount keeps the atime of files that are read (noatime).
    pub fn is_noatime(&self) -> bool {
        statvfs(self.0.path()).expect("there").f_flag.contains(StatVfsMountFlags::NOATIME)
    }

    /// Gives an entry to [`OWNER`], with this mode.
    pub fn give(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        std::os::unix::fs::chown(&path, Some(OWNER.uid), Some(OWNER.gid)).expect("root");
        set_mode(&path, mode);
        path
    }

    /// Which times of these entries `act` changes, as in `"file: mtime ctime, : ctime"`. Times that
    /// stay are left out, and so are entries that are missing before or after it.
    pub fn changed<T: Debug>(&self, names: &[&str], act: impl FnOnce() -> nix::Result<T>) -> String {
        let long_ago = TimeSpec::new(1_000_000_000, 0);
        for name in names {
            utimensat(fcntl::AT_FDCWD, &self.path(name), &long_ago, &long_ago, UtimensatFlags::NoFollowSymlink)
                .expect("set");
        }
        let times = |name: &&str| {
            let found = fs::symlink_metadata(self.path(name)).ok()?;
            let at = |seconds, nanoseconds| (seconds, nanoseconds);
            Some([
                at(found.atime(), found.atime_nsec()),
                at(found.mtime(), found.mtime_nsec()),
                at(found.ctime(), found.ctime_nsec()),
            ])
        };
        let before: Vec<_> = names.iter().map(times).collect();
        let newest = before.iter().flatten().map(|times| times[2]).max().expect("something is there");
        // The kernel's clock for file times moves in steps.
        let now = || clock_gettime(ClockId::CLOCK_REALTIME_COARSE).map(|now| (now.tv_sec(), now.tv_nsec()));
        while now().expect("a clock") <= newest {
            thread::yield_now();
        }
        act().expect("it can be done");
        let after = names.iter().map(times);
        let mut changed = Vec::new();
        for ((name, before), after) in names.iter().zip(before).zip(after) {
            let (Some(before), Some(after)) = (before, after) else { continue };
            let which = ["atime", "mtime", "ctime"].into_iter().zip(before.iter().zip(&after));
            let which: Vec<_> = which.filter(|(_, (before, after))| before != after).map(|(time, _)| time).collect();
            if !which.is_empty() {
                changed.push(format!("{name}: {}", which.join(" ")));
            }
        }
        changed.join(", ")
    }
}

/// Sets the permission bits.
pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

/// The permission bits.
pub fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").mode() & 0o7777
}

/// Asserts that a call has failed with this errno.
#[track_caller]
pub fn fails<T: Debug>(errno: Errno, call: nix::Result<T>) {
    assert_eq!(call.map_err(|found| found.to_string()).err(), Some(errno.to_string()));
}

/// Asserts that a call which changes the directory `dir` needs write and search permission there.
/// `before` runs before the calls of each user, and `undo` after the one that succeeds.
pub fn needs_write_and_search<T: Debug + Send>(
    place: &Place,
    before: impl Fn(User),
    call: impl Fn() -> nix::Result<T> + Sync,
    undo: impl Fn(),
) {
    for (user, permitted) in [(OWNER, 0o300), (MEMBER, 0o030), (STRANGER, 0o003)] {
        before(user);
        for denied in [0o777 & !permitted, 0o111 & permitted, 0o222 & permitted] {
            place.give("dir", denied);
            fails(Errno::EACCES, user.does(&call));
        }
        place.give("dir", permitted);
        user.does(&call).expect("permitted");
        undo();
    }
}

/// Asserts that a call of a path below the directory `way` needs search permission there.
pub fn needs_search<T: Debug + Send>(place: &Place, call: impl Fn() -> nix::Result<T> + Sync) {
    place.give("way", 0o666);
    fails(Errno::EACCES, OWNER.does(&call));
    place.give("way", 0o100);
    OWNER.does(&call).expect("permitted");
}

/// A name of this length.
pub fn name(bytes: usize) -> String {
    "n".repeat(bytes)
}

/// The umask of the process. No case changes it, because other tests run in this process.
pub fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").expect("read");
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:")).expect("a mask");
    u32::from_str_radix(mask.trim(), 8).expect("octal")
}

/// Converts a result of rustix to one of nix.
pub fn as_nix<T>(result: rustix::io::Result<T>) -> nix::Result<T> {
    result.map_err(|found| Errno::from_raw(found.raw_os_error()))
}

/// Opens a file of the case, and makes it if it is missing.
pub fn open(place: &Place, path: &str, flags: OFlag) -> OwnedFd {
    let create = if place.path(path).exists() { OFlag::empty() } else { OFlag::O_CREAT };
    let mode = Mode::from_bits_truncate(0o666);
    fcntl::open(&place.path(path), flags | create | OFlag::O_CLOEXEC, mode).expect("opened")
}

/// The file offset of a descriptor.
pub fn position(fd: &OwnedFd) -> i64 {
    lseek(fd, 0, Whence::SeekCur).expect("a position")
}

/// The inode number of an entry, and of a symbolic link itself.
pub fn inode(place: &Place, path: &str) -> u64 {
    fs::symlink_metadata(place.path(path)).expect("there").ino()
}

/// `size` bytes. They repeat every 251 bytes, so that pages differ.
pub fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index % 251) as u8).collect()
}
