//! An interface to ordered, transactional key-value engines.
//!
//! An [`Engine`] keeps records, each a key and a value, in the order of their keys. It is read
//! through a [`Snapshot`], which shows the records of one instant. It is changed by a
//! [`Transaction`], which is a list: what must hold, and what then changes. A commit does all of it
//! or nothing.
//!
//! The interface fits an engine in this process, and one on other machines: a commit may be refused
//! because another client was faster ([`Outcome::Conflict`]), and its outcome may be unknown
//! ([`Outcome::Unknown`]).
//!
//! Two engines are here. [`Embedded`] keeps the records in one file, with checksums, and survives a
//! crash at any instant. [`Hostile`] wraps another engine and does to its client what an engine on
//! other machines may do.
//!
//! ```
//! use std::sync::Arc;
//!
//! use pando_kv::{Embedded, Engine, MemoryStorage, Outcome, Transaction};
//!
//! let engine = Embedded::create(Arc::new(MemoryStorage::default()))?;
//! let mut create = Transaction::new();
//! create.expect_absent("name");
//! create.put("name", "value");
//! assert_eq!(engine.commit(&create)?, Outcome::Committed);
//! assert_eq!(engine.commit(&create)?, Outcome::Conflict);
//! assert_eq!(engine.snapshot()?.get_one(b"name")?.as_deref(), Some(&b"value"[..]));
//! # Ok::<(), pando_kv::Error>(())
//! ```
#![forbid(unsafe_code)]

mod deltas;
mod embedded;
mod engine;
mod error;
mod hostile;
mod storage;
mod transaction;

pub use deltas::{Delta, Numbers};
pub use embedded::Embedded;
pub use engine::{Capabilities, Engine, Outcome, Snapshot};
pub use error::{Error, Result};
pub use hostile::{Hostile, Hostility};
pub use storage::{FileStorage, MemoryStorage, Storage};
pub use transaction::{Assertion, Change, Transaction};
