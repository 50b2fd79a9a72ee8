//! Something that lies in memory: what instruments name an address by.

/// Something that lies in memory, for naming what an address belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Type and field, as in `Inode.times`.
    pub name: &'static str,
    /// Where it begins.
    pub address: usize,
    /// How long it is.
    pub bytes: usize,
}

impl Part {
    /// Where `value` lies.
    pub(crate) fn of<T>(name: &'static str, value: &T) -> Self {
        Self { name, address: std::ptr::from_ref(value).addr(), bytes: size_of::<T>() }
    }
}
