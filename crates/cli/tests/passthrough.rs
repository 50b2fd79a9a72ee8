//! Passthrough on `pando mount --source`: the kernel reads and writes the files of the host by
//! itself, and the tree still knows what they are.

mod common;
mod source_pair;

use std::{
    fs::{self, OpenOptions},
    io::{BufRead, BufReader, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use common::{KernelMount, Mounted, can_mount, has, pando, run, said, skipped};
use pandofs_testkit::await_value;
use rustix::{
    fs::{AtFlags, CWD, FallocateFlags, StatxFlags, fallocate, statx},
    process::{Pid, Signal, kill_process},
};
use source_pair::{Pair, has_all_users};

/// File systems that are not stacked on others, by their numbers: ext4, XFS, Btrfs, tmpfs.
const NOT_STACKED: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

/// Opens a file of the mount for reading and writing, and makes it.
fn open(pair: &Pair, name: &str) -> fs::File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(pair.mounted.path(name)).unwrap()
}

/// Starts a trace of the reads on the mount. The trace ends if nobody holds its stderr.
fn trace_reads(pair: &Pair, options: &[&str], stdout: Stdio) -> (Child, BufReader<ChildStderr>) {
    let root = pair.mounted.root();
    let mut command = pando(&["trace", root.to_str().unwrap(), "--op=read"]);
    let mut trace = command.args(options).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
    let (mut errors, mut line) = (BufReader::new(trace.stderr.take().unwrap()), String::new());
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("tracing"), "{line}");
    (trace, errors)
}

/// Whether the kernel can read and write the files of this directory by itself.
fn can_pass_through(dir: &Path) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next(), numbers.next());
    if version < (Some(6), Some(9)) {
        skipped(&format!("Linux {release} has no FUSE passthrough"));
        return false;
    }
    let kind = u64::from(rustix::fs::statfs(dir).unwrap().f_type as u32);
    if !NOT_STACKED.contains(&kind) {
        skipped(&format!("no FUSE passthrough for a file system of type {kind:#x}"));
        return false;
    }
    has_all_users("FUSE passthrough")
}

/// While the server is stopped, programs read and write what they have open.
#[test]
fn an_open_file_needs_no_server() {
    let Some(pair) = Pair::new(&[]) else { return };
    if !can_pass_through(pair.source.path()) {
        return;
    }
    let file = open(&pair, "file");
    // Before its first write the kernel asks for the file capabilities.
    file.write_all_at(b"contents", 0).unwrap();
    let stopped = Stopped::new(pair.mounted.pid());
    let (done, is_done) = mpsc::channel();
    let user = thread::spawn(move || {
        let mut buffer = [0; 8];
        file.read_exact_at(&mut buffer, 0).unwrap();
        file.write_all_at(b"more", 8).unwrap();
        done.send(()).unwrap();
        buffer
    });
    let in_time = is_done.recv_timeout(Duration::from_secs(20));
    let on_host = fs::read(pair.host("file")).unwrap();
    drop(stopped);
    assert_eq!(&user.join().unwrap(), b"contents");
    assert_eq!((in_time, &on_host[..]), (Ok(()), &b"contentsmore"[..]));
}

/// A process that is stopped until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(process: Pid) -> Self {
        kill_process(process, Signal::STOP).unwrap();
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// With any way to learn of changes by others, none of which reports these in time.
#[test]
fn what_the_kernel_writes_is_seen_at_once() {
    for options in [&[][..], &["--exclusive"], &["--no-watch"], &["--io-uring", "never"]] {
        let Some(pair) = Pair::new(options) else { return };
        let passes = can_pass_through(pair.source.path());
        let (path, host) = (pair.mounted.path("file"), pair.host("file"));
        let mut file = open(&pair, "file");
        let sizes = |file: &fs::File| {
            let here = fs::metadata(&path).unwrap();
            let there = fs::metadata(&host).unwrap();
            assert_eq!((here.modified().unwrap(), here.ctime_nsec()), (there.modified().unwrap(), there.ctime_nsec()));
            (file.metadata().unwrap().len(), here.len(), there.len())
        };
        assert_eq!(sizes(&file), (0, 0, 0));
        for size in [100, 200] {
            file.write_all(&[1; 100]).unwrap();
            assert_eq!(sizes(&file), (size, size, size));
        }
        assert_eq!(listed_size(&pair.mounted), "200");
        file.set_len(0).unwrap();
        assert_eq!(sizes(&file), (0, 0, 0));

        file.write_all_at(b"data", 1 << 20).unwrap();
        let on_host = OpenOptions::new().read(true).write(true).open(&host).unwrap();
        for seek in [rustix::fs::SeekFrom::Data(0), rustix::fs::SeekFrom::Hole(1 << 20)] {
            let (here, there) = (rustix::fs::seek(&file, seek), rustix::fs::seek(&on_host, seek));
            // Without passthrough, a file that a program may have mapped counts as data.
            assert!(here == there || !passes, "{here:?} {there:?}");
        }
        for flags in [FallocateFlags::KEEP_SIZE, FallocateFlags::empty()] {
            assert_eq!(fallocate(&file, flags, 0, 4096), fallocate(&on_host, flags, 0, 4096));
        }
        let end = (1 << 20) + 4;
        assert_eq!(sizes(&file), (end, end, end));
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), end);

        let name = pair.host("renamed");
        fs::rename(&path, pair.mounted.path("renamed")).unwrap();
        file.write_all(b"x").unwrap();
        drop(file);
        // The kernel tells the server of the close a little later.
        await_value((end + 1, end + 1), || {
            (fs::metadata(&name).unwrap().len(), fs::metadata(pair.mounted.path("renamed")).unwrap().len())
        });
        pair.mounted.umount();
    }
}

/// The size that the listing of a mount with one file shows.
fn listed_size(mounted: &Mounted) -> String {
    let listed = run(&["ls", "-l", mounted.root().to_str().unwrap()]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.lines().last().unwrap().split_whitespace().nth(4).unwrap().to_owned()
}

/// The kernel has cached the attributes before the file is opened, and notices no write to a
/// mapping.
#[test]
fn times_of_writes_to_a_mapping_are_seen() {
    if !has(&["python3"]) {
        return;
    }
    let Some(pair) = Pair::new(&["--exclusive"]) else { return };
    fs::write(pair.mounted.path("file"), [0; 4096]).unwrap();
    // Without atime, which the kernel drops when a mapping is made.
    let times = |path: PathBuf| {
        let wanted = StatxFlags::MTIME | StatxFlags::CTIME;
        let found = statx(CWD, path, AtFlags::empty(), wanted).unwrap();
        (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec, found.stx_ctime.tv_nsec)
    };
    for _ in 0..3 {
        let old = times(pair.mounted.path("file"));
        thread::sleep(Duration::from_millis(20));
        let file = open(&pair, "file");
        let script = "import mmap\nf = open('file', 'r+b')\nm = mmap.mmap(f.fileno(), 4096)\nm[:1] = b'x'\nm.flush()";
        let output = Command::new("python3").args(["-c", script]).current_dir(pair.mounted.root()).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let new = times(pair.mounted.path("file"));
        assert_eq!(new, times(pair.host("file")));
        assert_ne!(new, old);
        drop(file);
        assert_eq!(times(pair.mounted.path("file")), times(pair.host("file")));
    }
}

/// A program writes to a file through the kernel, closes it, and truncates it.
#[test]
fn a_truncate_after_a_close_is_not_lost() {
    let Some(pair) = Pair::new(&["--exclusive"]) else { return };
    for round in 0..500 {
        let (path, host) = (pair.mounted.path("file"), pair.host("file"));
        fs::write(&path, [1; 100]).unwrap();
        // Not through a handle: the open for it would come after the close.
        nix::unistd::truncate(&path, 0).unwrap();
        assert_eq!((fs::metadata(&path).unwrap().len(), fs::metadata(host).unwrap().len()), (0, 0), "round {round}");
    }
}

/// The host does not let root write to such a file. Nor does the mount.
#[test]
fn files_that_only_grow_stay_so() {
    let Some(pair) = Pair::new(&[]) else { return };
    for flag in [rustix::fs::IFlags::APPEND, rustix::fs::IFlags::IMMUTABLE] {
        fs::write(pair.host("file"), "contents").unwrap();
        await_value(Some(8), || fs::metadata(pair.mounted.path("file")).ok().map(|found| found.len()));
        // A reader may be there before.
        let reader = fs::File::open(pair.mounted.path("file")).unwrap();
        let on_host = fs::File::open(pair.host("file")).unwrap();
        let old = rustix::fs::ioctl_getflags(&on_host).unwrap_or(rustix::fs::IFlags::empty());
        if let Err(error) = rustix::fs::ioctl_setflags(&on_host, old | flag) {
            skipped(&format!("the temporary directory has no such flags: {error}"));
            return;
        }
        let write = |path: PathBuf| {
            let opened = OpenOptions::new().write(true).open(path)?;
            opened.write_all_at(b"changed", 0)
        };
        for _ in 0..2 {
            let (here, there) = (write(pair.mounted.path("file")), write(pair.host("file")));
            assert!(here.is_err() && there.is_err(), "{flag:?}: {here:?} {there:?}");
        }
        drop(reader);
        // Nobody has the file open now, so the first one who opens it writes.
        let here = write(pair.mounted.path("file"));
        let again = write(pair.mounted.path("file"));
        rustix::fs::ioctl_setflags(&on_host, old).unwrap();
        assert!(here.is_err() && again.is_err(), "{flag:?}: {here:?} {again:?}");
        assert_eq!(fs::read(pair.host("file")).unwrap(), b"contents");
        fs::remove_file(pair.mounted.path("file")).unwrap();
    }
}

/// Two programs append to a file, one of them in the source.
#[test]
fn appends_from_both_sides_are_kept() {
    const LINES: usize = 2000;
    let Some(pair) = Pair::new(&[]) else { return };
    if !can_pass_through(pair.source.path()) {
        return;
    }
    drop(open(&pair, "file"));
    thread::scope(|scope| {
        for path in [pair.mounted.path("file"), pair.host("file")] {
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).open(path).unwrap();
                (0..LINES).for_each(|_| file.write_all(b"line\n").unwrap());
            });
        }
    });
    assert_eq!(fs::read_to_string(pair.host("file")).unwrap(), "line\n".repeat(2 * LINES));
}

/// The server has all rights, but the kernel clears these bits.
#[test]
fn a_write_clears_setuid_and_setgid() {
    let Some(pair) = Pair::new(&[]) else { return };
    if !can_pass_through(pair.source.path()) {
        return;
    }
    let file = open(&pair, "file");
    for contents in [b"first", b"again"] {
        fs::set_permissions(pair.mounted.path("file"), PermissionsExt::from_mode(0o6755)).unwrap();
        file.write_all_at(contents, 0).unwrap();
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(pair.mounted.path("file")), mode(pair.host("file"))), (0o755, 0o755));
    }
}

/// A trace is to see each read, so the kernel does not bypass the tree for what is opened while one
/// is active. The kernel allows no inode to be open in both ways.
#[test]
fn files_are_opened_while_traces_begin_and_end() {
    const FILES: usize = 4;
    let Some(pair) = Pair::new(&[]) else { return };
    (0..FILES).for_each(|of| drop(open(&pair, &of.to_string())));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (pair, stop) = (&pair, &stop);
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in seed.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let path = pair.mounted.path((round % FILES).to_string());
                    let writes = round % 3 == 0;
                    let file = OpenOptions::new().read(true).write(writes).open(path).unwrap();
                    if writes {
                        file.write_all_at(&[1; 64], 0).unwrap();
                    }
                    file.read_at(&mut [0; 64], 0).unwrap();
                    held.push(file);
                    if held.len() > round % 5 {
                        held.clear();
                    }
                }
            });
        }
        for _ in 0..5 {
            let (mut trace, _errors) = trace_reads(&pair, &[], Stdio::null());
            thread::sleep(Duration::from_millis(100));
            trace.kill().unwrap();
            trace.wait().unwrap();
            thread::sleep(Duration::from_millis(100));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_trace_sees_each_read_of_a_file_that_is_opened_later() {
    let Some(pair) = Pair::new(&[]) else { return };
    fs::write(pair.host("file"), "contents").unwrap();
    await_value(true, || pair.mounted.path("file").exists());
    let (trace, _errors) = trace_reads(&pair, &["--count", "1"], Stdio::piped());
    assert_eq!(fs::read(pair.mounted.path("file")).unwrap(), b"contents");
    let output = trace.wait_with_output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("/file"), "{}: {shown}", output.status);
}

/// On a file system that refuses it, an overlay, the server reads and writes the file.
#[test]
fn a_source_that_is_stacked_is_served_by_requests() {
    if !can_mount() {
        return;
    }
    let (lower, layers) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let overlay = match KernelMount::overlay(lower.path(), layers.path(), "") {
        Ok(overlay) => overlay,
        Err(error) => return skipped(&format!("no overlay can be mounted: {error}")),
    };
    let mounted = Mounted::new(&["--source", overlay.path().to_str().unwrap()]);
    for round in 0..2 {
        let mut file = OpenOptions::new().append(true).create(true).open(mounted.path("file")).unwrap();
        file.write_all(b"contents").unwrap();
        assert_eq!(fs::metadata(mounted.path("file")).unwrap().len(), 8 * (round + 1));
    }
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"contentscontents");
    mounted.umount();
}

/// O_DIRECT and execution reach the host.
#[test]
fn direct_io_and_execution_work() {
    let Some(pair) = Pair::new(&[]) else { return };
    let program = pandofs_testkit::find("true").unwrap();
    fs::copy(program, pair.mounted.path("program")).unwrap();
    // The kernel tells the server of the close a little later.
    await_value(Some(0), || Command::new(pair.mounted.path("program")).status().ok().and_then(|status| status.code()));
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let open = |path: PathBuf| OpenOptions::new().read(true).custom_flags(direct).open(path).map(drop);
    assert_eq!(open(pair.mounted.path("program")).is_ok(), open(pair.host("program")).is_ok());
}

/// The host copies between files that the kernel reads and writes by itself.
#[test]
fn a_copy_is_seen_on_both_sides_at_once() {
    for options in [&[][..], &["--exclusive"], &["-o", "noatime"]] {
        let Some(pair) = Pair::new(options) else { return };
        let (from, to) = (open(&pair, "from"), open(&pair, "to"));
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        from.write_all_at(&bytes, 0).unwrap();
        to.write_all_at(&[7; 100], 0).unwrap();
        let mut copied = 0;
        while copied < bytes.len() {
            let mut at = [copied as u64, 10 + copied as u64];
            let [source, target] = &mut at;
            let left = bytes.len() - copied;
            copied += rustix::fs::copy_file_range(&from, Some(source), &to, Some(target), left).unwrap();
        }
        let expected = [&[7; 10][..], &bytes].concat();
        for path in [pair.mounted.path("to"), pair.host("to")] {
            assert_eq!(fs::metadata(&path).unwrap().len(), expected.len() as u64, "{options:?}");
            assert!(fs::read(&path).unwrap() == expected, "{options:?} {}", path.display());
        }
        assert_eq!(to.metadata().unwrap().len(), expected.len() as u64);
    }
}
