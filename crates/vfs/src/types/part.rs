//! A part of an object in memory, for introspection.

/// A part of an object in memory. Tools use it to name the field at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Type and field, such as `Inode.times`.
    pub name: &'static str,
    /// The address of its first byte.
    pub address: usize,
    /// Its size.
    pub bytes: usize,
}

impl Part {
    /// The part that `value` occupies.
    pub(crate) fn of<T>(name: &'static str, value: &T) -> Self {
        Self { name, address: std::ptr::from_ref(value).addr(), bytes: size_of::<T>() }
    }
}
