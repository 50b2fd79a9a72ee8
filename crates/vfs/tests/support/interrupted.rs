//! A tree that runs a function in the middle of an operation. Tests that use it also include
//! `watched`.

use std::sync::{Arc, Mutex};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::Driver;

use crate::watched::{Used, Watched};

pub type Interruption = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// A tree in memory that runs a function once, inside the next operation that asks for its backing.
pub fn interrupted() -> (impl Driver, Arc<Interruption>) {
    interrupted_at(Used::Backing)
}

/// The same, inside the next operation that calls the driver for `wanted`.
pub fn interrupted_at(wanted: Used) -> (impl Driver, Arc<Interruption>) {
    let interruption = Arc::<Interruption>::default();
    let next = interruption.clone();
    let interrupt = move |used| {
        let due = if used == wanted { next.lock().expect("no panic").take() } else { None };
        due.into_iter().for_each(|interrupt| interrupt());
    };
    (Watched(MemFs::new(MemOptions::default()), interrupt), interruption)
}
