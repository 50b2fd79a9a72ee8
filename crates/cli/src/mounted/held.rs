//! The place of a mount, held while a tree is mounted, changed or unmounted there.

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

/// Resolves `path` to an absolute path without links. It works for a dead mount too, which answers
/// ENOTCONN.
///
/// # Errors
/// Other errors of the path.
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

/// Whether a mount whose server has ended answers with this error.
fn is_dead(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED))
}

/// Whether the mount at `path` has lost its server. It asks for the statistics, because the kernel
/// never answers them from its caches. It answers attributes from its caches for a day.
pub fn dead_at(path: &Path) -> bool {
    rustix::fs::statfs(path).is_err_and(|error| is_dead(&error.into()))
}

/// The process that serves the mount at `path`, as the server says. The number is that of the
/// server's PID namespace.
pub fn server_at(path: &Path) -> Option<Pid> {
    let mut value = [0_u8; 16];
    let length = rustix::fs::getxattr(path, pando_fuse::SERVER_PID_XATTR, &mut value[..]).ok()?;
    Pid::from_raw(std::str::from_utf8(&value[..length]).ok()?.parse().ok()?)
}

/// The place of a mount, held by a descriptor. Another user may own a directory on the path, and
/// could make the path lead elsewhere before root mounts or unmounts there.
#[derive(Debug)]
pub struct Held {
    _dir: Option<OwnedFd>,
    path: PathBuf,
}

impl Held {
    /// Holds the directory itself.
    pub fn directory(dir: OwnedFd) -> Self {
        Self { path: by_descriptor(&dir), _dir: Some(dir) }
    }

    /// A path that leads to the place, for this process and as long as this value lives.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn by_descriptor(dir: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", dir.as_raw_fd()).into()
}

/// Opens a directory as a reference only (`O_PATH`).
pub fn open(at: impl AsFd, path: impl Arg, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(at, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | flags, Mode::empty())
}

/// Holds a mount by its parent directory. `point` is its path in the mount table, and `device` the
/// number of its superblock if it is known. No request goes to a server.
///
/// # Errors
/// EINVAL: the mount is not there any more. Errors of opening the parent directory.
pub fn hold(point: &Path, device: Option<&str>) -> io::Result<Held> {
    let parent = point.parent().unwrap_or(point);
    let held = match open(CWD, parent, OFlags::empty()) {
        Ok(dir) if Path::new("/proc/self/fd").exists() => {
            let path = point.file_name().map_or_else(|| point.to_owned(), |name| by_descriptor(&dir).join(name));
            Held { _dir: Some(dir), path }
        }
        // There is no free descriptor or no /proc, so the path itself has to do.
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
/// Those of [`hold`] and of [`unmount::detach`].
pub fn detach(point: &Path, device: Option<&str>) -> io::Result<()> {
    unmount::detach(hold(point, device)?.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The owner of a directory on the path to a mount may replace that directory.
    #[test]
    fn a_held_mount_stays_the_same_when_its_path_changes() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        std::fs::create_dir_all(path("above/grove")).unwrap();
        let (here, proc) = (mountinfo::device(temp.path()).unwrap(), mountinfo::device(Path::new("/proc")).unwrap());
        let held = hold(&path("above/grove"), Some(&here)).unwrap();
        std::fs::rename(path("above"), path("moved")).unwrap();
        std::os::unix::fs::symlink("/", path("above")).unwrap();
        assert_eq!(held.path().canonicalize().unwrap(), path("moved/grove").canonicalize().unwrap());
        // As if it had been found in the mount table before the path changed.
        let other = hold(&path("above/proc"), Some(&here)).unwrap_err();
        assert_eq!(Errno::from_io_error(&other), Some(Errno::INVAL));
        assert!(hold(Path::new("/proc"), Some(&proc)).is_ok() && hold(Path::new("/"), None).is_ok());
    }

    #[test]
    fn resolved_paths_have_no_links() {
        let temp = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(temp.path(), temp.path().join("self")).unwrap();
        assert_eq!(resolve(&temp.path().join("self")).unwrap(), temp.path().canonicalize().unwrap());
        assert!(resolve(&temp.path().join("missing")).is_err());
    }
}
