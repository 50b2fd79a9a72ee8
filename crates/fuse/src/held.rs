//! Paths through a descriptor, `/proc/self/fd/N` and what is in there: they lead to what the caller has looked at, whatever
//! its own path has come to mean since.

use std::{
    borrow::Cow,
    path::{Component, Path},
};

const DESCRIPTORS: &str = "/proc/self/fd";

/// The path of the same for a helper, who does not have our descriptors: as it is now. Other paths are as they are.
pub fn for_others(path: &Path) -> Cow<'_, Path> {
    let held = path.strip_prefix(DESCRIPTORS).ok().and_then(|rest| {
        let mut rest = rest.components();
        let Some(Component::Normal(number)) = rest.next() else { return None };
        let dir = std::fs::read_link(Path::new(DESCRIPTORS).join(number)).ok()?;
        // Joining nothing would add a slash.
        let rest = rest.as_path();
        Some(if rest.as_os_str().is_empty() { dir } else { dir.join(rest) })
    });
    held.map_or(Cow::Borrowed(path), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn only_paths_through_a_descriptor_change() {
        let dir = std::fs::File::open("/proc/sys").expect("it is there");
        let held = Path::new(DESCRIPTORS).join(dir.as_raw_fd().to_string());
        assert_eq!(*for_others(&held), *Path::new("/proc/sys"));
        assert!(!for_others(&held).as_os_str().to_string_lossy().ends_with('/'));
        assert_eq!(*for_others(&held.join("a/b")), *Path::new("/proc/sys/a/b"));
        for path in ["/proc/self/fd", "/proc/self/fd/none", "/mnt/grove", "grove", "/proc/self/cwd"] {
            assert_eq!(*for_others(Path::new(path)), *Path::new(path));
        }
    }
}
