//! The namespace tests over a store.

use pando_kvfs::{KvFs, StoreOptions};
use pando_vfs::{Backing, Charge, Driver, FileData, Result, StatFs};
use tempfile::TempDir;

#[path = "../../vfs/tests/scenarios/mod.rs"]
mod scenarios;

const TRAITS: scenarios::Traits = scenarios::Traits { dir_size: false, unique_numbers: false, handles: true };

/// A store in a directory that goes with it.
struct Temporary {
    store: KvFs,
    _dir: TempDir,
}

fn driver(inodes: Option<u64>) -> impl Driver {
    // In memory, where a file may have any size.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
    let options = StoreOptions::new();
    let options = inodes.map_or(options, |inodes| options.inodes(inodes));
    Temporary { store: KvFs::open(dir.path(), options).expect("a new store"), _dir: dir }
}

impl Driver for Temporary {
    fn statfs(&self) -> Result<StatFs> {
        self.store.statfs()
    }
    fn charge(&self, what: Charge) -> Result<()> {
        self.store.charge(what)
    }
    fn release(&self, what: Charge) {
        self.store.release(what);
    }
    fn data(&self, ino: u64) -> Box<dyn FileData> {
        self.store.data(ino)
    }
    fn sync(&self) -> Result<()> {
        self.store.sync()
    }
    fn backing(&self) -> Option<&dyn Backing> {
        self.store.backing()
    }
}
