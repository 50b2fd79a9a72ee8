//! Values on cache lines of their own.

/// A value on an aligned pair of cache lines. CPUs prefetch lines in pairs, so values that
/// different cores write must be two lines apart.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

/// A value that begins on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct OwnLine<T>(pub T);
