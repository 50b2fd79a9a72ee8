//! The page on which the helper shows programs whom to tell, and what not to tell of.
//!
//! A file that programs map read-only. It is written with `pwrite`, which a shared mapping sees, so that no memory is
//! shared in the other direction. Each field is an aligned word of its own and any mixture of old and new is right: the
//! worst that a stale interval does is one message too many or too few.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Mutex,
};

use rustix::fs::{FlockOperation, OFlags, flock, fstat};

/// The first word of the page and of each message; the digit is the version of both.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"pdoboot2");

/// How many devices there is room for. Programs tell of every directory on the others.
const DEVICES: usize = 32;

/// Programs look at the device of one directory in at most so many.
const MOST_EVERY: u32 = 8;

/// The interval that means: tell of no directory on this device.
pub(crate) const NEVER: u32 = u32::MAX;

// The layout, in bytes. Its reader is crates/preload/src/preload.c.
const ALIVE: u64 = 8;
const COUNT: u64 = 12;
const NAME_LENGTH: u64 = 16;
const EVERY: u64 = 20;
const NAME: u64 = 24;
const NAME_MAX: usize = 64;
const FILTERS: u64 = NAME + NAME_MAX as u64;
const FIRST_DEVICE: u64 = FILTERS + 8;
const DEVICE_SIZE: u64 = 16;
const SIZE: u64 = 4096;
const _: () = assert!(FIRST_DEVICE + DEVICE_SIZE * DEVICES as u64 <= SIZE);

/// What names of pages begin with.
const PREFIX: &str = "board.";

/// The page. Dropped, it says that nobody listens, and is removed.
#[derive(Debug)]
pub(crate) struct Board {
    file: File,
    path: PathBuf,
    /// Devices and their intervals, in the order of the page.
    devices: Mutex<Vec<(u64, u32)>>,
}

impl Board {
    /// A new page in `directory`, for the helper that listens at `name`.
    ///
    /// # Errors
    /// Those of creating a file of one page there.
    pub(crate) fn create(directory: &Path, name: &[u8]) -> io::Result<Self> {
        assert!(name.len() <= NAME_MAX, "a name that fits");
        remove_stale(directory);
        let path = directory.join(format!("{PREFIX}{}", String::from_utf8_lossy(name)));
        let file = create_locked(&path)?;
        let board = Self { file, path, devices: Mutex::default() };
        // Programs that drop their privileges read it, whatever our umask is.
        board.file.set_permissions(PermissionsExt::from_mode(0o644))?;
        board.file.set_len(SIZE)?;
        board.file.write_all_at(name, NAME)?;
        board.word(NAME_LENGTH, u32::try_from(name.len()).expect("at most 64"))?;
        board.file.write_all_at(&filters().to_ne_bytes(), FILTERS)?;
        board.word(ALIVE, 1)?;
        board.file.write_all_at(&MAGIC.to_ne_bytes(), 0)?;
        Ok(board)
    }

    /// Where it is: the value of `PANDO_BOOST`.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Tell of one directory in `interval` on `device` from now on.
    pub(crate) fn set_interval(&self, device: u64, interval: u32) {
        let mut devices = self.devices.lock().expect("no holder panics");
        let known = devices.iter().position(|&(known, _)| known == device);
        let index = known.unwrap_or(devices.len());
        if index == DEVICES {
            return;
        }
        let at = FIRST_DEVICE + DEVICE_SIZE * index as u64;
        // A failure leaves programs telling more than they need to, which is no harm.
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

    /// Says that nobody listens any more, and removes the file. Programs that have it mapped still see it.
    pub(crate) fn take_down(&self) {
        let _ = self.word(ALIVE, 0);
        let _ = fs::remove_file(&self.path);
    }

    fn word(&self, at: u64, value: u32) -> io::Result<()> {
        self.file.write_all_at(&value.to_ne_bytes(), at)
    }
}

/// How this process's system calls are filtered: the mode and the number of filters (seccomp). A program with another number
/// has a filter of its own, which does not know of the calls that the library makes.
fn filters() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let number =
        |name| status.lines().find_map(|line| line.strip_prefix(name)).and_then(|text| text.trim().parse().ok());
    number("Seccomp:").unwrap_or(0) << 32 | number("Seccomp_filters:").unwrap_or(0)
}

/// A new file that is locked for as long as we live, however we end: who can lock it knows that its owner is dead.
fn create_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
        // Where there are no locks, nobody takes one and removes it.
        let _ = flock(&file, FlockOperation::LockExclusive);
        // Another helper may have had the lock first, and taken the file for a dead one's.
        if fstat(&file)?.st_nlink > 0 {
            return Ok(file);
        }
    }
}

/// Removes the pages of helpers that were killed. The directory is ours alone to write, and so is what is in it.
fn remove_stale(directory: &Path) {
    let pages = fs::read_dir(directory).into_iter().flatten().flatten();
    for page in pages.filter(|page| page.file_name().as_bytes().starts_with(PREFIX.as_bytes())) {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(page.path()) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && fstat(&file).is_ok_and(|found| found.st_nlink > 0)
            && let Err(error) = fs::remove_file(page.path())
        {
            tracing::debug!(%error, path = %page.path().display(), "of a helper that was killed");
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.take_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: u64) -> u32 {
        let at = usize::try_from(at).unwrap();
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn shows_intervals_and_says_when_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let board = Board::create(directory.path(), b"here").unwrap();
        let path = board.path().to_owned();
        let open = File::open(&path).unwrap();
        board.set_interval(7, 4);
        board.set_interval(9, 2);
        board.set_interval(7, NEVER);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 4096);
        assert_eq!((word(&bytes, ALIVE), word(&bytes, COUNT), word(&bytes, NAME_LENGTH)), (1, 2, 4));
        assert_eq!(word(&bytes, FIRST_DEVICE + 8), NEVER);
        assert_eq!(word(&bytes, EVERY), 2, "the least of them");
        assert_eq!(word(&bytes, FIRST_DEVICE + DEVICE_SIZE), 9);
        assert_eq!(word(&bytes, FIRST_DEVICE + DEVICE_SIZE + 8), 2);
        drop(board);
        let mut alive = [9; 4];
        open.read_exact_at(&mut alive, ALIVE).unwrap();
        assert_eq!(alive, [0; 4]);
        assert!(!path.exists());
    }

    #[test]
    fn more_devices_than_there_is_room_for_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let board = Board::create(directory.path(), b"here").unwrap();
        (0..40).for_each(|device| board.set_interval(device, 2));
        let bytes = fs::read(board.path()).unwrap();
        assert_eq!((bytes.len(), word(&bytes, COUNT)), (4096, 32));
    }
}
