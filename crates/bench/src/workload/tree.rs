//! Creation of trees: for workloads before the clock starts, and for `pando bench mktree`.

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
    base::{
        cancel::Cancel,
        failure::{During, Failure, ignore_not_found, print_error},
        path::TreePath,
    },
    target::Actor,
};

/// Number of files between two checks for cancellation.
const BATCH: usize = 256;

/// Makes directories, then files.
///
/// # Errors
/// The target's error, or [`Failure::Interrupted`].
pub(super) fn make_all(
    actor: &mut dyn Actor,
    dirs: impl IntoIterator<Item = TreePath>,
    files: impl IntoIterator<Item = TreePath>,
    cancel: &Cancel,
) -> Result<(), Failure> {
    for dir in dirs {
        actor.mkdir(&dir).during(|| format!("mkdir {}", dir.relative()))?;
    }
    for (n, file) in files.into_iter().enumerate() {
        if n.is_multiple_of(BATCH) {
            cancel.check()?;
        }
        actor.create(&file).during(|| format!("create {}", file.relative()))?;
    }
    Ok(())
}

/// The description of a file to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSpec {
    pub(crate) name: String,
    pub(crate) xattrs: Vec<(CString, Vec<u8>)>,
}

/// The files of a directory: names of 4 to 40 letters and a number, each with up to `max_xattrs`
/// extended attributes of up to 64 bytes. The same seed gives the same files.
pub(crate) fn file_specs(seed: u64, files: u64, max_xattrs: u64) -> impl Iterator<Item = FileSpec> {
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
        FileSpec { name: format!("{letters}.{number}"), xattrs }
    })
}

/// Makes `files` files in a directory, as [`file_specs`] describes them, for `pando bench mktree`.
/// The directory must be empty or not exist. Returns the number of extended attributes. If it
/// fails, the files that it made are removed.
///
/// # Errors
/// The file system's error; the directory is not empty; or [`Failure::Interrupted`].
pub(crate) fn mktree(dir: &Path, seed: u64, files: u64, max_xattrs: u64, cancel: &Cancel) -> Result<u64, Failure> {
    let made_dir = match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::read_dir(dir).during(|| format!("reading {}", dir.display()))?.next().is_some() {
                let why = format!(
                    "{} is not empty: choose an empty directory, or one that does not exist yet",
                    dir.display()
                );
                return Err(Failure::Refused(why));
            }
            false
        }
        made => made.during(|| format!("making {}", dir.display())).map(|()| true)?,
    };
    let (mut made, mut xattrs) = (0_usize, 0);
    let result = file_specs(seed, files, max_xattrs).try_for_each(|spec| {
        if made.is_multiple_of(BATCH) {
            cancel.check()?;
        }
        make(dir, &spec, &mut made)?;
        xattrs += spec.xattrs.len() as u64;
        Ok(())
    });
    if result.is_err() {
        // Remove as many files as possible. A file that another program has removed is no error.
        let mut left = Ok(());
        for spec in file_specs(seed, files, max_xattrs).take(made) {
            left = left.and(ignore_not_found(fs::remove_file(dir.join(spec.name))));
        }
        if let Err(error) = left.and_then(|()| if made_dir { fs::remove_dir(dir) } else { Ok(()) }) {
            print_error(format_args!(
                "pando bench: {}: some of the files could not be removed: {error}",
                dir.display()
            ));
        }
    }
    result.map(|()| xattrs)
}

/// Makes one file. Counts it as soon as it exists.
fn make(dir: &Path, spec: &FileSpec, made: &mut usize) -> Result<(), Failure> {
    let path: PathBuf = dir.join(&spec.name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH)
        .during(|| format!("making {}", path.display()))?;
    *made += 1;
    for (name, value) in &spec.xattrs {
        rustix::fs::fsetxattr(&file, name.as_c_str(), value, XattrFlags::CREATE).or_else(|error| match error {
            Errno::OPNOTSUPP => Err(Failure::Refused(format!(
                "{} is on a file system without user extended attributes: use MAXXATTRS 0, or choose another file system",
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
    fn same_seed_makes_the_same_files() {
        let (a, b): (Vec<_>, Vec<_>) = (file_specs(7, 500, 3).collect(), file_specs(7, 500, 3).collect());
        assert_eq!(a, b);
        assert_ne!(a, file_specs(8, 500, 3).collect::<Vec<_>>());
        let names: std::collections::HashSet<_> = a.iter().map(|spec| &spec.name).collect();
        assert_eq!(names.len(), 500);
        for n in 0..=3 {
            assert!(a.iter().any(|spec| spec.xattrs.len() == n), "{n} of 0 to 3");
        }
        assert!(file_specs(7, 500, 0).all(|spec| spec.xattrs.is_empty()));
    }

    #[test]
    fn mktree_makes_the_files_and_refuses_a_directory_that_is_not_empty() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = temp.path().join("new");
        mktree(&dir, 7, 300, 0, &Cancel::default()).expect("it is made");
        let mut found: Vec<String> = fs::read_dir(&dir)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("letters"))
            .collect();
        let mut expected: Vec<String> = file_specs(7, 300, 0).map(|spec| spec.name).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        let again = mktree(&dir, 7, 1, 0, &Cancel::default()).expect_err("it is not empty");
        assert!(matches!(&again, Failure::Refused(why) if why.contains("not empty")), "{again}");
        let none = mktree(&temp.path().join("a/b"), 7, 1, 0, &Cancel::default()).expect_err("no parent");
        assert!(none.to_string().contains("a/b"), "{none}");
    }
}
