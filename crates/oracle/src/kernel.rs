//! A file system of the kernel, which is the root directory of this process or thread: a real tmpfs
//! as the oracle, or a mount under test.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, flock},
    time::{ClockId, clock_gettime},
    unistd::{Gid, Uid, setegid, seteuid, setgroups},
};
use pando_vfs::LockKind;
use rustix::{
    fs::{self, AtFlags, CWD, FlockOperation, Mode as KernelMode, OFlags, SeekFrom, Timespec, Timestamps},
    io::{self, Errno},
    mount::{MountFlags, UnmountFlags},
};

use crate::{
    LINK_POLICY,
    generate::{Limits, Style},
    op::{
        Answer, At, COMMON_GROUP, Caller, Entry, Facts, LAST_SEEK, Mode, NotCompared, Op, Outcome, Place, RawStat,
        S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFMT, SLOTS, Tree, When, Whence, mask_number, read, readv, writev,
    },
};

/// A file system that this process or thread is confined to, and its open handles.
pub struct Kernel {
    slots: [Option<OwnedFd>; SLOTS + 1],
    /// The caller that opened each handle, and the file's group at that time.
    openers: [(Caller, u32); SLOTS + 1],
    /// The inode of the directory in which the open file was made without a name.
    anonymous_in: [Option<u64>; SLOTS + 1],
    /// `/proc/self/fd`, opened while it was reachable.
    handles: OwnedFd,
    caller: Caller,
    style: Style,
    /// Whether [`LINK_POLICY`] is on.
    protected_hardlinks: bool,
}

/// The root directory of a tmpfs that no path leads to, for a subject that keeps its tree there.
///
/// # Errors
/// Those of the mount: EPERM outside a run.
pub fn tmpfs() -> io::Result<OwnedFd> {
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    };
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [("mode", "755"), ("size", "0"), ("nr_inodes", "0")] {
        fsconfig_set_string(context.as_fd(), key, value)?;
    }
    fsconfig_create(context.as_fd())?;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    fs::openat(mount, c".", OFlags::DIRECTORY | OFlags::CLOEXEC, KernelMode::empty())
}

/// When it is dropped, it takes the oracle's tmpfs away, so that the directory for temporary files
/// is reachable again.
pub struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(std::env::temp_dir(), UnmountFlags::DETACH);
    }
}

impl Kernel {
    /// Mounts a new tmpfs over the directory for temporary files, and makes it the root. The
    /// process has its own mount namespace. So no other process sees the mount, and it ends with
    /// the process.
    pub fn enter(style: &Style) -> std::io::Result<Self> {
        let point = std::env::temp_dir();
        let options = match style.limits {
            Some(Limits { bytes, inodes }) => format!("mode=755,huge=never,size={bytes},nr_inodes={inodes}"),
            None => "mode=755,size=0,nr_inodes=0".into(),
        };
        let options = std::ffi::CString::new(options)?;
        rustix::mount::mount("none", &point, "tmpfs", MountFlags::NODEV | MountFlags::NOSUID, &*options)?;
        Self::confined(&point, style)
    }

    /// Confines this thread, and those that share its root directory, to a directory.
    pub fn confined(point: &Path, style: &Style) -> std::io::Result<Self> {
        let handles = fs::open("/proc/self/fd", OFlags::DIRECTORY | OFlags::CLOEXEC, KernelMode::empty())?;
        let protected_hardlinks = sysctl(LINK_POLICY);
        rustix::process::chroot(point)?;
        rustix::process::chdir("/")?;
        rustix::process::umask(KernelMode::from_raw_mode(0o022));
        Ok(Self {
            slots: Default::default(),
            openers: [(Caller::Root, 0); SLOTS + 1],
            anonymous_in: [None; SLOTS + 1],
            handles,
            caller: Caller::Root,
            style: *style,
            protected_hardlinks,
        })
    }

    /// Whether an operation must be skipped, on both trees:
    /// - opening a pipe or a device, which would wait for another process or reach a driver that is
    ///   not the file system
    /// - a user's link to a file that the user does not own, if the machine has a policy for such
    ///   links
    /// - a user's link by handle, which Linux permits depending on the history of the process's
    ///   credentials
    /// - a change of contents by a caller that did not open the file, or after a chgrp: on Linux
    ///   the writer decides whether setuid and setgid are dropped, and in pandofs the opener does,
    ///   since handles know no other caller
    /// - a seek in the last pages that a file can have, where tmpfs returns 2^63, and a write there
    ///   by position, which tmpfs does not find again
    /// - a seek in a directory, where positions have no common meaning
    /// - the removal of a directory in which an open anonymous file was made: on tmpfs the file
    ///   keeps the directory's inode, and in pandofs it has no place in the tree
    /// - a truncation to the present size that clears setuid or setgid, in a backed tree: tmpfs
    ///   does not stamp this change of the mode, and a host that is asked for it does
    pub fn must_skip(&self, op: &Op) -> bool {
        if self.style.mounted && self.differs_on_mounts(op) {
            return true;
        }
        match op {
            Op::Open { place, .. } => self
                .stat_place(place, true)
                .is_ok_and(|stat| matches!(stat.st_mode & S_IFMT, S_IFIFO | S_IFCHR | S_IFBLK)),
            Op::Truncate { path, size } if self.style.backed => {
                fs::stat(&**path).is_ok_and(|stat| stat.st_size as u64 == *size && is_privileged(stat))
            }
            Op::Rmdir { place } | Op::Rename { new: place, .. } => self.stat_place(place, false).is_ok_and(|stat| {
                let is_open = |slot: usize| self.slots[slot].is_some() && self.anonymous_in[slot] == Some(stat.st_ino);
                stat.st_mode & S_IFMT == S_IFDIR && (0..=SLOTS).any(is_open)
            }),
            Op::Link { old, follow, .. } => match self.caller {
                Caller::Root => false,
                Caller::User(user) => {
                    self.protected_hardlinks && self.stat_place(old, *follow).is_ok_and(|stat| stat.st_uid != user)
                }
            },
            Op::LinkHandle { .. } => self.caller != Caller::Root,
            Op::Write { slot, len, .. } => self.is_not_opener(*slot) || self.writes_last_pages(*slot, *len),
            Op::Writev { slot, lens, offset: None, .. } => {
                self.is_not_opener(*slot) || self.writes_last_pages(*slot, lens.iter().sum())
            }
            Op::Pwrite { slot, .. }
            | Op::Writev { slot, .. }
            | Op::Ftruncate { slot, .. }
            | Op::Fallocate { slot, .. }
            | Op::CopyRange { slot, .. } => self.is_not_opener(*slot),
            Op::Lseek { whence: Whence::Data | Whence::Hole, offset, .. } if *offset > LAST_SEEK => true,
            Op::Lseek { slot, whence, .. } => self.slots[*slot].as_ref().is_some_and(|fd| {
                fs::fstat(fd).is_ok_and(|stat| {
                    stat.st_mode & S_IFMT == S_IFDIR || *whence == Whence::Hole && stat.st_size > LAST_SEEK
                })
            }),
            _ => false,
        }
    }

    /// Whether a mount answers differently (docs/semantics.md, docs/source.md):
    /// - a write or an fallocate may clear setuid and setgid where tmpfs does not
    /// - a chown without owner and group by an ordinary user, of a file with setuid or setgid,
    ///   succeeds
    /// - a truncation of an empty file to size 0 stamps its times
    /// - a read of no bytes stamps no access, where the kernel reads the file of the host by itself
    fn differs_on_mounts(&self, op: &Op) -> bool {
        match op {
            Op::Write { slot, .. } | Op::Pwrite { slot, .. } | Op::Writev { slot, .. } | Op::Fallocate { slot, .. } => {
                self.fstat(*slot).is_some_and(is_privileged)
            }
            Op::Chown { place, uid: None, gid: None, follow } => {
                self.caller != Caller::Root && self.stat_place(place, *follow).is_ok_and(is_privileged)
            }
            Op::Read { len: 0, .. } | Op::Pread { len: 0, .. } => true,
            Op::Truncate { path, size: 0 } => fs::stat(&**path).is_ok_and(|stat| stat.st_size == 0),
            _ => false,
        }
    }

    fn fstat(&self, slot: usize) -> Option<fs::Stat> {
        self.slots[slot].as_ref().and_then(|fd| fs::fstat(fd).ok())
    }

    /// Whether another caller opened the file, or its group was different then.
    fn is_not_opener(&self, slot: usize) -> bool {
        let gid = self.fstat(slot).map(|stat| stat.st_gid);
        let (opener, gid_then) = self.openers[slot];
        opener != self.caller || gid.is_some_and(|gid| gid != gid_then)
    }

    /// Whether a write at the position, or at the end, reaches the pages where holes are not
    /// compared.
    fn writes_last_pages(&self, slot: usize, len: usize) -> bool {
        let Some(fd) = &self.slots[slot] else { return false };
        let position = fs::seek(fd, SeekFrom::Current(0)).unwrap_or(0);
        let size = fs::fstat(fd).map_or(0, |stat| stat.st_size as u64);
        position.max(size).saturating_add(len as u64) > LAST_SEEK as u64
    }

    fn stat_place(&self, place: &Place, follow: bool) -> io::Result<fs::Stat> {
        fs::statat(self.at(place)?, &*place.path, nofollow(follow))
    }

    fn facts(&self, stat: &fs::Stat) -> Facts {
        let time = |secs: i64, nanos: u64| secs * 1_000_000_000 + nanos as i64;
        let raw = RawStat {
            mode: stat.st_mode,
            nlink: stat.st_nlink as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: stat.st_rdev,
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            ino: stat.st_ino,
            times: [
                time(stat.st_atime, stat.st_atime_nsec),
                time(stat.st_mtime, stat.st_mtime_nsec),
                time(stat.st_ctime, stat.st_ctime_nsec),
            ],
        };
        Facts::new(raw, &self.style)
    }

    fn fd(&self, slot: usize) -> io::Result<BorrowedFd<'_>> {
        self.slots[slot].as_ref().map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    fn at(&self, place: &Place) -> io::Result<BorrowedFd<'_>> {
        match place.at {
            At::Cwd => Ok(CWD),
            At::Slot(slot) => self.fd(slot),
        }
    }

    /// Runs an operation of the current caller. Before and after it this process is root: a subject
    /// that keeps its tree on the host works there as root.
    fn as_caller(&mut self, operation: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        let Caller::User(user) = self.caller else { return operation(self) };
        let become_ids = |user: u32, groups: &[Gid]| {
            seteuid(Uid::from_raw(0))?;
            setgroups(groups)?;
            setegid(Gid::from_raw(user))?;
            seteuid(Uid::from_raw(user))
        };
        become_ids(user, &[Gid::from_raw(COMMON_GROUP)]).expect("root may become any user");
        let outcome = operation(self);
        become_ids(0, &[]).expect("this process is root");
        outcome
    }

    fn on_handle(&mut self, op: &Op) -> io::Result<Answer> {
        Ok(match *op {
            Op::Open { slot, ref place, flags, mode } => {
                let at = self.at(place)?;
                let flags = OFlags::from_bits_retain(flags.0) | OFlags::CLOEXEC;
                let opened = fs::openat(at, &*place.path, flags, KernelMode::from_raw_mode(mode.0))?;
                self.openers[slot] = (self.caller, fs::fstat(&opened)?.st_gid);
                self.anonymous_in[slot] = match flags.contains(OFlags::TMPFILE) {
                    true => Some(self.stat_place(place, true)?.st_ino),
                    false => None,
                };
                self.slots[slot] = Some(opened);
                Answer::Done
            }
            Op::Close { slot } => self.slots[slot].take().map(|_| Answer::Done).ok_or(Errno::BADF)?,
            Op::Read { slot, len } => read(len, |buf| io::read(self.fd(slot)?, buf))?,
            Op::Pread { slot, len, offset } => read(len, |buf| io::pread(self.fd(slot)?, buf, offset))?,
            Op::Write { slot, len, fill } => number(io::write(self.fd(slot)?, &vec![fill; len])?),
            Op::Pwrite { slot, len, fill, offset } => number(io::pwrite(self.fd(slot)?, &vec![fill; len], offset)?),
            Op::Readv { slot, ref lens, offset } => readv(lens, |into| match offset {
                None => io::readv(self.fd(slot)?, into),
                Some(offset) => io::preadv(self.fd(slot)?, into, offset),
            })?,
            Op::Writev { slot, ref lens, fill, offset } => writev(lens, fill, |from| match offset {
                None => io::writev(self.fd(slot)?, from),
                Some(offset) => io::pwritev(self.fd(slot)?, from, offset),
            })?,
            Op::Lseek { slot, whence, offset } => {
                let seek = match whence {
                    Whence::Set => SeekFrom::Start(offset as u64),
                    Whence::Cur => SeekFrom::Current(offset),
                    Whence::End => SeekFrom::End(offset),
                    Whence::Data => SeekFrom::Data(offset as u64),
                    Whence::Hole => SeekFrom::Hole(offset as u64),
                };
                Answer::Number(fs::seek(self.fd(slot)?, seek)?)
            }
            Op::Ftruncate { slot, size } => done(fs::ftruncate(self.fd(slot)?, size)?),
            Op::Fallocate { slot, mode, offset, len } => {
                done(fs::fallocate(self.fd(slot)?, fs::FallocateFlags::from_bits_retain(mode), offset, len)?)
            }
            Op::CopyRange { from, from_offset, slot, offset, len } => {
                let (from, to) = (self.fd(from)?, self.fd(slot)?);
                let (mut from_offset, mut offset) = (from_offset, offset);
                let copied = fs::copy_file_range(from, Some(&mut from_offset), to, Some(&mut offset), len)?;
                Answer::Number(copied as u64)
            }
            Op::Fsync { slot } => done(fs::fsync(self.fd(slot)?)?),
            Op::Fstat { slot } => Answer::Facts(self.facts(&fs::fstat(self.fd(slot)?)?)),
            Op::Fchmod { slot, mode } => done(fs::fchmod(self.fd(slot)?, KernelMode::from_raw_mode(mode.0))?),
            Op::SetInodeFlags { slot, flags } => {
                done(fs::ioctl_setflags(self.fd(slot)?, fs::IFlags::from_bits_retain(flags))?)
            }
            Op::InodeFlags { slot } => Answer::Number(fs::ioctl_getflags(self.fd(slot)?)?.bits().into()),
            Op::LockRange { slot, lock, start, len } => {
                let lock = flock_of(lock, start, len);
                fcntl(self.fd(slot)?, FcntlArg::F_OFD_SETLK(&lock)).map_err(of_nix)?;
                Answer::Done
            }
            Op::IsExcluded { slot, lock, start, len } => {
                let mut lock = flock_of(Some(lock), start, len);
                fcntl(self.fd(slot)?, FcntlArg::F_OFD_GETLK(&mut lock)).map_err(of_nix)?;
                Answer::Number((i32::from(lock.l_type) != F_UNLCK).into())
            }
            Op::Flock { slot, lock } => done(fs::flock(
                self.fd(slot)?,
                match lock {
                    Some(LockKind::Shared) => FlockOperation::NonBlockingLockShared,
                    Some(LockKind::Exclusive) => FlockOperation::NonBlockingLockExclusive,
                    None => FlockOperation::NonBlockingUnlock,
                },
            )?),
            Op::PathOf { slot } => self.path_of(slot)?,
            Op::Readdir { slot } => readdir(self.fd(slot)?)?,
            _ => unreachable!("not an operation on a handle"),
        })
    }

    /// The target of the link in `/proc`.
    fn path_of(&self, slot: usize) -> io::Result<Answer> {
        if self.style.mounted && self.anonymous_in[slot].is_some() {
            // The kernel, and not the file system, names an anonymous file of a mount.
            return Ok(Answer::Bytes(Vec::new()));
        }
        let name = self.fd(slot)?.as_raw_fd().to_string();
        let path = fs::readlinkat(&self.handles, name, Vec::new())?;
        Ok(Answer::Bytes(mask_number(path.into_bytes())))
    }

    fn on_names(&mut self, op: &Op) -> io::Result<Answer> {
        Ok(match op {
            Op::Mkdir { place, mode } => done(fs::mkdirat(self.at(place)?, &*place.path, kernel_mode(*mode))?),
            Op::Mknod { place, mode, rdev } => {
                let kind = fs::FileType::from_raw_mode(mode.0);
                done(fs::mknodat(self.at(place)?, &*place.path, kind, kernel_mode(*mode), *rdev)?)
            }
            Op::Symlink { target, place } => done(fs::symlinkat(&**target, self.at(place)?, &*place.path)?),
            Op::Readlink { place } => {
                Answer::Bytes(fs::readlinkat(self.at(place)?, &*place.path, Vec::new())?.into_bytes())
            }
            Op::Link { old, new, follow } => {
                let flags = if *follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
                done(fs::linkat(self.at(old)?, &*old.path, self.at(new)?, &*new.path, flags)?)
            }
            Op::LinkHandle { slot, new } => {
                done(fs::linkat(self.fd(*slot)?, "", self.at(new)?, &*new.path, AtFlags::EMPTY_PATH)?)
            }
            Op::Unlink { place } => done(fs::unlinkat(self.at(place)?, &*place.path, AtFlags::empty())?),
            Op::Rmdir { place } => done(fs::unlinkat(self.at(place)?, &*place.path, AtFlags::REMOVEDIR)?),
            Op::Rename { old, new, flags } => {
                let flags = fs::RenameFlags::from_bits_retain(*flags);
                done(fs::renameat_with(self.at(old)?, &*old.path, self.at(new)?, &*new.path, flags)?)
            }
            _ => return self.on_attributes(op),
        })
    }

    fn on_attributes(&mut self, op: &Op) -> io::Result<Answer> {
        Ok(match op {
            Op::Stat { place, follow } => Answer::Facts(self.facts(&self.stat_place(place, *follow)?)),
            Op::Access { place, mask } => {
                let want = fs::Access::from_bits_retain(*mask);
                done(fs::accessat(self.at(place)?, &*place.path, want, AtFlags::EACCESS)?)
            }
            Op::Chmod { place, mode } => {
                done(fs::chmodat(self.at(place)?, &*place.path, kernel_mode(*mode), AtFlags::empty())?)
            }
            Op::Chown { place, uid, gid, follow } => {
                let (uid, gid) = (uid.map(fs::Uid::from_raw), gid.map(fs::Gid::from_raw));
                done(fs::chownat(self.at(place)?, &*place.path, uid, gid, nofollow(*follow))?)
            }
            Op::Utimens { place, atime, mtime, follow } => {
                let times = Timestamps { last_access: timespec(*atime), last_modification: timespec(*mtime) };
                done(fs::utimensat(self.at(place)?, &*place.path, &times, nofollow(*follow))?)
            }
            Op::Truncate { path, size } => {
                nix::unistd::truncate(&**path, *size as i64).map_err(of_nix)?;
                Answer::Done
            }
            Op::Statfs { path } => {
                let stat = fs::statfs(&**path)?;
                let limited = self.style.limits.is_some();
                Answer::Space(limited.then_some([stat.f_blocks, stat.f_bfree, stat.f_files, stat.f_ffree]))
            }
            _ => return self.on_xattrs(op),
        })
    }

    fn on_xattrs(&mut self, op: &Op) -> io::Result<Answer> {
        const LONGEST: usize = 70_000;
        Ok(match op {
            Op::Setxattr { path, name, value, flags, follow } => {
                let flags = fs::XattrFlags::from_bits_retain(*flags);
                let set = if *follow {
                    fs::setxattr(&**path, &**name, value, flags)
                } else {
                    fs::lsetxattr(&**path, &**name, value, flags)
                };
                done(set?)
            }
            Op::Getxattr { path, name, follow } => read(LONGEST, |buf| {
                if *follow { fs::getxattr(&**path, &**name, buf) } else { fs::lgetxattr(&**path, &**name, buf) }
            })?,
            Op::Listxattr { path, follow } => {
                let mut list = vec![0_u8; LONGEST];
                let buf = &mut list[..];
                let n = if *follow { fs::listxattr(&**path, buf)? } else { fs::llistxattr(&**path, buf)? };
                let mut names: Vec<_> =
                    list[..n].split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
                names.sort();
                Answer::Names(names)
            }
            Op::Removexattr { path, name, follow } => {
                let (path, name) = (&**path, &**name);
                let removed = if *follow { fs::removexattr(path, name) } else { fs::lremovexattr(path, name) };
                done(removed?)
            }
            _ => return self.on_caller(op),
        })
    }

    fn on_caller(&mut self, op: &Op) -> io::Result<Answer> {
        Ok(match op {
            Op::Chdir { path } => done(rustix::process::chdir(&**path)?),
            Op::Fchdir { slot } => done(rustix::process::fchdir(self.fd(*slot)?)?),
            Op::Getcwd => Answer::Bytes(rustix::process::getcwd(Vec::new())?.into_bytes()),
            Op::Umask { mask } => Answer::Number(rustix::process::umask(kernel_mode(*mask)).as_raw_mode().into()),
            Op::Become { caller } => {
                self.caller = *caller;
                Answer::Done
            }
            _ => unreachable!("every operation is carried out somewhere"),
        })
    }
}

impl Tree for Kernel {
    fn apply(&mut self, op: &Op) -> Outcome {
        let carry_out = |kernel: &mut Self| kernel.on_either(op).map_err(Errno::raw_os_error);
        match op {
            // Once credentials have changed, only root may read the links in `/proc`.
            Op::PathOf { .. } => carry_out(self),
            _ => self.as_caller(carry_out),
        }
    }
}

impl Kernel {
    fn on_either(&mut self, op: &Op) -> io::Result<Answer> {
        match op {
            Op::Open { .. }
            | Op::Close { .. }
            | Op::Read { .. }
            | Op::Write { .. }
            | Op::Pread { .. }
            | Op::Pwrite { .. }
            | Op::Readv { .. }
            | Op::Writev { .. }
            | Op::Lseek { .. }
            | Op::Ftruncate { .. }
            | Op::Fallocate { .. }
            | Op::CopyRange { .. }
            | Op::Fsync { .. }
            | Op::Fstat { .. }
            | Op::Fchmod { .. }
            | Op::SetInodeFlags { .. }
            | Op::InodeFlags { .. }
            | Op::LockRange { .. }
            | Op::IsExcluded { .. }
            | Op::Flock { .. }
            | Op::PathOf { .. }
            | Op::Readdir { .. } => self.on_handle(op),
            _ => self.on_names(op),
        }
    }
}

fn of_nix(error: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(error as i32)
}

/// A lock of an open file, or none.
fn flock_of(lock: Option<LockKind>, start: u64, len: u64) -> flock {
    let kind = lock.map_or(F_UNLCK, |lock| if lock == LockKind::Shared { F_RDLCK } else { F_WRLCK });
    let (l_start, l_len) = (start.cast_signed(), len.cast_signed());
    flock { l_type: kind as i16, l_whence: SEEK_SET as i16, l_start, l_len, l_pid: 0 }
}

/// Whether a file has setuid or setgid.
fn is_privileged(stat: fs::Stat) -> bool {
    stat.st_mode & (fs::Mode::SUID | fs::Mode::SGID).bits() != 0
}

/// Whether a sysctl below `fs.` is on. One that cannot be read counts as on.
pub fn sysctl(name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/sys/fs/{name}")).map_or(true, |text| text.trim() != "0")
}

/// Waits until the kernel's coarse clock, from which tmpfs takes most of its times, is later than
/// all times that it may have returned so far. Later changes then have other times than earlier
/// ones.
pub fn next_tick() {
    let time = |clock| clock_gettime(clock).expect("Linux has both clocks");
    let now = time(ClockId::CLOCK_REALTIME);
    while time(ClockId::CLOCK_REALTIME_COARSE) <= now {
        std::thread::yield_now();
    }
}

fn done((): ()) -> Answer {
    Answer::Done
}

fn number(n: usize) -> Answer {
    Answer::Number(n as u64)
}

fn kernel_mode(mode: Mode) -> KernelMode {
    KernelMode::from_raw_mode(mode.0)
}

fn nofollow(follow: bool) -> AtFlags {
    if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW }
}

fn timespec(when: When) -> Timespec {
    let (tv_sec, tv_nsec) = match when {
        When::Omit => (0, fs::UTIME_OMIT),
        When::Now => (0, fs::UTIME_NOW),
        When::At { secs, nanos } => (secs, nanos.into()),
    };
    Timespec { tv_sec, tv_nsec }
}

fn readdir(fd: BorrowedFd<'_>) -> io::Result<Answer> {
    // Only directories are rewound. A file keeps its position when it is asked for entries.
    if fs::fstat(fd)?.st_mode & S_IFMT == S_IFDIR && !fs::fcntl_getfl(fd)?.contains(OFlags::PATH) {
        fs::seek(fd, SeekFrom::Start(0))?;
    }
    let mut buf = Vec::with_capacity(8192);
    let mut dir = fs::RawDir::new(fd, buf.spare_capacity_mut());
    let mut entries = Vec::new();
    while let Some(entry) = dir.next() {
        let entry = entry?;
        entries.push(Entry {
            name: entry.file_name().to_bytes().to_vec(),
            kind: Mode(entry.file_type().as_raw_mode()),
            ino: NotCompared(entry.ino()),
        });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Answer::Entries(entries))
}
