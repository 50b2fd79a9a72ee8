//! The objects of a tree: superblock, inode, dentry, directory. They hold data and its invariants.

pub(crate) mod by_number;
pub(crate) mod dentry;
pub(crate) mod directory;
pub(crate) mod file_state;
pub(crate) mod inode;
pub(crate) mod links;
pub(crate) mod superblock;
pub(crate) mod times;
pub(crate) mod xattr_map;
