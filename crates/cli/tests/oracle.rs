//! A mount of a directory on tmpfs, and a real tmpfs, must return the same results, while caches
//! are dropped. `pando_oracle` describes the method and the variables that control it.
#![forbid(unsafe_code)]

mod common;

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::PathBuf,
    process::ExitCode,
};

use pando_oracle::{Mount, run_mounted};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::common::{Mounted, can_mount};

fn main() -> ExitCode {
    if !can_mount() {
        return ExitCode::SUCCESS;
    }
    run_mounted(|style| {
        let temp = tempfile::tempdir().expect("a directory");
        let source = temp.path().join("source");
        fs::create_dir(&source).expect("a new directory");
        let options = c"mode=755,size=0,nr_inodes=0";
        mount("none", &source, "tmpfs", MountFlags::NODEV | MountFlags::NOSUID, options).expect("another tmpfs");
        let timeout = if style.keeps_caches() { "60" } else { "0" };
        let arguments = ["--allow-other", "--exclusive", "--no-read-ahead", "--attr-timeout", timeout];
        let arguments = [&arguments[..], &["--source", source.to_str().expect("text")]].concat();
        let mounted = Mounted::again(temp, &arguments);
        let drop_caches = File::options().write(true).open("/proc/sys/vm/drop_caches").expect("root");
        Dropping { seed: style.seed, mounted, drop_caches }
    })
}

/// Drops the kernel's caches before some operations. The number of the operation decides which.
struct Dropping {
    seed: u64,
    mounted: Mounted,
    drop_caches: File,
}

impl Mount for Dropping {
    fn point(&self) -> PathBuf {
        self.mounted.root()
    }

    fn disturb(&mut self, index: u64) {
        // The kernel then forgets inodes, and the server may evict them.
        if (self.seed + index).is_multiple_of(64) {
            // Not at another position: that would be ignored.
            self.drop_caches.write_all_at(b"2", 0).expect("it was opened for writing");
        }
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        let source = self.mounted.root().with_file_name("source");
        // Otherwise the directory stays.
        let _ = unmount(source, UnmountFlags::DETACH);
    }
}
