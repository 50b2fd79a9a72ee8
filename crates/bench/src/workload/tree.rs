//! Making trees: for workloads, before the clock starts, and for `pando bench mktree`.

use std::{
    ffi::CString,
    fs, io,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, XattrFlags},
    io::Errno,
};

use crate::{
    failure::{Failure, While, say, unless_gone},
    halt::Halt,
    path::TreePath,
    target::Actor,
};

/// Files made between two looks at whether to go on.
const BATCH: usize = 256;

/// Makes directories, then files.
///
/// # Errors
/// What the target answers, or that the run is to end.
pub(super) fn make_all(
    actor: &mut dyn Actor,
    dirs: impl IntoIterator<Item = TreePath>,
    files: impl IntoIterator<Item = TreePath>,
    halt: &Halt,
) -> Result<(), Failure> {
    for dir in dirs {
        actor.mkdir(&dir).during(|| format!("mkdir {}", dir.relative()))?;
    }
    for (n, file) in files.into_iter().enumerate() {
        if n.is_multiple_of(BATCH) {
            halt.check()?;
        }
        actor.create(&file).during(|| format!("create {}", file.relative()))?;
    }
    Ok(())
}

/// A file to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sketch {
    pub(crate) name: String,
    pub(crate) xattrs: Vec<(CString, Vec<u8>)>,
}

/// The files of a directory: names of 4 to 40 letters, each with up to `max_xattrs` extended attributes of up to 64
/// bytes. The same seed gives the same files.
pub(crate) fn sketches(seed: u64, files: u64, max_xattrs: u64) -> impl Iterator<Item = Sketch> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..files).map(move |number| {
        let letters: String = (0..rng.usize(4..=40)).map(|_| rng.lowercase()).collect();
        let xattrs = (0..rng.u64(0..=max_xattrs)).map(|n| {
            let name = CString::new(format!("user.{n}.{:08x}", rng.u32(..))).expect("no NUL");
            let value = (0..rng.usize(1..=64)).map(|_| rng.u8(..)).collect();
            (name, value)
        });
        let xattrs = xattrs.collect();
        // The number makes the name unique.
        Sketch { name: format!("{letters}.{number}"), xattrs }
    })
}

/// Makes `files` files in a directory, as [`sketches`] says: what `pando bench mktree` does. The directory must be empty,
/// or not be there; returns how many extended attributes were made. If it fails, what was made is removed again.
///
/// # Errors
/// What the file system answers, or that the directory is not empty, or that the run is to end.
pub(crate) fn mktree(dir: &Path, seed: u64, files: u64, max_xattrs: u64, halt: &Halt) -> Result<u64, Failure> {
    let made_dir = match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::read_dir(dir).during(|| format!("reading {}", dir.display()))?.next().is_some() {
                let why =
                    format!("{} is not empty: choose an empty directory, or one that is not there yet", dir.display());
                return Err(Failure::Refused(why));
            }
            false
        }
        made => made.during(|| format!("making {}", dir.display())).map(|()| true)?,
    };
    let (mut made, mut xattrs) = (0_usize, 0);
    let result = sketches(seed, files, max_xattrs).try_for_each(|sketch| {
        if made.is_multiple_of(BATCH) {
            halt.check()?;
        }
        make(dir, &sketch, &mut made)?;
        xattrs += sketch.xattrs.len() as u64;
        Ok(())
    });
    if result.is_err() {
        // As much as can be, and what somebody else has removed is well.
        let mut left = Ok(());
        for sketch in sketches(seed, files, max_xattrs).take(made) {
            left = left.and(unless_gone(fs::remove_file(dir.join(sketch.name))));
        }
        if let Err(error) = left.and_then(|()| if made_dir { fs::remove_dir(dir) } else { Ok(()) }) {
            say(format_args!("pando bench: {}: not all that was made could be removed: {error}", dir.display()));
        }
    }
    result.map(|()| xattrs)
}

/// One file; counts it as made as soon as it is there.
fn make(dir: &Path, sketch: &Sketch, made: &mut usize) -> Result<(), Failure> {
    let path: PathBuf = dir.join(&sketch.name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH)
        .during(|| format!("making {}", path.display()))?;
    *made += 1;
    for (name, value) in &sketch.xattrs {
        rustix::fs::fsetxattr(&file, name.as_c_str(), value, XattrFlags::CREATE).or_else(|error| match error {
            Errno::OPNOTSUPP => Err(Failure::Refused(format!(
                "{} is on a file system without extended attributes of users: ask for 0 of them, or choose another",
                dir.display()
            ))),
            error => Err(error).during(|| format!("setting {} of {}", name.to_string_lossy(), path.display())),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_files() {
        let (a, b): (Vec<_>, Vec<_>) = (sketches(7, 500, 3).collect(), sketches(7, 500, 3).collect());
        assert_eq!(a, b);
        assert_ne!(a, sketches(8, 500, 3).collect::<Vec<_>>());
        let names: std::collections::HashSet<_> = a.iter().map(|sketch| &sketch.name).collect();
        assert_eq!(names.len(), 500);
        for n in 0..=3 {
            assert!(a.iter().any(|sketch| sketch.xattrs.len() == n), "{n} of 0 to 3");
        }
        assert!(sketches(7, 500, 0).all(|sketch| sketch.xattrs.is_empty()));
    }

    #[test]
    fn mktree_makes_them_and_refuses_what_is_not_empty() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = temp.path().join("new");
        mktree(&dir, 7, 300, 0, &Halt::default()).expect("it is made");
        let mut found: Vec<String> = fs::read_dir(&dir)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("letters"))
            .collect();
        let mut expected: Vec<String> = sketches(7, 300, 0).map(|sketch| sketch.name).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        let again = mktree(&dir, 7, 1, 0, &Halt::default()).expect_err("it is not empty");
        assert!(matches!(&again, Failure::Refused(why) if why.contains("not empty")), "{again}");
        let none = mktree(&temp.path().join("a/b"), 7, 1, 0, &Halt::default()).expect_err("no parent");
        assert!(none.to_string().contains("a/b"), "{none}");
    }
}
