//! The system calls: reading a directory, and asking for attributes, with a check whether the call
//! had to wait.

use std::{
    ffi::{CStr, CString, OsStr},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    time::{Duration, Instant},
};

use nix::sys::resource::{UsageWho, getrusage};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, StatxFlags},
    io::Errno,
    path::Arg,
};

/// Bytes of directory entries that are read at once: some thousand names.
const BLOCK: usize = 32 << 10;

/// Identifies a directory, so that two posts of one directory are not taken for two directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// The identity of an open directory, as far as the kernel knows it without asking a server.
pub(crate) fn identity(directory: impl AsFd) -> rustix::io::Result<Identity> {
    identity_at(directory, c"", AtFlags::EMPTY_PATH)
}

/// The same for a path.
pub(crate) fn identity_at(directory: impl AsFd, path: impl Arg, flags: AtFlags) -> rustix::io::Result<Identity> {
    let found = rustix::fs::statx(directory, path, flags | AtFlags::STATX_DONT_SYNC, StatxFlags::INO)?;
    Ok(Identity { device: u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor), inode: found.stx_ino })
}

/// The position of the next read; zero if the file system does not tell.
pub(crate) fn position(directory: impl AsFd) -> u64 {
    rustix::fs::seek(directory, SeekFrom::Current(0)).unwrap_or(0)
}

/// Opens the directory again for the helper, at `position`. Its owner and root may read it without
/// a change of the atime, so the helper does that where it may. If the program's own reading
/// changes the atime, that is the program's change.
pub(crate) fn reopen(directory: impl AsFd, position: u64) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::openat(&directory, c".", flags, Mode::empty());
    let own = match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        outcome => outcome,
    }?;
    if position != 0 {
        rustix::fs::seek(&own, SeekFrom::Start(position))?;
    }
    Ok(own)
}

/// Which entries of a directory are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    All,
    /// Symbolic links, and entries without a type.
    Links,
}

/// A block of names, and the number of its entries, with the dots and those that were not picked.
/// No entries at the end.
pub(crate) fn names(directory: BorrowedFd<'_>, pick: Pick) -> rustix::io::Result<(Vec<CString>, u64)> {
    let mut block = [MaybeUninit::uninit(); BLOCK];
    let mut entries = RawDir::new(directory, &mut block);
    let (mut names, mut count) = (Vec::new(), 0);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        count += 1;
        let may_be_link = matches!(entry.file_type(), FileType::Symlink | FileType::Unknown);
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") && (pick == Pick::All || may_be_link) {
            names.push(entry.file_name().to_owned());
        }
        // A further entry would need a second call, and the block has no space for its answer.
        if entries.is_buffer_empty() {
            break;
        }
    }
    Ok((names, count))
}

/// The outcome of a sequence of calls.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Entries that were asked for.
    pub(crate) calls: usize,
    /// Calls in which the thread slept.
    pub(crate) waited: usize,
    /// Errors that mean trouble in the file system, other than a missing name.
    pub(crate) trouble: usize,
    /// Links whose targets were asked for.
    pub(crate) links: usize,
    /// Whether the kernel keeps attributes.
    pub(crate) attributes: Votes,
    /// Whether it keeps targets of links.
    pub(crate) targets: Votes,
}

/// Calls that had waited and were made twice, by what they say of the kernel's caches.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Votes {
    /// The second call waited too, about as long: nothing was kept.
    pub(crate) forgotten: usize,
    /// The second call was answered at once or sooner.
    pub(crate) kept: usize,
}

/// So many calls are made twice before the kernel is said to keep nothing.
const VOTES: usize = 8;

impl Votes {
    fn add(&mut self, is_forgotten: bool) {
        *if is_forgotten { &mut self.forgotten } else { &mut self.kept } += 1;
    }

    pub(crate) fn learn(&mut self, more: Self) {
        self.forgotten += more.forgotten;
        self.kept += more.kept;
    }

    /// Whether more calls are to be made twice.
    pub(crate) fn are_wanted(self) -> bool {
        self.forgotten + self.kept < VOTES
    }

    /// Whether the kernel keeps nothing.
    pub(crate) fn are_against(self) -> bool {
        self.forgotten * 4 >= VOTES * 3
    }
}

/// How to ask for each name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Also the access control list, as `ls -l` does.
    pub(crate) xattrs: bool,
    /// Stop after the first call that waited.
    pub(crate) stop_at_wait: bool,
    /// Make the call twice if the first one waited, to see whether the kernel keeps the answer.
    pub(crate) twice: bool,
    /// Also the targets of links.
    pub(crate) links: bool,
    /// And these twice, if the first call waited.
    pub(crate) links_twice: bool,
}

/// Asks for the attributes of `names`, one after the other.
///
/// A call has waited if the thread gave up its CPU voluntarily (`ru_nvcsw`). A clock would not
/// distinguish waiting for a disk from waiting for a CPU, and on a busy machine both are common.
pub(crate) fn ask(directory: BorrowedFd<'_>, names: &[CString], manner: Manner) -> Asked {
    let mut asked = Asked::default();
    for name in names {
        let (began, sleeps) = (Instant::now(), own_sleeps());
        let kind = stat(directory, name);
        let took = began.elapsed();
        asked.trouble += usize::from(kind.is_err_and(is_trouble));
        if manner.xattrs {
            access_list(directory, name);
        }
        let mut waited = own_sleeps() != sleeps;
        // Before the target is read, which may change the atime and so drop the attributes.
        if waited && manner.twice {
            asked.attributes.add(is_forgotten(took, || stat(directory, name)));
        }
        if manner.links && kind == Ok(FileType::Symlink) {
            waited |= ask_target(directory, name, manner.links_twice, &mut asked);
        }
        asked.calls += 1;
        asked.waited += usize::from(waited);
        if waited && manner.stop_at_wait {
            break;
        }
    }
    asked
}

/// Returns whether the call waited.
fn ask_target(directory: BorrowedFd<'_>, name: &CStr, twice: bool, asked: &mut Asked) -> bool {
    let (began, sleeps) = (Instant::now(), own_sleeps());
    // No link any more, or one that only its owner can read: treated as a missing name.
    asked.trouble += usize::from(target(directory, name).is_err_and(is_trouble));
    let took = began.elapsed();
    asked.links += 1;
    let waited = own_sleeps() != sleeps;
    if twice && waited {
        asked.targets.add(is_forgotten(took, || target(directory, name)));
    }
    waited
}

/// Whether a call that waited waits again as if it were the first.
fn is_forgotten<T>(first: Duration, again: impl FnOnce() -> T) -> bool {
    let (began, sleeps) = (Instant::now(), own_sleeps());
    let _answer = again();
    own_sleeps() != sleeps && began.elapsed() > first.mul_f64(0.75)
}

fn stat(directory: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<FileType> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(directory, name, flags, StatxFlags::BASIC_STATS)?;
    Ok(FileType::from_raw_mode(found.stx_mode.into()))
}

/// Reads the target of a link. The kernel reads all of it, whatever the buffer's size.
fn target(directory: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    rustix::fs::readlinkat_raw(directory, name, &mut [0_u8; 1][..]).map(drop)
}

/// One component below a descriptor, without following a link at its end. It is as safe as the
/// `*at` call that older kernels lack.
fn access_list(directory: BorrowedFd<'_>, name: &CStr) {
    let path =
        PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(OsStr::from_bytes(name.to_bytes()));
    let _ = rustix::fs::lgetxattr_query(&path, c"system.posix_acl_access");
}

/// Whether an error means trouble in the file system, other than a missing name.
pub(crate) fn is_trouble(error: Errno) -> bool {
    matches!(error, Errno::IO | Errno::TIMEDOUT | Errno::NOMEM | Errno::STALE | Errno::NOTCONN | Errno::REMOTEIO)
}

/// How often this thread has given up its CPU to wait. If the count is not available, it never
/// changes.
fn own_sleeps() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.voluntary_context_switches())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const PLAIN: Manner = Manner { xattrs: true, stop_at_wait: false, twice: true, links: true, links_twice: true };

    #[test]
    fn names_come_from_the_directory_and_end() {
        let directory = tempfile::tempdir().unwrap();
        (0..3000).for_each(|i| drop(File::create(directory.path().join(format!("{i:0>20}"))).unwrap()));
        let open = reopen(File::open(directory.path()).unwrap(), 0).unwrap();
        let (mut all, mut entries) = (Vec::new(), 0);
        loop {
            let (names, count) = names(open.as_fd(), Pick::All).unwrap();
            if count == 0 {
                break;
            }
            all.extend(names);
            entries += count;
        }
        all.sort();
        all.dedup();
        assert_eq!((all.len(), entries), (3000, 3002));
        assert_ne!(position(&open), 0);
    }

    #[test]
    fn position_of_another_descriptor_stays() {
        let directory = tempfile::tempdir().unwrap();
        File::create(directory.path().join("one")).unwrap();
        let theirs = File::open(directory.path()).unwrap();
        let ours = reopen(&theirs, 0).unwrap();
        assert_eq!(names(ours.as_fd(), Pick::All).unwrap().1, 3);
        assert_eq!(position(&theirs), 0);
        assert_eq!(identity(&theirs).unwrap(), identity(&ours).unwrap());
    }

    #[test]
    fn atime_stays() {
        let directory = tempfile::tempdir().unwrap();
        let theirs = File::open(directory.path()).unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH;
        theirs.set_times(std::fs::FileTimes::new().set_accessed(old)).unwrap();
        assert_eq!(names(reopen(&theirs, 0).unwrap().as_fd(), Pick::All).unwrap().1, 2);
        assert_eq!(theirs.metadata().unwrap().accessed().unwrap(), old);
    }

    #[test]
    fn missing_names_are_no_trouble() {
        let directory = tempfile::tempdir().unwrap();
        File::create(directory.path().join("here")).unwrap();
        let open = File::open(directory.path()).unwrap();
        let asked = ask(open.as_fd(), &[c"here".into(), c"gone".into()], PLAIN);
        assert_eq!((asked.calls, asked.trouble), (2, 0));
        assert!(target(open.as_fd(), c"here").is_err_and(|error| !is_trouble(error)), "it is not a link");
    }

    #[test]
    fn links_are_picked_and_targets_read_on_request() {
        let directory = tempfile::tempdir().unwrap();
        File::create(directory.path().join("file")).unwrap();
        std::os::unix::fs::symlink("nowhere", directory.path().join("link")).unwrap();
        let open = File::open(directory.path()).unwrap();
        assert_eq!(names(open.as_fd(), Pick::Links).unwrap(), (vec![c"link".into()], 4));
        let both = [c"file".into(), c"link".into()];
        for links in [false, true] {
            let asked = ask(open.as_fd(), &both, Manner { links, ..PLAIN });
            assert_eq!((asked.calls, asked.links, asked.trouble), (2, usize::from(links), 0));
        }
    }
}
