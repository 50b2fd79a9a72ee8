//! The directory to mount on: it is found or created, a dead mount on it is removed, or it is
//! refused with a reason.

use std::{
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use pando_console::{
    failure::{Failure, Result},
    mountinfo::{self, Mount},
    quote::for_shell,
};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags},
    io::Errno,
};

use crate::mounted::held::{self, Held};

/// The result of [`prepare`].
#[derive(Debug)]
pub struct Prepared {
    /// Absolute, without links.
    pub path: PathBuf,
    /// A dead mount of pando was there and has been removed.
    pub cleaned: bool,
    /// The directory was created. It is removed when this is dropped.
    made: Option<Made>,
}

/// A directory that was created, by its parent and its name.
#[derive(Debug)]
struct Made {
    parent: OwnedFd,
    name: OsString,
}

impl Made {
    /// Opens the directory itself. A link that has taken its name is not followed.
    fn open(&self) -> rustix::io::Result<OwnedFd> {
        held::open(&self.parent, &self.name, OFlags::NOFOLLOW)
    }
}

impl Prepared {
    /// Keeps the directory, because a tree is mounted.
    pub fn keep(&mut self) {
        self.made = None;
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(made) = &self.made {
            // The directory stays if it is not empty any more, or if removing it is forbidden.
            let _ = rustix::fs::unlinkat(&made.parent, &made.name, AtFlags::REMOVEDIR);
        }
    }
}

/// Makes sure that a tree can be mounted on `dir`. Mount by the held path.
///
/// # Errors
/// Each with its remedy: the parent is missing, `dir` is not a directory, a tree is mounted there
/// already, it has entries, or a dead mount of another file system is in the way.
pub fn prepare(dir: &Path, nonempty: bool) -> Result<(Prepared, Held)> {
    let shown = for_shell(dir);
    let mut prepared = Prepared { path: PathBuf::new(), cleaned: false, made: None };
    match std::fs::metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => prepared.made = Some(make(dir)?),
        _ if held::dead_at(dir) => {
            clean(dir)?;
            prepared.cleaned = true;
        }
        Err(error) => return Err(Failure::system(&shown, &error)),
        Ok(found) if !found.is_dir() => {
            return Err(Failure::new(format!("{shown}: not a directory"))
                .remedy("a tree is mounted on a directory: name a directory, or a new name (it is created)"));
        }
        Ok(_) => {}
    }
    let held = check(dir, &mut prepared, nonempty)?;
    Ok((prepared, held))
}

/// Opens and checks the directory. From here on the descriptor stands for it, and no path to it is
/// followed again.
fn check(dir: &Path, prepared: &mut Prepared, nonempty: bool) -> Result<Held> {
    let shown = for_shell(dir);
    let opened = match &prepared.made {
        Some(made) => made.open(),
        None => held::open(CWD, dir, OFlags::empty()),
    };
    let held = Held::directory(opened.map_err(|error| Failure::system(&shown, &error.into()))?);
    prepared.path = std::fs::read_link(held.path()).map_err(|error| Failure::system("/proc/self/fd", &error))?;
    let mounted = mountinfo::at(&prepared.path).map_err(|error| Failure::system("/proc/self/mountinfo", &error))?;
    if mounted.is_some_and(|mount| mount.is_ours()) {
        return Err(Failure::new(format!("{shown}: a pando tree is mounted here already"))
            .remedy(format!("unmount it first (pando umount {shown}), or choose another directory")));
    }
    if !nonempty {
        let mut entries = std::fs::read_dir(held.path()).map_err(|error| Failure::system(&shown, &error))?;
        if entries.next().is_some() {
            return Err(Failure::new(format!("{shown}: not empty: mounting would hide what is in it")).remedy(
                "choose another directory, or add --nonempty (-o nonempty) to hide its entries until it is unmounted",
            ));
        }
    }
    Ok(held)
}

fn make(dir: &Path) -> Result<Made> {
    let shown = for_shell(dir);
    if dir.is_symlink() {
        return Err(Failure::new(format!("{shown}: a symbolic link that points nowhere"))
            .remedy("create the directory it points to, or name another one"));
    }
    let above = match dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    let made = || {
        let parent = held::open(CWD, above, OFlags::empty())?;
        // A path that ends in `..` has no name. Its directory exists if the parent does.
        let name = dir.file_name().ok_or(Errno::EXIST)?.to_owned();
        rustix::fs::mkdirat(&parent, &name, Mode::from_raw_mode(0o777))?;
        Ok(Made { parent, name })
    };
    made().map_err(|error: Errno| match error {
        Errno::NOENT => {
            let parent = for_shell(above);
            Failure::new(format!("{shown}: cannot be created: its parent {parent} does not exist"))
                .remedy(format!("create that first: mkdir -p {parent}"))
        }
        error => Failure::system(format_args!("{shown}: cannot be created"), &error.into()),
    })
}

/// Removes a dead mount of pando.
fn clean(dir: &Path) -> Result<()> {
    let shown = for_shell(dir);
    let path = held::resolve(dir).map_err(|error| Failure::system(&shown, &error))?;
    let mount = mountinfo::at(&path).map_err(|error| Failure::system("/proc/self/mountinfo", &error))?;
    match mount {
        Some(mount) if mount.is_ours() => {
            // Lazily: a process with an open file there cannot use it any more, and must not delay
            // this mount.
            held::detach(&path, Some(&mount.device)).map_err(|error| {
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
    fn directories_are_created_and_checked() {
        let temp = tempfile::tempdir().unwrap();
        let new = temp.path().join("new");
        drop(prepare(&new, false).unwrap());
        assert!(!new.exists(), "nothing was mounted on it");
        let mut prepared = prepare(&new, false).unwrap();
        prepared.0.keep();
        drop(prepared);
        let (prepared, held) = prepare(&new, false).unwrap();
        assert_eq!((&prepared.path, prepared.cleaned), (&new.canonicalize().unwrap(), false));
        assert!(prepared.made.is_none());
        assert_eq!(held.path().canonicalize().unwrap(), prepared.path);

        std::fs::write(new.join("entry"), "").unwrap();
        assert!(prepare(&new, false).unwrap_err().to_string().contains("--nonempty"));
        assert_eq!(prepare(&new, true).unwrap().0.path, prepared.path);

        let file = prepare(&new.join("entry"), false).unwrap_err().to_string();
        assert!(file.contains("entry: not a directory"), "{file}");
        let orphan = prepare(&temp.path().join("a/b"), false).unwrap_err().to_string();
        assert!(orphan.contains("mkdir -p"), "{orphan}");
        std::os::unix::fs::symlink("nowhere", temp.path().join("link")).unwrap();
        let link = prepare(&temp.path().join("link"), false).unwrap_err().to_string();
        assert!(link.contains("points nowhere"), "{link}");
    }

    /// The owner of the parent may replace a directory that was just created.
    #[test]
    fn only_the_created_directory_is_mounted_on() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().canonicalize().unwrap().join(name);
        for name in ["full", "empty", "above", "elsewhere/new"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        std::fs::write(path("full/entry"), "").unwrap();
        let made =
            |name: &str| Prepared { path: PathBuf::new(), cleaned: false, made: Some(make(&path(name)).unwrap()) };
        for target in ["full", "empty"] {
            let mut prepared = made("new");
            std::fs::rename(path("new"), path(&format!("old-{target}"))).unwrap();
            std::os::unix::fs::symlink(path(target), path("new")).unwrap();
            assert!(check(&path("new"), &mut prepared, false).is_err(), "{target}");
            drop(prepared);
            std::fs::remove_file(path("new")).unwrap();
        }
        let mut prepared = made("new");
        std::fs::rename(path("new"), path("old")).unwrap();
        std::fs::rename(path("full"), path("new")).unwrap();
        assert!(check(&path("new"), &mut prepared, false).unwrap_err().to_string().contains("not empty"));
        // A link has taken the place of the parent. The created directory is mounted on all the
        // same.
        let mut prepared = made("above/new");
        std::fs::rename(path("above"), path("moved")).unwrap();
        std::os::unix::fs::symlink(path("elsewhere"), path("above")).unwrap();
        let held = check(&path("above/new"), &mut prepared, false).unwrap();
        assert_eq!((&prepared.path, held.path().canonicalize().unwrap()), (&path("moved/new"), path("moved/new")));
        drop(prepared);
        assert!(!path("moved/new").exists() && path("elsewhere/new").exists(), "the created directory is removed");
    }
}
