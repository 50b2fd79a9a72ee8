//! Read-ahead: what it loads, how it meets walks, and how it ends.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use pando_mapfs::{Call, Delay, Fault, MapFs, MapHandle, MapOptions, Wait};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    At, Context, Credentials, Error, File, FileKind, OpenFlags, ReadAheadProgress, Vfs, VfsOptions, Walk, records::Mask,
};

use crate::{
    random::run_beside,
    support::{assert_same, collect_until, evict_down_to, mounted, mounted_below, seed, seen, stored},
};

/// A store with so many files in its root directory, of which nothing is cached.
fn filled(options: MapOptions, files: u32) -> (Vfs, Context, MapHandle, File) {
    let (vfs, root, store) = mounted(options);
    fill(&vfs, &root, "", files);
    let dir = directory(&vfs, &root, "/");
    (vfs, root, store, dir)
}

fn fill(vfs: &Vfs, context: &Context, dir: &str, files: u32) {
    for n in 0..files {
        vfs.mknod(context, At::Cwd, format!("{dir}/{n}"), FileKind::File.to_mode() | 0o600, 0).expect("made");
    }
    while vfs.evict(usize::MAX).expect("nothing fails") > 0 {}
}

/// As [`filled`]. Each file has an extended attribute.
fn filled_with_xattrs(options: MapOptions, files: u32) -> (Vfs, Context, MapHandle, File) {
    let (vfs, root, store) = mounted(options);
    store_with_xattrs(&store, files);
    let dir = directory(&vfs, &root, "/");
    (vfs, root, store, dir)
}

/// Makes so many files in the root directory of a store, each with an extended attribute.
fn store_with_xattrs(store: &MapHandle, files: u32) {
    for n in 0..files {
        let ino = store.create(MapHandle::ROOT, n.to_string(), FileKind::File, 0o600).expect("made");
        store.set_xattr(ino, b"user.number", Some(n.to_string().as_bytes())).expect("set");
    }
}

/// An empty tree that reads ahead unasked, or does not.
fn tree_with(read_ahead: bool) -> (Vfs, Context, MapHandle) {
    let driver = MapFs::new(MapOptions::default());
    let store = driver.handle();
    let vfs = Vfs::with_options(driver, VfsOptions::new().read_ahead(read_ahead)).expect("a tree");
    let root = Context::new(&vfs, Credentials::root());
    (vfs, root, store)
}

fn directory(vfs: &Vfs, context: &Context, path: &str) -> File {
    vfs.open(context, At::Cwd, path, OpenFlags::DIRECTORY, 0).expect("opens")
}

fn stat(vfs: &Vfs, context: &Context, path: &str) -> Result<u32, Error> {
    vfs.stat(context, At::Cwd, path, Walk::empty()).map(|stat| stat.mode & 0o7777)
}

/// The calls so far that a listing with everything would make.
fn calls(store: &MapHandle) -> [u64; 3] {
    [Call::Lookup, Call::Getattr, Call::Xattrs].map(|call| store.calls(call))
}

/// Each inode that was read ahead is used, wasted, or still there.
#[test]
fn what_becomes_of_inodes_that_were_read_ahead_is_counted() {
    const FILES: u32 = 1000;
    const USED: u32 = 400;
    for scans_add_attributes in [false, true] {
        let (vfs, root, _store, dir) = filled(MapOptions { scans_add_attributes, ..MapOptions::default() }, FILES);
        let counts = || {
            let counts = vfs.cache_counts();
            [counts.misses, counts.read_ahead, counts.read_ahead_used, counts.read_ahead_wasted]
        };
        let missed = counts()[0];
        dir.readahead(&root, 0, usize::MAX, Mask::STAT).expect("starts").wait().expect("no error");
        let [misses, loaded, used, wasted] = counts();
        assert_eq!([misses, loaded, used], [missed, FILES.into(), 0], "{scans_add_attributes}");
        // A name whose lock was held for long by another thread may have been left out.
        assert!(wasted <= u64::from(FILES / 20), "{wasted}");
        // Twice: a use counts once.
        for n in (0..USED).chain(0..USED) {
            assert_eq!(stat(&vfs, &root, &format!("/{n}")), Ok(0o600));
        }
        let [misses, loaded, used, _] = counts();
        assert_eq!((misses - missed + used, loaded), (USED.into(), FILES.into()), "{scans_add_attributes}");
        while vfs.evict(usize::MAX).expect("nothing fails") > 0 {}
        assert_eq!(counts()[2] + counts()[3], u64::from(FILES), "{scans_add_attributes}");
        // Without read-ahead, look-ups miss.
        assert_eq!(stat(&vfs, &root, "/999"), Ok(0o600));
        assert_eq!(counts()[0], misses + 1);
        // A listing uses what it finds, and wants what it does not find.
        while vfs.evict(usize::MAX).expect("nothing fails") > 0 {}
        dir.readahead(&root, 0, usize::MAX, Mask::STAT).expect("starts").wait().expect("no error");
        let before = counts();
        directory(&vfs, &root, "/").readdir_plus(&root, 0, |_, _| true).expect("listed");
        let [misses, _, used, _] = counts();
        assert_eq!(used - before[2] + misses - before[0], FILES.into());
    }
}

#[test]
fn everything_is_loaded_once_and_walks_then_ask_for_nothing() {
    const FILES: u32 = 1000;
    for scans_add_attributes in [false, true] {
        let (vfs, root, store, dir) =
            filled_with_xattrs(MapOptions { scans_add_attributes, ..MapOptions::default() }, FILES);
        let ahead = dir.readahead(&root, 0, usize::MAX, Mask::STAT | Mask::XATTR_VALUES).expect("starts");
        let progress = ahead.wait().expect("no error");
        assert_eq!((progress.listed, progress.done), (FILES.into(), FILES.into()), "{scans_add_attributes}");
        let requested = if scans_add_attributes { 0 } else { FILES.into() };
        assert_eq!((progress.requested, progress.has_ended), (requested, true), "{scans_add_attributes}");
        let before = calls(&store);
        for n in 0..FILES {
            assert_eq!(stat(&vfs, &root, &format!("/{n}")), Ok(0o600));
            let value = vfs.getxattr(&root, At::Cwd, format!("/{n}"), "user.number", Walk::empty());
            assert_eq!(value.expect("there"), n.to_string().into_bytes());
        }
        // A name whose lock was held for long by another thread may have been left out.
        let asked: u64 = calls(&store).iter().zip(before).map(|(now, before)| now - before).sum();
        assert!(asked <= u64::from(FILES / 20), "all is cached: {asked}");
        let before = calls(&store);
        let again = dir.readahead(&root, 0, usize::MAX, Mask::STAT).expect("starts").wait().expect("no error");
        assert_eq!((again.listed, again.done, again.requested), (FILES.into(), FILES.into(), 0));
        assert_eq!(calls(&store), before);
    }
}

#[test]
fn only_the_range_is_loaded() {
    let (vfs, root, store, dir) = filled(MapOptions::default(), 1000);
    let mut entries = Vec::new();
    dir.readdir(0, |entry| {
        entries.push((String::from_utf8_lossy(entry.name).into_owned(), entry.cookie));
        true
    })
    .expect("lists");
    // Two of them are `.` and `..`.
    let (from, count) = (102, 300);
    let ahead = dir.readahead(&root, entries[from - 1].1, count, Mask::STAT).expect("starts");
    assert_eq!(ahead.wait().expect("no error").listed, count as u64);
    for (at, (name, _)) in entries.iter().enumerate().skip(2) {
        let before = store.calls(Call::Lookup);
        stat(&vfs, &root, &format!("/{name}")).expect("there");
        let asked = store.calls(Call::Lookup) - before;
        assert_eq!(asked, u64::from(!(from..from + count).contains(&at)), "{name}");
    }
    let nothing = dir.readahead(&root, 0, 0, Mask::STAT).expect("starts").progress();
    assert!(nothing.has_ended && nothing.listed == 0);
}

/// A walk and a listing that want names that are being loaded wait for that call.
#[test]
fn walks_and_listings_join_the_loads_in_flight() {
    let (vfs, root, store, dir) = filled(MapOptions::default(), 2);
    let before = store.calls(Call::Lookup);
    let parked = store.park_reply(Call::Lookup);
    let ahead = dir.readahead(&root, 0, usize::MAX, Mask::STAT).expect("starts");
    parked.reached();
    thread::scope(|scope| {
        let walk = scope.spawn(|| stat(&vfs, &root, "/1"));
        let listing = scope.spawn(|| {
            let mut found = 0;
            dir.readdir_plus(&root, 0, |_, plus| {
                found += u32::from(plus.is_some());
                true
            })
            .map(|()| found)
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!walk.is_finished() && !listing.is_finished());
        drop(parked);
        assert_eq!(walk.join().expect("ends"), Ok(0o600));
        assert_eq!(listing.join().expect("ends"), Ok(2));
    });
    assert_eq!(ahead.wait().expect("no error").requested, 2);
    assert_eq!(store.calls(Call::Lookup) - before, 1);
}

#[test]
fn a_name_that_a_walk_loads_is_left_to_it() {
    let (vfs, root, store, dir) = filled(MapOptions::default(), 3);
    let before = store.calls(Call::Lookup);
    let parked = store.park_reply(Call::Lookup);
    thread::scope(|scope| {
        let walk = scope.spawn(|| stat(&vfs, &root, "/1"));
        parked.reached();
        let ahead = dir.readahead(&root, 0, usize::MAX, Mask::STAT).expect("starts");
        assert_eq!(ahead.wait().expect("no error").requested, 2);
        drop(parked);
        assert_eq!(walk.join().expect("ends"), Ok(0o600));
    });
    // Two names at first, and then one.
    assert_eq!(store.calls(Call::Lookup) - before, 3);
}

#[test]
fn cancelled_read_ahead_makes_no_more_calls() {
    let (_vfs, root, store, dir) = filled(MapOptions::default(), 5000);
    let parked = store.park(Call::Lookup);
    let ahead = dir.readahead(&root, 0, usize::MAX, Mask::STAT).expect("starts");
    parked.reached();
    ahead.cancel();
    assert!(!ahead.progress().has_ended);
    drop(parked);
    let progress = ahead.wait().expect("no error");
    assert!(progress.has_ended && progress.done < progress.listed, "{progress:?}");
    let after = calls(&store);
    thread::sleep(Duration::from_millis(5));
    assert_eq!(calls(&store), after);
}

/// Whether poll(2) reports a descriptor as readable.
fn is_readable(fd: &OwnedFd) -> bool {
    let stream = std::os::unix::net::UnixStream::from(fd.try_clone().expect("room for a descriptor"));
    stream.set_nonblocking(true).expect("a socket");
    std::io::Read::read(&mut &stream, &mut [0]).is_ok()
}

#[test]
fn descriptor_is_readable_when_the_read_ahead_has_ended() {
    let (_vfs, root, store, dir) = filled(MapOptions::default(), 10);
    let parked = store.park(Call::Lookup);
    let ahead = dir.readahead(&root, 0, usize::MAX, Mask::STAT).expect("starts");
    parked.reached();
    let [one, two] = [(); 2].map(|()| ahead.ended_fd().expect("room for a descriptor"));
    assert!(one.as_raw_fd() != two.as_raw_fd() && !is_readable(&one) && !is_readable(&two));
    drop(parked);
    ahead.wait().expect("no error");
    assert!(is_readable(&one) && is_readable(&two) && is_readable(&ahead.ended_fd().expect("room")));
}

/// Unmounting, and dropping the namespace, wait for the calls in flight and no others.
#[test]
fn unmount_drains_read_ahead() {
    for drops in [false, true] {
        let (vfs, root, store) = if drops { mounted(MapOptions::default()) } else { mounted_below() };
        fill(&vfs, &root, if drops { "" } else { "/m" }, 5000);
        let dir = directory(&vfs, &root, if drops { "/" } else { "/m" });
        let parked = store.park_reply(Call::Lookup);
        let aheads = [(); 100].map(|()| dir.readahead(&root, 0, usize::MAX, Mask::STAT));
        parked.reached();
        let (caller, other) = (root.clone(), vfs.clone());
        drop((root, vfs));
        let unmount = thread::spawn(move || match drops {
            false => other.umount(&caller, At::Cwd, "/m").expect("unmounted"),
            true => drop((caller, other)),
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!unmount.is_finished(), "a call is in flight");
        drop(parked);
        unmount.join().expect("ends");
        let started = aheads.iter().flatten().count();
        assert!(started > 0);
        for ahead in aheads.iter().flatten() {
            // Most of them have lost the tree, and some had ended before.
            let ended = ahead.wait();
            assert!(matches!(ended, Ok(ReadAheadProgress { has_ended: true, .. }) | Err(Error::Stale)), "{ended:?}");
        }
        let after = calls(&store);
        let other = Context::new(&empty(), Credentials::root());
        assert_eq!(dir.readahead(&other, 0, 1, Mask::STAT).err(), Some(Error::Stale));
        thread::sleep(Duration::from_millis(5));
        assert_eq!(calls(&store), after);
        drop((aheads, dir));
        collect_until(|| store.cached_inodes() == 0);
    }
}

fn empty() -> Vfs {
    Vfs::new(MemFs::new(MemOptions::default())).expect("a tree")
}

#[test]
fn tree_in_memory_has_nothing_to_load() {
    let vfs = empty();
    let root = Context::new(&vfs, Credentials::root());
    vfs.mkdir(&root, At::Cwd, "/d", 0o755).expect("made");
    let ahead = directory(&vfs, &root, "/").readahead(&root, 0, usize::MAX, Mask::STAT).expect("starts");
    assert!(ahead.progress().has_ended && is_readable(&ahead.ended_fd().expect("room")));
    assert_eq!(ahead.wait().expect("no error").listed, 0);
}

#[test]
fn bad_requests_are_refused() {
    let (vfs, root, _store, dir) = filled(MapOptions::default(), 1);
    let fails = |dir: &File, context: &Context, cookie, mask| dir.readahead(context, cookie, 1, mask).err();
    assert_eq!(fails(&dir, &root, 1 << 63, Mask::STAT), Some(Error::Invalid));
    assert_eq!(fails(&dir, &root, 0, Mask::CAPABILITIES), Some(Error::Invalid));
    let path = vfs.open(&root, At::Cwd, "/", OpenFlags::PATH, 0).expect("opens");
    assert_eq!(fails(&path, &root, 0, Mask::STAT), Some(Error::BadHandle));
    let file = vfs.open(&root, At::Cwd, "/0", OpenFlags::RDONLY, 0).expect("opens");
    assert_eq!(fails(&file, &root, 0, Mask::STAT), Some(Error::NotDirectory));
    vfs.chmod(&root, At::Cwd, "/", 0o644, Walk::empty()).expect("changed");
    let user = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    assert_eq!(fails(&dir, &user, 0, Mask::STAT), Some(Error::Access));
    vfs.mkdir(&root, At::Cwd, "/d", 0o755).expect("made");
    let removed = directory(&vfs, &root, "/d");
    vfs.rmdir(&root, At::Cwd, "/d").expect("removed");
    assert_eq!(fails(&removed, &root, 0, Mask::STAT), Some(Error::NoEntry));
}

/// An error or a panic of the store ends the read-ahead. It is no error of a walk.
#[test]
fn errors_and_panics_end_a_read_ahead_and_nothing_else() {
    for call in [Call::Scan, Call::Lookup] {
        for fault in [Fault::Nth { call: Some(call), after: 0, error: Error::Io }, Fault::Panic { call }] {
            let (vfs, root, store, dir) = filled(MapOptions::default(), 100);
            store.inject(fault);
            let ahead = dir.readahead(&root, 0, usize::MAX, Mask::STAT).expect("starts");
            assert_eq!(ahead.wait(), Err(Error::Io), "{fault:?}");
            assert!(ahead.progress().has_ended);
            (0..100).for_each(|n| assert_eq!(stat(&vfs, &root, &format!("/{n}")), Ok(0o600), "{fault:?}"));
        }
    }
    // Extended attributes that could not be loaded are left to the thread that wants them.
    let (vfs, root, store, dir) = filled_with_xattrs(MapOptions::default(), 4);
    store.inject(Fault::Nth { call: Some(Call::Xattrs), after: 0, error: Error::Io });
    dir.readahead(&root, 0, usize::MAX, Mask::XATTR_NAMES).expect("starts").wait().expect("no error");
    let value = vfs.getxattr(&root, At::Cwd, "/1", "user.number", Walk::empty());
    assert_eq!(value.expect("there"), b"1");
}

/// The number of calls in flight rises while they wait, is bounded, and is halved while an
/// operation waits for the store.
#[test]
fn calls_in_flight_rise_while_they_wait_and_yield_to_operations() {
    let (vfs, root, store, dir) = filled(MapOptions::default(), 40_000);
    vfs.mkdir(&root, At::Cwd, "/d", 0o755).expect("made");
    store.set_delays(vec![Delay { call: Some(Call::Lookup), wait: Wait::Sleep(Duration::from_millis(1)) }]);
    let ahead = dir.readahead(&root, 0, usize::MAX, Mask::STAT).expect("starts");
    let most = AtomicU64::new(0);
    let watch = |until: &dyn Fn() -> bool| {
        most.store(0, Ordering::Relaxed);
        while !until() && !ahead.progress().has_ended {
            most.fetch_max(store.calls_waiting(), Ordering::Relaxed);
            thread::yield_now();
        }
        most.load(Ordering::Relaxed)
    };
    let risen = watch(&|| most.load(Ordering::Relaxed) >= 16);
    assert!((16..=64).contains(&risen), "{risen}");
    let parked = store.park(Call::Create);
    thread::scope(|scope| {
        let operation = scope.spawn(|| vfs.mkdir(&root, At::Cwd, "/d/new", 0o755).map(drop));
        parked.reached();
        let then = store.calls(Call::Lookup);
        watch(&|| store.calls(Call::Lookup) > then + 128);
        let during = watch(&|| store.calls(Call::Lookup) > then + 512);
        // The operation itself is one.
        assert!(during <= 33, "{during} of {risen}");
        drop(parked);
        assert_eq!(operation.join().expect("ends"), Ok(()));
    });
    ahead.wait().expect("no error");
}

/// Changes by this tree and by others, evictions and read-ahead at the same time.
#[test]
fn read_ahead_never_changes_a_result() {
    let seed = seed();
    for options in [VfsOptions::new(), VfsOptions::new().directory_locks(pando_vfs::DirectoryLocks::PerDirectory)] {
        let driver = MapFs::new(MapOptions { scans_add_attributes: seed.is_multiple_of(2), ..MapOptions::default() });
        let store = driver.handle();
        let vfs = Vfs::with_options(driver, options).expect("a tree");
        let root = Context::new(&vfs, Credentials::root());
        let other = store.create(MapHandle::ROOT, "other", FileKind::File, 0o600).expect("made");
        run_beside(
            (&vfs, &root),
            seed,
            3,
            &[Error::Stale, Error::TryAgain, Error::Io],
            |done| done >= 1000,
            || {
                let dirs = ["/", "/a", "/b", "/a/a", "/a/b"]
                    .map(|path| vfs.open(&root, At::Cwd, path, OpenFlags::DIRECTORY, 0));
                let aheads = dirs.iter().flatten().map(|dir| dir.readahead(&root, 0, usize::MAX, Mask::XATTR_VALUES));
                let aheads: Vec<_> = aheads.flatten().collect();
                vfs.evict(4).expect("nothing fails");
                store.chmod(other, 0o600 | (store.inodes() as u32 % 8)).expect("changed");
                if let Some(ahead) = aheads.first() {
                    ahead.cancel();
                }
                for ahead in aheads {
                    let ended = ahead.wait();
                    assert!(matches!(ended, Ok(_) | Err(Error::NoEntry | Error::Stale)), "{ended:?}");
                }
            },
        );
        assert_same(&seen(&vfs, &root), &stored(&store), "afterwards");
        evict_down_to(&vfs, &store, 1);
        assert_same(&seen(&vfs, &root), &stored(&store), "loaded anew");
    }
}

/// A listing with attributes that waits at each name reads ahead, unless that is switched off.
#[test]
fn listing_that_waits_reads_ahead() {
    const FILES: usize = 3000;
    for read_ahead in [true, false] {
        let (vfs, root, store) = tree_with(read_ahead);
        fill(&vfs, &root, "", FILES as u32);
        // The store answers a look-up of 256 names in one call.
        store.set_delays(vec![Delay { call: Some(Call::Lookup), wait: Wait::Sleep(Duration::from_millis(20)) }]);
        let dir = directory(&vfs, &root, "/");
        let (mut most, mut names) = (0, Vec::new());
        dir.readdir_plus(&root, 0, |entry, plus| {
            most = most.max(store.calls_waiting());
            assert!(plus.is_some() || entry.name.starts_with(b"."));
            names.push(entry.name.to_vec());
            true
        })
        .expect("lists");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), FILES + 2);
        assert_eq!(most > 0, read_ahead, "{most} calls in flight");
    }
}

/// A listing that stops, or starts again, ends its read-ahead, which is never far ahead.
#[test]
fn read_ahead_of_a_listing_follows_it() {
    let driver = MapFs::new(MapOptions::default());
    let store = driver.handle();
    let vfs = Vfs::new(driver).expect("a tree");
    let root = Context::new(&vfs, Credentials::root());
    fill(&vfs, &root, "", 20_000);
    let dir = directory(&vfs, &root, "/");
    store.set_delays(vec![Delay { call: Some(Call::Lookup), wait: Wait::Sleep(Duration::from_millis(15)) }]);
    let mut passed = 0_u64;
    let list = |dir: &File, enough: usize| {
        let mut listed = 0;
        dir.readdir_plus(&root, 0, |_, _| {
            listed += 1;
            listed < enough
        })
        .expect("lists");
    };
    let is_idle = || {
        let before = store.calls(Call::Lookup);
        thread::sleep(Duration::from_millis(60));
        store.calls_waiting() == 0 && store.calls(Call::Lookup) == before
    };
    list(&dir, 300);
    passed += 300;
    while !is_idle() {}
    let loaded = store.cached_inodes();
    assert!((300..passed * 3 + 4096).contains(&loaded), "{loaded}");
    // It waits for the reader. The reader closes the directory.
    list(&dir, 1000);
    drop(dir);
    while !is_idle() {}
    assert!(store.cached_inodes() < 10_000);
    assert_eq!(vfs.evict(usize::MAX).map(|_| ()), Ok(()), "nothing is in use any more");
}

/// A program that has listed a directory and looks its names up one by one, in any order, finds
/// most of them.
#[test]
fn look_ups_after_a_listing_are_read_ahead() {
    const FILES: u64 = 2000;
    for (read_ahead, lists) in [(true, true), (true, false), (false, true)] {
        let (vfs, root, store) = tree_with(read_ahead);
        fill(&vfs, &root, "", FILES as u32);
        let dir = directory(&vfs, &root, "/");
        if lists {
            dir.readdir(0, |_| true).expect("lists");
        }
        store.set_delays(vec![Delay { call: Some(Call::Lookup), wait: Wait::Sleep(Duration::from_millis(2)) }]);
        let before = store.calls(Call::Lookup);
        for n in (0..FILES).rev() {
            assert_eq!(stat(&vfs, &root, &format!("/{n}")), Ok(0o600));
        }
        let calls = store.calls(Call::Lookup) - before;
        if read_ahead && lists {
            assert!(calls < FILES * 3 / 4, "{calls} calls");
        } else {
            assert_eq!(calls, FILES, "{read_ahead} {lists}");
        }
    }
}

#[test]
fn extended_attributes_after_a_listing_are_read_ahead() {
    const FILES: u64 = 2000;
    for (read_ahead, lists) in [(true, true), (true, false), (false, true)] {
        let (vfs, root, store) = tree_with(read_ahead);
        store_with_xattrs(&store, FILES as u32);
        if lists {
            directory(&vfs, &root, "/").readdir_plus(&root, 0, |_, _| true).expect("lists");
        }
        store.set_delays(vec![Delay { call: Some(Call::Xattrs), wait: Wait::Sleep(Duration::from_millis(2)) }]);
        let before = store.calls(Call::Xattrs);
        for n in (0..FILES).rev() {
            let value = vfs.getxattr(&root, At::Cwd, format!("/{n}"), "user.number", Walk::empty());
            assert_eq!(value.expect("there"), n.to_string().into_bytes());
        }
        let calls = store.calls(Call::Xattrs) - before;
        if read_ahead && lists {
            assert!(calls < FILES * 3 / 4, "{calls} calls");
        } else {
            assert_eq!(calls, FILES, "{read_ahead} {lists}");
        }
    }
}
