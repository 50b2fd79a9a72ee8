//! find-size and git-diff: programs over a tree, which the work on dcache (2013) also ran.
//!
//! That work found no difference in them: they spend most of their time outside of the code that it
//! had changed. They are here so that this result can be checked. Each thread runs the program once
//! per round; one operation is one run.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::{Pace, Part, Step, Task, Workload, tree::make_all};
use crate::{
    base::{
        cancel::Cancel,
        child,
        failure::{During, Failure},
        path::TreePath,
    },
    target::Actor,
};

/// Files in each directory.
const IN_DIR: u64 = 100;
/// One file in this many is empty, and found by `find -size 0b`.
const EMPTY: u64 = 10;

/// The program to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// `find . -size 0b`
    FindSize,
    /// `git diff`
    GitDiff,
}

/// Runs of a program over a tree of `files` files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runs {
    pub(crate) program: Program,
    pub(crate) files: u64,
}

impl Workload for Runs {
    fn pace(&self) -> Pace {
        Pace::Rounds
    }

    fn prepare(&self, actor: &mut dyn Actor, _: usize, cancel: &Cancel) -> Result<(), Failure> {
        let Some(root) = actor.host_path().map(|path| path.join("tree")) else {
            let none = io::Error::from(io::ErrorKind::Unsupported);
            return Err(Failure::Io("running a program".into(), none));
        };
        let name = |n: u64| format!("tree/dir{}/file{n}", n / IN_DIR);
        let dirs = (0..self.files.div_ceil(IN_DIR)).map(|dir| TreePath::new(&format!("tree/dir{dir}")));
        let dirs = [TreePath::new("tree")].into_iter().chain(dirs);
        make_all(actor, dirs, (0..self.files).map(|n| TreePath::new(&name(n))), cancel)?;
        for n in (0..self.files).filter(|n| !n.is_multiple_of(EMPTY)) {
            if n.is_multiple_of(256) {
                cancel.check()?;
            }
            let path = TreePath::new(&name(n));
            let mut write = || actor.open(&path)?.write(format!("{n}\n").as_bytes());
            write().during(|| format!("writing {}", path.relative()))?;
        }
        if self.program == Program::GitDiff {
            for n in 0..self.files {
                let file = root.with_file_name(name(n));
                age(&file).during(|| format!("setting the time of {}", file.display()))?;
            }
            commit(&root)?;
        }
        Ok(())
    }

    fn task<'a>(&'a self, _: Part<'a>) -> Box<dyn Task + 'a> {
        Box::new(Run { how: *self, done: false })
    }
}

/// Makes a file older than any git index. If a file were of the same second as the index, git would
/// read it in every run to check it for changes, and the number of such files would depend on when
/// that second began.
fn age(file: &Path) -> rustix::io::Result<()> {
    let old = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    utimensat(CWD, file, &Timestamps { last_access: old, last_modification: old }, AtFlags::empty())
}

/// Makes a git repository of the tree.
fn commit(root: &Path) -> Result<(), Failure> {
    let commit = ["-c", "user.name=pando", "-c", "user.email=pando@localhost", "commit", "-q", "-m", "all"];
    for args in [&["init", "-q"][..], &["add", "."], &commit] {
        let during = || format!("git {} in {}", args.join(" "), root.display());
        let output = git(root, args).output().map_err(missing("git")).during(during)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let error = if said.is_empty() { child::ended("git", output.status) } else { io::Error::other(said) };
            return Err(Failure::Io(during(), error));
        }
    }
    Ok(())
}

/// A git command without the user's configuration: hooks or a file-system monitor would be measured
/// as well. The environment variables that name a repository are removed; they are set if git
/// itself runs this program. If a mount shows our files as owned by another user, git refuses them,
/// so this one repository is declared safe, and no other one.
fn git(root: &Path, args: &[&str]) -> Command {
    let mut ours = OsString::from("safe.directory=");
    // git compares the path without symbolic links.
    ours.push(root.canonicalize().as_deref().unwrap_or(root));
    let mut command = Command::new("git");
    command.arg("-C").arg(root).arg("-c").arg(ours).args(["-c", "gc.auto=0"]).args(args);
    for (name, _) in env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"GIT_")) {
        command.env_remove(name);
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null").stdin(Stdio::null());
    command
}

/// Adds the name of a program that is not installed.
fn missing(program: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(io::ErrorKind::NotFound, format!("{program} is not installed: install it"))
        }
        _ => error,
    }
}

#[repr(align(128))]
struct Run {
    how: Runs,
    done: bool,
}

impl Run {
    fn run(&self, root: &PathBuf) -> io::Result<()> {
        let (name, output) = match self.how.program {
            Program::FindSize => {
                let mut find = Command::new("find");
                ("find", find.arg(root).args(["-type", "f", "-size", "0b"]).stderr(Stdio::piped()).output())
            }
            Program::GitDiff => ("git", git(root, &["diff"]).output()),
        };
        let output = output.map_err(missing(name))?;
        if !output.status.success() {
            let _ = io::stderr().write_all(&output.stderr);
            return Err(child::ended(name, output.status));
        }
        let expected = if self.how.program == Program::FindSize { self.how.files.div_ceil(EMPTY) } else { 0 };
        let lines = output.stdout.iter().filter(|&&byte| byte == b'\n').count() as u64;
        if lines == expected {
            Ok(())
        } else {
            Err(io::Error::other(format!("{name} printed {lines} lines, not {expected}")))
        }
    }
}

impl Step for Run {
    const BATCH: u32 = 1;

    fn begin(&mut self, _: &mut dyn Actor) -> io::Result<()> {
        self.done = false;
        Ok(())
    }

    fn step(&mut self, actor: &mut dyn Actor) -> io::Result<u64> {
        if self.done {
            return Ok(0);
        }
        let root = actor.host_path().ok_or(io::ErrorKind::Unsupported)?.join("tree");
        self.run(&root)?;
        self.done = true;
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::target::{TargetSpec, tests::scratch};

    #[test]
    fn git_accepts_only_the_named_repository_of_another_user() {
        if !pandofs_testkit::has(&["git"]) || !pandofs_testkit::is_root() {
            return;
        }
        let temp = scratch();
        let [one, other, link] = ["one", "other", "link"].map(|name| temp.path().join(name));
        for root in [&one, &other] {
            std::fs::create_dir(root).expect("mkdir");
            std::fs::write(root.join("file"), "data").expect("writing");
            commit(root).expect("a repository");
            // The owner that a mount may show.
            for path in [root, &root.join(".git")] {
                std::os::unix::fs::chown(path, Some(65534), None).expect("chown");
            }
        }
        std::os::unix::fs::symlink(&one, &link).expect("a link");
        let diff = |root: &Path, args: &[&str]| git(root, args).output().expect("git").status.success();
        assert!(diff(&one, &["diff"]) && diff(&link, &["diff"]));
        let other = other.to_str().expect("UTF-8");
        assert!(!diff(&one, &["-C", other, "diff"]), "only the named one");
    }

    #[test]
    fn git_index_is_newer_than_all_files() {
        if !pandofs_testkit::has(&["git"]) {
            return;
        }
        let temp = scratch();
        let target: TargetSpec = format!("dir={}", temp.path().display()).parse().expect("a target");
        let session = target.target().open().expect("it opens");
        let mut actor = session.actor().expect("an actor");
        let runs = Runs { program: Program::GitDiff, files: 120 };
        runs.prepare(&mut *actor, 1, &Cancel::default()).expect("prepared");
        let tree = actor.host_path().expect("a directory").join("tree");
        let changed = |file: &str| tree.join(file).metadata().expect("it is there").mtime();
        assert!((0..120).all(|n| changed(&format!("dir{}/file{n}", n / IN_DIR)) < changed(".git/index")));
    }
}
