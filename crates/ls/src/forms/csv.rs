//! Comma-separated values (RFC 4180). The columns are the keys of the JSON form. Bytes are written
//! unchanged.

use pando_records::XattrValue;

use crate::{
    entry::Entry,
    forms::json::{Shown, kind_word, numbers, times},
    text::{human::digits, owner::Owners},
};

/// The names of the columns, in the order of [`write`](fn@write).
const NAMES_HEADER: &str = "path,name,type,ino,error,operation";
const LONG_HEADER: &str = "target,mode,nlink,uid,gid,size,blocks,blksize,dev_major,dev_minor,rdev_major,rdev_minor,\
    attributes,attributes_mask,have,user,group,atime_sec,atime_nsec,mtime_sec,mtime_nsec,ctime_sec,ctime_nsec,\
    btime_sec,btime_nsec";
const XATTR_HEADER: &str = "xattrs,xattr_error,changed";

/// Appends the first line.
pub fn write_header(columns: Shown, out: &mut Vec<u8>) {
    out.extend_from_slice(NAMES_HEADER.as_bytes());
    for (wanted, header) in [(columns.long, LONG_HEADER), (columns.xattrs, XATTR_HEADER)] {
        if wanted {
            out.push(b',');
            out.extend_from_slice(header.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends an entry as a line.
pub fn write(entry: &Entry<'_>, path: &[u8], name: &[u8], columns: Shown, owners: &mut Owners, out: &mut Vec<u8>) {
    field(path, out);
    out.push(b',');
    field(name, out);
    out.push(b',');
    out.extend_from_slice(kind_word(entry.kind).as_bytes());
    out.push(b',');
    digits(entry.attr().map_or(entry.ino, |attr| attr.ino), out);
    out.push(b',');
    errno(entry.errno.or(entry.target_errno), out);
    out.push(b',');
    if entry.errno.is_none() && entry.target_errno.is_some() {
        out.extend_from_slice(b"readlink");
    }
    if columns.long {
        write_attr(entry, owners, out);
    }
    if columns.xattrs {
        out.push(b',');
        write_xattrs(entry, out);
        out.push(b',');
        errno(entry.xattr_failure(), out);
        out.extend_from_slice(if entry.changed { b",true" } else { b",false" });
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a line for a directory that could not be opened, or not be read to its end.
pub fn write_failure(path: &[u8], operation: &str, number: i32, columns: Shown, out: &mut Vec<u8>) {
    field(path, out);
    out.extend_from_slice(b",,,,");
    errno(Some(number), out);
    out.push(b',');
    out.extend_from_slice(operation.as_bytes());
    for (wanted, header) in [(columns.long, LONG_HEADER), (columns.xattrs, XATTR_HEADER)] {
        let commas = if wanted { 1 + header.matches(',').count() } else { 0 };
        out.resize(out.len() + commas, b',');
    }
    out.extend_from_slice(b"\r\n");
}

fn write_attr(entry: &Entry<'_>, owners: &mut Owners, out: &mut Vec<u8>) {
    out.push(b',');
    field(entry.target.unwrap_or_default(), out);
    let Some(attr) = entry.attr() else {
        out.resize(out.len() + LONG_HEADER.matches(',').count(), b',');
        return;
    };
    for (_, number) in numbers(attr) {
        out.push(b',');
        if let Some(number) = number {
            digits(number, out);
        }
    }
    out.push(b',');
    field(owners.user(attr.uid).unwrap_or_default(), out);
    out.push(b',');
    field(owners.group(attr.gid).unwrap_or_default(), out);
    for (_, time) in times(attr) {
        out.push(b',');
        if let Some(time) = time {
            out.extend_from_slice(itoa::Buffer::new().format(time.secs).as_bytes());
            out.push(b',');
            digits(time.nanos.into(), out);
        } else {
            out.push(b',');
        }
    }
}

fn write_xattrs(entry: &Entry<'_>, out: &mut Vec<u8>) {
    for (index, xattr) in entry.xattrs.clone().enumerate() {
        if index > 0 {
            out.push(b'&');
        }
        percent(xattr.name, out);
        if let XattrValue::Bytes(value) = xattr.value {
            out.push(b'=');
            percent(value, out);
        }
    }
}

/// Writes all characters except letters, digits and `-._~` as %XX (RFC 3986, unreserved
/// characters).
fn percent(bytes: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

fn errno(errno: Option<i32>, out: &mut Vec<u8>) {
    if let Some(errno) = errno {
        out.extend_from_slice(itoa::Buffer::new().format(errno).as_bytes());
    }
}

/// Writes a field, in quotes if needed.
fn field(bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.iter().any(|byte| b",\"\r\n".contains(byte)) {
        out.extend_from_slice(bytes);
        return;
    }
    out.push(b'"');
    for &byte in bytes {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{EntryXattrs, tests::example};

    /// The fields of one record, by the rules of RFC 4180.
    fn fields(line: &[u8]) -> Vec<Vec<u8>> {
        let (mut fields, mut quoted) = (vec![Vec::new()], false);
        let mut bytes = line.strip_suffix(b"\r\n").unwrap().iter().peekable();
        while let Some(&byte) = bytes.next() {
            match byte {
                b'"' if quoted && bytes.peek() == Some(&&b'"') => {
                    fields.last_mut().unwrap().push(*bytes.next().unwrap())
                }
                b'"' => quoted = !quoted,
                b',' if !quoted => fields.push(Vec::new()),
                _ => fields.last_mut().unwrap().push(byte),
            }
        }
        fields
    }

    #[test]
    fn each_line_has_all_columns() {
        for (long, xattrs) in [(false, false), (true, false), (false, true), (true, true)] {
            let columns = Shown { long, xattrs };
            let (mut header, mut owners) = (Vec::new(), Owners::new());
            write_header(columns, &mut header);
            let width = fields(&header).len();
            let bare = Entry { attr: None, errno: Some(2), target: None, ..example(b"x") };
            for entry in [example(b"x"), bare] {
                let mut line = Vec::new();
                write(&entry, b"a,b/x", b"x", columns, &mut owners, &mut line);
                assert_eq!(fields(&line).len(), width, "{columns:?}");
            }
            let mut line = Vec::new();
            write_failure(b"a", "open", 13, columns, &mut line);
            assert_eq!(fields(&line).len(), width, "{columns:?}");
        }
    }

    #[test]
    fn any_bytes_are_read_back() {
        let columns = Shown { long: false, xattrs: true };
        let entry = Entry { xattrs: EntryXattrs::Kept(b"\x06user.a\x01\x03=&\xff\x06user.b\x00"), ..example(b"x") };
        let mut line = Vec::new();
        write(&entry, b"a\"b,\r\n\xff/x", b"x", columns, &mut Owners::new(), &mut line);
        let fields = fields(&line);
        assert_eq!(fields[0], b"a\"b,\r\n\xff/x");
        assert_eq!(fields[6], b"user.a=%3D%26%FF&user.b");
    }
}
