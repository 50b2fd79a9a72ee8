//! Changes of records in a buffer, in place.

use super::{ATTR_BYTES, HEAD_BYTES, PackedRecord, attr_bytes};
use crate::Attr;

const INO_AT: usize = 8;
const XATTR_ERRNO_AT: usize = 28;

/// Changes inode numbers and attributes in place, for a reader to whom the inodes have other
/// numbers. `each` gets the number and the attributes of each record.
pub fn update_records(mut bytes: &mut [u8], mut each: impl FnMut(&mut u64, Option<&mut Attr>)) {
    while let Some(record) = PackedRecord::parse(bytes) {
        let (length, mut ino, mut attr) = (record.length, record.ino, record.attr());
        each(&mut ino, attr.as_mut());
        bytes[INO_AT..INO_AT + size_of::<u64>()].copy_from_slice(&ino.to_ne_bytes());
        if let Some(attr) = attr {
            bytes[HEAD_BYTES..HEAD_BYTES + ATTR_BYTES].copy_from_slice(&attr_bytes(&attr));
        }
        bytes = &mut bytes[length..];
    }
}

/// Says in the first record why it has no extended attributes. Returns its length and its cookie;
/// none if there is no record.
pub fn refuse_xattrs(bytes: &mut [u8], errno: i32) -> Option<(usize, u64)> {
    let PackedRecord { length, cookie, .. } = PackedRecord::parse(bytes)?;
    bytes[XATTR_ERRNO_AT..XATTR_ERRNO_AT + size_of::<i32>()].copy_from_slice(&errno.to_ne_bytes());
    Some((length, cookie))
}
