//! Trees with a backing. The cache asks the backing about names and attributes that it does not
//! have, and can evict inodes that are not in use.
//!
//! * *A miss* asks the backing without a guard, and mostly without a lock. Threads that want the
//!   same name share one request (`load`). The walk that missed then starts over and hits. If there
//!   is no such name, a *negative dentry* is cached in a separate table of the directory.
//! * *A change* goes to the backing first, under the locks of its names and without a guard. When
//!   the backing has acknowledged it, it is applied to the cache.
//! * *Changes by others* show in the backing's change count of a directory, which each walk through
//!   the directory compares. If the count has changed, everything cached of the directory is
//!   requested again (`refresh`).
//! * *Eviction* takes the name lock, stores the attributes that only the cache has (times), and
//!   freezes the dentry if only the cache's own references are left. No thread can get a reference
//!   to a frozen dentry. Then it is removed (`evict`).

use pando_sync::Counted;

use crate::{
    Result,
    caches::{load::load, refresh::refresh},
    objects::{dentry::Dentry, superblock::Namespace},
};

/// A request to the backing, made by a walk that cannot go on without the answer.
pub(crate) enum Ask {
    /// The inode that a name is bound to.
    Name(Counted<Dentry>, Box<[u8]>),
    /// The changes in a directory up to a change count.
    Changes(Counted<Dentry>, u64),
}

impl Ask {
    /// Calls the backing and puts the answer into the cache. The caller holds no guard and no lock.
    pub(crate) fn answer(self, namespace: &Namespace) -> Result<()> {
        match self {
            // Other threads with the same request wait for this answer and share it (P7).
            Self::Name(dir, name) => {
                let (sb, request) = (dir.sb(), (dir.inode().ino, name));
                sb.requests.run(&request, || load(namespace, &dir, &request.1))
            }
            Self::Changes(dir, count) => {
                let (sb, request) = (dir.sb(), (dir.inode().ino, Box::default()));
                sb.requests.run(&request, || refresh(namespace, &dir, count))
            }
        }
    }
}
