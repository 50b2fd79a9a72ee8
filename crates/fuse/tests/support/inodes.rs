//! The number of inodes that a tree in memory uses.

use std::time::{Duration, Instant};

use pando_fuse::{Caller, Server};

const ROOT: u64 = 1;
/// The longest wait, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the server's tree uses `count` inodes, and fails if that does not happen.
///
/// A removed inode is freed as soon as no thread is inside a reclamation guard. All trees of the
/// process share one reclaimer, so the tests that run beside this one delay it, each for a moment.
#[track_caller]
pub fn await_inodes(server: &Server, count: u64) {
    let begin = Instant::now();
    loop {
        let statfs = server.statfs(Caller::new(0, 0), ROOT).unwrap();
        let used = statfs.files - statfs.ffree;
        if used == count {
            return;
        }
        if begin.elapsed() > PATIENCE {
            panic!("{used} inodes are used, not {count}");
        }
        std::thread::yield_now();
    }
}
