//! The mount table of the kernel: `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::failure::shown;

/// The type of mounts of pando in mount tables.
pub const OUR_TYPE: &str = "fuse.pandofs";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: u32,
    /// The number of the parent mount.
    pub parent: u32,
    /// The device number of the superblock, `major:minor`. A superblock keeps its number as long as
    /// it exists.
    pub device: String,
    /// The directory of the file system that is mounted, mostly its root.
    pub root: PathBuf,
    /// The mount point.
    pub point: PathBuf,
    /// Its options, as in `rw,nosuid,relatime`.
    pub options: String,
    /// The options of its superblock, as in `rw,sync,user_id=0`.
    pub options_of_superblock: String,
    /// The type with its subtype, as in `fuse.pandofs`.
    pub kind: String,
    /// The user who mounted it, if the file system shows it (FUSE).
    pub owner: Option<u32>,
}

impl Mount {
    /// Whether it is a mount of pando.
    pub fn is_ours(&self) -> bool {
        self.kind == OUR_TYPE
    }

    /// The type for a message. It is quoted, because the user who mounts with FUSE chooses the
    /// subtype.
    pub fn shown_kind(&self) -> String {
        shown(OsStr::new(&self.kind))
    }

    /// Whether `option` is in effect for this mount.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|found| found == option)
    }

    /// Whether `option` is in effect for the superblock.
    pub fn has_of_superblock(&self, option: &str) -> bool {
        self.options_of_superblock.split(',').any(|found| found == option)
    }
}

/// All mounts that this process sees, in the order of mounting. The last one at a mount point is on
/// top.
///
/// # Errors
/// `/proc` is not mounted, or cannot be read.
pub fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// The topmost mount at `point`, an absolute path without links.
///
/// # Errors
/// As [`all`].
pub fn at(point: &Path) -> io::Result<Option<Mount>> {
    Ok(all()?.into_iter().rev().find(|mount| mount.point == point))
}

/// The mount that contains `path`, an absolute path without links.
///
/// # Errors
/// As [`all`].
pub fn holding(path: &Path) -> io::Result<Option<Mount>> {
    // Of several equally long mount points the last one is on top.
    Ok(all()?
        .into_iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.as_os_str().len()))
}

/// The device number of `path`, as in mount tables. No request goes to a server.
///
/// # Errors
/// As statx(2).
pub fn device(path: &Path) -> io::Result<String> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW;
    let found = rustix::fs::statx(CWD, path, flags, StatxFlags::empty())?;
    Ok(format!("{}:{}", found.stx_dev_major, found.stx_dev_minor))
}

/// The mounts in a table, in the order of its lines. Lines that cannot be parsed are skipped.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// `id parent major:minor root point options [optional...] - type source options`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (id, parent, device) = (text()?.parse().ok()?, text()?.parse().ok()?, text()?.to_owned());
    let mut path = || Some(PathBuf::from(OsString::from_vec(unescape(fields.next()?))));
    let (root, point) = (path()?, path()?);
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let mut of_superblock = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = of_superblock.next()?;
    // The options follow the source. The options of FUSE itself follow those that its user may
    // influence.
    let options_of_superblock = of_superblock.nth(1).unwrap_or_default();
    let mut words = options_of_superblock.rsplit(|&byte| byte == b',');
    let owner = words.find_map(|word| std::str::from_utf8(word.strip_prefix(b"user_id=")?).ok()?.parse().ok());
    Some(Mount {
        id,
        parent,
        device,
        root,
        point,
        options,
        options_of_superblock: String::from_utf8_lossy(options_of_superblock).into_owned(),
        kind: String::from_utf8_lossy(&unescape(kind)).into_owned(),
        owner,
    })
}

/// Decodes the kernel's octal escapes for space, tab, newline and backslash, as in `\040`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if byte == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        bytes.push(octal.unwrap_or(byte));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let table = b"22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
            40 22 0:33 / /a\\040b\\134c rw,nosuid shared:5 master:2 - fuse.pandofs pandofs rw,user_id=1000,group_id=7\n\
            41 22 0:34 / /plain rw - tmpfs - rw\n\
            broken line\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[1].point, Path::new("/a b\\c"));
        assert_eq!((mounts[1].device.as_str(), mounts[1].is_ours()), ("0:33", true));
        assert_eq!((mounts[1].id, mounts[1].parent), (40, 22));
        assert_eq!((mounts[0].owner, mounts[1].owner), (None, Some(1000)));
        assert!(mounts[1].root == Path::new("/") && mounts[1].has_of_superblock("group_id=7"));
        assert!(mounts[1].has("rw") && mounts[1].has("nosuid") && !mounts[1].has("suid"));
        assert_eq!((mounts[2].kind.as_str(), mounts[2].is_ours()), ("tmpfs", false));
    }

    #[test]
    fn the_root_is_in_the_table() {
        assert!(at(Path::new("/")).unwrap().is_some_and(|mount| !mount.is_ours()));
        assert_eq!(at(Path::new("/proc/self/no such thing")).unwrap(), None);
    }
}
