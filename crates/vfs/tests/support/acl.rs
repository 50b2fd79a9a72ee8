//! ACLs, as the values of extended attributes, for the tests of several crates (`#[path]`).
#![allow(dead_code)] // Each test binary uses its part.

pub const ACCESS: &str = "system.posix_acl_access";
pub const DEFAULT: &str = "system.posix_acl_default";

/// Tags of the entries, as in the kernel's `posix_acl_xattr.h`.
pub const USER_OBJ: u16 = 0x01;
pub const USER: u16 = 0x02;
pub const GROUP_OBJ: u16 = 0x04;
pub const GROUP: u16 = 0x08;
pub const MASK: u16 = 0x10;
pub const OTHER: u16 = 0x20;

/// Version 2, then tag, permissions, user or group of each entry. The last one counts only where
/// the tag names one.
pub fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(if matches!(*tag, USER | GROUP) { *id } else { u32::MAX }.to_le_bytes());
    }
    value
}

/// An ACL that names a user, with the permissions of the owner, that user, the group, the mask of
/// both, and others.
pub fn access_list(uid: u32, [owner, named, group, mask, others]: [u16; 5]) -> Vec<u8> {
    value(&[(USER_OBJ, owner, 0), (USER, named, uid), (GROUP_OBJ, group, 0), (MASK, mask, 0), (OTHER, others, 0)])
}

/// An ACL with the permissions of `mode`, and `bits` for the user `uid`. The mask permits all.
pub fn acl(mode: u16, uid: u32, bits: u16) -> Vec<u8> {
    access_list(uid, [mode >> 6 & 7, bits, mode >> 3 & 7, 7, mode & 7])
}
