//! The file-system tree of pandofs.
#![forbid(unsafe_code)]

mod attr;
mod backed;
mod context;
mod create;
mod cred;
mod dentry;
mod directory;
mod dpath;
mod driver;
mod error;
mod file;
pub mod fs;
mod inode;
mod locks;
mod name;
mod namei;
mod nodes;
mod open;
mod readdir;
mod remove;
mod rename;
mod superblock;
mod types;
mod vfs;
mod xattr;

pub use context::{At, Context};
pub use cred::Credentials;
pub use dentry::DentryRef;
pub use driver::{Backing, Driver, FileData, NodeAttr, Scanned, Xattr};
pub use error::{Error, Result};
pub use file::File;
pub use name::{NAME_MAX, PATH_MAX, SYMLINKS_MAX};
pub use types::*;
pub use vfs::Vfs;
pub use xattr::{XATTR_NAME_MAX, XATTR_SIZE_MAX};
