use std::{sync::mpsc, time::Duration};

use super::*;

#[test]
fn actions_run_in_order_and_never_early() {
    let timer = Timer::start().unwrap();
    let (sender, receiver) = mpsc::channel();
    let start = Instant::now();
    // The first action blocks the thread until all others have been added.
    let (release, released) = mpsc::channel();
    timer.at(start, Box::new(move || released.recv().unwrap()));
    for delay_ms in [30_u64, 10, 20, 10, 0] {
        let (sender, due) = (sender.clone(), start + Duration::from_millis(delay_ms));
        timer.at(due, Box::new(move || sender.send((delay_ms, Instant::now() >= due)).unwrap()));
    }
    release.send(()).unwrap();
    let done: Vec<_> = receiver.iter().take(5).collect();
    assert_eq!(done, [0, 10, 10, 20, 30].map(|delay_ms| (delay_ms, true)));
}

#[test]
fn panic_costs_one_action() {
    let timer = Timer::start().unwrap();
    let (sender, receiver) = mpsc::channel();
    timer.at(Instant::now(), Box::new(|| panic!("on purpose")));
    timer.at(Instant::now(), Box::new(move || sender.send(()).unwrap()));
    receiver.recv().unwrap();
}

#[test]
fn close_drops_waiting_actions() {
    let timer = Timer::start().unwrap();
    let (sender, receiver) = mpsc::channel::<()>();
    let later = Instant::now() + Duration::from_secs(3600);
    let theirs = sender.clone();
    timer.at(later, Box::new(move || theirs.send(()).unwrap()));
    timer.close();
    timer.at(later, Box::new(move || sender.send(()).unwrap()));
    assert!(receiver.recv().is_err(), "both senders are gone, and nothing was sent");
    timer.close();
}
