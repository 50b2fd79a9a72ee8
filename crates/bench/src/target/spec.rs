//! Targets as they are named on the command line.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use super::{Target, backed::BackedTarget, before::BeforeTarget, dir::DirTarget, mem::MemTarget, traced::TracedTarget};
#[cfg(feature = "peers")]
use super::{maps, peers};

/// The names of targets on the command line.
pub(crate) const TARGETS: &str = "Targets:
  mem          pandofs in process: the library over its in-memory driver
  mem:before   the same operations under the locks that old kernels took: a
               mutex per directory, a lock around each reference count, the
               rename lock for rendering a path ...
  mem:traced   mem with somebody watching, as `pando trace` does
  backed       the same over a driver whose tree is elsewhere (maps behind one
               lock), with at most 4096 inodes in its cache
  backed:before  that under the old locks, that of the inode hash among them;
               for statwalk
  dir=PATH     system calls in PATH: an empty directory of one's own, or a new
               one (removed afterwards)
  peer:vfs     the MemoryFS of the crate `vfs`, in process
  peer:rsfs    the in-memory file system of the crate `rsfs`, in process
  map:papaya   no file system but the keys in a bare concurrent map: the limit
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
    MemBefore,
    MemTraced,
    Backed,
    BackedBefore,
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
            "mem:before" => Kind::MemBefore,
            "mem:traced" => Kind::MemTraced,
            "backed" => Kind::Backed,
            "backed:before" => Kind::BackedBefore,
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

    /// The directory of the kernel's, if it is one.
    pub(crate) fn dir(&self) -> Option<&Path> {
        if let Kind::Dir(path) = &self.kind { Some(path) } else { None }
    }

    pub(crate) fn target(&self) -> Box<dyn Target> {
        match &self.kind {
            Kind::Mem => Box::new(MemTarget),
            Kind::MemBefore => Box::new(BeforeTarget { inner: Box::new(MemTarget), misses: false }),
            Kind::MemTraced => Box::new(TracedTarget),
            Kind::Backed => Box::new(BackedTarget),
            Kind::BackedBefore => Box::new(BeforeTarget { inner: Box::new(BackedTarget), misses: true }),
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
