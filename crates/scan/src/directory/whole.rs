//! Whole records from the file system: xgetdents on a mount of pandofs, instead of several calls
//! for each entry.
//!
//! The records must be those that calls for single entries return. So the call is not used
//! - if anything is mounted below: statx shows the root of what is mounted on an entry, which the
//!   file system does not know;
//! - in a user namespace of its own: statx translates user and group ids;
//! - if calls wait: threads that call for single entries wait for many at the same time.
//!
//! Single entries are read by calls of their own: `.` and `..`, because the latter may lie outside;
//! links, if their ends are asked for; entries of which something does not fit into the reply; and
//! what the server denies, since the kernel may know better that the caller has the permission.
//!
//! The kernel has not checked the reply, so it is checked here.

use std::{
    fs,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use pando_records::{
    Attr, ERANGE, FileKind, LinkAnswer, LinkTarget, Mask, Names, PART_ENTRIES, PackedRecord, PackedXattr, Page, Part,
    Unpacked, XGETDENTS_BYTES, XGETDENTS_HEAD_BYTES, XattrOutcome, XattrValue,
};
use rustix::{
    fs::{AtFlags, SeekFrom, StatxFlags},
    io::Errno,
};

use super::{Scan, State};
use crate::{
    entry::{Asked, CAPABILITY, Filler, NoRoom},
    kernel::{
        calls::retry,
        meter::Meter,
        sys::{Xgetdents, has_mounts_below, xgetdents},
    },
    memory::Arena,
    workers::{
        RESERVE,
        tuning::{CALL_WAITS_NS, WHOLE_WAITS_NS},
    },
};

/// Whether the file system of a directory returns whole records.
pub(super) enum Whole {
    Untried,
    No,
    Yes(Box<Records>),
}

impl Whole {
    /// For a scan that continues elsewhere.
    pub fn restart(&mut self) {
        if let Self::Yes(_) = self {
            *self = Self::Untried;
        }
    }
}

/// `statfs.f_type` of FUSE.
const FUSE: u64 = 0x6573_5546;
/// `STATX_MNT_ID_UNIQUE` (Linux 6.8).
const MOUNT_ID: StatxFlags = StatxFlags::from_bits_retain(0x4000);
/// The longest name that the kernel passes on from a directory.
const NAME_MAX: usize = 255;

/// The records of a directory.
pub(super) struct Records {
    call: Xgetdents,
    /// Where the next record begins in the reply.
    at: usize,
    /// The position after the last record that was taken.
    cookie: u64,
    dev: (u32, u32),
    /// The inode number that the first record must have, which is `.`: a file system may pass the
    /// call on to a directory below it.
    itself: Option<u64>,
    /// How many calls were made for this batch.
    calls: u64,
}

/// Whether a record has answered for its entry.
enum Put {
    Done,
    /// Only calls for this entry answer what is asked for.
    Single,
}

impl Records {
    /// From the position of the descriptor. None if the file system is known to return no records,
    /// or if they would differ from what single calls return. `refused` has the device of a file
    /// system that returns none.
    fn begin(dir: BorrowedFd<'_>, asked: Asked, refused: &AtomicU64) -> Option<Box<Self>> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let statx = retry(|| rustix::fs::statx(dir, c"", flags, StatxFlags::TYPE | StatxFlags::INO | MOUNT_ID)).ok()?;
        let dev = (statx.stx_dev_major, statx.stx_dev_minor);
        if refused.load(Ordering::Relaxed) == number(dev) {
            return None;
        }
        let is_fuse = || retry(|| rustix::fs::fstatfs(dir)).is_ok_and(|statfs| statfs.f_type as u64 == FUSE);
        if !has_all_ids() || !is_fuse() {
            refused.store(number(dev), Ordering::Relaxed);
            return None;
        }
        let is_dir = FileKind::from_mode(statx.stx_mode.into()) == Some(FileKind::Directory);
        if !is_dir || statx.stx_mask & MOUNT_ID.bits() == 0 || retry(|| has_mounts_below(statx.stx_mnt_id)) != Ok(false)
        {
            return None;
        }
        let mut mask = asked.mask() & (Mask::level(3).expect("a level") | Mask::LINK_TARGETS);
        if asked.mask().contains(Mask::CAPABILITIES) {
            mask |= Mask::STAT | Mask::XATTR_NAMES;
        }
        let cookie = rustix::fs::seek(dir, SeekFrom::Current(0)).ok()?;
        let records = [0; XGETDENTS_BYTES - XGETDENTS_HEAD_BYTES];
        let call = Xgetdents { cookie, mask: mask.bits(), next: 1, bytes: 0, entries: 0, records };
        let itself = (cookie == 0).then_some(statx.stx_ino);
        Some(Box::new(Self { call, at: 0, cookie, dev, itself, calls: 0 }))
    }

    /// Takes the next record. None at the end. After an error, nothing was lost: single calls may
    /// continue.
    fn next(&mut self, dir: BorrowedFd<'_>) -> Result<Option<PackedRecord<'_>>, Errno> {
        if self.at == self.call.bytes as usize && !self.ask(dir)? {
            return Ok(None);
        }
        let reply = &self.call.records[..self.call.bytes as usize];
        let mut records = Unpacked::new(&reply[self.at..]);
        let record = records.next().filter(|record| is_name(record.name())).ok_or(Errno::IO)?;
        self.at = reply.len() - records.rest().len();
        self.cookie = record.cookie();
        Ok(Some(record))
    }

    /// Asks for the next records. False at the end.
    fn ask(&mut self, dir: BorrowedFd<'_>) -> Result<bool, Errno> {
        let call = &mut self.call;
        if call.next == 0 {
            return Ok(false);
        }
        (self.at, call.bytes, self.calls) = (0, 0, self.calls + 1);
        retry(|| xgetdents(dir, call))?;
        if call.bytes as usize > call.records.len() || call.bytes == 0 && call.next != 0 {
            call.bytes = 0;
            return Err(Errno::NOTTY);
        }
        let first = || Unpacked::new(&call.records).next();
        if let Some(ino) = self.itself.take()
            && !first().is_some_and(|record| record.name() == b"." && record.ino() == ino)
        {
            call.bytes = 0;
            return Err(Errno::NOTTY);
        }
        Ok(call.bytes > 0)
    }
}

impl Scan {
    /// Reads a batch of whole records. False if single calls must read the next one, and at the
    /// end.
    pub(super) fn whole_batch(&mut self) -> bool {
        if self.state != State::Reading || self.failed.is_some() || self.is_shared() {
            return false;
        }
        if let Whole::Untried = self.whole {
            let begun = Records::begin(self.dir.as_fd(), self.asked, &self.pool.refused);
            self.whole = begun.map_or(Whole::No, Whole::Yes);
        }
        let Whole::Yes(records) = &mut self.whole else { return false };
        let Some(page) = self.arena.take_names(RESERVE) else { return false };
        let mut shared = self.spare.pop().unwrap_or_default();
        let names = Arc::get_mut(&mut shared).expect("spare names have no other owner");
        names.push_page(page);
        let mut part = self.arena.take_part().expect("the reserve has a part");
        let meter = (!self.pool.concurrency.is_fixed()).then(Meter::start);
        let (dir, list, dev) = (self.dir.as_fd(), self.list.take(), records.dev);
        let mut answers = Answers { asked: self.asked, arena: &self.arena, dir, list, dev };
        let (mut has_failed, mut has_room) = (false, true);
        // A server might return `.` for ever.
        let most = PART_ENTRIES as u64;
        while has_room && part.has_room() && names.has_room(NAME_MAX) && records.calls <= most {
            let record = match records.next(dir) {
                Ok(Some(record)) => record,
                Ok(None) => {
                    self.state = State::End;
                    break;
                }
                Err(errno) => {
                    has_failed = true;
                    if matches!(errno, Errno::NOTTY | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP | Errno::PERM) {
                        self.pool.refused.store(number(dev), Ordering::Relaxed);
                    }
                    break;
                }
            };
            if !self.dots && is_dots(record.name()) {
                continue;
            }
            let dtype = record.kind().map_or(0, |kind| (kind.to_mode() >> 12) as u8);
            names.push_name(record.name(), record.ino(), record.cookie(), dtype);
            // The entry is read again when there are more pages.
            has_room = answers.put(&record, names, &mut part).is_ok();
        }
        self.list = answers.list;
        let answered = part.filled().len() as u64;
        self.parts.push(part);
        self.batch.assemble(shared, &mut self.parts, 0);
        let calls = std::mem::take(&mut records.calls);
        let waits = meter.map(|meter| meter.read(answered)).is_some_and(|cost| {
            let waits = calls > 0 && cost.waited_ns >= calls * CALL_WAITS_NS && cost.wait_ns() >= WHOLE_WAITS_NS;
            waits && self.pool.concurrency.after_caller(cost)
        });
        if has_failed || waits {
            self.end_whole();
        }
        if self.batch.is_empty() {
            let names = self.batch.dismantle(|part| self.arena.give_part(part));
            if names.is_empty() {
                self.keep_spare(names);
                return false;
            }
            self.continue_with(names, 0);
        }
        true
    }

    /// From here on, the scan reads by single calls, unless it begins anew after the end.
    pub(super) fn end_whole(&mut self) {
        if let Whole::Yes(records) = &self.whole {
            let place = SeekFrom::Start(records.cookie);
            if self.state != State::End
                && let Err(errno) = rustix::fs::seek(&self.dir, place)
            {
                (self.state, self.failed) = (State::End, Some(errno));
            }
            self.whole = if self.state == State::End { Whole::Untried } else { Whole::No };
        }
    }
}

/// Puts answers into parts.
struct Answers<'a> {
    asked: Asked,
    arena: &'a Arena,
    dir: BorrowedFd<'a>,
    /// For single calls: the list of an entry's extended attributes.
    list: Option<Page>,
    dev: (u32, u32),
}

impl Answers<'_> {
    /// Puts the answers about the last name into `part`, which has room: those of the record, or of
    /// single calls. If there are not enough pages, nothing of them stays there.
    fn put(&mut self, record: &PackedRecord<'_>, names: &Names, part: &mut Part) -> Result<(), NoRoom> {
        let (begin, index) = (part.mark(), names.len() - 1);
        let put = self.put_all(record, index, part);
        if let Ok(Put::Done) = put {
            return Ok(());
        }
        part.rewind(begin, |page| self.arena.give_page(page));
        put?;
        let mut filler = Filler {
            asked: self.asked,
            arena: self.arena,
            dir: self.dir,
            names,
            list: self.list.take(),
            settled: None,
            lately: false,
        };
        let filled = filler.fill(index, part, false);
        self.list = filler.list;
        filled
    }

    fn put_all(&self, record: &PackedRecord<'_>, index: usize, part: &mut Part) -> Result<Put, NoRoom> {
        let mask = self.asked.mask();
        let [errno, xattr_errno] = [record.errno(), record.xattr_errno()];
        if [errno, xattr_errno].into_iter().flatten().any(needs_single_calls) {
            return Ok(Put::Single);
        }
        if let Some(errno) = errno {
            part.push(index, part.mark()).errno = errno;
            return Ok(Put::Done);
        }
        let attr = record.attr();
        let has_attr =
            !mask.intersects(Mask::STAT | Mask::CAPABILITIES) || attr.is_some_and(|attr| is_sound(&attr, record));
        let is_link = record.kind() == Some(FileKind::Symlink);
        let is_followed = is_link && (self.asked.follows() || mask.contains(Mask::LINK_ENDS));
        if is_dots(record.name()) || is_followed || !has_attr {
            return Ok(Put::Single);
        }
        let mut link = LinkAnswer::default();
        if is_link && mask.contains(Mask::LINK_TARGETS) {
            let Some(target) = record.target() else { return Ok(Put::Single) };
            link.target = Some(Ok(self.put_target(target, part)?));
        }
        let (mark, mut has_capabilities) = (part.mark(), false);
        for xattr in record.xattrs() {
            has_capabilities |= xattr.name == CAPABILITY.to_bytes();
            if mask.wants_xattrs()
                && let Put::Single = self.put_xattr(&xattr, part)?
            {
                return Ok(Put::Single);
            }
        }
        let may_run = attr.is_some_and(|attr| attr.mode & 0o111 != 0 && attr.kind() == Some(FileKind::File));
        let filled = part.push(index, mark);
        filled.link = link;
        filled.has_capabilities = has_capabilities && may_run && mask.contains(Mask::CAPABILITIES);
        if mask.wants_xattrs() {
            // A file system without extended attributes is no error.
            let errno = xattr_errno.filter(|&errno| errno != Errno::OPNOTSUPP.raw_os_error());
            filled.xattr_errno = errno.unwrap_or(0);
        }
        if mask.contains(Mask::STAT) {
            let (dev_major, dev_minor) = self.dev;
            filled.attr = attr.map(|attr| Attr { dev_major, dev_minor, ..attr });
        }
        Ok(Put::Done)
    }

    fn put_target(&self, target: &[u8], part: &mut Part) -> Result<LinkTarget, NoRoom> {
        loop {
            if let Some(room) = part.target_room().and_then(|room| room.get_mut(..target.len())) {
                room.copy_from_slice(target);
                return Ok(part.put_target(target.len()));
            }
            part.push_page(self.arena.take_page().ok_or(NoRoom)?);
        }
    }

    fn put_xattr(&self, xattr: &PackedXattr<'_>, part: &mut Part) -> Result<Put, NoRoom> {
        let (value, outcome) = match xattr.value {
            XattrValue::Bytes(value) => (value, XattrOutcome::Bytes(value.len())),
            XattrValue::NotRead => (&[][..], XattrOutcome::NotRead),
            XattrValue::Errno(errno) if needs_single_calls(errno) => return Ok(Put::Single),
            XattrValue::Errno(errno) => (&[][..], XattrOutcome::Errno(errno)),
        };
        loop {
            if let Some(room) = part.value_room(xattr.name).and_then(|room| room.get_mut(..value.len())) {
                room.copy_from_slice(value);
                part.put_xattr(xattr.name.len(), outcome);
                return Ok(Put::Done);
            }
            part.push_page(self.arena.take_page().ok_or(NoRoom)?);
        }
    }
}

/// Whether something did not fit into the reply, or was denied by the server.
fn needs_single_calls(errno: i32) -> bool {
    [ERANGE.into(), Errno::ACCESS.raw_os_error(), Errno::PERM.raw_os_error()].contains(&errno)
}

/// Whether the attributes of a record can be those of a file, as the kernel checks it for statx.
fn is_sound(attr: &Attr, record: &PackedRecord<'_>) -> bool {
    let mut times = [attr.atime, attr.mtime, attr.ctime, attr.btime].into_iter();
    attr.kind() == record.kind() && i64::try_from(attr.size).is_ok() && times.all(|time| time.nanos < 1_000_000_000)
}

/// A device as one number, which is not 0.
fn number(dev: (u32, u32)) -> u64 {
    u64::from(dev.0) << 32 | u64::from(dev.1)
}

/// Whether this is `.` or `..`.
fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Whether a directory can have this name, as the kernel checks it for getdents.
fn is_name(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len()) && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// Whether user and group ids are the same here as in the first user namespace. They are then the
/// same as on the mount: a process can use a mount of FUSE only if its namespace is that of the
/// mount or below it. Read once.
fn has_all_ids() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        ["/proc/self/uid_map", "/proc/self/gid_map"]
            .into_iter()
            .all(|map| fs::read_to_string(map).is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"])))
    })
}
