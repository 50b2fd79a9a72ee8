//! A test of the watchdog: a hang becomes a failure that shows every stack.

use std::process::Command;

use crate::harness::run_workers;

/// Hangs on purpose. The test below runs it in a process of its own.
#[test]
#[ignore = "hangs, to see the watchdog bite"]
fn hangs_for_the_watchdog() {
    run_workers("hangs_for_the_watchdog", 2, 1, |me| {
        if me.id == 0 {
            parks_forever();
        }
    });
}

/// The function name that must be found in the report.
#[inline(never)]
fn parks_forever() {
    loop {
        std::thread::park();
    }
}

#[test]
fn watchdog_prints_the_stack_of_a_hung_thread() {
    let this = std::env::current_exe().expect("this test's own file");
    let output = Command::new(this)
        .args(["--ignored", "--exact", "watchdog::hangs_for_the_watchdog"])
        .env("PANDO_STRESS_STALL_S", "2")
        .output()
        .expect("runs itself");
    assert!(!output.status.success(), "the hang went unnoticed");
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(report.contains("HANG in hangs_for_the_watchdog"), "{report}");
    // gdb shows the function name. Without gdb, the kernel's information about each thread is
    // printed.
    assert!(report.contains("parks_forever") || report.contains("no gdb"), "{report}");
}
