//! The operations that can be traced, and the options of a trace.

use std::{fmt, str::FromStr, time::Duration};

macro_rules! ops {
    ($($variant:ident = $name:literal, $doc:literal;)*) => {
        /// An operation that can be traced.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum TraceOp {
            $(#[doc = $doc] $variant,)*
        }

        impl TraceOp {
            /// All operations.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name of the operation, on the command line and in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

ops! {
    Lookup = "lookup", "A walk to a dentry.";
    Open = "open", "Opening an existing file.";
    Create = "create", "Opening with O_CREAT or O_TMPFILE.";
    Mkdir = "mkdir", "Creating a directory.";
    Mknod = "mknod", "Creating a file, fifo, socket or device node.";
    Symlink = "symlink", "Creating a symbolic link.";
    Link = "link", "Creating a hard link.";
    Unlink = "unlink", "Removing a name.";
    Rmdir = "rmdir", "Removing a directory.";
    Rename = "rename", "Renaming or exchanging names.";
    Readlink = "readlink", "Reading a symbolic link.";
    Readdir = "readdir", "Reading a directory, including the time that the caller spends on the entries.";
    Stat = "stat", "Reading attributes.";
    Access = "access", "Checking permission.";
    Setattr = "setattr", "Changing mode, owner, times or size.";
    Statfs = "statfs", "Reading the free space.";
    Getxattr = "getxattr", "Reading an extended attribute.";
    Setxattr = "setxattr", "Setting an extended attribute.";
    Listxattr = "listxattr", "Listing extended attributes.";
    Removexattr = "removexattr", "Removing an extended attribute.";
    Read = "read", "Reading contents.";
    Write = "write", "Writing contents.";
    Truncate = "truncate", "Changing the size.";
    Fallocate = "fallocate", "Allocating or freeing space.";
    Fsync = "fsync", "Making contents durable.";
    Seek = "seek", "Seeking data or a hole.";
    Lock = "lock", "Locking a file or a range of it, including the wait.";
}

impl TraceOp {
    /// The operation with this index in [`TraceOp::ALL`].
    pub(crate) fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }

    pub(crate) fn index(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for TraceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TraceOp {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().copied().find(|op| op.name() == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|op| op.name()).collect();
            format!("no such operation; there are {}", names.join(", "))
        })
    }
}

/// A set of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceOps(u64);

const _: () = assert!(TraceOp::ALL.len() <= 64);

impl TraceOps {
    /// All operations.
    #[must_use]
    pub const fn all() -> Self {
        Self(u64::MAX)
    }

    /// Whether `op` is in the set.
    #[must_use]
    pub const fn contains(self, op: TraceOp) -> bool {
        self.0 & (1 << op as u8) != 0
    }
}

impl FromIterator<TraceOp> for TraceOps {
    fn from_iter<I: IntoIterator<Item = TraceOp>>(ops: I) -> Self {
        Self(ops.into_iter().fold(0, |set, op| set | 1 << op.index()))
    }
}

/// Which operations are traced, and how many records are kept for the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceOptions {
    /// Trace only these operations.
    pub ops: TraceOps,
    /// Trace only operations that fail.
    pub errors_only: bool,
    /// Trace only operations that take at least this long.
    pub min_latency: Duration,
    /// The size of the ring of each traced thread, in bytes. It is rounded up to a power of two,
    /// and is at least 16 KiB and at most 16 MiB. A record takes about 64 bytes.
    pub ring_bytes: usize,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self { ops: TraceOps::all(), errors_only: false, min_latency: Duration::ZERO, ring_bytes: 256 << 10 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_indexes_round_trip() {
        for (index, &op) in TraceOp::ALL.iter().enumerate() {
            assert_eq!(op.name().parse(), Ok(op));
            assert_eq!(TraceOp::from_index(index as u8), Some(op));
            let alone: TraceOps = [op].into_iter().collect();
            assert!(TraceOp::ALL.iter().all(|&other| alone.contains(other) == (other == op)));
        }
        assert!("swim".parse::<TraceOp>().is_err_and(|says| says.contains("unlink")));
    }
}
