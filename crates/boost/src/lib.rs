//! `pando boost`: programs that ask for the attributes of one file after the other, made faster from outside.
//!
//! A program that lists a directory waits for each file's attributes in turn: on a cold disk, an NFS server, a FUSE
//! daemon. A small library in the program ([`pando_preload`]) tells this helper which directory is being read, and
//! how far. The helper reads the same directory by itself and asks the kernel for the same attributes, many at a time and
//! somewhat ahead. The program's own calls then find the answers in the kernel's caches. Nothing else passes between
//! them: the helper answers nothing, so results, errors and order are the kernel's, as ever.
//!
//! ```text
//!  program                                       helper
//!  readdir ── descriptor, names seen ──────────>  posts      in a directory that others may not enter
//!     ^                                           schedule   which directory, how far ahead
//!     └───── interval of each device <─── board   helper     threads
//!  lstat ──> the kernel's caches <─── statx ────  ask        did the call wait?
//!  readlink                           readlink
//! ```
//!
//! # When it does nothing
//!
//! * **Calls are fast.** The first sixteen names of a directory are asked by one thread. If none of these calls slept
//!   (voluntary context switches, `ru_nvcsw`; no clock), the directory is left; after eight in a row, programs tell of
//!   one directory in 2, 4, ... 64 on that device. Large directories are tried again on the way. The first call that sleeps undoes it.
//! * **The kernel keeps nothing**: the first names are asked twice. Where the second answer takes as long as the first,
//!   as on a FUSE file system with an attribute timeout of zero, the device is left alone for good. The same of where links
//!   lead (FUSE without `FUSE_CACHE_SYMLINKS`): then that is not asked there.
//! * **The program reads no links**: then it is not asked where they lead. To read that costs a request, and may leave a time of
//!   access, which the program could see.
//! * **Nobody listens to the program**, since it does not call the C library: see [`program::Unboosted`].
//!
//! # What it costs others
//!
//! Calls in flight are limited for each file system; the limit is found by trial (`governor`) and halved by errors that
//! mean trouble below. A directory is open in the helper until all that is to be asked of it is asked, 256 of them at most. A
//! file system that the program unmounts meanwhile is busy, as it would be with any second reader. When the program has ended,
//! nothing more is begun; but a process ends when its last call is answered.
//!
//! # Privileges
//!
//! The helper is the user who started it. A program that has dropped its privileges gains nothing by it: there is no
//! answer to gain, and the kernel lets nobody else send to it, root excepted: what others send could not even be closed safely.
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
