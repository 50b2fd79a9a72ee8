//! Which paths are wanted.

use globset::{GlobBuilder, GlobMatcher};

/// A set of paths: one and all below it, or those that a pattern fits.
#[derive(Debug, Clone)]
pub struct PathFilter(Kind);

#[derive(Debug, Clone)]
enum Kind {
    /// Without a slash at its end.
    Below(Vec<u8>),
    Pattern(GlobMatcher),
}

impl PathFilter {
    /// From `/a/b`, which means it and what is below, or a pattern: `*` and `?` stay within a name, `**` crosses names,
    /// `[...]` and `{a,b}` are as in a shell. Paths begin at the root of the tree, with a slash.
    ///
    /// # Errors
    /// What is wrong with a pattern.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with(['/', '*', '{']) {
            return Err(format!("a path within the tree begins with a slash: /{text}"));
        }
        if !text.contains(['*', '?', '[', '{', '\\']) {
            return Ok(Self(Kind::Below(text.trim_end_matches('/').into())));
        }
        let glob = GlobBuilder::new(text).literal_separator(true).build().map_err(|error| error.to_string())?;
        Ok(Self(Kind::Pattern(glob.compile_matcher())))
    }

    /// Whether a path is one of them.
    #[must_use]
    pub fn wants(&self, path: &[u8]) -> bool {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
        match &self.0 {
            Kind::Below(above) => path.strip_prefix(&above[..]).is_some_and(|rest| matches!(rest, [] | [b'/', ..])),
            Kind::Pattern(pattern) => pattern.is_match(OsStr::from_bytes(path)),
        }
    }
}

#[cfg(test)]
mod tests;
