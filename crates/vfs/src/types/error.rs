//! The errors of file-system operations. Inside they are a type; at the edge they become an errno.

use std::io::{self, ErrorKind};

/// The result of a file-system operation.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $errno:literal, $text:literal;)*) => {
        /// Why an operation failed. Each variant is one errno of Linux ([`Error::errno`]).
        ///
        /// A [`std::io::Error`] is made of it by `?`, and an `Error` of a [`std::io::Error`].
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

            /// The error of an errno. An errno that no file system returns becomes [`Error::Io`].
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
    Deadlock = 35, "resource deadlock avoided (EDEADLK)";
    NameTooLong = 36, "file name too long (ENAMETOOLONG)";
    NoLocks = 37, "no locks available (ENOLCK)";
    NotImplemented = 38, "function not implemented (ENOSYS)";
    NotEmpty = 39, "directory not empty (ENOTEMPTY)";
    Loop = 40, "too many levels of symbolic links (ELOOP)";
    NoData = 61, "no such attribute (ENODATA)";
    Overflow = 75, "value too large (EOVERFLOW)";
    InvalidUtf8 = 84, "the contents are not UTF-8 (EILSEQ)";
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

impl Error {
    /// The kind that [`std::io::Error`] has for this error: the kind of its errno, and
    /// [`ErrorKind::InvalidData`] for [`Error::InvalidUtf8`].
    #[must_use]
    pub fn kind(self) -> ErrorKind {
        match self {
            Self::InvalidUtf8 => ErrorKind::InvalidData,
            _ => io::Error::from_raw_os_error(self.errno()).kind(),
        }
    }
}

/// The errno is kept ([`io::Error::raw_os_error`]), but for [`Error::InvalidUtf8`]: the kind of
/// that errno would be lost.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidUtf8 => Self::new(ErrorKind::InvalidData, error),
            _ => Self::from_raw_os_error(error.errno()),
        }
    }
}

/// By the errno if there is one, by the [`Error`] inside if it was made of one, and otherwise by
/// the kind. A kind that stands for no errno becomes [`Error::Io`].
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        let inside = error.get_ref().and_then(|inside| inside.downcast_ref::<Self>());
        if let Some(known) = error.raw_os_error().map(Self::from_errno).or(inside.copied()) {
            return known;
        }
        match error.kind() {
            ErrorKind::NotFound => Self::NoEntry,
            ErrorKind::PermissionDenied => Self::Access,
            ErrorKind::AlreadyExists => Self::Exists,
            ErrorKind::NotADirectory => Self::NotDirectory,
            ErrorKind::IsADirectory => Self::IsDirectory,
            ErrorKind::DirectoryNotEmpty => Self::NotEmpty,
            ErrorKind::InvalidInput => Self::Invalid,
            ErrorKind::InvalidFilename => Self::NameTooLong,
            ErrorKind::ArgumentListTooLong => Self::ArgListTooLong,
            ErrorKind::ExecutableFileBusy => Self::TextBusy,
            ErrorKind::NotSeekable => Self::IllegalSeek,
            ErrorKind::InvalidData => Self::InvalidUtf8,
            ErrorKind::StorageFull | ErrorKind::WriteZero => Self::NoSpace,
            ErrorKind::QuotaExceeded => Self::Quota,
            ErrorKind::FileTooLarge => Self::TooBig,
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            ErrorKind::CrossesDevices => Self::CrossDevice,
            ErrorKind::TooManyLinks => Self::TooManyLinks,
            ErrorKind::ResourceBusy => Self::Busy,
            ErrorKind::Interrupted => Self::Interrupted,
            ErrorKind::Deadlock => Self::Deadlock,
            ErrorKind::WouldBlock => Self::TryAgain,
            ErrorKind::Unsupported => Self::NotSupported,
            ErrorKind::OutOfMemory => Self::NoMemory,
            ErrorKind::StaleNetworkFileHandle => Self::Stale,
            _ => Self::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_survives_the_conversion_to_an_io_error_and_back() {
        for errno in 0..200 {
            let error = Error::from_errno(errno);
            assert!(error == Error::Io || error.errno() == errno);
            let io_error = io::Error::from(error);
            assert_eq!(io_error.kind(), error.kind());
            assert_eq!(Error::from(io_error), error);
            // The kind alone is enough, where there is one.
            let by_kind = Error::from(io::Error::from(error.kind()));
            assert!(by_kind.kind() == error.kind() || by_kind == Error::Io, "{error:?}: {by_kind:?}");
        }
        let text = io::Error::from(Error::InvalidUtf8);
        assert_eq!((text.kind(), text.raw_os_error()), (ErrorKind::InvalidData, None));
        assert_eq!(Error::NotEmpty.to_string(), "directory not empty (ENOTEMPTY)");
    }
}
