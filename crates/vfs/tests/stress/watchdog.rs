//! The watchdog itself: a hang becomes a failure that shows every stack.

use std::process::Command;

use crate::harness::crew;

/// Hangs on purpose; run by the test below in a process of its own.
#[test]
#[ignore = "hangs, to see the watchdog bite"]
fn a_thread_that_waits_for_nobody() {
    crew("a_thread_that_waits_for_nobody", 2, 1, |me| {
        if me.id == 0 {
            waits_for_ever();
        }
    });
}

/// The name that must be found in the report.
#[inline(never)]
fn waits_for_ever() {
    loop {
        std::thread::park();
    }
}

#[test]
fn the_watchdog_shows_where_a_hang_hangs() {
    let this = std::env::current_exe().expect("this test's own file");
    let output = Command::new(this)
        .args(["--ignored", "--exact", "watchdog::a_thread_that_waits_for_nobody"])
        .env("PANDO_STRESS_STALL_S", "2")
        .output()
        .expect("runs itself");
    assert!(!output.status.success(), "the hang went unnoticed");
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(report.contains("HANG in a_thread_that_waits_for_nobody"), "{report}");
    // gdb names the function; without gdb, the kernel says what each thread waits in.
    assert!(report.contains("waits_for_ever") || report.contains("no gdb"), "{report}");
}
