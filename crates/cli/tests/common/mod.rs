//! Shared by the tests of the mounted command: a mount that is always unmounted at the end, and a
//! reason to skip.
#![allow(dead_code)] // Each test binary uses its part.

use std::{
    ffi::{CStr, CString},
    fs,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Once},
};

#[allow(unused_imports)] // Each test binary uses its part.
pub use pandofs_testkit::{has, is_root, skipped};
use rustix::{io::Errno, process::Signal};
use tempfile::TempDir;

/// The command under test.
pub fn pando(args: &[&str]) -> Command {
    heed();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Lets programs that are started from now on obey the signals of tests, even if the parent of the
/// test has ignored these signals (nohup, a shell without job control). A signal that is caught
/// here has its default action in a new program.
pub fn heed() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let ignored = signals("self", "SigIgn");
        for signal in
            [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].into_iter().filter(|&signal| ignored(signal))
        {
            signal_hook::flag::register(signal.as_raw(), Arc::default()).expect("a handler");
        }
    });
}

/// Whether the kernel says that a process ignores a signal (`SigIgn`) or catches it (`SigCgt`).
pub fn signals(pid: &str, what: &str) -> impl Fn(Signal) -> bool + use<> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
    let mask = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':')).expect("a mask");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("a number");
    move |signal| mask >> (signal.as_raw() - 1) & 1 == 1
}

/// Runs the command to its end.
pub fn run(args: &[&str]) -> Output {
    pando(args).output().expect("pando starts")
}

/// A copy of the command in `dir`, for users who may not access the build directory. Another
/// process writes the copy. A program that is open for writing cannot be executed, and each child
/// that another test starts inherits the files that are open here until it is executed.
pub fn copy_to(dir: &Path) -> PathBuf {
    let copy = dir.join("pando");
    let status = Command::new("cp").arg(env!("CARGO_BIN_EXE_pando")).arg(&copy).status().expect("cp starts");
    assert!(status.success());
    copy
}

/// Sets an extended attribute, that of a link itself too.
pub fn set(path: &Path, name: &str, value: &[u8]) {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::lsetxattr(path, name, value, flags).expect("set");
}

/// The text on stderr.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether this machine allows mounts. If not, reports why, and fails if a skip is not allowed.
pub fn can_mount() -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    match device {
        Err(error) => {
            skipped(&format!("/dev/fuse: {error}"));
            false
        }
        Ok(_) => is_root(),
    }
}

/// A served tree.
pub struct Mounted {
    temp: TempDir,
    child: Option<Child>,
}

impl Mounted {
    /// Mounts on a new directory and waits for the ready line.
    pub fn new(options: &[&str]) -> Self {
        Self::again(tempfile::tempdir().expect("a directory"), options)
    }

    /// Mounts on `grove` in an existing directory.
    pub fn again(temp: TempDir, options: &[&str]) -> Self {
        Self::by(pando(&[]), temp, options)
    }

    /// As [`Mounted::again`], by a command that becomes `pando`.
    pub fn by(mut command: Command, temp: TempDir, options: &[&str]) -> Self {
        let grove = temp.path().join("grove");
        // The gate runs the tests in both ways.
        let io_uring = std::env::var("PANDO_TEST_IO_URING").unwrap_or_else(|_| "auto".into());
        // It also runs tests of trees in memory on stores.
        let in_store = std::env::var_os("PANDO_TEST_STORE").is_some()
            && !options.iter().any(|option| ["--source", "--store"].contains(option));
        let store = temp.path().join("store");
        let of_store = ["--store", store.to_str().expect("text"), "--size", "4G"];
        let mut child = command
            .args(["mount", "--io-uring", &io_uring])
            .args(if in_store { &of_store[..] } else { &[] })
            .args(options)
            .arg(&grove)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("pando starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        out.read_line(&mut line).expect("a line");
        if !line.contains("pando umount") {
            let mut errors = String::new();
            child.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("text");
            panic!("not mounted: {line:?}, {errors}");
        }
        Self { temp, child: Some(child) }
    }

    /// Where the tree is mounted.
    pub fn root(&self) -> PathBuf {
        self.temp.path().join("grove")
    }

    /// A path in it.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join(name)
    }

    /// The server's process.
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(self.child.as_ref().expect("it runs"))
    }

    /// Unmounts with the command. That must succeed, and the server must end successfully and
    /// without messages.
    pub fn umount(mut self) {
        let output = run(&["umount", self.root().to_str().expect("text")]);
        assert!(output.status.success(), "{}", said(&output));
        let (status, errors) = self.ended();
        assert!(status.success() && errors.is_empty(), "{status}: {errors}");
        assert_eq!(std::fs::read_dir(self.root()).expect("the directory below").count(), 0);
    }

    /// Waits for the end of the server. Returns its status and its stderr.
    pub fn ended(&mut self) -> (ExitStatus, String) {
        let output = self.child.take().expect("it runs").wait_with_output().expect("it ends");
        (output.status, said(&output))
    }

    /// Returns the directory without unmounting.
    pub fn into_temp(mut self) -> TempDir {
        assert!(self.child.is_none(), "the server has ended");
        std::mem::replace(&mut self.temp, tempfile::tempdir().expect("a directory"))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Even after a failed assertion nothing stays mounted and nothing keeps running.
        let flags = rustix::mount::UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(self.root(), flags);
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A file system of the kernel, mounted on a new directory. It is unmounted when this is dropped.
pub struct KernelMount(TempDir);

impl KernelMount {
    /// `kind` and `options` are those of mount(2).
    pub fn new(kind: &str, options: &CStr) -> rustix::io::Result<Self> {
        let point = tempfile::tempdir().expect("a directory");
        rustix::mount::mount("none", point.path(), kind, rustix::mount::MountFlags::empty(), options)?;
        Ok(Self(point))
    }

    /// A tmpfs. The caller is root.
    pub fn tmpfs(options: &CStr) -> Self {
        Self::new("tmpfs", options).expect("root mounts a tmpfs")
    }

    /// An overlay. Its upper layer is `upper` in the directory `layers`. Further options follow in
    /// `more`, each after a comma.
    pub fn overlay(lower: &Path, layers: &Path, more: &str) -> rustix::io::Result<Self> {
        let [upper, work] = ["upper", "work"].map(|name| layers.join(name));
        for dir in [&upper, &work] {
            fs::create_dir_all(dir).expect("made");
        }
        let [lower, upper, work] = [lower, &upper, &work].map(|path| path.display().to_string());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}{more}");
        Self::new("overlay", &CString::new(options).expect("no NUL"))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// Asserts that the error is one of a mount whose server has just ended. A request during the
/// shutdown of the rings, which continues after the end of the process, is aborted.
pub fn assert_broken_off(error: &io::Error) {
    let refused = Errno::from_io_error(error);
    let expected = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
    assert!(refused.is_some_and(|refused| expected.contains(&refused)), "{error}");
}

/// Waits until the mount table has `point`, or does not have it. poll(2) on `/proc/self/mountinfo`
/// reports each change.
pub fn wait_until_mounted(point: &str, mounted: bool) {
    let mut table = fs::File::open("/proc/self/mountinfo").unwrap();
    loop {
        let mut text = String::new();
        table.seek(SeekFrom::Start(0)).unwrap();
        table.read_to_string(&mut text).unwrap();
        if text.contains(point) == mounted {
            return;
        }
        let mut polled = [rustix::event::PollFd::new(&table, rustix::event::PollFlags::PRI)];
        rustix::event::poll(&mut polled, None).unwrap();
    }
}

/// The names in a directory, sorted.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
