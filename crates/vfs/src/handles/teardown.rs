//! The shutdown of a tree. Analogous to `generic_shutdown_super()`.

use std::sync::{
    PoisonError,
    atomic::{Ordering, fence},
};

use pando_sync::{Counted, pin};

use crate::{DentryRef, objects::dentry::Dentry};

/// Takes a tree apart, so that no reference within it keeps it alive. It empties every directory
/// entry and releases the parent references of every directory. It uses a list instead of
/// recursion, because a tree may be deeper than a stack. Analogous to `shrink_dcache_for_umount()`.
pub(crate) fn take_apart(root: &DentryRef) {
    end_reports(root);
    let _alone = root.0.sb().evicting.write().unwrap_or_else(PoisonError::into_inner);
    // If other threads may be using the tree, the caller has closed it already.
    drop(root.0.sb().shards.swap(None));
    let mut todo: Vec<Counted<Dentry>> = vec![root.0.clone()];
    if root.0.sb().driver.backing().is_some() {
        // A directory that others have moved or removed may be unreachable from the root, and still
        // hold the names that were cached in it.
        let guard = pin();
        let known: Vec<_> = root.0.sb().inodes.all().into_iter().chain(root.0.sb().links.take()).collect();
        let mut parents: Vec<_> = known.iter().filter_map(|known| known.to_parent(&guard)).collect();
        // Each parent once: to find out that a large directory is empty, all of its buckets must be
        // read.
        parents.sort_unstable_by_key(|parent| std::ptr::from_ref::<Dentry>(parent));
        parents.dedup_by(|one, other| one.ptr_eq(other));
        todo.extend(known.into_iter().filter(|known| known.is_dir()));
        todo.append(&mut parents);
    }
    while let Some(dentry) = todo.pop() {
        let Ok(directory) = dentry.directory() else { continue };
        let mut position = 0;
        loop {
            // In batches, each under its own guard, so that reclamation need not wait for the whole
            // tree.
            let guard = pin();
            let mut count = 0;
            for dirent in directory.dirents_after(position, &guard).take(1024) {
                count += 1;
                position = dirent.to_ref().position();
                // Another thread may be moving it, so the value may be empty.
                if let Some(child) = dirent.to_ref().value.take() {
                    child.open_counts.collapse();
                    if child.is_dir() {
                        todo.push(child);
                    }
                }
                directory.remove(dirent, &guard);
            }
            if count == 0 {
                break;
            }
        }
        directory.drop_parent_refs();
    }
    // Pairs with the fence in `note_number`.
    fence(Ordering::SeqCst);
    root.0.sb().nodes.forget_all();
    root.0.sb().inodes.clear();
    root.0.sb().send_forgets();
    if let Some(feed) = &root.0.sb().feed {
        feed.end();
    }
}

/// From now on, reports of changes by others do not reach the cache.
fn end_reports(root: &DentryRef) {
    let sb = root.0.sb();
    if let Some(feed) = &sb.feed {
        feed.disconnect();
        drop(sb.reported_root.swap(None));
    }
}

/// Shuts a tree down: closes it to additions, stores the times that only the cache has, and takes
/// it apart. Errors of the backing are lost; a caller that needs them calls `sync` before.
pub(crate) fn shut_down(root: &DentryRef) {
    end_reports(root);
    root.0.sb().close();
    let background = &root.0.sb().background;
    background.close();
    background.wait();
    // Pairs with the fence in the drop of `File`.
    fence(Ordering::SeqCst);
    let _taken_down = Defer(|| take_apart(root));
    // The times of files that are written to from here on are stored when the files are closed.
    let _ = root.0.sb().store_times(root);
}

/// Runs a function when it is dropped, also if a backing has panicked before.
pub(crate) struct Defer<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for Defer<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
