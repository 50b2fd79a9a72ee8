//! Between `fuser`'s types and the tree's.

use std::time::{SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use pando_vfs::{Error, FileKind, SetTime, Stat, Timestamp};

use crate::Attr;

pub(crate) fn errno(error: Error) -> Errno {
    Errno::from_i32(error.errno())
}

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Socket => FileType::Socket,
    }
}

pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    let Stat { kind, mode, nlink, uid, gid, rdev, size, blocks, blksize, atime, mtime, ctime, btime, .. } = attr.stat;
    FileAttr {
        ino: INodeNo(attr.node),
        size,
        blocks,
        atime: atime.into(),
        mtime: mtime.into(),
        ctime: ctime.into(),
        crtime: btime.into(),
        kind: file_type(kind),
        perm: (mode & 0o7777) as u16,
        nlink,
        uid,
        gid,
        // Linux's encoding of device numbers fits in 32 bits, which is what the protocol carries.
        rdev: rdev as u32,
        blksize,
        flags: 0,
    }
}

/// What a negative answer looks like: node 0. The rest is not read.
pub(crate) fn no_attr(kind: FileKind) -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: file_type(kind),
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// A time as `fuser` hands it over. Before 1970 it subtracts the nanoseconds where it ought to add them (-1.2 s, which
/// arrives as -2 s and 0.8 s, becomes -2.8 s); taking the two parts out again as it put them in gives the right time.
fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp::from_parts(i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            let secs = i64::try_from(before.as_secs()).map_or(i64::MIN, |secs| -secs);
            Timestamp::from_parts(secs, before.subsec_nanos())
        }
    }
}

pub(crate) fn set_time(time: Option<TimeOrNow>) -> SetTime {
    match time {
        None => SetTime::Omit,
        Some(TimeOrNow::Now) => SetTime::Now,
        Some(TimeOrNow::SpecificTime(time)) => SetTime::At(timestamp(time)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_come_as_they_were_meant() {
        for (secs, nanos) in [(0, 0), (1, 5), (1_700_000_000, 999_999_999), (-3, 0), (-2, 800_000_000)] {
            let time = Timestamp::from_parts(secs, nanos);
            // As fuser makes a SystemTime of the two parts.
            let from_fuser = if secs >= 0 {
                UNIX_EPOCH + Duration::new(secs as u64, nanos)
            } else {
                UNIX_EPOCH - Duration::new(secs.unsigned_abs(), nanos)
            };
            assert_eq!(timestamp(from_fuser), time);
        }
        assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(i64::MAX as u64)), Timestamp(i64::MAX));
    }
}
