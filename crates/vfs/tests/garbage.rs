//! Retired memory is bounded while a reader stalls: threads that retire more block, and continue
//! when the reader does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, OpenFlags, Vfs};

/// The library's limit.
const FULL_BYTES: usize = 64 << 20;
/// The limit, and an allowance for operations in progress.
const BOUND_BYTES: usize = FULL_BYTES + (1 << 20);

#[test]
fn writers_block_at_the_retired_memory_limit() {
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a new tree");
    let (made, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let stalled = pando_sync::pin();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (vfs, made, stop) = (&vfs, &made, &stop);
            scope.spawn(move || {
                let context = Context::new(vfs, Credentials::root());
                let name = format!("/{thread}");
                while !stop.load(SeqCst) {
                    let flags = OpenFlags::CREAT | OpenFlags::RDWR;
                    drop(vfs.open(&context, At::Cwd, &name, flags, 0o600).expect("made"));
                    vfs.unlink(&context, At::Cwd, &name).expect("removed");
                    made.fetch_add(1, SeqCst);
                }
            });
        }
        // Retired memory grows up to the limit, where every writer blocks. The loop waits until it
        // sees no more operations. In any case the memory stays below the bound.
        while pando_sync::retired_bytes() < FULL_BYTES {
            std::thread::yield_now();
        }
        let mut last = 0;
        while last != made.load(SeqCst) {
            last = made.load(SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(200));
            assert!(pando_sync::retired_bytes() < BOUND_BYTES, "{} bytes wait", pando_sync::retired_bytes());
        }
        drop(stalled);
        while made.load(SeqCst) < last + 1000 {
            std::thread::yield_now();
        }
        stop.store(true, SeqCst);
    });
    // A thread that has ended may still be exiting, and hold a guard.
    while pando_sync::retired_bytes() >= 1 << 20 {
        pando_sync::collect();
        std::thread::yield_now();
    }
}
