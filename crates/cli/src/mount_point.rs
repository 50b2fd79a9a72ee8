//! The directory to mount on: found, made, cleaned of a dead mount, or refused with a reason.

use std::{
    io,
    path::{Path, PathBuf},
};

use pando_fuse::unmount;
use rustix::{io::Errno, process::Pid};

use crate::{
    failure::{Failure, Result},
    mountinfo::{self, Mount},
    quote::for_shell,
};

/// An absolute path without links for `path`, also where a dead mount answers nothing but "not connected".
///
/// # Errors
/// What the system answers for the path otherwise.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if is_dead(&error) => {
            let name = path.file_name().ok_or(error)?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok(parent.canonicalize()?.join(name))
        }
        result => result,
    }
}

/// Whether this is how a mount answers whose server is gone.
fn is_dead(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Whether a mount is at `path` whose server is gone. Statistics are asked for, since those are never answered from the
/// kernel's caches, as attributes are for a day.
pub fn dead_at(path: &Path) -> bool {
    rustix::fs::statfs(path).is_err_and(|error| is_dead(&error.into()))
}

/// The process that says that it serves the mount at `path`, by its number in its own name space.
pub fn server_at(path: &Path) -> Option<Pid> {
    let mut value = [0_u8; 16];
    let length = rustix::fs::getxattr(path, pando_fuse::SERVER_PID_XATTR, &mut value[..]).ok()?;
    Pid::from_raw(std::str::from_utf8(&value[..length]).ok()?.parse().ok()?)
}

/// What [`prepare`] did.
#[derive(Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Absolute, without links.
    pub path: PathBuf,
    /// A dead mount of ours was there, and is gone.
    pub cleaned: bool,
    /// The directory was missing, and goes again when this is dropped.
    made: bool,
}

impl Prepared {
    /// A tree is mounted: the directory stays.
    pub fn keep(&mut self) {
        self.made = false;
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if self.made {
            // Not empty by now, or forbidden: then it stays.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// Makes sure that a tree can be mounted on `dir`.
///
/// # Errors
/// Each with its remedy: the parent is missing, it is not a directory, it is mounted already, it has entries, a dead
/// mount of something else is in the way.
pub fn prepare(dir: &Path, nonempty: bool) -> Result<Prepared> {
    let shown = for_shell(dir);
    let path = std::path::absolute(dir).map_err(|error| Failure::system(&shown, &error))?;
    let mut prepared = Prepared { path, cleaned: false, made: false };
    let mut found = std::fs::metadata(dir);
    if found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        make(dir)?;
        prepared.made = true;
        found = std::fs::metadata(dir);
    } else if dead_at(dir) {
        clean(dir)?;
        prepared.cleaned = true;
        found = std::fs::metadata(dir);
    }
    let found = found.map_err(|error| Failure::system(&shown, &error))?;
    if !found.is_dir() {
        return Err(Failure::new(format!("{shown}: not a directory"))
            .remedy("a tree is mounted on a directory: name one, or a new name (it is made)"));
    }
    prepared.path = dir.canonicalize().map_err(|error| Failure::system(&shown, &error))?;
    let mounted = mountinfo::at(&prepared.path).map_err(|error| Failure::system("/proc/self/mountinfo", &error))?;
    if mounted.is_some_and(|mount| mount.is_ours()) {
        return Err(Failure::new(format!("{shown}: a pando tree is mounted here already"))
            .remedy(format!("unmount it first (pando umount {shown}), or choose another directory")));
    }
    if !prepared.made && !nonempty {
        let mut entries = std::fs::read_dir(&prepared.path).map_err(|error| Failure::system(&shown, &error))?;
        if entries.next().is_some() {
            return Err(Failure::new(format!("{shown}: not empty: mounting would hide what is in it"))
                .remedy("choose another directory, or add --nonempty to hide its entries until it is unmounted"));
        }
    }
    Ok(prepared)
}

fn make(dir: &Path) -> Result<()> {
    let shown = for_shell(dir);
    if dir.is_symlink() {
        return Err(Failure::new(format!("{shown}: a symbolic link that points nowhere"))
            .remedy("make the directory it points to, or name another one"));
    }
    std::fs::create_dir(dir).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let parent = for_shell(dir.parent().unwrap_or(Path::new("/")));
            Failure::new(format!("{shown}: cannot be made: its parent {parent} does not exist"))
                .remedy(format!("make that first: mkdir -p {parent}"))
        }
        _ => Failure::system(format_args!("{shown}: cannot be made"), &error),
    })
}

/// Takes a dead mount away if it is ours.
fn clean(dir: &Path) -> Result<()> {
    let shown = for_shell(dir);
    let path = resolve(dir).map_err(|error| Failure::system(&shown, &error))?;
    let mount = mountinfo::at(&path).map_err(|error| Failure::system("/proc/self/mountinfo", &error))?;
    match mount {
        Some(mount) if mount.is_ours() => {
            // Lazily: whoever still has a file of it open cannot use that any more, and should not keep us out.
            unmount::detach(&path).map_err(|error| {
                Failure::new(format!(
                    "{shown}: left mounted by a server that was killed, and cannot be unmounted: {error}"
                ))
                .remedy(format!("try as root: umount --lazy {}", for_shell(&path)))
            })
        }
        _ => {
            let holding = mountinfo::holding(&path).ok().flatten();
            let point = holding.as_ref().map_or(&path, |mount| &mount.point);
            let kind = holding.as_ref().map_or_else(|| "unknown".into(), Mount::shown_kind);
            let point = for_shell(point);
            let failure = Failure::new(format!("{shown}: a dead mount (of type {kind}) is in the way, at {point}"));
            Err(failure.remedy(if holding.as_ref().is_some_and(Mount::is_ours) {
                format!("unmount it: pando umount {point}")
            } else {
                format!("unmount it: fusermount3 -u -z {point}, or as root umount --lazy {point}")
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_made_and_checked() {
        let temp = tempfile::tempdir().unwrap();
        let new = temp.path().join("new");
        drop(prepare(&new, false).unwrap());
        assert!(!new.exists(), "nothing was mounted on it");
        let mut prepared = prepare(&new, false).unwrap();
        prepared.keep();
        drop(prepared);
        let prepared = prepare(&new, false).unwrap();
        assert_eq!(prepared, Prepared { path: new.canonicalize().unwrap(), cleaned: false, made: false });

        std::fs::write(new.join("entry"), "").unwrap();
        assert!(prepare(&new, false).unwrap_err().to_string().contains("--nonempty"));
        assert_eq!(prepare(&new, true).unwrap(), prepared);

        let file = prepare(&new.join("entry"), false).unwrap_err().to_string();
        assert!(file.contains("entry: not a directory"), "{file}");
        let orphan = prepare(&temp.path().join("a/b"), false).unwrap_err().to_string();
        assert!(orphan.contains("mkdir -p"), "{orphan}");
        std::os::unix::fs::symlink("nowhere", temp.path().join("link")).unwrap();
        let link = prepare(&temp.path().join("link"), false).unwrap_err().to_string();
        assert!(link.contains("points nowhere"), "{link}");
    }

    #[test]
    fn paths_lose_their_links() {
        let temp = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(temp.path(), temp.path().join("self")).unwrap();
        assert_eq!(resolve(&temp.path().join("self")).unwrap(), temp.path().canonicalize().unwrap());
        assert!(resolve(&temp.path().join("missing")).is_err());
    }
}
