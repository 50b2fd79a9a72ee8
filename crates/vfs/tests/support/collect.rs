//! Waiting for reclaimed memory, for the tests of several crates (`#[path]`).

use pandofs_testkit::await_value;

/// Reclaims until `done`. Tests that run beside this one may be reading, each for a moment.
pub fn collect_until(done: impl Fn() -> bool) {
    await_value(true, || {
        pando_sync::collect();
        done()
    });
}
