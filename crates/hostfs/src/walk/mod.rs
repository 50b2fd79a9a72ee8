//! Trees: one directory after the other, each with its records.
//!
//! Difficulties, and what answers each:
//! 1. *A directory is swapped for a symbolic link, or for another directory, under way.* Each is opened by its one name in the
//!    descriptor of its parent, never through a link, and must be the inode that its parent's record named.
//! 2. *Trees deeper than descriptors allow.* Only the deepest [`OPEN_LEVELS`] levels and the root keep theirs; a level that is
//!    needed again is found through `..`, or from the root by its names, and must be the inode that it was.
//! 3. *Loops* (a mount of a directory within itself): a directory that is its own ancestor is reported and left alone.
//! 4. *What vanishes or cannot be read* is reported, and the walk goes on.

use std::{
    collections::VecDeque,
    ffi::{CStr, CString, OsStr},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::Arc,
};

use pando_vfs::{
    FileKind,
    bulk::{Batch, Record},
};
use rustix::{
    fs::{AtFlags, Mode, OFlags, StatxFlags},
    io::Errno,
};

mod children;

pub use children::{Child, Children};

use self::children::Expected;
use crate::{
    Options, Result,
    arena::Arena,
    fill::{attr_of, retry},
    scan::Scan,
};

/// Levels that keep their descriptors, besides the root.
const OPEN_LEVELS: usize = 64;

/// How a tree is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WalkOptions {
    /// How each directory is read. The budget is for all together.
    pub scan: Options,
    /// Directories on another file system than their root are not entered. Their records are handed out.
    pub one_file_system: bool,
}

/// What a walk does next.
#[derive(Debug)]
pub enum Event<'a> {
    /// A directory begins.
    Enter(Directory<'a>),
    /// Some of its records, in directory order.
    Batch(Directory<'a>, &'a Batch),
    /// It was read to its end, as far as it could be. Its children come next, and may be put into another order, or taken away.
    Leave(Directory<'a>, &'a mut Children),
    /// A directory could not be entered, or not be read on.
    Failed(Failure<'a>),
}

/// The directory that is being read.
#[derive(Debug, Clone, Copy)]
pub struct Directory<'a> {
    /// The path of its root as it was given, and the names from there.
    pub path: &'a Path,
    /// 0 for a root.
    pub depth: usize,
    /// Itself, for calls such as readlinkat.
    pub fd: BorrowedFd<'a>,
    /// The device that it is on.
    pub dev: (u32, u32),
    /// Its inode.
    pub ino: u64,
}

/// What could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The directory's path.
    pub path: &'a Path,
    /// 0 for a root.
    pub depth: usize,
    /// At what.
    pub cause: Cause,
    /// Why.
    pub errno: i32,
}

/// At what it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It could not be opened: it vanished (ENOENT), is a symbolic link now (ELOOP, ENOTDIR), must not be read (EACCES)...
    Open,
    /// It could not be read on: some of its entries may be missing.
    Read,
    /// Another directory has its name now (ESTALE).
    Swapped,
    /// It is its own ancestor (ELOOP).
    Loop,
}

/// A root that waits for its turn.
struct Root {
    path: Vec<u8>,
    fd: Option<OwnedFd>,
}

/// A directory between the root and the one that is read.
struct Level {
    dev: (u32, u32),
    ino: u64,
    /// None if it was closed to save descriptors.
    fd: Option<Arc<OwnedFd>>,
    /// Length of its path.
    path_len: usize,
    /// Where its name begins in the path.
    name_at: usize,
    children: Children,
}

/// The directory that is read.
struct Current {
    level: Level,
    scan: Scan,
    read: u64,
}

/// Where the walk stands.
enum State {
    /// The next child is to be opened.
    Down,
    /// A directory is being read.
    Reading(Current),
    /// It was read, and its children may be put into order.
    Leaving(Current),
}

/// What [`Walk::step`] did.
enum Step {
    Enter,
    Batch,
    Leave,
    /// Of the directory at the current path.
    Failed(usize, Cause, i32),
    End,
}

/// Walks trees, depth first: a directory's records, then its directories in order.
///
/// ```
/// use pando_hostfs::{Event, Walk, WalkOptions};
///
/// let mut walk = Walk::open("/etc", WalkOptions::default())?;
/// let mut entries = 0;
/// while let Some(event) = walk.next_event() {
///     match event {
///         Event::Batch(_, batch) => entries += batch.len(),
///         Event::Leave(_, children) => children.sort_by(|a, b| a.name.cmp(b.name)),
///         Event::Failed(failure) => eprintln!("{}: errno {}", failure.path.display(), failure.errno),
///         Event::Enter(_) => {}
///     }
/// }
/// assert!(entries > 0);
/// # Ok::<(), pando_hostfs::Error>(())
/// ```
pub struct Walk {
    options: WalkOptions,
    arena: Arc<Arena>,
    roots: VecDeque<Root>,
    /// Of the directory that is read, or of the one that failed.
    path: Vec<u8>,
    stack: Vec<Level>,
    state: State,
}

impl Walk {
    /// A walk without roots.
    ///
    /// # Errors
    /// EINVAL for options that make no sense.
    pub fn new(options: WalkOptions) -> Result<Self> {
        options.scan.check()?;
        Ok(Self {
            options,
            arena: Arc::new(Arena::new(options.scan.budget_bytes)),
            roots: VecDeque::new(),
            path: Vec::new(),
            stack: Vec::new(),
            state: State::Down,
        })
    }

    /// A walk of one tree. Whether its root can be opened shows with the first event.
    ///
    /// # Errors
    /// EINVAL for options that make no sense.
    pub fn open(path: impl AsRef<Path>, options: WalkOptions) -> Result<Self> {
        let mut walk = Self::new(options)?;
        walk.push(path);
        Ok(walk)
    }

    /// Another root, after those before. If it is a symbolic link it is followed, as opendir does.
    pub fn push(&mut self, path: impl AsRef<Path>) {
        self.roots.push_back(Root { path: path.as_ref().as_os_str().as_bytes().to_vec(), fd: None });
    }

    /// Another root that is open already; `path` is what it is called.
    pub fn push_fd(&mut self, fd: OwnedFd, path: impl AsRef<Path>) {
        self.roots.push_back(Root { path: path.as_ref().as_os_str().as_bytes().to_vec(), fd: Some(fd) });
    }

    /// What comes next; none at the end. It is valid until the next call.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        let step = self.step();
        let path = Path::new(OsStr::from_bytes(&self.path));
        let depth = self.stack.len();
        match (step, &mut self.state) {
            (Step::Failed(depth, cause, errno), _) => Some(Event::Failed(Failure { path, depth, cause, errno })),
            (Step::Enter, State::Reading(current)) => Some(Event::Enter(current.directory(path, depth))),
            (Step::Batch, State::Reading(current)) => {
                Some(Event::Batch(current.directory(path, depth), current.scan.batch()))
            }
            (Step::Leave, State::Leaving(current)) => {
                let Level { dev, ino, .. } = current.level;
                let directory = Directory { path, depth, fd: current.scan.dir(), dev, ino };
                Some(Event::Leave(directory, &mut current.level.children))
            }
            _ => None,
        }
    }

    fn step(&mut self) -> Step {
        match std::mem::replace(&mut self.state, State::Down) {
            State::Reading(current) => self.read_on(current),
            State::Leaving(current) => {
                if !current.level.children.is_empty() {
                    self.stack.push(current.level);
                    self.close_some();
                }
                self.down()
            }
            State::Down => self.down(),
        }
    }

    /// The next records of the directory that is read.
    fn read_on(&mut self, mut current: Current) -> Step {
        match current.scan.advance() {
            Ok(true) => {
                current.gather_children();
                self.state = State::Reading(current);
                Step::Batch
            }
            Ok(false) => {
                self.state = State::Leaving(current);
                Step::Leave
            }
            Err(error) => {
                self.state = State::Reading(current);
                Step::Failed(self.stack.len(), Cause::Read, error.errno())
            }
        }
    }

    /// Enters the next directory: a child of the deepest level that has one, or a root.
    fn down(&mut self) -> Step {
        while let Some(mut level) = self.stack.pop() {
            self.path.truncate(level.path_len);
            let Some((name, expected)) = level.children.take() else {
                self.reopen_parent(&level);
                continue;
            };
            let name_c = CString::new(name).expect("names have no zero bytes");
            if self.path.last() != Some(&b'/') {
                self.path.push(b'/');
            }
            let name_at = self.path.len();
            self.path.extend_from_slice(name);
            let other = self.options.one_file_system && expected.is_some_and(|expected| expected.dev != level.dev);
            let fd = level.fd.clone();
            self.stack.push(level);
            if other {
                continue;
            }
            let opened = match fd {
                Some(fd) => open_dir(fd.as_fd(), &name_c).map_err(|errno| (Cause::Open, errno)),
                None => {
                    self.reopen().and_then(|fd| open_dir(fd.as_fd(), &name_c).map_err(|errno| (Cause::Open, errno)))
                }
            };
            match opened.and_then(|fd| self.enter(fd, expected, name_at)) {
                Ok(true) => return Step::Enter,
                Ok(false) => {}
                Err((cause, errno)) => return Step::Failed(self.stack.len(), cause, errno.raw_os_error()),
            }
        }
        self.next_root()
    }

    fn next_root(&mut self) -> Step {
        let Some(root) = self.roots.pop_front() else { return Step::End };
        self.path = root.path;
        let opened = match root.fd {
            Some(fd) => Ok(fd),
            None => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                retry(|| rustix::fs::open(OsStr::from_bytes(&self.path), flags, Mode::empty()))
            }
        };
        match opened.map_err(|errno| (Cause::Open, errno)).and_then(|fd| self.enter(fd, None, 0)) {
            Ok(_) => Step::Enter,
            Err((cause, errno)) => Step::Failed(0, cause, errno.raw_os_error()),
        }
    }

    /// Begins to read an open directory, if it is what was expected. False: it is on another file system, and not asked for.
    fn enter(
        &mut self,
        fd: OwnedFd,
        expected: Option<Expected>,
        name_at: usize,
    ) -> std::result::Result<bool, (Cause, Errno)> {
        let (dev, ino) = identity(fd.as_fd()).map_err(|errno| (Cause::Open, errno))?;
        if expected.is_some_and(|expected| !expected.automount && (expected.dev, expected.ino) != (dev, ino)) {
            return Err((Cause::Swapped, Errno::STALE));
        }
        if self.stack.iter().any(|level| (level.dev, level.ino) == (dev, ino)) {
            return Err((Cause::Loop, Errno::LOOP));
        }
        if self.options.one_file_system && self.stack.first().is_some_and(|root| root.dev != dev) {
            return Ok(false);
        }
        let scan = Scan::with_arena(fd, &self.options.scan, self.arena.clone());
        let fd = Some(scan.shared_dir());
        let level = Level { dev, ino, fd, path_len: self.path.len(), name_at, children: Children::default() };
        self.state = State::Reading(Current { level, scan, read: 0 });
        Ok(true)
    }

    /// Closes a level that will not be needed soon.
    fn close_some(&mut self) {
        if let Some(index) = self.stack.len().checked_sub(OPEN_LEVELS + 1).filter(|&index| index > 0) {
            self.stack[index].fd = None;
        }
    }

    /// The level before `level`, which is done, is opened again by `..` if it was closed.
    fn reopen_parent(&mut self, level: &Level) {
        let Some(parent) = self.stack.last_mut() else { return };
        let (None, Some(fd)) = (&parent.fd, &level.fd) else { return };
        if let Ok(fd) = open_dir(fd.as_fd(), c"..")
            && identity(fd.as_fd()).is_ok_and(|found| found == (parent.dev, parent.ino))
        {
            parent.fd = Some(Arc::new(fd));
        }
    }

    /// Opens the deepest level again by the names from the deepest one that is open.
    fn reopen(&mut self) -> std::result::Result<Arc<OwnedFd>, (Cause, Errno)> {
        let open = self.stack.iter().rposition(|level| level.fd.is_some()).ok_or((Cause::Open, Errno::STALE))?;
        let mut fd = self.stack[open].fd.clone().ok_or((Cause::Open, Errno::STALE))?;
        for level in &self.stack[open + 1..] {
            let name =
                CString::new(&self.path[level.name_at..level.path_len]).map_err(|_| (Cause::Open, Errno::INVAL))?;
            let next = open_dir(fd.as_fd(), &name).map_err(|errno| (Cause::Open, errno))?;
            if identity(next.as_fd()) != Ok((level.dev, level.ino)) {
                return Err((Cause::Swapped, Errno::STALE));
            }
            fd = Arc::new(next);
        }
        let last = self.stack.last_mut().expect("at least the open one");
        last.fd = Some(fd.clone());
        Ok(fd)
    }
}

impl Current {
    fn directory<'a>(&'a self, path: &'a Path, depth: usize) -> Directory<'a> {
        Directory { path, depth, fd: self.scan.dir(), dev: self.level.dev, ino: self.level.ino }
    }

    /// Remembers the directories among the records just read.
    fn gather_children(&mut self) {
        for record in self.scan.batch().iter() {
            if is_directory(self.scan.dir(), &record) {
                self.level.children.push(&record, self.read);
            }
            self.read += 1;
        }
    }
}

fn is_directory(dir: BorrowedFd<'_>, record: &Record<'_>) -> bool {
    let is = match record.kind() {
        Some(kind) => kind == FileKind::Directory,
        // Neither the directory nor the attributes say it: it is asked for. Opening it may fail still.
        None => {
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            retry(|| rustix::fs::statx(dir, record.name_c(), flags, StatxFlags::TYPE))
                .is_ok_and(|statx| attr_of(&statx).kind() == Some(FileKind::Directory))
        }
    };
    is && record.name() != b"." && record.name() != b".."
}

/// Opens a directory by its one name, never through a symbolic link.
fn open_dir(parent: BorrowedFd<'_>, name: &CStr) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    retry(|| rustix::fs::openat(parent, name, flags, Mode::empty()))
}

/// The device and the inode of what is open.
fn identity(fd: BorrowedFd<'_>) -> std::result::Result<((u32, u32), u64), Errno> {
    let statx = retry(|| rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO))?;
    Ok(((statx.stx_dev_major, statx.stx_dev_minor), statx.stx_ino))
}
