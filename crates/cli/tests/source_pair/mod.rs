//! A mount of a directory of the host, and that directory.
#![allow(dead_code)] // Each test binary uses its part.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

use crate::common::{Mounted, can_mount, skipped};

/// A mount, and the directory that it shows.
pub struct Pair {
    pub mounted: Mounted,
    pub source: TempDir,
}

impl Pair {
    /// None if this machine allows no mounts.
    pub fn new(options: &[&str]) -> Option<Self> {
        can_mount().then(|| Self::of(tempfile::tempdir().unwrap(), options))
    }

    /// Mounts an existing directory.
    pub fn of(source: TempDir, options: &[&str]) -> Self {
        let path = source.path().to_str().unwrap();
        let mounted = Mounted::new(&[&["--source", path], options].concat());
        Self { mounted, source }
    }

    /// The path of a name in the source.
    pub fn host(&self, name: &str) -> PathBuf {
        self.source.path().join(name)
    }
}

/// Whether this process is in the user namespace of the machine, which has all users. If not, says
/// that `what` needs it.
pub fn has_all_users(what: &str) -> bool {
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let has_all = users.split_whitespace().nth(2) == Some("4294967295");
    if !has_all {
        skipped(&format!("{what} needs root of the machine"));
    }
    has_all
}
