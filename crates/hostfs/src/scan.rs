//! The record stream: one directory, batch after batch.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use pando_vfs::bulk::{Batch, Names, Page, Part};
use rustix::{
    fs::{Mode, OFlags, SeekFrom},
    io::Errno,
};

use crate::{
    Error, Options, Result,
    arena::Arena,
    dirents::{self, Dirents},
    fill::{Asked, Filler, NoRoom, retry},
};

/// Pages that the answers to a page of names need at least: a list, a part, a page of values.
const RESERVE: usize = 4;

/// Reads a directory of the host, in batches of records.
///
/// ```
/// use pando_hostfs::{Options, Scan};
///
/// let mut scan = Scan::open("/", &Options::default())?;
/// let mut bytes = 0;
/// while let Some(batch) = scan.next_batch()? {
///     for record in batch.iter() {
///         bytes += record.attr().map_or(0, |attr| attr.size);
///     }
/// }
/// # Ok::<(), pando_hostfs::Error>(())
/// ```
pub struct Scan {
    dir: Arc<OwnedFd>,
    arena: Arc<Arena>,
    asked: Asked,
    dots: bool,
    batch: Batch,
    /// Parts on their way into the batch.
    parts: Vec<Part>,
    list: Option<Page>,
    state: State,
}

/// How far the directory was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    /// The last read failed, and the caller knows.
    Failed,
    End,
}

impl Scan {
    /// Begins to read the directory at `path`. A symbolic link there is followed, as opendir does.
    ///
    /// # Errors
    /// [`Error::Open`] with the errno of open (ENOENT, ENOTDIR, EACCES and others); EINVAL for options that make no sense.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        options.check()?;
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let dir = retry(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(|errno| Error::Open { path: path.to_owned(), errno: errno.raw_os_error() })?;
        Self::from_fd(dir, options)
    }

    /// Begins to read an open directory, from where its descriptor stands.
    ///
    /// # Errors
    /// EINVAL for options that make no sense. A descriptor that is no directory shows with the first batch (ENOTDIR).
    pub fn from_fd(dir: OwnedFd, options: &Options) -> Result<Self> {
        options.check()?;
        Ok(Self::with_arena(dir, options, Arc::new(Arena::new(options.budget_bytes))))
    }

    /// The same, with pages that others use as well.
    pub(crate) fn with_arena(dir: OwnedFd, options: &Options, arena: Arc<Arena>) -> Self {
        Self {
            dir: Arc::new(dir),
            arena,
            asked: Asked::new(options.mask, options.fields),
            dots: options.dots,
            batch: Batch::default(),
            parts: Vec::new(),
            list: None,
            state: State::Reading,
        }
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Goes on after the entry that has this cookie; 0 is the start.
    ///
    /// # Errors
    /// As lseek on a directory.
    pub fn seek(&mut self, cookie: u64) -> Result<()> {
        self.recycle();
        rustix::fs::seek(&self.dir, SeekFrom::Start(cookie))
            .map_err(|errno| Error::Read { errno: errno.raw_os_error() })?;
        self.state = State::Reading;
        Ok(())
    }

    /// The next records, in directory order; none at the end. They are valid until the next call.
    ///
    /// # Errors
    /// [`Error::Read`] if the directory could not be read on: the entries before were all handed out. A further call tries once more
    /// where the file system stands, and the scan ends if it fails again. What goes wrong with an entry is in its
    /// record.
    pub fn next_batch(&mut self) -> Result<Option<&Batch>> {
        Ok(if self.advance()? { Some(&self.batch) } else { None })
    }

    /// The batch that [`Scan::next_batch`] gave last.
    #[must_use]
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    pub(crate) fn shared_dir(&self) -> Arc<OwnedFd> {
        self.dir.clone()
    }

    /// Goes on to the next batch; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        let from = self.batch.end();
        let names = self.take_apart();
        let (names, from) = if from < names.len() { (names, from) } else { (self.read_names(names)?, 0) };
        if names.is_empty() {
            return Ok(false);
        }
        if !self.asked.is_names_only() {
            self.answer(&names, from);
        }
        self.batch.assemble(names, &mut self.parts, from);
        Ok(true)
    }

    /// The names of the batch; its parts are free again.
    fn take_apart(&mut self) -> Arc<Names> {
        self.batch.dismantle(|part| self.arena.give_part(part))
    }

    /// Reads names until there are some, or the end.
    fn read_names(&mut self, mut shared: Arc<Names>) -> Result<Arc<Names>> {
        let names = Arc::get_mut(&mut shared).expect("nobody else has the names of a finished batch");
        names.clear(|page| self.arena.give_names(page));
        while names.is_empty() && self.state != State::End {
            // A page may hold nothing but dots.
            names.clear(|page| self.arena.give_names(page));
            let Some(page) = self.arena.take_names(RESERVE) else {
                return Err(Error::Read { errno: Errno::NOMEM.raw_os_error() });
            };
            match dirents::read(self.dir.as_fd(), page, names, self.dots) {
                Dirents::More => self.state = State::Reading,
                Dirents::End(page) => {
                    self.arena.give_names(page);
                    self.state = State::End;
                }
                Dirents::Failed(page, errno) => {
                    self.arena.give_names(page);
                    let again = std::mem::replace(&mut self.state, State::Failed) == State::Failed;
                    if again {
                        self.state = State::End;
                    } else {
                        return Err(Error::Read { errno: errno.raw_os_error() });
                    }
                }
            }
        }
        Ok(shared)
    }

    /// Asks for the entries from `from` on, until all are answered or the pages are used up; at least for one.
    fn answer(&mut self, names: &Names, from: usize) {
        let mut filler =
            Filler { asked: self.asked, arena: &self.arena, dir: self.dir.as_fd(), names, list: self.list.take() };
        let mut part = self.arena.take_part().expect("the reserve has a part");
        for index in from..names.len() {
            if !part.has_room() {
                let Some(next) = self.arena.take_part() else { break };
                self.parts.push(std::mem::replace(&mut part, next));
            }
            if let Err(NoRoom) = filler.fill(index, &mut part, index == from) {
                break;
            }
        }
        self.list = filler.list;
        self.parts.push(part);
    }

    fn recycle(&mut self) {
        let mut names = self.take_apart();
        if let Some(names) = Arc::get_mut(&mut names) {
            names.clear(|page| self.arena.give_names(page));
        }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.recycle();
        self.list.take().into_iter().for_each(|page| self.arena.give_page(page));
    }
}
