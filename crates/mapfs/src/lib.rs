//! A backed driver for tests and measurements: a tree in plain maps behind one lock, obvious and right.
//!
//! To the name space, [`MapFs`] is a tree that is kept elsewhere, as a disk or a database would be: names are asked for
//! when the cache does not know them, changes go through, and what is not used can be evicted. What a real store does at
//! the worst moment, this one does on demand: each kind of call can be made slow ([`Delay`]), and calls can be made to fail
//! ([`Fault`]). All calls are counted by kind.
//!
//! A [`MapHandle`] shares the store. Through it a test looks at what is really there, and changes the tree *underneath*
//! the name space, as another machine would.
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
mod store;
mod trouble;

pub use driver::MapFs;
pub use handle::{MapHandle, MapNode};
pub use trouble::{Call, Delay, Fault, Parked, Wait};

/// How a [`MapFs`] is made.
#[derive(Debug, Clone, Default)]
pub struct MapOptions {
    /// Inodes in the store, the root directory included. No limit by default.
    pub inodes: Option<u64>,
    /// How long calls take. Later ones in the list override earlier ones of the same kind.
    pub delays: Vec<Delay>,
    /// Which calls fail. More can be added while the driver is in use ([`MapHandle::inject`]).
    pub faults: Vec<Fault>,
}
