//! The place of a mount, held while it is mounted, changed or unmounted.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use pando_console::mountinfo;
use pando_fuse::unmount;
use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
    path::Arg,
    process::Pid,
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
    matches!(Errno::from_io_error(error), Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED))
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

/// A place that stays the one that was looked at. Other users may own directories on the path to it, and could have the path
/// lead elsewhere until root mounts or unmounts there.
#[derive(Debug)]
pub struct Held {
    _dir: Option<OwnedFd>,
    path: PathBuf,
}

impl Held {
    /// The directory itself.
    pub fn directory(dir: OwnedFd) -> Self {
        Self { path: by_descriptor(&dir), _dir: Some(dir) }
    }

    /// Leads there, for this process, as long as this lives.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn by_descriptor(dir: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", dir.as_raw_fd()).into()
}

/// A directory, to be reached and not to be read.
pub fn open(at: impl AsFd, path: impl Arg, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(at, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | flags, Mode::empty())
}

/// Holds a mount by the directory that it is in. `point` is its path as mount tables have it, `device` its superblock's
/// number, if it is known. No server is asked.
///
/// # Errors
/// EINVAL: it is not there any more; what the system answers for the directory.
pub fn hold(point: &Path, device: Option<&str>) -> io::Result<Held> {
    let parent = point.parent().unwrap_or(point);
    let held = match open(CWD, parent, OFlags::empty()) {
        Ok(dir) if Path::new("/proc/self/fd").exists() => {
            let path = point.file_name().map_or_else(|| point.to_owned(), |name| by_descriptor(&dir).join(name));
            Held { _dir: Some(dir), path }
        }
        // No descriptor is left to hold it by, or there is no /proc: the path has to do.
        Ok(_) | Err(Errno::MFILE | Errno::NFILE) => Held { _dir: None, path: point.to_owned() },
        Err(error) => return Err(error.into()),
    };
    if let Some(device) = device
        && mountinfo::device(&held.path)? != device
    {
        return Err(Errno::INVAL.into());
    }
    Ok(held)
}

/// Detaches the mount that [`hold`] finds.
///
/// # Errors
/// Those of [`hold`], and of [`unmount::detach`].
pub fn detach(point: &Path, device: Option<&str>) -> io::Result<()> {
    unmount::detach(hold(point, device)?.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Or in the place of one on the path to a mount.
    #[test]
    fn what_was_held_is_unmounted_and_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        std::fs::create_dir_all(path("above/grove")).unwrap();
        let (here, proc) = (mountinfo::device(temp.path()).unwrap(), mountinfo::device(Path::new("/proc")).unwrap());
        let held = hold(&path("above/grove"), Some(&here)).unwrap();
        std::fs::rename(path("above"), path("moved")).unwrap();
        std::os::unix::fs::symlink("/", path("above")).unwrap();
        assert_eq!(held.path().canonicalize().unwrap(), path("moved/grove").canonicalize().unwrap());
        // It was looked for in the mount table before.
        let other = hold(&path("above/proc"), Some(&here)).unwrap_err();
        assert_eq!(Errno::from_io_error(&other), Some(Errno::INVAL));
        assert!(hold(Path::new("/proc"), Some(&proc)).is_ok() && hold(Path::new("/"), None).is_ok());
    }

    #[test]
    fn paths_lose_their_links() {
        let temp = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(temp.path(), temp.path().join("self")).unwrap();
        assert_eq!(resolve(&temp.path().join("self")).unwrap(), temp.path().canonicalize().unwrap());
        assert!(resolve(&temp.path().join("missing")).is_err());
    }
}
