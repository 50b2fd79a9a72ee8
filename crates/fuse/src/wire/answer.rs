//! An answer, put together in the room that there is for it.

use std::time::Duration;

use pando_vfs::{DirEntry, Error, FileKind, Result, Stat, StatFs, Timestamp};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::abi::{AttrBytes, AttrOut, Dirent, EntryOut, StatfsOut, StatxOut, StatxTime};
use crate::Attr;

/// All that statx(2) knows of an inode (`STATX_BASIC_STATS` and `STATX_BTIME`).
const STATX_ALL: u32 = 0x7ff | 0x800;

/// Entries of directories begin at multiples of this.
const DIRENT_ALIGN: usize = 8;

/// The bytes behind the header of an answer.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(room: &'a mut [u8]) -> Self {
        Self { room, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds `part`.
    ///
    /// # Errors
    /// EIO if there is no room: the kernel has asked for more than it said it would.
    pub(crate) fn put(&mut self, part: &(impl IntoBytes + Immutable + ?Sized)) -> Result<()> {
        let part = part.as_bytes();
        let room = self.free().get_mut(..part.len()).ok_or(Error::Io)?;
        room.copy_from_slice(part);
        self.len += part.len();
        Ok(())
    }

    /// Lets `fill` write up to `size` bytes; it says how many.
    ///
    /// # Errors
    /// Those of `fill`; EIO if there is not so much room.
    pub(crate) fn fill(&mut self, size: u32, fill: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<()> {
        let count = fill(self.free().get_mut(..size as usize).ok_or(Error::Io)?)?;
        self.len += count;
        Ok(())
    }

    fn free(&mut self) -> &mut [u8] {
        &mut self.room[self.len..]
    }

    /// Ends the room after `size` bytes, if it is larger.
    pub(crate) fn at_most(&mut self, size: u32) {
        let room = std::mem::take(&mut self.room);
        let len = room.len().min(size as usize);
        self.room = &mut room[..len];
    }

    /// Adds an entry of a directory; false if it does not fit.
    pub(crate) fn dirent(&mut self, entry: &DirEntry<'_>) -> bool {
        self.record(None, entry)
    }

    /// Adds an entry of a directory with the node that it is; false if it does not fit.
    pub(crate) fn dirent_plus(&mut self, node: &EntryOut, entry: &DirEntry<'_>) -> bool {
        self.record(Some(node), entry)
    }

    fn record(&mut self, node: Option<&EntryOut>, entry: &DirEntry<'_>) -> bool {
        let dirent = Dirent {
            ino: entry.ino,
            cookie: entry.cookie,
            name_len: entry.name.len() as u32,
            kind: entry.kind.to_mode() >> 12,
        };
        let parts = [node.map_or(&[][..], IntoBytes::as_bytes), dirent.as_bytes(), entry.name];
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let Some(mut room) = self.free().get_mut(..len.next_multiple_of(DIRENT_ALIGN)) else { return false };
        for part in parts {
            let (here, behind) = room.split_at_mut(part.len());
            here.copy_from_slice(part);
            room = behind;
        }
        room.fill(0);
        self.len += len.next_multiple_of(DIRENT_ALIGN);
        true
    }
}

macro_rules! expires {
    ($($answer:ident: $($field:ident)*;)*) => {
        $(impl $answer {
            /// Makes what an answer that begins with this says of attributes, and of a name, valid for no time.
            pub(crate) fn expire(answer: &mut [u8]) {
                if let Ok((mut out, _)) = Self::read_from_prefix(answer) {
                    $(out.$field = 0;)*
                    // It was just read from there.
                    let _ = out.write_to_prefix(answer);
                }
            }
        })*
    };
}

expires! {
    EntryOut: entry_valid entry_valid_nsec attr_valid attr_valid_nsec;
    AttrOut: attr_valid attr_valid_nsec;
    StatxOut: attr_valid attr_valid_nsec;
}

/// A node as it is handed out.
pub(crate) fn entry_out(attr: &Attr, valid: Duration) -> EntryOut {
    EntryOut {
        node: attr.node,
        generation: attr.generation.into(),
        entry_valid: valid.as_secs(),
        attr_valid: valid.as_secs(),
        entry_valid_nsec: valid.subsec_nanos(),
        attr_valid_nsec: valid.subsec_nanos(),
        attr: attr_bytes(attr),
    }
}

/// That there is no such name, which the kernel may remember for so long.
pub(crate) fn absent_out(valid: Duration) -> EntryOut {
    EntryOut { entry_valid: valid.as_secs(), entry_valid_nsec: valid.subsec_nanos(), ..EntryOut::default() }
}

/// What is known of `.` and `..`, which are no nodes.
pub(crate) fn dots_out(entry: &DirEntry<'_>) -> EntryOut {
    let attr = AttrBytes { ino: entry.ino, mode: entry.kind.to_mode(), ..AttrBytes::default() };
    EntryOut { attr, ..EntryOut::default() }
}

pub(crate) fn attr_out(attr: &Attr, valid: Duration) -> AttrOut {
    AttrOut { attr_valid: valid.as_secs(), attr_valid_nsec: valid.subsec_nanos(), dummy: 0, attr: attr_bytes(attr) }
}

fn mode(kind: FileKind, mode: u32) -> u32 {
    kind.to_mode() | mode & 0o7777
}

fn attr_bytes(attr: &Attr) -> AttrBytes {
    let stat: &Stat = &attr.stat;
    AttrBytes {
        ino: attr.node,
        size: stat.size,
        blocks: stat.blocks,
        atime: stat.atime.secs(),
        mtime: stat.mtime.secs(),
        ctime: stat.ctime.secs(),
        atime_nsec: stat.atime.nanos(),
        mtime_nsec: stat.mtime.nanos(),
        ctime_nsec: stat.ctime.nanos(),
        mode: mode(stat.kind, stat.mode),
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        // Linux's encoding of device numbers fits in 32 bits, which is what the protocol carries.
        rdev: stat.rdev as u32,
        blksize: stat.blksize,
        flags: 0,
    }
}

pub(crate) fn statx_out(attr: &Attr, valid: Duration) -> StatxOut {
    let time = |time: Timestamp| StatxTime { secs: time.secs(), nanos: time.nanos(), reserved: 0 };
    let stat: &Stat = &attr.stat;
    StatxOut {
        attr_valid: valid.as_secs(),
        attr_valid_nsec: valid.subsec_nanos(),
        mask: STATX_ALL,
        blksize: stat.blksize,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        mode: mode(stat.kind, stat.mode) as u16,
        ino: attr.node,
        size: stat.size,
        blocks: stat.blocks,
        atime: time(stat.atime),
        btime: time(stat.btime),
        ctime: time(stat.ctime),
        mtime: time(stat.mtime),
        rdev_major: rustix::fs::major(stat.rdev),
        rdev_minor: rustix::fs::minor(stat.rdev),
        ..StatxOut::default()
    }
}

pub(crate) fn statfs_out(stat: &StatFs) -> StatfsOut {
    StatfsOut {
        blocks: stat.blocks,
        bfree: stat.bfree,
        bavail: stat.bavail,
        files: stat.files,
        ffree: stat.ffree,
        bsize: stat.bsize,
        namelen: stat.namelen,
        frsize: stat.bsize,
        ..StatfsOut::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8]) -> DirEntry<'_> {
        DirEntry { name, ino: 9, kind: FileKind::Symlink, cookie: 77 }
    }

    #[test]
    fn entries_are_padded_and_end_where_the_room_does() {
        let mut room = [0xff; 64];
        let mut answer = Answer::new(&mut room);
        assert!(answer.dirent(&entry(b"12345678")));
        assert_eq!(answer.len(), 32);
        assert!(answer.dirent(&entry(b"1")), "24 and 1, up to the next 8");
        assert!(!answer.dirent(&entry(b"")), "no room for its numbers");
        assert_eq!(answer.len(), 64);
        let (dirent, rest) = Dirent::read_from_prefix(&room[32..]).unwrap();
        assert_eq!((dirent.ino, dirent.cookie, dirent.name_len, dirent.kind), (9, 77, 1, 10));
        assert_eq!(rest, b"1\0\0\0\0\0\0\0");
    }

    #[test]
    fn the_room_ends_where_the_kernel_says() {
        let mut room = [0; 256];
        let mut answer = Answer::new(&mut room);
        answer.at_most(1000);
        answer.at_most(160);
        assert!(answer.dirent_plus(&EntryOut::default(), &entry(b"a name")));
        assert_eq!(answer.len(), 160);
        assert_eq!(answer.put(&[1_u8][..]), Err(Error::Io));
        assert_eq!(answer.fill(1, |_| Ok(1)), Err(Error::Io));
        assert_eq!(answer.fill(0, |room| Ok(room.len())), Ok(()));
    }

    #[test]
    fn times_before_1970_are_those_of_the_kernel() {
        let mut stat = Stat::new(FileKind::CharDevice);
        stat.dev = 1;
        stat.ino = 2;
        stat.mode = 0o4755;
        stat.nlink = 1;
        stat.uid = 3;
        stat.gid = 4;
        stat.rdev = rustix::fs::makedev(0xabc, 0x12345);
        stat.size = 5;
        stat.blocks = 6;
        stat.blksize = 4096;
        stat.atime = Timestamp::from_parts(-2, 800_000_000);
        stat.mtime = Timestamp::from_parts(1, 5);
        stat.ctime = Timestamp(i64::MIN);
        stat.btime = Timestamp(-1);
        let attr = Attr { node: 8, generation: 5, stat };
        let (bytes, statx) = (attr_bytes(&attr), statx_out(&attr, Duration::from_millis(1500)));
        assert_eq!((bytes.atime, bytes.atime_nsec), (-2, 800_000_000));
        assert_eq!((statx.btime.secs, statx.btime.nanos), (-1, 999_999_999));
        assert_eq!((bytes.mode, u32::from(statx.mode)), (0o024_755, 0o024_755));
        assert_eq!((statx.rdev_major, statx.rdev_minor), (0xabc, 0x12345));
        assert_eq!((statx.attr_valid, statx.attr_valid_nsec), (1, 500_000_000));
    }

    #[test]
    fn an_answer_that_was_overtaken_is_valid_for_no_time() {
        let valid = Duration::from_millis(1500);
        let mut answer = [absent_out(valid).as_bytes(), b"more"].concat();
        EntryOut::expire(&mut answer[..100]);
        assert_eq!(EntryOut::read_from_prefix(&answer).unwrap().0.entry_valid, 1, "that is none");
        EntryOut::expire(&mut answer);
        let (out, more) = EntryOut::read_from_prefix(&answer).unwrap();
        assert_eq!((out.entry_valid, out.entry_valid_nsec, more), (0, 0, &b"more"[..]));
    }
}
