//! Mounts made by the tests, and unmounted in any case.

use std::{
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

pub use pandofs_testkit::skipped;

/// A file system mounted in a temporary directory, from an image if it needs one.
pub struct Mounted {
    temp: tempfile::TempDir,
}

impl Mounted {
    /// An empty file system in an image, made by `mkfs` with these arguments. None, with a message,
    /// if that is not possible here.
    pub fn image(mkfs: &str, arguments: &[&str], bytes: u64) -> Option<Self> {
        Self::image_after(|_| {}, mkfs, arguments, bytes)
    }

    /// As [`Mounted::image`], after a change of the image.
    pub fn image_after(change: impl FnOnce(&Path), mkfs: &str, arguments: &[&str], bytes: u64) -> Option<Self> {
        let temp = tempfile::tempdir().unwrap();
        let image = temp.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        if let Err(reason) = run(Command::new(mkfs).args(arguments).arg(&image)) {
            skipped(&reason);
            return None;
        }
        change(&image);
        Self::mount(temp, &["-o".as_ref(), "loop".as_ref(), image.as_os_str()])
    }

    /// An empty tmpfs, with these options of mount.
    pub fn tmpfs(options: &str) -> Option<Self> {
        let what = ["-t", "tmpfs", "-o", options, "grove"];
        Self::mount(tempfile::tempdir().unwrap(), &what.map(OsStr::new))
    }

    fn mount(temp: tempfile::TempDir, what: &[&OsStr]) -> Option<Self> {
        let dir = temp.path().join("root");
        std::fs::create_dir(&dir).unwrap();
        match run(Command::new("mount").args(what).arg(&dir)) {
            Ok(()) => Some(Self { temp }),
            Err(reason) => {
                skipped(&reason);
                None
            }
        }
    }

    /// Its root.
    pub fn path(&self) -> PathBuf {
        self.temp.path().join("root")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(reason) = run(Command::new("umount").args(["-l"]).arg(self.path())) {
            let _ = writeln!(std::io::stderr(), "{reason}");
        }
    }
}

/// Mounts one directory on another until it is dropped.
pub struct Bound(PathBuf);

impl Bound {
    pub fn new(from: &Path, to: &Path) -> Option<Self> {
        match run(Command::new("mount").args(["--bind"]).arg(from).arg(to)) {
            Ok(()) => Some(Self(to.to_owned())),
            Err(reason) => {
                skipped(&reason);
                None
            }
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Err(reason) = run(Command::new("umount").args(["-l"]).arg(&self.0)) {
            let _ = writeln!(std::io::stderr(), "{reason}");
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("not installed: {program}"),
        _ => format!("{program}: {error}"),
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
