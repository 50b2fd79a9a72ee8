//! Passthrough on `pando mount --source`: the kernel reads and writes the files of the host by
//! itself, and the tree still knows what they are.

mod common;

use std::{
    fs,
    io::{BufRead, BufReader, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use common::{Mounted, can_mount, pando, run, skipped};
use pandofs_testkit::await_value;
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
    process::{Signal, kill_process},
};
use tempfile::TempDir;

/// `OVERLAYFS_SUPER_MAGIC`.
const OVERLAY: u64 = 0x794c_7630;

/// A mount, and the directory that it shows.
struct Pair {
    mounted: Mounted,
    source: TempDir,
}

impl Pair {
    fn new(options: &[&str]) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let source = tempfile::tempdir().unwrap();
        let path = source.path().to_str().unwrap();
        let mounted = Mounted::new(&[&["--source", path], options].concat());
        Some(Self { mounted, source })
    }

    fn host(&self, name: &str) -> PathBuf {
        self.source.path().join(name)
    }

    /// Opens a file of the mount for reading and writing, and makes it.
    fn open(&self, name: &str) -> fs::File {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).open(self.mounted.path(name)).unwrap()
    }
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
    if rustix::fs::statfs(dir).unwrap().f_type as u64 == OVERLAY {
        skipped("FUSE passthrough needs a file system that is not stacked on others");
        return false;
    }
    true
}

/// While the server is stopped, programs read and write what they have open.
#[test]
fn an_open_file_needs_no_server() {
    let Some(pair) = Pair::new(&[]) else { return };
    if !can_pass_through(pair.source.path()) {
        return;
    }
    let file = pair.open("file");
    // Before its first write the kernel asks for the file capabilities.
    file.write_all_at(b"contents", 0).unwrap();
    kill_process(pair.mounted.pid(), Signal::STOP).unwrap();
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
    kill_process(pair.mounted.pid(), Signal::CONT).unwrap();
    assert_eq!(&user.join().unwrap(), b"contents");
    assert_eq!((in_time, &on_host[..]), (Ok(()), &b"contentsmore"[..]));
}

/// With any way to learn of changes by others, none of which reports these in time.
#[test]
fn what_the_kernel_writes_is_seen_at_once() {
    for options in [&[][..], &["--exclusive"], &["--no-watch"], &["--io-uring", "never"]] {
        let Some(pair) = Pair::new(options) else { return };
        let passes = can_pass_through(pair.source.path());
        let (path, host) = (pair.mounted.path("file"), pair.host("file"));
        let mut file = pair.open("file");
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
        let on_host = fs::File::open(&host).unwrap();
        for seek in [rustix::fs::SeekFrom::Data(0), rustix::fs::SeekFrom::Hole(1 << 20)] {
            let (here, there) = (rustix::fs::seek(&file, seek), rustix::fs::seek(&on_host, seek));
            // Without passthrough, a file that a program may have mapped counts as data.
            assert!(here == there || !passes, "{here:?} {there:?}");
        }
        fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 4096).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, 4096).unwrap();
        let end = (1 << 20) + 4;
        assert_eq!(sizes(&file), (end, end, end));
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), end);

        let name = pair.host("renamed");
        fs::rename(&path, pair.mounted.path("renamed")).unwrap();
        file.write_all(b"x").unwrap();
        drop(file);
        // The server is told of the close a little later.
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

/// Two programs append to a file, one of them in the source.
#[test]
fn appends_from_both_sides_are_kept() {
    const LINES: usize = 2000;
    let Some(pair) = Pair::new(&[]) else { return };
    if !can_pass_through(pair.source.path()) {
        return;
    }
    drop(pair.open("file"));
    thread::scope(|scope| {
        for path in [pair.mounted.path("file"), pair.host("file")] {
            scope.spawn(move || {
                let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
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
    let file = pair.open("file");
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
    let root = pair.mounted.root();
    let trace = || {
        let mut child = pando(&["trace", root.to_str().unwrap(), "--op=read"]);
        child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    (0..FILES).for_each(|of| drop(pair.open(&of.to_string())));
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
                    let file = fs::OpenOptions::new().read(true).write(writes).open(path).unwrap();
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
            let mut trace = trace();
            thread::sleep(Duration::from_millis(300));
            trace.kill().unwrap();
            trace.wait().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_trace_sees_each_read_of_a_file_that_is_opened_later() {
    let Some(pair) = Pair::new(&[]) else { return };
    fs::write(pair.host("file"), "contents").unwrap();
    await_value(true, || pair.mounted.path("file").exists());
    let root = pair.mounted.root();
    let mut command = pando(&["trace", root.to_str().unwrap(), "--op=read", "--count", "1"]);
    let mut trace = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut errors, mut line) = (BufReader::new(trace.stderr.take().unwrap()), String::new());
    errors.read_line(&mut line).unwrap();
    assert_eq!(fs::read(pair.mounted.path("file")).unwrap(), b"contents");
    let output = trace.wait_with_output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("/file"), "{}: {line}{shown}", output.status);
}

/// On a file system that refuses it, an overlay, the server reads and writes the file.
#[test]
fn a_source_that_is_stacked_is_served_by_requests() {
    if !can_mount() {
        return;
    }
    let temp = tempfile::tempdir_in("/dev/shm").unwrap();
    let dir = |name: &str| {
        let dir = temp.path().join(name);
        fs::create_dir(&dir).unwrap();
        dir.to_str().unwrap().to_owned()
    };
    let (lower, upper, work, overlay) = (dir("lower"), dir("upper"), dir("work"), dir("overlay"));
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let mounted = rustix::mount::mount(
        "overlay",
        &*overlay,
        "overlay",
        rustix::mount::MountFlags::empty(),
        &*std::ffi::CString::new(options).unwrap(),
    );
    if let Err(error) = mounted {
        skipped(&format!("no overlay can be mounted: {error}"));
        return;
    }
    let _unmount = Unmount(PathBuf::from(&overlay));
    let mounted = Mounted::new(&["--source", &overlay]);
    for round in 0..2 {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(mounted.path("file")).unwrap();
        file.write_all(b"contents").unwrap();
        assert_eq!(fs::metadata(mounted.path("file")).unwrap().len(), 8 * (round + 1));
    }
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"contentscontents");
    mounted.umount();
}

/// Unmounts when it is dropped.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
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
    let open = |path: PathBuf| fs::OpenOptions::new().read(true).custom_flags(direct).open(path).map(drop);
    let error = |opened: std::io::Result<()>| opened.err().and_then(|error| Errno::from_io_error(&error));
    assert_eq!(error(open(pair.mounted.path("program"))), error(open(pair.host("program"))));
}
