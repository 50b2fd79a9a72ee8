//! Insertion and removal of a backing's names and inodes in the cache.

use std::sync::{
    OnceLock,
    atomic::{Ordering, fence},
};

use pando_sync::{BlockBox, Counted, Detached, Guard, Node, OpCell, Shared};

use crate::{
    Backing, Error, Feed, FileKind, NodeAttr, Result,
    objects::{
        dentry::{Dentry, Dirent},
        directory::Directory,
        inode::{Body, Inode},
        stored_blocks::StoredBlocks,
        superblock::SuperBlock,
    },
};

/// Inserts an inode into the inode cache. False if the cache has another one of the same number.
pub(crate) fn adopt(sb: &SuperBlock, dentry: &Counted<Dentry>, guard: &Guard) -> bool {
    let adopted = sb.inodes.adopt(dentry, guard);
    if adopted {
        dentry.inode().set_adopted(true);
        // The number is in use again, so a pending forget of the previous inode must not reach the
        // backing. If another thread is sending it just now, that thread holds the inode's lock. No
        // last name can be removed without that lock, so the backing frees nothing.
        sb.forgets.remove(dentry.inode().ino);
    }
    adopted
}

/// The body of an inode that the backing has. Of a directory nothing is cached yet.
pub(crate) fn body_of(sb: &SuperBlock, attr: &NodeAttr) -> Body {
    let blocks = StoredBlocks::default();
    match attr.kind {
        FileKind::File => Body::File(OnceLock::new(), blocks),
        FileKind::Directory => {
            let count = change_count(sb, attr.ino);
            Body::Directory(BlockBox::new(Directory::backed(sb.whole_directories, count, attr.nlink)))
        }
        FileKind::Symlink => Body::Symlink(attr.target.clone(), blocks),
        _ => Body::Special(attr.rdev, blocks),
    }
}

/// Makes one request for `count` names of a directory. Returns the attributes of the names that
/// were found, by their places in the request, and the result of the request as a whole.
pub(crate) fn ask_for_names(
    inode: &Inode,
    count: usize,
    ask: impl FnOnce(&dyn Backing, &mut dyn FnMut(usize, Result<Option<NodeAttr>>)) -> Result<()>,
) -> (Vec<Option<NodeAttr>>, Result<()>) {
    let sb = &inode.shard.sb;
    let mut found = vec![None; count];
    let Some(backing) = sb.ask_backing() else { return (found, Err(Error::NotSupported)) };
    let _lock = sb.lock_directory(inode.ino);
    let asked = ask(backing, &mut |place, answer| {
        if let Some(found) = found.get_mut(place) {
            *found = answer.ok().flatten();
        }
    });
    (found, asked)
}

/// The number of reports after which everything that is cached of a directory must be read again.
pub(crate) fn change_count(sb: &SuperBlock, ino: u64) -> u64 {
    sb.feed.as_ref().map_or(0, |feed| feed.count(ino))
}

/// The number of reports after which an answer about a name of a directory may be too old.
pub(crate) fn report_count(sb: &SuperBlock, ino: u64) -> u64 {
    sb.feed.as_ref().map_or(0, |feed| feed.count_with_names(ino))
}

/// The number of reported changes that others have made in inodes.
pub(crate) fn inode_report_count(sb: &SuperBlock) -> u64 {
    sb.feed.as_ref().map_or(0, Feed::inodes)
}

/// Puts a new inode into the inode cache, as [`adopt`]. Its attributes are those of an answer.
/// `reports` is the number of reports of inodes ([`inode_report_count`]) from before the request.
pub(crate) fn adopt_loaded(sb: &SuperBlock, dentry: &Counted<Dentry>, reports: u64, guard: &Guard) -> bool {
    let adopted = adopt(sb, dentry, guard);
    // Pairs with the fence of a report: either the report finds this inode, or this thread sees
    // that something was reported.
    fence(Ordering::SeqCst);
    if adopted && inode_report_count(sb) != reports {
        dentry.inode().set_reported();
    }
    adopted
}

/// Makes the next walk request again what is cached of a directory.
pub(crate) fn read_again(dir: &Inode) {
    if let Some(feed) = &dir.shard.sb.feed {
        feed.read_again(dir.ino);
    }
}

/// Binds a name to the inode that the backing has given. The caller holds the name lock.
pub(crate) fn bind_loaded(
    dir: &Counted<Dentry>,
    directory: &Directory,
    hash: u64,
    name: &[u8],
    dentry: Counted<Dentry>,
    guard: &Guard,
) -> Result<()> {
    dir.sb().expect_mounted()?;
    let parent_ref = directory.parent_ref(dir.as_shared(), guard)?;
    let dirent = Detached::new(Dirent::new(parent_ref, name, OpCell::new_pending(dentry.clone())));
    drop(dentry.place.replace(Some(dirent.reference())));
    let node = directory.insert(hash, name, dirent, guard).inspect_err(|_| drop(dentry.place.replace(None)))?;
    if directory.life.keep_alive(guard) {
        node.to_ref().value.publish(guard);
        directory.entry_cached(true, guard);
        dentry.sb().links.add(&dentry);
        return Ok(());
    }
    if node.to_ref().value.retract().is_some() {
        directory.remove(node, guard);
        directory.drop_parent_refs();
    }
    Err(Error::NoEntry)
}

/// Drops a name from the cache. The next walk asks the backing again. The caller holds the name
/// lock.
pub(crate) fn unbind(directory: &Directory, dirent: Shared<'_, Node<Dirent>>, guard: &Guard) {
    if let Some(shown) = dirent.to_ref().value.replace(None) {
        shown.sb().links.remove(&shown);
        directory.entry_cached(false, guard);
    }
    directory.remove(dirent, guard);
}

/// Drops a name from the cache, if it is there, because the backing has another answer. The caller
/// holds the name lock.
pub(crate) fn unbind_stale(directory: &Directory, hash: u64, name: &[u8], guard: &Guard) {
    if let Some(dirent) = directory.dirent(hash, name, guard) {
        unbind(directory, dirent, guard);
    }
}
