//! The file-system tree of pandofs, to embed: POSIX semantics, names change in parallel. This crate
//! contains no FUSE code.
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
//! Xattrs::changing           a backing is asked for extended attributes, or to change them
//! FileLocks                  locks of files: a shard, the list of an inode, the notes of waits
//! leaves                     pending forgets, requests in flight, aliases, the list of mounts, the
//!                            trace session, watches and queues of events, a driver's limits: held
//!                            for a few instructions
//! ```
//!
//! # Where to begin
//!
//! * [`fs`] is a layer in the manner of `std::fs`.
//! * [`Vfs`] has the system calls, and a [`Context`] is the caller of one.
//! * [`Driver`] and [`Backing`] are the interface for a tree of your own.
//!
//! The [example](#example) below is a complete program. There are more in `examples/`. The sections
//! in between explain why the tree is correct. Their terms:
//!
//! * A *driver* keeps the contents of files. A driver with a *backing* also keeps names and
//!   attributes, for example on a server. The tree is then a cache of it.
//! * A *namespace* is all trees that are mounted on each other.
//! * A *handle* is an open file ([`File`]). Its *position* is where the next read or write starts.
//! * A *reclamation guard* ([`pando_sync::pin`]) is like an RCU read-side critical section: no
//!   object that is reachable under it is freed before it is dropped. To take one is to *pin* it.
//!
//! # Rules of the locks
//!
//! A thread takes locks only in the order above. Debug builds assert it, except for `evicting`,
//! `changing`, `FileLocks` and the leaves. An indented lock may be taken while the lock above it is
//! held. A *leaf* may be taken under any lock, and no lock is taken under a leaf. An eviction also
//! takes name locks while it holds `evicting`. Codes such as P2 are promises; ARCHITECTURE.md lists
//! them.
//!
//! One array of locks, the *stripes*, serves all directories. At first, all names of a directory
//! use one stripe. When two threads contend for it, the directory changes for good: from then on,
//! the hash of the directory and the name selects the stripe ([`pando_sync::LockGranularity`]).
//! Changes of names with different stripes do not exclude each other.
//!
//! For cached objects, path walk, stat, access, look-ups and seeks take none of these locks; only a
//! relative seek waits, for a read or write on the same handle. Path rendering takes none in the
//! common case.
//!
//! No thread waits for a lock other than a leaf while it holds a reclamation guard. A driver's
//! [`Backing`] may be called with any of these locks held, except for a position and the leaves,
//! and never under a guard. The exception is [`Backing::forget`]: it may be called with any lock or
//! guard held, since a superblock can be dropped anywhere.
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
//! In Linux, a dentry is both a name in a directory and a link to an inode. Here these are two
//! objects. A *directory entry* is the name, an element of a directory's table. Its `value` refers
//! to a dentry or to none. A *dentry* is one hard link of an inode. It stays the same when it is
//! renamed: a rename moves it to another directory entry. An open file refers to the dentry, so it
//! follows renames; `place` refers back to the directory entry that has the dentry now. The first
//! dentry of an inode contains the inode, and is allocated together with the directory entry in
//! which it was created. Each other hard link has an *alias*: a dentry that refers to the first
//! one. All these objects are reference-counted, and may be read under a reclamation guard without
//! being counted ([`pando_sync::Counted`]).
//!
//! Every create changes the directory's entry counts, its time stamp and its reference count. Once
//! threads contend for these, each of them is split into a copy per CPU. An entry refers to its
//! directory through one of these copies, its *parent reference*. Inodes do not refer to their
//! superblock. They refer to one of its *shards*, each of which has its own run of inode numbers.
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
//! descriptor in a value loads that state. It returns the new value if the operation has committed,
//! and the old one otherwise. It never waits. The load of the state is then its linearization
//! point.
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
//! directory's life. If the directory is alive, it publishes the entry, which is the linearization
//! point of the create. If a removal is in progress, it aborts the removal and publishes. If the
//! directory has been removed, or its removal commits before it could be aborted, the create takes
//! its entry out again and fails with ENOENT.
//!
//! **rmdir** stores an operation in the directory's life, fences, and scans for entries. If it
//! finds one, it aborts and fails with ENOTEMPTY. If that entry is pending, it first publishes the
//! entry on behalf of its creator. So the directory really has an entry when rmdir fails. If the
//! table is empty, it commits. At this instant the directory is removed and its name is unbound.
//!
//! **rename** changes all of these words by one operation: both directory entries, the place of the
//! dentry that moves, and the place of a dentry that is replaced. If a directory is replaced, its
//! life is among them, and its entries are scanned as in rmdir. The commit is the instant of the
//! rename (P3).
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
//! **open** counts a reference on the dentry. When many threads open one file at the same time, its
//! dentry gets per-CPU reference counts ([`pando_sync::PerCpuRefs`]), and later openers use those.
//! The counts and the dentry refer to each other. The thread that removes the name breaks this
//! cycle under the same lock, and so does the shutdown of the tree after it is closed.
//!
//! **chmod and chown** of a directory: a change of a name checks the directory's permissions while
//! it holds the name lock, and relies on the result until it releases the lock. To revoke
//! permissions, a thread marks the directory, and then takes and releases each stripe of the name
//! locks once: a grace period, like `synchronize_rcu()`. After that, no thread relies on an old
//! check. The thread stores the new permissions, which is the instant. A thread that finds the mark
//! releases its lock and waits ([`pando_sync::Revocable`]).
//!
//! **The path-prefix cache** of a thread has the directories that its walks have passed, with the
//! rename sequence from before the walk. The next walk to a name in such a directory starts there,
//! if the sequence is unchanged and the directory is not removed. At the instant at which the
//! sequence was read, the whole path existed and the caller could search each directory of it: the
//! module `prefixes` has the proof. The cache belongs to its thread, and its references are weak
//! ([`pando_sync::Weak`]).
//!
//! **Path rendering** climbs from place to place. It reads the rename sequence before and after,
//! and starts over if a directory has moved meanwhile. After four tries it blocks moves of
//! directories for one climb.
//!
//! **A seek** to a given position only stores it. A relative seek is a compare-and-swap. A read or
//! write advances the position with a compare-and-swap at its end. If a seek has stored another
//! position meanwhile, the seek wins ([`pando_sync::Position`]).
//!
//! **A tree with a [`Backing`]** is a cache of recent answers: see [`Driver`] and the modules
//! `caches::ask` and `caches::evict`.
//!
//! # Which shared cache lines an operation uses
//!
//! In the table, *name* stands for the bucket and the lock of a name (one lock for all names of a
//! directory until threads contend), and *stripe* for this CPU's stripe of a directory.
//!
//! | operation | lines that another core may need |
//! | --- | --- |
//! | look-up, stat, access, readdir, xgetdents, d_path | none; a relatime stamp when it is due |
//! | readdir_plus | each entry's reference count |
//! | lseek, tell | the handle's position |
//! | open, close | the file's reference count; after contention, this CPU's count of it |
//! | create, symlink, mknod | name, stripe |
//! | mkdir | name, stripe, the new directory |
//! | rmdir | name, stripe, the removed directory, one of 512 counters that end weak references |
//! | link, unlink | name, stripe, link count and ctime, reference count of the first dentry |
//! | rename of a file | both names, both stripes, the file's place and ctime |
//! | rename over a name, exchange | the same of the other file; what unlink or rmdir of it needs |
//! | rename of a directory | as of a file, the rename sequence; across parents the topology lock |
//! | read | the data lock; after contention of readers, this CPU's stripe of it |
//! | write | the data lock, times; all stripes of the lock, if used since the last write |
//! | chmod, chown, utimens, setxattr | those of the inode |
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
//! * Changes of names in one stripe wait for each other, also while a backing acknowledges one of
//!   them. There are 64 stripes per core, 4096 at most.
//! * A chmod or chown that revokes permissions of a directory takes each stripe once. So it waits
//!   for all changes in the namespace that a backing has not acknowledged yet. Changes in that
//!   directory wait for the chmod or chown.
//! * Where several threads change a directory, a change may leave the directory's times as they
//!   are. A new entry is stamped with the clock from just before it becomes visible. If the clock
//!   was set back, new stamps can be older than existing ones for as long as it was set back.
//! * With a backing, the link count of a directory can be wrong. This happens if a mkdir or rmdir
//!   of this tree runs while the backing is asked for the count, and another user of the store
//!   changes the directory too. That user's next change corrects the count.
//! * Freed memory returns to the system a second later, in the course of other calls. A program
//!   that becomes idle calls [`release_free_memory`].
//! * A thread that walks many paths has up to 4096 entries in its path-prefix cache: 768 KiB until
//!   it ends.
//! * No leases, mandatory access control, or quotas by user. Fifos, sockets and device nodes are
//!   names only: opening one is ENXIO.
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

pub use driver::{
    Ack, AclSupport, AttrMask, Backing, Change, ChangeByOthers, Charge, CommitError, Driver, Feed, FileData, NodeAttr,
    Record, RecordMask, Subscriber, Xattr, write_zeros,
};
pub use handles::{
    context::{At, Context},
    file::File,
    read_ahead::{ReadAhead, ReadAheadProgress},
    vfs::{Subscription, Vfs},
    watcher::{Watcher, WatcherOptions},
};
pub use objects::{cache_counts::CacheCounts, dentry::DentryRef, tables::Pruner};
pub use operations::{exports::Exports, handle::FileHandle};
pub use pando_records as records;
pub use pando_sync::release_free_memory;
pub use types::{
    acl::{Acl, AclName, Acls, XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT, is_acl},
    cred::Credentials,
    directory_locks::DirectoryLocks,
    error::{Error, Result},
    file_lock::{HeldLock, LockKind, LockOwner, LockRange, LockWait},
    flags::*,
    layout::Layout,
    name::{NAME_MAX, PATH_MAX, SYMLINKS_MAX, XATTR_NAME_MAX, XATTR_SIZE_MAX},
    options::VfsOptions,
    packed::{Next, Packed},
    stat::*,
    time::*,
    watch_event::{WatchEvent, WatchEvents, WatchId},
};

/// Tests of the examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Tests of the examples in `docs/semantics.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/semantics.md")]
struct Semantics;
