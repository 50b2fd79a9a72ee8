//! The ends of a run: signals, and processes that end with their parent.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{alone, common::signals, is_empty, run, start, with_program};

/// The state, the parent and the CPU ticks of a process. None if there is no such process.
fn stat_of(pid: u32) -> Option<(char, u32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
    Some((fields.first()?.chars().next()?, fields.get(1)?.parse().ok()?, ticks(11)? + ticks(12)?))
}

#[test]
fn a_worker_does_not_outlive_its_parent() {
    const TICKS: u64 = 10;
    const PATIENCE: Duration = Duration::from_secs(10);
    let _alone = alone();
    // A workload that is timed, and one in the midst of a round that takes hours.
    for workload in ["run crunl", "run crunl:steps=1000000000"] {
        let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
        let target = format!("dir={}", temp.path().display());
        let how = ["--target", &target, "--processes", "--threads", "1", "--seconds", "3600"];
        let mut conductor = start(&[&workload.split(' ').collect::<Vec<_>>()[..], &how].concat());
        let parent = conductor.id();
        let is_at_work = |pid: &u32| stat_of(*pid).is_some_and(|(_, of, ticks)| of == parent && ticks >= TICKS);
        let pids = || {
            fs::read_dir("/proc").expect("processes").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        };
        let worker = loop {
            if let Some(worker) = pids().find(is_at_work) {
                break worker;
            }
            assert!(conductor.try_wait().expect("a child").is_none(), "it ended by itself");
            thread::sleep(Duration::from_millis(10));
        };
        conductor.kill().expect("it is there");
        conductor.wait().expect("it was killed");
        // The new parent may not have waited for it yet.
        let is_gone = || stat_of(worker).is_none_or(|(state, ..)| state == 'Z');
        let until = Instant::now() + PATIENCE;
        while !is_gone() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        let ended = is_gone();
        if !ended {
            let pid = Pid::from_raw(worker.cast_signed()).expect("a process");
            kill_process(pid, Signal::KILL).expect("it is there");
        }
        assert!(ended, "{workload}: the worker goes on");
    }
}

#[test]
fn ctrl_c_cleans_up() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    let target = format!("dir={}", temp.path().display());
    let mut child = start(&["crunl", &target, "--seconds", "3600", "--warmup", "0.01"]);
    let pid = Pid::from_child(&child);
    // The signal may come before or after the directory is marked.
    while !signals(&child.id().to_string(), "SigCgt")(Signal::INT) {
        assert!(child.try_wait().expect("a child").is_none(), "it ended by itself");
        thread::yield_now();
    }
    kill_process(pid, Signal::INT).expect("it is there");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    assert!(is_empty(temp.path()));

    // The second run has workers that are processes.
    for further in [&["stat"][..], &["create-shared", "--processes"]] {
        let target = format!("dir={}", temp.path().display());
        let mut child = start(&[further, &[&target, "--seconds", "3600", "--warmup", "0.01"]].concat());
        let pid = Pid::from_child(&child);
        while is_empty(temp.path()) {
            assert!(child.try_wait().expect("a child").is_none(), "it ended by itself");
            thread::yield_now();
        }
        kill_process(pid, Signal::TERM).expect("it is there");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(130));
        assert!(is_empty(temp.path()));
    }

    // A directory that existed before is kept.
    let there = temp.path().join("there");
    fs::create_dir(&there).expect("a directory");
    for (dir, stays) in [(temp.path().join("new"), false), (there, true)] {
        let mut child = start(&["mktree", dir.to_str().expect("UTF-8"), "7", "100000000", "0"]);
        while !dir.exists() || is_empty(&dir) {
            assert!(child.try_wait().expect("a child").is_none(), "it ended by itself");
            thread::yield_now();
        }
        kill_process(Pid::from_child(&child), Signal::INT).expect("it is there");
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*said), (Some(130), "pando bench: interrupted\n"));
        assert_eq!(dir.exists(), stays);
        assert!(!stays || is_empty(&dir));
    }
}

/// Only the parent gets the signal, and SIGKILL ends it before it could pass the signal on.
#[test]
fn a_child_ends_with_its_parent() {
    let _alone = alone();
    for signal in [Signal::TERM, Signal::KILL] {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let mut child = start(&["footprint", &format!("dir={}", temp.path().display()), "--count", "100000000"]);
        while is_empty(temp.path()) {
            assert!(child.try_wait().expect("a child").is_none(), "it ended by itself");
            thread::yield_now();
        }
        kill_process(Pid::from_child(&child), signal).expect("it is there");
        // Its own child holds the pipes as well: they end when both have.
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), (signal == Signal::TERM).then_some(130));
        assert!(is_empty(temp.path()));
    }
}

/// A terminal sends the signal to all processes at once.
#[test]
fn ctrl_c_that_ends_a_program_first_is_an_interruption() {
    let _alone = alone();
    let temp = tempfile::tempdir().expect("a temporary directory");
    let target = format!("dir={}", temp.path().display());
    for workers in [&["--threads", "1"][..], &["--threads", "1", "--processes"]] {
        let args = [&["find-size", &target, "--set", "files=10"], workers].concat();
        let output = with_program("find", "kill -INT 0; sleep 3600", &args);
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        assert!(is_empty(temp.path()));
    }
}

/// The figures of another run are kept until there are new ones, and then all of them are replaced.
#[test]
fn an_interrupted_report_holds_figures_of_one_run_only() {
    let _alone = alone();
    const FIGURES: [&str; 4] = ["report.json", "footprint.json", "conflicts.json", "command.txt"];
    let temp = tempfile::tempdir().expect("a temporary directory");
    let disk = temp.path().join("disk");
    let (out, dir, refused) = (temp.path().join("out"), temp.path().join("dir"), temp.path().to_str().expect("UTF-8"));
    fs::create_dir(&out).expect("a directory");
    FIGURES.iter().for_each(|name| fs::write(out.join(name), "of another run").expect("writing"));
    let read = |name: &str| fs::read_to_string(out.join(name)).ok();
    let report = ["report", "--out", out.to_str().expect("UTF-8")];
    let disk = disk.to_str().expect("UTF-8");
    let short = ["--quick", "--repeat", "1", "--threads", "1", "--disk", disk, "--dir"];
    let output = run(&[&report[..], &short, &[refused]].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(FIGURES.iter().all(|name| read(name).as_deref() == Some("of another run")));

    let mut child = start(&[&report[..], &short, &[dir.to_str().expect("UTF-8")]].concat());
    while read("report.json").is_some_and(|text| !text.ends_with("]\n")) {
        assert!(child.try_wait().expect("a child").is_none(), "it ended by itself");
        thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("it is there");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert_eq!(read("conflicts.json"), None);
    let output = run(&[&report[..], &["--redraw"]].concat());
    assert!(output.status.success(), "{output:?}");
    let page = read("index.html").expect("it was drawn");
    assert!(page.contains("<code>pando bench report") && page.contains("--repeat 1 --threads 1"), "{page}");
}
