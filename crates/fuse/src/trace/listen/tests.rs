use pando_memfs::{MemFs, MemOptions};

use super::*;

/// The kernel gives device numbers out again before the last server that had one has ended.
#[test]
fn a_predecessor_that_ends_is_waited_for() {
    let device = format!("test:before:{}", std::process::id());
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a tree");
    let before = TraceListener::start(vfs.clone(), &device).expect("listening");
    // One that ends before its turn has come.
    drop(TraceListener::start(vfs.clone(), &device).expect("waiting"));
    let next = TraceListener::start(vfs, &device).expect("waiting");
    drop(before);
    let asked = Instant::now();
    while crate::trace::connect(&device, None).is_err() {
        assert!(asked.elapsed() < Duration::from_secs(60), "nobody listens");
        std::thread::yield_now();
    }
    drop(next);
    assert!(crate::trace::connect(&device, None).is_err());
}

/// Any user may listen where a server should.
#[test]
fn root_believes_only_root_and_who_mounted_the_tree() {
    if !pandofs_testkit::is_root() {
        return;
    }
    let stranger = rustix::process::Uid::from_raw(65534);
    let device = format!("test:stranger:{}", std::process::id());
    let address = address(&device).expect("an address");
    let squat = move || {
        // Of this thread alone.
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

/// A signal that met this thread in its wait left it in accept(2) for ever, and with it the server that was to end.
#[test]
fn nobody_there_is_not_waited_for() {
    let address = address(&format!("test:{}", std::process::id())).expect("an address");
    let listener = UnixListener::bind_addr(&address).expect("bound");
    let (stop, stopped) = UnixStream::pair().expect("a pair");
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a tree");
    let watch = Watch::new(vfs, listener, stopped).expect("listening");
    let (found, finding) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        found.send(watch.newcomer().is_none()).expect("somebody wants to know");
        let ready = watch.wait(None, None);
        found.send(ready.stop).expect("somebody wants to know");
    });
    let patience = Duration::from_secs(60);
    assert_eq!(finding.recv_timeout(patience), Ok(true), "it waits for somebody to come");
    drop(stop);
    assert_eq!(finding.recv_timeout(patience), Ok(true), "it does not see the end");
}
