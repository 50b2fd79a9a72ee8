//! Plain values: errors, names, attributes, flags, credentials. They know nothing of a tree.

pub(crate) mod acl;
pub(crate) mod cred;
pub(crate) mod directory_locks;
pub(crate) mod error;
pub(crate) mod file_lock;
pub(crate) mod flags;
pub(crate) mod layout;
pub(crate) mod name;
pub(crate) mod options;
pub(crate) mod packed;
pub(crate) mod part;
pub(crate) mod stat;
pub(crate) mod time;
pub(crate) mod trace_op;
pub(crate) mod watch_event;
pub(crate) mod xattr_class;
pub(crate) mod xattr_map;

pub use directory_locks::DirectoryLocks;
pub use flags::*;
pub use packed::{Next, Packed};
pub use stat::*;
pub use time::*;
