//! Setuid and setgid bits.

use std::{sync::Barrier, thread};

use pando_vfs::SetAttr;

use super::{CLEARS, ME, O_RDWR, O_TRUNC, ROOT, YOU, server};

#[test]
fn changed_contents_clear_setuid_and_setgid() {
    let server = server();
    let (made, handle) = server.create(YOU, ROOT, b"f", 0o777, 0, O_RDWR).unwrap();
    let marked = |mode| server.setattr(YOU, made.node, None, &SetAttr::new().mode(mode)).unwrap();
    let mode = || server.getattr(made.node).unwrap().stat.mode;
    let cut = SetAttr::new().size(3);
    marked(0o6777);
    server.write(ME, handle, 0, b"xxxx").unwrap();
    server.setattr(ME, made.node, None, &cut).unwrap();
    assert_eq!(mode(), 0o6777, "the caller keeps them");
    server.write(CLEARS, handle, 0, b"x").unwrap();
    assert_eq!(mode(), 0o777);
    marked(0o6767);
    server.setattr(YOU, made.node, None, &cut).unwrap();
    assert_eq!(mode(), 0o2767, "setgid without group execution is mandatory locking");
    marked(0o6777);
    server.open(YOU, made.node, O_RDWR | O_TRUNC).unwrap();
    assert_eq!((mode(), server.getattr(made.node).unwrap().stat.size), (0o777, 0));
}

/// Clearing changes only setuid and setgid, so it does not restore permissions that a chmod removes
/// at the same time.
#[test]
fn clearing_setuid_does_not_undo_a_chmod() {
    let server = server();
    let (made, _) = server.create(YOU, ROOT, b"f", 0o777, 0, O_RDWR).unwrap();
    let chmod = |mode| server.setattr(ME, made.node, None, &SetAttr::new().mode(mode)).unwrap();
    let barrier = Barrier::new(2);
    let undone = thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5000 {
                barrier.wait();
                let handle = server.open(YOU, made.node, O_RDWR | O_TRUNC).unwrap();
                server.release(handle).unwrap();
                barrier.wait();
            }
        });
        let rounds = (0..5000).filter(|_| {
            chmod(0o4777);
            barrier.wait();
            chmod(0o700);
            barrier.wait();
            server.getattr(made.node).unwrap().stat.mode != 0o700
        });
        rounds.count()
    });
    assert_eq!(undone, 0);
}
