//! The records of a PAX header: what the header itself cannot hold.

use std::io;

use nix::unistd::{Group, User};
use pando_vfs::{Acl, AclName, Timestamp, XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT};
use rustix::io::Errno;

/// The PAX record of an extended attribute is this and its name, as star and GNU tar have it.
pub(super) const XATTR_KEY: &str = "SCHILY.xattr.";

/// The PAX records of ACLs, as text, and the extended attributes that Linux shows them as. star and
/// GNU tar have them.
pub(super) const ACL_KEYS: [(&str, &str); 2] =
    [("SCHILY.acl.access", XATTR_ACL_ACCESS), ("SCHILY.acl.default", XATTR_ACL_DEFAULT)];

/// The ACL in the text of a PAX record. Names are those of this machine.
pub(super) fn parse_acl(text: &[u8]) -> io::Result<Option<Acl>> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    let shown = String::from_utf8_lossy(text);
    let id_of = |name: AclName<'_>| {
        let (kind, name, id) = match name {
            AclName::User(name) => ("user", name, User::from_name(name)?.map(|user| user.uid.as_raw())),
            AclName::Group(name) => ("group", name, Group::from_name(name)?.map(|group| group.gid.as_raw())),
        };
        let unknown = || {
            invalid(format!(
                "an ACL of the tar stream names the {kind} {name}, which this machine lacks; without privileges no ACLs are copied"
            ))
        };
        id.ok_or_else(unknown)
    };
    Acl::from_text(&shown, id_of).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::INVAL) => invalid(format!("the tar stream has a malformed ACL: {shown:?}")),
        _ => error,
    })
}

/// The PAX record of an extended attribute: its key and its value. None for a name that is no text.
pub(super) fn record_of(name: &[u8], value: &[u8]) -> Option<(String, Vec<u8>)> {
    let acl = ACL_KEYS.iter().find(|(_, acl)| acl.as_bytes() == name);
    if let Some((key, _)) = acl
        && let Ok(Some(acl)) = Acl::from_xattr(value)
    {
        return Some(((*key).to_owned(), acl.to_string().into_bytes()));
    }
    let name = std::str::from_utf8(name).ok()?.replace('%', "%25").replace('=', "%3D");
    Some((format!("{XATTR_KEY}{name}"), value.to_vec()))
}

/// The name of an extended attribute in the key of a PAX record, where `=` and `%` are encoded.
pub(super) fn decode_name(mut key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(key.len());
    loop {
        let (byte, rest) = match key {
            [b'%', b'3', b'D', rest @ ..] => (b'=', rest),
            [b'%', b'2', b'5', rest @ ..] => (b'%', rest),
            [byte, rest @ ..] => (*byte, rest),
            [] => return name,
        };
        name.push(byte);
        key = rest;
    }
}

/// A PAX time: seconds with a fraction, perhaps negative.
pub(super) fn parse_time(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: i64 = digits.parse().ok()?;
    let secs: i64 = whole.parse().ok()?;
    if !text.starts_with('-') || nanos == 0 {
        return Some(Timestamp::from_parts(secs, nanos as u32));
    }
    // -1.25 is 0.75 seconds after -2.
    Some(Timestamp::from_parts(secs.checked_sub(1)?, (1_000_000_000 - nanos) as u32))
}

/// A PAX time, if the header cannot hold it: it has whole seconds since 1970.
pub(super) fn pax_time(time: Timestamp) -> Option<String> {
    let (secs, nanos) = (time.secs(), time.nanos());
    match (secs, nanos) {
        (0.., 0) => None,
        (0.., _) => Some(format!("{secs}.{nanos:09}")),
        (_, 0) => Some(secs.to_string()),
        // 0.75 seconds after -2 is -1.25.
        _ => Some(format!("-{}.{:09}", -(secs + 1), 1_000_000_000 - nanos)),
    }
}
