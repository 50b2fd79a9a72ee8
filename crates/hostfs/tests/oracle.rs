//! A directory on tmpfs as a tree, and a real tmpfs, must return the same results, while unused
//! inodes are evicted. `pando_oracle` describes the method and the variables that control it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use pando_hostfs::{HostFs, HostOptions, Recheck};
use pando_oracle::{FaultInjector, Subject, TreeKind, run};
use pando_vfs::{Error, Vfs, VfsOptions};

#[path = "../../vfs/tests/support/splitmix.rs"]
mod splitmix;

fn main() -> ExitCode {
    run(TreeKind::Host, |style| {
        let dir = pando_oracle::tmpfs().expect("another tmpfs");
        // So few that inodes are often opened again, by their handles or by the path from the root.
        let options = HostOptions::new().recheck(Recheck::Never).descriptors(16);
        let options = if style.seed % 4 < 2 { options } else { options.without_handles() };
        let driver = HostFs::of(dir, options).expect("a directory that can be opened");
        // A caller that does not own the directory cannot read it without stamping an access, so a
        // read-ahead that a slow listing starts would stamp it at a moment of its own.
        let vfs = Vfs::with_options(driver, VfsOptions::new().read_ahead(false)).expect("a tree");
        Subject { vfs, injector: Some(Box::new(Evicting { seed: style.seed })) }
    })
}

/// Evicts before some operations. The seed and the number of the operation decide which.
struct Evicting {
    seed: u64,
}

impl FaultInjector for Evicting {
    fn arm(&mut self, vfs: &Vfs, index: u64) {
        let draw = splitmix::next(&mut (self.seed << 32 | index));
        match draw % 8 {
            0 => drop(vfs.evict(usize::MAX).expect("the host does not fail")),
            1 | 2 => drop(vfs.evict(1 + (draw >> 8) as usize % 16).expect("the host does not fail")),
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
