use pando_memfs::{MemFs, MemOptions};

use super::*;

/// The kernel reuses a device number before the last server that had it has ended.
#[test]
fn address_in_use_is_bound_when_it_is_free() {
    let device = format!("test:before:{}", std::process::id());
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a tree");
    let before = TraceListener::start(vfs.clone(), &device).expect("listening");
    // This one ends before it has bound the address.
    drop(TraceListener::start(vfs.clone(), &device).expect("waiting"));
    let next = TraceListener::start(vfs, &device).expect("waiting");
    drop(before);
    // The next one binds the address.
    while crate::trace::connect(&device, None).is_err() {
        std::thread::yield_now();
    }
    drop(next);
    assert!(crate::trace::connect(&device, None).is_err());
}

/// Any user may bind the address of a server.
#[test]
fn root_trusts_only_root_and_the_user_that_mounted_the_tree() {
    if !pandofs_testkit::is_root() {
        return;
    }
    let stranger = rustix::process::Uid::from_raw(65534);
    let device = format!("test:stranger:{}", std::process::id());
    let address = address(&device).expect("an address");
    let squat = move || {
        // This changes the user of this thread only.
        rustix::thread::set_thread_res_uid(stranger, stranger, stranger).expect("root may");
        UnixListener::bind_addr(&address).expect("bound")
    };
    let _listener = std::thread::spawn(squat).join().expect("no panic");
    for owner in [None, Some(0), Some(1000)] {
        let refused = crate::trace::connect(&device, owner).expect_err("a stranger");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{owner:?}");
    }
    assert!(crate::trace::connect(&device, Some(stranger.as_raw())).is_ok());
}

/// Seen to fail: a signal during the wait left the thread in accept(2) for ever, so that the server
/// could not end.
#[test]
fn accept_without_a_client_does_not_wait() {
    let address = address(&format!("test:{}", std::process::id())).expect("an address");
    let listener = UnixListener::bind_addr(&address).expect("bound");
    let (stop, stopped) = UnixStream::pair().expect("a pair");
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a tree");
    let watch = Watch::new(vfs, listener, stopped).expect("listening");
    let (found, finding) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        found.send(watch.accept().is_none()).expect("the test waits");
        let ready = watch.wait(None, None);
        found.send(ready.stop).expect("the test waits");
    });
    let timeout = Duration::from_secs(60);
    assert_eq!(finding.recv_timeout(timeout), Ok(true), "it waits for a client");
    drop(stop);
    assert_eq!(finding.recv_timeout(timeout), Ok(true), "it does not see the end");
}
