//! Requests that wait for a store, and others that are answered meanwhile.

#[path = "support/detached.rs"]
mod detached;

use std::{fs, num::NonZeroUsize, thread};

use pando_fuse::{DeviceTransport, MountOptions, RingTransport, Server, ServerOptions, Threads, Transport, unmount};
use pando_mapfs::{Call, MapFs, MapHandle, MapOptions};
use pando_vfs::{FileKind, Vfs, VfsOptions};
use pandofs_testkit::{await_value, skipped, stay_on_first_cpu};

use crate::detached::Detached;

const WAITING: u64 = 40;

#[test]
fn forty_requests_wait_while_cached_ones_are_answered() {
    while_forty_wait(&DeviceTransport);
}

#[test]
fn forty_requests_wait_while_cached_ones_are_answered_through_a_ring() {
    while_forty_wait(&RingTransport { required: true });
}

fn while_forty_wait(transport: &dyn Transport) {
    let driver = MapFs::new(MapOptions::default());
    let store = driver.handle();
    let vfs = Vfs::with_options(driver, VfsOptions::new().read_ahead(false)).unwrap();
    for n in 0..WAITING {
        // Each in a directory of its own: the kernel looks names up one at a time in each.
        let dir = store.create(MapHandle::ROOT, format!("d{n}"), FileKind::Directory, 0o755).unwrap();
        store.create(dir, "file", FileKind::File, 0o644).unwrap();
    }
    let cached = store.create(MapHandle::ROOT, "cached", FileKind::File, 0o644).unwrap();
    store.write(cached, b"contents").unwrap();
    let point = tempfile::tempdir().unwrap();
    let threads = Threads { least: NonZeroUsize::new(2).unwrap(), most: NonZeroUsize::new(64).unwrap() };
    let options = MountOptions { threads, ..MountOptions::default() };
    let connection = match transport.connect(Server::new(vfs, ServerOptions::default()), point.path(), &options) {
        Ok(connection) => connection,
        Err(error) => return skipped(&format!("cannot mount: {error}")),
    };
    let path = |name: &str| point.path().join(name);
    let is_small = thread::available_parallelism().unwrap().get() <= 16;
    thread::scope(|scope| {
        let serving = scope.spawn(|| connection.serve());
        let _detached = Detached(point.path());
        assert!(fs::metadata(path("cached")).is_ok());
        assert!((0..WAITING).all(|n| fs::metadata(path(&format!("d{n}"))).is_ok()));
        let parked: Vec<_> = (0..WAITING).map(|_| store.park(Call::Lookup)).collect();
        let waiting: Vec<_> = (0..WAITING)
            .map(|n| {
                let path = path(&format!("d{n}/file"));
                scope.spawn(move || {
                    // A ring has threads for each CPU: fewer on a machine with many.
                    if is_small {
                        stay_on_first_cpu();
                    }
                    fs::metadata(path).map(|found| found.len())
                })
            })
            .collect();
        await_value(WAITING, || store.calls_waiting());
        // A request, since the kernel has not read the file before.
        assert_eq!(fs::read(path("cached")).unwrap(), b"contents");
        drop(parked);
        assert!(waiting.into_iter().all(|waiting| waiting.join().unwrap().unwrap() == 0));
        unmount::cleanly(point.path()).unwrap();
        serving.join().unwrap().unwrap();
    });
}
