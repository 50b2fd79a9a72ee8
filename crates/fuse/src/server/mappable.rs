//! Files of which the kernel may have dirty pages.
//!
//! A program writes to a shared mapping without a request, and the kernel asks for data and holes
//! without writing such pages back first. No request says what is mapped. But only a file that is
//! open for reading and writing can be mapped this way, and a mapping keeps its handle: the kernel
//! releases it after it has written the last page back.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use pando_vfs::File;

/// With this many locks, opens of different files at the same time rarely contend.
const STRIPES: usize = 64;

/// The number of handles that are open for reading and writing, by inode number.
pub(super) struct Mappable([Mutex<HashMap<u64, u64>>; STRIPES]);

impl Mappable {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }

    /// Counts a new handle, before any other thread can use it.
    pub(super) fn opened(&self, file: &File) {
        if may_map(file) {
            let ino = file.dentry().ino();
            *self.stripe(ino).entry(ino).or_default() += 1;
        }
    }

    /// Removes the count of a handle.
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

    /// Whether a program may have written to a mapping of this file's inode.
    pub(super) fn has(&self, file: &File) -> bool {
        let ino = file.dentry().ino();
        self.stripe(ino).contains_key(&ino)
    }

    fn stripe(&self, ino: u64) -> MutexGuard<'_, HashMap<u64, u64>> {
        // No code that can panic halfway runs under the lock.
        self.0[ino as usize % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn may_map(file: &File) -> bool {
    file.flags().reads() && file.flags().writes()
}
