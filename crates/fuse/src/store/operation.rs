//! The kinds of request, by name: what is counted, delayed and made to fail.

use std::fmt;

macro_rules! operations {
    ($($name:ident = $text:literal,)*) => {
        /// A kind of request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // Each is named as the request of the FUSE protocol that it stands for.
        #[repr(u8)]
        pub enum Operation {
            $($name,)*
        }

        impl Operation {
            /// All of them; each one's place is its number.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name, in lower case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

operations! {
    Lookup = "lookup",
    Forget = "forget",
    Getattr = "getattr",
    Setattr = "setattr",
    Readlink = "readlink",
    Symlink = "symlink",
    Mknod = "mknod",
    Mkdir = "mkdir",
    Unlink = "unlink",
    Rmdir = "rmdir",
    Rename = "rename",
    Link = "link",
    Open = "open",
    Create = "create",
    Tmpfile = "tmpfile",
    Read = "read",
    Write = "write",
    Statfs = "statfs",
    Release = "release",
    Fsync = "fsync",
    Readdir = "readdir",
    Readdirplus = "readdirplus",
    Setxattr = "setxattr",
    Getxattr = "getxattr",
    Listxattr = "listxattr",
    Removexattr = "removexattr",
    Fallocate = "fallocate",
    Lseek = "lseek",
}

impl Operation {
    /// Those that a slow store can delay or fail: what is asked of it when somebody looks or reads, and write.
    /// What is answered with attributes costs a getattr as well: a look-up that finds something, and each entry of a
    /// READDIRPLUS, which costs a readdir and a lookup besides.
    pub const OF_THE_STORE: &[Self] = &[
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

    /// The operation of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|operation| operation.name() == name)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Operation;

    #[test]
    fn each_has_its_number_and_its_name() {
        for (number, &operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(operation as usize, number);
            assert_eq!(Operation::named(operation.name()), Some(operation));
        }
        assert_eq!(Operation::named("swim"), None);
    }
}
