//! Files of which the kernel may have pages that the tree has not got yet.
//!
//! A shared mapping is written to without a request, and the kernel asks where data and holes are without writing such
//! pages back first. Nobody says what is mapped, but only what is open for reading and writing can be mapped so, and a
//! mapping keeps its handle: that is released after the last page was written back.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use pando_vfs::File;

/// So many opens of different files at once hardly ever meet.
const STRIPES: usize = 64;

/// How many handles, by inode number, are open for reading and writing.
pub(super) struct Mappable([Mutex<HashMap<u64, u64>>; STRIPES]);

impl Mappable {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }

    /// Counts a handle that is opened; before anybody else hears of it.
    pub(super) fn opened(&self, file: &File) {
        if may_map(file) {
            let ino = file.dentry().ino();
            *self.stripe(ino).entry(ino).or_default() += 1;
        }
    }

    /// Takes the count of a handle back.
    pub(super) fn closed(&self, file: &File) {
        if may_map(file) {
            let ino = file.dentry().ino();
            let mut stripe = self.stripe(ino);
            if let Some(count) = stripe.get_mut(&ino) {
                *count -= 1;
                if *count == 0 {
                    stripe.remove(&ino);
                }
            }
        }
    }

    /// Whether somebody may have mapped the inode of this file, and written to it.
    pub(super) fn has(&self, file: &File) -> bool {
        let ino = file.dentry().ino();
        self.stripe(ino).contains_key(&ino)
    }

    fn stripe(&self, ino: u64) -> MutexGuard<'_, HashMap<u64, u64>> {
        // Nothing that can panic half way runs under the lock.
        self.0[ino as usize % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn may_map(file: &File) -> bool {
    file.flags().reads() && file.flags().writes()
}
