//! Filters for the paths in a trace.

use globset::{GlobBuilder, GlobMatcher};

/// A set of paths: one path and all paths below it, or all paths that match a pattern.
#[derive(Debug, Clone)]
pub struct PathFilter(Kind);

#[derive(Debug, Clone)]
enum Kind {
    /// A path without a slash at its end.
    Below(Vec<u8>),
    Pattern(GlobMatcher),
}

impl PathFilter {
    /// Parses a path such as `/a/b`, which selects it and all paths below it, or a pattern. `*` and
    /// `?` match within a name, `**` matches across names, `[...]` and `{a,b}` are as in a shell.
    /// Paths begin at the root of the tree, with a slash.
    ///
    /// # Errors
    /// A message about the pattern.
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

    /// Whether the set contains `path`.
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
