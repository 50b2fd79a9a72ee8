use super::*;
use crate::dispatch::tests::dispatcher;

/// A worker that ends early ends the others. A pipe stands for the device: only its end matters
/// here.
#[test]
fn all_workers_end_with_the_first() {
    let dispatch = Arc::new(dispatcher(Duration::ZERO));
    let (device, kernel) = io::pipe().unwrap();
    let (reader, writer) = io::pipe().unwrap();
    let (device, shutdown) = (Arc::new(OwnedFd::from(device)), Arc::new(ShutdownPipe { reader, writer }));
    let of_worker = Arc::clone(&shutdown);
    let worker = thread::spawn(move || {
        let _shutdown = ShutdownOnDrop(&of_worker);
        panic!("on purpose");
    });
    assert!(worker.join().is_err());
    let (device_reader, device_of_work) = (thread::current(), Arc::clone(&device));
    let work = Work { device: device_of_work, dispatch, device_reader, shutdown, successors: None };
    assert!(serve_device(&work).is_ok());
    // At the end of the connection the ring and the device report it at about the same time. That
    // is no failure.
    assert!(!ends(&device));
    drop(kernel);
    // A wait that times out returns false.
    assert!(ends(&device));
}
