//! Names as links to files, for terminals that support them (`--hyperlink`).

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Component, Path, PathBuf},
};

/// The end of a link.
pub const END: &[u8] = b"\x1b]8;;\x07";

/// Writes links.
#[derive(Debug)]
pub struct Hyperlinks {
    host: Vec<u8>,
}

impl Hyperlinks {
    /// Links to files of this machine.
    pub fn new() -> Self {
        Self { host: rustix::system::uname().nodename().to_bytes().to_vec() }
    }

    /// Begins a link to a path.
    pub fn begin(&self, path: &Path, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\x1b]8;;file://");
        escape(&self.host, b"", out);
        escape(path.as_os_str().as_bytes(), b"/", out);
        out.push(0x07);
    }
}

/// Writes all bytes except letters, digits, `-._~` and those in `kept` as %xx.
fn escape(bytes: &[u8], kept: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// The number of links that are followed before loops are looked for.
const FREE_LINKS: usize = 20;

/// Resolves a path to one without links, `.` and `..`. Parts of the path may be missing, and a link
/// that leads to itself is kept.
///
/// # Errors
/// The working directory has no path.
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    let mut done = if path.is_absolute() { PathBuf::from("/") } else { std::env::current_dir()? };
    // The remaining parts of the path, the next one last.
    let parts =
        |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<OsString>>();
    let mut rest = parts(path);
    let (mut links, mut seen) = (0, HashSet::new());
    while let Some(part) = rest.pop() {
        match Path::new(&part).components().next() {
            None | Some(Component::CurDir | Component::Prefix(_)) => {}
            Some(Component::RootDir) => done = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(done.pop()),
            Some(Component::Normal(name)) => {
                let target = rustix::fs::readlink(done.join(name), Vec::new()).ok();
                let target = target.map(|target| OsString::from_vec(target.into_bytes()));
                links += usize::from(target.is_some());
                match target {
                    Some(target) if links <= FREE_LINKS || seen.insert((done.clone(), name.to_owned(), rest.len())) => {
                        rest.extend(parts(Path::new(OsStr::from_bytes(target.as_bytes()))));
                    }
                    _ => done.push(name),
                }
            }
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_may_be_missing_or_lead_to_itself() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        symlink("nowhere/below", root.join("broken")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        for (path, expected) in
            [("broken/x/../y", "nowhere/below/y"), ("loop", "loop"), ("missing/./z", "missing/z"), ("", "")]
        {
            assert_eq!(canonical(&root.join(path)).unwrap(), root.join(expected), "{path}");
        }
    }

    #[test]
    fn links_are_escaped() {
        let mut out = Vec::new();
        Hyperlinks { host: b"a b".to_vec() }.begin(Path::new(OsStr::from_bytes(b"/x y/\xff~")), &mut out);
        assert_eq!(out, b"\x1b]8;;file://a%20b/x%20y/%ff~\x07");
    }
}
