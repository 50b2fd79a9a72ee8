//! Puts the preload library where every program can load it.
//!
//! The file is named by its contents, one for each user and version, and stays. A process that
//! outlives `pando boost` (a daemon that git started) still has the library's name in its
//! environment, and the dynamic linker would complain in each of its children if the file were
//! missing. It is in a temporary directory, since programs that have dropped their privileges must
//! be able to read it. That rules out the user's home and run-time directories.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{OFlags, StatVfsMountFlags};

const NAME: &str = "libpando_boost.so";

/// Puts the library in a directory to which only this user can write, and in which `begin` succeeds
/// too. Returns the library's path and the result of `begin`.
///
/// # Errors
/// No directory for temporary files is usable. The error names each with its reason.
pub(crate) fn place<T>(begin: impl Fn(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    if pando_preload::LIBRARY.is_empty() {
        return Err(io::Error::other("this pando was built without a C compiler, so it has no library to preload"));
    }
    let candidates = env::var_os("TMPDIR").map(PathBuf::from).into_iter();
    let candidates = candidates.chain(["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from));
    let mut reasons = Vec::new();
    for base in candidates {
        let placed = place_under(&base, pando_preload::LIBRARY);
        let directory = |path: &PathBuf| path.parent().expect("a file in a directory").to_owned();
        match placed.and_then(|path| Ok((begin(&directory(&path))?, path))) {
            Ok((begun, path)) => return Ok((path, begun)),
            Err(error) => reasons.push(format!("{}: {error}", base.display())),
        }
    }
    Err(io::Error::other(format!("no place for {NAME}: {}", reasons.join("; "))))
}

fn place_under(base: &Path, library: &[u8]) -> io::Result<PathBuf> {
    if !base.is_absolute() || base.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
        return Err(io::Error::other("LD_PRELOAD has no way to write this path"));
    }
    if rustix::fs::statvfs(base)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(io::Error::other("mounted noexec"));
    }
    let user = rustix::process::geteuid().as_raw();
    let directory = base.join(format!("pando-boost-{user}-{:016x}", fingerprint(library)));
    own_directory(&directory, 0o755)?;
    let path = directory.join(NAME);
    if !is_right(&path, library) {
        write(&directory, &path, library)?;
    }
    Ok(path)
}

/// Creates a directory of this mode, unless it exists, and checks that only this user can write to
/// it.
///
/// # Errors
/// It cannot be created, or another user owns it or may have written to it.
pub(crate) fn own_directory(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let open = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = open.metadata()?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("{} belongs to another user, or others may write to it", path.display())));
    }
    open.set_permissions(Permissions::from_mode(mode))
}

fn is_right(path: &Path, library: &[u8]) -> bool {
    let readable = File::open(path).and_then(|file| file.metadata()).is_ok_and(|found| found.mode() & 0o444 == 0o444);
    readable && fs::read(path).is_ok_and(|bytes| bytes == library)
}

/// Writes a file beside it and renames it, so a program that starts meanwhile finds the old or the
/// new library, and all of it.
fn write(directory: &Path, path: &Path, library: &[u8]) -> io::Result<()> {
    let beside = directory.join(format!("{NAME}.{}", std::process::id()));
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(&beside)?;
    file.set_permissions(Permissions::from_mode(0o755))?;
    let done = file.write_all(library).and_then(|()| fs::rename(&beside, path));
    if done.is_err() {
        let _ = fs::remove_file(&beside);
    }
    done
}

/// FNV-1a (Fowler, Noll and Vo, 1991). It distinguishes versions. It is no protection: that is the
/// owner of the directory.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_is_written_once_and_repaired() {
        let base = tempfile::tempdir().unwrap();
        let path = place_under(base.path(), b"library").unwrap();
        let first = fs::metadata(&path).unwrap();
        assert_eq!(first.mode() & 0o777, 0o755);
        assert_eq!(place_under(base.path(), b"library").unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), first.ino());
        fs::write(&path, b"half").unwrap();
        assert_eq!(place_under(base.path(), b"library").unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"library");
        assert_ne!(place_under(base.path(), b"another").unwrap(), path);
    }

    #[test]
    fn directory_that_others_may_write_to_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = place_under(base.path(), b"library").unwrap();
        fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
        let error = place_under(base.path(), b"library").unwrap_err();
        assert!(error.to_string().contains("another user"), "{error}");
    }

    #[test]
    fn link_in_place_of_the_directory_is_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let path = place_under(base.path(), b"library").unwrap();
        let directory = path.parent().unwrap();
        fs::rename(directory, base.path().join("moved")).unwrap();
        std::os::unix::fs::symlink("moved", directory).unwrap();
        place_under(base.path(), b"library").unwrap_err();
    }

    #[test]
    fn path_that_the_variable_cannot_hold_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let odd = base.path().join("with space");
        fs::create_dir(&odd).unwrap();
        let error = place_under(&odd, b"library").unwrap_err();
        assert!(error.to_string().contains("LD_PRELOAD"), "{error}");
        place_under(Path::new("tmp"), b"library").unwrap_err();
    }
}
