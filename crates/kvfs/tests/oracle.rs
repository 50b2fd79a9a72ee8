//! A store and a real tmpfs must return the same results, while unused inodes are evicted and
//! changes are committed. `pando_oracle` describes the method and the variables that control it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use pando_kvfs::{KvFs, StoreOptions};
use pando_oracle::{FaultInjector, Subject, TreeKind, run};
use pando_vfs::{Error, Vfs};
use tempfile::TempDir;

#[path = "../../vfs/tests/support/splitmix.rs"]
mod splitmix;

fn main() -> ExitCode {
    run(TreeKind::Backed, |style| {
        // In memory, where a file may be as large as on tmpfs.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let store = KvFs::open(dir.path(), StoreOptions::new()).expect("a new store");
        let vfs = Vfs::new(store).expect("a tree");
        Subject { vfs, injector: Some(Box::new(Evicting { seed: style.seed, _dir: dir })) }
    })
}

/// Evicts or commits before some operations. The seed and the number of the operation decide which.
struct Evicting {
    seed: u64,
    _dir: TempDir,
}

impl FaultInjector for Evicting {
    fn arm(&mut self, vfs: &Vfs, index: u64) {
        let draw = splitmix::next(&mut (self.seed << 32 | index));
        match draw % 16 {
            0 => drop(vfs.evict(usize::MAX).expect("the store does not fail")),
            1 | 2 => drop(vfs.evict(1 + (draw >> 8) as usize % 16).expect("the store does not fail")),
            3 => vfs.sync().expect("the store does not fail"),
            _ => {}
        }
    }

    fn injects(&self) -> bool {
        false
    }

    fn disarm(&mut self) -> Option<Error> {
        None
    }
}
