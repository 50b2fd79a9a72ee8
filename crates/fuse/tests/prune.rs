//! A mount over a tree whose cache is full: the kernel is asked to forget what no program uses.

#[path = "support/detached.rs"]
mod detached;

use std::{fs, thread};

use pando_fuse::{DeviceTransport, MountOptions, Server, ServerOptions, Transport, unmount};
use pando_mapfs::{MapFs, MapOptions};
use pando_vfs::{At, Context, Credentials, OpenFlags, Vfs, VfsOptions};
use pandofs_testkit::{await_value, is_root, skipped};

use crate::detached::Detached;

const LIMIT: u64 = 1000;
const FILES: u64 = 20_000;

/// `FUSE_NOTIFY_PRUNE` came with Linux 6.18.
fn kernel_prunes() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(['.', '-']).map_while(|part| part.trim().parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(6), Some(18))
}

#[test]
fn inodes_that_only_the_kernel_has_cached_leave_a_full_cache() {
    if !is_root() || !kernel_prunes() {
        return skipped("needs root and Linux 6.18");
    }
    let driver = MapFs::new(MapOptions::default());
    let store = driver.handle();
    let options = VfsOptions::new().cached_inodes(LIMIT as usize).read_ahead(false);
    let vfs = Vfs::with_options(driver, options).unwrap();
    let context = Context::new(&vfs, Credentials::root());
    (0..10).for_each(|n| drop(vfs.mkdir(&context, At::Cwd, format!("/d{n}"), 0o755).unwrap()));
    for n in 0..FILES {
        let (path, flags) = (format!("/d{}/f{}", n % 10, n / 10), OpenFlags::CREAT | OpenFlags::WRONLY);
        vfs.open(&context, At::Cwd, path, flags, 0o644).unwrap().write(b"contents").unwrap();
    }
    let point = tempfile::tempdir().unwrap();
    let server = Server::new(vfs, ServerOptions::default());
    let connection = match DeviceTransport.connect(server, point.path(), &MountOptions::default()) {
        Ok(connection) => connection,
        Err(error) => return skipped(&format!("cannot mount: {error}")),
    };
    let path = |n: u64| point.path().join(format!("d{}/f{}", n % 10, n / 10));
    thread::scope(|scope| {
        let serving = scope.spawn(|| connection.serve());
        let _detached = Detached(point.path());
        // In use, so that neither side forgets it.
        let open = fs::File::open(path(0)).unwrap();
        let mut most = 0;
        for n in 0..FILES {
            assert_eq!(fs::metadata(path(n)).unwrap().len(), 8);
            most = most.max(store.cached_inodes());
        }
        assert_eq!(fs::read_to_string(path(0)).unwrap(), "contents");
        assert_eq!(open.metadata().unwrap().len(), 8);
        // All files were found again and again, and the cache stayed near its limit.
        assert!(most < FILES / 2, "{most} inodes were cached");
        let mut next = 0;
        let mut is_small_again = || {
            next += 300;
            assert!((next..next + 300).all(|n| fs::metadata(path(n % FILES)).is_ok()));
            store.cached_inodes() < 2 * LIMIT
        };
        await_value(true, &mut is_small_again);
        // The same by listings with attributes, which add many inodes at a time.
        most = 0;
        for dir in 0..10 {
            for entry in fs::read_dir(point.path().join(format!("d{dir}"))).unwrap() {
                assert_eq!(entry.unwrap().metadata().unwrap().len(), 8);
                most = most.max(store.cached_inodes());
            }
        }
        assert!(most < FILES / 2, "{most} inodes were cached by listings");
        await_value(true, &mut is_small_again);
        drop(open);
        unmount::cleanly(point.path()).unwrap();
        serving.join().unwrap().unwrap();
    });
}
