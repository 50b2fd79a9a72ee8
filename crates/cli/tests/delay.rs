//! The latency and fault injector of a mount: how many requests it serves at once, which requests
//! it gets, and which of them fail.

mod common;
mod requests;

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    process::Command,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use common::{Mounted, can_mount, run, said};
use pandofs_testkit::await_value;
use requests::{Forgetter, Requests, alone, forgetter, list};
use rustix::{
    fs::{AtFlags, CWD, OFlags, StatxFlags},
    io::Errno,
};

/// Creates files `f0`, `f1` ... in a directory `d` of the mount, and makes the kernel forget them.
fn forgotten_files(forgetter: &Forgetter, mounted: &Mounted, count: usize) {
    fs::create_dir(mounted.path("d")).unwrap();
    (0..count).for_each(|number| fs::write(mounted.path(format!("d/f{number}")), "").unwrap());
    forgetter.forget();
}

fn errno(result: io::Result<impl Sized>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

#[test]
fn a_batch_is_served_in_parallel_and_without_readdirplus_each_name_is_looked_up() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let Some(forgetter) = forgetter() else { return };
    const FILES: usize = 500;
    let slow = ["--delay", "lookup=100us,getattr=100us", "--depth", "8"];
    let mounted = Mounted::new(&slow);
    forgotten_files(&forgetter, &mounted, FILES);
    let before = Requests::of(&mounted);
    assert_eq!(list(&mounted.path("d")), FILES);
    let asked = Requests::of(&mounted).since(&before);
    assert!(asked.count("readdirplus") > 0 && asked.count("readdir") <= asked.count("readdirplus"), "{asked:?}");
    assert!(asked.count("lookup") <= 2, "at most the directory itself: {asked:?}");
    assert!(asked.count("entries") >= FILES as u64, "{asked:?}");
    assert_eq!(Requests::of(&mounted).count("in_flight_max"), 8);
    mounted.umount();

    let naive = Mounted::new(&[&slow[..], &["--no-readdirplus"]].concat());
    forgotten_files(&forgetter, &naive, FILES);
    let before = Requests::of(&naive);
    assert_eq!(list(&naive.path("d")), FILES);
    let after = Requests::of(&naive);
    let asked = after.since(&before);
    assert_eq!(asked.count("readdirplus"), 0);
    // The kernel may have kept a few.
    assert!(asked.count("lookup") >= FILES as u64 * 9 / 10, "{asked:?}");
    assert_eq!(after.count("in_flight_max"), 1, "a caller that waits for each answer has one request in flight");
    assert!(requests::asks_nothing(&naive, || assert_eq!(list(&naive.path("d")), FILES)), "all is cached by now");
    naive.umount();
}

#[test]
fn depth_bounds_the_served_requests_and_no_reader_sleeps() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    const THREADS: usize = 24;
    // One thread reads the device. If it slept during a delay, it could not take a second
    // request meanwhile.
    let mounted = Mounted::new(&["--threads", "1", "--delay", "lookup=20ms", "--depth", "8"]);
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (mounted, barrier) = (&mounted, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..4 {
                    let missing = fs::metadata(mounted.path(format!("no-{number}-{round}")));
                    assert_eq!(errno(missing), Some(Errno::NOENT));
                }
            });
        }
    });
    let asked = Requests::of(&mounted);
    assert_eq!(asked.count("in_flight_max"), 8);
    assert!(asked.count("waiting_max") > 8, "the others waited: {asked:?}");
    assert_eq!(asked.count("lookup"), 4 * THREADS as u64);
    mounted.umount();
}

#[test]
fn an_answer_takes_as_long_as_its_delay() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--delay", "lookup=30ms,read=40ms,getxattr=10ms", "--seek", "20ms"]);
    let at_least = |milliseconds, what: &dyn Fn()| {
        let begin = Instant::now();
        what();
        // A lower bound, which holds on a slow machine too.
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(milliseconds), "{took:?}");
    };
    at_least(30, &|| assert!(!mounted.path("missing").exists()));
    fs::write(mounted.path("f"), vec![7; 1 << 20]).unwrap();
    let file = fs::OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(mounted.path("f"));
    let file = file.unwrap();
    let read = |offset| {
        let mut buffer = vec![0; 4096];
        assert_eq!(rustix::io::pread(&file, &mut buffer, offset), Ok(4096));
        assert!(buffer.iter().all(|&byte| byte == 7));
    };
    at_least(60, &|| read(0));
    // From the end of the first read to a quarter of the file: half of the seek time.
    at_least(50, &|| read(4096 + (1 << 18)));
    at_least(10, &|| {
        let mut value = [0; 16];
        assert_eq!(rustix::fs::getxattr(mounted.path("f"), "user.none", &mut value[..]), Err(Errno::NODATA));
    });
    drop(file);
    mounted.umount();
}

#[test]
fn an_outdated_answer_is_not_cached() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--delay", "getattr=300ms"]);
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    fs::metadata(&dir).unwrap();
    let before = Requests::of(&mounted);
    let flags = AtFlags::STATX_FORCE_SYNC;
    thread::scope(|scope| {
        scope.spawn(|| rustix::fs::statx(CWD, &dir, flags, StatxFlags::BASIC_STATS).unwrap());
        while Requests::of(&mounted).since(&before).count("getattr") == 0 {
            thread::yield_now();
        }
        // The kernel has enough of the directory in its caches to do this at once.
        fs::write(dir.join("f"), "").unwrap();
    });
    assert_eq!(fs::metadata(&dir).unwrap().size(), 60, "one entry, as tmpfs counts");
    mounted.umount();
}

#[test]
fn an_attr_timeout_of_zero_disables_caching() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    // With an injector, which counts, and injects no fault for the operations here.
    let mounted = Mounted::new(&["--attr-timeout", "0", "--fault", "lookup=EIO:never"]);
    fs::write(mounted.path("f"), "").unwrap();
    for (name, found) in [("f", true), ("none", false)] {
        let before = Requests::of(&mounted);
        assert_eq!([mounted.path(name).exists(), mounted.path(name).exists()], [found; 2]);
        assert_eq!(Requests::of(&mounted).since(&before).count("lookup"), 2, "{name}");
    }
    mounted.umount();
}

#[test]
fn injected_faults_fail_only_their_operations() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let Some(forgetter) = forgetter() else { return };
    let faults = ["lookup=EIO:f3", "listxattr=EIO@2", "getxattr=ESTALE", "read=EIO@1", "open=EACCES@1"];
    let options: Vec<&str> = faults.iter().flat_map(|fault| ["--fault", fault]).collect();
    let mounted = Mounted::new(&options);
    // Created by mknod, which opens nothing.
    fs::create_dir(mounted.path("d")).unwrap();
    for number in 0..10 {
        let path = mounted.path(format!("d/f{number}"));
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        let made = rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::RegularFile, mode, 0);
        // Creating a name looks it up first, and that look-up fails.
        assert_eq!(made, if number == 3 { Err(Errno::IO) } else { Ok(()) });
    }
    assert_eq!(errno(fs::read_dir(mounted.path("d"))), Some(Errno::ACCESS), "the first open");
    forgetter.forget();
    let entries: Vec<_> = fs::read_dir(mounted.path("d")).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(entries.len(), 9);
    assert!(entries.iter().all(|entry| entry.metadata().unwrap().nlink() == 1));
    assert_eq!(errno(fs::metadata(mounted.path("d/f3"))), Some(Errno::IO));

    let listxattr = || rustix::fs::listxattr(mounted.path("d/f1"), &mut [0_u8; 8][..]);
    assert_eq!((listxattr(), listxattr(), listxattr()), (Ok(0), Err(Errno::IO), Ok(0)));
    // After ESTALE the kernel retries once by itself, so a single one would not be seen.
    let getxattr = rustix::fs::getxattr(mounted.path("d/f1"), "user.none", &mut [0_u8; 8][..]);
    assert_eq!(getxattr, Err(Errno::STALE));
    fs::write(mounted.path("data"), "x").unwrap();
    let file = fs::OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(mounted.path("data"));
    let file = file.unwrap();
    let read = || rustix::io::pread(&file, &mut [0; 8], 0);
    assert_eq!((read(), read()), (Err(Errno::IO), Ok(1)));
    assert_eq!(rustix::fs::ioctl_getflags(&file), Ok(rustix::fs::IFlags::empty()), "no fault is for this ioctl");
    // An entry keeps its directory open.
    drop((file, entries));
    mounted.umount();
}

#[test]
fn a_directory_that_cannot_be_read_reports_it() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--fault", "readdir=EIO"]);
    let first = fs::read_dir(mounted.root()).unwrap().next().unwrap();
    assert_eq!(errno(first), Some(Errno::IO));
    let asked = Requests::of(&mounted);
    assert_eq!((asked.count("readdirplus"), asked.count("readdir")), (1, 0), "requests count even if they fail");
    fs::write(mounted.path("f"), "the rest goes on").unwrap();
    mounted.umount();
}

/// A listing with attributes, and look-ups after a listing, make a mount ask its slow source for
/// many names at once.
#[test]
fn mount_of_a_slow_source_asks_for_many_names_at_once() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let with_ls = |dir: &Path| {
        assert!(Command::new("ls").arg("-l").arg(dir).output().unwrap().status.success());
    };
    let look_up_later = |dir: &Path| {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        assert!(names.iter().all(|path| fs::symlink_metadata(path).unwrap().is_file()));
    };
    for (program, what) in [(&with_ls as &dyn Fn(&Path), "ls -l"), (&look_up_later, "look-ups")] {
        for (options, reads_ahead) in [(&[][..], true), (&["--no-read-ahead"], false)] {
            // The kernel keeps nothing of this store, and asks for its names one by one.
            let slow = Mounted::new(&["--delay", "lookup=1ms", "--attr-timeout", "0", "--no-readdirplus"]);
            fs::create_dir(slow.path("d")).unwrap();
            (0..400).for_each(|n| drop(fs::File::create(slow.path(format!("d/{n}"))).unwrap()));
            let source = slow.root();
            let shown = Mounted::new(&[&["--source", source.to_str().unwrap(), "--exclusive"], options].concat());
            program(&shown.path("d"));
            shown.umount();
            let at_once = Requests::of(&slow).count("in_flight_max");
            assert_eq!(at_once >= 4, reads_ahead, "{what} {options:?}: {at_once} at once");
            slow.umount();
        }
    }
}

#[test]
fn counts_are_written_to_files() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    // With and without a log.
    for how in [&["-v"][..], &[]] {
        let temp = tempfile::tempdir().unwrap();
        let (stats, reads) = (temp.path().join("stats.json"), temp.path().join("reads.csv"));
        let mut mounted = Mounted::new(
            &[how, &["--stats", stats.to_str().unwrap(), "--trace-reads", reads.to_str().unwrap()]].concat(),
        );
        fs::create_dir(mounted.path("a")).unwrap();
        fs::write(mounted.path("f"), vec![1; 300_000]).unwrap();
        let file = fs::OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(mounted.path("f"));
        let file = file.unwrap();
        for offset in [200_000, 0] {
            assert_eq!(rustix::io::pread(&file, &mut vec![0; 10_000], offset), Ok(10_000));
        }
        drop(file);
        let asked = Requests::of(&mounted);
        assert_eq!((asked.count("mkdir"), asked.count("read"), asked.count("in_flight_max")), (1, 2, 0));
        assert!(run(&["umount", mounted.root().to_str().unwrap()]).status.success());
        let (status, log) = mounted.ended();
        assert!(status.success() && log.contains("mkdir 1, ") != how.is_empty(), "{how:?}: {log}");
        let written = Requests::from_json(&fs::read_to_string(&stats).unwrap());
        assert_eq!((written.count("mkdir"), written.count("read")), (1, 2));
        let lines = fs::read_to_string(&reads).unwrap();
        let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(lines[0], ["start_us", "end_us", "node", "offset", "bytes"]);
        assert_eq!((&lines[1][3..], &lines[2][3..], lines.len()), (&["200000", "10000"][..], &["0", "10000"][..], 3));
    }
}

/// The host copies from file to file of a source. Where reads or writes take time, and in memory,
/// the kernel does.
#[test]
fn a_copy_is_one_request_unless_reads_are_delayed() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let source = tempfile::tempdir().unwrap();
    let source = ["--source", source.path().to_str().unwrap()];
    for (delay, source, by_server) in [
        ("lookup=1us", &source[..], true),
        ("read=1us", &source, false),
        ("write=1us", &source, false),
        ("lookup=1us", &[], false),
    ] {
        let mounted = Mounted::new(&[source, &["--delay", delay]].concat());
        fs::write(mounted.path("from"), &bytes).unwrap();
        let (from, to) = (fs::File::open(mounted.path("from")).unwrap(), fs::File::create(mounted.path("to")).unwrap());
        let before = Requests::of(&mounted);
        let mut copied = 0;
        while copied < bytes.len() {
            // The positions move.
            copied += rustix::fs::copy_file_range(&from, None, &to, None, bytes.len() - copied).unwrap();
        }
        let asked = Requests::of(&mounted).since(&before);
        // The first request for a copy is refused.
        assert_eq!((asked.count("copy") > 0, asked.count("write") > 0), (true, !by_server), "{delay}: {asked:?}");
        drop((from, to));
        assert!(fs::read(mounted.path("to")).unwrap() == bytes, "{delay}");
        mounted.umount();
    }
}

/// The source is slow, and not the mount: what is cached costs nothing, and each name that the
/// source is asked for takes its time.
#[test]
fn a_slow_source_is_waited_for_once() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    const FILES: u32 = 20;
    let source = tempfile::tempdir().unwrap();
    (0..FILES).for_each(|n| fs::write(source.path().join(format!("f{n}")), "").unwrap());
    let path = source.path().to_str().unwrap();
    // The kernel asks the server each time.
    let options = ["--source", path, "--exclusive", "--attr-timeout", "0", "--source-delay", "20ms"];
    let mounted =
        Mounted::new(&[&options[..], &["--no-read-ahead", "--no-readdirplus", "--source-depth", "1"]].concat());
    let look = || {
        let begin = Instant::now();
        (0..FILES).for_each(|n| assert_eq!(fs::metadata(mounted.path(format!("f{n}"))).unwrap().len(), 0));
        begin.elapsed()
    };
    let cold = look();
    // A lower bound, which holds on a slow machine too.
    assert!(cold >= Duration::from_millis(20) * FILES, "{cold:?}");
    // Others may use the machine meanwhile.
    await_value(true, || look() < cold / 2);
    mounted.umount();
}

#[test]
fn bad_options_are_answered_with_the_valid_ones() {
    let _alone = alone();
    let temp = tempfile::tempdir().unwrap();
    let grove = temp.path().join("grove");
    let nowhere = temp.path().join("no/such/file");
    let (grove, nowhere) = (grove.to_str().unwrap(), nowhere.to_str().unwrap());
    for (options, code, says) in [
        (&["--delay", "lookup=5"][..], 2, "us, ms or s"),
        (&["--delay", "lookup=5parsecs"], 2, "us, ms or s"),
        (&["--delay", "lookup=500us,swim=5ms"], 2, "lookup, getattr, readlink"),
        (&["--delay", "lookup"], 2, "OPERATION=TIME"),
        (&["--delay", "lookup=-5ms"], 2, "not a time"),
        (&["--delay", "lookup=1000000s"], 2, "too long"),
        (&["--seek", "far"], 2, "not a time"),
        (&["--delay", "lookup=1ms", "--depth", "0"], 2, "--depth"),
        (&["--delay", "lookup=1ms", "--depth", "many"], 2, "--depth"),
        (&["--depth", "4"], 1, "--delay lookup=500us"),
        (&["--source-delay", "1ms"], 2, "--source"),
        (&["--source", "/", "--source-depth", "2"], 2, "--source-delay"),
        (&["--source", "/", "--source-delay", "1"], 2, "us, ms or s"),
        (&["--source", "/", "--source-delay", "1ms", "--source-depth", "0"], 2, "--source-depth"),
        (&["--fault", "lookup=EWHAT"], 2, "EIO, ESTALE"),
        (&["--stats", nowhere], 1, "No such file"),
        (&["--trace-reads", nowhere], 1, "No such file"),
    ] {
        let output = run(&[&["mount"], options, &[grove]].concat());
        assert_eq!(output.status.code(), Some(code), "{options:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{options:?}: {}", said(&output));
    }
}
