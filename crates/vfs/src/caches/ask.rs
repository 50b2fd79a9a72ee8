//! Trees with a backing. The cache asks the backing about names and attributes that it does not
//! have, and can evict inodes that are not in use.
//!
//! * *A miss* asks the backing without a guard, and mostly without a lock. Threads that want the
//!   same name share one request (`load`). The walk that missed then starts over and hits. If there
//!   is no such name, a *negative dentry* is cached in a separate table of the directory.
//! * *A change* goes to the backing first, under the locks of its names and without a guard. When
//!   the backing has acknowledged it, it is applied to the cache.
//! * *Changes by others* are reported by the backing to a [`Feed`](crate::Feed). A reported name is
//!   dropped, and a reported inode is marked, so that it is requested again when it is used next
//!   (`reported`). Reports of whole directories are counted. Each walk through a directory compares
//!   the count. If it has changed, everything cached of the directory is requested again
//!   (`refresh`).
//! * *Eviction* takes the name lock, stores the attributes that only the cache has (times), and
//!   freezes the dentry if only the cache's own references are left. No thread can get a reference
//!   to a frozen dentry. Then it is removed (`evict`).

use std::{sync::atomic::Ordering, time::Instant};

use pando_concurrency::CALL_WAITED;
use pando_sync::{Counted, pin};

use crate::{
    Error, Result, Stat,
    caches::{
        binding::change_count,
        evict::bound_parent,
        load::load,
        read_ahead::Wanted,
        refresh::{refresh, refresh_if_outdated, refresh_inode},
    },
    objects::{backed_dir::BackedDir, dentry::Dentry, stat::stat_of, superblock::Namespace},
};

/// A request to the backing, made by a walk that cannot go on without the answer.
pub(crate) enum Ask {
    /// The inode that a name is bound to.
    Name(Counted<Dentry>, Box<[u8]>),
    /// The changes in a directory up to a change count.
    Changes(Counted<Dentry>, u64),
    /// The attributes of an inode that others have changed, or an operation of this tree.
    Attributes(Counted<Dentry>),
}

impl Ask {
    /// Calls the backing and puts the answer into the cache. The caller holds no guard and no lock.
    pub(crate) fn answer(self, namespace: &Namespace) -> Result<()> {
        match self {
            // Other threads with the same request wait for this answer and share it (P7).
            Self::Name(dir, name) => {
                let (sb, request) = (dir.sb(), (dir.inode().ino, name));
                // Before and not after: the walk must find what is loaded.
                dir.inode().shard.sb.make_room(1);
                sb.requests.run(&request, || {
                    let (_waiting, began) = ((!is_read_ahead(&dir)).then(|| sb.foreground.enter()), Instant::now());
                    sb.counts.misses.add(1);
                    let loaded = load(namespace, &dir, &request.1);
                    if began.elapsed() >= CALL_WAITED {
                        Wanted::Inodes.waited(&dir);
                    }
                    loaded
                })
            }
            Self::Changes(dir, count) => {
                let (sb, request) = (dir.sb(), (dir.inode().ino, Box::default()));
                sb.requests.run(&request, || {
                    let _waiting = sb.foreground.enter();
                    refresh(namespace, &dir, count)
                })
            }
            Self::Attributes(dentry) => refresh_if_outdated(dentry.inode()),
        }
    }
}

/// Requests the extended attributes of an inode, which was found by this dentry, for an operation
/// that reads them. The caller holds no guard and no lock.
pub(crate) fn ask_for_xattrs(dentry: &Counted<Dentry>) -> Result<()> {
    let (inode, sb) = (dentry.inode(), &dentry.inode().shard.sb);
    sb.make_room(1);
    if inode.has_xattrs() {
        // A read-ahead has loaded them meanwhile.
        return Ok(());
    }
    let backing = sb.ask_backing().ok_or(Error::NotSupported)?;
    let dir = bound_parent(dentry);
    let is_read_ahead = dir.as_ref().is_some_and(is_read_ahead);
    let (_waiting, began) = ((!is_read_ahead).then(|| sb.foreground.enter()), Instant::now());
    drop(inode.request_xattrs(backing)?);
    if let Some(dir) = dir.filter(|_| began.elapsed() >= CALL_WAITED) {
        Wanted::Xattrs.waited(&dir);
    }
    Ok(())
}

/// Whether threads read ahead in a directory. They do not make way for operations that wait for
/// something in it, since that is what they load.
fn is_read_ahead(dir: &Counted<Dentry>) -> bool {
    dir.inode().backed_dir().is_some_and(BackedDir::is_read_ahead)
}

/// Requests what is cached of an inode again if others have changed it: for an inode that was not
/// reached by a walk. The caller holds no guard and no lock.
pub(crate) fn revalidate(dentry: &Counted<Dentry>) -> Result<()> {
    let (inode, sb) = (dentry.inode(), dentry.sb());
    if !inode.is_backed() {
        return Ok(());
    }
    // A change of an inode is reported for the directories of its names.
    for dir in [bound_parent(dentry), dentry.is_dir().then(|| dentry.clone())].into_iter().flatten() {
        if let Some(count) = unseen_reports(&dir) {
            Ask::Changes(dir, count).answer(&sb.namespace)?;
        }
    }
    // If the inode has no name, or the cache has dropped it, there is no such directory.
    if !dentry.is_dir() && bound_parent(dentry).is_none() {
        refresh_inode(inode)?;
    }
    refresh_if_outdated(inode)
}

/// The attributes of an inode, for a caller that does not ask for changes by others.
/// The backing is asked if an operation of this tree has made it stamp times. If it does not
/// answer, what is cached is shown. The caller holds no guard and no lock.
pub(crate) fn stat_settled(dentry: &Dentry) -> Stat {
    let inode = dentry.inode();
    // A stat has no way to fail here. What the operation itself has changed is cached in any case.
    let _ = refresh_if_outdated(inode);
    stat_of(inode, &pin())
}

/// The number of reports that concern a directory of a backed tree, unless all of them were seen.
pub(crate) fn unseen_reports(dir: &Dentry) -> Option<u64> {
    let inode = dir.inode();
    let (backed, count) = (inode.backed_dir()?, change_count(&inode.shard.sb, inode.ino));
    (backed.checked.load(Ordering::Acquire) != count).then_some(count)
}
