//! A tree that stays: in a directory of the host, safe against a crash at any instant.
//!
//! Attributes, names, extended attributes and the contents of small files are records of a
//! key-value engine ([`pando_kv`]). The contents of large files are files beside it. Operations
//! change records in memory; every few seconds, and at each fsync, all changes are committed as
//! one transaction. So a crash leaves the operations before some instant, and everything that an
//! fsync has waited for.
//!
//! ```
//! use pando_kvfs::{KvFs, StoreOptions};
//! use pando_vfs::{At, Context, Credentials, Vfs, Walk};
//!
//! let dir = tempfile::tempdir()?;
//! for made_now in [true, false] {
//!     let store = KvFs::open(dir.path(), StoreOptions::new())?;
//!     let closed = store.closed();
//!     let vfs = Vfs::new(store)?;
//!     let root = Context::new(&vfs, Credentials::root());
//!     assert_eq!(vfs.mkdir(&root, At::Cwd, "/d", 0o755).is_ok(), made_now);
//!     drop((root, vfs));
//!     closed.wait()?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod change;
mod check;
mod committer;
mod data;
mod driver;
mod files;
mod key;
mod numbers;
mod offline;
mod open;
mod record;
mod repair;
mod small;
mod space;
mod staged;
mod tree;

pub use check::{Report, check_parts};
pub use driver::{Closed, KvFs};
pub use files::{ContentsFile, Files, HostFiles};
pub use offline::{Info, check, compact, info, repair};
pub use open::{OpenError, Recovered, StoreOptions};
pub use repair::repair_parts;
