//! The file-system tree of pandofs: POSIX semantics, names change in parallel, embeddable, no FUSE.
//!
//! # Lock order
//!
//! ```text
//! SuperBlock::evicting       evictions, shared; shutdown of a tree, exclusive (not asserted)
//! Namespace::permissions     permissions of a directory are revoked; one of 32, by inode number
//!   topology                 a directory changes its parent: ancestors are stable (P4)
//!     names                  locks of names and inodes, striped; all of an operation at once (P2)
//!       rename_seq           a directory moves or loses permissions, or a mount changes (P9)
//!       FileState::contents  the data lock, when an inode of a backing is refreshed
//!       Xattrs::changing     the same for extended attributes
//! File's Position            a read or write at the shared position (P6)
//!   FileState::contents      the data lock: readers shared, writers exclusive
//! Xattrs::changing           a backing acknowledges a change of extended attributes, or is asked
//! leaves                     pending forgets, requests in flight, aliases, the list of mounts, the
//!                            trace session, a driver's limits: held for a few instructions
//! ```
//!
//! # Where to begin
//!
//! * [`fs`] is a layer in the manner of `std::fs`.
//! * [`Vfs`] has the system calls, and a [`Context`] is the caller of one.
//! * [`Driver`] and [`Backing`] are the interface for a tree of your own.
//!
//! The [example](#example) below is a complete program. There are more in `examples/`. The sections
//! in between explain why the tree is correct.
//!
//! # Rules of the locks
//!
//! A thread takes locks only in the order above, and debug builds assert it, except for `evicting`.
//! An indented lock may be taken while the lock above it is held. Codes such as P2 are promises;
//! ARCHITECTURE.md lists them. An eviction also takes name locks while it holds `evicting`.
//!
//! All names of a directory share one lock until two threads contend for it. Then the lock is split
//! for good: the hash of a name selects one of many locks, its stripe
//! ([`pando_sync::LockGranularity`]). From then on, names with different stripes do not exclude
//! each other.
//!
//! For cached objects, path walk, stat, access, look-ups and seeks take none of these locks; only a
//! relative seek waits, for a read or write on the same handle. Path rendering takes none in the
//! common case.
//!
//! No other lock is taken under a leaf.
//!
//! No thread waits for a lock other than a leaf while it holds a reclamation guard. A driver's
//! [`Backing`] may be called with any of these locks held, except for a position and the leaves,
//! and never under a guard. There are two exceptions: [`Backing::change_count`] is called under a
//! guard, and the drop of a superblock calls [`Backing::forget`] under whatever the dropping thread
//! holds.
//!
//! # Layout of the data
//!
//! ```text
//!  Directory (in its inode)                     one allocation
//!  +---------------------------+      +------------------------------------------+
//!  | table of entries ---------+----->| directory entry        | dentry          |
//!  | life: alive/being removed |      |  parent ref,  name     |  place --> entry|
//!  | stripes: counts, stamp,   |<-----+--'        value -------+> inode          |
//!  |          parent ref       |      |  next, position        |   ino, perm,    |
//!  +---------------------------+      +------------------------|   times, body   |
//!                                                              +-----------------+
//! ```
//!
//! Linux's dentry is two objects here. A *directory entry* is an element of a directory's table: a
//! name, and a `value` that refers to a dentry or to none. A *dentry* is one hard link of an inode.
//! A rename moves it to another directory entry. An open file refers to the dentry, so it follows
//! renames; `place` refers back to the directory entry that has the dentry now. The first dentry of
//! an inode contains the inode, and is allocated together with the directory entry in which it was
//! created. Each other hard link has an *alias*: a dentry that refers to the first one. All these
//! objects are reference-counted, and may be read under a reclamation guard without being counted
//! ([`pando_sync::Counted`]).
//!
//! Words that every create would write are striped once threads contend for them: a directory's
//! entry counts, its time stamp, and the *parent reference* through which its entries hold it.
//! Inodes do not hold their superblock. They hold one of its *shards*, each of which has its own
//! run of inode numbers.
//!
//! # Life of an operation
//!
//! **A look-up** pins a guard. It hashes each name with a keyed pseudo-random function. The key
//! differs between directories, because the cookies of readdir publish the hashes. It finds the
//! entry in the table and loads its value. For a cached name it writes no shared cache line (P1).
//! Its linearization point is the load of the value.
//!
//! **A change of several words** uses an *operation*: a descriptor that the thread publishes in
//! each of the words, and commits with one compare-and-swap on its state. A look-up that finds a
//! descriptor in a value loads that state, takes the old or the new value by it, and never waits.
//! This load is then its linearization point.
//!
//! **A change** makes attempts. An attempt pins a guard, walks, looks its names up, checks, and
//! *tries* the locks of its names. If it gets all of them, it makes the change. If another thread
//! holds one, the attempt releases its locks and the guard, and keeps only the numbers of the
//! stripes. The thread waits for these stripes without a guard, and makes the next attempt with
//! them held. So no thread waits under a guard, and no thread counts a reference on a directory in
//! which others work.
//!
//! **create** (also mkdir, mknod, symlink, link, open) first does everything that can fail except
//! for one check. It inserts the entry *pending*: look-ups ignore it. It fences, and reads the
//! directory's life. If the directory is alive, it publishes the entry: the instant of the create.
//! If a removal is in progress, it aborts the removal and publishes. If the directory is removed,
//! also because the removal has committed first, it takes the entry out again and fails with
//! ENOENT.
//!
//! **rmdir** stores an operation in the directory's life, fences, and scans for entries. If it
//! finds one, it aborts and fails with ENOTEMPTY. A pending entry it publishes first, on behalf of
//! its creator, so that the directory is not empty at that instant. If the table is empty, it
//! commits. At this instant the directory is removed and its name is unbound.
//!
//! **rename** enlists all words that change in one operation: the two directory entries, the place
//! of the dentry that moves, the place of a dentry that is replaced, and the life of a directory
//! that is replaced, whose entries it scans as rmdir does. The commit is the instant of the rename
//! (P3).
//!
//! ```text
//!  create in d                                rmdir d
//!  insert the entry, pending
//!                                             d.life := removing
//!  fence                                      fence
//!  read d.life: removing -> abort it          scan the entries: pending -> publish it, abort
//!  publish                                    ENOTEMPTY
//! ```
//!
//! Both fences are sequentially consistent, so one of them comes first. The thread with the later
//! fence sees what the other thread stored before the earlier fence. So at least one of them sees
//! the other. `pando_sync::op` has the models and all linearization points.
//!
//! **unlink** empties the directory entry (the instant), removes it from the table, and decrements
//! the link count. **link** increments the count before it inserts the entry. So a link count is
//! never too low.
//!
//! **open** of a file that many threads open at the same time: the dentry gets per-CPU reference
//! counts ([`pando_sync::PerCpuRefs`]), under its name lock, and later openers use those. The
//! counts and the dentry refer to each other. The thread that removes the name breaks this cycle
//! under the same lock, and so does the shutdown of the tree after it is closed.
//!
//! **chmod and chown** of a directory: a change of a name checks the directory's permissions while
//! it holds the name lock, and relies on the result until it releases the lock. To revoke
//! permissions, a thread marks the directory, and then takes and releases each name lock once: a
//! grace period, like `synchronize_rcu()`. After that, no thread relies on an old check. The thread
//! stores the new permissions, which is the instant. A thread that finds the mark releases its lock
//! and waits ([`pando_sync::Revocable`]).
//!
//! **The path-prefix cache** of a thread has the directories that its walks have passed, with the
//! rename sequence from before the walk. The next walk to a name in such a directory starts there,
//! if the sequence is unchanged and the directory is not removed. At the instant at which the
//! sequence was read, the whole path existed and the caller could search each directory of it: the
//! module `prefixes` has the proof. The cache holds no references ([`pando_sync::Weak`]) and is
//! written where no other thread reads.
//!
//! **Path rendering** climbs from place to place within a window of the rename sequence, and starts
//! over if a directory has moved meanwhile. After four tries it blocks moves of directories for one
//! climb.
//!
//! **A seek** only stores the position. A read or write advances the position with a
//! compare-and-swap at its end. If a seek has stored another position meanwhile, the seek wins
//! ([`pando_sync::Position`]).
//!
//! **A tree with a [`Backing`]** is a cache of recent answers: see [`Driver`] and the modules
//! `caches::ask` and `caches::evict`.
//!
//! # Which operations write shared cache lines
//!
//! In the table, *name* stands for the bucket and the lock of a name (one lock for all names of a
//! directory until threads contend), and *stripe* for this CPU's stripe of a directory.
//!
//! | operation | lines that another core may need |
//! | --- | --- |
//! | look-up, stat, access, readdir, d_path | none; a relatime stamp when it is due |
//! | readdir_plus | each entry's reference count |
//! | lseek SET, END, DATA, HOLE, tell | the handle's position |
//! | open, close | the file's reference count; after contention, this CPU's count of it |
//! | create, symlink, mknod | name, stripe |
//! | mkdir | name, stripe, the new directory |
//! | rmdir | name, stripe, the removed directory, 1 of 512 counters that end weak references |
//! | link, unlink | name, stripe, link count and ctime, reference count of the first dentry |
//! | rename of a file | both names, both stripes, the file's place and ctime |
//! | rename over a name, exchange | the same of the other file; its link count if it loses a name |
//! | rename of a directory | as of a file, the rename sequence; across parents the topology lock |
//! | read | the data lock; after contention of readers, this CPU's stripe of it |
//! | write | the data lock, times; all stripes of the lock, if used since the last write |
//! | chmod, chown, utimens, setxattr | the inode's own |
//! | chmod, chown that revoke | each stripe of the name locks, the directory, the rename sequence |
//! | mount, umount | the rename sequence |
//!
//! `perf c2c record` shows these lines on hardware that counts them. `pando bench crunl --threads
//! 1,2` shows their cost.
//!
//! # Limitations
//!
//! * Some drivers do not report where data is ([`FileData::layout`]). There, a DATA or HOLE seek
//!   during a write takes the file for one without holes, because it does not wait.
//! * Names in one stripe wait for each other, also while a backing acknowledges a change of one of
//!   them. There are 64 stripes per core, 4096 at most.
//! * A chmod or chown that revokes permissions of a directory waits for all changes in the
//!   namespace that a backing is acknowledging, and changes in that directory wait for it.
//! * Where several threads change a directory, a change may leave the directory's times as they
//!   are. A new entry is stamped with the clock from just before it becomes visible. If the clock
//!   was set back, new stamps can be older than existing ones for as long as it was set back.
//! * With a backing, the link count of a directory can be wrong by a mkdir or rmdir of this tree
//!   that ran while the backing was asked for the count. This needs other users of the store that
//!   change the directory, too. Their next change corrects the count.
//! * Freed memory returns to the system a second later, in the course of other calls. A program
//!   that becomes idle calls [`release_free_memory`].
//! * A thread that walks many paths has up to 4096 entries in its path-prefix cache: 768 KiB until
//!   it ends.
//! * No ACLs, file locks, leases, mandatory access control, or quotas by user. Fifos, sockets and
//!   device nodes are names only: opening one is ENXIO.
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
//! let flags = OpenFlags::RDWR | OpenFlags::CREAT;
//! let file = vfs.open(&context, At::Cwd, "/grove/aspen", flags, 0o644)?;
//! file.write(b"one root, many trunks")?;
//! assert_eq!(vfs.d_path(&context, file.dentry(), 4096)?, b"/grove/aspen");
//! # Ok::<(), pando_vfs::Error>(())
//! ```
#![forbid(unsafe_code)]

mod caches;
mod driver;
pub mod fs;
mod handles;
#[cfg(feature = "introspection")]
#[doc(hidden)]
pub mod introspection;
#[cfg(not(feature = "introspection"))]
#[allow(dead_code)] // Compiled all the same, so that what only it calls is no dead code.
mod introspection;
mod objects;
mod operations;
pub mod trace;
mod types;

pub use driver::{AttrMask, Backing, Charge, Driver, FileData, NodeAttr, Scanned, Xattr};
pub use handles::{
    context::{At, Context},
    file::File,
    vfs::Vfs,
};
pub use objects::dentry::DentryRef;
pub use operations::exports::Exports;
pub use pando_sync::release_free_memory;
pub use types::{
    cred::Credentials,
    error::{Error, Result},
    flags::*,
    layout::Layout,
    name::{NAME_MAX, PATH_MAX, SYMLINKS_MAX, XATTR_NAME_MAX, XATTR_SIZE_MAX},
    stat::*,
    time::*,
};

/// Tests of the examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Tests of the examples in `docs/semantics.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/semantics.md")]
struct Semantics;
