//! The caches: inodes by number, negative dentries, path prefixes. Loads, refreshes, write-back and
//! eviction for trees with a backing.

pub(crate) mod ask;
pub(crate) mod binding;
pub(crate) mod commit;
pub(crate) mod evict;
pub(crate) mod icache;
pub(crate) mod links;
pub(crate) mod load;
pub(crate) mod nodes;
pub(crate) mod prefixes;
pub(crate) mod read_ahead;
pub(crate) mod refresh;
pub(crate) mod reported;
pub(crate) mod write_back;
pub(crate) mod xattrs;
