//! The two calls for a directory on a mount of pandofs, as `crates/fuse/include/pandofs.h` has
//! them: an ioctl that reads many entries, and an extended attribute that makes many.

/// The size of `struct pandofs_xgetdents`, the argument of [`XGETDENTS`]: a head of
/// [`XGETDENTS_HEAD_BYTES`], and records. The size of an ioctl has 14 bits.
pub const XGETDENTS_BYTES: usize = 16_376;
/// The bytes before the records: the cookie (8), the mask, what follows, the number of bytes, and
/// of records (4 each).
pub const XGETDENTS_HEAD_BYTES: usize = 24;
/// The number of the ioctl. It reads and writes [`XGETDENTS_BYTES`].
pub const XGETDENTS: u32 = 3 << 30 | (XGETDENTS_BYTES as u32) << 16 | 0xb6 << 8 | 1;

/// The name of the extended attribute for callers without capabilities. Setting it to records makes
/// their entries. Its value is the number of entries that the last such call of this thread has
/// made, in decimal, if that call failed and its value was not read yet; otherwise 0. A directory
/// without it takes no records.
pub const XCREATE: &str = "pandofs.xcreate";
/// Its name for root. A server that passes extended attributes on for others, as root, passes on
/// `trusted.` only for their root.
pub const XCREATE_ROOT: &str = "trusted.pandofs.xcreate";
/// The most bytes of records in one call.
pub const XCREATE_BYTES: usize = crate::XATTR_SIZE_MAX;
