//! One entry after the other: statx, readlink, listxattr and getxattr, into a part.
//!
//! The attributes of an entry and its extended attributes take several system calls. Between them
//! the entry may change, or another file may get its name. If extended attributes are asked for,
//! this is noticed as follows (P11):
//! 1. On file systems that stamp changes with this machine's clock, statx comes last. A ctime from
//!    before the first call means that nothing changed since then. "Before" is by [`MARGIN_SECS`],
//!    which is more than the coarsest stamps.
//! 2. Elsewhere, and for entries that changed recently, statx is called before and after. The same
//!    inode and ctime mean that nothing changed in between. Otherwise everything is read again, and
//!    after a few tries the record is marked.
//!
//! Targets of links are read between the same calls. Without extended attributes, the target is
//! read after statx, and a change between the two is not noticed.

use std::{
    ffi::CStr,
    os::fd::BorrowedFd,
    time::{SystemTime, UNIX_EPOCH},
};

use pando_records::{
    Attr, Fields, FileKind, LinkAnswer, LinkTarget, Mark, Mask, Names, Page, Part, XATTR_NAME_MAX, XattrOutcome,
};
use rustix::{
    fs::{AtFlags, Statx, StatxFlags},
    io::Errno,
};

use crate::{
    kernel::calls::{Way, attr_of, looking, retry, short_first},
    memory::Arena,
};

/// The size of the first buffer for listxattr and getxattr. The kernel allocates as much as the
/// buffer has, and clears it for values.
const SHORT_LIST: usize = 512;
const SHORT_VALUE: usize = 256;
/// How often an entry is read that changes meanwhile, before its record is marked.
const TRIES: u32 = 4;

/// How old a change must be to have been stamped before now for certain. FAT counts in 2 seconds.
const MARGIN_SECS: i64 = 3;
/// File systems whose stamps come from this machine's clock (`statfs.f_type`): ext2 to ext4, XFS,
/// btrfs, tmpfs, f2fs, bcachefs.
const LOCAL_CLOCK: [u64; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010, 0xca45_1a4e];

/// The device of a directory, if its file system stamps changes with this machine's clock.
pub fn local_device(dir: BorrowedFd<'_>) -> Option<(u32, u32)> {
    let statfs = retry(|| rustix::fs::fstatfs(dir)).ok()?;
    if !LOCAL_CLOCK.contains(&(statfs.f_type as u64)) {
        return None;
    }
    let statx = retry(|| rustix::fs::statx(dir, c"", AtFlags::EMPTY_PATH, StatxFlags::INO)).ok()?;
    Some((statx.stx_dev_major, statx.stx_dev_minor))
}

/// Entries that cannot have changed since now: those on this device with an earlier ctime.
#[derive(Debug, Clone, Copy)]
pub struct Settled {
    dev: (u32, u32),
    before: i64,
}

impl Settled {
    /// For the calls that follow.
    pub fn now(dev: (u32, u32)) -> Option<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Some(Self { dev, before: i64::try_from(now.as_secs()).ok()? - MARGIN_SECS })
    }

    fn covers(&self, attr: &Attr) -> bool {
        attr.dev() == self.dev && attr.ctime.secs < self.before && attr.have.contains(Fields::CTIME)
    }
}

/// The extended attribute that holds the capabilities of a file.
pub const CAPABILITY: &CStr = c"security.capability";

/// The parts that are read of each entry.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    mask: Mask,
    statx: StatxFlags,
    /// Whether links are followed.
    follow: bool,
}

impl Asked {
    pub fn new(mask: Mask, fields: Fields, follow: bool) -> Self {
        let mut statx = StatxFlags::from_bits_retain(fields.bits());
        if mask.wants_xattrs() {
            statx |= StatxFlags::INO | StatxFlags::CTIME;
        }
        if mask.wants_links() || mask.contains(Mask::CAPABILITIES) {
            statx |= StatxFlags::TYPE | StatxFlags::MODE;
        }
        Self { mask, statx, follow }
    }

    /// Pages that a thread holds besides its part: one for targets and values, and one for a list
    /// of extended attributes.
    pub fn pages(self) -> usize {
        let list = self.wants_xattrs();
        usize::from(list) + usize::from(list || self.mask.contains(Mask::LINK_TARGETS))
    }

    /// Whether extended attributes are asked for.
    pub fn wants_xattrs(self) -> bool {
        self.mask.wants_xattrs()
    }

    /// The parts that are asked for.
    pub fn mask(self) -> Mask {
        self.mask
    }

    /// Whether links are followed.
    pub fn follows(self) -> bool {
        self.follow
    }

    /// Whether only the names are asked for.
    pub fn is_names_only(self) -> bool {
        self.mask.is_empty()
    }
}

/// No page is left in the budget.
#[derive(Debug)]
pub struct NoRoom;

/// Whether an extended attribute could be read into the part.
#[derive(Clone, Copy)]
enum Step {
    Done,
    /// It was listed and is not there: the entry changes meanwhile.
    Changed,
}

/// The answers that were read between two calls of statx, or before one.
struct Between {
    link: LinkAnswer,
    /// Where its extended attributes begin.
    mark: Mark,
    outcome: Result<Step, Errno>,
}

impl Between {
    fn has_changed(&self) -> bool {
        matches!(self.outcome, Ok(Step::Changed))
    }
}

/// Asks for entries, one after the other. Each thread has its own.
pub struct Filler<'a> {
    pub asked: Asked,
    pub arena: &'a Arena,
    pub dir: BorrowedFd<'a>,
    pub names: &'a Names,
    /// The list of an entry's extended attributes.
    pub list: Option<Page>,
    /// Entries for which one call of statx is enough.
    pub settled: Option<Settled>,
    /// The last entry had changed recently, and its neighbours may have too. They get two calls
    /// from the start.
    pub lately: bool,
}

impl Filler<'_> {
    /// Reads one entry into `part`, which has room. If there are not enough pages, nothing of it
    /// stays in the part. With `alone`, the answers that fit are kept, and the record says E2BIG.
    pub fn fill(&mut self, index: usize, part: &mut Part, alone: bool) -> Result<(), NoRoom> {
        if !self.asked.wants_xattrs() {
            return self.fill_plain(index, part, alone);
        }
        if let Some(settled) = self.settled
            && !self.lately
            && self.fill_settled(index, part, alone, settled)?
        {
            return Ok(());
        }
        self.fill_watched(index, part, alone)
    }

    /// Without extended attributes: statx, and the calls that depend on its answer.
    fn fill_plain(&mut self, index: usize, part: &mut Part, alone: bool) -> Result<(), NoRoom> {
        let (name, mark, mask) = (self.names.name_c(index), part.mark(), self.asked.mask);
        let mut kind = self.names.kind(index);
        let mut statx = None;
        if mask.intersects(Mask::STAT | Mask::CAPABILITIES) || kind.is_none() {
            match self.ask(name) {
                Ok(answer) => {
                    kind = FileKind::from_mode(answer.stx_mode.into());
                    statx = Some(answer);
                }
                Err(errno) => {
                    part.push(index, mark).errno = errno.raw_os_error();
                    return Ok(());
                }
            }
        }
        let link = self.link(name, kind, part, alone)?;
        let filled = part.push(index, part.mark());
        filled.link = link;
        if let Some(statx) = statx {
            filled.has_capabilities = self.has_capabilities(name, statx.stx_mode.into());
            filled.attr = mask.contains(Mask::STAT).then(|| attr_of(&statx));
        }
        Ok(())
    }

    /// Extended attributes first, then statx. If that does not show whether the entry changed,
    /// nothing of it stays in the part, and the result is false.
    fn fill_settled(&mut self, index: usize, part: &mut Part, alone: bool, settled: Settled) -> Result<bool, NoRoom> {
        let (name, begin, kind) = (self.names.name_c(index), part.mark(), self.names.kind(index));
        let between = self.between(name, kind, part, false, alone)?;
        match self.statx(name) {
            Ok(attr) if !between.has_changed() && settled.covers(&attr) && self.was_read_as(kind, &attr) => {
                self.put(index, name, attr, between, false, part);
                Ok(true)
            }
            _ => {
                self.forget(part, begin);
                self.lately = true;
                Ok(false)
            }
        }
    }

    /// statx, extended attributes, and statx again.
    fn fill_watched(&mut self, index: usize, part: &mut Part, alone: bool) -> Result<(), NoRoom> {
        let (name, begin) = (self.names.name_c(index), part.mark());
        let mut before = match self.statx(name) {
            Ok(attr) => attr,
            Err(errno) => {
                part.push(index, begin).errno = errno.raw_os_error();
                return Ok(());
            }
        };
        let mut valueless = false;
        for again in (0..TRIES).rev() {
            let between = self.between(name, before.kind(), part, valueless, alone)?;
            let after = self.statx(name);
            let same = after.as_ref().is_ok_and(|after| same_state(&before, after));
            // It is listed and not there, and nothing has changed: the file system lists an
            // attribute that has no value.
            valueless = same && between.has_changed();
            if same && !valueless || again == 0 {
                self.lately = self.settled.is_some_and(|settled| !settled.covers(&before));
                self.put(index, name, before, between, !same || valueless, part);
                return Ok(());
            }
            self.forget(part, begin);
            match after {
                Ok(after) => before = after,
                Err(errno) => {
                    part.push(index, begin).errno = errno.raw_os_error();
                    return Ok(());
                }
            }
        }
        unreachable!("the last try returns")
    }

    /// Reads the target of a link, and extended attributes. Without room, nothing stays in the
    /// part, unless the entry is `alone`.
    fn between(
        &mut self,
        name: &CStr,
        kind: Option<FileKind>,
        part: &mut Part,
        valueless: bool,
        alone: bool,
    ) -> Result<Between, NoRoom> {
        let begin = part.mark();
        let link = self.link(name, kind, part, alone)?;
        let mark = part.mark();
        let outcome = self.xattrs(name, part, valueless).or_else(|none| self.no_room(none, part, begin, alone))?;
        Ok(Between { link, mark, outcome })
    }

    /// Without room, the entry waits for other pages. If it is `alone`, the answers that fitted are
    /// kept.
    fn no_room<T>(&self, none: NoRoom, part: &mut Part, since: Mark, alone: bool) -> Result<Result<T, Errno>, NoRoom> {
        if alone {
            return Ok(Err(Errno::TOOBIG));
        }
        self.forget(part, since);
        Err(none)
    }

    fn forget(&self, part: &mut Part, since: Mark) {
        part.rewind(since, |page| self.arena.give_page(page));
    }

    fn put(&self, index: usize, name: &CStr, attr: Attr, between: Between, changed: bool, part: &mut Part) {
        let filled = part.push(index, between.mark);
        filled.xattr_errno = between.outcome.err().map_or(0, Errno::raw_os_error);
        filled.changed = changed;
        filled.link = between.link;
        filled.has_capabilities = self.has_capabilities(name, attr.mode);
        filled.attr = self.asked.mask.contains(Mask::STAT).then_some(attr);
    }

    /// Reads the answers that only a symbolic link has. Without room, nothing stays in the part.
    /// With `alone`, the target says E2BIG.
    fn link(&self, name: &CStr, kind: Option<FileKind>, part: &mut Part, alone: bool) -> Result<LinkAnswer, NoRoom> {
        let mut link = LinkAnswer::default();
        if kind != Some(FileKind::Symlink) || self.asked.follow {
            return Ok(link);
        }
        if self.asked.mask.contains(Mask::LINK_TARGETS) {
            let begin = part.mark();
            let target = self.target(name, part).or_else(|none| self.no_room(none, part, begin, alone))?;
            link.target = Some(target.map_err(Errno::raw_os_error));
        }
        if self.asked.mask.contains(Mask::LINK_ENDS) {
            let end =
                retry(|| rustix::fs::statx(self.dir, name, AtFlags::NO_AUTOMOUNT, StatxFlags::TYPE | StatxFlags::MODE));
            link.end = Some(end.map(|statx| statx.stx_mode.into()).map_err(Errno::raw_os_error));
        }
        Ok(link)
    }

    /// Reads the target of a link into the part, which gets a new page if necessary.
    fn target(&self, name: &CStr, part: &mut Part) -> Result<Result<LinkTarget, Errno>, NoRoom> {
        loop {
            let fresh = part.page_is_fresh();
            if let Some(room) = part.target_room() {
                let size = room.len();
                match retry(|| rustix::fs::readlinkat_raw(self.dir, name, &mut *room)) {
                    // It may be truncated.
                    Ok(len) if len == size && !fresh => {}
                    Ok(len) => return Ok(Ok(part.put_target(len))),
                    Err(errno) => return Ok(Err(errno)),
                }
            }
            part.push_page(self.arena.take_page().ok_or(NoRoom)?);
        }
    }

    /// Whether an executable has capabilities. Other files get no privileges from theirs.
    fn has_capabilities(&self, name: &CStr, mode: u32) -> bool {
        self.asked.mask.contains(Mask::CAPABILITIES)
            && mode & 0o111 != 0
            && FileKind::from_mode(mode) == Some(FileKind::File)
            && Way::to(self.dir, name, self.asked.follow)
                .is_ok_and(|way| retry(|| way.value(CAPABILITY, &mut [])).is_ok())
    }

    /// Whether the answers about a link still hold, if the entry was read as `kind` and has these
    /// attributes.
    fn was_read_as(&self, kind: Option<FileKind>, attr: &Attr) -> bool {
        !self.asked.mask.wants_links() || attr.kind() == kind
    }

    #[inline]
    fn ask(&self, name: &CStr) -> Result<Statx, Errno> {
        retry(|| rustix::fs::statx(self.dir, name, looking(self.asked.follow), self.asked.statx))
    }

    fn statx(&self, name: &CStr) -> Result<Attr, Errno> {
        self.ask(name).map(|statx| attr_of(&statx))
    }

    /// Reads the list of an entry's extended attributes, and their values if asked for. A value
    /// that is not there has an errno if it may be `valueless`. Otherwise the entry has changed.
    fn xattrs(&mut self, name: &CStr, part: &mut Part, valueless: bool) -> Result<Result<Step, Errno>, NoRoom> {
        let mut list = match self.list.take() {
            Some(list) => list,
            None => self.arena.take_page().ok_or(NoRoom)?,
        };
        let done = self.xattrs_by(name, part, list.bytes_mut(), valueless);
        self.list = Some(list);
        done
    }

    fn xattrs_by(
        &self,
        name: &CStr,
        part: &mut Part,
        list: &mut [u8],
        valueless: bool,
    ) -> Result<Result<Step, Errno>, NoRoom> {
        let way = match Way::to(self.dir, name, self.asked.follow) {
            Ok(way) => way,
            Err(errno) => return Ok(Err(errno)),
        };
        let len = match short_first(list, SHORT_LIST, |list| way.list(list)) {
            Ok(len) => len,
            // This file system has no extended attributes.
            Err(Errno::OPNOTSUPP) => 0,
            Err(errno) => return Ok(Err(errno)),
        };
        let mut rest = &list[..len];
        while !rest.is_empty() {
            // A server may answer anything. A name that no call can pass is refused.
            let Some(xattr) = CStr::from_bytes_until_nul(rest).ok().filter(|name| name.count_bytes() <= XATTR_NAME_MAX)
            else {
                return Ok(Err(Errno::IO));
            };
            rest = &rest[xattr.count_bytes() + 1..];
            match self.xattr(&way, xattr, part, valueless)? {
                Step::Done => {}
                Step::Changed => return Ok(Ok(Step::Changed)),
            }
        }
        Ok(Ok(Step::Done))
    }

    /// Reads one extended attribute into the part, which gets a new page if necessary.
    fn xattr(&self, way: &Way<'_>, xattr: &CStr, part: &mut Part, valueless: bool) -> Result<Step, NoRoom> {
        let name = xattr.to_bytes();
        loop {
            let fresh = part.page_is_fresh();
            if let Some(room) = part.value_room(name) {
                let outcome = if self.asked.mask.contains(Mask::XATTR_VALUES) {
                    match short_first(room, SHORT_VALUE, |room| way.value(xattr, room)) {
                        Ok(len) => Some(XattrOutcome::Bytes(len)),
                        Err(Errno::NODATA) if !valueless => return Ok(Step::Changed),
                        // An empty buffer would ask for the length. There is always room for one
                        // byte.
                        Err(Errno::RANGE) if !fresh => None,
                        Err(errno) => Some(XattrOutcome::Errno(errno.raw_os_error())),
                    }
                } else {
                    Some(XattrOutcome::NotRead)
                };
                if let Some(outcome) = outcome {
                    part.put_xattr(name.len(), outcome);
                    return Ok(Step::Done);
                }
            }
            part.push_page(self.arena.take_page().ok_or(NoRoom)?);
        }
    }
}

/// Whether nothing happened to the inode between two calls of statx. Within a tick of the file
/// system's clock, an inode number may be reused with the same times, mostly for a file of another
/// kind or size.
fn same_state(before: &Attr, after: &Attr) -> bool {
    let state = |attr: &Attr| (attr.ctime, attr.ino, attr.dev(), attr.mode, attr.size);
    state(before) == state(after)
}
