//! What can be traced.

use std::{fmt, str::FromStr, time::Duration};

macro_rules! ops {
    ($($variant:ident = $name:literal, $doc:literal;)*) => {
        /// An operation that is traced.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum TraceOp {
            $(#[doc = $doc] $variant,)*
        }

        impl TraceOp {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name, as on the command line and in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

ops! {
    Lookup = "lookup", "A walk to a dentry.";
    Open = "open", "Opening what is there.";
    Create = "create", "Opening with O_CREAT or O_TMPFILE.";
    Mkdir = "mkdir", "Making a directory.";
    Mknod = "mknod", "Making a file, pipe, socket or device node.";
    Symlink = "symlink", "Making a symbolic link.";
    Link = "link", "Making a further name.";
    Unlink = "unlink", "Removing a name.";
    Rmdir = "rmdir", "Removing a directory.";
    Rename = "rename", "Moving or exchanging names.";
    Readlink = "readlink", "Reading a symbolic link.";
    Readdir = "readdir", "Reading a directory; what the caller does with the entries included.";
    Stat = "stat", "Reading attributes.";
    Access = "access", "Asking for permission.";
    Setattr = "setattr", "Changing mode, owner, times or size.";
    Statfs = "statfs", "Asking for space.";
    Getxattr = "getxattr", "Reading an extended attribute.";
    Setxattr = "setxattr", "Setting an extended attribute.";
    Listxattr = "listxattr", "Listing extended attributes.";
    Removexattr = "removexattr", "Removing an extended attribute.";
    Read = "read", "Reading contents.";
    Write = "write", "Writing contents.";
    Truncate = "truncate", "Changing the size.";
    Fallocate = "fallocate", "Allocating or freeing space.";
    Fsync = "fsync", "Making contents durable.";
    Seek = "seek", "Looking for data or a hole.";
}

impl TraceOp {
    /// From its place in [`TraceOp::ALL`].
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

    /// Whether `op` is one of them.
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

/// What is traced, and how much of it is kept for the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceOptions {
    /// Only these operations.
    pub ops: TraceOps,
    /// Only those that fail.
    pub errors_only: bool,
    /// Only those that take at least so long.
    pub min_latency: Duration,
    /// How many bytes of facts wait for the reader, for each thread that does something. Rounded up to a power of two; at
    /// least 16 KiB, at most 16 MiB. A fact is some 64 bytes.
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
    fn names_come_back() {
        for (index, &op) in TraceOp::ALL.iter().enumerate() {
            assert_eq!(op.name().parse(), Ok(op));
            assert_eq!(TraceOp::from_index(index as u8), Some(op));
            let alone: TraceOps = [op].into_iter().collect();
            assert!(TraceOp::ALL.iter().all(|&other| alone.contains(other) == (other == op)));
        }
        assert!("swim".parse::<TraceOp>().is_err_and(|says| says.contains("unlink")));
    }
}
