//! A directory of the kernel's: what is ours in it, and that it is left as it was.
//!
//! Everything is made in one subdirectory; a marker beside it says that both are ours, and is locked while we work.
//! So what is removed, at the end or at the start of the run after one that was killed, is never anybody else's.
//!
//! The directory is this user's, and nobody else may move what is in it: whoever could would put a tree of his in the place of
//! ours, with a repository in it that has programs run (`git-diff`).
//!
//! A marker is a file of this user's with exactly our words in it, made anew or found, and never one that a link leads to: in a
//! place like /dev/shm anybody may have put something under the name before.

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
use crate::failure::{Failure, While, say, unless_gone};

/// The file that says that this directory is ours.
const MARKER: &str = ".pando-bench";
const MARKER_TEXT: &str = "The directory tree beside this file belongs to `pando bench` and will be removed by it.\n";
/// The same in a directory that was not there before.
const MADE_TEXT: &str = "This directory belongs to `pando bench` and will be removed by it.\n";
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

    /// Makes the directory, for this user alone, if it is not there; says whether it did.
    fn make(&self) -> Result<bool, Failure> {
        match fs::DirBuilder::new().mode(0o700).create(&self.path) {
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
        Err(self.not_ours(&others[0]))
    }

    /// Refuses a directory of another user's, and one in which others may rename. `ours` is a file that this user has made in
    /// it: there are mounts that show everything as somebody else's.
    fn check_private(&self, ours: &fs::Metadata) -> Result<(), Failure> {
        const OTHERS_WRITE: u32 = 0o022;
        const STICKY: u32 = 0o1000;
        let (path, status) = (self.path.display(), fs::metadata(&self.path));
        let status = status.during(|| format!("reading {path}"))?;
        let (owner, mode) = (status.uid(), status.mode());
        if owner != rustix::process::geteuid().as_raw() && owner != ours.uid() {
            return Err(Failure::Refused(format!(
                "{path} belongs to another user ({owner}), who could put something else in its place: choose a directory of your \
                 own, or one that is not there yet",
            )));
        }
        if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
            return Err(Failure::Refused(format!(
                "others may write to {path} (mode {:04o}): chmod go-w, or choose one that is not there yet",
                mode & 0o7777,
            )));
        }
        Ok(())
    }

    /// Makes the marker, or recognises that of an earlier run, and locks it, so that two runs do not share a directory. Also
    /// says whether the directory itself is ours: made by this run, or by the earlier one.
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
        // The run before us may have unlinked it between our opening and our locking.
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

    /// Locks the marker. Somebody may have found a new one before: to him it is not ours, nor would it be to those after us.
    fn lock(&self, marker: &fs::File, path: &Path, is_new: bool) -> Result<(), Failure> {
        let locked = match rustix::fs::flock(marker, FlockOperation::NonBlockingLockExclusive) {
            // A file system without locks: then the caller keeps runs apart.
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

    /// Opens a marker that is there, wherever it comes from: it must not lead elsewhere, or keep us waiting. For writing, as
    /// NFS wants it of whoever locks.
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
            "{} is not empty ({name:?} is in it), and not from an earlier run: choose an empty directory, or one that is not there yet",
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
    /// The directory was not there before, or not before the run that was killed in it.
    made: bool,
    /// Keeps the lock; none once the session has been cleaned up.
    marker: Option<OwnedFd>,
}

impl DirSession {
    fn tree(&self) -> PathBuf {
        self.path.join(TREE)
    }

    fn remove_tree(&mut self) -> Result<(), Failure> {
        let tree = self.tree();
        unless_gone(fs::remove_dir_all(&tree)).during(|| format!("removing {}", tree.display()))
    }

    /// Leaves the directory as it was before. The marker goes last of what is in it: a run that is killed in between
    /// leaves something that the next one recognises.
    fn clean_up(&mut self) -> Result<(), Failure> {
        let lock = self.marker.take();
        self.remove_tree()?;
        let marker = self.path.join(MARKER);
        fs::remove_file(&marker).during(|| format!("removing {}", marker.display()))?;
        // NFS gives a file that is removed while it is open another name, and keeps it there: until now, or the directory would
        // not be empty. Whoever has opened the marker before it was removed finds it without a name, and goes.
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
    use std::os::unix::fs::PermissionsExt;

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
    fn a_directory_that_others_may_write_to_is_refused() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = temp.path().join("dir");
        fs::create_dir(&dir).expect("mkdir");
        let set_mode = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("chmod");
        for mode in [0o777, 0o770, 0o702] {
            set_mode(mode);
            let why = refusal(&dir);
            assert!(why.contains("chmod go-w") && why.contains(&format!("{mode:o}")), "{why}");
            assert_eq!(fs::read_dir(&dir).expect("it stays").count(), 0);
        }
        // Nobody renames what is another's there.
        for mode in [0o1777, 0o755] {
            set_mode(mode);
            DirTarget::new(&dir).open().expect("it opens").close().expect("it closes");
        }
        let new = dir.join("new");
        let session = DirTarget::new(&new).open().expect("it opens");
        assert_eq!(fs::metadata(&new).expect("it is there").mode() & 0o777, 0o700);
        session.close().expect("it closes");
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        if !pandofs_testkit::is_root() {
            return;
        }
        let temp = tempfile::tempdir().expect("a temporary directory");
        std::os::unix::fs::chown(temp.path(), Some(65534), None).expect("chown");
        assert!(refusal(temp.path()).contains("belongs to another user (65534)"));
        assert_eq!(fs::read_dir(temp.path()).expect("it stays").count(), 0);
        // So does one with what looks like our own marker.
        fs::write(temp.path().join(MARKER), MARKER_TEXT).expect("writing");
        assert!(refusal(temp.path()).contains("belongs to another user (65534)"));
    }

    #[test]
    fn a_link_in_the_place_of_the_tree_is_not_followed() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let [dir, precious] = ["dir", "precious"].map(|name| temp.path().join(name));
        fs::create_dir(&precious).expect("mkdir");
        let session = DirTarget::new(&dir).open().expect("it opens");
        fs::remove_dir(dir.join(TREE)).expect("rmdir");
        std::os::unix::fs::symlink(&precious, dir.join(TREE)).expect("a link");
        assert!(session.actor().is_err());
        session.close().expect("it closes");
        assert!(precious.exists() && !dir.exists());
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
    fn a_directory_that_a_killed_run_made_is_removed() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let new = temp.path().join("new");
        let killed = DirTarget::new(&new).open().expect("it opens");
        let marker = fs::read(new.join(MARKER)).expect("a marker");
        killed.close().expect("it closes");
        // As if it had not come to closing.
        fs::create_dir(&new).expect("mkdir");
        fs::write(new.join(MARKER), marker).expect("writing");
        DirTarget::new(&new).open().expect("it opens").close().expect("it closes");
        assert!(!new.exists());
    }

    #[test]
    fn a_marker_that_is_not_ours_is_left_alone() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let (dir, precious) = (temp.path().join("dir"), temp.path().join("precious"));
        fs::create_dir_all(dir.join(TREE)).expect("mkdir");
        let marker = dir.join(MARKER);
        for text in ["data", "", &format!("{MARKER_TEXT}and more")] {
            fs::write(&marker, text).expect("writing");
            assert!(refusal(&dir).contains(MARKER));
            assert_eq!(fs::read_to_string(&marker).expect("still there"), text);
        }
        fs::remove_file(&marker).expect("removing");
        fs::write(&precious, MARKER_TEXT).expect("writing");
        std::os::unix::fs::symlink(&precious, &marker).expect("a link");
        assert!(refusal(&dir).contains(MARKER));
        assert!(marker.is_symlink() && precious.exists());
        fs::remove_file(&marker).expect("removing");
        fs::create_dir(&marker).expect("mkdir");
        assert!(refusal(&dir).contains(MARKER));
        assert!(dir.join(TREE).exists() && marker.exists());
    }

    #[test]
    fn two_runs_do_not_share_a_directory() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let session = DirTarget::new(temp.path()).open().expect("it opens");
        assert!(refusal(temp.path()).contains("in use"));
        session.close().expect("it closes");
    }

    #[test]
    fn the_marker_is_closed_before_its_directory_goes() {
        use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
        let temp = tempfile::tempdir().expect("a temporary directory");
        let new = temp.path().join("new");
        let session = DirTarget::new(&new).open().expect("it opens");
        let seen = init(CreateFlags::NONBLOCK).expect("inotify");
        add_watch(&seen, temp.path(), WatchFlags::DELETE).expect("where the directory is");
        add_watch(&seen, new.join(MARKER), WatchFlags::CLOSE_WRITE).expect("the marker");
        session.close().expect("it closes");
        let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
        let mut events = Reader::new(&seen, &mut buffer);
        let first = events.next().expect("an event").events();
        assert!(first.contains(ReadFlags::CLOSE_WRITE), "NFS has the file until then: {first:?}");
    }

    #[test]
    fn a_new_marker_that_another_run_has_locked_goes() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let (target, path) = (DirTarget::new(temp.path()), temp.path().join(MARKER));
        let marker = fs::File::create(&path).expect("a marker");
        let others = fs::File::open(&path).expect("it is there");
        rustix::fs::flock(&others, FlockOperation::LockExclusive).expect("a lock");
        for is_new in [false, true] {
            assert!(matches!(target.lock(&marker, &path, is_new), Err(Failure::Refused(_))));
            assert_eq!(path.exists(), !is_new);
        }
    }

    #[test]
    fn a_marker_that_is_found_can_be_locked_on_nfs() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        fs::write(temp.path().join(MARKER), MARKER_TEXT).expect("writing");
        let (marker, _) = DirTarget::new(temp.path()).mark(false).expect("it is ours");
        assert!(rustix::fs::fcntl_getfl(&marker).expect("its flags").contains(OFlags::RDWR), "flock(2)");
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
