//! What can go wrong, as a type; an errno only at the edge.

/// The result of a file-system operation.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $errno:literal, $text:literal;)*) => {
        /// Why an operation failed. Each variant stands for one errno of Linux ([`Error::errno`]).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Error {
            $(#[doc = $text] $(#[$doc])* $name,)*
        }

        impl Error {
            /// The errno of Linux (the generic numbers, as on x86-64 and aarch64).
            #[must_use]
            pub const fn errno(self) -> i32 {
                match self { $(Self::$name => $errno,)* }
            }

            /// The error for an errno; one that no file system answers becomes [`Error::Io`].
            #[must_use]
            pub const fn from_errno(errno: i32) -> Self {
                match errno { $($errno => Self::$name,)* _ => Self::Io }
            }

            const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

errors! {
    NotPermitted = 1, "operation not permitted (EPERM)";
    NoEntry = 2, "no such file or directory (ENOENT)";
    Interrupted = 4, "interrupted (EINTR)";
    Io = 5, "input/output error (EIO)";
    NoDeviceAddress = 6, "no such device or address (ENXIO)";
    ArgListTooLong = 7, "the list is too long (E2BIG)";
    BadHandle = 9, "bad file descriptor (EBADF)";
    TryAgain = 11, "try again (EAGAIN)";
    NoMemory = 12, "out of memory (ENOMEM)";
    Access = 13, "permission denied (EACCES)";
    Busy = 16, "device or resource busy (EBUSY)";
    Exists = 17, "file exists (EEXIST)";
    CrossDevice = 18, "cross-device link (EXDEV)";
    NoDevice = 19, "no such device (ENODEV)";
    NotDirectory = 20, "not a directory (ENOTDIR)";
    IsDirectory = 21, "is a directory (EISDIR)";
    Invalid = 22, "invalid argument (EINVAL)";
    NotTty = 25, "inappropriate ioctl for device (ENOTTY)";
    TextBusy = 26, "text file busy (ETXTBSY)";
    TooBig = 27, "file too large (EFBIG)";
    NoSpace = 28, "no space left (ENOSPC)";
    IllegalSeek = 29, "illegal seek (ESPIPE)";
    ReadOnly = 30, "read-only file system (EROFS)";
    TooManyLinks = 31, "too many links (EMLINK)";
    Range = 34, "result too large for the buffer (ERANGE)";
    NameTooLong = 36, "file name too long (ENAMETOOLONG)";
    NotImplemented = 38, "function not implemented (ENOSYS)";
    NotEmpty = 39, "directory not empty (ENOTEMPTY)";
    Loop = 40, "too many levels of symbolic links (ELOOP)";
    NoData = 61, "no such attribute (ENODATA)";
    Overflow = 75, "value too large (EOVERFLOW)";
    NotSupported = 95, "operation not supported (EOPNOTSUPP)";
    Stale = 116, "stale file handle (ESTALE)";
    Quota = 122, "disk quota exceeded (EDQUOT)";
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        Self::from_raw_os_error(error.errno())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errnos_come_back() {
        for errno in 0..200 {
            let error = Error::from_errno(errno);
            assert!(error == Error::Io || error.errno() == errno);
        }
        assert_eq!(Error::NotEmpty.to_string(), "directory not empty (ENOTEMPTY)");
    }
}
