//! Paths through a descriptor: `/proc/self/fd/N` and paths below it. They lead to the directory
//! that the caller has opened, even if its own path now leads elsewhere.

use std::{
    borrow::Cow,
    path::{Component, Path},
};

const DESCRIPTORS: &str = "/proc/self/fd";

/// The present path of the same file, for a helper process, which does not have our descriptors. A
/// path that leads through no descriptor is returned unchanged.
pub(crate) fn path_for_others(path: &Path) -> Cow<'_, Path> {
    let held = path.strip_prefix(DESCRIPTORS).ok().and_then(|rest| {
        let mut rest = rest.components();
        let Some(Component::Normal(number)) = rest.next() else { return None };
        let dir = std::fs::read_link(Path::new(DESCRIPTORS).join(number)).ok()?;
        // Joining an empty path would add a slash.
        let rest = rest.as_path();
        Some(if rest.as_os_str().is_empty() { dir } else { dir.join(rest) })
    });
    held.map_or(Cow::Borrowed(path), Cow::Owned)
}

#[cfg(test)]
mod tests;
