//! The kinds of files, and their bits in a mode.

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A character device node.
    CharDevice,
    /// A block device node.
    BlockDevice,
    /// A socket.
    Socket,
}

/// The bits of a mode that hold the kind.
pub const S_IFMT: u32 = 0o170_000;

impl FileKind {
    /// The `S_IF*` bits.
    #[must_use]
    pub const fn to_mode(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::File => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// The kind in `mode`; none for unknown bits. No bits at all mean a regular file, as for mknod.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<Self> {
        // Without the zero bits, so that compilers make a table of it.
        Some(match (mode & S_IFMT) >> 12 {
            0o01 => Self::Fifo,
            0o02 => Self::CharDevice,
            0o04 => Self::Directory,
            0o06 => Self::BlockDevice,
            0 | 0o10 => Self::File,
            0o12 => Self::Symlink,
            0o14 => Self::Socket,
            _ => return None,
        })
    }
}
