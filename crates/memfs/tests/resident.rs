//! Memory of removed files is returned to the system. The test has a process of its own, since it
//! checks the resident memory.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::fs::Fs;

/// Resident memory in bytes, for pages of 4096 bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc is there");
    let pages = statm.split(' ').nth(1).expect("the second number");
    pages.parse::<usize>().expect("a number") * 4096
}

#[test]
fn emptied_tree_returns_memory_to_the_system() {
    const FILES: usize = 3000;
    const BYTES: usize = 20_000;
    /// The memory that the general allocator does not return.
    const KEPT: usize = 16 << 20;
    let fs = Fs::new(MemFs::new(MemOptions::default())).expect("a tree");
    let before = resident();
    for n in 0..FILES {
        fs.create_dir(format!("/dir{n}")).expect("mkdir");
        fs.write(format!("/dir{n}/file"), [7; BYTES]).expect("write");
    }
    let full = resident();
    assert!(full >= before + FILES * BYTES, "{before}, then {full}");
    for n in 0..FILES {
        fs.remove_file(format!("/dir{n}/file")).expect("unlink");
        fs.remove_dir(format!("/dir{n}")).expect("rmdir");
    }
    let statfs = fs.vfs().statfs(fs.context(), pando_vfs::At::Cwd, "/").expect("statfs");
    assert_eq!(statfs.files - statfs.ffree, 1, "the root");
    pando_vfs::release_free_memory();
    let emptied = resident();
    assert!(emptied <= before + KEPT, "{before}, then {full}, and still {emptied}");
}
