//! POSIX access control lists. Analogous to fs/posix_acl.c.
//!
//! An ACL has an entry for each class of callers. Three of them stand in the mode, too: owner,
//! others, and the group or, if there is one, the mask. The mask bounds what named users, named
//! groups and the file's group may do. An ACL with exactly those three entries says no more than
//! the mode, and is not kept.
//!
//! As an extended attribute it is a version and then entries of 8 bytes: tag, permissions, id.

use std::fmt;

use crate::{Access, Error, Result, types::stat::S_IRWXG};

/// The extended attribute by which programs read and set the ACL that is checked.
pub const XATTR_ACL_ACCESS: &str = "system.posix_acl_access";
/// That of the ACL that new inodes of a directory inherit.
pub const XATTR_ACL_DEFAULT: &str = "system.posix_acl_default";

/// Whether this extended attribute is a POSIX ACL.
#[must_use]
pub fn is_acl(name: &[u8]) -> bool {
    AclKind::of(name).is_some()
}

const VERSION: u32 = 2;
const HEAD: usize = 4;
const ENTRY: usize = 8;
/// The most entries: the kernel reads an ACL of a mount into one page.
const ENTRIES_MAX: usize = (4096 - HEAD) / ENTRY;
/// The bits of an entry, and their letters.
const PERMISSIONS: [(u32, &str); 3] = [(4, "r"), (2, "w"), (1, "x")];
/// The id of an entry that needs none.
const NO_ID: u32 = u32::MAX;

/// Whom an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Mask,
    Other,
}

/// A class of callers, and what they may do: the bits of [`Access`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    class: Class,
    bits: u32,
}

/// A POSIX access control list, as the value of the extended attribute: owner, named users, owning
/// group, named groups, mask, others, in this order. There is a mask if a user or a group is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl(Box<[u8]>);

/// A name in the text of an ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum AclName<'a> {
    User(&'a str),
    Group(&'a str),
}

/// The two ACLs of an inode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acls {
    /// The one that permissions are checked against. It is in step with the mode.
    pub access: Option<Acl>,
    /// The one that new inodes of this directory inherit.
    pub default: Option<Acl>,
}

/// One of the two ACLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AclKind {
    Access,
    Default,
}

impl AclKind {
    /// The one that this extended attribute is.
    #[inline]
    pub(crate) fn of(name: &[u8]) -> Option<Self> {
        [Self::Access, Self::Default].into_iter().find(|kind| kind.name().as_bytes() == name)
    }

    /// The name of the extended attribute.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Access => XATTR_ACL_ACCESS,
            Self::Default => XATTR_ACL_DEFAULT,
        }
    }
}

impl Acls {
    pub(crate) fn get(&self, kind: AclKind) -> Option<&Acl> {
        match kind {
            AclKind::Access => self.access.as_ref(),
            AclKind::Default => self.default.as_ref(),
        }
    }

    pub(crate) fn set(&mut self, kind: AclKind, acl: Option<Acl>) {
        match kind {
            AclKind::Access => self.access = acl,
            AclKind::Default => self.default = acl,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.access.is_none() && self.default.is_none()
    }

    /// Those that there are, in the order of a list of names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (AclKind, &Acl)> + Clone {
        [AclKind::Access, AclKind::Default].into_iter().filter_map(|kind| Some((kind, self.get(kind)?)))
    }
}

impl Acl {
    /// The ACL in the value of an extended attribute. None for one without entries.
    ///
    /// # Errors
    /// EINVAL for a malformed one, EOPNOTSUPP for another version.
    pub fn from_xattr(value: &[u8]) -> Result<Option<Self>> {
        let acl = Self::parse(value)?;
        if acl.as_ref().is_none_or(Self::is_valid) { Ok(acl) } else { Err(Error::Invalid) }
    }

    /// As [`Acl::from_xattr`], for an ACL whose entries may be out of order, missing, or permit
    /// what does not exist: [`Acl::is_valid`] says that. Linux checks who asks in between.
    ///
    /// # Errors
    /// EINVAL for a malformed one, EOPNOTSUPP for another version.
    pub(crate) fn parse(value: &[u8]) -> Result<Option<Self>> {
        let (head, rest) = value.split_first_chunk::<HEAD>().ok_or(Error::Invalid)?;
        if u32::from_le_bytes(*head) != VERSION {
            return Err(Error::NotSupported);
        }
        let (entries, []) = rest.as_chunks::<ENTRY>() else { return Err(Error::Invalid) };
        let mut bytes: Box<[u8]> = value.into();
        for (own, entry) in bytes[HEAD..].as_chunks_mut().0.iter_mut().zip(entries) {
            // Without the id of an entry that needs none.
            *own = Entry::parse(entry)?.to_bytes();
        }
        Ok((!entries.is_empty()).then_some(Self(bytes)))
    }

    /// The ACL in a text, as acl(5) describes it: entries as `user:NAME:rwx`, on lines or between
    /// commas, in any order. A number is an id; a fourth field is the id of the name, as star(1)
    /// writes it. For other names `id_of` is asked. None for a text without entries.
    ///
    /// # Errors
    /// EINVAL for a malformed one, and those of `id_of`.
    pub fn from_text<E: From<Error>>(
        text: &str,
        mut id_of: impl FnMut(AclName<'_>) -> std::result::Result<u32, E>,
    ) -> std::result::Result<Option<Self>, E> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let words = lines.flat_map(|line| line.split(',')).map(str::trim).filter(|word| !word.is_empty());
        let mut entries =
            words.map(|word| Entry::from_text(word, &mut id_of)).collect::<std::result::Result<Vec<_>, E>>()?;
        entries.sort_by_key(Entry::rank);
        let bytes = entries.into_iter().flat_map(Entry::to_bytes);
        Ok(Self::from_xattr(&VERSION.to_le_bytes().into_iter().chain(bytes).collect::<Vec<_>>())?)
    }

    /// The value of the extended attribute.
    #[must_use]
    pub fn as_xattr(&self) -> &[u8] {
        &self.0
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + Clone {
        // All can be parsed: they were when the ACL was made.
        self.0[HEAD..].as_chunks().0.iter().filter_map(|entry| Entry::parse(entry).ok())
    }

    fn mask(&self) -> Option<Entry> {
        self.entries().find(|entry| entry.class == Class::Mask)
    }

    pub(crate) fn is_valid(&self) -> bool {
        let count = |wanted| self.entries().filter(|entry| entry.rank() == wanted).count();
        let names_any = count(1) + count(3) > 0;
        let masks = count(4);
        self.entries().is_sorted_by_key(|entry| entry.rank())
            && self.entries().all(|entry| entry.bits & !7 == 0)
            && [0, 2, 5].iter().all(|once| count(*once) == 1)
            && masks <= 1
            && (masks == 1 || !names_any)
    }

    pub(crate) fn is_too_long(&self) -> bool {
        self.0.len() > HEAD + ENTRIES_MAX * ENTRY
    }

    /// Whether it says more than the mode.
    pub(crate) fn is_extended(&self) -> bool {
        self.0.len() > HEAD + 3 * ENTRY
    }

    /// The mode with the permission bits of this ACL.
    pub(crate) fn to_mode(&self, mode: u32) -> u32 {
        let mode = mode & !0o777;
        self.entries().fold(mode, |mode, entry| match entry.class {
            Class::Owner => mode | entry.bits << 6,
            Class::OwningGroup => mode | entry.bits << 3,
            Class::Mask => mode & !S_IRWXG | entry.bits << 3,
            Class::Other => mode | entry.bits,
            Class::User(_) | Class::Group(_) => mode,
        })
    }

    /// Replaces the permissions of the three entries that stand in the mode. `change` gets the old
    /// ones, and the place of these bits in the mode.
    fn change_those_in_mode(&mut self, mut change: impl FnMut(u32, u32) -> u32) {
        let has_mask = self.mask().is_some();
        for bytes in self.0[HEAD..].as_chunks_mut().0 {
            let Ok(mut entry) = Entry::parse(bytes) else { continue };
            let place = match entry.class {
                Class::Owner => 6,
                Class::Mask => 3,
                Class::OwningGroup if !has_mask => 3,
                Class::Other => 0,
                _ => continue,
            };
            entry.bits = change(entry.bits, place);
            *bytes = entry.to_bytes();
        }
    }

    /// The ACL after a chmod.
    pub(crate) fn after_chmod(mut self, mode: u32) -> Self {
        self.change_those_in_mode(|_, place| mode >> place & 7);
        self
    }

    /// The ACL and the mode of a new inode in a directory with this default ACL. `mode` is the one
    /// that was asked for. The umask has no effect. None for an ACL that says no more than the
    /// mode.
    pub(crate) fn inherited(mut self, mode: u32) -> (Option<Self>, u32) {
        let mut permitted = mode & !0o777;
        self.change_those_in_mode(|bits, place| {
            let bits = bits & mode >> place & 7;
            permitted |= bits << place;
            bits
        });
        (self.is_extended().then_some(self), permitted)
    }

    /// Whether the user `uid`, which is not the owner, may do `want` with an inode of the group
    /// `gid`. `in_group` says of which groups the user is a member. Analogous to
    /// `posix_acl_permission()`.
    pub(crate) fn permits(&self, uid: u32, in_group: impl Fn(u32) -> bool, gid: u32, want: Access) -> bool {
        let (want, mask) = (want.bits(), self.mask().map_or(7, |mask| mask.bits));
        let masked = |entry: Entry| entry.bits & mask & want == want;
        if let Some(user) = self.entries().find(|entry| entry.class == Class::User(uid)) {
            return masked(user);
        }
        let is_in = |entry: &Entry| match entry.class {
            Class::OwningGroup => in_group(gid),
            Class::Group(named) => in_group(named),
            _ => false,
        };
        let mut groups = self.entries().filter(is_in).peekable();
        if groups.peek().is_some() {
            return groups.any(masked);
        }
        self.entries().any(|entry| entry.class == Class::Other && entry.bits & want == want)
    }
}

/// A name in which some characters are written in octal, as `\\134`.
fn unescaped(name: &str) -> String {
    let mut parts = name.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => plain.extend([char::from(code).encode_utf8(&mut [0; 4]), &part[3..]]),
            None => plain.extend(["\\", part]),
        }
    }
    plain
}

/// The text of [`Acl::from_text`], on one line and with numbers as names.
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, entry) in self.entries().enumerate() {
            f.write_str(if number == 0 { "" } else { "," })?;
            match entry.class {
                Class::Owner => f.write_str("user::"),
                Class::User(id) => write!(f, "user:{id}:"),
                Class::OwningGroup => f.write_str("group::"),
                Class::Group(id) => write!(f, "group:{id}:"),
                Class::Mask => f.write_str("mask::"),
                Class::Other => f.write_str("other::"),
            }?;
            for (bit, letter) in PERMISSIONS {
                f.write_str(if entry.bits & bit == 0 { "-" } else { letter })?;
            }
        }
        Ok(())
    }
}

impl Entry {
    /// The place of its class in an ACL.
    fn rank(&self) -> u8 {
        match self.class {
            Class::Owner => 0,
            Class::User(_) => 1,
            Class::OwningGroup => 2,
            Class::Group(_) => 3,
            Class::Mask => 4,
            Class::Other => 5,
        }
    }

    fn from_text<E: From<Error>>(
        word: &str,
        id_of: &mut impl FnMut(AclName<'_>) -> std::result::Result<u32, E>,
    ) -> std::result::Result<Self, E> {
        let fields: Vec<&str> = word.split(':').map(str::trim).collect();
        let (tag, name, letters, id) = match fields[..] {
            [tag, name, letters] => (tag, name, letters, None),
            [tag, name, letters, id] => (tag, name, letters, Some(id)),
            _ => return Err(Error::Invalid.into()),
        };
        let name = &*unescaped(name);
        let mut id = |named| id.unwrap_or(name).parse().or_else(|_| id_of(named));
        let class = match (tag, name) {
            ("user" | "u", "") => Class::Owner,
            ("user" | "u", name) => Class::User(id(AclName::User(name))?),
            ("group" | "g", "") => Class::OwningGroup,
            ("group" | "g", name) => Class::Group(id(AclName::Group(name))?),
            ("mask" | "m", "") => Class::Mask,
            ("other" | "o", "") => Class::Other,
            _ => return Err(Error::Invalid.into()),
        };
        let mut bits = 0;
        for letter in letters.chars().filter(|letter| *letter != '-') {
            let bit = PERMISSIONS.into_iter().find(|(_, of)| of.starts_with(letter));
            bits |= bit.ok_or(Error::Invalid)?.0;
        }
        Ok(Self { class, bits })
    }

    fn parse(bytes: &[u8; ENTRY]) -> Result<Self> {
        let [tag_low, tag_high, low, high, id @ ..] = *bytes;
        let (tag, bits, id) = (
            u16::from_le_bytes([tag_low, tag_high]),
            u32::from(u16::from_le_bytes([low, high])),
            u32::from_le_bytes(id),
        );
        let class = match tag {
            0x01 => Class::Owner,
            0x02 => Class::User(id),
            0x04 => Class::OwningGroup,
            0x08 => Class::Group(id),
            0x10 => Class::Mask,
            0x20 => Class::Other,
            _ => return Err(Error::Invalid),
        };
        let has_bad_id = matches!(class, Class::User(NO_ID) | Class::Group(NO_ID));
        if has_bad_id { Err(Error::Invalid) } else { Ok(Self { class, bits }) }
    }

    fn to_bytes(self) -> [u8; ENTRY] {
        let (tag, id) = match self.class {
            Class::Owner => (0x01_u16, NO_ID),
            Class::User(id) => (0x02, id),
            Class::OwningGroup => (0x04, NO_ID),
            Class::Group(id) => (0x08, id),
            Class::Mask => (0x10, NO_ID),
            Class::Other => (0x20, NO_ID),
        };
        let mut bytes = [0; ENTRY];
        bytes[..2].copy_from_slice(&tag.to_le_bytes());
        bytes[2..4].copy_from_slice(&(self.bits as u16).to_le_bytes());
        bytes[4..].copy_from_slice(&id.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::cred::{Credentials, PermView};

    fn entry(class: Class, bits: u32) -> Entry {
        Entry { class, bits }
    }

    fn value(entries: &[Entry]) -> Vec<u8> {
        let head = VERSION.to_le_bytes().into_iter();
        head.chain(entries.iter().flat_map(|entry| entry.to_bytes())).collect()
    }

    fn acl(entries: &[Entry]) -> Acl {
        let acl = Acl::from_xattr(&value(entries)).expect("valid").expect("entries");
        assert_eq!((acl.entries().collect::<Vec<_>>(), acl.as_xattr()), (entries.to_vec(), &*value(entries)));
        acl
    }

    /// `u::rwx,u:5:rw-,g::r-x,g:6:-wx,m::rw-,o::--x`
    fn extended() -> Acl {
        acl(&[
            entry(Class::Owner, 7),
            entry(Class::User(5), 6),
            entry(Class::OwningGroup, 5),
            entry(Class::Group(6), 3),
            entry(Class::Mask, 6),
            entry(Class::Other, 1),
        ])
    }

    fn has(acl: &Acl, wanted: Entry) -> bool {
        acl.entries().any(|entry| entry == wanted)
    }

    fn plain(mode: u32) -> Acl {
        acl(&[
            entry(Class::Owner, mode >> 6 & 7),
            entry(Class::OwningGroup, mode >> 3 & 7),
            entry(Class::Other, mode & 7),
        ])
    }

    #[test]
    fn acl_without_names_permits_what_the_mode_does() {
        let callers = [Credentials::user(9, 2, &[]), Credentials::user(9, 9, &[2]), Credentials::user(9, 9, &[])];
        for mode in 0..=0o777 {
            let (acl, perm) = (plain(mode), PermView { mode, uid: 1, gid: 2 });
            assert_eq!((acl.to_mode(0o4000), acl.is_extended()), (0o4000 | mode, false));
            for (cred, want) in callers.iter().flat_map(|cred| (1..=7).map(move |want| (cred, want))) {
                let want = Access::from_bits_truncate(want);
                let by_mode = cred.check(&perm, false, want).is_ok();
                assert_eq!(acl.permits(cred.uid, |gid| cred.in_group(gid), perm.gid, want), by_mode, "{mode:o}");
            }
        }
    }

    #[test]
    fn named_entries_are_masked_and_decide_in_order() {
        let acl = extended();
        assert_eq!(acl.to_mode(0o1000), 0o1761);
        let most = |uid, gid, groups: &[u32]| {
            let cred = Credentials::user(uid, gid, groups);
            (1..=7)
                .filter(|want| acl.permits(cred.uid, |gid| cred.in_group(gid), 2, Access::from_bits_truncate(*want)))
                .collect::<Vec<_>>()
        };
        assert_eq!(most(5, 2, &[6]), [2, 4, 6], "the user, and not the groups");
        assert_eq!(most(9, 2, &[]), [4], "the owning group, masked");
        assert_eq!(most(9, 6, &[]), [2], "the named group, masked");
        assert_eq!(most(9, 6, &[2]), [2, 4], "one group must permit all that is wanted");
        assert_eq!(most(9, 9, &[]), [1], "others");
    }

    #[test]
    fn chmod_changes_the_mask_instead_of_the_group() {
        let changed = extended().after_chmod(0o4412);
        assert_eq!(changed.to_mode(0), 0o412);
        assert!(has(&changed, entry(Class::OwningGroup, 5)) && has(&changed, entry(Class::Mask, 1)));
        assert_eq!(plain(0o777).after_chmod(0o640), plain(0o640));
    }

    #[test]
    fn new_inodes_get_what_both_permit() {
        let (inherited, mode) = extended().inherited(0o2644);
        assert_eq!(mode, 0o2640);
        let inherited = inherited.expect("extended");
        assert_eq!(inherited.to_mode(0o2000), mode);
        assert!(has(&inherited, entry(Class::OwningGroup, 5)) && has(&inherited, entry(Class::Mask, 4)));
        assert_eq!(plain(0o750).inherited(0o666), (None, 0o640));
    }

    #[test]
    fn malformed_values_are_refused() {
        let good = value(&extended().entries().collect::<Vec<_>>());
        assert_eq!(Acl::from_xattr(&good[..4]), Ok(None), "no entries");
        for bad in [&good[..0], &good[..3], &good[..5], &good[..good.len() - 1], &good[..good.len() - 8]] {
            assert_eq!(Acl::from_xattr(bad), Err(Error::Invalid), "{} bytes", bad.len());
        }
        let with = |place: usize, byte| {
            let mut changed = good.clone();
            changed[place] = byte;
            Acl::from_xattr(&changed)
        };
        assert_eq!(with(0, 1), Err(Error::NotSupported), "another version");
        assert_eq!((with(4, 0x40), with(6, 8)), (Err(Error::Invalid), Err(Error::Invalid)), "a tag, bits");
        assert_eq!(with(4, 0x20), Err(Error::Invalid), "two for others, none for the owner");
        let (owner, user, group, other) =
            (entry(Class::Owner, 7), entry(Class::User(1), 7), entry(Class::OwningGroup, 7), entry(Class::Other, 7));
        for bad in [
            &[owner, user, group, other][..],
            &[user, owner, group, entry(Class::Mask, 7), other],
            &[owner, group, other, entry(Class::Mask, 7)],
            &[owner, entry(Class::User(NO_ID), 7), group, entry(Class::Mask, 7), other],
        ] {
            assert_eq!(Acl::from_xattr(&value(bad)), Err(Error::Invalid), "{bad:?}");
        }
        // Each byte that is changed is found, or gives another valid list.
        for place in 0..good.len() {
            for byte in 0..=255 {
                if let Ok(Some(acl)) = with(place, byte) {
                    assert!(acl.is_valid());
                }
            }
        }
    }

    /// As Linux returns it, whatever id was set.
    #[test]
    fn entries_that_need_no_id_have_none() {
        let good = value(&extended().entries().collect::<Vec<_>>());
        let mut bytes = good.clone();
        bytes[8..12].fill(7);
        assert_ne!(bytes, good);
        assert_eq!(Acl::from_xattr(&bytes).expect("valid").expect("entries").as_xattr(), good);
    }

    #[test]
    fn text_says_the_same() {
        let from = |text: &str| {
            Acl::from_text(text, |name| match name {
                AclName::User("joe" | "DOM\\joe, s") => Ok(5),
                AclName::Group("staff") => Ok(6),
                _ => Err(Error::NoEntry),
            })
        };
        let text = extended().to_string();
        assert_eq!(from(&text), Ok(Some(extended())), "{text}");
        let plain = [entry(Class::Owner, 7), entry(Class::OwningGroup, 5), entry(Class::Other, 0)];
        assert_eq!(acl(&plain).to_string(), "user::rwx,group::r-x,other::---");
        let named = [
            entry(Class::Owner, 6),
            entry(Class::User(5), 7),
            entry(Class::User(9), 4),
            entry(Class::OwningGroup, 4),
            entry(Class::Group(6), 1),
            entry(Class::Mask, 7),
            entry(Class::Other, 4),
        ];
        let lines = "# file: f\nuser::rw-\nuser:9:r\nuser:joe:rwx\t#effective:r--\n\ngroup::r--\ngroup:staff:--x\n
                     mask::rwx\nother::r--\n";
        let mut sorted = named;
        sorted.swap(1, 2);
        assert_eq!(from(lines), Ok(Some(acl(&sorted))), "each class in the order of the text");
        let of_star = "u::rw-,u:jim:rwx:5,u:9:r--,g::r,g:staff:x,m::rwx,o::r";
        assert_eq!(from(of_star), Ok(Some(acl(&named))), "with the id of an unknown name");
        let quoted = "u::rw-,u:DOM\\134joe\\054\\040s:rwx,u:9:r--,g::r,g:staff:x,m::rwx,o::r";
        assert_eq!(from(quoted), Ok(Some(acl(&named))));
        assert_eq!(from("\n"), Ok(None));
        assert_eq!(from("user::rwx,user:jim:rwx,group::r,mask::r,other::r"), Err(Error::NoEntry));
        for bad in ["user", "user:", "user:::::", "user::rwz", "mask:5:r", "who::r", "user::rwx", "default:user::r"] {
            assert_eq!(from(bad), Err(Error::Invalid), "{bad}");
        }
    }
}
