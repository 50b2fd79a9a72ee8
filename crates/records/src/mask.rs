//! The parts of an entry that a scan reads.

use bitflags::bitflags;

bitflags! {
    /// The parts that a scan reads besides the names.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Mask: u32 {
        /// The attributes: all fields of statx.
        const STAT = 1;
        /// The names of the extended attributes.
        const XATTR_NAMES = 2;
        /// The values of the extended attributes; implies their names.
        const XATTR_VALUES = 4;
        /// The targets of symbolic links, as readlink returns them.
        const LINK_TARGETS = 8;
        /// The mode of the file at the end of a symbolic link.
        const LINK_ENDS = 16;
        /// Whether executable files have capabilities (`security.capability`).
        const CAPABILITIES = 32;
    }
}

impl Mask {
    /// The levels of xgetdents: 0 is names, 1 adds attributes, 2 adds names of extended attributes,
    /// and 3 their values. None for other numbers.
    #[must_use]
    pub const fn level(level: u32) -> Option<Self> {
        Some(match level {
            0 => Self::empty(),
            1 => Self::STAT,
            2 => Self::STAT.union(Self::XATTR_NAMES),
            3 => Self::STAT.union(Self::XATTR_NAMES).union(Self::XATTR_VALUES),
            _ => return None,
        })
    }

    /// Whether extended attributes are read, by name or by value.
    #[must_use]
    pub const fn wants_xattrs(self) -> bool {
        self.intersects(Self::XATTR_NAMES.union(Self::XATTR_VALUES))
    }

    /// Whether anything is read that only symbolic links have.
    #[must_use]
    pub const fn wants_links(self) -> bool {
        self.intersects(Self::LINK_TARGETS.union(Self::LINK_ENDS))
    }
}
