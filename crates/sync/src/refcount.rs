//! Reference counts, and objects that have one.

pub(crate) mod counted;
pub(crate) mod lock_ref;
pub(crate) mod percpu_ref;
pub(crate) mod versioned_pair;
pub(crate) mod weak;
