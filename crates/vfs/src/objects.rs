//! The objects of a tree: superblock, inode, dentry, directory. They hold data and its invariants.
//! Operations, on the floor above, change them.

pub(crate) mod backed_dir;
pub(crate) mod by_number;
pub(crate) mod cache_counts;
pub(crate) mod dentry;
pub(crate) mod directory;
pub(crate) mod file_locks;
pub(crate) mod file_state;
pub(crate) mod foreground;
pub(crate) mod inode;
pub(crate) mod links;
pub(crate) mod lockable;
pub(crate) mod notify;
pub(crate) mod observers;
pub(crate) mod path;
pub(crate) mod permissions;
pub(crate) mod stat;
pub(crate) mod statahead;
pub(crate) mod stored_blocks;
pub(crate) mod superblock;
pub(crate) mod tables;
pub(crate) mod times;
pub(crate) mod tracing;
pub(crate) mod watches;
pub(crate) mod xattr_map;
