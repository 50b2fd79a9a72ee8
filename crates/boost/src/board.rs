//! The page on which the helper tells programs what to report.
//!
//! It is a file that programs map read-only. The helper writes it with `pwrite`, which a shared
//! mapping sees, so no memory is shared in the other direction. Each field is an aligned word, and
//! any mixture of old and new values is valid: a stale interval causes one message too many or too
//! few.

use std::{
    fs::{self, File, OpenOptions},
    hash::{BuildHasher, RandomState},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Mutex,
};

use rustix::fs::{AtFlags, CWD, FlockOperation, OFlags, flock, fstat};

use crate::{
    ask::{Identity, identity_at},
    library::own_directory,
};

/// The first word of the page and of each message. The digit is the version of both.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"pdoboot4");

/// The number of devices that fit. Programs report every directory on the others.
const DEVICES: usize = 32;

/// Programs look up the device of at least one directory in so many.
const MOST_EVERY: u32 = 8;

/// The interval for a device on which no directory is to be reported.
pub(crate) const NEVER: u32 = u32::MAX;

// The layout, in bytes. It is read by crates/preload/src/preload.c.
const ALIVE: u64 = 8;
const COUNT: u64 = 12;
const EVERY: u64 = 16;
const SOCKET: u64 = 20;
const SOCKET_MAX: usize = 108;
const SOCKET_DEVICE: u64 = SOCKET + SOCKET_MAX as u64;
const SOCKET_INODE: u64 = SOCKET_DEVICE + 8;
const FILTERS: u64 = SOCKET_INODE + 8;
const FIRST_DEVICE: u64 = FILTERS + 8;
const DEVICE_SIZE: u64 = 16;
const SIZE: u64 = 4096;
const _: () = assert!(FIRST_DEVICE + DEVICE_SIZE * DEVICES as u64 <= SIZE);

/// The prefix of a page's name. The rest is the name of the socket.
const PREFIX: &str = "board.";

/// The directory of the sockets, beside the pages.
const SOCKETS: &str = "sockets";

/// The page. Dropping it marks it as dead, and removes it and the socket.
#[derive(Debug)]
pub(crate) struct Board {
    file: File,
    path: PathBuf,
    socket: PathBuf,
    /// Devices and their intervals, in the order of the page.
    devices: Mutex<Vec<(u64, u32)>>,
}

impl Board {
    /// A new page in `directory`, which programs ignore until [`Board::show`]. It exists before the
    /// socket, and is locked as long as the helper lives. So a helper that finds the page of one
    /// that was killed finds its socket too.
    ///
    /// # Errors
    /// Those of creating a file of one page there, and a directory.
    pub(crate) fn create(directory: &Path) -> io::Result<Self> {
        let sockets = directory.join(SOCKETS);
        own_directory(&sockets, 0o700)?;
        remove_stale(directory);
        let number = std::process::id();
        // Otherwise a process of another PID namespace could have the same name.
        let random = RandomState::new().hash_one(number) >> 32;
        let name = format!("{number}-{random:08x}");
        let path = directory.join(format!("{PREFIX}{name}"));
        let file = create_locked(&path)?;
        let board = Self { file, path, socket: sockets.join(name), devices: Mutex::default() };
        // Programs that have dropped their privileges read it, whatever the umask of the helper.
        board.file.set_permissions(PermissionsExt::from_mode(0o644))?;
        board.file.set_len(SIZE)?;
        Ok(board)
    }

    /// The path of the socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Tells programs the socket, which exists now.
    ///
    /// # Errors
    /// Those of writing the page, and of statx on the socket.
    pub(crate) fn show(&self) -> io::Result<()> {
        let name = self.socket.as_os_str().as_bytes();
        assert!(name.len() < SOCKET_MAX, "no socket has a longer one");
        let Identity { device, inode } = identity_at(CWD, &self.socket, AtFlags::SYMLINK_NOFOLLOW)?;
        self.file.write_all_at(name, SOCKET)?;
        for (at, value) in [(SOCKET_DEVICE, device), (SOCKET_INODE, inode), (FILTERS, filters())] {
            self.file.write_all_at(&value.to_ne_bytes(), at)?;
        }
        self.word(ALIVE, 1)?;
        self.file.write_all_at(&MAGIC.to_ne_bytes(), 0)
    }

    /// The path of the page: the value of `PANDO_BOOST`.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// From now on, one directory in `interval` on `device` is to be reported.
    pub(crate) fn set_interval(&self, device: u64, interval: u32) {
        let mut devices = self.devices.lock().expect("no holder panics");
        let known = devices.iter().position(|&(known, _)| known == device);
        let index = known.unwrap_or(devices.len());
        if index == DEVICES {
            return;
        }
        let at = FIRST_DEVICE + DEVICE_SIZE * index as u64;
        // A failure makes programs report more than necessary, which is harmless.
        let mut written = self.word(at + 8, interval);
        match known {
            Some(index) => devices[index].1 = interval,
            None => {
                devices.push((device, interval));
                let count = u32::try_from(devices.len()).expect("at most 32");
                written = written
                    .and_then(|()| self.file.write_all_at(&device.to_ne_bytes(), at))
                    .and_then(|()| self.word(COUNT, count));
            }
        }
        let least = devices.iter().map(|&(_, interval)| interval).min().unwrap_or(1);
        written = written.and_then(|()| self.word(EVERY, least.min(MOST_EVERY)));
        if let Err(error) = written {
            tracing::debug!(%error, path = %self.path.display(), "cannot be written");
        }
    }

    /// Marks the page as dead, and removes the socket and the file. Programs that have it mapped
    /// still see the mark.
    pub(crate) fn shut_down(&self) {
        let _ = self.word(ALIVE, 0);
        let _ = remove(&self.socket, &self.path);
    }

    fn word(&self, at: u64, value: u32) -> io::Result<()> {
        self.file.write_all_at(&value.to_ne_bytes(), at)
    }
}

/// The filters on this process's system calls: the mode and the number of filters (seccomp). A
/// program with another number has a filter of its own, which does not know the calls of the
/// library.
fn filters() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let number =
        |name| status.lines().find_map(|line| line.strip_prefix(name)).and_then(|text| text.trim().parse().ok());
    number("Seccomp:").unwrap_or(0) << 32 | number("Seccomp_filters:").unwrap_or(0)
}

/// A new file that is locked until the process ends, in whatever way. A process that can lock it
/// knows that its owner is dead.
fn create_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
        // On file systems without locks, no helper can take the lock and remove the file.
        let _ = flock(&file, FlockOperation::LockExclusive);
        // Another helper may have taken the lock first, and have removed the file as one of a dead
        // owner.
        if fstat(&file)?.st_nlink > 0 {
            return Ok(file);
        }
    }
}

/// Removes the pages and sockets of helpers that were killed. Only this user can write to the
/// directory, so its contents can be trusted.
fn remove_stale(directory: &Path) {
    for page in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Some(name) = page.file_name().to_str().and_then(|name| name.strip_prefix(PREFIX)).map(str::to_owned) else {
            continue;
        };
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(page.path()) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && fstat(&file).is_ok_and(|found| found.st_nlink > 0)
            && let Err(error) = remove(&directory.join(SOCKETS).join(name), &page.path())
        {
            tracing::debug!(%error, path = %page.path().display(), "of a helper that was killed");
        }
    }
}

/// The page is removed last: as long as it exists, the socket can be found.
fn remove(socket: &Path, page: &Path) -> io::Result<()> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::remove_file(page),
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.shut_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: u64) -> u32 {
        let at = usize::try_from(at).unwrap();
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn shown(directory: &Path) -> Board {
        let board = Board::create(directory).unwrap();
        fs::write(board.socket(), "").unwrap();
        board.show().unwrap();
        board
    }

    #[test]
    fn page_has_intervals_and_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let board = shown(directory.path());
        let (path, socket) = (board.path().to_owned(), board.socket().to_owned());
        let open = File::open(&path).unwrap();
        board.set_interval(7, 4);
        board.set_interval(9, 2);
        board.set_interval(7, NEVER);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 4096);
        assert_eq!((word(&bytes, ALIVE), word(&bytes, COUNT)), (1, 2));
        let name = [socket.as_os_str().as_bytes(), b"\0"].concat();
        assert!(bytes[usize::try_from(SOCKET).unwrap()..].starts_with(&name));
        assert_eq!(word(&bytes, FIRST_DEVICE + 8), NEVER);
        assert_eq!(word(&bytes, EVERY), 2, "the smallest of them");
        assert_eq!(word(&bytes, FIRST_DEVICE + DEVICE_SIZE), 9);
        assert_eq!(word(&bytes, FIRST_DEVICE + DEVICE_SIZE + 8), 2);
        drop(board);
        let mut alive = [9; 4];
        open.read_exact_at(&mut alive, ALIVE).unwrap();
        assert_eq!(alive, [0; 4]);
        assert!(!path.exists() && !socket.exists());
    }

    #[test]
    fn devices_beyond_the_page_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let board = shown(directory.path());
        (0..40).for_each(|device| board.set_interval(device, 2));
        let bytes = fs::read(board.path()).unwrap();
        assert_eq!((bytes.len(), word(&bytes, COUNT)), (4096, 32));
    }
}
