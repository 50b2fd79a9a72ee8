//! A directory of the kernel's: what is ours in it, and that it is left as it was.
//!
//! Everything is made in one subdirectory; a marker beside it says that both are ours, and is locked while we work.
//! So what is removed, at the end or at the start of the run after one that was killed, is never anybody else's.

use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{fs::FlockOperation, io::Errno};

use super::{Actor, Session, Target, calls::DirActor};
use crate::failure::{Failure, While, say};

/// The file that says that this directory is ours.
const MARKER: &str = ".pando-bench";
const MARKER_TEXT: &str = "The directory tree beside this file belongs to `pando bench` and will be removed by it.\n";
/// Where everything is made.
const TREE: &str = "pando-bench-tree";

/// The directory at a path.
pub(crate) struct DirTarget {
    path: PathBuf,
}

impl DirTarget {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Makes the directory if it is not there; says whether it did.
    fn make(&self) -> Result<bool, Failure> {
        match fs::create_dir(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error).during(|| format!("making {}", self.path.display())),
        }
    }

    /// Refuses a directory in which anything is that we did not make.
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
        Err(Failure::Refused(format!(
            "{} is not empty ({:?} is in it), and not from an earlier run: choose an empty directory, or one that is not there yet",
            self.path.display(),
            others[0],
        )))
    }

    /// Writes the marker and locks it, so that two runs do not share a directory.
    fn lock(&self) -> Result<OwnedFd, Failure> {
        let path = self.path.join(MARKER);
        let during = || format!("marking {}", path.display());
        fs::write(&path, MARKER_TEXT).during(during)?;
        let marker = OwnedFd::from(fs::File::open(&path).during(during)?);
        match rustix::fs::flock(&marker, FlockOperation::NonBlockingLockExclusive) {
            // A file system without locks: then the caller keeps runs apart.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {}
            Err(Errno::WOULDBLOCK) => return Err(self.in_use()),
            Err(error) => return Err(error).during(during),
        }
        // The run before us may have unlinked it between our opening and our locking.
        if rustix::fs::fstat(&marker).during(during)?.st_nlink == 0 { Err(self.in_use()) } else { Ok(marker) }
    }

    fn in_use(&self) -> Failure {
        Failure::Refused(format!("{} is in use by another run", self.path.display()))
    }
}

impl Target for DirTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        let made = self.make()?;
        self.check_ours()?;
        let marker = self.lock()?;
        let mut session = DirSession { path: self.path.clone(), made, open: true, _marker: marker };
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
    /// The directory was not there before.
    made: bool,
    /// Not cleaned up yet.
    open: bool,
    /// Keeps the lock.
    _marker: OwnedFd,
}

impl DirSession {
    fn tree(&self) -> PathBuf {
        self.path.join(TREE)
    }

    fn remove_tree(&mut self) -> Result<(), Failure> {
        let tree = self.tree();
        match fs::remove_dir_all(&tree) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
        .during(|| format!("removing {}", tree.display()))
    }

    /// Leaves the directory as it was before. The marker goes last of what is in it: a run that is killed in between
    /// leaves something that the next one recognises.
    fn clean_up(&mut self) -> Result<(), Failure> {
        self.open = false;
        self.remove_tree()?;
        let marker = self.path.join(MARKER);
        fs::remove_file(&marker).during(|| format!("removing {}", marker.display()))?;
        if self.made {
            fs::remove_dir(&self.path).during(|| format!("removing {}", self.path.display()))?;
        }
        Ok(())
    }
}

impl Drop for DirSession {
    fn drop(&mut self) {
        if self.open
            && let Err(failure) = self.clean_up()
        {
            say(format_args!("pando bench: {failure}; the next run in {} tries again", self.path.display()));
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
mod tests {
    use super::*;
    use crate::path::TreePath;

    fn refusal(path: &Path) -> String {
        match DirTarget::new(path).open() {
            Err(Failure::Refused(why)) => why,
            Err(other) => panic!("refused for another reason: {other}"),
            Ok(_) => panic!("{} was taken", path.display()),
        }
    }

    #[test]
    fn a_foreign_directory_is_refused_and_left_alone() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let precious = temp.path().join("precious");
        fs::write(&precious, "data").expect("writing");
        assert!(refusal(temp.path()).contains("not empty"));
        // A marker does not make other people's files ours.
        fs::write(temp.path().join(MARKER), "").expect("writing");
        assert!(refusal(temp.path()).contains("precious"));
        // A tree without a marker may be a name by chance.
        fs::remove_file(temp.path().join(MARKER)).expect("removing");
        fs::rename(&precious, temp.path().join(TREE)).expect("renaming");
        assert!(refusal(temp.path()).contains(TREE));
        assert_eq!(fs::read_to_string(temp.path().join(TREE)).expect("still there"), "data");
    }

    #[test]
    fn a_directory_is_left_as_it_was() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let new = temp.path().join("new");
        let session = DirTarget::new(&new).open().expect("it opens");
        session.actor().expect("an actor").create(&TreePath::new("f")).expect("create");
        assert!(new.join(TREE).join("f").exists());
        drop(session);
        assert!(!new.exists());
        assert!(temp.path().exists());
    }

    #[test]
    fn what_a_killed_run_left_is_removed() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        fs::write(temp.path().join(MARKER), MARKER_TEXT).expect("writing");
        fs::create_dir_all(temp.path().join(TREE).join("d")).expect("mkdir");
        let session = DirTarget::new(temp.path()).open().expect("it opens");
        assert!(!temp.path().join(TREE).join("d").exists());
        session.close().expect("it closes");
        assert_eq!(fs::read_dir(temp.path()).expect("it stays").count(), 0);
    }

    #[test]
    fn two_runs_do_not_share_a_directory() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let session = DirTarget::new(temp.path()).open().expect("it opens");
        assert!(refusal(temp.path()).contains("in use"));
        session.close().expect("it closes");
    }

    #[test]
    fn errors_name_the_file() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().join("none").join("new");
        let failure = DirTarget::new(&path).open().err().expect("no parent");
        assert!(failure.to_string().contains("none/new"), "{failure}");
        let file = temp.path().join("file");
        fs::write(&file, "").expect("writing");
        let failure = DirTarget::new(&file).open().err().expect("not a directory");
        assert!(failure.to_string().contains("Not a directory"), "{failure}");
    }
}
