//! Parsing of target names.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use super::{
    Target, backed::BackedTarget, before::BeforeTarget, dir::DirTarget, host::HostTarget, mem::MemTarget,
    mount::MountTarget, store::StoreTarget, traced::TracedTarget,
};
#[cfg(feature = "peers")]
use super::{maps, peers};

/// The names of targets on the command line.
pub(crate) const TARGETS: &str = "Targets:
  mem          pandofs in process: the library over its in-memory driver
  mem:before   mem with the locks that old kernels took around each operation:
               a mutex per directory, a lock for each reference count, the
               rename lock for rendering a path, and others
  mem:traced   mem while a reader traces it, as `pando trace` does
  backed       pandofs in process over a driver that keeps its tree elsewhere
               (maps behind one lock), with at most 4096 cached inodes
  backed:before  backed with the old locks, among them the inode hash lock;
               for statwalk
  mount        pandofs mounted: system calls, through FUSE, on a tree in memory
  host=PATH    pandofs in process over the directory PATH, with at most 4096
               cached inodes; PATH as for dir=
  host:before=PATH
               the same with the old locks; for statwalk
  store=PATH   pandofs in process over a store in the directory PATH, with at
               most 4096 cached inodes; PATH as for dir=
  dir=PATH     system calls in PATH: an empty directory of your own, or a new
               one (removed at the end)
  peer:vfs     the MemoryFS of the crate `vfs`, in process
  peer:rsfs    the in-memory file system of the crate `rsfs`, in process
  map:papaya   no file system, only the keys in a concurrent map: the limit
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
    Mount,
    Dir(PathBuf),
    Host(PathBuf),
    HostBefore(PathBuf),
    Store(PathBuf),
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
            "mount" => Kind::Mount,
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
            _ => match name.split_once('=') {
                Some(("dir" | "host" | "host:before" | "store", "")) => return Err(format!("{name} needs a path")),
                Some(("dir", path)) => Kind::Dir(path.into()),
                Some(("host", path)) => Kind::Host(path.into()),
                Some(("host:before", path)) => Kind::HostBefore(path.into()),
                Some(("store", path)) => Kind::Store(path.into()),
                _ => return Err(format!("no such target\n\n{TARGETS}")),
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

    /// The path, if this is a directory of the kernel.
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
            Kind::Mount => Box::new(MountTarget),
            Kind::Dir(path) => Box::new(DirTarget::new(path)),
            Kind::Host(path) => Box::new(HostTarget::new(path)),
            Kind::HostBefore(path) => Box::new(BeforeTarget { inner: Box::new(HostTarget::new(path)), misses: true }),
            Kind::Store(path) => Box::new(StoreTarget::new(path)),
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
