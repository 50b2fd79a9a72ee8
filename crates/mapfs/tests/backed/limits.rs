//! The limits of the inode cache: in inodes and in bytes.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use pando_mapfs::{Call, Fault, MapFs, MapHandle, MapOptions};
use pando_vfs::{At, Context, Credentials, Error, OpenFlags, Vfs, VfsOptions, Walk, XattrFlags};

use crate::support::{collect_until, evict_all, evict_down_to};

const FOLLOW: Walk = Walk::empty();

/// By how much a thread may exceed the limit: it looks at the size of the cache once in 16 changes,
/// and skips searches while other threads hold what they are about to evict.
const SLACK: u64 = 256;

fn limited(options: VfsOptions) -> (Vfs, Context, MapHandle) {
    let driver = MapFs::new(MapOptions::default());
    let store = driver.handle();
    let vfs = Vfs::with_options(driver, options.read_ahead(false)).expect("a tree");
    let context = Context::new(&vfs, Credentials::root());
    (vfs, context, store)
}

/// Makes files, and drops them from the cache.
fn make_files(vfs: &Vfs, context: &Context, dir: &str, count: u64) {
    for n in 0..count {
        vfs.mknod(context, At::Cwd, format!("{dir}/f{n}"), 0o100_644, 0).expect("made");
    }
    evict_all(vfs);
}

#[test]
fn walks_listings_and_creations_stay_within_the_limit_of_inodes() {
    const LIMIT: u64 = 1000;
    const FILES: u64 = 10_000;
    let (vfs, context, store) = limited(VfsOptions::new().cached_inodes(LIMIT as usize));
    make_files(&vfs, &context, "", FILES);
    let expect_bound = |what| {
        let cached = store.cached_inodes();
        assert!((LIMIT / 2..=LIMIT + SLACK).contains(&cached), "{what}: {cached}");
    };
    for n in 0..FILES {
        vfs.stat(&context, At::Cwd, format!("/f{n}"), FOLLOW).expect("there");
        assert!(store.cached_inodes() <= LIMIT + SLACK, "file {n}: {}", store.cached_inodes());
    }
    expect_bound("look-ups");
    let dir = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opens");
    let (mut listed, mut cookie) = (0, 0);
    loop {
        let before = listed;
        // In small parts, since an entry keeps its inode in use while it is passed on.
        dir.readdir_plus(&context, cookie, |entry, _| {
            (listed, cookie) = (listed + 1, entry.cookie);
            listed - before < 100
        })
        .expect("lists");
        assert!(store.cached_inodes() <= LIMIT + SLACK + 1024, "entry {listed}: {}", store.cached_inodes());
        if listed == before {
            break;
        }
    }
    assert_eq!(listed, FILES + 2);
    drop(dir);
    vfs.mkdir(&context, At::Cwd, "/new", 0o755).expect("made");
    for n in 0..FILES {
        vfs.open(&context, At::Cwd, format!("/new/{n}"), OpenFlags::CREAT | OpenFlags::RDWR, 0o644).expect("made");
    }
    expect_bound("creations");
    for n in 0..FILES {
        assert_eq!(vfs.stat(&context, At::Cwd, format!("/new/{n}"), FOLLOW).map(|stat| stat.nlink), Ok(1));
    }
    evict_down_to(&vfs, &store, 1);
}

#[test]
fn large_extended_attributes_count() {
    const VALUE: usize = 10_000;
    const FILES: u64 = 1000;
    let (vfs, context, store) = limited(VfsOptions::new().cached_bytes(100 * VALUE));
    make_files(&vfs, &context, "", FILES);
    for n in 0..FILES {
        let (path, value) = (format!("/f{n}"), [7; VALUE]);
        vfs.setxattr(&context, At::Cwd, path, "user.large", value, XattrFlags::empty(), FOLLOW).expect("set");
    }
    for n in 0..FILES {
        let value = vfs.getxattr(&context, At::Cwd, format!("/f{n}"), "user.large", FOLLOW).expect("there");
        assert_eq!(value, [7; VALUE]);
    }
    let cached = store.cached_inodes();
    assert!(cached <= 100 + SLACK, "{cached}");
    // Without attributes, many more fit. Then their attributes are asked for.
    evict_down_to(&vfs, &store, 1);
    for n in 0..FILES {
        vfs.stat(&context, At::Cwd, format!("/f{n}"), FOLLOW).expect("there");
    }
    assert!(store.cached_inodes() > FILES, "{}", store.cached_inodes());
    for n in 0..FILES {
        vfs.getxattr(&context, At::Cwd, format!("/f{n}"), "user.large", FOLLOW).expect("there");
    }
    assert!(store.cached_inodes() <= 100 + SLACK, "{}", store.cached_inodes());
}

/// Some files are used again and again, while many others are looked at once.
#[test]
fn what_is_used_again_stays_cached() {
    const HOT: u64 = 100;
    let (vfs, context, store) = limited(VfsOptions::new().cached_inodes(1000));
    make_files(&vfs, &context, "", 20_000);
    let stat = |n: u64| vfs.stat(&context, At::Cwd, format!("/f{n}"), FOLLOW).map(drop).expect("there");
    (0..HOT).for_each(stat);
    (0..HOT).for_each(stat);
    let before = store.calls(Call::Lookup);
    for n in HOT..20_000 {
        stat(n);
        stat(n % HOT);
    }
    let again = store.calls(Call::Lookup) - before - (20_000 - HOT);
    assert!(again <= HOT, "{again} look-ups of files that were in use");
}

/// More inodes are in use than the cache may have.
#[test]
fn inodes_in_use_may_exceed_the_limit() {
    let (vfs, context, store) = limited(VfsOptions::new().cached_inodes(100));
    make_files(&vfs, &context, "", 5000);
    let look = |n: u64| vfs.lookup(&context, At::Cwd, format!("/f{n}"), FOLLOW).expect("there");
    let held: Vec<_> = (0..3000).map(look).collect();
    assert!(store.cached_inodes() > 3000);
    assert!(held.iter().enumerate().all(|(n, dentry)| dentry.ino() == look(n as u64).ino()), "the same inodes");
    drop(held);
    // Threads that have searched for idle inodes in vain skip some searches.
    let next = Cell::new(3000);
    collect_until(|| {
        drop(look(next.get()));
        next.set(3000 + (next.get() + 1) % 2000);
        store.cached_inodes() <= 100 + SLACK
    });
}

/// A server's clients forget what they have looked up: nobody looks anything up afterwards.
#[test]
fn inodes_that_clients_forget_leave_the_cache() {
    let (vfs, context, store) = limited(VfsOptions::new().cached_inodes(100));
    make_files(&vfs, &context, "", 2000);
    let exports = vfs.exports();
    let numbers: Vec<u64> = (0..2000)
        .map(|n| {
            let dentry = vfs.lookup(&context, At::Cwd, format!("/f{n}"), FOLLOW).expect("there");
            exports.remember(&dentry, 1).expect("the only tree");
            dentry.ino()
        })
        .collect();
    assert!(store.cached_inodes() > 2000);
    numbers.iter().for_each(|ino| exports.forget(*ino, 1));
    assert!(store.cached_inodes() <= 100 + SLACK, "{}", store.cached_inodes());
}

/// Inodes whose times cannot be stored stay cached, and the others make room.
#[test]
fn what_cannot_be_stored_stays() {
    let (vfs, context, store) = limited(VfsOptions::new().cached_inodes(100));
    make_files(&vfs, &context, "", 2000);
    for n in 0..50 {
        let file = vfs.open(&context, At::Cwd, format!("/t{n}"), OpenFlags::CREAT | OpenFlags::RDWR, 0o644);
        file.expect("made").write(b"x").expect("written");
    }
    store.inject(Fault::Random { call: Some(Call::Setattr), one_in: 1, seed: 0, error: Error::Io });
    for n in 0..2000 {
        vfs.stat(&context, At::Cwd, format!("/f{n}"), FOLLOW).expect("there");
    }
    store.clear_faults();
    let next = Cell::new(0);
    collect_until(|| {
        vfs.stat(&context, At::Cwd, format!("/f{}", next.get()), FOLLOW).expect("there");
        next.set((next.get() + 1) % 2000);
        store.cached_inodes() <= 100 + 50 + SLACK
    });
    for n in 0..50 {
        assert_eq!(vfs.stat(&context, At::Cwd, format!("/t{n}"), FOLLOW).map(|stat| stat.size), Ok(1));
    }
    evict_down_to(&vfs, &store, 1);
}

/// Threads walk, each in a tree of its own, and evict for each other. Each inode is right, and the
/// store is told to forget each one.
#[test]
fn threads_evict_for_each_other() {
    const FILES: u64 = 3000;
    const THREADS: u64 = 4;
    let (vfs, context, store) = limited(VfsOptions::new().cached_inodes(500));
    let dirs: Vec<u64> = (0..THREADS)
        .map(|thread| {
            let dir = format!("/d{thread}");
            let made = vfs.mkdir(&context, At::Cwd, &dir, 0o755).expect("made");
            make_files(&vfs, &context, &dir, FILES);
            made.ino()
        })
        .collect();
    let (is_done, most) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                most.fetch_max(store.cached_inodes(), Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        let walkers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (vfs, context, store, dir) = (&vfs, &context, &store, dirs[thread as usize]);
                scope.spawn(move || {
                    for n in 0..FILES {
                        let stat = vfs.stat(context, At::Cwd, format!("/d{thread}/f{n}"), FOLLOW).expect("there");
                        assert_eq!(Some(stat.ino), store.lookup(dir, format!("f{n}")).expect("asked"));
                    }
                })
            })
            .collect();
        walkers.into_iter().for_each(|walker| walker.join().expect("ends"));
        is_done.store(true, Ordering::Relaxed);
        watcher.join().expect("ends");
    });
    let most = most.into_inner();
    assert!(most <= 500 + THREADS * SLACK, "{most}");
    evict_down_to(&vfs, &store, 1);
}
