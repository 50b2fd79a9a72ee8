//! Read-ahead: everything is read once, failures are reported, and it can be cancelled.

use std::{
    fs,
    num::{NonZeroU32, NonZeroUsize},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use pando_scan::{Order, Warm, WarmEvent, WarmOptions, WarmProgress};

/// Longer than any test may take. It only bounds a wait that ends by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads ahead to the end. Returns the progress and the failures.
fn warm(paths: &[&Path], options: WarmOptions) -> (WarmProgress, Vec<(PathBuf, Option<i32>)>) {
    let warm = Warm::start(paths.iter().map(|path| path.to_path_buf()).collect(), options).unwrap();
    let mut failures = Vec::new();
    loop {
        match warm.next_event(PATIENCE) {
            WarmEvent::Failed(failure) => failures.push((failure.path, failure.error.raw_os_error())),
            WarmEvent::Nothing => panic!("it hangs: {:?}", warm.progress()),
            WarmEvent::Ended => return (warm.progress(), failures),
        }
    }
}

/// Three levels: 1 + 4 + 16 directories with 50 files each, a link to a directory and a dangling
/// link.
fn tree() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    fn fill(dir: &Path, levels: usize) {
        (0..50).for_each(|number| fs::write(dir.join(format!("file {number}\n")), "").unwrap());
        for number in (0..4).filter(|_| levels > 0) {
            let below = dir.join(format!("dir{number}"));
            fs::create_dir(&below).unwrap();
            fill(&below, levels - 1);
        }
    }
    fill(temp.path(), 2);
    symlink("..", temp.path().join("dir0/up")).unwrap();
    symlink("nothing", temp.path().join("dangling")).unwrap();
    temp
}

const FILES: u64 = 21 * 50;

#[test]
fn everything_is_read_once_with_any_options() {
    let temp = tree();
    let many = NonZeroUsize::new(16).unwrap();
    let counts = [(NonZeroUsize::MIN, Order::Directory), (many, Order::Inode), (NonZeroUsize::MAX, Order::Auto)];
    for (max_in_flight, order) in counts {
        for (yields, xattrs) in [(false, false), (true, true)] {
            let options = WarmOptions::new()
                .recursive(true)
                .max_in_flight(max_in_flight)
                .yields(yields)
                .xattrs(xattrs)
                .order(order);
            let (progress, failures) = warm(&[temp.path()], options);
            assert!(failures.is_empty(), "{failures:?}");
            assert_eq!((progress.directories, progress.found), (21, FILES + 20 + 2));
            assert_eq!((progress.done, progress.failed, progress.all_found), (progress.found, 0, true));
        }
    }
    let (progress, _) = warm(&[temp.path()], WarmOptions::default());
    assert_eq!((progress.directories, progress.done), (1, 50 + 4 + 1), "not below, unless asked");
}

#[test]
fn missing_path_is_reported_and_the_rest_continues() {
    let temp = tree();
    let (missing, file) = (temp.path().join("missing"), temp.path().join("file 1\n"));
    let loops = temp.path().join("loop");
    symlink("loop", &loops).unwrap();
    let (progress, failures) = warm(&[&missing, &file, &loops, &temp.path().join("dir1")], WarmOptions::default());
    assert_eq!(failures, [(missing, Some(libc::ENOENT)), (loops, Some(libc::ELOOP))]);
    assert_eq!((progress.failed, progress.done, progress.all_found), (2, 1 + 50 + 4, true));
}

#[test]
fn cancel_and_drop_end_it() {
    let temp = tree();
    for yields in [false, true] {
        // One a second: it will not end soon.
        let options = WarmOptions::new().recursive(true).rate(NonZeroU32::new(1)).yields(yields);
        let warm = Warm::start(vec![temp.path().to_owned()], options.clone()).unwrap();
        warm.cancel();
        assert!(matches!(warm.next_event(PATIENCE), WarmEvent::Ended));
        assert!(warm.progress().done < FILES);
        drop(Warm::start(vec![temp.path().to_owned(); 3], options).unwrap());
    }
    // Failures that are not taken must not block the end.
    let missing = vec![temp.path().join("missing"); 10_000];
    drop(Warm::start(missing, WarmOptions::default()).unwrap());
}

#[test]
fn large_directory_is_read_to_the_end() {
    let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let one = temp.path().join("one");
    fs::write(&one, "").unwrap();
    // Links cost little, and one inode can have as many as this.
    const NAMES: u32 = 30_000;
    (0..NAMES).for_each(|number| fs::hard_link(&one, temp.path().join(format!("{number}"))).unwrap());
    let many = NonZeroUsize::new(8).unwrap();
    let (progress, failures) = warm(&[temp.path()], WarmOptions::new().max_in_flight(many));
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!((progress.found, progress.done), (u64::from(NAMES) + 1, u64::from(NAMES) + 1));
}

/// The tests of `pando warm` check the other half, that it reads no more entries that are not
/// cached. That needs empty caches.
#[test]
fn cached_entries_need_no_room() {
    let temp = tree();
    let file = temp.path().join("file 1\n");
    let none = WarmOptions::new().recursive(true).at_most(Some(0));
    // Another process may cause eviction at any time. Each attempt fills the caches again.
    let all = (0..5).any(|_| {
        let (progress, failures) = warm(&[temp.path(), &file], none.clone());
        assert!(failures.is_empty(), "{failures:?}");
        warm(&[temp.path()], none.clone().at_most(None));
        (progress.done, progress.ran_out, progress.all_found) == (FILES + 20 + 2 + 1, false, true)
    });
    assert!(all);
}

/// Some servers send the attributes with the names, so these count too.
#[test]
fn names_are_not_read_far_ahead_of_the_rate() {
    let temp = tree();
    let rate = 100;
    let options = WarmOptions::new().recursive(true).rate(NonZeroU32::new(rate));
    let warm = Warm::start(vec![temp.path().to_owned()], options).unwrap();
    loop {
        let WarmProgress { done, found, .. } = warm.progress();
        assert!(found - done <= 3 * u64::from(rate), "{found} found, {done} done");
        if done > 2 * u64::from(rate) {
            break;
        }
        assert!(matches!(warm.next_event(Duration::from_millis(1)), WarmEvent::Nothing));
    }
}

#[test]
fn named_files_keep_the_rate() {
    let temp = tree();
    let options = WarmOptions::new().rate(NonZeroU32::new(1));
    let warm = Warm::start(vec![temp.path().join("file 1\n"); 1000], options).unwrap();
    // It would take a quarter of an hour, were it not cancelled.
    assert!(matches!(warm.next_event(Duration::from_millis(200)), WarmEvent::Nothing));
    warm.cancel();
    assert!(matches!(warm.next_event(PATIENCE), WarmEvent::Ended));
    assert!(!warm.progress().all_found);
}
