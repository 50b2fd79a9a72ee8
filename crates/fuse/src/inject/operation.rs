//! The kinds of request, by name: what is counted, delayed and made to fail.

use std::fmt;

use crate::wire::abi::Opcode;

macro_rules! operations {
    ($($name:ident = $text:literal: $($opcode:ident)*,)*) => {
        /// A kind of request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // Each has the name of a request of the FUSE protocol.
        #[repr(u8)]
        pub enum Operation {
            $($name,)*
        }

        impl Operation {
            /// All of them, indexed by their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name, in lower case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The kind that a request is counted as; none if it is not counted.
            pub(super) const fn of(opcode: Opcode) -> Option<Self> {
                match opcode {
                    $($(Opcode::$opcode => Some(Self::$name),)*)*
                    Opcode::Init | Opcode::Destroy | Opcode::Interrupt => None,
                }
            }
        }
    };
}

operations! {
    Lookup = "lookup": Lookup,
    Forget = "forget": Forget BatchForget,
    Getattr = "getattr": Getattr Statx,
    Setattr = "setattr": Setattr,
    Readlink = "readlink": Readlink,
    Symlink = "symlink": Symlink,
    Mknod = "mknod": Mknod,
    Mkdir = "mkdir": Mkdir,
    Unlink = "unlink": Unlink,
    Rmdir = "rmdir": Rmdir,
    Rename = "rename": Rename Rename2,
    Link = "link": Link,
    Open = "open": Open Opendir,
    Create = "create": Create,
    Tmpfile = "tmpfile": Tmpfile,
    Read = "read": Read,
    Write = "write": Write,
    Statfs = "statfs": Statfs,
    Release = "release": Release Releasedir,
    Fsync = "fsync": Fsync Fsyncdir,
    Readdir = "readdir": Readdir,
    Readdirplus = "readdirplus": Readdirplus,
    Setxattr = "setxattr": Setxattr,
    Getxattr = "getxattr": Getxattr,
    Listxattr = "listxattr": Listxattr,
    Removexattr = "removexattr": Removexattr,
    Fallocate = "fallocate": Fallocate,
    Lseek = "lseek": Lseek,
    Copy = "copy": CopyFileRange,
    Ioctl = "ioctl": Ioctl,
}

impl Operation {
    /// The operations that can be delayed or made to fail: those that read, and write. A reply with
    /// attributes also costs a getattr. Such replies are a look-up that finds an entry, and each
    /// entry of a READDIRPLUS, which costs a readdir and a lookup as well. The ioctl that reads
    /// many entries costs what READDIRPLUS, listxattr and getxattr cost for the same. It is not
    /// served where requests fail.
    pub const INJECTABLE: &[Self] = &[
        Self::Lookup,
        Self::Getattr,
        Self::Readlink,
        Self::Open,
        Self::Readdir,
        Self::Read,
        Self::Write,
        Self::Getxattr,
        Self::Listxattr,
    ];

    /// The operation with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|operation| operation.name() == name)
    }

    /// The operation whose delay and faults apply: directories are read in one way only.
    pub(super) fn delayed_as(self) -> Self {
        if matches!(self, Self::Readdirplus | Self::Ioctl) { Self::Readdir } else { self }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
