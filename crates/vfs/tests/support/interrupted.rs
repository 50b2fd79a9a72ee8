//! A tree in which something happens in the midst of an operation, for tests that have `watched` beside this.

use std::sync::{Arc, Mutex};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::Driver;

use crate::watched::{Used, Watched};

pub type Interruption = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// A tree in memory that does something once, in the midst of the operation that asks for its backing next.
pub fn interrupted() -> (impl Driver, Arc<Interruption>) {
    interrupted_at(Used::Backing)
}

/// The same, of the operation that next comes to it for that.
pub fn interrupted_at(wanted: Used) -> (impl Driver, Arc<Interruption>) {
    let interruption = Arc::<Interruption>::default();
    let next = interruption.clone();
    let interrupt = move |used| {
        let due = if used == wanted { next.lock().expect("no panic").take() } else { None };
        due.into_iter().for_each(|interrupt| interrupt());
    };
    (Watched(MemFs::new(MemOptions::default()), interrupt), interruption)
}
