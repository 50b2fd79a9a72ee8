//! What is kept so that it need not be found again: inodes by number, absent names, remembered prefixes of paths.

pub(crate) mod backed;
pub(crate) mod evict;
pub(crate) mod icache;
pub(crate) mod load;
pub(crate) mod nodes;
pub(crate) mod prefixes;
