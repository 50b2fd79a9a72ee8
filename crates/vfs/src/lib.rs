//! The file-system tree of pandofs: names in parallel, POSIX semantics, no FUSE, embeddable.
//!
//! Where to begin: [`fs`] for files in the manner of `std::fs`; [`Vfs`], and a [`Context`] for each who calls, for the calls of
//! the kernel; [`Driver`] and [`Backing`] for a tree of one's own. An example stands [below](#example), more in `examples/`.
//! Here follows why it is right.
//!
//! # The locks
//!
//! A thread takes them in this order only, and debug builds assert it. What is indented is taken while what stands above
//! it may be held.
//!
//! ```text
//! SuperBlock::evicting           shared by evictions, which lock names; alone by who takes the tree down (not asserted)
//! NameSpace::permissions         permissions of a directory are taken away: one of them, by its number
//!   NameSpace::topology          a directory changes its parent: ancestors stand still (P4)
//!     NameSpace::names           a lock per name, striped; those of an operation at once, by stripe (P2); one for all names of
//!                                a directory, until threads meet there (pando_sync::LockGranularity)
//!       NameSpace::rename_seq    written around the instant at which a directory changes its place (P9), or loses permissions, or
//!                                at which something is mounted on it
//!       FileState::contents      as below: attributes are asked for again with the inode's lock, one of the names'
//!       Xattrs::changing         as below, for the same
//! File's Position                a read or write with the shared position (P6)
//!   FileState::contents          a file's contents: shared by readers, exclusive for writers
//! Xattrs::changing               extended attributes: a backing is told of a change, or asked, and no other lock is taken
//! SuperBlock::forgotten, questions and links, Vfs's list of mounts, Tracing::session and in it a trace's new threads,
//! a driver's limits              leaves: held for a few instructions
//! ```
//!
//! A driver's [`Backing`] is called with any of these held but a position and the leaves, and never under a reclamation
//! guard, but for [`Backing::change_count`].
//!
//! A path walk, stat, access, a look-up, path rendering in the common case, and every seek but a relative one take none
//! of them. No lock of a directory is in the way of those who meet there: the names in it have one lock only until two do.
//!
//! # The data
//!
//! ```text
//!  Directory (in its inode)                    one allocation
//!  +--------------------------+      +----------------------------------------+
//!  | table: SplitTable<Slot> --+---->| Slot                  | Dentry         |
//!  | life: alive/being removed |     |  anchor  name         |  place --> Slot|
//!  | stripes: counts, stamp,   |<----+--'       value -------+> inode         |
//!  |          anchor           |     |  next, position       |   ino, perm,   |
//!  +--------------------------+      +-----------------------|   times, body  |
//!                                                            +----------------+
//! ```
//!
//! A *slot* stands in a directory's table for a name; `value` says which dentry it shows. A *dentry* is the identity that
//! an open file keeps; `place` says in which slot it stands now. The first dentry of an inode holds the inode itself, and
//! lies in one allocation with the slot it was made in; further hard links refer to it. All of them are reference-counted
//! and may be read under a reclamation guard without being counted ([`pando_sync::Counted`]).
//!
//! What many threads would write on every create is spread: a directory's entry counts, its time stamp, and the *anchor* by
//! which its slots hold it, are striped once threads contend; inodes hold a *shard* of their superblock, with its own run
//! of inode numbers, and not the superblock itself.
//!
//! # How an operation runs
//!
//! **A look-up** pins a guard, hashes each name (a keyed pseudo-random function, another one in each directory: the cookies of readdir
//! publish it), finds the slot in the table and reads its value. It writes nothing that another core reads (P1). Its
//! linearization point is the load of the value, or, when the value is an operation's entry, the load of that
//! operation's state.
//!
//! **A change** is an *attempt* under a guard: walk, look, check, *try* the locks of its names, and do it. If a lock is taken, the
//! attempt gives everything up, waits for the locks it wanted (they are numbers, so nothing need be kept alive for
//! them) and begins again with these in hand. So nobody waits under a guard, and nobody counts references on a directory
//! that others are working in.
//!
//! **create** (mkdir, mknod, symlink, link, open) does all that can fail first, inserts the slot *pending*, which nobody sees, and
//! then asks whether the directory is alive. If so, it publishes: the instant of the operation. If a removal is under
//! way it aborts the removal; if the removal is done it takes the slot back: ENOENT.
//!
//! **rmdir** puts an operation into the directory's life and looks for entries. A pending one it publishes itself, and
//! refuses: ENOTEMPTY. If there is none, the commit of the operation is the instant at which the directory and its name are gone.
//!
//! **rename** enlists all words that change — the two slots, the place of what moves, the place of what is replaced,
//! the life of a directory that is replaced — in one operation. Its commit, one compare-and-swap, is the instant (P3). Readers who
//! meet an entry of it answer from its state and never wait.
//!
//! ```text
//!  create in d                                rmdir d
//!  insert the slot, pending
//!                                             d.life := removing
//!  fence                                      fence
//!  read d.life: removing -> abort it          look at the slots: pending -> publish it, abort
//!  publish                                    ENOTEMPTY
//! ```
//!
//! Whichever fence comes second, its thread sees what the other did before: both cannot miss each other. The models
//! are in `pando_sync::op`, with the page of all linearization points.
//!
//! **unlink** empties the slot (the instant), takes it out of the table, and counts the link down. **link** counts up
//! before it inserts: a link count is never too low.
//!
//! **A file that many open** at the same time gets proxies ([`pando_sync::PerCpuRefs`]), under its name's lock, on which openers
//! count from then on. They hold the file and it holds them, until its name is taken away: under the same lock.
//!
//! **chmod and chown** of a directory: a change of a name is permitted under that name's lock, and what was permitted stands
//! until the lock is given back. Who takes permissions away says so in the directory, passes once through all name locks,
//! and then stores the new record, which is the instant: nobody is between check and change. Who finds it said gives the
//! lock back and waits ([`pando_sync::Revocable`]).
//!
//! **The way to a directory** is remembered by the thread that has gone it, with the rename sequence that stood before: the
//! next walk to something in there goes on from the directory, if the sequence still stands and the directory is not removed.
//! At the instant at which the sequence was read, the whole way was there and open to the caller: the module `prefixes` says
//! why. What is remembered holds nothing ([`pando_sync::Weak`]) and is written where no other thread reads.
//!
//! **Path rendering** climbs from place to place within a window of the rename sequence, and starts over if a directory has
//! changed its place meanwhile; after four tries it keeps directories in place for the time of one climb.
//!
//! **Seeking** stores the position, and nothing else; reads and writes finish by compare-and-swap, so that a seek that
//! came after them stands ([`pando_sync::Position`]).
//!
//! **A tree with a [`Backing`]** is a cache of what was asked for lately: see [`Driver`] and the modules `caches::ask` and `caches::evict`.
//!
//! # Which paths write shared lines, and how to see it
//!
//! | operation | lines that another core may want |
//! | --- | --- |
//! | look-up, stat, access, readdir, d_path | none; a relatime stamp when it is due |
//! | readdir_plus | each entry's count |
//! | lseek SET, END, DATA, HOLE, tell | the handle's position |
//! | open, close | the file's count; this core's proxy of it, once openers have been in one another's way |
//! | create, symlink, mknod | the bucket of the name, the name's lock (one for all of them until threads meet), this core's stripe of the directory |
//! | mkdir, rmdir | the same, and the directory's own; rmdir also one of 512 lines that say whether what is remembered has died |
//! | link, unlink | as create, and the file's link count and ctime, and the count of its first dentry |
//! | rename of a file | the two names' buckets and locks, this core's stripe of each directory, the file's place and ctime |
//! | rename over a name, exchange | the same of the other file, and its link count if it loses a name |
//! | rename of a directory | as of a file, and the rename sequence; across parents the topology lock as well |
//! | read | the file's data lock; this core's stripe of it, once readers have been in one another's way |
//! | write | the file's data lock and times; all stripes, if there were such readers since the last write |
//! | chmod, chown, utimens, setxattr | the inode's own |
//! | mount, umount | the rename sequence |
//! | chmod, chown of a directory, if it takes something away | each stripe of the name locks, the directory's own, the rename sequence |
//!
//! `perf c2c record` shows them on hardware that counts; `pando bench crunl --threads 1,2` shows what they cost.
//!
//! # Limitations
//!
//! * DATA and HOLE seeks of drivers that do not say where data is ([`FileData::layout`]) take a file for one without
//!   holes while it is being written to: they do not wait.
//! * Names of one stripe wait for each other (64 stripes a core), also while a backing is told of a change of one of them.
//! * A chmod or chown that takes permission away in a directory waits for all changes in the name space that a backing is
//!   being told of, and changes in that directory wait for it.
//! * Where several threads change a directory, a change may leave its times as they are: what is made is stamped with the
//!   clock of just before it can be seen; and once the clock was set back, a thread that had changed nothing in there for as
//!   long as that stamps below what the others have.
//! * With a backing, the link count of a directory that others change is off by a subdirectory that was just being made or
//!   removed here when the backing was asked, until others change the directory again.
//! * A thread that walks many ways remembers up to 4096 of them: 768 KiB, for as long as it lives.
//! * No ACLs, file locks, leases, mandatory access control, or quotas by user. Fifos, sockets and devices are names:
//!   opening one is ENXIO.
//!
//! # Example
//!
//! ```
//! use pando_memfs::{MemFs, MemOptions};
//! use pando_vfs::{At, Context, Credentials, OpenFlags, Vfs};
//!
//! let vfs = Vfs::new(MemFs::new(MemOptions::default()))?;
//! let context = Context::new(&vfs, Credentials::root());
//! vfs.mkdir(&context, At::Cwd, "/grove", 0o755)?;
//! let file = vfs.open(&context, At::Cwd, "/grove/aspen", OpenFlags::RDWR | OpenFlags::CREAT, 0o644)?;
//! file.write(b"one root, many trunks")?;
//! assert_eq!(vfs.d_path(&context, file.dentry(), 4096)?, b"/grove/aspen");
//! # Ok::<(), pando_vfs::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod bulk;
mod caches;
mod driver;
pub mod fs;
mod handles;
mod objects;
mod operations;
#[doc(hidden)]
pub mod probe;
pub mod trace;
mod types;

pub use driver::{AttrMask, Backing, Charge, Driver, FileData, NodeAttr, Scanned, Xattr};
pub use handles::{
    context::{At, Context},
    file::File,
    vfs::Vfs,
};
pub use objects::dentry::DentryRef;
pub use types::{
    cred::Credentials,
    error::{Error, Result},
    layout::Layout,
    name::{NAME_MAX, PATH_MAX, SYMLINKS_MAX, XATTR_NAME_MAX, XATTR_SIZE_MAX},
    stat::*,
};

/// The README's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The promises' examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/semantics.md")]
struct Semantics;
