//! What a caller may choose.

use pando_records::{Fields, Mask};

use crate::{Error, MAX_FIXED_WORKERS, MIN_BUDGET_BYTES, Result};

/// How many calls may wait in the kernel at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Workers {
    /// As measured: the caller alone while calls are fast, with a thread that is ahead of it where some wait a little, and up to
    /// [`MAX_WORKERS`](crate::MAX_WORKERS) threads when each call waits.
    #[default]
    Auto,
    /// As measured, and never more than this.
    AtMost(usize),
    /// Always this many, as far as the budget has pages for them; 1 means the caller alone.
    Fixed(usize),
}

/// In which order entries are asked for. They are always handed out in directory order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// By trial, and by what the device is.
    #[default]
    Auto,
    /// As the directory has them.
    Directory,
    /// By inode number: on many file systems the order in which they lie on the disk.
    Inode,
}

/// How a scan is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What is asked for besides the names.
    pub mask: Mask,
    /// Which of the attributes are needed. A network file system may answer faster for fewer.
    pub fields: Fields,
    /// Whether `.` and `..` are entries as well.
    pub dots: bool,
    /// Whether symbolic links are followed: attributes and extended attributes are those of what a link leads to, and a
    /// walk enters directories through links. Nothing that only links have is asked for then.
    pub follow: bool,
    /// Memory for names and answers, in bytes; [`MIN_BUDGET_BYTES`] at least. The stacks of threads are not in it.
    pub budget_bytes: usize,
    /// How many calls may wait at the same time.
    pub workers: Workers,
    /// The order of asking.
    pub order: Order,
}

impl Default for Options {
    /// Names and attributes, 64 MiB, and the rest as measured.
    fn default() -> Self {
        Self {
            mask: Mask::STAT,
            fields: Fields::all(),
            dots: false,
            follow: false,
            budget_bytes: 64 << 20,
            workers: Workers::Auto,
            order: Order::Auto,
        }
    }
}

impl Options {
    /// Refuses what cannot be done.
    pub(crate) fn check(&self) -> Result<()> {
        if self.budget_bytes < MIN_BUDGET_BYTES {
            return Err(Error::Budget(self.budget_bytes));
        }
        if !Mask::all().contains(self.mask) {
            return Err(Error::Mask(self.mask.bits()));
        }
        if !Fields::all().contains(self.fields) {
            return Err(Error::Fields(self.fields.bits()));
        }
        match self.workers {
            Workers::AtMost(0) | Workers::Fixed(0) => return Err(Error::Workers(0)),
            Workers::Fixed(count) if count > MAX_FIXED_WORKERS => return Err(Error::Workers(count)),
            _ => {}
        }
        Ok(())
    }
}
