//! The namespace tests over a backed tree.

use pando_mapfs::{MapFs, MapOptions};
use pando_vfs::Driver;

#[path = "../../vfs/tests/scenarios/mod.rs"]
mod scenarios;

const TRAITS: scenarios::Traits = scenarios::Traits { dir_size: false, unique_numbers: false, handles: false };

fn driver(inodes: Option<u64>) -> impl Driver {
    MapFs::new(MapOptions { inodes, ..MapOptions::default() })
}
