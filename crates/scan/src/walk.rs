//! Trees: one directory after the other, each with its records.
//!
//! Difficulties, and how they are answered:
//! 1. *A directory is replaced by a symbolic link, or by another directory, during the walk.* Each
//!    is opened by its one name in the descriptor of its parent, never through a link. It must be
//!    the inode of its parent's record, if the inode was asked for as an attribute. (Directory
//!    entries have inode numbers too. They differ from the attribute at mount points, on overlayfs,
//!    and on many FUSE file systems. So with names alone, the other directory is entered.)
//! 2. *Trees deeper than descriptors allow.* Only the deepest [`OPEN_LEVELS`] levels and the root
//!    keep theirs. A level that is needed again is found through `..`, or from the root by its
//!    names, and must be the same inode. A level with very many directories also has a temporary
//!    file for them ([`Children`]).
//! 3. *Loops* (a mount of a directory within itself). A directory that is its own ancestor is
//!    reported and not entered.
//! 4. *Waiting for each directory in turn.* While calls wait, threads read the next directories
//!    ahead, within half of the budget. They are still returned in their order.
//! 5. *Directories that vanish or cannot be read* are reported, and the walk continues.

use std::{
    collections::VecDeque,
    ffi::{CString, OsStr},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use pando_records::PAGE_BYTES;
use rustix::io::Errno;

mod ahead;
mod children;
mod event;
mod open;
mod options;
mod portion;

pub use children::Children;
pub use event::{Directory, Event, Failure};
pub use open::Cause;
pub use options::{Descent, WalkOptions};
pub use portion::Child;

use self::{
    ahead::{Ahead, Opened, Task},
    open::{ELSEWHERE, Expected, Identity, identity, identity_as, is_directory, open_dir, open_dir_on, open_root},
};
use crate::{Result, directory::Scan, kernel::meter::Meter, memory::Arena, workers::WorkerPool};

/// Levels that keep their descriptors, besides the root.
const OPEN_LEVELS: usize = 64;

/// Pages for a directory that is read ahead.
const SLICE_PAGES: usize = 20;

/// Of so many directories that the walk opens by itself, it measures one; of the first ones, each.
const LOOK_EVERY: u64 = 8;

/// A root whose turn has not come.
struct Root {
    path: Vec<u8>,
    fd: Option<OwnedFd>,
}

/// A directory between the root and the directory that is being read.
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

/// The directory that is being read.
struct Current {
    level: Level,
    scan: Scan,
    read: u64,
    /// The slice with which it was read ahead. It has the walk's own pages too, until it is left.
    slice: Option<Arc<Arena>>,
}

/// The next thing that the walk does.
enum State {
    /// Open the next child.
    Down,
    /// Read a directory further.
    Reading(Current),
    /// Leave a directory. It was read, and the caller may sort its children.
    Leaving(Current),
}

type Attempt<T> = std::result::Result<T, (Cause, Errno)>;

/// The outcome of [`Walk::step`].
enum Step {
    Enter,
    Batch,
    Leave,
    /// The directory at the current path failed, at this depth.
    Failed(usize, Cause, i32),
    End,
}

/// Walks trees, depth first: a directory's records, then its directories in order.
///
/// ```
/// use pando_scan::{Event, Walk, WalkOptions};
///
/// let mut walk = Walk::open("/etc", WalkOptions::default())?;
/// let mut entries = 0;
/// while let Some(event) = walk.next_event() {
///     match event {
///         Event::Batch(_, batch) => entries += batch.len(),
///         Event::Leave(_, children) => children.sort_by(|a, b| a.name.cmp(b.name)),
///         Event::Failed(failure) => eprintln!("{failure:?}"),
///         Event::Enter(_) => {}
///     }
/// }
/// assert!(entries > 0);
/// # Ok::<(), pando_scan::Error>(())
/// ```
pub struct Walk {
    options: WalkOptions,
    /// For the directory that is being read.
    arena: Arc<Arena>,
    /// For directories that are read ahead. A slice is free if nothing else refers to it.
    slices: Vec<Arc<Arena>>,
    pool: WorkerPool,
    roots: VecDeque<Root>,
    /// The path of the directory that is being read, or of the one that failed.
    path: Vec<u8>,
    stack: Vec<Level>,
    state: State,
    /// Directories that the walk opened while no thread did it.
    opened_alone: u64,
}

impl Walk {
    /// A walk without roots.
    ///
    /// # Errors
    /// EINVAL for options that make no sense.
    pub fn new(options: WalkOptions) -> Result<Self> {
        options.scan.check()?;
        let slices = options.scan.budget_bytes / 2 / (SLICE_PAGES * PAGE_BYTES);
        Ok(Self {
            options,
            arena: Arc::new(Arena::new(options.scan.budget_bytes - slices * SLICE_PAGES * PAGE_BYTES)),
            slices: (0..slices).map(|_| Arc::new(Arena::new(SLICE_PAGES * PAGE_BYTES))).collect(),
            pool: WorkerPool::new(&options.scan),
            roots: VecDeque::new(),
            path: Vec::new(),
            stack: Vec::new(),
            state: State::Down,
            opened_alone: 0,
        })
    }

    /// A walk of one tree. The first event says whether its root can be opened.
    ///
    /// # Errors
    /// EINVAL for options that make no sense.
    pub fn open(path: impl AsRef<Path>, options: WalkOptions) -> Result<Self> {
        let mut walk = Self::new(options)?;
        walk.push(path);
        Ok(walk)
    }

    /// Adds a root after the others. If it is a symbolic link, it is followed, as opendir does.
    pub fn push(&mut self, path: impl AsRef<Path>) {
        self.roots.push_back(Root { path: path.as_ref().as_os_str().as_bytes().to_vec(), fd: None });
    }

    /// Adds a root that is already open; `path` is its name in events.
    pub fn push_fd(&mut self, fd: OwnedFd, path: impl AsRef<Path>) {
        self.roots.push_back(Root { path: path.as_ref().as_os_str().as_bytes().to_vec(), fd: Some(fd) });
    }

    /// The next event, and none at the end. It is valid until the next call.
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
            State::Leaving(Current { mut level, scan, slice, .. }) => {
                drop(scan);
                level.children.settle();
                if let Some(slice) = slice {
                    slice.move_to(&self.arena, SLICE_PAGES);
                }
                self.stack.push(level);
                self.close_some();
                self.down()
            }
            State::Down => self.down(),
        }
    }

    /// The next records of the directory that is read.
    fn read_on(&mut self, mut current: Current) -> Step {
        match current.scan.advance() {
            Ok(true) => {
                if self.options.descent != Descent::No {
                    current.gather_children(self.options.scan.follow);
                }
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
            let child = match level.children.take() {
                Ok(Some(child)) => child,
                Ok(None) => {
                    self.reopen_parent(&level);
                    continue;
                }
                Err(errno) => {
                    self.stack.push(level);
                    return Step::Failed(self.stack.len() - 1, Cause::Read, errno);
                }
            };
            if !matches!(self.path.last(), None | Some(b'/')) {
                self.path.push(b'/');
            }
            let name_at = self.path.len();
            self.path.extend_from_slice(child.name);
            let name = CString::new(child.name).map_err(|_| (Cause::Open, Errno::INVAL));
            let (expected, ahead) = (child.expected, child.ahead);
            self.stack.push(level);
            if self.is_elsewhere(expected) {
                continue;
            }
            let opened = match ahead {
                Some(ahead) => self.take_ahead(&ahead),
                None => name.and_then(|name| self.open_and_look(&name, expected)),
            };
            self.read_ahead();
            match opened.and_then(|opened| self.enter(opened, name_at)) {
                Ok(true) => return Step::Enter,
                Ok(false) | Err(ELSEWHERE) => {}
                Err((cause, errno)) => return Step::Failed(self.stack.len(), cause, errno.raw_os_error()),
            }
        }
        self.next_root()
    }

    /// Whether a child of the deepest level is on another file system and not entered for that
    /// reason.
    fn is_elsewhere(&self, expected: Option<Expected>) -> bool {
        let dev = self.stack.last().map(|level| level.dev);
        self.options.one_file_system && expected.is_some_and(|expected| Some(expected.dev) != dev)
    }

    fn next_root(&mut self) -> Step {
        let Some(root) = self.roots.pop_front() else { return Step::End };
        self.path = root.path;
        let opened = match root.fd {
            Some(fd) => Ok(fd),
            None => open_root(OsStr::from_bytes(&self.path)),
        };
        let opened = opened.map_err(|errno| (Cause::Open, errno)).and_then(|fd| self.begin(fd, None));
        match opened.and_then(|opened| self.enter(opened, 0)) {
            Ok(_) => Step::Enter,
            Err((cause, errno)) => Step::Failed(0, cause, errno.raw_os_error()),
        }
    }

    /// Opens a child of the deepest level, and measures whether the walk had to wait for it. If so,
    /// threads open the next ones. The cost of its entries is measured by the scan, unless only
    /// names are asked for.
    fn open_and_look(&mut self, name: &CString, expected: Option<Expected>) -> Attempt<Opened> {
        let alone = self.pool.concurrency.threads() == 1 && !self.pool.concurrency.is_fixed();
        self.opened_alone += u64::from(alone);
        let count = self.opened_alone;
        if !alone || count > LOOK_EVERY && !count.is_multiple_of(LOOK_EVERY) {
            return self.open_child(name, expected);
        }
        let meter = Meter::start();
        let mut opened = self.open_child(name, expected);
        if let Ok(opened) = &mut opened
            && self.options.scan.mask.is_empty()
        {
            opened.scan.prefetch(&AtomicBool::new(false));
        }
        self.pool.concurrency.after_caller(meter.read(1));
        opened
    }

    /// Opens a child of the deepest level.
    fn open_child(&mut self, name: &CString, expected: Option<Expected>) -> Attempt<Opened> {
        let parent = match self.stack.last().and_then(|level| level.fd.clone()) {
            Some(fd) => fd,
            None => self.reopen()?,
        };
        let dev = self.stack.last().map(|level| level.dev).filter(|_| self.options.one_file_system);
        let fd = open_dir_on(dev, expected, parent.as_fd(), name, self.options.scan.follow)?;
        self.begin(fd, expected)
    }

    fn begin(&self, fd: OwnedFd, expected: Option<Expected>) -> Attempt<Opened> {
        let identity = identity_as(fd.as_fd(), expected)?;
        let scan = Scan::with(fd, &self.options.scan, self.arena.clone(), self.pool.clone());
        Ok(Opened { scan, identity, arena: self.arena.clone() })
    }

    /// Takes a child that was read ahead. Now that it is its turn, it may use the walk's pages too.
    fn take_ahead(&self, ahead: &Ahead) -> Attempt<Opened> {
        let opened = ahead.take()?;
        self.arena.move_to(&opened.arena, 0);
        Ok(opened)
    }

    /// Begins to read an open directory. False: it is on another file system and not asked for.
    fn enter(&mut self, opened: Opened, name_at: usize) -> Attempt<bool> {
        let Opened { scan, identity, arena } = opened;
        let slice = (!Arc::ptr_eq(&arena, &self.arena)).then_some(arena);
        let entered = self.check(identity);
        if !matches!(entered, Ok(true)) {
            drop(scan);
            if let Some(slice) = slice {
                slice.move_to(&self.arena, SLICE_PAGES);
            }
            return entered;
        }
        let (dev, ino) = identity;
        let fd = Some(scan.shared_dir());
        let children = Children::new(self.options.descent);
        let level = Level { dev, ino, fd, path_len: self.path.len(), name_at, children };
        self.state = State::Reading(Current { level, scan, read: 0, slice });
        Ok(true)
    }

    fn check(&self, identity: Identity) -> Attempt<bool> {
        if self.stack.iter().any(|level| (level.dev, level.ino) == identity) {
            return Err((Cause::Loop, Errno::LOOP));
        }
        Ok(!self.options.one_file_system || self.stack.first().is_none_or(|root| root.dev == identity.0))
    }

    /// Has the next children of the deepest level read ahead, if directories wait.
    fn read_ahead(&mut self) {
        let threads = self.pool.concurrency.threads();
        if threads < 2 || self.slices.is_empty() {
            return;
        }
        let Some((level, above)) = self.stack.split_last_mut() else { return };
        let Some(parent) = level.fd.clone() else { return };
        let dev = self.options.one_file_system.then_some(level.dev);
        for child in level.children.coming(threads) {
            let elsewhere = dev.zip(child.expected).is_some_and(|(dev, expected)| expected.dev != dev);
            if child.ahead.is_some() || elsewhere {
                continue;
            }
            let free = |slices: &[Arc<Arena>]| slices.iter().find(|slice| Arc::strong_count(slice) == 1).cloned();
            let Some(arena) = free(&self.slices).or_else(|| {
                // Children further up are needed last.
                above.iter_mut().find_map(|level| level.children.drop_last_ahead())?;
                free(&self.slices)
            }) else {
                return;
            };
            // This is no name. It is reported when its turn comes.
            let Ok(name) = CString::new(child.name) else { continue };
            let (options, pool) = (self.options.scan, self.pool.clone());
            *child.ahead = Ahead::start(Task {
                parent: parent.clone(),
                name,
                expected: child.expected,
                dev,
                options,
                arena,
                pool,
            });
        }
    }

    /// Closes a level that will not be needed soon.
    fn close_some(&mut self) {
        if let Some(index) = self.stack.len().checked_sub(OPEN_LEVELS + 1).filter(|&index| index > 0) {
            self.stack[index].fd = None;
        }
    }

    /// Opens the level before `level`, which is done, by `..` if it was closed.
    fn reopen_parent(&mut self, level: &Level) {
        let Some(parent) = self.stack.last_mut() else { return };
        let (None, Some(fd)) = (&parent.fd, &level.fd) else { return };
        if let Ok(fd) = open_dir(fd.as_fd(), c"..", false)
            && identity(fd.as_fd()).is_ok_and(|found| found == (parent.dev, parent.ino))
        {
            parent.fd = Some(Arc::new(fd));
        }
    }

    /// Opens the deepest level again, by the names from the deepest open one.
    fn reopen(&mut self) -> Attempt<Arc<OwnedFd>> {
        let open = self.stack.iter().rposition(|level| level.fd.is_some()).ok_or((Cause::Open, Errno::STALE))?;
        let mut fd = self.stack[open].fd.clone().ok_or((Cause::Open, Errno::STALE))?;
        for level in &self.stack[open + 1..] {
            let name =
                CString::new(&self.path[level.name_at..level.path_len]).map_err(|_| (Cause::Open, Errno::INVAL))?;
            let next = open_dir(fd.as_fd(), &name, self.options.scan.follow).map_err(|errno| (Cause::Open, errno))?;
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

    /// Keeps the directories among the records just read.
    fn gather_children(&mut self, follow: bool) {
        for record in self.scan.batch().iter() {
            if is_directory(self.scan.dir(), &record, follow) {
                self.level.children.push(&record, self.read);
            }
            self.read += 1;
        }
    }
}

impl Drop for Walk {
    /// Ends all threads that hold pages or directories. The directories that are read ahead are
    /// dropped first, so that this is soon.
    fn drop(&mut self) {
        self.stack.clear();
        self.pool.threads.stop();
    }
}
