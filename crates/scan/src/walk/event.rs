//! What a walk reports.

use std::{os::fd::BorrowedFd, path::Path};

use pando_records::Batch;

use super::{children::Children, open::Cause};

/// What a walk does next.
#[derive(Debug)]
pub enum Event<'a> {
    /// A directory begins.
    Enter(Directory<'a>),
    /// Some of its records, in directory order.
    Batch(Directory<'a>, &'a Batch),
    /// It was read to its end, as far as it could be. Its children come next, and may be put into another order, or
    /// taken away.
    Leave(Directory<'a>, &'a mut Children),
    /// A directory could not be entered, or not be read on.
    Failed(Failure<'a>),
}

/// The directory that is being read.
#[derive(Debug, Clone, Copy)]
pub struct Directory<'a> {
    /// The path of its root as it was given, and the names from there.
    pub path: &'a Path,
    /// 0 for a root.
    pub depth: usize,
    /// Itself, for calls such as readlinkat.
    pub fd: BorrowedFd<'a>,
    /// The device that it is on.
    pub dev: (u32, u32),
    /// Its inode.
    pub ino: u64,
}

/// What could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The directory's path.
    pub path: &'a Path,
    /// 0 for a root.
    pub depth: usize,
    /// At what.
    pub cause: Cause,
    /// Why.
    pub errno: i32,
}
