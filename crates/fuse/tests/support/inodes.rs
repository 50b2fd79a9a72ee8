//! The number of inodes that a tree in memory uses.

use pando_fuse::{Caller, Server};
use pandofs_testkit::await_value;

const ROOT: u64 = 1;

/// Waits until the server's tree uses `count` inodes, and fails if that does not happen.
///
/// A removed inode is freed as soon as no thread is inside a reclamation guard. All trees of the
/// process share one reclaimer, so the tests that run beside this one delay it, each for a moment.
#[track_caller]
pub fn await_inodes(server: &Server, count: u64) {
    await_value(count, || {
        let statfs = server.statfs(Caller::new(0, 0), ROOT).unwrap();
        statfs.files - statfs.ffree
    });
}
