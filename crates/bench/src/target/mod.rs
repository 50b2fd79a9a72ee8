//! Whom the work is done to.

mod dir;
#[cfg(feature = "peers")]
mod maps;
mod mem;
#[cfg(feature = "peers")]
mod peers;

use std::{io, path::PathBuf, str::FromStr};

use self::{dir::DirTarget, mem::MemTarget};
use crate::{failure::Failure, path::TreePath};

/// A file system, or what stands in for one.
pub(crate) trait Target {
    /// Makes an empty tree, used for one workload.
    ///
    /// # Errors
    /// That it cannot be had, and what to do about it.
    fn open(&self) -> Result<Box<dyn Session>, Failure>;

    /// Whether its memory is the kernel's and not this process's.
    fn is_in_kernel(&self) -> bool {
        false
    }
}

/// An empty tree, to be filled. Dropping it removes what was made.
pub(crate) trait Session: Sync {
    /// One thread's access; made on the thread that uses it.
    ///
    /// # Errors
    /// What the system answers.
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>>;

    /// Removes what was made, and says so if that fails.
    ///
    /// # Errors
    /// What could not be removed.
    fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(())
    }
}

/// What a thread can do to a target. New workloads add their operations here.
pub(crate) trait Actor {
    /// Makes a directory in one that is there.
    ///
    /// # Errors
    /// What the target answers.
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()>;

    /// Makes a file that is not there, and closes it.
    ///
    /// # Errors
    /// What the target answers.
    fn create(&mut self, path: &TreePath) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the target answers.
    fn unlink(&mut self, path: &TreePath) -> io::Result<()>;

    /// Looks up a file and reads its attributes.
    ///
    /// # Errors
    /// What the target answers.
    fn stat(&mut self, path: &TreePath) -> io::Result<()>;
}

/// The names of targets on the command line.
pub(crate) const TARGETS: &str = "Targets:
  mem          pandofs in process: the library over its in-memory driver
  dir=PATH     system calls in PATH: an empty directory, or a new one (removed afterwards)
  peer:vfs     the MemoryFS of the crate `vfs`, in process
  peer:rsfs    the in-memory file system of the crate `rsfs`, in process
  map:papaya   no file system, the keys alone in a bare concurrent map: the limit
  map:scc      the same with another map
peer: and map: need the cargo feature `peers`.";

/// A target as named on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetSpec {
    kind: Kind,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Mem,
    Dir(PathBuf),
    #[cfg(feature = "peers")]
    Vfs,
    #[cfg(feature = "peers")]
    Rsfs,
    #[cfg(feature = "peers")]
    Papaya,
    #[cfg(feature = "peers")]
    Scc,
}

impl FromStr for TargetSpec {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let kind = match name {
            "mem" => Kind::Mem,
            #[cfg(feature = "peers")]
            "peer:vfs" => Kind::Vfs,
            #[cfg(feature = "peers")]
            "peer:rsfs" => Kind::Rsfs,
            #[cfg(feature = "peers")]
            "map:papaya" => Kind::Papaya,
            #[cfg(feature = "peers")]
            "map:scc" => Kind::Scc,
            #[cfg(not(feature = "peers"))]
            "peer:vfs" | "peer:rsfs" | "map:papaya" | "map:scc" => {
                return Err("this program was built without the cargo feature `peers`".into());
            }
            _ => match name.strip_prefix("dir=") {
                Some("") => return Err("dir= needs a path".into()),
                Some(path) => Kind::Dir(path.into()),
                None => return Err(format!("no such target\n\n{TARGETS}")),
            },
        };
        Ok(Self { kind, name: name.into() })
    }
}

impl TargetSpec {
    /// As named on the command line.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn target(&self) -> Box<dyn Target> {
        match &self.kind {
            Kind::Mem => Box::new(MemTarget),
            Kind::Dir(path) => Box::new(DirTarget::new(path)),
            #[cfg(feature = "peers")]
            Kind::Vfs => Box::new(peers::VfsTarget),
            #[cfg(feature = "peers")]
            Kind::Rsfs => Box::new(peers::RsfsTarget),
            #[cfg(feature = "peers")]
            Kind::Papaya => Box::new(maps::PapayaTarget),
            #[cfg(feature = "peers")]
            Kind::Scc => Box::new(maps::SccTarget),
        }
    }
}

/// A target that does nothing: what is measured with it is the loop.
pub(crate) struct Nothing;

impl Target for Nothing {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(Nothing))
    }
}

impl Session for Nothing {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        Ok(Box::new(Nothing))
    }
}

impl Actor for Nothing {
    fn mkdir(&mut self, path: &TreePath) -> io::Result<()> {
        look_at(path)
    }
    fn create(&mut self, path: &TreePath) -> io::Result<()> {
        look_at(path)
    }
    fn unlink(&mut self, path: &TreePath) -> io::Result<()> {
        look_at(path)
    }
    fn stat(&mut self, path: &TreePath) -> io::Result<()> {
        look_at(path)
    }
}

/// Reads the path: fetching it from memory is the loop's cost, not the target's.
fn look_at(path: &TreePath) -> io::Result<()> {
    std::hint::black_box(path.relative().as_bytes()[0]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert!("dir=/x".parse::<TargetSpec>().is_ok_and(|spec| spec.name() == "dir=/x"));
        assert!("dir=".parse::<TargetSpec>().is_err());
        let error = "tmpfs".parse::<TargetSpec>().expect_err("no such target");
        assert!(error.contains("dir=PATH"), "{error}");
        assert_eq!("map:scc".parse::<TargetSpec>().is_ok(), cfg!(feature = "peers"));
    }

    /// What each in-process target must agree on, for the workloads to mean the same.
    fn behaves(target: &dyn Target) {
        let session = target.open().expect("it opens");
        let mut actor = session.actor().expect("an actor");
        let [dir, file] = ["d", "d/f"].map(TreePath::new);
        actor.mkdir(&dir).expect("mkdir");
        assert!(actor.stat(&file).is_err());
        actor.create(&file).expect("create");
        actor.stat(&file).expect("stat");
        actor.unlink(&file).expect("unlink");
        assert!(actor.stat(&file).is_err());
        assert!(actor.unlink(&file).is_err());
        actor.create(&file).expect("create it again");
        drop(actor);
        session.close().expect("it closes");
    }

    #[test]
    fn a_directory_behaves() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        behaves(&DirTarget::new(temp.path()));
        assert_eq!(std::fs::read_dir(temp.path()).expect("it stays").count(), 0);
    }

    #[test]
    fn memory_behaves() {
        behaves(&MemTarget);
    }

    #[cfg(feature = "peers")]
    #[test]
    fn peers_behave() {
        for name in ["peer:vfs", "peer:rsfs", "map:papaya", "map:scc"] {
            behaves(&*name.parse::<TargetSpec>().expect("a name").target());
        }
    }
}
