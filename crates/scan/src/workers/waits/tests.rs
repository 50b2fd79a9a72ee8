//! Costs as they were measured, and made up.

use super::*;

fn cost(entries: u64, cpu_us: u64, wait_us: u64) -> Cost {
    Cost { entries, cpu_ns: entries * cpu_us * 1000, waited_ns: entries * wait_us * 1000 }
}

#[test]
fn caller_works_alone_while_nothing_waits() {
    let controller = ByWaits::new(Workers::Auto, 100);
    assert!(!controller.after_caller(cost(340, 900, 0)));
    assert!(!controller.after_caller(cost(340, 2, 4)));
    assert!(!controller.after_caller(cost(8, 2, 10)), "80 us in all are not judged");
    assert_eq!(controller.threads(), 1);
}

#[test]
fn one_thread_reads_ahead_while_entries_wait_a_little() {
    let controller = ByWaits::new(Workers::Auto, 100);
    assert!(!controller.after_caller(cost(340, 4, 0)) && !controller.reads_ahead());
    assert!(!controller.after_caller(cost(340, 4, 2)) && controller.reads_ahead());
    controller.after_readahead(cost(20, 9, 100));
    assert!(controller.reads_ahead());
    controller.after_readahead(cost(0, 0, 0));
    assert!(controller.reads_ahead(), "a thread that did not begin is not judged");
    controller.after_readahead(cost(20, 9, 0));
    assert!(!controller.reads_ahead(), "all is in the kernel's caches");
    let alone = ByWaits::new(Workers::AtMost(1), 100);
    assert!(!alone.after_caller(cost(340, 9, 2)) && !alone.reads_ahead());
}

#[test]
fn number_follows_the_wait() {
    let controller = ByWaits::new(Workers::Auto, 100);
    assert!(controller.after_caller(cost(16, 5, 500)));
    assert_eq!(controller.threads(), MAX_WORKERS);
    controller.after_job(cost(1000, 5, 20), 64, Duration::from_millis(10));
    assert_eq!(controller.threads(), 5);
    controller.after_job(cost(1000, 4, 1), 5, Duration::from_millis(10));
    assert_eq!(controller.threads(), 1);
}

/// Eight entries on a slow server, as measured.
#[test]
fn cpu_time_of_the_first_entries_is_bounded() {
    let controller = ByWaits::new(Workers::Auto, 100);
    assert!(controller.after_caller(cost(8, 342, 865)));
    assert_eq!(controller.threads(), 44);
}

/// On a machine with so many CPUs.
fn on(cpus: usize) -> ByWaits {
    ByWaits { cpus: cpus.into(), ..ByWaits::new(Workers::Auto, 100) }
}

/// As on ext4: some reads, and then blocks that must become inodes.
#[test]
fn threads_share_much_work_where_entries_have_waited() {
    let controller = on(2);
    assert!(!controller.after_caller(cost(340, 9, 0)), "cached attributes and extended attributes");
    controller.after_caller(cost(32, 9, 4));
    assert!(!controller.after_caller(cost(32, 9, 0)), "too few");
    assert!(controller.after_caller(cost(340, 9, 0)));
    assert_eq!(controller.threads(), 2);
    // 9 us alone, 5 us together.
    controller.after_job(cost(4096, 9, 0), 2, Duration::from_millis(20));
    assert_eq!(controller.threads(), 1, "the caller tries alone");
    assert!(controller.after_caller(cost(256, 9, 0)));
    controller.after_job(cost(4096, 9, 0), 2, Duration::from_millis(20));
    assert_eq!(controller.threads(), 2);
    controller.after_job(cost(4096, 2, 0), 2, Duration::from_millis(4));
    assert_eq!(controller.threads(), 1, "all is cached");

    let controller = on(1);
    controller.after_caller(cost(32, 9, 4));
    assert!(!controller.after_caller(cost(340, 9, 0)), "there is one CPU");
}

#[test]
fn trial_alone_with_cached_entries_is_undone() {
    let controller = on(2);
    controller.after_job(cost(4096, 10, 20), 2, Duration::from_millis(32));
    assert!(!controller.after_caller(cost(256, 3, 0)), "as good alone");
    assert!(controller.after_caller(cost(256, 12, 0)), "and then not");
    assert_eq!(controller.threads(), 2);
}

#[test]
fn threads_that_bring_nothing_are_capped() {
    let controller = ByWaits::new(Workers::Auto, 100);
    controller.after_job(cost(1000, 5, 30), 4, Duration::from_millis(10));
    assert_eq!(controller.threads(), 7);
    controller.after_job(cost(1000, 5, 60), 7, Duration::from_millis(10));
    assert_eq!(controller.threads(), 4);
    for _ in 0..CAPPED_JOBS {
        controller.after_job(cost(1000, 5, 60), 4, Duration::from_millis(10));
    }
    assert_eq!(controller.threads(), 13, "tried again after a while");
}

#[test]
fn threads_in_one_anothers_way_are_dismissed() {
    let controller = ByWaits::new(Workers::Auto, 100);
    assert!(controller.after_caller(cost(64, 8, 10)));
    // Two threads do 4096 entries in 70 ms, 17 us each, with twice the work.
    controller.after_job(cost(4096, 16, 16), 2, Duration::from_millis(70));
    assert_eq!(controller.threads(), 1, "the caller tries alone");
    controller.after_job(cost(4096, 16, 16), 2, Duration::from_millis(70));
    assert_eq!(controller.threads(), 1, "a job that was in progress changes nothing");
    assert!(!controller.after_caller(cost(64, 8, 10)), "too few to compare");
    assert!(!controller.after_caller(cost(256, 8, 10)), "18 us each, as with threads");
    assert!(!controller.after_caller(cost(256, 8, 12)), "decided");
    assert!(
        controller.after_caller(cost(64, 8, 500)) || controller.after_caller(cost(64, 8, 500)),
        "a device: threads again"
    );
}

#[test]
fn threads_that_bring_something_return() {
    let controller = ByWaits::new(Workers::Auto, 100);
    controller.after_job(cost(4096, 8, 30), 4, Duration::from_millis(35));
    assert_eq!(controller.threads(), 1);
    assert!(controller.after_caller(cost(256, 8, 10)), "18 us alone, 8.5 us with four threads");
    assert_eq!(controller.threads(), 4);
    controller.after_job(cost(4096, 8, 30), 4, Duration::from_millis(35));
    assert_eq!(controller.threads(), 4, "not tried again at once");
}

#[test]
fn threads_that_get_into_one_anothers_way_are_dismissed_at_once() {
    let controller = ByWaits::new(Workers::Auto, 100);
    controller.after_job(cost(4096, 5, 8), 2, Duration::from_millis(28));
    assert!(controller.after_caller(cost(256, 6, 3)), "9 us alone, 7 us with two threads");
    controller.after_job(cost(4096, 5, 8), 2, Duration::from_millis(28));
    assert_eq!(controller.threads(), 2);
    controller.after_job(cost(200, 25, 25), 2, Duration::from_millis(5));
    assert_eq!(controller.threads(), 2, "too few to compare");
    controller.after_job(cost(4096, 25, 25), 2, Duration::from_millis(100));
    assert_eq!(controller.threads(), 1, "25 us now, 9 us alone");
    assert!(!controller.after_caller(cost(256, 6, 3)), "and alone it is 9 us still");

    let controller = ByWaits::new(Workers::Auto, 100);
    controller.after_job(cost(4096, 5, 8), 2, Duration::from_millis(28));
    assert!(controller.after_caller(cost(256, 6, 3)));
    controller.after_job(cost(4096, 5, 800), 2, Duration::from_millis(1640));
    assert!(controller.is_decided(), "slower, but they wait for a device");
    assert_ne!(controller.threads(), 1);
}

/// The rate of threads in another directory, at another time, does not cap these.
#[test]
fn rate_from_before_the_caller_took_over_caps_nothing() {
    let controller = ByWaits::new(Workers::AtMost(64), 100);
    let job = |wait_us, threads, millis| {
        controller.after_job(cost(4096, 8, wait_us), threads, Duration::from_millis(millis));
    };
    job(30, 4, 35);
    assert!(controller.after_caller(cost(256, 8, 10)));
    job(30, 4, 35);
    controller.after_job(cost(4096, 25, 75), 4, Duration::from_millis(100));
    assert_eq!(controller.threads(), 1, "in one another's way");
    assert!(!controller.after_caller(cost(256, 8, 10)));
    assert!(controller.after_caller(cost(32, 5, 5000)), "a server with high latency");
    assert_eq!(controller.threads(), 64);
    job(5000, 64, 330);
    assert_eq!(controller.threads(), 64);
}

#[test]
fn waits_for_a_device_are_not_tried_alone() {
    let controller = ByWaits::new(Workers::Auto, 100);
    controller.after_job(cost(4096, 5, 4000), 64, Duration::from_millis(260));
    assert_eq!((controller.threads(), controller.is_decided()), (64, true));
}

#[test]
fn hopeless_trial_alone_ends_soon() {
    let controller = ByWaits::new(Workers::Auto, 100);
    controller.after_job(cost(4096, 5, 800), 64, Duration::from_millis(70));
    assert_eq!((controller.threads(), controller.is_decided()), (1, false));
    assert!(controller.after_caller(cost(32, 5, 600)));
    assert_eq!((controller.threads(), controller.is_decided()), (64, true));
    controller.after_job(cost(4096, 5, 800), 64, Duration::from_millis(70));
    assert_eq!(controller.threads(), 64, "and not tried again");
}

#[test]
fn disk_that_serves_one_at_a_time_counts_as_a_device() {
    let controller = ByWaits::new(Workers::Auto, 100);
    controller.after_job(cost(4096, 5, 800), 64, Duration::from_millis(1000));
    assert!(!controller.is_decided());
    assert!(!controller.after_caller(cost(128, 5, 250)), "one read alone may have been long");
    assert!(controller.after_caller(cost(256, 5, 250)));
    assert_eq!((controller.threads(), controller.is_decided()), (64, true));
}

#[test]
fn small_directories_end_a_trial_alone() {
    let controller = ByWaits::new(Workers::Auto, 100);
    controller.after_job(cost(4096, 16, 16), 2, Duration::from_millis(70));
    assert!(
        (0..=TRIAL_LOOKS).any(|_| controller.after_caller(cost(8, 8, 500))),
        "no measurement had enough entries to compare"
    );
    assert_eq!(controller.threads(), 2);

    let controller = ByWaits::new(Workers::Auto, 100);
    controller.after_job(cost(4096, 16, 16), 2, Duration::from_millis(70));
    assert!(!controller.after_caller(cost(256, 8, 10)), "as good alone");
    let slow = (1..).find(|_| controller.after_caller(cost(8, 8, 500))).expect("some look");
    assert!(slow <= ALONE_LOOKS / WAITED_LOOKS + 2, "{slow} measurements of entries that waited");
}

#[test]
fn limits_are_kept() {
    for (workers, expected) in [(Workers::AtMost(6), 6), (Workers::Fixed(3), 3), (Workers::AtMost(1), 1)] {
        let controller = ByWaits::new(workers, 100);
        controller.after_caller(cost(100, 5, 5000));
        assert_eq!(controller.threads(), expected);
    }
}
