//! The end of a mounted tree's server: by signals, while the tree is in use, and when others abort
//! the connection.

mod common;
mod requests;

use std::{
    fs,
    io::{Read, Write},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use common::{Mounted, assert_broken_off, can_mount, heed, names, pando, run, said, signals, wait_until_mounted};
use requests::alone;
use rustix::{
    io::Errno,
    process::{Signal, kill_process},
};

#[test]
fn signals_unmount() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut mounted = Mounted::new(&[]);
        fs::write(mounted.path("f"), "f").unwrap();
        kill_process(mounted.pid(), signal).unwrap();
        let (status, errors) = mounted.ended();
        assert!(status.success() && errors.is_empty(), "{signal:?}: {status}: {errors}");
        assert!(!mounted.path("f").exists());
    }
}

/// `nohup pando mount grove &` outlives its terminal.
#[test]
fn ignored_signals_do_not_unmount() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let grove = temp.path().join("grove");
    heed();
    let mut server = Command::new("env");
    server.args(["--ignore-signal=HUP", env!("CARGO_BIN_EXE_pando"), "mount"]).arg(&grove).stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    assert!(server.stdout.as_mut().unwrap().read(&mut [0; 4096]).unwrap() > 0);
    let catches = signals(&server.id().to_string(), "SigCgt");
    assert!(run(&["umount", grove.to_str().unwrap()]).status.success());
    assert!(server.wait().unwrap().success());
    assert!(!catches(Signal::HUP) && catches(Signal::TERM));
}

#[test]
fn a_busy_tree_is_reported_and_can_be_detached() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&[]);
    let open = fs::File::create(mounted.path("f")).unwrap();
    let root = mounted.root();
    let refused = run(&["umount", root.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("in use") && said(&refused).contains("--lazy"), "{}", said(&refused));
    assert!(run(&["umount", "--lazy", root.to_str().unwrap()]).status.success());
    assert!(!root.join("f").exists());
    // The server ends with the last user.
    (&open).write_all(b"still served").unwrap();
    drop(open);
    let (status, errors) = mounted.ended();
    assert!(status.success() && errors.is_empty(), "{status}: {errors}");
}

#[test]
fn a_signal_detaches_a_busy_tree() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&[]);
    let open = fs::File::create(mounted.path("f")).unwrap();
    kill_process(mounted.pid(), Signal::INT).unwrap();
    // Wait for the mount to disappear from the mount table: the kernel reports changes of the
    // table.
    wait_until_mounted(mounted.root().to_str().unwrap(), false);
    drop(open);
    let (status, errors) = mounted.ended();
    assert!(status.success() && errors.contains("in use: detached"), "{status}: {errors}");
}

/// close(2) does not wait for the server: the server still gets releases when the kernel ends the
/// connection. A request that is taken back while a thread reads it is no failure of the server
/// (ECONNABORTED instead of ENODEV).
#[test]
fn requests_taken_back_at_the_end_are_no_failure() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    for _ in 0..20 {
        let mut mounted = Mounted::new(&["--threads", "4"]);
        let open: Vec<_> = (0..200).map(|n| fs::File::create(mounted.path(n.to_string())).unwrap()).collect();
        assert!(run(&["umount", "--lazy", mounted.root().to_str().unwrap()]).status.success());
        drop(open);
        let (status, errors) = mounted.ended();
        assert!(status.success() && errors.is_empty(), "{status}: {errors}");
    }
}

#[test]
fn a_second_signal_ends_a_busy_server() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&[]);
    let open = fs::File::create(mounted.path("f")).unwrap();
    kill_process(mounted.pid(), Signal::TERM).unwrap();
    wait_until_mounted(mounted.root().to_str().unwrap(), false);
    kill_process(mounted.pid(), Signal::TERM).unwrap();
    let (status, errors) = mounted.ended();
    assert_eq!(status.code(), Some(1), "{errors}");
    assert_broken_off(&(&open).write(b"x").unwrap_err());
    drop(open);

    let mut mounted = Mounted::new(&[]);
    for signal in [Signal::INT, Signal::TERM, Signal::INT] {
        // The third signal may come after the end of the process. It is not collected yet,
        // so the number is still its own.
        kill_process(mounted.pid(), signal).unwrap();
    }
    let (status, errors) = mounted.ended();
    assert!(status.success() && errors.is_empty(), "{status}: {errors}");
}

#[test]
fn a_signal_to_a_detached_server_leaves_a_later_mount_alone() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mut detached = Mounted::new(&[]);
    let open = fs::File::create(detached.path("f")).unwrap();
    let root = detached.root();
    assert!(run(&["umount", "--lazy", root.to_str().unwrap()]).status.success());
    assert!(run(&["mount", "--daemon", root.to_str().unwrap()]).status.success());
    fs::write(root.join("later"), "kept").unwrap();
    let ended = signal_until_ended(&detached);
    let (status, errors) = detached.ended();
    assert!(ended && status.code() == Some(1) && errors.contains("detached"), "{status}: {errors}");
    drop(open);
    assert_eq!(fs::read_to_string(root.join("later")).unwrap(), "kept");
    assert!(run(&["umount", root.to_str().unwrap()]).status.success());
}

#[test]
fn a_server_whose_tree_is_mounted_elsewhere_too_can_be_ended() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&[]);
    let other = tempfile::tempdir().unwrap();
    rustix::mount::mount_bind(mounted.root(), other.path()).unwrap();
    kill_process(mounted.pid(), Signal::TERM).unwrap();
    wait_until_mounted(mounted.root().to_str().unwrap(), false);
    // A signal right after the first one counts as the same signal.
    let ended = signal_until_ended(&mounted);
    rustix::mount::unmount(other.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    let (status, errors) = mounted.ended();
    assert!(ended && status.code() == Some(1), "{status}: {errors}");
}

/// Sends signals repeatedly. Returns whether they ended the server, and kills it otherwise.
fn signal_until_ended(mounted: &Mounted) -> bool {
    let end = rustix::process::pidfd_open(mounted.pid(), rustix::process::PidfdFlags::empty()).unwrap();
    let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let ended = (0..200).any(|_| {
        kill_process(mounted.pid(), Signal::TERM).unwrap();
        let mut polled = [rustix::event::PollFd::new(&end, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&moment)).unwrap() > 0
    });
    kill_process(mounted.pid(), Signal::KILL).unwrap();
    ended
}

#[test]
fn force_aborts_waiting_requests() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    for in_use in [false, true] {
        let mut mounted = Mounted::new(&[]);
        let root = mounted.root();
        let open = in_use.then(|| fs::File::create(mounted.path("f")).unwrap());
        let output = run(&["umount", "--force", root.to_str().unwrap()]);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(names(&root), Vec::<String>::new(), "the directory below");
        let (status, errors) = mounted.ended();
        assert!(status.success(), "{status}: {errors}");
        let refused = open.map(|mut open| open.write(b"x").unwrap_err().raw_os_error());
        assert_eq!(refused, in_use.then(|| Some(Errno::NOTCONN.raw_os_error())));
    }
}

#[test]
fn a_mount_that_others_abort_is_removed() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&[]);
    let open = fs::File::create(mounted.path("f")).unwrap();
    let forced = rustix::mount::unmount(mounted.root(), rustix::mount::UnmountFlags::FORCE);
    assert_eq!(forced, Err(Errno::BUSY), "broken off all the same");
    let (status, errors) = mounted.ended();
    assert!(status.success(), "{status}: {errors}");
    assert_eq!(names(&mounted.root()), Vec::<String>::new(), "the directory below");
    drop(open);
}

/// Whatever part does not fit into the limit on open files: the server does not start, misses a
/// feature, or ends.
#[test]
fn too_few_open_files_leave_no_dead_mount() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    for limit in 4..14 {
        let grove = temp.path().join(limit.to_string());
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" mount --threads 2 \"$1\"")]);
        shell.arg(env!("CARGO_BIN_EXE_pando")).arg(&grove).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = shell.spawn().unwrap();
        let ready = server.stdout.as_mut().unwrap().read(&mut [0; 4096]).unwrap() > 0;
        if ready {
            kill_process(rustix::process::Pid::from_child(&server), Signal::TERM).unwrap();
        }
        let output = server.wait_with_output().unwrap();
        let left = fs::read_to_string("/proc/self/mountinfo").unwrap().contains(grove.to_str().unwrap());
        let _ = rustix::mount::unmount(&grove, rustix::mount::UnmountFlags::DETACH);
        assert!(!left, "{limit}: {}", said(&output));
    }
}

/// If some threads cannot be started, the others serve.
#[test]
fn too_few_threads_leave_a_working_mount() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let grove = temp.path().join("grove");
    // Address space for five stacks, two of which are not for serving; and allocators that take
    // little of it.
    let (stack, room) = (256 << 20, (5 * 256 + 200) << 10);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("ulimit -v {room}; exec \"$0\" mount --io-uring never --threads 8 \"$1\"")]);
    shell.arg(env!("CARGO_BIN_EXE_pando")).arg(&grove).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell.env("RUST_MIN_STACK", stack.to_string()).env("MALLOC_ARENA_MAX", "1");
    shell.env("MIMALLOC_ARENA_RESERVE", "32MiB");
    let mut server = shell.spawn().unwrap();
    assert!(server.stdout.as_mut().unwrap().read(&mut [0; 4096]).unwrap() > 0, "it is mounted");
    fs::write(grove.join("f"), "served").unwrap();
    assert_eq!(fs::read_to_string(grove.join("f")).unwrap(), "served");
    assert!(run(&["umount", grove.to_str().unwrap()]).status.success());
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success() && said(&output).contains("no more can be started"), "{}", said(&output));
}

#[test]
fn mounts_inside_are_named_as_the_reason() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let root = mounted.root();
    let tmpfs = mounted.path("tmp");
    fs::create_dir(&tmpfs).unwrap();
    let inside = Mounted::again(tempfile::tempdir_in(&root).unwrap(), &[]);
    rustix::mount::mount("none", &tmpfs, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    for how in [&[][..], &["--force"]] {
        let refused = run(&[&["umount", root.to_str().unwrap()], how].concat());
        assert_eq!(refused.status.code(), Some(1), "{how:?}");
        let message = said(&refused);
        let by_itself = format!("umount {}", tmpfs.display());
        assert!(message.contains(&format!("pando umount {}", inside.root().display())), "{message}");
        assert!(message.contains(&by_itself) && !message.contains("fuser"), "{message}");
        assert!(!message.contains(&format!("pando {by_itself}")), "{message}");
    }
    rustix::mount::unmount(&tmpfs, rustix::mount::UnmountFlags::empty()).unwrap();
    inside.umount();
    mounted.umount();
}

/// That is their purpose: they ask nothing that would wait for an answer.
#[test]
fn force_and_lazy_need_no_answer_of_the_server() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    for how in ["--force", "--lazy"] {
        let mut mounted = Mounted::new(&[]);
        let root = mounted.root();
        kill_process(mounted.pid(), Signal::STOP).unwrap();
        let mut umount = pando(&["umount", how]).arg(&root).spawn().unwrap();
        let patience = Instant::now() + Duration::from_secs(20);
        while umount.try_wait().unwrap().is_none() && Instant::now() < patience {
            thread::sleep(Duration::from_millis(10));
        }
        let unmounted = umount.try_wait().unwrap();
        kill_process(mounted.pid(), Signal::CONT).unwrap();
        assert!(unmounted.is_some_and(|status| status.success()), "{how} waits for the server");
        umount.wait().unwrap();
        let (status, errors) = mounted.ended();
        assert!(status.success(), "{how}: {status}: {errors}");
    }
}
