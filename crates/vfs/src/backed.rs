//! Trees that are kept elsewhere: what the cache does not know is asked for, and what is not used can be evicted.
//!
//! * *A miss* takes the name's lock, so that a name is asked for once however many want it, asks without a guard, and binds
//!   the answer; the walk that missed starts over and hits. That a name is *absent* is remembered in a table of its own,
//!   beside the directory's.
//! * *A change* goes to the backing first, under the locks of its names and without a guard, and into the cache when
//!   the backing has agreed.
//! * *Somebody else's changes* are noticed by the backing's change count of a directory, looked at on each walk
//!   through it: another count, and everything cached of the directory is asked for again.
//! * *Eviction* takes the name's lock, stores what only the cache knows (times), and condemns the dentry at exactly
//!   the references that the cache itself holds: from then on nobody can get one, and it is taken out.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use pando_sync::{Counted, Guard, LifeState, Node, OpCell, Shared, SplitTable, pin};

use crate::{
    Backing, Error, NodeAttr, Result,
    attr::stat_of,
    create::shard_of,
    dentry::{Dentry, Slot},
    directory::Directory,
    inode::{Body, Inode},
    locks::{Step, Stop},
    name::Name,
    namei::{Last, Parent},
    superblock::{NameSpace, SuperBlock},
};

/// So many absent names are remembered in a directory; then all are forgotten.
const ABSENT_MAX: usize = 4096;

/// What a directory of a backed tree has besides.
#[derive(Default)]
pub(crate) struct BackedDir {
    absent: SplitTable<Name>,
    absent_count: AtomicUsize,
    /// The backing's change count that the cached names belong to.
    checked: AtomicU64,
}

impl BackedDir {
    /// A directory of which nothing is cached yet.
    pub(crate) fn new(change_count: u64) -> Self {
        Self { checked: AtomicU64::new(change_count), ..Self::default() }
    }

    fn is_absent(&self, hash: u64, name: &[u8], guard: &Guard) -> bool {
        self.absent.get(hash, |absent| absent.as_bytes() == name, guard).is_some()
    }

    /// Remembers that there is no such name. The caller holds the name's lock.
    pub(crate) fn note_absent(&self, hash: u64, name: &[u8], guard: &Guard) {
        if self.absent_count.load(Ordering::Relaxed) >= ABSENT_MAX {
            self.forget_absent(guard);
        }
        let node = Node::new(Name::new(name));
        if self.absent.insert(hash, |absent| absent.as_bytes() == name, node, guard).is_ok() {
            let len = self.absent_count.fetch_add(1, Ordering::Relaxed) + 1;
            self.absent.adapt(len, false, guard);
        }
    }

    /// The name is there now. Called after it is bound, under its lock: a reader looks at what is bound first.
    pub(crate) fn note_present(&self, hash: u64, name: &[u8], guard: &Guard) {
        if let Some(node) = self.absent.get(hash, |absent| absent.as_bytes() == name, guard) {
            self.remove_absent(node, guard);
        }
    }

    fn remove_absent(&self, node: Shared<'_, Node<Name>>, guard: &Guard) {
        if self.absent.remove(node, guard).removed {
            let len = self.absent_count.fetch_sub(1, Ordering::Relaxed) - 1;
            self.absent.adapt(len, false, guard);
        }
    }

    fn forget_absent(&self, guard: &Guard) {
        for node in self.absent.iter_after(0, guard) {
            self.remove_absent(node, guard);
        }
    }
}

/// What only the backing knows, or must be told.
pub(crate) enum Ask {
    /// What a name is bound to.
    Name(Counted<Dentry>, Box<[u8]>),
    /// What has changed in a directory, up to a change count.
    Changes(Counted<Dentry>, u64),
    /// A change is to be made, with these directories and names.
    Change(Pinned, Call),
}

/// A change to be made in the backing.
pub(crate) struct Call {
    sb: Arc<SuperBlock>,
    make: Box<Change>,
}

type Change = dyn FnOnce(&dyn Backing) -> Result<u64>;

impl Call {
    pub(crate) fn new(sb: &Arc<SuperBlock>, make: impl FnOnce(&dyn Backing) -> Result<u64> + 'static) -> Self {
        Self { sb: sb.clone(), make: Box::new(make) }
    }

    pub(crate) fn make(self) -> Result<u64> {
        self.sb.drain_forgotten();
        (self.make)(self.sb.driver.backing().ok_or(Error::NotSupported)?)
    }
}

/// The directories and names of an operation whose change the backing has been told of: it is about these, wherever
/// its path may lead by now.
#[derive(Default)]
pub(crate) struct Pinned {
    parents: Vec<PinnedParent>,
}

struct PinnedParent {
    dir: Counted<Dentry>,
    name: Box<[u8]>,
    slash: bool,
}

impl Pinned {
    pub(crate) fn new(parents: &[Parent<'_>]) -> Step<Self> {
        let pin = |parent: &Parent<'_>| {
            let dir = parent.dir.get().ok_or(Stop::Again)?;
            Ok(PinnedParent { dir, name: parent.name(Error::Invalid)?.into(), slash: parent.slash })
        };
        Ok(Self { parents: parents.iter().map(pin).collect::<Step<_>>()? })
    }

    pub(crate) fn parent<'g>(&'g self, which: usize, guard: &'g Guard) -> Option<Parent<'g>> {
        let parent = self.parents.get(which)?;
        Some(Parent { dir: parent.dir.share(guard), last: Last::Name(&parent.name), slash: parent.slash, seen: None })
    }
}

/// What a name is bound to, as far as the cache knows; what it does not know is asked for.
#[inline]
pub(crate) fn find<'g>(
    dir: Shared<'g, Dentry>,
    hash: u64,
    name: &[u8],
    guard: &'g Guard,
) -> Step<Option<Shared<'g, Dentry>>> {
    let inode = dir.to_ref().inode();
    let directory = inode.directory()?;
    match directory.lookup(hash, name, guard) {
        None if directory.backed.is_some() => {
            miss(dir, inode, directory, hash, name, guard)?;
            Ok(None)
        }
        found => Ok(found),
    }
}

/// Nothing is bound: whether that is known, or must be asked.
pub(crate) fn miss(
    dir: Shared<'_, Dentry>,
    inode: &Inode,
    directory: &Directory,
    hash: u64,
    name: &[u8],
    guard: &Guard,
) -> Step<()> {
    let Some(backed) = &directory.backed else { return Ok(()) };
    if backed.is_absent(hash, name, guard) || matches!(directory.life.state(guard), LifeState::Removed) {
        return Ok(());
    }
    debug_assert!(inode.shard.sb.driver.backing().is_some(), "a backed directory has a backing");
    Err(Stop::Ask(Box::new(Ask::Name(dir.get().ok_or(Stop::Again)?, name.into()))))
}

/// Whether what is cached of a directory is still the backing's state; asks if not. One load for a memory driver.
#[inline]
pub(crate) fn check_fresh(dir: Shared<'_, Dentry>, inode: &Inode, directory: &Directory) -> Step<()> {
    let Some(backed) = &directory.backed else { return Ok(()) };
    check_backed(dir, inode, backed)
}

fn check_backed(dir: Shared<'_, Dentry>, inode: &Inode, backed: &BackedDir) -> Step<()> {
    let Some(backing) = inode.shard.sb.driver.backing() else { return Ok(()) };
    let now = backing.change_count(inode.ino);
    if backed.checked.load(Ordering::Acquire) == now {
        return Ok(());
    }
    Err(Stop::Ask(Box::new(Ask::Changes(dir.get().ok_or(Stop::Again)?, now))))
}

impl Ask {
    /// Asks the backing, and puts what it answers into the cache. No guard and no lock is held.
    pub(crate) fn answer(self, name_space: &NameSpace) -> Result<()> {
        match self {
            Self::Name(dir, name) => load(name_space, &dir, &name),
            Self::Changes(dir, count) => refresh(name_space, &dir, count),
            Self::Change(_, call) => call.make().map(drop),
        }
    }
}

/// A name that the cache does not know.
fn load(name_space: &NameSpace, dir: &Counted<Dentry>, name: &[u8]) -> Result<()> {
    dir.sb().drain_forgotten();
    loop {
        match try_load(name_space, dir, name) {
            Err(Error::TryAgain) => std::thread::yield_now(),
            done => return done,
        }
    }
}

fn try_load(name_space: &NameSpace, dir: &Counted<Dentry>, name: &[u8]) -> Result<()> {
    let inode = dir.inode();
    let sb = &inode.shard.sb;
    let hash = sb.hash(inode.ino, name);
    let _lock = name_space.names.lock(&[sb.key(inode.ino, hash)]);
    {
        let guard = pin();
        let directory = inode.directory()?;
        if directory.slot(hash, name, &guard).is_some()
            || miss(dir.as_shared(), inode, directory, hash, name, &guard).is_ok()
        {
            // Somebody else has asked meanwhile.
            return Ok(());
        }
    }
    let answer = sb.driver.backing().ok_or(Error::NotSupported)?.lookup(inode.ino, name)?;
    let guard = pin();
    let directory = inode.directory()?;
    let backed = directory.backed.as_ref().ok_or(Error::NotSupported)?;
    let Some(attr) = answer else {
        backed.note_absent(hash, name, &guard);
        return Ok(());
    };
    let dentry = dentry_for(sb, &attr, &guard)?;
    bind_loaded(dir, directory, hash, name, dentry, &guard)
}

/// A dentry for a name of the inode that `attr` describes: its first, if it has none yet, otherwise a further link.
fn dentry_for(sb: &Arc<SuperBlock>, attr: &NodeAttr, guard: &Guard) -> Result<Counted<Dentry>> {
    let first = loop {
        if let Some(known) = sb.nodes.get(attr.ino, guard) {
            break known;
        }
        sb.driver.charge_inode()?;
        let dentry = Counted::new(Dentry::new(Inode::loaded(shard_of(sb, guard)?, attr, body_of(sb, attr))));
        // Concurrent loads by two names: one inode wins, and both use it (P7).
        if sb.nodes.adopt(&dentry, guard) {
            break dentry;
        }
        if sb.nodes.get(attr.ino, guard).is_none() {
            // The number's old inode is on its way out, and whoever evicts it must come to it.
            return Err(Error::TryAgain);
        }
    };
    let has_place = first.place.load(guard).is_some();
    let is_first = !has_place && attr.nlink <= 1;
    if is_first || attr.kind == crate::FileKind::Directory { Ok(first) } else { Ok(Dentry::new_link(first)) }
}

fn body_of(sb: &SuperBlock, attr: &NodeAttr) -> Body {
    use crate::FileKind::{Directory as Dir, File, Symlink};
    match attr.kind {
        File => Body::File(std::sync::OnceLock::new()),
        Dir => Body::Directory(Box::new(Directory::backed(change_count(sb, attr.ino)))),
        Symlink => Body::Symlink(attr.target.clone()),
        _ => Body::Special(attr.rdev),
    }
}

pub(crate) fn change_count(sb: &SuperBlock, ino: u64) -> u64 {
    sb.driver.backing().map_or(0, |backing| backing.change_count(ino))
}

/// Binds a name to what the backing says. The caller holds the name's lock.
fn bind_loaded(
    dir: &Counted<Dentry>,
    directory: &Directory,
    hash: u64,
    name: &[u8],
    dentry: Counted<Dentry>,
    guard: &Guard,
) -> Result<()> {
    let anchor = directory.anchor(dir.as_shared(), guard)?;
    let slot = Node::new(Slot::new(anchor, name, OpCell::new_pending(dentry.clone())));
    // A directory moved by somebody else leaves its old place; whoever finds that name asks again.
    drop(dentry.place.replace(Some(slot.clone())));
    let node = directory.insert(hash, slot, guard)?;
    if directory.life.keep_alive(guard) {
        node.to_ref().value.publish(guard);
        return Ok(());
    }
    if node.to_ref().value.retract().is_some() {
        directory.remove(node, guard);
        directory.detach();
    }
    Err(Error::NoEntry)
}

/// What a directory's cached names, and the inodes of its tree, were at some instant: numbers that only rise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    changes: u64,
    evictions: u64,
}

impl Version {
    pub(crate) fn of(dir: &Inode) -> Result<Self> {
        Ok(Self { changes: dir.directory()?.changes(), evictions: dir.shard.sb.nodes.evictions() })
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
    let backing = sb.driver.backing().ok_or(Error::NotSupported)?;
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
        let Ok(dentry) = dentry_for(sb, &attr, &guard) else { continue };
        let _ = bind_loaded(dir, directory, hash, name, dentry, &guard);
    }
    Ok(())
}

/// Somebody else has changed a directory: everything cached of it is asked for again.
fn refresh(name_space: &NameSpace, dir: &Counted<Dentry>, count: u64) -> Result<()> {
    let inode = dir.inode();
    let sb = &inode.shard.sb;
    let directory = inode.directory()?;
    let backing = sb.driver.backing().ok_or(Error::NotSupported)?;
    let backed = directory.backed.as_ref().ok_or(Error::NotSupported)?;
    backed.forget_absent(&pin());
    let names: Vec<Box<[u8]>> = {
        let guard = pin();
        directory.slots_after(0, &guard).map(|slot| slot.to_ref().name.as_bytes().into()).collect()
    };
    for name in names {
        let hash = sb.hash(inode.ino, &name);
        let _lock = name_space.names.lock(&[sb.key(inode.ino, hash)]);
        let answer = backing.lookup(inode.ino, &name)?;
        let guard = pin();
        let Some(slot) = directory.slot(hash, &name, &guard) else { continue };
        let Some(dentry) = slot.to_ref().value.load(&guard) else { continue };
        match answer {
            Some(attr) if attr.ino == dentry.to_ref().inode().ino => dentry.to_ref().inode().refresh(&attr, &guard),
            _ => unbind(directory, slot, &guard),
        }
    }
    backed.checked.store(count, Ordering::Release);
    Ok(())
}

/// A name is no more what the cache has: it is asked for when somebody wants it. The caller holds its lock.
fn unbind(directory: &Directory, slot: Shared<'_, Node<Slot>>, guard: &Guard) {
    drop(slot.to_ref().value.replace(None));
    directory.remove(slot, guard);
}

/// How an eviction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evicted {
    Gone,
    InUse,
}

impl SuperBlock {
    /// Evicts up to `count` inodes that nobody uses, from where the last eviction stopped; how many went.
    pub(crate) fn evict(self: &Arc<Self>, name_space: &NameSpace, count: usize) -> Result<usize> {
        if self.driver.backing().is_none() {
            return Ok(0);
        }
        let (mut gone, mut rounds) = (0, 0);
        while gone < count && rounds < 2 {
            let (batch, wrapped) = self.nodes.idle_batch(&pin());
            rounds += u32::from(wrapped);
            for dentry in batch {
                if gone == count {
                    break;
                }
                gone += usize::from(self.evict_one(name_space, dentry)? == Evicted::Gone);
            }
        }
        self.drain_forgotten();
        Ok(gone)
    }

    fn evict_one(self: &Arc<Self>, name_space: &NameSpace, dentry: Counted<Dentry>) -> Result<Evicted> {
        let key = {
            let guard = pin();
            dentry.place.load(&guard).map(|place| {
                let slot = place.to_ref();
                let dir = slot.anchor_dir().to_ref().inode().ino;
                self.key(dir, self.hash(dir, slot.name.as_bytes()))
            })
        };
        let keys: &[_] = match &key {
            Some(key) => std::slice::from_ref(key),
            None if dentry.is_dir() => return Ok(Evicted::InUse),
            None => &[],
        };
        let _lock = (!keys.is_empty()).then(|| name_space.names.lock(keys));
        let inode = dentry.inode();
        if inode.take_dirty() {
            let attr = attr_of(inode, &pin());
            let stored = self.driver.backing().ok_or(Error::NotSupported)?.setattr(inode.ino, &attr);
            stored.inspect_err(|_| inode.set_dirty())?;
        }
        let guard = pin();
        let slot = dentry
            .place
            .load(&guard)
            .filter(|place| place.to_ref().value.load(&guard).is_some_and(|shown| shown.ptr_eq(dentry.as_shared())));
        if let Ok(directory) = inode.directory() {
            if directory.slots_after(0, &guard).next().is_some() {
                return Ok(Evicted::InUse);
            }
            directory.detach();
        }
        // Ours, the table's of numbers, and the slot's: with these and no other it is condemned.
        let references = 2 + usize::from(slot.is_some());
        if inode.is_dirty() || !Counted::condemn(&dentry, references) {
            return Ok(Evicted::InUse);
        }
        if let Some(slot) = slot {
            unbind(slot.to_ref().anchor_dir().to_ref().directory()?, slot, &guard);
        }
        self.nodes.evict(inode.ino, &guard);
        Ok(Evicted::Gone)
    }

    /// Tells the backing what nobody uses any more. No guard is held.
    pub(crate) fn drain_forgotten(&self) {
        let Some(backing) = self.driver.backing() else { return };
        loop {
            let next = self.forgotten.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop();
            match next {
                Some(ino) => backing.forget(ino),
                None => return,
            }
        }
    }
}

/// An inode's attributes as a backing stores them.
pub(crate) fn attr_of(inode: &Inode, guard: &Guard) -> NodeAttr {
    let stat = stat_of(inode, guard);
    NodeAttr {
        ino: stat.ino,
        kind: stat.kind,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        nlink: stat.nlink,
        size: stat.size,
        rdev: stat.rdev as u32,
        atime: stat.atime,
        mtime: stat.mtime,
        ctime: stat.ctime,
        btime: stat.btime,
        target: match &inode.body {
            Body::Symlink(target) => target.clone(),
            _ => Box::default(),
        },
    }
}
