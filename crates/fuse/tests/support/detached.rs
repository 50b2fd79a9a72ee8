//! A mount whose test may fail.

use std::path::Path;

use pando_fuse::unmount;

/// Detaches a mount when it is dropped by a test that fails. Otherwise its server, for which the
/// test waits, would not end.
pub struct Detached<'a>(pub &'a Path);

impl Drop for Detached<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = unmount::detach(self.0);
        }
    }
}
