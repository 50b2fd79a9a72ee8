//! Paths, made before the clock starts, in the form that each target needs.

use std::ffi::CStr;

/// A path below a target's root, kept as `/a/b` and a NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreePath(String);

impl TreePath {
    /// From a path relative to the root, such as `a/b`.
    ///
    /// # Panics
    /// If it begins with a slash, is empty or holds a NUL. All paths are made in this crate; none
    /// comes from the user.
    pub(crate) fn new(relative: &str) -> Self {
        assert!(!relative.is_empty() && !relative.starts_with('/') && !relative.contains('\0'));
        let mut text = String::with_capacity(relative.len() + 2);
        text.push('/');
        text.push_str(relative);
        text.push('\0');
        Self(text)
    }

    /// `/a/b`.
    #[cfg(any(test, feature = "peers"))]
    pub(crate) fn absolute(&self) -> &str {
        &self.0[..self.0.len() - 1]
    }

    /// `a/b`.
    pub(crate) fn relative(&self) -> &str {
        &self.0[1..self.0.len() - 1]
    }

    /// `a/b` for a system call.
    pub(crate) fn relative_c(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.0.as_bytes()[1..]).expect("one NUL, at the end")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_has_three_forms() {
        let path = TreePath::new("a/b");
        assert_eq!(path.absolute(), "/a/b");
        assert_eq!(path.relative(), "a/b");
        assert_eq!(path.relative_c(), c"a/b");
    }
}
