//! The file-system tree of pandofs.
#![forbid(unsafe_code)]

mod driver;
mod error;
mod types;

pub use driver::{Caps, Driver, FileData};
pub use error::{Error, Result};
pub use types::*;
