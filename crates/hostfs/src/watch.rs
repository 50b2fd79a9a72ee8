//! Changes that others make on the host, as the kernel reports them (fanotify(7)).
//!
//! One mark covers the whole file system that the directory is on. An event names inodes by their
//! file handles. So an inode is found whatever its path is, and events elsewhere on the file system
//! are recognized by an unknown handle.
//!
//! This needs CAP_SYS_ADMIN and Linux 5.17. Only the file systems in [`LOCAL`] are watched: on a
//! network file system, the kernel does not see what other machines change.

use std::{io, mem::MaybeUninit, os::fd::BorrowedFd, sync::Weak};

use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use pando_vfs::Feed;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, fstatfs, openat},
    io::Errno,
};

use crate::{sys::Handle, tree::Tree};

/// `f_type` of the file systems that are watched: ext2, ext3 and ext4, XFS, Btrfs, F2FS, bcachefs,
/// tmpfs.
const LOCAL: [u32; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0xca45_1a4e, 0x0102_1994];

/// Changes of a directory's names.
const NAMES: MaskFlags =
    MaskFlags::FAN_CREATE.union(MaskFlags::FAN_DELETE).union(MaskFlags::FAN_MOVED_FROM).union(MaskFlags::FAN_MOVED_TO);

/// All changes. A file that was written through a mapping is reported when it is closed.
const CHANGES: MaskFlags = NAMES
    .union(MaskFlags::FAN_ATTRIB)
    .union(MaskFlags::FAN_MODIFY)
    .union(MaskFlags::FAN_CLOSE_WRITE)
    .union(MaskFlags::FAN_DELETE_SELF)
    .union(MaskFlags::FAN_MOVE_SELF)
    .union(MaskFlags::FAN_ONDIR);

/// How often a thread that waits for events looks whether the tree is still there.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

const BUFFER_BYTES: usize = 64 << 10;
/// `struct fanotify_event_metadata`.
const METADATA_BYTES: usize = 24;
/// `struct fanotify_event_info_header`, and the number of the file system.
const INFO_BYTES: usize = 4 + 8;
/// `struct file_handle` without the handle.
const HANDLE_BYTES: usize = 8;

/// A file system that is watched.
#[derive(Debug)]
pub(crate) struct Watch(Fanotify);

impl Watch {
    /// Watches the file system of a directory, which has this handle.
    ///
    /// # Errors
    /// It cannot be watched.
    pub(crate) fn new(dir: BorrowedFd<'_>, handle: &Handle) -> io::Result<Self> {
        // The type has 32 bits; some architectures extend its sign.
        let kind = fstatfs(dir)?.f_type as u32;
        if !LOCAL.contains(&kind) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, format!("file systems of type {kind:#x}")));
        }
        let flags = InitFlags::FAN_CLASS_NOTIF
            | InitFlags::FAN_CLOEXEC
            | InitFlags::FAN_NONBLOCK
            | InitFlags::from_bits_retain(libc::FAN_REPORT_DFID_NAME_TARGET);
        let watch = Self(Fanotify::init(flags, EventFFlags::O_RDONLY)?);
        watch.0.mark(MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM, CHANGES, dir, Some(c"."))?;
        watch.expect_handle(dir, handle)?;
        Ok(watch)
    }

    /// Checks that events name inodes by the handles that name_to_handle_at(2) gives: opens the
    /// directory, and reads of it.
    fn expect_handle(&self, dir: BorrowedFd<'_>, handle: &Handle) -> io::Result<()> {
        let mask = MaskFlags::FAN_OPEN | MaskFlags::FAN_ONDIR;
        self.0.mark(MarkFlags::FAN_MARK_ADD, mask, dir, Some(c"."))?;
        drop(openat(dir, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?);
        self.0.mark(MarkFlags::FAN_MARK_REMOVE, mask, dir, Some(c"."))?;
        let mut found = false;
        let mut look = |event: Event<'_>| {
            let is_it = event.mask.contains(MaskFlags::FAN_OPEN) && event.is_own();
            found |= is_it && event.entry.as_ref().is_some_and(|(dir, _)| dir == handle);
        };
        while self.read(&mut look)? {}
        if found { Ok(()) } else { Err(io::Error::new(io::ErrorKind::Unsupported, "events with other handles")) }
    }

    /// Reports changes until the tree is gone.
    ///
    /// # Errors
    /// Those of the kernel. From then on nothing is reported.
    pub(crate) fn run(&self, tree: &Weak<Tree>, feed: &Feed) -> io::Result<()> {
        while Weak::strong_count(tree) > 0 {
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => continue,
                ready => ready?,
            };
            let Some(tree) = tree.upgrade() else { break };
            self.read(&mut |event| report(&tree, feed, &event))?;
        }
        Ok(())
    }

    /// Reads events, as many as fit into a buffer. False if there are none.
    fn read(&self, each: &mut dyn FnMut(Event<'_>)) -> io::Result<bool> {
        let mut buffer = Box::new_uninit_slice(BUFFER_BYTES);
        let buffer: &mut [MaybeUninit<u8>] = &mut buffer;
        let mut rest: &[u8] = match rustix::io::read(&self.0, &mut *buffer) {
            Ok((bytes, _)) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        while !rest.is_empty() {
            let (event, next) = Event::first(rest).ok_or(io::ErrorKind::InvalidData)?;
            each(event);
            rest = next;
        }
        Ok(true)
    }
}

/// Tells the tree of one event.
fn report(tree: &Tree, feed: &Feed, event: &Event<'_>) {
    if event.mask.contains(MaskFlags::FAN_Q_OVERFLOW) {
        feed.everything_changed();
        return;
    }
    if event.is_own() {
        return;
    }
    let inode_changed = |handle: &Handle| match tree.nodes.number_of(handle) {
        Some(number) => feed.inode_changed(number),
        None => feed.uncached_inode_changed(),
    };
    match &event.entry {
        // The directory itself.
        Some((dir, b"." | b"")) => inode_changed(dir),
        Some((dir, name)) if event.mask.intersects(NAMES) => match tree.nodes.number_of(dir) {
            Some(number) => feed.name_changed(number, name),
            None => feed.uncached_inode_changed(),
        },
        _ => {}
    }
    if let Some(target) = &event.target {
        inode_changed(target);
    }
}

/// An event of fanotify.
#[derive(Debug, PartialEq, Eq)]
struct Event<'a> {
    mask: MaskFlags,
    /// The process that made the change; 0 if it is in another PID namespace.
    pid: i32,
    /// A directory and the name in it. `.` stands for the directory itself.
    entry: Option<(Handle, &'a [u8])>,
    /// The inode that was changed, or that the name leads to.
    target: Option<Handle>,
}

impl<'a> Event<'a> {
    /// The first event in a buffer, and what follows it.
    fn first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let len = word(bytes, 0)? as usize;
        let metadata_len = u16::from_ne_bytes(array(bytes, 6)?) as usize;
        if bytes.get(4) != Some(&libc::FANOTIFY_METADATA_VERSION) || metadata_len < METADATA_BYTES {
            return None;
        }
        let mask = MaskFlags::from_bits_retain(u64::from_ne_bytes(array(bytes, 8)?));
        let mut event = Self { mask, pid: word(bytes, 20)? as i32, entry: None, target: None };
        let mut infos = bytes.get(metadata_len..len)?;
        while !infos.is_empty() {
            let info_len = u16::from_ne_bytes(array(infos, 2)?) as usize;
            let info = infos.get(..info_len).filter(|info| info.len() >= INFO_BYTES)?;
            match info[0] {
                libc::FAN_EVENT_INFO_TYPE_FID => event.target = Some(handle(&info[INFO_BYTES..])?.0),
                libc::FAN_EVENT_INFO_TYPE_DFID_NAME => {
                    let (dir, name) = handle(&info[INFO_BYTES..])?;
                    event.entry = Some((dir, name.split(|byte| *byte == 0).next()?));
                }
                _ => {}
            }
            infos = &infos[info_len..];
        }
        Some((event, &bytes[len..]))
    }

    /// Whether this process has made the change. The tree knows its own changes.
    fn is_own(&self) -> bool {
        self.pid as u32 == std::process::id()
    }
}

/// The handle at the start of a buffer, and what follows it.
fn handle(bytes: &[u8]) -> Option<(Handle, &[u8])> {
    let (len, kind) = (word(bytes, 0)? as usize, word(bytes, 4)? as i32);
    let (handle, rest) = bytes.get(HANDLE_BYTES..)?.split_at_checked(len)?;
    Some((Handle::new(kind, handle), rest))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(array(bytes, at)?))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of an event, with information records of these types, handles and names.
    fn bytes_of(mask: MaskFlags, pid: i32, infos: &[(u8, &[u8], &[u8])]) -> Vec<u8> {
        let mut records = Vec::new();
        for (kind, handle, name) in infos {
            let len = (INFO_BYTES + HANDLE_BYTES + handle.len() + name.len()) as u16;
            records.extend([*kind, 0]);
            records.extend(len.to_ne_bytes());
            records.extend([0; 8]);
            records.extend((handle.len() as u32).to_ne_bytes());
            records.extend(7_i32.to_ne_bytes());
            records.extend([*handle, name].concat());
        }
        let mut bytes = ((METADATA_BYTES + records.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend([libc::FANOTIFY_METADATA_VERSION, 0]);
        bytes.extend((METADATA_BYTES as u16).to_ne_bytes());
        bytes.extend(mask.bits().to_ne_bytes());
        bytes.extend((-1_i32).to_ne_bytes());
        bytes.extend(pid.to_ne_bytes());
        bytes.extend(records);
        bytes
    }

    #[test]
    fn events_are_parsed() {
        let both = [
            (libc::FAN_EVENT_INFO_TYPE_DFID_NAME, &b"directory"[..], &b"name\0\0"[..]),
            (libc::FAN_EVENT_INFO_TYPE_PIDFD, b"", b""),
            (libc::FAN_EVENT_INFO_TYPE_FID, b"file", b""),
        ];
        let first = bytes_of(MaskFlags::FAN_CREATE, 5, &both);
        let second = bytes_of(MaskFlags::FAN_Q_OVERFLOW, 0, &[]);
        let bytes = [&first[..], &second].concat();
        let (event, rest) = Event::first(&bytes).unwrap();
        assert_eq!((event.mask, event.pid), (MaskFlags::FAN_CREATE, 5));
        assert_eq!(event.entry, Some((Handle::new(7, b"directory"), &b"name"[..])));
        assert_eq!(event.target, Some(Handle::new(7, b"file")));
        let (event, rest) = Event::first(rest).unwrap();
        assert_eq!((event.mask, event.entry, event.target), (MaskFlags::FAN_Q_OVERFLOW, None, None));
        assert!(rest.is_empty());
    }

    #[test]
    fn malformed_events_are_refused() {
        let whole = bytes_of(MaskFlags::FAN_MODIFY, 5, &[(libc::FAN_EVENT_INFO_TYPE_FID, b"file", b"")]);
        for len in 0..whole.len() {
            assert_eq!(Event::first(&whole[..len]), None, "cut to {len} bytes");
        }
        for (at, value) in [(0, 0), (4, 0), (6, 0), (METADATA_BYTES + 2, 0), (METADATA_BYTES + INFO_BYTES, 200)] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            assert_eq!(Event::first(&bytes), None, "{value} at {at}");
        }
    }
}
