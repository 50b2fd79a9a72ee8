//! The ioctl of a directory in a mount of pandofs: `crates/fuse/include/pandofs.h`.

/// The size of `struct pandofs_xgetdents`, the argument of [`XGETDENTS`]: a head of
/// [`XGETDENTS_HEAD_BYTES`], and records. The size of an ioctl has 14 bits.
pub const XGETDENTS_BYTES: usize = 16_376;
/// The bytes before the records: the cookie (8), the mask, what follows, the number of bytes, and
/// of records (4 each).
pub const XGETDENTS_HEAD_BYTES: usize = 24;
/// The number of the ioctl. It reads and writes [`XGETDENTS_BYTES`].
pub const XGETDENTS: u32 = 3 << 30 | (XGETDENTS_BYTES as u32) << 16 | 0xb6 << 8 | 1;
