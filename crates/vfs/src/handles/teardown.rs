//! A tree is taken apart.

use std::sync::{
    PoisonError,
    atomic::{Ordering, fence},
};

use pando_sync::{Counted, pin};

use crate::{DentryRef, objects::dentry::Dentry};

/// Takes a tree apart, so that no reference within it keeps it alive: every slot is emptied, every directory lets go of
/// itself. Goes by a list, not by recursion: a tree may be deeper than a stack.
pub(crate) fn take_down(root: &DentryRef) {
    let _alone = root.0.sb().evicting.write().unwrap_or_else(PoisonError::into_inner);
    // Where others may be at work, it is closed already.
    drop(root.0.sb().shards.swap(None));
    let mut todo: Vec<Counted<Dentry>> = vec![root.0.clone()];
    if root.0.sb().driver.backing().is_some() {
        // Directories that others have moved or removed may lead nowhere, and still hold what was cached of them.
        let guard = pin();
        let known: Vec<_> = root.0.sb().inodes.all().into_iter().chain(root.0.sb().links.take()).collect();
        let mut parents: Vec<_> = known.iter().filter_map(|known| known.to_parent(&guard)).collect();
        // Each once: to see that a large directory is empty takes a look at all of its buckets.
        parents.sort_unstable_by_key(|parent| std::ptr::from_ref::<Dentry>(parent));
        parents.dedup_by(|one, other| one.ptr_eq(other));
        todo.extend(known.into_iter().filter(|known| known.is_dir()));
        todo.append(&mut parents);
    }
    while let Some(dentry) = todo.pop() {
        let Ok(directory) = dentry.directory() else { continue };
        let mut position = 0;
        loop {
            // In batches, each under a guard of its own: garbage must not wait for the whole tree.
            let guard = pin();
            let mut count = 0;
            for slot in directory.slots_after(position, &guard).take(1024) {
                count += 1;
                position = slot.to_ref().position();
                // Somebody may be moving it.
                if let Some(child) = slot.to_ref().value.take() {
                    child.proxies.collapse();
                    if child.is_dir() {
                        todo.push(child);
                    }
                }
                directory.remove(slot, &guard);
            }
            if count == 0 {
                break;
            }
        }
        directory.detach();
    }
    // As `Exports::remember` has it.
    fence(Ordering::SeqCst);
    root.0.sb().nodes.forget_all();
    root.0.sb().inodes.clear();
    root.0.sb().drain_forgotten();
}

/// Nothing comes into a tree any more, and it is taken apart. Errors of its backing go nowhere: whoever wants to hear of
/// them calls `sync` before.
pub(crate) fn close_down(root: &DentryRef) {
    root.0.sb().close();
    // As the drop of `File` has it.
    fence(Ordering::SeqCst);
    let _taken_down = AtEnd(|| take_down(root));
    // Files that are written to from here on are stored when they are closed.
    let _ = root.0.sb().store_times(root);
}

/// What is done in the end, also if a backing panics before.
pub(crate) struct AtEnd<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
