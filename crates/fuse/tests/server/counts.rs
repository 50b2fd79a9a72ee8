//! Look-up counts under contention.

use std::{sync::Barrier, thread};

use pando_vfs::Error;

use super::{ME, ROOT, create, inodes::await_inodes, server};

#[test]
fn look_up_counts_are_exact_under_contention() {
    let server = server();
    let (made, handle) = create(&server, "f");
    server.release(handle).unwrap();
    // Threads look one file up, and each forgets its own count. The node stays known, and no count
    // is left.
    let barrier = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..2000 {
                    let found = server.lookup(ME, ROOT, b"f").unwrap().unwrap();
                    assert_eq!(server.getattr(found.node).unwrap().node, made.node);
                    server.forget(found.node, 1);
                }
            });
        }
    });
    server.unlink(ME, ROOT, b"f").unwrap();
    assert!(server.getattr(made.node).is_ok());
    server.forget(made.node, 1);
    assert_eq!(server.getattr(made.node), Err(Error::Stale));
    await_inodes(&server, 1);

    // Threads drop the last count and take it again, over and over, at the same time.
    let (made, handle) = create(&server, "g");
    server.release(handle).unwrap();
    server.forget(made.node, 1);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let found = server.lookup(ME, ROOT, b"g").unwrap().unwrap();
                    server.forget(found.node, 1);
                }
            });
        }
    });
    server.unlink(ME, ROOT, b"g").unwrap();
    assert_eq!(server.getattr(made.node), Err(Error::Stale));
    await_inodes(&server, 1);
}
