//! Trees that are deep, contain themselves, or extend over several file systems; and errors of the
//! caller.

use std::{
    fs,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use pando_scan::{Cause, Error, Event, Fields, MIN_BUDGET_BYTES, Mask, Options, Scan, Walk, WalkOptions, Workers};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, inotify},
    io::Errno,
};

mod common;

use common::{
    mount::{Bound, Mounted},
    temp,
};

/// The numbers of names and directories that a walk finds, and the failures.
fn walk(path: &Path, options: WalkOptions) -> (usize, usize, Vec<(Cause, i32)>) {
    let mut walk = Walk::open(path, options).unwrap();
    let (mut entries, mut directories, mut failures) = (0, 0, Vec::new());
    while let Some(event) = walk.next_event() {
        match event {
            Event::Batch(_, batch) => entries += batch.len(),
            Event::Enter(_) => directories += 1,
            Event::Failed(failure) => failures.push((failure.cause, failure.errno)),
            Event::Leave(..) => {}
        }
    }
    (entries, directories, failures)
}

fn with(workers: Workers) -> WalkOptions {
    WalkOptions::new().scan(Options::new().workers(workers))
}

const DEPTH: usize = 500;

fn open_dir(dir: impl AsFd, name: &str) -> OwnedFd {
    rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

/// Deeper than the longest path, and than the levels that stay open. Each level has a directory
/// before and one after the one that leads down.
#[test]
fn deep_trees_are_walked_to_the_end() {
    let dir = temp();
    let mut fd = open_dir(CWD, dir.path().to_str().unwrap());
    for _ in 0..DEPTH {
        for name in ["a", "m-a-name-of-20-bytes", "z"] {
            rustix::fs::mkdirat(&fd, name, Mode::RWXU).unwrap();
        }
        fd = open_dir(&fd, "m-a-name-of-20-bytes");
    }
    for workers in [Workers::Auto, Workers::Fixed(4)] {
        let mut walk = Walk::open(dir.path(), with(workers)).unwrap();
        let (mut directories, mut deepest) = (0, 0);
        while let Some(event) = walk.next_event() {
            match event {
                Event::Enter(directory) => {
                    directories += 1;
                    deepest = deepest.max(directory.depth);
                }
                Event::Leave(_, children) => children.sort_by(|a, b| a.name.cmp(b.name)),
                Event::Failed(failure) => panic!("{failure:?}"),
                Event::Batch(..) => {}
            }
        }
        assert_eq!((directories, deepest), (1 + 3 * DEPTH, DEPTH));
    }
    remove_chain(&open_dir(CWD, dir.path().to_str().unwrap()));
}

/// Removes such a tree level by level, without a descriptor for each.
fn remove_chain(root: &OwnedFd) {
    let mut fd = root.try_clone().unwrap();
    let mut depth = 0;
    while let Ok(next) =
        rustix::fs::openat(&fd, "m-a-name-of-20-bytes", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    {
        fd = next;
        depth += 1;
    }
    for _ in 0..depth {
        fd = open_dir(&fd, "..");
        for name in ["a", "m-a-name-of-20-bytes", "z"] {
            rustix::fs::unlinkat(&fd, name, AtFlags::REMOVEDIR).unwrap();
        }
    }
}

/// So deep that the levels above are closed meanwhile, and opened again by `..` on the way up. The
/// way down was moved, so `..` leads elsewhere, and they are found by their names. If other
/// directories have those names now, that is reported.
#[test]
fn levels_above_a_moved_directory_are_found_by_name() {
    const DEPTH: usize = 80;
    let chain = |depth| ["m"; DEPTH][..depth].join("/");
    for replaced in [false, true] {
        let dir = temp();
        fs::create_dir_all(dir.path().join(chain(DEPTH))).unwrap();
        (0..DEPTH).for_each(|depth| fs::create_dir(dir.path().join(chain(depth)).join("z")).unwrap());
        let mut walk = Walk::open(dir.path(), with(Workers::Auto)).unwrap();
        let (mut entered, mut failed) = (Vec::new(), Vec::new());
        while let Some(event) = walk.next_event() {
            match event {
                Event::Enter(directory) => {
                    entered.push(directory.path.to_owned());
                    if entered.len() == DEPTH + 1 {
                        let elsewhere = |depth| dir.path().join(format!("elsewhere{depth}"));
                        fs::rename(dir.path().join(chain(10)), elsewhere(10)).unwrap();
                        if replaced {
                            fs::rename(dir.path().join(chain(5)), elsewhere(5)).unwrap();
                            fs::create_dir_all(dir.path().join(chain(9)).join("z")).unwrap();
                        }
                    }
                }
                Event::Leave(_, children) => children.sort_by(|a, b| a.name.cmp(b.name)),
                Event::Failed(failure) => failed.push((failure.cause, failure.path.to_owned())),
                Event::Batch(..) => {}
            }
        }
        // The levels in between are no longer known.
        let lost = if replaced { 5..10 } else { 0..0 };
        let z = |depth| dir.path().join(chain(depth)).join("z");
        assert_eq!(failed, lost.clone().rev().map(|depth| (Cause::Swapped, z(depth))).collect::<Vec<_>>());
        let found: Vec<_> = (0..DEPTH).filter(|depth| !lost.contains(depth)).map(z).rev().collect();
        assert_eq!(entered[DEPTH + 1..], found);
    }
}

#[test]
fn loops_are_reported() {
    let dir = temp();
    fs::create_dir_all(dir.path().join("a/b")).unwrap();
    fs::write(dir.path().join("a/leaf"), b"").unwrap();
    let Some(_bound) = Bound::new(dir.path(), &dir.path().join("a/b")) else { return };
    let (entries, directories, failures) = walk(dir.path(), WalkOptions::default());
    assert_eq!((entries, directories), (3, 2));
    assert_eq!(failures, [(Cause::Loop, Errno::LOOP.raw_os_error())]);
}

#[test]
fn walk_stays_on_one_file_system() {
    let Some(mounted) = Mounted::tmpfs("size=50%") else { return };
    fs::create_dir(mounted.path().join("inside")).unwrap();
    let outer = mounted.path().parent().unwrap().to_owned();
    // The caller, and threads that read ahead.
    for (level, workers) in (0..4).flat_map(|level| [Workers::Auto, Workers::Fixed(2)].map(|workers| (level, workers)))
    {
        for (one_file_system, expected) in [(true, (1, 1)), (false, (2, 3))] {
            let opens = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
            inotify::add_watch(&opens, mounted.path(), inotify::WatchFlags::OPEN).unwrap();
            let scan = Options::new().mask(Mask::level(level).unwrap()).workers(workers);
            let (entries, directories, failures) =
                walk(&outer, WalkOptions::new().scan(scan).one_file_system(one_file_system));
            assert_eq!(((entries, directories), failures), (expected, Vec::new()), "level {level}");
            // Opening it might mount a file system there.
            let was_opened = inotify::Reader::new(&opens, &mut [MaybeUninit::uninit(); 4096]).next().is_ok();
            assert_eq!(was_opened, !one_file_system, "level {level}");
        }
    }
}

#[test]
fn roots_keep_their_order_and_may_be_missing() {
    let dir = temp();
    fs::create_dir(dir.path().join("one")).unwrap();
    fs::write(dir.path().join("file"), b"").unwrap();
    let mut walk = Walk::new(WalkOptions::default()).unwrap();
    walk.push(dir.path().join("nowhere"));
    walk.push(dir.path().join("one"));
    walk.push_fd(open_dir(CWD, dir.path().to_str().unwrap()), "called");
    walk.push(dir.path().join("file"));
    walk.push_fd(open_dir(CWD, dir.path().to_str().unwrap()), "");
    let mut seen = Vec::new();
    while let Some(event) = walk.next_event() {
        match event {
            Event::Enter(directory) => seen.push((directory.path.to_owned(), 0)),
            Event::Failed(failure) => seen.push((failure.path.to_owned(), failure.errno)),
            _ => {}
        }
    }
    let expected = [
        (dir.path().join("nowhere"), Errno::NOENT.raw_os_error()),
        (dir.path().join("one"), 0),
        ("called".into(), 0),
        ("called/one".into(), 0),
        (dir.path().join("file"), Errno::NOTDIR.raw_os_error()),
        ("".into(), 0),
        ("one".into(), 0),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn failed_open_reports_the_errno() {
    let dir = temp();
    fs::write(dir.path().join("file"), b"").unwrap();
    let errno = |path: &str| Scan::open(dir.path().join(path), &Options::default()).err().unwrap();
    assert_eq!(errno("nowhere").errno(), Errno::NOENT.raw_os_error());
    assert_eq!(errno("file").errno(), Errno::NOTDIR.raw_os_error());
    assert!(errno("nowhere").to_string().contains("nowhere: No such file or directory"), "{}", errno("nowhere"));
    let file = fs::File::open(dir.path().join("file")).unwrap();
    let mut scan = Scan::from_fd(file.into(), &Options::default()).unwrap();
    assert_eq!(scan.next_batch().unwrap_err(), Error::Read { errno: Errno::NOTDIR.raw_os_error() });
    assert!(scan.next_batch().unwrap().is_none());
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let plain = Options::default();
    let cases = [
        (plain.budget_bytes(0), "at least"),
        (plain.budget_bytes(MIN_BUDGET_BYTES - 1), "at least"),
        (plain.mask(Mask::from_bits_retain(0x100)), "0x100 has unknown bits"),
        (plain.fields(Fields::from_bits_retain(0x1000)), "unknown bits"),
        (plain.workers(Workers::Fixed(0)), "0 workers"),
        (plain.workers(Workers::AtMost(0)), "0 workers"),
        (plain.workers(Workers::Fixed(1_000_000)), "1000000 workers"),
    ];
    for (options, text) in cases {
        let error = Scan::open("/", &options).err().unwrap();
        assert_eq!(error.errno(), Errno::INVAL.raw_os_error());
        assert!(error.to_string().contains(text), "{error}");
        let walk = Walk::open("/", WalkOptions::new().scan(options));
        assert_eq!(walk.err(), Some(error));
    }
}

#[test]
fn scan_continues_after_a_cookie() {
    let dir = temp();
    for number in 0..2000 {
        fs::write(dir.path().join(format!("f{number}")), b"").unwrap();
    }
    let options = Options::new().dots(true);
    let mut scan = Scan::open(dir.path(), &options).unwrap();
    let mut all = Vec::new();
    while let Some(batch) = scan.next_batch().unwrap() {
        all.extend(batch.iter().map(|record| (record.name().to_vec(), record.cookie())));
    }
    assert_eq!(all.len(), 2002);
    for after in [0, 1, 700, 2000, 2001] {
        scan.seek(all[after].1).unwrap();
        let mut rest = Vec::new();
        while let Some(batch) = scan.next_batch().unwrap() {
            rest.extend(batch.iter().map(|record| (record.name().to_vec(), record.cookie())));
        }
        assert_eq!(rest, all[after + 1..]);
    }
}
