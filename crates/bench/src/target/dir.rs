//! A directory of the kernel: ownership of its content, and its restoration.
//!
//! Everything is made in one subdirectory. A marker file beside it says that both belong to `pando
//! bench`, and is locked while a run uses them. Cleaning up, at the end of a run or at the start of
//! the run after a killed one, therefore never removes the files of others.
//!
//! The directory must belong to this user, and no other user may rename files in it. A user who
//! could rename might replace the measured tree with another one, which contains a git repository
//! that runs programs (`git-diff`).
//!
//! A marker is a file of this user with exactly our text in it, either new or found. A symbolic
//! link is never followed: in a place like /dev/shm, any user may have made a file of that name
//! before.

use std::{
    fs,
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::{Actor, Session, Target, calls::DirActor};
use crate::base::failure::{During, Failure, ignore_not_found, print_error};

/// The file that marks the directory as ours.
const MARKER: &str = ".pando-bench";
const MARKER_TEXT: &str = "The directory tree beside this file belongs to `pando bench` and will be removed by it.\n";
/// The text of the marker in a directory that this program has made.
const MADE_TEXT: &str = "This directory belongs to `pando bench` and will be removed by it.\n";
/// The subdirectory in which everything is made.
const TREE: &str = "pando-bench-tree";

/// The directory at a path.
pub(crate) struct DirTarget {
    path: PathBuf,
}

impl DirTarget {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Makes the directory, accessible to this user alone, if it does not exist. Returns whether it
    /// was made.
    fn make(&self) -> Result<bool, Failure> {
        match fs::DirBuilder::new().mode(0o700).create(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error).during(|| format!("making {}", self.path.display())),
        }
    }

    /// Refuses a directory that has entries which this program did not make.
    fn check_ours(&self) -> Result<(), Failure> {
        let during = || format!("reading {}", self.path.display());
        let (mut marked, mut others) = (false, Vec::new());
        for entry in fs::read_dir(&self.path).during(during)? {
            let name = entry.during(during)?.file_name();
            match name.to_str() {
                Some(MARKER) => marked = true,
                _ => others.push(name),
            }
        }
        if others.is_empty() || (marked && others == [TREE]) {
            return Ok(());
        }
        Err(self.not_ours(&others[0]))
    }

    /// Refuses a directory of another user, and one in which other users may rename files. `ours`
    /// is a file that this user has made in it: some mounts show every file as owned by another
    /// user.
    fn check_private(&self, ours: &fs::Metadata) -> Result<(), Failure> {
        const OTHERS_WRITE: u32 = 0o022;
        const STICKY: u32 = 0o1000;
        let (path, status) = (self.path.display(), fs::metadata(&self.path));
        let status = status.during(|| format!("reading {path}"))?;
        let (owner, mode) = (status.uid(), status.mode());
        if owner != rustix::process::geteuid().as_raw() && owner != ours.uid() {
            return Err(Failure::Refused(format!(
                "{path} belongs to another user ({owner}), who could replace the files in it: choose a directory of your \
                 own, or one that does not exist yet",
            )));
        }
        if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
            return Err(Failure::Refused(format!(
                "others may write to {path} (mode {:04o}): chmod go-w, or choose a directory that does not exist yet",
                mode & 0o7777,
            )));
        }
        Ok(())
    }

    /// Makes the marker, or recognises that of an earlier run, and locks it, so that two runs
    /// cannot share a directory. Also returns whether the directory itself was made by this
    /// program: by this run, or by the earlier one.
    fn mark(&self, made: bool) -> Result<(OwnedFd, bool), Failure> {
        let path = self.path.join(MARKER);
        let during = || format!("marking {}", path.display());
        let mut how = fs::OpenOptions::new();
        let (mut marker, is_new) = match how.write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (self.find(&path)?, false),
            new => (new.during(during)?, true),
        };
        self.lock(&marker, &path, is_new)?;
        if is_new {
            let text = if made { MADE_TEXT } else { MARKER_TEXT };
            let status = marker.metadata().during(during);
            let written = status
                .and_then(|status| self.check_private(&status))
                .and_then(|()| marker.write_all(text.as_bytes()).during(during));
            return written.map(|()| (marker.into(), made)).inspect_err(|_| _ = fs::remove_file(&path));
        }
        let status = marker.metadata().during(during)?;
        self.check_private(&status)?;
        // The earlier run may have unlinked it between our open and our lock.
        if status.nlink() == 0 {
            return Err(self.in_use());
        }
        let mut text = String::new();
        let read = (&mut marker).take(MARKER_TEXT.len() as u64 + 1).read_to_string(&mut text);
        let is_ours = status.is_file() && status.uid() == rustix::process::geteuid().as_raw() && read.is_ok();
        match text.as_str() {
            MADE_TEXT if is_ours => Ok((marker.into(), true)),
            MARKER_TEXT if is_ours => Ok((marker.into(), false)),
            _ => Err(self.not_ours(MARKER)),
        }
    }

    /// Locks the marker. If the marker is new, another run may have found and locked it first. That
    /// run refuses it as incomplete, as would every later run, so it is removed.
    fn lock(&self, marker: &fs::File, path: &Path, is_new: bool) -> Result<(), Failure> {
        let locked = match rustix::fs::flock(marker, FlockOperation::NonBlockingLockExclusive) {
            // A file system without locks: the user must not start two runs in one directory.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(()),
            Err(Errno::WOULDBLOCK) => Err(self.in_use()),
            Err(error) => Err(error).during(|| format!("marking {}", path.display())),
        };
        locked.inspect_err(|_| {
            if is_new {
                _ = fs::remove_file(path);
            }
        })
    }

    /// Opens an existing marker, which any user may have made: the open must not follow a symbolic
    /// link, and must not block. It is opened for writing, because NFS requires that for a lock.
    fn find(&self, path: &Path) -> Result<fs::File, Failure> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(marker) => Ok(marker.into()),
            Err(Errno::NOENT) => Err(self.in_use()),
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR | Errno::ACCESS) => Err(self.not_ours(MARKER)),
            Err(error) => Err(error).during(|| format!("opening {}", path.display())),
        }
    }

    fn not_ours(&self, name: impl std::fmt::Debug) -> Failure {
        Failure::Refused(format!(
            "{} is not empty ({name:?} is in it), and not from an earlier run: choose an empty directory, or one that does not exist yet",
            self.path.display(),
        ))
    }

    fn in_use(&self) -> Failure {
        Failure::Refused(format!("{} is in use by another run", self.path.display()))
    }
}

impl Target for DirTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        let made = self.make()?;
        self.check_ours()?;
        let (marker, made) = self.mark(made).inspect_err(|_| {
            if made {
                _ = fs::remove_dir(&self.path)
            }
        })?;
        let mut session = DirSession { path: self.path.clone(), made, marker: Some(marker) };
        session.remove_tree()?;
        let tree = session.tree();
        fs::create_dir(&tree).during(|| format!("making {}", tree.display()))?;
        Ok(Box::new(session))
    }

    fn is_in_kernel(&self) -> bool {
        true
    }
}

struct DirSession {
    path: PathBuf,
    /// This program made the directory: this run, or the earlier run that was killed in it.
    made: bool,
    /// Holds the lock; none once the session has been cleaned up.
    marker: Option<OwnedFd>,
}

impl DirSession {
    fn tree(&self) -> PathBuf {
        self.path.join(TREE)
    }

    fn remove_tree(&mut self) -> Result<(), Failure> {
        let tree = self.tree();
        ignore_not_found(fs::remove_dir_all(&tree)).during(|| format!("removing {}", tree.display()))
    }

    /// Restores the directory. The marker is removed last: if the run is killed in between, the
    /// next run still recognises the directory.
    fn clean_up(&mut self) -> Result<(), Failure> {
        let lock = self.marker.take();
        self.remove_tree()?;
        let marker = self.path.join(MARKER);
        fs::remove_file(&marker).during(|| format!("removing {}", marker.display()))?;
        // NFS renames a file that is removed while it is open, and keeps it until it is closed:
        // only then is the directory empty. A run that has opened the marker before its removal
        // finds its link count at 0, and refuses.
        drop(lock);
        if self.made {
            fs::remove_dir(&self.path).during(|| format!("removing {}", self.path.display()))?;
        }
        Ok(())
    }
}

impl Drop for DirSession {
    fn drop(&mut self) {
        if self.marker.is_some()
            && let Err(failure) = self.clean_up()
        {
            print_error(format_args!("pando bench: {failure}; the next run in {} tries again", self.path.display()));
        }
    }
}

impl Session for DirSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(DirActor::at(self.tree())?))
    }

    fn tree(&self) -> Option<PathBuf> {
        Some(DirSession::tree(self))
    }

    fn close(mut self: Box<Self>) -> Result<(), Failure> {
        self.clean_up()
    }
}

#[cfg(test)]
mod tests;
