//! Taking names into the cache of a tree that is kept elsewhere: one that somebody wants, or many that a scan has found.
//!
//! Difficulties, and what answers each:
//! 1. *Many want the same name.* One asks, and the others wait and share the answer, the error too (`pando_sync::SingleFlight`).
//! 2. *The backing may be slow, and a stripe is shared with other names.* It is asked with nothing locked; then the name is
//!    locked, and the answer counts unless something has happened meanwhile ([`Version`]).
//! 3. *Something happens all the time.* The second question is asked with the name locked, and with the inode that the
//!    first answer was about: neither can change then.
//! 4. *Somebody else changes the tree.* The backing's change count is compared before and after.

use std::sync::Arc;

use pando_sync::{BlockBox, Counted, Guard, pin};

use crate::{
    Charge, Error, NodeAttr, Result,
    caches::{
        binding::{adopt, bind_loaded, change_count, unbind_stale},
        evict::take_out,
        refresh::{move_here, refresh_inode},
    },
    objects::{
        dentry::Dentry,
        directory::Directory,
        inode::{Body, Inode},
        stat::attr_of,
        superblock::{NameSpace, SuperBlock},
    },
};

/// A name that the cache does not know. The caller is the only one who asks for it now.
pub(crate) fn load(name_space: &NameSpace, dir: &Counted<Dentry>, name: &[u8]) -> Result<()> {
    dir.sb().drain_forgotten();
    let mut how = How::Unlocked;
    loop {
        match try_load(name_space, dir, name, how)? {
            Loaded::Done => return Ok(()),
            Loaded::Again(next) => {
                how = next;
                std::thread::yield_now();
            }
            Loaded::Elsewhere(moved) => move_here(name_space, dir, name, &moved)?,
            Loaded::Refresh(dentry) => return refresh_inode(name_space, dentry.inode()),
        }
    }
}

/// How the backing is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// With nothing locked. The answer counts if nothing has happened meanwhile that could make it an old one.
    Unlocked,
    /// With the name locked, and the inode of this number, which the last answer was about. Such an answer counts.
    Locked(Option<u64>),
}

/// How a load ended that failed at nothing.
enum Loaded {
    /// The cache knows the name now, or that there is none.
    Done,
    /// Something changed meanwhile: ask again, and how.
    Again(How),
    /// It is a directory that the cache has in another place.
    Elsewhere(Counted<Dentry>),
    /// The inode was known, and the backing knows more of it.
    Refresh(Counted<Dentry>),
}

fn try_load(name_space: &NameSpace, dir: &Counted<Dentry>, name: &[u8], how: How) -> Result<Loaded> {
    let inode = dir.inode();
    let sb = &inode.shard.sb;
    let backing = sb.ask_backing().ok_or(Error::NotSupported)?;
    let hash = sb.hash(inode.ino, name);
    let lock = |ino: Option<u64>| {
        let key = sb.key(inode.ino, hash);
        name_space.names.lock(&[key, ino.map_or(key, |ino| sb.inode_key(ino))])
    };
    let mut locks = if let How::Locked(ino) = how { Some(lock(ino)) } else { None };
    // Somebody else has asked meanwhile, or has made it.
    let is_known = |guard: &Guard| -> Result<bool> {
        let directory = inode.directory()?;
        let known = directory.slot(hash, name, guard).is_some();
        Ok(known || directory.is_known_absent(hash, name, guard))
    };
    if is_known(&pin())? {
        return Ok(Loaded::Done);
    }
    let before = Version::of(inode)?;
    let answer = backing.lookup(inode.ino, name)?;
    if locks.is_none() {
        locks = Some(lock(None));
    }
    let guard = pin();
    let found = answer.as_ref().map(|attr| attr.ino);
    // What an inode was like is known to hold while its lock is held, or as long as nothing was evicted.
    let evictions = if how == How::Locked(found) { None } else { Some(before.evictions) };
    if how == How::Unlocked {
        if is_known(&guard)? {
            return Ok(Loaded::Done);
        }
        if !Version::of(inode)?.same_names(before) {
            return Ok(Loaded::Again(How::Locked(found)));
        }
    }
    let directory = inode.directory()?;
    let backed = directory.backed.as_ref().ok_or(Error::NotSupported)?;
    let result = match answer {
        None => {
            backed.note_absent(hash, name, &guard);
            Loaded::Done
        }
        Some(attr) => match dentry_for(sb, &attr, evictions, &guard)? {
            None => return Ok(Loaded::Again(How::Locked(found))),
            Some(Found::Elsewhere(dentry)) => return Ok(Loaded::Elsewhere(dentry)),
            Some(Found::New(dentry)) => {
                bind_loaded(dir, directory, hash, name, dentry, &guard)?;
                Loaded::Done
            }
            Some(Found::Link(dentry)) => {
                let known = attr_of(dentry.inode(), &guard);
                bind_loaded(dir, directory, hash, name, dentry.clone(), &guard)?;
                if known == attr { Loaded::Done } else { Loaded::Refresh(dentry) }
            }
        },
    };
    // A refresh that looked at the cache before this was in it did not see it: what is older than the count goes.
    if change_count(sb, inode.ino) != before.others {
        backed.note_present(hash, name, &guard);
        unbind_stale(directory, hash, name, &guard);
        return Ok(Loaded::Again(How::Unlocked));
    }
    drop(locks);
    Ok(result)
}

/// What a loaded name is bound to.
enum Found {
    /// The first dentry of an inode that was not known, or of one with further names than this: then a link to it.
    New(Counted<Dentry>),
    /// A further link of an inode that was known.
    Link(Counted<Dentry>),
    /// A directory that was known: it has one place only.
    Elsewhere(Counted<Dentry>),
}

/// A dentry for a name of the inode that `attr` describes. None: the number's old inode is on its way out, and whoever
/// evicts it must come to it; or what `attr` says may be older than what the cache knew before an eviction.
///
/// `evictions`: how many there were before `attr` was asked for; none if the inode's lock has been held since then.
fn dentry_for(sb: &Arc<SuperBlock>, attr: &NodeAttr, evictions: Option<u64>, guard: &Guard) -> Result<Option<Found>> {
    sb.expect_open()?;
    let found = |known: Counted<Dentry>| {
        Some(if known.is_dir() {
            Found::Elsewhere(known)
        } else {
            Found::Link(Dentry::new_link(known, sb.links.next_id()))
        })
    };
    if let Some(known) = sb.inodes.get(attr.ino, guard) {
        return Ok(found(known));
    }
    // It seemed to have lost its last name, since others had made one that was not known here; and somebody outside still
    // counts it. (A directory has one name: that is gone for good.)
    if let Some(known) = sb.nodes.get(attr.ino, guard).filter(|known| !known.is_dir())
        && adopt(sb, &known, guard)
    {
        return Ok(found(known));
    }
    let shard = sb.shard(guard)?;
    sb.driver.charge(Charge::Inode)?;
    let dentry = Counted::new(Dentry::new(Inode::loaded(shard, attr, body_of(sb, attr))));
    // Concurrent loads by two names: one inode wins, and both use it (P7).
    if !adopt(sb, &dentry, guard) {
        return Ok(sb.inodes.get(attr.ino, guard).and_then(found));
    }
    // Looked at when it is in: if nothing was evicted until now, no other inode of this number was in and has gone. Else it
    // goes again, unless somebody has found it already: then it stays the one, and the next answer refreshes it.
    if evictions.is_some_and(|evictions| evictions != sb.inodes.evictions()) {
        if let Some(condemned) = sb.inodes.condemn(&dentry, 1, guard) {
            take_out(sb, dentry.inode(), condemned, guard);
        }
        return Ok(None);
    }
    let single = attr.nlink <= 1 || dentry.is_dir();
    Ok(Some(Found::New(if single { dentry } else { Dentry::new_link(dentry, sb.links.next_id()) })))
}

fn body_of(sb: &SuperBlock, attr: &NodeAttr) -> Body {
    use crate::FileKind::{Directory as Dir, File, Symlink};
    match attr.kind {
        File => Body::File(std::sync::OnceLock::new()),
        Dir => Body::Directory(BlockBox::new(Directory::backed(change_count(sb, attr.ino), attr.nlink))),
        Symlink => Body::Symlink(attr.target.clone()),
        _ => Body::Special(attr.rdev),
    }
}

/// What a directory's cached names, and the inodes of its tree, were at some instant: numbers that only rise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    /// Names that came and went.
    changes: u64,
    /// Names that only left the cache.
    let_go: u64,
    evictions: u64,
    /// Of the backing: somebody else's.
    others: u64,
}

impl Version {
    pub(crate) fn of(dir: &Inode) -> Result<Self> {
        let (sb, directory) = (&dir.shard.sb, dir.directory()?);
        // First: what somebody else changes after this may be in the answer that is about to be asked for.
        let others = change_count(sb, dir.ino);
        let let_go = directory.backed.as_ref().map_or(0, |backed| backed.let_go());
        Ok(Self { changes: directory.changes(), let_go, evictions: sb.inodes.evictions(), others })
    }

    /// Whether nothing has happened to a name since `before`. The caller holds its lock, and nothing is bound.
    ///
    /// Whoever has changed the name, or has seen another one bound here and let it go, has counted that with the name
    /// locked.
    fn same_names(self, before: Self) -> bool {
        (self.changes, self.let_go) == (before.changes, before.let_go)
    }
}

/// Takes many names of a directory into the cache at once, as a scan has found them: one call for all attributes, in
/// whatever order suits the backing. `before` is from before the scan. What has changed since is left out, and so is
/// what cannot be had: whoever wants it asks for it alone.
pub(crate) fn fill(dir: &Counted<Dentry>, found: &[(&[u8], u64)], before: Version) -> Result<()> {
    let inode = dir.inode();
    let sb = &inode.shard.sb;
    let directory = inode.directory()?;
    let hashed = |name: &[u8]| sb.hash(inode.ino, name);
    let missing: Vec<&(&[u8], u64)> = {
        let guard = pin();
        found.iter().filter(|(name, _)| directory.slot(hashed(name), name, &guard).is_none()).collect()
    };
    if missing.is_empty() {
        return Ok(());
    }
    let numbers: Vec<u64> = missing.iter().map(|(_, ino)| *ino).collect();
    let mut attributes: Vec<Option<NodeAttr>> = numbers.iter().map(|_| None).collect();
    let backing = sb.ask_backing().ok_or(Error::NotSupported)?;
    backing.getattr_many(&numbers, &mut |place, attr| {
        if let Some(known) = attributes.get_mut(place) {
            *known = attr.ok();
        }
    })?;
    for ((name, _), attr) in missing.into_iter().zip(attributes) {
        let Some(attr) = attr else { continue };
        let hash = hashed(name);
        let _lock = sb.name_space.names.lock(&[sb.key(inode.ino, hash)]);
        let guard = pin();
        // Under the name's lock: whoever changed the name since has counted that before he let the lock go.
        if directory.slot(hash, name, &guard).is_some() || Version::of(inode)? != before {
            continue;
        }
        // Inodes that were known may be newer than what was asked for: whoever wants this name asks for it alone.
        let Ok(Some(Found::New(dentry))) = dentry_for(sb, &attr, Some(before.evictions), &guard) else { continue };
        if bind_loaded(dir, directory, hash, name, dentry, &guard).is_ok()
            && change_count(sb, inode.ino) != before.others
        {
            unbind_stale(directory, hash, name, &guard);
        }
    }
    Ok(())
}
