//! What is kept so that it need not be found again: inodes by number, absent names, remembered prefixes of paths.

pub(crate) mod ask;
pub(crate) mod binding;
pub(crate) mod evict;
pub(crate) mod icache;
pub(crate) mod links;
pub(crate) mod load;
pub(crate) mod nodes;
pub(crate) mod prefixes;
pub(crate) mod refresh;
pub(crate) mod write_back;
pub(crate) mod xattrs;
