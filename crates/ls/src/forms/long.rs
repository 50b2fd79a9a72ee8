//! The long format: mode, links, owner, group, size, time, name. It is formatted by hand into one
//! buffer, without an allocation per entry.

use pando_records::{Attr, FileKind, XattrValue};

use crate::{
    entry::Entry,
    plan::{Form, Plan},
    text::{
        columns::Layout,
        human::{right, spaces, width},
        owner::Owners,
        scale::Scale,
        time::Clock,
    },
};

/// Values that a listing needs repeatedly.
pub struct LookUps {
    /// Names of owners and groups.
    pub owners: Owners,
    /// Texts of times.
    pub clock: Clock,
    /// The columns before the size that were written last.
    pub written: Written,
}

/// The columns before the size, from the mode to the group, as written last.
#[derive(Debug, Default)]
pub struct Written {
    of: Option<Shared>,
    text: Vec<u8>,
}

/// The values that determine the columns before the size. Neighbouring entries mostly have the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shared {
    kind: Option<FileKind>,
    mode: u32,
    /// Whether there is a column for marks.
    mark: Option<u8>,
    nlink: u32,
    uid: u32,
    gid: u32,
    /// The widths of the columns: links, user, group.
    widths: [usize; 3],
}

/// The widths of the columns. They only grow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Widths {
    ino: usize,
    blocks: usize,
    nlink: usize,
    user: usize,
    group: usize,
    context: usize,
    size: usize,
    major: usize,
    minor: usize,
    /// Whether a column for the marks `+` and `.` is needed.
    marks: bool,
    /// The owner and group whose names were measured last.
    owners: Option<(u32, u32)>,
    /// Whether a name is in quotes, so that the others are indented.
    pub quotes: bool,
}

/// The first character of the mode, by kind.
fn letter(kind: Option<FileKind>) -> u8 {
    match kind {
        Some(FileKind::File) => b'-',
        Some(FileKind::Directory) => b'd',
        Some(FileKind::Symlink) => b'l',
        Some(FileKind::Fifo) => b'p',
        Some(FileKind::CharDevice) => b'c',
        Some(FileKind::BlockDevice) => b'b',
        Some(FileKind::Socket) => b's',
        None => b'?',
    }
}

/// The mode as ten characters.
fn mode_text(kind: Option<FileKind>, mode: u32) -> [u8; 10] {
    let mut text = *b"?rwxrwxrwx";
    text[0] = letter(kind);
    for (index, byte) in text[1..].iter_mut().enumerate() {
        if mode & (0o400 >> index) == 0 {
            *byte = b'-';
        }
    }
    for (at, bit, with, without) in [(3, 0o4000, b's', b'S'), (6, 0o2000, b's', b'S'), (9, 0o1000, b't', b'T')] {
        if mode & bit != 0 {
            text[at] = if text[at] == b'x' { with } else { without };
        }
    }
    text
}

/// `+` for an access control list, `.` for a security context alone.
#[inline]
fn mark(entry: &Entry<'_>) -> u8 {
    if entry.xattrs.is_empty() { b' ' } else { mark_of(entry) }
}

fn mark_of(entry: &Entry<'_>) -> u8 {
    let mut mark = b' ';
    for xattr in entry.xattrs.clone() {
        match xattr.name {
            b"system.posix_acl_access" | b"system.posix_acl_default" => return b'+',
            CONTEXT => mark = b'.',
            _ => {}
        }
    }
    mark
}

/// The extended attribute that holds the security context.
const CONTEXT: &[u8] = b"security.selinux";

/// The security context up to its first zero byte; a question mark if there is none.
fn context<'a>(entry: &Entry<'a>) -> &'a [u8] {
    let value = entry.xattrs.clone().find(|xattr| xattr.name == CONTEXT).map(|xattr| xattr.value);
    match value {
        Some(XattrValue::Bytes(value)) => value.split(|&byte| byte == 0).next().unwrap_or_default(),
        _ => b"?",
    }
}

fn is_device(kind: Option<FileKind>) -> bool {
    matches!(kind, Some(FileKind::CharDevice | FileKind::BlockDevice))
}

/// The unit of blocks.
const BLOCK_BYTES: u64 = 512;

impl Widths {
    /// Widens the columns that come before the name in every format (`-i`, `-s`, and `-Z` outside
    /// of the long format). Between commas nothing is aligned.
    #[inline]
    pub fn measure_frills(&mut self, entry: &Entry<'_>, plan: &Plan) {
        if plan.form == Form::Columns && plan.screen.layout == Layout::Commas {
            return;
        }
        if plan.context {
            self.context = self.context.max(context(entry).len());
        }
        if plan.inode {
            self.ino = self.ino.max(entry.known_ino().map_or(1, width));
        }
        if plan.blocks
            && let Some(attr) = entry.attr()
        {
            self.blocks = self.blocks.max(plan.block_scale.width(attr.blocks, BLOCK_BYTES));
        }
    }

    /// Widens the columns of the long format for an entry.
    #[inline]
    pub fn measure(&mut self, entry: &Entry<'_>, plan: &Plan, look: &mut LookUps) {
        self.measure_frills(entry, plan);
        self.quotes |= plan.aligns_quotes() && plan.quote.needs_quotes(entry.name);
        let Some(attr) = entry.attr() else { return };
        self.marks |= mark(entry) != b' ';
        self.nlink = self.nlink.max(width(u64::from(attr.nlink)));
        let owners = Some((attr.uid, attr.gid));
        if self.owners != owners {
            self.owners = owners;
            self.measure_owners(attr, plan, look);
        }
        if is_device(entry.kind) {
            self.major = self.major.max(width(u64::from(attr.rdev_major)));
            self.minor = self.minor.max(width(u64::from(attr.rdev_minor)));
            self.size = self.size.max(self.major + 2 + self.minor);
        } else {
            self.size = self.size.max(plan.file_scale.width(attr.size, 1));
        }
    }

    fn measure_owners(&mut self, attr: &Attr, plan: &Plan, look: &mut LookUps) {
        if plan.owner || plan.author {
            let name = if plan.numeric { None } else { look.owners.user(attr.uid) };
            self.user = self.user.max(name.map_or_else(|| width(u64::from(attr.uid)), |name| plan.text_width(name)));
        }
        if plan.group {
            let name = if plan.numeric { None } else { look.owners.group(attr.gid) };
            self.group = self.group.max(name.map_or_else(|| width(u64::from(attr.gid)), |name| plan.text_width(name)));
        }
    }

    /// Appends the numbers that come before the name in every format. Returns their width.
    pub fn write_frills(&self, entry: &Entry<'_>, plan: &Plan, out: &mut Vec<u8>) -> usize {
        let begin = out.len();
        if plan.inode {
            number_or_unknown(entry.known_ino(), self.ino, out);
            out.push(b' ');
        }
        if plan.blocks {
            match entry.attr() {
                Some(attr) => plan.block_scale.right(attr.blocks, BLOCK_BYTES, self.blocks, out),
                None => number_or_unknown(None, self.blocks, out),
            }
            out.push(b' ');
        }
        if plan.context && plan.form != Form::Long {
            let text = context(entry);
            spaces(self.context.saturating_sub(text.len()), out);
            out.extend_from_slice(text);
            out.push(b' ');
        }
        out.len() - begin
    }

    /// Appends an entry in the long format, up to the name. Returns the column of the name as ls
    /// counts it: from after the owners, if they are shown.
    pub fn write(&self, entry: &Entry<'_>, plan: &Plan, look: &mut LookUps, out: &mut Vec<u8>) -> usize {
        let mut begin = out.len();
        if plan.dired {
            out.extend_from_slice(INDENT);
        }
        self.write_frills(entry, plan, out);
        let Some(attr) = entry.attr() else {
            if plan.owner || plan.group || plan.author || plan.context {
                begin = self.write_unknown(entry, plan, look, out);
            } else {
                self.write_unknown(entry, plan, look, out);
            }
            return out.len() - begin;
        };
        let shared = Shared {
            kind: entry.kind,
            mode: attr.mode,
            mark: self.marks.then(|| mark(entry)),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            widths: [self.nlink, self.user, self.group],
        };
        if look.written.of != Some(shared) {
            self.write_shared(shared, plan, look);
        }
        out.extend_from_slice(&look.written.text);
        if plan.context {
            write_context(context(entry), self.context, out);
        }
        if plan.owner || plan.group || plan.author || plan.context {
            begin = out.len();
        }
        self.write_size(entry.kind, attr, plan, out);
        out.push(b' ');
        match entry.time(plan.time) {
            Some(time) => look.clock.write(time, out),
            None => {
                // A format may be empty.
                spaces(look.clock.width().saturating_sub(1), out);
                out.push(b'?');
            }
        }
        out.push(b' ');
        out.len() - begin
    }

    fn write_shared(&self, shared: Shared, plan: &Plan, look: &mut LookUps) {
        look.written.of = Some(shared);
        let (owners, out) = (&mut look.owners, &mut look.written.text);
        let Shared { uid, gid, .. } = shared;
        out.clear();
        out.extend_from_slice(&mode_text(shared.kind, shared.mode));
        out.extend(shared.mark);
        out.push(b' ');
        right(u64::from(shared.nlink), self.nlink, out);
        out.push(b' ');
        if plan.owner {
            let name = if plan.numeric { None } else { owners.user(uid) };
            write_owner(name, uid, self.user, plan, out);
        }
        if plan.group {
            let name = if plan.numeric { None } else { owners.group(gid) };
            write_owner(name, gid, self.group, plan, out);
        }
        if plan.author {
            let name = if plan.numeric { None } else { owners.user(uid) };
            write_owner(name, uid, self.user, plan, out);
        }
    }

    fn write_size(&self, kind: Option<FileKind>, attr: &Attr, plan: &Plan, out: &mut Vec<u8>) {
        if is_device(kind) {
            let blank = self.size.saturating_sub(self.major + 2 + self.minor);
            right(u64::from(attr.rdev_major), self.major + blank, out);
            out.extend_from_slice(b", ");
            right(u64::from(attr.rdev_minor), self.minor, out);
        } else if plan.file_scale == Scale::BYTES {
            right(attr.size, self.size, out);
        } else {
            plan.file_scale.right(attr.size, 1, self.size, out);
        }
    }

    /// Appends question marks for unknown attributes. Returns the column after the owners.
    fn write_unknown(&self, entry: &Entry<'_>, plan: &Plan, look: &mut LookUps, out: &mut Vec<u8>) -> usize {
        out.push(letter(entry.kind));
        out.extend_from_slice(if self.marks { b"??????????" } else { b"?????????" });
        out.push(b' ');
        let unknown = |width: usize, left: bool, out: &mut Vec<u8>| {
            spaces(if left { 0 } else { width.saturating_sub(1) }, out);
            out.push(b'?');
            spaces(if left { width.saturating_sub(1) } else { 0 }, out);
            out.push(b' ');
        };
        unknown(self.nlink, false, out);
        if plan.owner {
            unknown(self.user, true, out);
        }
        if plan.group {
            unknown(self.group, true, out);
        }
        if plan.author {
            unknown(self.user, true, out);
        }
        if plan.context {
            unknown(self.context, true, out);
        }
        let begin = out.len();
        unknown(self.size, false, out);
        unknown(look.clock.width(), false, out);
        begin
    }
}

/// Writes a name left-aligned, or a number right-aligned.
fn write_owner(name: Option<&[u8]>, id: u32, width: usize, plan: &Plan, out: &mut Vec<u8>) {
    match name {
        Some(name) => {
            out.extend_from_slice(name);
            spaces(width.saturating_sub(plan.text_width(name)), out);
        }
        None => right(u64::from(id), width, out),
    }
    out.push(b' ');
}

fn number_or_unknown(number: Option<u64>, width: usize, out: &mut Vec<u8>) {
    match number {
        Some(number) => right(number, width, out),
        None => {
            spaces(width.saturating_sub(1), out);
            out.push(b'?');
        }
    }
}

fn write_context(context: &[u8], width: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(context);
    spaces(width.saturating_sub(context.len()), out);
    out.push(b' ');
}

/// The beginning of lines if the places of names follow the listing.
pub const INDENT: &[u8] = b"  ";

/// Appends the line with the blocks of all entries of a directory.
pub fn write_total(blocks: u64, plan: &Plan, out: &mut Vec<u8>) {
    if plan.dired {
        out.extend_from_slice(INDENT);
    }
    out.extend_from_slice(b"total ");
    plan.block_scale.write(blocks, BLOCK_BYTES, out);
    out.push(plan.screen.eol);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{EntryXattrs, tests::example};

    /// Only the value tells whether an NFSv4 list says more than the mode.
    #[test]
    fn lists_that_every_entry_has_are_not_marked() {
        for (xattrs, marked) in [
            (&b"\x17system.posix_acl_access\x00"[..], b'+'),
            (b"\x10security.selinux\x00", b'.'),
            (b"\x0fsystem.nfs4_acl\x00", b' '),
        ] {
            let entry = Entry { xattrs: EntryXattrs::Kept(xattrs), ..example(b"x") };
            assert_eq!(mark(&entry), marked, "{}", xattrs.escape_ascii());
        }
    }

    #[test]
    fn modes_are_ten_characters() {
        for (kind, mode, text) in [
            (Some(FileKind::File), 0o100_644, b"-rw-r--r--"),
            (Some(FileKind::Directory), 0o041_777, b"drwxrwxrwt"),
            (Some(FileKind::Directory), 0o041_776, b"drwxrwxrwT"),
            (Some(FileKind::File), 0o104_755, b"-rwsr-xr-x"),
            (Some(FileKind::File), 0o106_644, b"-rwSr-Sr--"),
            (None, 0, b"?---------"),
        ] {
            assert_eq!(&mode_text(kind, mode), text);
        }
    }
}
