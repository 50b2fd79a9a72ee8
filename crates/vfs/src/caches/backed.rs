//! Trees that are kept elsewhere: what the cache does not know is asked for, and what is not used can be evicted.
//!
//! * *A miss* asks without a guard, and mostly without a lock, once however many want the name (`load`); the walk that
//!   missed starts over and hits. That a name is *absent* is remembered in a table of its own, beside the directory's.
//! * *A change* goes to the backing first, under the locks of its names and without a guard, and into the cache when
//!   the backing has agreed.
//! * *Somebody else's changes* are noticed by the backing's change count of a directory, looked at on each walk
//!   through it: another count, and everything cached of the directory is asked for again.
//! * *Eviction* takes the name's lock, stores what only the cache knows (times), and condemns the dentry at exactly
//!   the references that the cache itself holds: from then on nobody can get one, and it is taken out.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
};

use pando_sync::{Counted, Guard, LifeState, Node, Shared, SplitTable, Unlinked, lock, pin};

use crate::{
    Backing, Error, NodeAttr, Result,
    caches::load::{bind_loaded, load},
    objects::dentry::{Dentry, Slot},
    objects::directory::Directory,
    objects::inode::{Body, Inode},
    objects::superblock::{NameSpace, SuperBlock},
    operations::attr::stat_of,
    operations::locks::{Step, Stop},
    operations::namei::{Last, Parent},
    types::name::{Name, equal},
};

/// So many absent names are remembered in a directory; then all are forgotten.
const ABSENT_MAX: usize = 4096;

/// So often a directory's attributes are asked for, if subdirectories come and go meanwhile; then their number stays as it is.
const REFRESHES_MAX: u32 = 8;

/// What a directory of a backed tree has besides.
#[derive(Default)]
pub(crate) struct BackedDir {
    absent: SplitTable<Name>,
    absent_count: AtomicUsize,
    /// Names that were loaded and are cached, less those of them that left the cache: others than made here.
    loaded: AtomicI64,
    /// Names that left the cache, though nothing happened to them: a number that only rises.
    let_go: AtomicU64,
    /// The backing's change count that the cached names belong to.
    checked: AtomicU64,
    /// Operations whose change the backing is being told of, or knows of while the cache does not yet.
    changing: AtomicUsize,
}

impl BackedDir {
    /// A directory of which nothing is cached yet.
    pub(crate) fn new(change_count: u64) -> Self {
        Self { checked: AtomicU64::new(change_count), ..Self::default() }
    }

    /// A name was taken into the cache, or has left it. Relaxed: how large the table should be is a hint.
    pub(crate) fn loaded(&self, more: bool) {
        self.loaded.fetch_add(if more { 1 } else { -1 }, Ordering::Relaxed);
        if !more {
            self.let_go.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many names have left the cache though nothing happened to them. Relaxed: whoever compares two of these has held
    /// the lock of the name that he asks about before the second.
    pub(crate) fn let_go(&self) -> u64 {
        self.let_go.load(Ordering::Relaxed)
    }

    /// How many more names are cached than were made here.
    pub(crate) fn loaded_len(&self) -> i64 {
        self.loaded.load(Ordering::Relaxed)
    }

    /// Whether the backing may know of a change that the cache does not. Acquire: of those that are over, the cache does.
    fn is_changing(&self) -> bool {
        self.changing.load(Ordering::Acquire) > 0
    }

    fn is_absent(&self, hash: u64, name: &[u8], guard: &Guard) -> bool {
        self.absent.get(hash, |absent| equal(absent.as_bytes(), name), guard).is_some()
    }

    /// Remembers that there is no such name. The caller holds the name's lock.
    pub(crate) fn note_absent(&self, hash: u64, name: &[u8], guard: &Guard) {
        if self.absent_count.load(Ordering::Relaxed) >= ABSENT_MAX {
            self.forget_absent(guard);
        }
        let node = Unlinked::new(Name::new(name));
        // Before it can be seen: whoever forgets it counts it out.
        let len = self.absent_count.fetch_add(1, Ordering::Relaxed) + 1;
        match self.absent.insert(hash, |absent| equal(absent.as_bytes(), name), node, guard) {
            Ok(_) => self.absent.adapt(len, false, guard),
            Err(_) => {
                self.absent_count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// The name is there now. Called after it is bound, under its lock: a reader looks at what is bound first.
    pub(crate) fn note_present(&self, hash: u64, name: &[u8], guard: &Guard) {
        if let Some(node) = self.absent.get(hash, |absent| equal(absent.as_bytes(), name), guard) {
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

    pub(crate) fn sb(&self) -> &Arc<SuperBlock> {
        &self.sb
    }

    pub(crate) fn make(self) -> Result<u64> {
        (self.make)(self.sb.ask_backing().ok_or(Error::NotSupported)?)
    }
}

/// The directories and names of an operation whose change the backing has been told of: it is about these, wherever
/// its path may lead by now.
#[derive(Default)]
pub(crate) struct Pinned {
    /// None of a tree without a backing, in each operation: a box less to look into.
    parents: Option<Box<[PinnedParent]>>,
}

struct PinnedParent {
    dir: Counted<Dentry>,
    name: Box<[u8]>,
}

impl Drop for PinnedParent {
    fn drop(&mut self) {
        if let Some(backed) = self.dir.inode().backed_dir() {
            // Release: what has come of it is in the cache.
            backed.changing.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Pinned {
    pub(crate) fn new(parents: &[Parent<'_>]) -> Step<Self> {
        let pin = |parent: &Parent<'_>| {
            let dir = parent.dir.get().ok_or(Stop::Again)?;
            let name = parent.name(Error::Invalid)?.into();
            if let Some(backed) = dir.inode().backed_dir() {
                // SeqCst: before the backing is told.
                backed.changing.fetch_add(1, Ordering::SeqCst);
            }
            Ok(PinnedParent { dir, name })
        };
        Ok(Self { parents: Some(parents.iter().map(pin).collect::<Step<_>>()?) })
    }

    pub(crate) fn parent<'g>(&'g self, which: usize, guard: &'g Guard) -> Option<Parent<'g>> {
        let parent = self.parents.as_deref()?.get(which)?;
        // What a slash forbids was refused before the backing was told.
        Some(Parent {
            dir: parent.dir.share(guard),
            last: Last::Name(&parent.name),
            slash: false,
            hash: None,
            seen: None,
        })
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

/// What is asked of a backing: about a name in a directory, or about all that is cached of the directory.
pub(crate) type Question = (u64, Box<[u8]>);

impl Ask {
    /// Asks the backing, and puts what it answers into the cache. No guard and no lock is held.
    pub(crate) fn answer(self, name_space: &NameSpace) -> Result<()> {
        match self {
            // Whoever else wants the same waits for this answer, and shares it (P7).
            Self::Name(dir, name) => {
                let (sb, question) = (dir.sb(), (dir.inode().ino, name));
                sb.questions.ask(&question, || load(name_space, &dir, &question.1))
            }
            Self::Changes(dir, count) => {
                let (sb, question) = (dir.sb(), (dir.inode().ino, Box::default()));
                sb.questions.ask(&question, || refresh(name_space, &dir, count))
            }
            Self::Change(_, call) => call.make().map(drop),
        }
    }
}

/// Makes an inode the one of its number; false if there is another.
pub(crate) fn adopt(sb: &SuperBlock, dentry: &Counted<Dentry>, guard: &Guard) -> bool {
    let adopted = sb.inodes.adopt(dentry, guard);
    if adopted {
        dentry.inode().set_adopted(true);
        // It is used again: what its predecessor left to be said is not true any more. Whoever says it just now holds the
        // inode's lock, without which the last name does not go: nothing is freed.
        lock(&sb.forgotten).remove(&dentry.inode().ino);
    }
    adopted
}

pub(crate) fn change_count(sb: &SuperBlock, ino: u64) -> u64 {
    sb.driver.backing().map_or(0, |backing| backing.change_count(ino))
}

/// Somebody else has changed a directory: everything cached of it is asked for again.
fn refresh(name_space: &NameSpace, dir: &Counted<Dentry>, count: u64) -> Result<()> {
    let inode = dir.inode();
    let directory = inode.directory()?;
    let backed = directory.backed.as_ref().ok_or(Error::NotSupported)?;
    backed.forget_absent(&pin());
    let names: Vec<Box<[u8]>> = {
        let guard = pin();
        directory.slots_after(0, &guard).map(|slot| slot.to_ref().name.as_bytes().into()).collect()
    };
    for name in names {
        if let Some(dentry) = refresh_name(name_space, dir, &name)? {
            refresh_inode(name_space, dentry.inode())?;
        }
    }
    if !directory.is_removed(&pin()) {
        refresh_inode(name_space, inode)?;
    }
    backed.checked.store(count, Ordering::Release);
    Ok(())
}

/// A cached name is asked for again, and goes if it leads elsewhere; what it leads to, if that has changed.
fn refresh_name(name_space: &NameSpace, dir: &Counted<Dentry>, name: &[u8]) -> Result<Option<Counted<Dentry>>> {
    let inode = dir.inode();
    let sb = &inode.shard.sb;
    let directory = inode.directory()?;
    let hash = sb.hash(inode.ino, name);
    let _lock = name_space.names.lock(&[sb.key(inode.ino, hash)]);
    let answer = match sb.ask_backing().ok_or(Error::NotSupported)?.lookup(inode.ino, name) {
        // The directory itself is gone.
        Err(Error::NoEntry | Error::Stale) => None,
        answer => answer?,
    };
    let guard = pin();
    let Some(slot) = directory.slot(hash, name, &guard) else { return Ok(None) };
    let Some(dentry) = slot.to_ref().value.load(&guard).and_then(|dentry| dentry.get()) else { return Ok(None) };
    match answer {
        Some(attr) if attr.ino == dentry.inode().ino => {
            let inode = dentry.inode();
            let changed = inode.has_xattrs() || attr != attr_of(inode, &guard);
            Ok(changed.then_some(dentry))
        }
        _ => {
            unbind(directory, slot, &guard);
            Ok(None)
        }
    }
}

/// Attributes that somebody else has changed are asked for, in the order in which they are changed here.
pub(crate) fn refresh_inode(name_space: &NameSpace, inode: &Inode) -> Result<()> {
    let sb = &inode.shard.sb;
    let backing = sb.ask_backing().ok_or(Error::NotSupported)?;
    let _order = name_space.names.lock(&[sb.inode_key(inode.ino)]);
    let directory = inode.directory().ok();
    let is_changing = || inode.backed_dir().is_some_and(BackedDir::is_changing);
    let ask = || {
        let mut answer = Err(Error::Io);
        let mut counted = None;
        for _ in 0..REFRESHES_MAX {
            let before = directory.map(Directory::subdirs);
            backing.getattr_many(&[inode.ino], &mut |_, attr| answer = attr)?;
            // In this order: a change that is over has been counted, and what is under way may be in the answer.
            if !is_changing() && directory.map(Directory::subdirs) == before {
                counted = before;
                break;
            }
            std::thread::yield_now();
        }
        match answer {
            Ok(attr) => Ok(Some((attr, counted))),
            // Gone: whoever has it open keeps what was known of it.
            Err(Error::NoEntry | Error::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let take_over = |resize: &mut dyn FnMut(u64)| {
        let Some((attr, counted)) = ask()? else { return Ok(()) };
        // Before the times: who finds those new does not take the old size for the new one.
        if attr.size != inode.size() {
            resize(attr.size);
        }
        inode.refresh(&attr, counted, &pin());
        Ok(())
    };
    inode.refresh_xattrs()?;
    match &inode.body {
        Body::File(_) => {
            let state = inode.file_state()?;
            state.change(inode, |data| take_over(&mut |size| state.resize(inode, data, size)))
        }
        _ => take_over(&mut |size| inode.set_size(size)),
    }
}

/// A directory that the cache has in another place was moved by somebody else: it leaves that place for this one.
///
/// Both names are locked, and ancestors stand still: in the cache, too, a directory has one place and is not below itself.
pub(crate) fn move_here(
    name_space: &NameSpace,
    dir: &Counted<Dentry>,
    name: &[u8],
    moved: &Counted<Dentry>,
) -> Result<()> {
    let inode = dir.inode();
    let sb = &inode.shard.sb;
    let backing = sb.ask_backing().ok_or(Error::NotSupported)?;
    let directory = inode.directory()?;
    let hash = sb.hash(inode.ino, name);
    let _topology = name_space.topology.lock();
    let old = {
        let guard = pin();
        moved.place.load(&guard).and_then(|place| place.get())
    };
    let old_ino = |slot: &Counted<Node<Slot>>| slot.anchor.dir.inode().ino;
    let old_key = old.as_ref().map(|slot| sb.key(old_ino(slot), sb.hash(old_ino(slot), slot.name.as_bytes())));
    let key = sb.key(inode.ino, hash);
    let _names = name_space.names.lock(&[key, old_key.unwrap_or(key)]);
    let leads_here = |dir, name: &[u8]| match backing.lookup(dir, name) {
        Err(Error::NoEntry | Error::Stale) => Ok(false),
        answer => Ok(answer?.is_some_and(|attr| attr.ino == moved.inode().ino)),
    };
    if !leads_here(inode.ino, name)? {
        return Ok(());
    }
    if let Some(slot) = &old
        && leads_here(old_ino(slot), slot.name.as_bytes())?
    {
        // Moved back between the two answers, or this is the place that the cache has lost: then nothing shows it.
        let shown = {
            let guard = pin();
            slot.value.load(&guard).is_some_and(|shown| shown.ptr_eq(moved.as_shared()))
        };
        if shown {
            // Or it has two places, which no directory has.
            return if leads_here(inode.ino, name)? { Err(Error::Stale) } else { Ok(()) };
        }
    }
    let mut seq = name_space.rename_seq.lock();
    let _moving = seq.write();
    let guard = pin();
    let still = moved.place.load(&guard);
    let unmoved = match (&old, still) {
        (Some(old), Some(still)) => still.ptr_eq(old.as_shared()),
        (None, None) => true,
        _ => false,
    };
    if !unmoved || directory.slot(hash, name, &guard).is_some() {
        return Ok(());
    }
    let mut up = Some(dir.as_shared());
    while let Some(above) = up {
        if above.ptr_eq(moved.as_shared()) {
            // What the cache knows of the places above is older still.
            return Err(Error::Stale);
        }
        up = above.to_ref().parent(&guard);
    }
    if let Some(slot) = still
        && slot.to_ref().value.load(&guard).is_some_and(|shown| shown.ptr_eq(moved.as_shared()))
    {
        unbind(slot.to_ref().anchor_dir().to_ref().directory()?, slot, &guard);
    }
    bind_loaded(dir, directory, hash, name, moved.clone(), &guard)
}

/// A name is no more what the cache has: it is asked for when somebody wants it. The caller holds its lock.
pub(crate) fn unbind(directory: &Directory, slot: Shared<'_, Node<Slot>>, guard: &Guard) {
    if let Some(shown) = slot.to_ref().value.replace(None) {
        shown.sb().links.remove(&shown);
        directory.entry_cached(false, guard);
    }
    directory.remove(slot, guard);
}

/// What a refusal of the backing says about a name that was to be made: if others have made it, it is asked for when
/// somebody wants it. The caller holds its lock.
pub(crate) fn note_refusal<'a>(
    directory: &'a Directory,
    hash: u64,
    name: &'a [u8],
    guard: &'a Guard,
) -> impl FnOnce(&Stop) + 'a {
    move |refusal| {
        if let (Some(backed), Stop::Error(Error::Exists)) = (&directory.backed, refusal) {
            backed.note_present(hash, name, guard);
        }
    }
}

/// Whatever the cache has of a name, the backing says otherwise. The caller holds the name's lock.
pub(crate) fn unbind_stale(directory: &Directory, hash: u64, name: &[u8], guard: &Guard) {
    if let Some(slot) = directory.slot(hash, name, guard) {
        unbind(directory, slot, guard);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Who forgets an absent name as soon as it is there finds it counted. Seen to fail: counted after it was inserted.
    #[test]
    fn an_absent_name_is_counted_before_it_can_be_forgotten() {
        const NOTERS: usize = 4;
        let backed = BackedDir::default();
        let note = || (0..200_000).for_each(|_| backed.note_absent(0, b"absent", &pin()));
        std::thread::scope(|scope| {
            let noters: Vec<_> = (0..NOTERS).map(|_| scope.spawn(note)).collect();
            while noters.iter().any(|noter| !noter.is_finished()) {
                backed.forget_absent(&pin());
                // The one that is there, and those that are refused.
                assert!(backed.absent_count.load(Ordering::Relaxed) <= 1 + NOTERS);
            }
        });
        backed.forget_absent(&pin());
        assert_eq!(backed.absent_count.load(Ordering::Relaxed), 0);
    }
}
