//! The long format: mode, links, owner, group, size, time, name. Formatted by hand into one buffer, with nothing
//! allocated for an entry.

use pando_vfs::{FileKind, bulk::Attr};

use super::{
    entry::Entry,
    human::{digits, human, right, spaces, width},
    owner::Owners,
    plan::Plan,
    time::Clock,
};

/// What a listing looks up over and over.
pub struct LookUps {
    /// Names of owners and groups.
    pub owners: Owners,
    /// Texts of times.
    pub clock: Clock,
    /// Whether labels of SELinux count (`.` after the mode).
    pub selinux: bool,
    /// What was written last before a size.
    pub written: Written,
}

/// The columns before the size, from the mode to the group, as they were written last.
#[derive(Debug, Default)]
pub struct Written {
    of: Option<Shared>,
    text: Vec<u8>,
}

/// What makes the columns before the size. Neighbours mostly have it in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shared {
    kind: Option<FileKind>,
    mode: u32,
    /// If there is a column for marks.
    mark: Option<u8>,
    nlink: u32,
    uid: u32,
    gid: u32,
    /// How wide the columns are: links, user, group.
    widths: [usize; 3],
}

/// How wide the columns must be. They only grow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Widths {
    ino: usize,
    blocks: usize,
    nlink: usize,
    user: usize,
    group: usize,
    size: usize,
    major: usize,
    minor: usize,
    /// Whether a column for the marks `+` and `.` is needed.
    marks: bool,
    /// Whose names were measured last.
    owners: Option<(u32, u32)>,
    /// Whether a name is in quotes, so that the others are indented.
    pub quotes: bool,
}

/// The character of a kind at the beginning of the mode.
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

/// `+` for an access list, `.` for a label of SELinux alone.
#[inline]
fn mark(entry: &Entry<'_>, selinux: bool) -> u8 {
    if entry.xattrs.is_empty() { b' ' } else { mark_of(entry, selinux) }
}

fn mark_of(entry: &Entry<'_>, selinux: bool) -> u8 {
    let mut mark = b' ';
    for xattr in entry.xattrs.clone() {
        match xattr.name {
            b"system.posix_acl_access" | b"system.posix_acl_default" => return b'+',
            b"security.selinux" if selinux => mark = b'.',
            _ => {}
        }
    }
    mark
}

fn is_device(kind: Option<FileKind>) -> bool {
    matches!(kind, Some(FileKind::CharDevice | FileKind::BlockDevice))
}

/// 512-byte units as KiB.
fn kib(blocks: u64) -> u64 {
    blocks.div_ceil(2)
}

fn human_width(bytes: u128) -> usize {
    let mut text = Vec::with_capacity(8);
    human(bytes, &mut text);
    text.len()
}

impl Widths {
    /// Makes room for an entry's numbers that come before the name in every format (`-i`, `-s`).
    #[inline]
    pub fn measure_frills(&mut self, entry: &Entry<'_>, plan: &Plan) {
        if plan.inode {
            self.ino = self.ino.max(entry.known_ino().map_or(1, width));
        }
        if plan.blocks
            && let Some(attr) = entry.attr()
        {
            let blocks = if plan.human { human_width(u128::from(attr.blocks) * 512) } else { width(kib(attr.blocks)) };
            self.blocks = self.blocks.max(blocks);
        }
    }

    /// Makes room for an entry in the long format.
    #[inline]
    pub fn measure(&mut self, entry: &Entry<'_>, plan: &Plan, look: &mut LookUps) {
        self.measure_frills(entry, plan);
        self.quotes |= plan.quote.needs_quotes(entry.name);
        let Some(attr) = entry.attr() else { return };
        self.marks |= mark(entry, look.selinux) != b' ';
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
            let size = if plan.human { human_width(u128::from(attr.size)) } else { width(attr.size) };
            self.size = self.size.max(size);
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

    /// Appends an entry's numbers that come before the name in every format; answers how wide they are.
    pub fn write_frills(&self, entry: &Entry<'_>, plan: &Plan, out: &mut Vec<u8>) -> usize {
        let begin = out.len();
        if plan.inode {
            number_or_unknown(entry.known_ino(), self.ino, out);
            out.push(b' ');
        }
        if plan.blocks {
            match entry.attr() {
                Some(attr) if plan.human => right_human(u128::from(attr.blocks) * 512, self.blocks, out),
                attr => number_or_unknown(attr.map(|attr| kib(attr.blocks)), self.blocks, out),
            }
            out.push(b' ');
        }
        out.len() - begin
    }

    /// Appends an entry in the long format, up to where the name begins. Answers in which column that is, as ls counts:
    /// from behind the owners, if they are shown.
    pub fn write(&self, entry: &Entry<'_>, plan: &Plan, look: &mut LookUps, out: &mut Vec<u8>) -> usize {
        let mut begin = out.len();
        self.write_frills(entry, plan, out);
        let Some(attr) = entry.attr() else {
            self.write_unknown(entry, plan, look, out);
            return out.len() - begin;
        };
        let shared = Shared {
            kind: entry.kind,
            mode: attr.mode,
            mark: self.marks.then(|| mark(entry, look.selinux)),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            widths: [self.nlink, self.user, self.group],
        };
        if look.written.of != Some(shared) {
            self.write_shared(shared, plan, look);
        }
        out.extend_from_slice(&look.written.text);
        if plan.owner || plan.group || plan.author {
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
        } else if plan.human {
            right_human(u128::from(attr.size), self.size, out);
        } else {
            right(attr.size, self.size, out);
        }
    }

    /// What could not be had is a question mark.
    fn write_unknown(&self, entry: &Entry<'_>, plan: &Plan, look: &mut LookUps, out: &mut Vec<u8>) {
        out.push(letter(entry.kind));
        out.extend_from_slice(if self.marks { b"??????????" } else { b"?????????" });
        out.push(b' ');
        let mut unknown = |width: usize, left: bool| {
            spaces(if left { 0 } else { width.saturating_sub(1) }, out);
            out.push(b'?');
            spaces(if left { width.saturating_sub(1) } else { 0 }, out);
            out.push(b' ');
        };
        unknown(self.nlink, false);
        if plan.owner {
            unknown(self.user, true);
        }
        if plan.group {
            unknown(self.group, true);
        }
        if plan.author {
            unknown(self.user, true);
        }
        unknown(self.size, false);
        unknown(look.clock.width(), false);
    }
}

/// A name to the left, a number to the right.
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

fn right_human(bytes: u128, width: usize, out: &mut Vec<u8>) {
    let begin = out.len();
    human(bytes, out);
    let len = out.len() - begin;
    if let Some(missing) = width.checked_sub(len).filter(|&missing| missing > 0) {
        spaces(missing, out);
        out[begin..].rotate_right(missing);
    }
}

/// Appends the line that says how much the entries of a directory occupy.
pub fn write_total(blocks: u64, plan: &Plan, out: &mut Vec<u8>) {
    out.extend_from_slice(b"total ");
    if plan.human {
        human(u128::from(blocks) * 512, out);
    } else {
        digits(kib(blocks), out);
    }
    out.push(plan.screen.eol);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ls::entry::{EntryXattrs, tests::example};

    /// Whether a list of NFSv4 says more than the mode, only its value tells.
    #[test]
    fn lists_that_every_entry_has_are_not_marked() {
        for (xattrs, marked) in [
            (&b"\x17system.posix_acl_access\x00"[..], b'+'),
            (b"\x10security.selinux\x00", b'.'),
            (b"\x0fsystem.nfs4_acl\x00", b' '),
        ] {
            let entry = Entry { xattrs: EntryXattrs::Kept(xattrs), ..example(b"x") };
            assert_eq!(mark(&entry, true), marked, "{}", xattrs.escape_ascii());
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
