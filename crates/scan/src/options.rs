//! Options of a scan.

use pando_records::{Fields, Mask};

use crate::{Error, MAX_FIXED_WORKERS, MIN_BUDGET_BYTES, Result};

/// How many calls may wait in the kernel at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Workers {
    /// By measurement: the caller alone while calls are fast, a thread ahead of it where some calls
    /// wait a little, and up to [`MAX_WORKERS`](crate::MAX_WORKERS) threads where each call waits.
    #[default]
    Auto,
    /// By measurement, and never more than this.
    AtMost(usize),
    /// Always this many, as far as the budget has pages for them. 1 means the caller alone.
    Fixed(usize),
}

/// The order in which calls for entries are made. Batches are always in directory order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// By trial, and by the device.
    #[default]
    Auto,
    /// Directory order.
    Directory,
    /// By inode number: on many file systems this is the order on the disk.
    Inode,
}

/// How a scan is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Options {
    /// The parts that are read besides the names.
    pub mask: Mask,
    /// Which attributes are needed. A network file system may answer faster for fewer.
    pub fields: Fields,
    /// Whether `.` and `..` are among the entries.
    pub dots: bool,
    /// Whether symbolic links are followed. Then attributes and extended attributes are those of
    /// the target, and a walk enters directories through links. Targets of links are then not read.
    pub follow: bool,
    /// Memory for names and answers, in bytes, at least [`MIN_BUDGET_BYTES`]. The stacks of threads
    /// are not included, nor the 16 KiB of a reply from a mount of pandofs.
    pub budget_bytes: usize,
    /// How many calls may wait at the same time.
    pub workers: Workers,
    /// The order in which calls for entries are made.
    pub order: Order,
}

impl Default for Options {
    /// Names and attributes, 64 MiB, and the rest by measurement.
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
    /// Names and attributes, 64 MiB, and the rest by measurement.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`Options::mask`].
    pub fn mask(mut self, mask: Mask) -> Self {
        self.mask = mask;
        self
    }

    /// Sets [`Options::fields`].
    pub fn fields(mut self, fields: Fields) -> Self {
        self.fields = fields;
        self
    }

    /// Sets [`Options::dots`].
    pub fn dots(mut self, dots: bool) -> Self {
        self.dots = dots;
        self
    }

    /// Sets [`Options::follow`].
    pub fn follow(mut self, follow: bool) -> Self {
        self.follow = follow;
        self
    }

    /// Sets [`Options::budget_bytes`].
    pub fn budget_bytes(mut self, budget_bytes: usize) -> Self {
        self.budget_bytes = budget_bytes;
        self
    }

    /// Sets [`Options::workers`].
    pub fn workers(mut self, workers: Workers) -> Self {
        self.workers = workers;
        self
    }

    /// Sets [`Options::order`].
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }
}

impl Options {
    /// Refuses options that make no sense.
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
