//! The size of the tests of listings, and the directory that has entries of every kind.
//!
//! `.ci/long` runs with `PANDO_LS_ENTRIES=500000`. Without it the tests are small enough for every
//! day.

use std::{
    collections::HashMap,
    ffi::OsString,
    fmt, fs,
    io::Write as _,
    os::unix::{
        ffi::OsStringExt,
        fs::{FileExt, symlink},
    },
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Instant,
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use crate::{
    acl::access_list,
    common::{pando, said},
    find::{agree, xattrs_agree},
    tree::{NAMES, on_each_empty_file_system},
};

const EVERY_DAY: usize = 2000;

fn asked() -> Option<usize> {
    let text = std::env::var("PANDO_LS_ENTRIES").ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("PANDO_LS_ENTRIES={text} is not a number")))
}

/// The number of entries in the directory of every kind.
fn entries() -> usize {
    asked().unwrap_or(EVERY_DAY)
}

/// Whether the large tests were requested.
pub fn is_full() -> bool {
    asked().is_some()
}

/// The number of entries in a directory that exceeds all memory: 3,000,000 for the 500,000 of
/// `.ci/long`.
pub fn many() -> usize {
    asked().map_or(200_000, |entries| 6 * entries)
}

/// Prints a result of a large test.
pub fn say(what: fmt::Arguments<'_>) {
    if is_full() {
        let _ = writeln!(std::io::stderr(), "{what}");
    }
}

/// A name that no other number has. Odd names recur.
fn name(number: usize) -> OsString {
    let mut name = NAMES[number % NAMES.len()].to_vec();
    let suffix = format!("{number:x}");
    name.truncate(255 - suffix.len());
    name.extend_from_slice(suffix.as_bytes());
    OsString::from_vec(name)
}

/// Creates an entry. The number determines its kind.
fn make(path: &Path, number: usize, last_file: &mut OsString) {
    let node = |kind, device| rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o640), device).unwrap();
    match number % 16 {
        0 => fs::create_dir(path).unwrap(),
        1 => symlink(name(number / 2), path).unwrap(),
        2 => node(FileType::Fifo, 0),
        3 => node(FileType::Socket, 0),
        // XFS has 9 bits for the first number, and 18 for the second.
        4 => node(FileType::CharacterDevice, rustix::fs::makedev(number as u32 & 0x1ff, number as u32 & 0x3_ffff)),
        5 => node(FileType::BlockDevice, rustix::fs::makedev(259, number as u32 & 0x3_ffff)),
        6 if !last_file.is_empty() => fs::hard_link(path.with_file_name(&last_file), path).unwrap(),
        kind => {
            let file = fs::File::create(path).unwrap();
            match kind {
                // Holes, with a byte between them.
                7 => file.set_len(number as u64 * 4097).unwrap(),
                8 => file.write_all_at(b"x", number as u64).unwrap(),
                9 if number % 64 == 9 => file.write_all_at(&[b'x'; 100][..number % 100], 0).unwrap(),
                _ => {}
            }
            *last_file = path.file_name().unwrap().to_owned();
        }
    }
}

fn adorn(path: &Path, number: usize) {
    let is_link = number % 16 == 1;
    let can_have_user_attributes = matches!(number % 16, 0 | 6..);
    if number.is_multiple_of(3) && can_have_user_attributes {
        let value = vec![number as u8; number % 40];
        rustix::fs::lsetxattr(path, "user.grove", &value, XattrFlags::empty()).unwrap();
    }
    if number.is_multiple_of(5) && !is_link {
        let value = access_list(number as u32, [6, 4, 4, 4, 0]);
        rustix::fs::lsetxattr(path, "system.posix_acl_access", &value, XattrFlags::empty()).unwrap();
    }
    if number.is_multiple_of(7) {
        std::os::unix::fs::lchown(path, Some(number as u32), Some(number as u32 % 1000)).unwrap();
    }
    // In the past: the first listing updates an atime that listings update.
    let time = Timespec { tv_sec: number as i64 * 1009 % 1_600_000_000, tv_nsec: number as i64 % 1_000_000_000 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn fill(root: &Path, count: usize) {
    let mut last_file = OsString::new();
    for number in 0..count {
        let path = root.join(name(number));
        make(&path, number, &mut last_file);
        adorn(&path, number);
    }
}

#[test]
fn json_and_find_agree_on_a_large_directory() {
    if !crate::common::is_root() || !crate::common::has(&["find"]) {
        return;
    }
    let count = entries();
    on_each_empty_file_system(count as u64, |kind, root| {
        let begun = Instant::now();
        fill(root, count);
        let made = begun.elapsed();
        agree(root);
        let agreed = begun.elapsed();
        let xattrs = xattrs_agree(root);
        assert!(xattrs > count / 3, "{xattrs}");
        say(format_args!(
            "{kind}: {count} entries made in {:.0?}, every field compared in {:.0?}, {xattrs} extended attributes in \
             {:.0?}",
            made,
            agreed - made,
            begun.elapsed() - agreed
        ));
    });
}

/// How often each permanent name was listed.
fn staying(root: &Path, options: &[&str]) -> HashMap<Vec<u8>, u32> {
    let output = pando(&["ls", "-0"]).args(options).arg(root).output().unwrap();
    // Entries that are removed meanwhile may be reported.
    assert!(output.status.code().is_some_and(|code| code <= 1), "{options:?}: {}", said(&output));
    assert!(!said(&output).contains("stays"), "{}", said(&output));
    let mut seen = HashMap::new();
    for line in output.stdout.split(|&byte| byte == 0) {
        if let Some(at) = line.windows(5).position(|bytes| bytes == b"stays") {
            *seen.entry(line[at..].to_vec()).or_default() += 1;
        }
    }
    seen
}

#[test]
fn under_churn_permanent_names_are_listed_once() {
    let count = entries();
    on_each_empty_file_system(2 * count as u64, |kind, root| {
        for number in 0..count {
            fs::write(root.join(format!("stays{number}")), "").unwrap();
        }
        let (stop, changes) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let path = |number: u64| root.join(format!("goes{}", number % count as u64));
                for turn in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // Created, moved, removed, in waves of different lengths.
                    fs::write(path(turn * 7919), "").unwrap();
                    let _ = fs::rename(path(turn * 31), path(turn * 37));
                    let _ = fs::remove_file(path(turn * 101));
                    changes.store(turn, Ordering::Relaxed);
                }
            });
            let stopper = Stopper(&stop);
            for options in [&["-U"][..], &["-lU"], &["-l"], &["-R"]] {
                let before = changes.load(Ordering::Relaxed);
                loop {
                    let seen = staying(root, options);
                    assert_eq!(seen.len(), count, "{kind}, {options:?}: entries were lost");
                    assert!(seen.values().all(|&times| times == 1), "{kind}, {options:?}: an entry was doubled");
                    if changes.load(Ordering::Relaxed) > before + 20 {
                        break;
                    }
                }
            }
            drop(stopper);
        });
        say(format_args!("{kind}: {count} that stay, {} changes", changes.into_inner()));
    });
}

/// Even if the listing fails, the thread must end.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
