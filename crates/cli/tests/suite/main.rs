//! What POSIX and the man pages of Linux say about file systems, operation by operation: the
//! errors, which times change, which permission is needed, and the limits of names and paths.
//!
//! The suite runs on trees of pandofs, on a tmpfs and in the build directory. To run it on another
//! file system:
//!
//! ```text
//! PANDO_SUITE_DIR=/mnt/x cargo test -p pandofs --test suite
//! ```
//!
//! Cases with several users are skipped if the caller is not root. The expectations are those of
//! Linux 6.18. The file system must be mounted without `noexec` and `nosuid`.

mod access;
mod chmod;
mod chown;
#[path = "../common/mod.rs"]
mod common;
mod copy_range;
mod fallocate;
mod inode_flags;
mod link;
mod mkdir;
mod mknod;
mod open;
mod paths;
mod place;
mod read_write;
mod readdir;
mod rename;
mod rmdir;
mod symlink;
mod truncate;
mod unlink;
mod utimens;
mod xattr;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use common::{KernelMount, Mounted, can_mount, is_root};
use place::{Case, Place, STRANGER};

/// The operations, with their cases.
const OPERATIONS: &[(&str, &[Case])] = &[
    ("access", access::CASES),
    ("chmod", chmod::CASES),
    ("chown", chown::CASES),
    ("copy_range", copy_range::CASES),
    ("fallocate", fallocate::CASES),
    ("inode_flags", inode_flags::CASES),
    ("link", link::CASES),
    ("mkdir", mkdir::CASES),
    ("mknod", mknod::CASES),
    ("open", open::CASES),
    ("paths", paths::CASES),
    ("read_write", read_write::CASES),
    ("readdir", readdir::CASES),
    ("rename", rename::CASES),
    ("rmdir", rmdir::CASES),
    ("symlink", symlink::CASES),
    ("truncate", truncate::CASES),
    ("unlink", unlink::CASES),
    ("utimens", utimens::CASES),
    ("xattr", xattr::CASES),
];

/// Where the suite runs if the caller names a directory. Its file system may lack anonymous files
/// (O_TMPFILE).
const DIR: &str = "PANDO_SUITE_DIR";

/// Runs all cases, each in a new directory below `dir`.
///
/// # Panics
/// If cases fail. The message has their names.
fn run(dir: &Path) {
    let (root, mut failed, mut passed) = (is_root(), Vec::new(), 0);
    if root && STRANGER.does(|| dir.join(".").metadata()).is_err() {
        panic!("{}: all users must be allowed to search the directory, and those above it", dir.display());
    }
    for (operation, cases) in OPERATIONS {
        for case in *cases {
            if case.needs_root && !root {
                continue;
            }
            let place = Place::new(dir);
            match catch_unwind(AssertUnwindSafe(|| (case.run)(&place))) {
                Ok(()) => passed += 1,
                Err(_) => failed.push(format!("{operation}: {}", case.name)),
            }
        }
    }
    assert!(failed.is_empty(), "{passed} cases pass; these fail:\n{}", failed.join("\n"));
}

#[test]
fn on_tmpfs() {
    if is_root() {
        run(KernelMount::tmpfs(c"").path());
    }
}

/// As a rule, this directory is on the machine's disk.
#[test]
fn on_the_host() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    run(dir.path());
}

/// Runs all cases on a tree of pandofs. If the caller is root, other users may access it.
fn run_on_mount(options: &[&str], has_flags: bool) {
    let for_all: &[&str] = if is_root() { &["-o", "allow_other"] } else { &[] };
    let mounted = Mounted::new(&[options, for_all].concat());
    assert_eq!(inode_flags::are_there(&mounted.root()), has_flags);
    run(&mounted.root());
}

#[test]
fn on_a_tree_in_memory() {
    if can_mount() {
        run_on_mount(&[], true);
    }
}

#[test]
fn on_a_tree_in_a_store() {
    if can_mount() {
        let store = tempfile::tempdir().unwrap();
        run_on_mount(&["--store", store.path().to_str().unwrap()], true);
    }
}

#[test]
fn on_a_directory_of_the_host() {
    if can_mount() {
        let source = tempfile::tempdir().unwrap();
        run_on_mount(&["--source", source.path().to_str().unwrap()], false);
    }
}

#[test]
fn where_the_environment_says() {
    if let Some(dir) = std::env::var_os(DIR) {
        run(Path::new(&dir));
    }
}
