//! Removing a tree.
//!
//! Difficulties, and what answers each:
//! 1. *Somebody swaps a directory for a symbolic link* while we go down: each step starts at the
//!    directory that is open, takes one name and follows nothing, so we never leave the tree.
//! 2. *A tree may be deeper than a stack, or than a path may be long*: the way down is a list, one
//!    open directory each.
//! 3. *Others remove too*: what is gone is what we wanted.
//! 4. *Others add*: a directory that is not empty after its scan is scanned again, a few times.

use std::path::Path;

use crate::{At, Error, File, FileKind, OpenFlags, Result, Walk, fs::Fs};

/// How often a directory is scanned anew because somebody added to it.
const RESCANS: u32 = 16;
/// How many names are gathered at once.
const BATCH: usize = 256;

/// A directory on the way down.
struct Level {
    dir: File,
    /// Its name in the level above.
    name: Vec<u8>,
    /// Gathered entries that are still to be removed.
    todo: Vec<(Vec<u8>, FileKind)>,
    cookie: u64,
    rescans: u32,
}

impl Fs {
    /// Removes a directory and everything in it. A symbolic link is removed, not followed: neither
    /// at the path's end nor within, also if somebody puts it there meanwhile. What others remove
    /// meanwhile is no error.
    ///
    /// # Errors
    /// ENOTDIR if it is neither directory nor symbolic link, ENOTEMPTY if others keep adding to it,
    /// and those of [`Fs::remove_file`] and [`Fs::remove_dir`]. What was removed before the failure
    /// stays removed.
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

/// A path with a slash behind it leads through a symbolic link, whoever has put it there: not so
/// without.
fn without_slashes(path: &[u8]) -> &[u8] {
    let name_end = path.iter().rposition(|byte| *byte != b'/').map(|last| last + 1);
    &path[..name_end.unwrap_or(path.len().min(1))]
}

fn open(fs: &Fs, at: At<'_>, name: &[u8]) -> Result<Level> {
    let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW;
    let dir = fs.vfs.open(&fs.context, at, name, flags, 0)?;
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
