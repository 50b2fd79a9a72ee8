//! The events of a watch.

use bitflags::bitflags;

bitflags! {
    /// Kinds of events. Names and values are those of inotify(7).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct WatchEvents: u32 {
        /// A file was read, or a directory was listed.
        const ACCESS = 0x1;
        /// Contents or size have changed.
        const MODIFY = 0x2;
        /// Mode, owner, times, extended attributes or the number of links have changed.
        const ATTRIB = 0x4;
        /// A file that was open for writing was closed.
        const CLOSE_WRITE = 0x8;
        /// A file or directory that was open, and not for writing, was closed.
        const CLOSE_NOWRITE = 0x10;
        /// A file or directory was opened.
        const OPEN = 0x20;
        /// A name was moved away from a directory. The event [`WatchEvents::MOVED_TO`] of the same
        /// move has the same cookie.
        const MOVED_FROM = 0x40;
        /// A name was moved into a directory.
        const MOVED_TO = 0x80;
        /// A name was made in a directory.
        const CREATE = 0x100;
        /// A name was removed from a directory.
        const DELETE = 0x200;
        /// The watched file has lost its last name, or the watched directory was removed. The watch
        /// ends. Unlike inotify, this does not wait until the file is closed.
        const DELETE_SELF = 0x400;
        /// The watched file or directory was moved.
        const MOVE_SELF = 0x800;
        /// The tree of the watched file was unmounted. The watch ends. Reported as IGNORED is.
        const UNMOUNT = 0x2000;
        /// Events were lost, because the queue was full, or because directories above were moved
        /// all the time. Belongs to no watch. Always reported.
        const Q_OVERFLOW = 0x4000;
        /// The watch has ended: it was removed, or the file or its tree is gone. Always reported,
        /// unless the queue is full.
        const IGNORED = 0x8000;
        /// Said in addition: the object is a directory.
        const ISDIR = 0x4000_0000;

        /// Both kinds of closing.
        const CLOSE = Self::CLOSE_WRITE.bits() | Self::CLOSE_NOWRITE.bits();
        /// Both halves of a move.
        const MOVE = Self::MOVED_FROM.bits() | Self::MOVED_TO.bits();
        /// All events that a watch can ask for.
        const ALL_EVENTS = 0xfff;
    }
}

/// The number of a watch. A watcher never uses one again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub(crate) u64);

/// What has happened to a watched file or directory, or in it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchEvent {
    /// The watch. None for [`WatchEvents::Q_OVERFLOW`].
    pub watch: Option<WatchId>,
    /// What has happened: one kind, and perhaps [`WatchEvents::ISDIR`].
    pub events: WatchEvents,
    /// The same number for both halves of a move. 0 for other events.
    pub cookie: u32,
    /// The name of the object in the watched directory; below a directory that is watched with
    /// everything in it, the path from there. Empty for the watched object itself.
    pub path: Vec<u8>,
}
