//! What lies apart from what others write.

/// A value on a pair of cache lines of its own: processors fetch lines in pairs, so what different cores write lies further
/// apart than a line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

/// A value that begins on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct OwnLine<T>(pub T);
