//! The memory driver and a real tmpfs must return the same results. `pando_oracle` describes the
//! method and the variables that control it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use pando_memfs::{MemFs, MemOptions};
use pando_oracle::{Subject, TreeKind, run};
use pando_vfs::Vfs;

fn main() -> ExitCode {
    run(TreeKind::Memory, |style| {
        let driver = MemFs::new(
            MemOptions::new()
                .size_bytes(style.limits.map(|limits| limits.bytes))
                .inodes(style.limits.map(|limits| limits.inodes)),
        );
        Subject { vfs: Vfs::new(driver).expect("a tree in memory"), injector: None }
    })
}
