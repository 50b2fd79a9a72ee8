//! What a scan is asked for.

use bitflags::bitflags;

bitflags! {
    /// What a scan asks for besides the names.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Mask: u32 {
        /// The attributes: all that statx says.
        const STAT = 1;
        /// The names of the extended attributes.
        const XATTR_NAMES = 2;
        /// The values of the extended attributes; implies their names.
        const XATTR_VALUES = 4;
        /// Where symbolic links lead, as readlink says.
        const LINK_TARGETS = 8;
        /// What is found at the end of symbolic links: its mode.
        const LINK_ENDS = 16;
        /// Whether files that may be executed have capabilities (`security.capability`).
        const CAPABILITIES = 32;
    }
}

impl Mask {
    /// The levels of xgetdents: 0 names, 1 and attributes, 2 and names of extended attributes, 3 and their values. None
    /// for other numbers.
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

    /// Whether extended attributes are asked for, by name or by value.
    #[must_use]
    pub const fn wants_xattrs(self) -> bool {
        self.intersects(Self::XATTR_NAMES.union(Self::XATTR_VALUES))
    }

    /// Whether something is asked for that only symbolic links have.
    #[must_use]
    pub const fn wants_links(self) -> bool {
        self.intersects(Self::LINK_TARGETS.union(Self::LINK_ENDS))
    }
}
