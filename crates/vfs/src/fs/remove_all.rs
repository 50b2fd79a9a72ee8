//! Removing a tree.
//!
//! Difficulties, and what answers each:
//! 1. *Another thread swaps a directory for a symbolic link* during the removal: each step opens
//!    one name in a directory that is open already, and follows nothing. It never leaves the tree.
//! 2. *A tree may be deeper than the stack, or its paths longer than PATH_MAX*: the way down is a
//!    list of open directories.
//! 3. *Other threads remove entries, too*: an entry that has disappeared is no error.
//! 4. *Other threads add entries*: a directory that is not empty after its scan is scanned again,
//!    at most [`RESCANS`] times.

use std::path::Path;

use crate::{At, Error, File, FileKind, Result, Walk, fs::Fs};

/// How many times a directory is scanned again because other threads add entries.
const RESCANS: u32 = 16;
/// How many names are read at once.
const BATCH: usize = 256;

/// A directory on the way down.
struct Level {
    dir: File,
    /// Its name in the level above.
    name: Vec<u8>,
    /// Entries that were read and not removed yet.
    todo: Vec<(Vec<u8>, FileKind)>,
    cookie: u64,
    rescans: u32,
}

impl Fs {
    /// Removes a directory and all its contents. A symbolic link is removed and not followed, also
    /// if another thread puts it there during the call. An entry that another thread removes is no
    /// error.
    ///
    /// # Errors
    /// ENOTDIR if the file is neither a directory nor a symbolic link, ENOTEMPTY if other threads
    /// keep adding entries, and those of [`Fs::remove_file`] and [`Fs::remove_dir`]. Entries that
    /// were removed before the error stay removed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        remove_dir_all(self, path.as_ref())
    }
}

fn remove_dir_all(fs: &Fs, path: &Path) -> Result<()> {
    let bytes = without_slashes(super::bytes(path));
    let stat = fs.vfs.stat(&fs.context, At::Cwd, bytes, Walk::NOFOLLOW)?;
    if stat.is_symlink() {
        return fs.vfs.unlink(&fs.context, At::Cwd, bytes);
    }
    let mut levels = vec![open(fs, At::Cwd, bytes)?];
    while let Some(level) = levels.last_mut() {
        if let Some((name, kind)) = level.next()? {
            if let Some(below) = remove_or_open(fs, level, &name, kind)? {
                levels.push(below);
            }
            continue;
        }
        let Some(mut emptied) = levels.pop() else { break };
        let removed = match levels.last() {
            Some(above) => fs.vfs.rmdir(&fs.context, At::Dir(above.dir.dentry()), &emptied.name),
            None => fs.vfs.rmdir(&fs.context, At::Cwd, bytes),
        };
        match removed {
            Ok(()) | Err(Error::NoEntry) => {}
            Err(Error::NotEmpty) if emptied.rescans < RESCANS => {
                emptied.rescans += 1;
                emptied.cookie = 0;
                levels.push(emptied);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The path without trailing slashes. With a trailing slash a walk would follow a symbolic link.
fn without_slashes(path: &[u8]) -> &[u8] {
    let name_end = path.iter().rposition(|byte| *byte != b'/').map(|last| last + 1);
    &path[..name_end.unwrap_or(path.len().min(1))]
}

fn open(fs: &Fs, at: At<'_>, name: &[u8]) -> Result<Level> {
    let dir = fs.open_dir_itself(at, name)?;
    Ok(Level { dir, name: name.to_vec(), todo: Vec::new(), cookie: 0, rescans: 0 })
}

/// Removes an entry, or opens it if it is a directory. What it was when it was read is a hint.
fn remove_or_open(fs: &Fs, level: &Level, name: &[u8], kind: FileKind) -> Result<Option<Level>> {
    let at = At::Dir(level.dir.dentry());
    if kind != FileKind::Directory {
        match fs.vfs.unlink(&fs.context, at, name) {
            Ok(()) | Err(Error::NoEntry) => return Ok(None),
            Err(Error::IsDirectory) => {}
            Err(error) => return Err(error),
        }
    }
    match open(fs, at, name) {
        Ok(below) => Ok(Some(below)),
        Err(Error::NoEntry) => Ok(None),
        // Swapped for something else meanwhile.
        Err(Error::NotDirectory | Error::Loop) => match fs.vfs.unlink(&fs.context, at, name) {
            Ok(()) | Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    }
}

impl Level {
    /// The next entry; none at the end, or when somebody removed the directory.
    fn next(&mut self) -> Result<Option<(Vec<u8>, FileKind)>> {
        if self.todo.is_empty() {
            let (todo, cookie) = (&mut self.todo, &mut self.cookie);
            let scanned = self.dir.readdir(*cookie, |entry| {
                if todo.len() == BATCH {
                    return false;
                }
                *cookie = entry.cookie;
                if !matches!(entry.name, b"." | b"..") {
                    todo.push((entry.name.to_vec(), entry.kind));
                }
                true
            });
            match scanned {
                Ok(()) | Err(Error::NoEntry) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.todo.pop())
    }
}
