//! The events of a walk.

use std::{os::fd::BorrowedFd, path::Path};

use pando_records::Batch;

use super::{children::Children, open::Cause};

/// An event of a walk.
#[derive(Debug)]
pub enum Event<'a> {
    /// A directory begins.
    Enter(Directory<'a>),
    /// Some of its records, in directory order.
    Batch(Directory<'a>, &'a Batch),
    /// It was read to its end, or to the failure. Its children come next. They may be sorted or
    /// removed.
    Leave(Directory<'a>, &'a mut Children),
    /// A directory could not be entered, or not be read to its end.
    Failed(Failure<'a>),
}

/// The directory that is being read.
#[derive(Debug, Clone, Copy)]
pub struct Directory<'a> {
    /// The path of its root as it was passed, and the names from there.
    pub path: &'a Path,
    /// 0 for a root.
    pub depth: usize,
    /// Its descriptor, for calls such as readlinkat.
    pub fd: BorrowedFd<'a>,
    /// The device that it is on.
    pub dev: (u32, u32),
    /// Its inode.
    pub ino: u64,
}

/// A directory that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The directory's path.
    pub path: &'a Path,
    /// 0 for a root.
    pub depth: usize,
    /// The step that failed.
    pub cause: Cause,
    /// The errno.
    pub errno: i32,
}
