//! A JSON object for each entry, on a line of its own. The help describes the format; [`VERSION`]
//! is its number.

use data_encoding::BASE64;
use pando_records::{Attr, Fields, FileKind, Time, XattrValue};

use crate::{
    entry::Entry,
    text::{human::digits, owner::Owners},
};

/// It increases if the meaning of a key changes or a key is removed.
pub const VERSION: u64 = 1;

/// The parts of an entry that are shown besides its name. The entry may have more, for the order.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// The attributes.
    pub long: bool,
    /// The extended attributes.
    pub xattrs: bool,
}

/// The word for a kind.
pub fn kind_word(kind: Option<FileKind>) -> &'static str {
    match kind {
        Some(FileKind::File) => "file",
        Some(FileKind::Directory) => "directory",
        Some(FileKind::Symlink) => "symlink",
        Some(FileKind::Fifo) => "fifo",
        Some(FileKind::Socket) => "socket",
        Some(FileKind::CharDevice) => "char",
        Some(FileKind::BlockDevice) => "block",
        None => "unknown",
    }
}

/// The numbers of the attributes, by name. None if the file system did not report it.
pub fn numbers(attr: &Attr) -> [(&'static str, Option<u64>); 14] {
    let had = |field: Fields, number: u64| attr.have.contains(field).then_some(number);
    [
        ("mode", had(Fields::MODE, attr.mode.into())),
        ("nlink", had(Fields::NLINK, attr.nlink.into())),
        ("uid", had(Fields::UID, attr.uid.into())),
        ("gid", had(Fields::GID, attr.gid.into())),
        ("size", had(Fields::SIZE, attr.size)),
        ("blocks", had(Fields::BLOCKS, attr.blocks)),
        ("blksize", Some(attr.blksize.into())),
        ("dev_major", Some(attr.dev_major.into())),
        ("dev_minor", Some(attr.dev_minor.into())),
        ("rdev_major", Some(attr.rdev_major.into())),
        ("rdev_minor", Some(attr.rdev_minor.into())),
        ("attributes", Some(attr.attributes)),
        ("attributes_mask", Some(attr.attributes_mask)),
        // Last, so that the others have the order of the help.
        ("have", Some(attr.have.bits().into())),
    ]
}

/// The times of the attributes, by name. None if the file system did not report it.
pub fn times(attr: &Attr) -> [(&'static str, Option<Time>); 4] {
    let had = |field: Fields, time: Time| attr.have.contains(field).then_some(time);
    [
        ("atime", had(Fields::ATIME, attr.atime)),
        ("mtime", had(Fields::MTIME, attr.mtime)),
        ("ctime", had(Fields::CTIME, attr.ctime)),
        ("btime", had(Fields::BTIME, attr.btime)),
    ]
}

/// Appends an entry as a line. `path` is its path, and `name` the last part of the path.
pub fn write(entry: &Entry<'_>, path: &[u8], name: &[u8], shown: Shown, owners: &mut Owners, out: &mut Vec<u8>) {
    begin(path, out);
    text("name", name, out);
    key("type", out);
    string(kind_word(entry.kind), out);
    key("ino", out);
    number(Some(entry.attr().map_or(entry.ino, |attr| attr.ino)), out);
    if let Some(target) = entry.target {
        text("target", target, out);
    }
    if let Some(attr) = entry.attr().filter(|_| shown.long) {
        write_attr(attr, owners, out);
    }
    if shown.xattrs && entry.errno.is_none() {
        write_xattrs(entry, out);
    }
    if entry.changed {
        key("changed", out);
        out.extend_from_slice(b"true");
    }
    if let Some(errno) = entry.errno {
        write_error("error", errno, None, out);
    } else if let Some(errno) = entry.target_errno {
        write_error("error", errno, Some("readlink"), out);
    }
    if let Some(errno) = entry.xattr_errno {
        write_error("xattr_error", errno, None, out);
    }
    out.extend_from_slice(b"}\n");
}

/// Appends a line for a directory that could not be opened, or not be read to its end.
pub fn write_failure(path: &[u8], operation: &str, errno: i32, out: &mut Vec<u8>) {
    begin(path, out);
    write_error("error", errno, Some(operation), out);
    out.extend_from_slice(b"}\n");
}

fn begin(path: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"v\":");
    digits(VERSION, out);
    text("path", path, out);
}

fn write_attr(attr: &Attr, owners: &mut Owners, out: &mut Vec<u8>) {
    for (name, value) in numbers(attr) {
        key(name, out);
        number(value, out);
    }
    text_or_null("user", owners.user(attr.uid), out);
    text_or_null("group", owners.group(attr.gid), out);
    for (name, time) in times(attr) {
        key(name, out);
        match time {
            None => out.extend_from_slice(b"null"),
            Some(Time { secs, nanos }) => {
                out.extend_from_slice(b"{\"sec\":");
                out.extend_from_slice(itoa::Buffer::new().format(secs).as_bytes());
                out.extend_from_slice(b",\"nsec\":");
                digits(nanos.into(), out);
                out.push(b'}');
            }
        }
    }
}

fn write_xattrs(entry: &Entry<'_>, out: &mut Vec<u8>) {
    key("xattrs", out);
    out.push(b'[');
    for (index, xattr) in entry.xattrs.clone().enumerate() {
        out.extend_from_slice(if index == 0 { b"{" } else { b",{" });
        first_text("name", xattr.name, out);
        match xattr.value {
            XattrValue::NotRead => {}
            XattrValue::Bytes(value) => text("value", value, out),
            XattrValue::Errno(errno) => write_error("error", errno, None, out),
        }
        out.push(b'}');
    }
    out.push(b']');
}

fn write_error(name: &str, errno: i32, operation: Option<&str>, out: &mut Vec<u8>) {
    key(name, out);
    out.extend_from_slice(b"{\"errno\":");
    out.extend_from_slice(itoa::Buffer::new().format(errno).as_bytes());
    key("message", out);
    string(&crate::output::failed::message(errno), out);
    if let Some(operation) = operation {
        key("operation", out);
        string(operation, out);
    }
    out.push(b'}');
}

fn key(name: &str, out: &mut Vec<u8>) {
    out.push(b',');
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Writes bytes under a key. If they are not UTF-8, they are written as base64 under another key.
fn text(name: &str, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b',');
    first_text(name, bytes, out);
}

fn text_or_null(name: &str, bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    match bytes {
        Some(bytes) => text(name, bytes, out),
        None => {
            key(name, out);
            out.extend_from_slice(b"null");
        }
    }
}

fn first_text(name: &str, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            out.extend_from_slice(b"\":");
            string(text, out);
        }
        Err(_) => {
            out.extend_from_slice(b"_base64\":");
            string(&BASE64.encode(bytes), out);
        }
    }
}

fn number(number: Option<u64>, out: &mut Vec<u8>) {
    match number {
        Some(number) => digits(number, out),
        None => out.extend_from_slice(b"null"),
    }
}

/// Writes a string of JSON (RFC 8259). Control characters, quotes and backslashes are escaped. So
/// are U+007F to U+009F, which JSON allows but a terminal would obey.
fn string(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let escape = |byte: u8, out: &mut Vec<u8>| {
        out.extend_from_slice(b"\\u00");
        out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    };
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 | 0x7f => escape(byte, out),
            // The second byte of a control character in UTF-8, after 0xc2.
            0x80..0xa0 if out.last() == Some(&0xc2) => {
                out.pop();
                escape(byte, out);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::entry::{EntryXattrs, tests::example};

    fn parsed(entry: &Entry<'_>, path: &[u8], name: &[u8]) -> Value {
        let mut out = Vec::new();
        write(entry, path, name, Shown { long: true, xattrs: true }, &mut Owners::new(), &mut out);
        assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 1, "one line");
        let line = std::str::from_utf8(&out).unwrap().trim_end_matches('\n');
        assert!(!line.contains(char::is_control), "{line:?}");
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn every_field_is_present_and_exact() {
        let entry =
            Entry { xattrs: EntryXattrs::Kept(b"\x06user.a\x01\x021\0\x06user.b\x01\x01\xff"), ..example(b"n") };
        let value = parsed(&entry, b"dir/n", b"n");
        assert_eq!(value["v"], 1);
        assert_eq!((&value["path"], &value["name"]), (&"dir/n".into(), &"n".into()));
        assert_eq!(value["ino"], u64::MAX);
        assert_eq!(value["size"], 1_u64 << 63);
        assert_eq!(value["mtime"]["sec"], i64::MAX);
        assert_eq!(value["mtime"]["nsec"], 999_999_999);
        assert_eq!(value["atime"]["sec"], i64::MIN);
        assert_eq!(value["group"], Value::Null);
        assert_eq!(value["xattrs"][0]["value"], "1\0");
        assert_eq!(value["xattrs"][1]["value_base64"], "/w==");
        assert_eq!(value["xattr_error"]["errno"], 7);
        assert_eq!(value["changed"], true);
    }

    #[test]
    fn missing_values_are_null() {
        let mut entry = example(b"n");
        entry.attr.as_mut().unwrap().to_mut().have = Fields::BASIC - Fields::SIZE;
        let value = parsed(&entry, b"n", b"n");
        assert_eq!((&value["btime"], &value["size"]), (&Value::Null, &Value::Null));
        assert_eq!(value["nlink"], 2);
    }

    #[test]
    fn any_bytes_are_read_back() {
        let all: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
        let value = parsed(&example(b"x"), &all, "\"\\\n\x01\x7f\u{80}\u{9b}\u{9f}\u{a0}\u{fc}".as_bytes());
        assert_eq!(BASE64.decode(value["path_base64"].as_str().unwrap().as_bytes()).unwrap(), all);
        assert_eq!(value["path"], Value::Null);
        assert_eq!(value["name"], "\"\\\n\x01\x7f\u{80}\u{9b}\u{9f}\u{a0}\u{fc}");
    }
}
