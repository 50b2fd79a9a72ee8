//! `pando mount --source`: a directory of the host as the tree, through the real command and the
//! real kernel.

mod common;
mod requests;
mod source_pair;

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use common::{Mounted, can_mount, has, names, run, said, signals, skipped};
use pandofs_testkit::{await_value, stay_on_first_cpu};
use rustix::{
    fs::{AtFlags, StatxFlags, statx},
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use source_pair::Pair;

#[test]
fn changes_on_the_mount_are_changes_of_the_source() {
    for options in [&[][..], &["--exclusive"], &["--io-uring", "never"]] {
        let Some(pair) = Pair::new(options) else { return };
        let (mounted, host) = (|name: &str| pair.mounted.path(name), |name: &str| pair.host(name));
        fs::create_dir(mounted("dir")).unwrap();
        fs::write(mounted("dir/file"), "contents").unwrap();
        fs::hard_link(mounted("dir/file"), mounted("link")).unwrap();
        symlink("dir/file", mounted("symlink")).unwrap();
        fs::rename(mounted("dir"), mounted("renamed")).unwrap();
        assert_eq!(fs::read(host("symlink")).ok(), None, "it leads to the old name");
        assert_eq!(fs::read(host("renamed/file")).unwrap(), b"contents");
        assert_eq!(fs::read_link(host("symlink")).unwrap(), PathBuf::from("dir/file"));
        let (here, there) = (fs::metadata(mounted("link")).unwrap(), fs::metadata(host("link")).unwrap());
        let facts = |of: &fs::Metadata| (of.ino(), of.nlink(), of.len(), of.mode(), of.uid(), of.blocks());
        assert_eq!(facts(&here), facts(&there));
        assert_eq!((here.mtime(), here.mtime_nsec()), (there.mtime(), there.mtime_nsec()));
        fs::remove_file(mounted("link")).unwrap();
        fs::remove_dir_all(mounted("renamed")).unwrap();
        assert_eq!(names(pair.source.path()), ["symlink"]);
        pair.mounted.umount();
        assert!(pair.source.path().join("symlink").is_symlink(), "it is there after the mount");
    }
}

#[test]
fn changes_of_the_source_are_seen_on_the_mount() {
    for options in [&[][..], &["--no-watch"], &["--io-uring", "never"]] {
        let Some(pair) = Pair::new(options) else { return };
        see_changes(&pair);
    }
}

fn see_changes(pair: &Pair) {
    let file = pair.mounted.path("file");
    let read = || fs::read_to_string(&file).ok();
    assert_eq!(read(), None);
    fs::write(pair.host("file"), "one").unwrap();
    await_value(Some("one".into()), read);
    // Of the same length, so that only the time tells.
    fs::write(pair.host("file"), "two").unwrap();
    await_value(Some("two".into()), read);
    let open = fs::File::open(&file).unwrap();
    fs::write(pair.host("file"), "longer").unwrap();
    let (begin, mut asked) = (Instant::now(), None);
    await_value(("longer".into(), None), || {
        let mut buffer = [0; 16];
        let count = open.read_at(&mut buffer, 0).unwrap();
        // If this fails, it says whose cache is out of date.
        if begin.elapsed() > Duration::from_secs(50) && asked.is_none() {
            let kernel = open.metadata().unwrap().len();
            let server = statx(&open, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
            asked = Some((kernel, server.unwrap().stx_size));
        }
        (String::from_utf8_lossy(&buffer[..count]).into_owned(), asked)
    });
    fs::remove_file(pair.host("file")).unwrap();
    await_value(None, read);

    // The kernel may have cached the listing, and what is missing.
    let (list, dir) = (|| names(&pair.mounted.path("dir")), pair.host("dir"));
    fs::create_dir(&dir).unwrap();
    await_value(true, || pair.mounted.path("dir").exists());
    assert_eq!(list(), [""; 0]);
    for name in ["a", "b"] {
        fs::write(dir.join(name), name).unwrap();
    }
    await_value(vec!["a".to_owned(), "b".into()], list);
    fs::hard_link(dir.join("a"), pair.host("link")).unwrap();
    let facts = || {
        let attr = fs::metadata(pair.mounted.path("dir/a")).ok()?;
        Some((attr.nlink(), attr.mode() & 0o777, attr.len()))
    };
    fs::set_permissions(pair.host("link"), PermissionsExt::from_mode(0o604)).unwrap();
    await_value(Some((2, 0o604, 1)), facts);
    fs::write(pair.host("link"), "by another name").unwrap();
    await_value(Some((2, 0o604, 15)), facts);
    fs::rename(dir.join("b"), dir.join("a")).unwrap();
    await_value(vec!["a".to_owned()], list);
    await_value(Some(b"b".to_vec()), || fs::read(pair.mounted.path("dir/a")).ok());
    fs::rename(&dir, pair.host("moved")).unwrap();
    await_value((false, true), || (pair.mounted.path("dir").exists(), pair.mounted.path("moved/a").exists()));
    // A program that has looked at the directory before knows its owner's new mode.
    fs::set_permissions(pair.host("moved"), PermissionsExt::from_mode(0o700)).unwrap();
    await_value(Some(0o700), || Some(fs::metadata(pair.mounted.path("moved")).ok()?.mode() & 0o777));
}

/// While nothing changes, the kernel answers from its caches, for longer than they would be valid
/// if the kernel were not told of changes.
#[test]
fn nothing_is_asked_while_nothing_changes() {
    let _alone = requests::alone();
    if !can_mount() || !announced(&[]).contains("as they happen") {
        skipped("the kernel does not report changes here, or cannot be told of them");
        return;
    }
    // With a delay of no length, requests are counted.
    let Some(pair) = Pair::new(&["--delay", "lookup=0us"]) else { return };
    let dir = pair.host("dir");
    fs::create_dir(&dir).unwrap();
    for n in 0..100 {
        fs::write(dir.join(n.to_string()), "").unwrap();
    }
    // Their reports must not come later.
    await_value(100, || names(&pair.mounted.path("dir")).len());
    let look = || {
        assert_eq!(requests::list(&pair.mounted.path("dir")), 100);
    };
    look();
    thread::sleep(Duration::from_millis(1200));
    assert!(requests::asks_nothing(&pair.mounted, look));
}

/// Programs list and read the mount while another changes the source. The kernel and the server
/// keep nothing that is out of date.
#[test]
fn no_change_of_the_source_is_missed() {
    for options in [&[][..], &["--io-uring", "never", "--threads", "4"]] {
        let Some(pair) = Pair::new(options) else { return };
        let script = "
            import os, random, sys
            rng = random.Random(int(sys.argv[1]))
            dirs = ['.', 'a', 'b']
            for dir in dirs[1:]: os.mkdir(dir)
            path = lambda: f'{rng.choice(dirs)}/{rng.randrange(6)}'
            def write(how):
                with open(path(), how) as file: file.write('x' * rng.randrange(9))
            for _ in range(4000):
                try: rng.choice([
                    lambda: write('w'), lambda: write('a'), lambda: os.remove(path()), lambda: os.rename(path(), path()),
                    lambda: os.link(path(), path()), lambda: os.chmod(path(), rng.choice([0o600, 0o644])),
                    lambda: os.truncate(path(), rng.randrange(9)), lambda: (os.rename('a', 'c'), os.rename('c', 'a')),
                ])()
                except OSError: pass
        ";
        let script: Vec<&str> = script.lines().map(|line| line.strip_prefix("            ").unwrap_or(line)).collect();
        if !has(&["python3"]) {
            return;
        }
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::SeqCst) {
                        let _ = snapshot(&pair.mounted.root());
                    }
                });
            }
            for seed in 0..3 {
                let mut python = Command::new("python3");
                python.args(["-c", &script.join("\n"), &seed.to_string()]).current_dir(pair.source.path());
                let status = python.status().unwrap();
                assert!(status.success());
                // The programs go on meanwhile.
                await_value(snapshot(pair.source.path()), || snapshot(&pair.mounted.root()));
                for name in names(pair.source.path()) {
                    let path = pair.host(&name);
                    if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
                }
            }
            done.store(true, Ordering::SeqCst);
        });
        assert_eq!(snapshot(&pair.mounted.root()), snapshot(pair.source.path()));
    }
}

/// All paths of a small tree, with mode, link count, size and contents.
fn snapshot(root: &Path) -> Vec<(PathBuf, u32, u64, u64, Vec<u8>)> {
    let (mut all, mut todo) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(attr) = fs::symlink_metadata(&path) else { continue };
            let contents = fs::read(&path).unwrap_or_default();
            all.push((path.strip_prefix(root).unwrap().to_owned(), attr.mode(), attr.nlink(), attr.len(), contents));
            if attr.is_dir() {
                todo.push(path);
            }
        }
    }
    all.sort();
    all
}

#[test]
fn a_file_that_is_open_survives_its_removal_on_either_side() {
    let Some(pair) = Pair::new(&[]) else { return };
    for by_mount in [true, false] {
        fs::write(pair.host("file"), "kept").unwrap();
        let path = pair.mounted.path("file");
        await_value(true, || path.exists());
        let open = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        fs::remove_file(if by_mount { path.clone() } else { pair.host("file") }).unwrap();
        await_value(false, || path.exists());
        let mut buffer = [0; 4];
        open.read_exact_at(&mut buffer, 0).unwrap();
        open.write_all_at(b"more", 4).unwrap();
        assert_eq!((&buffer, open.metadata().unwrap().len()), (b"kept", 8));
    }
}

#[test]
fn a_real_program_works_there() {
    if !has(&["git"]) {
        return;
    }
    let Some(pair) = Pair::new(&[]) else { return };
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        let identity = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "safe.directory=*"];
        let output = command.current_dir(pair.mounted.root()).args(identity).args(args).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    git(&["init", "-q"]);
    for i in 0..50 {
        fs::write(pair.mounted.path(format!("file{i}")), format!("{i}\n").repeat(i)).unwrap();
    }
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "files"]);
    git(&["gc", "-q"]);
    git(&["fsck", "--strict"]);
    assert_eq!(git(&["status", "--porcelain"]), "");
    fs::write(pair.mounted.path("file7"), "changed").unwrap();
    assert_eq!(git(&["status", "--porcelain"]), " M file7\n");
}

/// The host refuses to execute a file that someone has open for writing. The server has it open
/// only as long as a program has.
#[test]
fn a_program_that_was_written_on_the_mount_runs_in_the_source() {
    let Some(pair) = Pair::new(&[]) else { return };
    let program = pandofs_testkit::find("true").unwrap();
    fs::copy(program, pair.mounted.path("program")).unwrap();
    // The kernel tells the server of the close a little later.
    await_value(Some(0), || Command::new(pair.host("program")).status().ok().and_then(|status| status.code()));
}

/// The tools for trees in memory work on it.
#[test]
fn a_directory_of_the_host_can_be_made_to_fail() {
    let Some(pair) = Pair::new(&["--fault", "read=EIO"]) else { return };
    fs::write(pair.host("file"), "contents").unwrap();
    await_value(true, || pair.mounted.path("file").exists());
    let error = fs::read(pair.mounted.path("file")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
}

/// The mount is inside its own source. Its directory there cannot be reached, and nothing hangs.
#[test]
fn a_mount_inside_its_own_source_ends_there() {
    if !can_mount() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("file"), "x").unwrap();
    let source = temp.path().to_str().unwrap().to_owned();
    let mounted = Mounted::again(temp, &["--source", &source]);
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"x");
    let point = mounted.root().file_name().unwrap().to_owned();
    let error = fs::metadata(mounted.path(point)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::XDEV.raw_os_error()));
}

#[test]
fn a_source_that_cannot_be_shown_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let (file, point) = (temp.path().join("file"), temp.path().join("point"));
    fs::write(&file, "").unwrap();
    fs::create_dir(&point).unwrap();
    let point = point.to_str().unwrap();
    for (source, says) in [(file, "Not a directory"), (temp.path().join("missing"), "No such file or directory")] {
        let output = run(&["mount", "--source", source.to_str().unwrap(), point]);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(says), "{}", said(&output));
    }
    for option in ["--size=1M", "--inodes=1k", "--mode=700", "--uid=1"] {
        let output = run(&["mount", "--source", "/tmp", option, point]);
        assert_eq!(output.status.code(), Some(2), "{option}");
    }
    let output = run(&["mount", "--exclusive", point]);
    assert_eq!(output.status.code(), Some(2), "--exclusive says nothing of a tree in memory");
}

/// Attributes and names may be older by what the recheck and the kernel's cache add up to.
#[test]
fn the_time_after_which_changes_are_seen_is_printed() {
    if !can_mount() {
        return;
    }
    let says_of =
        [(&["--no-watch"][..], "seen within 2 s"), (&["--no-watch", "--attr-timeout=0.5"], "seen within 1.5 s")];
    for (options, says) in says_of {
        let text = announced(options);
        assert!(text.contains(says), "{text}");
    }
}

/// The text that a mount prints.
fn announced(options: &[&str]) -> String {
    let (source, temp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (source, point) = (source.path().to_str().unwrap(), temp.path().to_str().unwrap());
    let mounted = run(&[&["mount", "-d", "--source", source, point], options].concat());
    let unmounted = run(&["umount", point]);
    assert!(unmounted.status.success(), "{} {}", said(&mounted), said(&unmounted));
    String::from_utf8(mounted.stdout).unwrap()
}

/// Whether the kernel shows what a process waits for. If not, reports it.
fn shows_waits() -> bool {
    let shows = fs::read("/proc/self/stack").is_ok();
    if !shows {
        skipped("the kernel does not show what a process waits for");
    }
    shows
}

/// Whether a process waits for the server of a mount.
fn waits_for_a_mount(child: &Child) -> bool {
    let stack = fs::read_to_string(format!("/proc/{}/stack", child.id())).unwrap_or_default();
    stack.contains("fuse_")
}

/// The source is a mount whose server is stopped, as if its network were broken. A program that
/// waits for it can be killed. A signal that it handles does not disturb it.
#[test]
fn a_program_that_waits_for_the_source_can_be_killed() {
    if !has(&["sh", "cat", "ls"]) || !can_mount() || !shows_waits() {
        return;
    }
    let store = Mounted::new(&["--io-uring", "never"]);
    // Those who look up one name wait for each other, and in another place.
    let each = ["0", "1", "2", "3"];
    each.iter().for_each(|name| fs::write(store.path(name), "contents\n").unwrap());
    let path = store.root();
    // Nothing is cached, and the source is asked each time.
    let shown = Mounted::new(&["--attr-timeout", "0", "--source", path.to_str().unwrap()]);
    let start = |program: &str, args: &[&str], name: &str| {
        let mut command = Command::new(program);
        command.args(args).arg(shown.path(name)).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let script = "trap 'echo signal' USR1; read -r line <\"$0\"; echo \"$line\"";
    kill_process(store.pid(), Signal::STOP).unwrap();
    let mut killed = [start("cat", &[], "0"), start("ls", &["-l"], "1"), start("cat", &[], "2")];
    let disturbed = start("sh", &["-c", script], "3");
    for child in killed.iter().chain([&disturbed]) {
        await_value(true, || waits_for_a_mount(child));
    }
    assert!(signals(&disturbed.id().to_string(), "SigCgt")(Signal::USR1));
    let send = |child: &Child, signal| kill_process(Pid::from_child(child), signal).unwrap();
    send(&disturbed, Signal::USR1);
    for (child, signal) in killed.iter().zip([Signal::KILL, Signal::INT, Signal::QUIT]) {
        send(child, signal);
    }
    for child in &mut killed {
        await_value(true, || child.try_wait().unwrap().is_some());
    }
    assert!(waits_for_a_mount(&disturbed));
    kill_process(store.pid(), Signal::CONT).unwrap();
    let output = disturbed.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "signal\ncontents\n");
    each.iter().for_each(|name| assert_eq!(fs::read(shown.path(name)).unwrap(), b"contents\n"));
    shown.umount();
    store.umount();
}

/// Whether no thread of a process runs, for some time.
fn is_idle(pid: Pid) -> bool {
    let sleeps = |thread: std::io::Result<fs::DirEntry>| {
        let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('R'))
    };
    (0..20).all(|_| {
        thread::sleep(Duration::from_millis(10));
        fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap().all(sleeps)
    })
}

/// The threads that serve them wait on, and are not missed. The handles of what they had open are
/// closed meanwhile.
#[test]
fn programs_that_were_killed_hold_up_no_others() {
    if !has(&["ls"]) || !can_mount() || !shows_waits() {
        return;
    }
    let store = Mounted::new(&["--io-uring", "never"]);
    fs::create_dir(store.path("dir")).unwrap();
    let path = store.root();
    // The server answers for cached attributes without the source. For a listing it asks.
    let options = ["--attr-timeout", "0", "-o", "noatime", "--exclusive"];
    let shown = Mounted::new(&[&options[..], &["--source", path.to_str().unwrap()]].concat());
    fs::metadata(shown.path("dir")).unwrap();
    kill_process(store.pid(), Signal::STOP).unwrap();
    // More than there are threads. A ring has so many for each CPU, so all programs have the same.
    let limit = thread::available_parallelism().unwrap().get() + 64;
    stay_on_first_cpu();
    for _ in 0..limit + 10 {
        let mut command = Command::new("ls");
        command.arg(shown.path("dir")).stdout(Stdio::null()).stderr(Stdio::null());
        let mut ls = command.spawn().unwrap();
        // And not only for a request that needs no source.
        let waits_long = || {
            (0..5).all(|_| {
                thread::sleep(Duration::from_millis(10));
                waits_for_a_mount(&ls)
            })
        };
        await_value(true, waits_long);
        ls.kill().unwrap();
        ls.wait().unwrap();
    }
    assert!(fs::metadata(shown.path("dir")).unwrap().is_dir());
    await_value(true, || is_idle(shown.pid()));
    kill_process(store.pid(), Signal::CONT).unwrap();
    assert_eq!(names(&shown.path("dir")), Vec::<String>::new());
    shown.umount();
    store.umount();
}
