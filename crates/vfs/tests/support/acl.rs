//! ACLs, as the values of extended attributes.
#![allow(dead_code)] // Each test binary uses its part.

pub const ACCESS: &str = "system.posix_acl_access";
pub const DEFAULT: &str = "system.posix_acl_default";

/// An ACL with the permissions of `mode`, and `bits` for the user `uid`. The mask permits all.
pub fn acl(mode: u16, uid: u32, bits: u16) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [
        (0x01_u16, mode >> 6 & 7, none),
        (0x02, bits, uid),
        (0x04, mode >> 3 & 7, none),
        (0x10, 7, none),
        (0x20, mode & 7, none),
    ];
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(bits.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}
