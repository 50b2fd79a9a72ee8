//! A backed driver for tests and measurements: a tree in plain maps behind one lock, simple enough
//! to be obviously correct.
//!
//! To the namespace, [`MapFs`] is a tree that is kept elsewhere, as on a disk or in a database.
//! Names are loaded when the cache does not know them, changes are committed at once, and unused
//! inodes can be evicted. It also serves as a latency and fault injector: each kind of call can be
//! delayed ([`Delay`]), and calls can be made to fail ([`Fault`]). All calls are counted by kind.
//!
//! A [`MapHandle`] shares the store. A test uses it to read the real state, and to change the tree
//! behind the namespace, as another machine would.
//!
//! ```
//! use pando_mapfs::{Call, MapFs, MapOptions};
//! use pando_vfs::{At, Context, Credentials, Vfs, Walk};
//!
//! let driver = MapFs::new(MapOptions::default());
//! let store = driver.handle();
//! let vfs = Vfs::new(driver)?;
//! let root = Context::new(&vfs, Credentials::root());
//! vfs.mkdir(&root, At::Cwd, "/d", 0o755)?;
//! vfs.evict(usize::MAX)?;
//! let before = store.calls(Call::Lookup);
//! assert!(vfs.stat(&root, At::Cwd, "/d", Walk::empty()).is_ok());
//! assert!(vfs.stat(&root, At::Cwd, "/d", Walk::empty()).is_ok());
//! assert_eq!(store.calls(Call::Lookup), before + 1);
//! # Ok::<(), pando_vfs::Error>(())
//! ```
#![forbid(unsafe_code)]

mod bytes;
mod data;
mod driver;
mod handle;
mod injector;
mod store;

pub use driver::MapFs;
pub use handle::{MapHandle, MapNode};
pub use injector::{Call, Delay, Fault, Message, Parked, Wait};

/// The configuration of a [`MapFs`].
#[derive(Debug, Clone, Default)]
pub struct MapOptions {
    /// The maximal number of inodes in the store, the root directory included. No limit by default.
    pub inodes: Option<u64>,
    /// Whether a scan adds attributes and extended attributes to the names, as in a store that has
    /// them side by side. Otherwise they take calls of their own.
    pub scans_add_attributes: bool,
    /// Whether changes through a handle are reported for each name and each inode. Otherwise they
    /// are reported for directories.
    pub exact_reports: bool,
    /// The delays of calls. A later one in the list overrides an earlier one of the same kind.
    pub delays: Vec<Delay>,
    /// The calls that fail. More can be added while the driver is in use ([`MapHandle::inject`]).
    pub faults: Vec<Fault>,
}
