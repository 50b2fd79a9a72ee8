//! Bulk metadata of any directory of the host.
//!
//! A [`Scan`] reads one directory and returns batches of records: names, attributes, extended
//! attributes and their values, as a [`Mask`] asks. A [`Walk`] does so for whole trees. [`Warm`]
//! reads metadata ahead. The records are those of [`pando_records`].
//!
//! # Floors
//!
//! Imports point down. From below: `limits`, `error` and `options`; `kernel` (system calls);
//! `memory` (pages within a budget); `entry` (the calls for one entry); `concurrency` (how many
//! calls at once); `workers` (threads, and jobs for them); `directory` ([`Scan`]); `walk`
//! ([`Walk`]); `warm` ([`Warm`]).
//!
//! # Example
//!
//! ```
//! use pando_scan::{Mask, Options, Scan, XattrValue};
//!
//! let options = Options::new().mask(Mask::level(3).unwrap());
//! let mut scan = Scan::open("/etc", &options)?;
//! while let Some(batch) = scan.next_batch()? {
//!     for record in batch.iter() {
//!         if let Some(errno) = record.errno() {
//!             let error = std::io::Error::from_raw_os_error(errno);
//!             eprintln!("{}: {error}", record.name().escape_ascii());
//!         }
//!         for xattr in record.xattrs() {
//!             if let XattrValue::Bytes(value) = xattr.value {
//!                 println!("{} {}", xattr.name.escape_ascii(), value.len());
//!             }
//!         }
//!     }
//! }
//! # Ok::<(), pando_scan::Error>(())
//! ```
#![deny(unsafe_code)]

mod directory;
mod entry;
mod error;
mod kernel;
mod limits;
mod memory;
mod options;
mod walk;
mod warm;
mod workers;

pub use directory::Scan;
pub use error::{Error, Result};
pub use kernel::calls::attributes;
pub use limits::{MAX_FIXED_WORKERS, MAX_WORKERS, MIN_BUDGET_BYTES};
pub use options::{Options, Order, Workers};
pub use pando_records::{Attr, Batch, BulkXattr, Fields, FileKind, Mask, Record, Time, XattrValue, Xattrs};
pub use walk::{Cause, Child, Children, Descent, Directory, Event, Failure, Walk, WalkOptions};
pub use warm::{Warm, WarmEvent, WarmFailure, WarmOptions, WarmProgress};
