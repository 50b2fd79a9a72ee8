//! `pando boost`: a helper that makes programs faster which ask for the attributes of one file
//! after the other.
//!
//! A program that lists a directory waits for each file's attributes in turn: on a cold disk, an
//! NFS server, a FUSE daemon. A small library in the program ([`pando_preload`]) reports which
//! directory is being read, and how far. The helper reads the same directory and asks the kernel
//! for the same attributes, many at a time and somewhat ahead. The program's own calls then find
//! the answers in the kernel's caches. Nothing else passes between them. The helper answers
//! nothing, so results, errors and order are those of the kernel.
//!
//! ```text
//!  program                                       helper
//!  readdir ── descriptor, names seen ────────>  posts     of this user only
//!     ^                                         schedule  which directory, how far ahead
//!     └───── interval of each device <── board  helper    threads
//!  lstat ──> the kernel's caches <── statx ───  ask       did the call wait?
//!  readlink                          readlink
//! ```
//!
//! # When it does nothing
//!
//! * **Calls are fast.** One thread asks for the first sixteen names of a directory. If none of
//!   these calls slept (voluntary context switches, `ru_nvcsw`; no clock), the directory is left
//!   alone. After eight in a row, programs report one directory in 2, 4, ... 64 on that device.
//!   Large directories are tried again on the way. The first call that sleeps ends this.
//! * **The kernel keeps nothing.** The first names are asked for twice. If the second answer takes
//!   as long as the first, as on a FUSE file system with an attribute timeout of zero, the device
//!   is left alone for good. The same is done for targets of links (FUSE without
//!   `FUSE_CACHE_SYMLINKS`): then they are not asked for there.
//! * **The program reads no links.** Then their targets are not asked for. That would cost a
//!   request each, and may change the atime, which the program could see.
//! * **The program does not call the C library.** See [`program::Unboosted`].
//!
//! # What it costs others
//!
//! Calls in flight are limited for each file system. The limit is found by
//! [`pando_concurrency`], and halved by errors that mean trouble in the file system. A
//! directory is open in the helper until all its names were asked for, 256 directories at most. A
//! file system that the program unmounts meanwhile is busy, as with any second reader. When the
//! program has ended, nothing more is begun, but a process ends only when its last call is
//! answered.
//!
//! # Privileges
//!
//! The helper runs as the user who started it. A program that has dropped its privileges gains
//! nothing from it. The kernel lets no other user send to it, except root: the helper could not
//! even close descriptors from others safely.
#![forbid(unsafe_code)]

mod ask;
mod board;
mod device;
mod helper;
mod library;
mod posts;
pub mod program;
mod schedule;
mod session;
mod watch;

pub use crate::{
    helper::{MAX_IN_FLIGHT, Options},
    schedule::Totals,
    session::Session,
    watch::Watch,
};
