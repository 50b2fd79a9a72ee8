use std::os::fd::AsRawFd;

use super::*;

#[test]
fn only_paths_through_a_descriptor_change() {
    let dir = std::fs::File::open("/proc/sys").expect("it is there");
    let held = Path::new(DESCRIPTORS).join(dir.as_raw_fd().to_string());
    assert_eq!(*path_for_others(&held), *Path::new("/proc/sys"));
    assert!(!path_for_others(&held).as_os_str().to_string_lossy().ends_with('/'));
    assert_eq!(*path_for_others(&held.join("a/b")), *Path::new("/proc/sys/a/b"));
    for path in ["/proc/self/fd", "/proc/self/fd/none", "/mnt/grove", "grove", "/proc/self/cwd"] {
        assert_eq!(*path_for_others(Path::new(path)), *Path::new(path));
    }
}
