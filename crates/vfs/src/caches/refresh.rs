//! Requests cached names and attributes again after others have changed them in the backing.

use std::sync::atomic::Ordering;

use pando_sync::{Counted, Guard, Node, Shared, pin};

use crate::{
    AttrMask, Backing, Error, NodeAttr, Result,
    caches::{
        binding::{ask_for_names, bind_loaded, unbind},
        write_back::store_dirty,
    },
    objects::{
        backed_dir::BackedDir,
        dentry::{Dentry, Dirent},
        directory::Directory,
        inode::{Body, Inode},
        lockable::Lockable,
        stat::attr_of,
        superblock::Namespace,
    },
};

/// How often a directory's attributes are requested while subdirectories are created or removed at
/// the same time. After that the count of subdirectories stays as it is.
const REFRESHES_MAX: u32 = 8;

/// Others have changed a directory: requests everything that is cached of it again.
pub(crate) fn refresh(namespace: &Namespace, dir: &Counted<Dentry>, count: u64) -> Result<()> {
    let inode = dir.inode();
    let directory = inode.directory()?;
    let backed = directory.backed.as_ref().ok_or(Error::NotSupported)?;
    backed.clear_negative(&pin());
    drop_unused_names(namespace, inode, directory)?;
    for name in outdated(inode, directory)? {
        if let Some(dentry) = refresh_name(namespace, dir, &name)? {
            refresh_inode(dentry.inode())?;
        }
    }
    if !directory.is_removed(&pin()) {
        refresh_inode(inode)?;
    }
    backed.checked.store(count, Ordering::Release);
    Ok(())
}

/// The number of names in one request.
const BATCH: usize = 1024;

/// The most cached names that are requested again because of one report. A request for a name costs
/// about as much as the look-up that finds it again, but look-ups are made only for names that are
/// wanted. Where nothing but time makes the reports, they come every second, so that many requests
/// would leave no time for anything else.
const REFRESHED_MOST: usize = 4 * BATCH;

/// If many names of a directory are cached, drops those whose inodes are not in use. If only a
/// server's clients use an inode, it stays without its name. The caller holds no guard and no lock.
fn drop_unused_names(namespace: &Namespace, inode: &Inode, directory: &Directory) -> Result<()> {
    // The references of the inode cache, of the entry, and of the table of handed-out numbers.
    const COUNTED: usize = 3;
    let sb = &inode.shard.sb;
    if directory.dirents_after(0, &pin()).nth(REFRESHED_MOST).is_none() {
        return Ok(());
    }
    let (mut position, mut is_at_end) = (0, false);
    while !is_at_end {
        let (mut idle, mut counted) = (Vec::new(), Vec::new());
        {
            let guard = pin();
            let batch: Vec<_> = directory.dirents_after(position, &guard).take(BATCH).collect();
            is_at_end = batch.len() < BATCH;
            for dirent in batch {
                position = dirent.to_ref().position();
                let Some(shown) = dirent.to_ref().value.load(&guard) else { continue };
                let dentry = shown.to_ref();
                if !dentry.is_link() && sb.nodes.is_counted(dentry.inode().ino, &guard) {
                    counted.push(Box::<[u8]>::from(dirent.to_ref().name.as_bytes()));
                } else {
                    idle.extend(shown.get());
                }
            }
        }
        idle.into_iter().for_each(|dentry| sb.evict_if_idle(dentry));
        for name in counted {
            let hash = sb.hash(inode.ino, &name);
            let _lock = namespace.names.lock(&[Lockable::name(inode, hash)?.key]);
            let guard = pin();
            let Some(dirent) = directory.dirent(hash, &name, &guard) else { continue };
            let shown = dirent.to_ref().value.load(&guard).filter(|shown| shown.count() <= COUNTED);
            let Some(shown) = shown else { continue };
            if shown.to_ref().inode().has_xattrs() {
                shown.to_ref().inode().set_reported();
            }
            unbind(directory, dirent, &guard);
        }
    }
    Ok(())
}

/// The cached names of which the backing has another answer than the cache. All of them are
/// requested, in few calls and without their locks. So a name may be here that is up to date by
/// now.
fn outdated(inode: &Inode, directory: &Directory) -> Result<Vec<Box<[u8]>>> {
    let sb = &inode.shard.sb;
    let names: Vec<(Box<[u8]>, u64)> = {
        let guard = pin();
        let bound = |dirent: Shared<'_, Node<Dirent>>| {
            let dentry = dirent.to_ref().value.load(&guard)?;
            Some((dirent.to_ref().name.as_bytes().into(), dentry.to_ref().inode().ino))
        };
        directory.dirents_after(0, &guard).filter_map(bound).collect()
    };
    let is_outdated = |name: &[u8], answer: Option<&NodeAttr>, guard: &Guard| {
        let dirent = directory.dirent(sb.hash(inode.ino, name), name, guard);
        let cached = dirent.and_then(|dirent| dirent.to_ref().value.load(guard));
        cached.is_some_and(|dentry| {
            let inode = dentry.to_ref().inode();
            inode.has_xattrs() || answer.is_none_or(|attr| *attr != attr_of(inode, guard))
        })
    };
    let mut outdated = Vec::new();
    for names in names.chunks(BATCH) {
        let batch: Vec<(&[u8], u64)> = names.iter().map(|(name, ino)| (&**name, *ino)).collect();
        let (answers, asked) =
            ask_for_names(inode, batch.len(), |backing, each| backing.revalidate(inode.ino, &batch, each));
        match asked {
            // The directory itself was removed.
            Ok(()) | Err(Error::NoEntry | Error::Stale) => {}
            Err(error) => return Err(error),
        }
        let guard = pin();
        let changed =
            names.iter().zip(&answers).filter(|((name, _), answer)| is_outdated(name, answer.as_ref(), &guard));
        outdated.extend(changed.map(|((name, _), _)| name.clone()));
    }
    Ok(outdated)
}

/// Requests a cached name again. If it is bound to another inode now, it is dropped from the cache.
/// Returns the dentry if its inode has changed.
fn refresh_name(namespace: &Namespace, dir: &Counted<Dentry>, name: &[u8]) -> Result<Option<Counted<Dentry>>> {
    let inode = dir.inode();
    let sb = &inode.shard.sb;
    let directory = inode.directory()?;
    let hash = sb.hash(inode.ino, name);
    let _lock = namespace.names.lock(&[Lockable::name(inode, hash)?.key]);
    // None: the name is gone, or the directory, or nothing is known of the name. Then it is dropped
    // from the cache, and a walk that wants it asks for it alone.
    let answer = sb.ask_backing().ok_or(Error::NotSupported)?.lookup_one(inode.ino, name).ok().flatten();
    let guard = pin();
    let Some(dirent) = directory.dirent(hash, name, &guard) else { return Ok(None) };
    let Some(dentry) = dirent.to_ref().value.load(&guard).and_then(|dentry| dentry.get()) else { return Ok(None) };
    match answer {
        Some(attr) if attr.ino == dentry.inode().ino => {
            let inode = dentry.inode();
            let changed = inode.has_xattrs() || attr != attr_of(inode, &guard);
            Ok(changed.then_some(dentry))
        }
        _ => {
            unbind(directory, dirent, &guard);
            Ok(None)
        }
    }
}

/// Requests the attributes of an inode if others have changed it, or if the backing has stamped
/// times. The caller holds no guard and no lock. One thread asks, and those that wait for it find
/// the answer.
pub(crate) fn refresh_if_outdated(inode: &Inode) -> Result<()> {
    if !inode.is_outdated() {
        return Ok(());
    }
    let sb = &inode.shard.sb;
    let _order = sb.namespace.names.lock(&[sb.inode_key(inode.ino)]);
    if inode.is_outdated() { refresh_locked(inode) } else { Ok(()) }
}

/// Requests the attributes of an inode that others may have changed. The caller holds no guard and
/// no lock.
pub(crate) fn refresh_inode(inode: &Inode) -> Result<()> {
    let sb = &inode.shard.sb;
    let _order = sb.namespace.names.lock(&[sb.inode_key(inode.ino)]);
    refresh_locked(inode)
}

/// A request for attributes. If it ends without an answer, the inode is as outdated as before, also
/// if the backing panics. The inode's lock is held.
struct AttrRequest<'i> {
    inode: &'i Inode,
    /// The dirty bits that were taken.
    times: AttrMask,
    /// Whether a report was taken.
    reported: bool,
}

impl<'i> AttrRequest<'i> {
    /// A change that follows makes the answer out of date. It sets the bits again.
    fn begin(inode: &'i Inode, backing: &dyn Backing) -> Result<Self> {
        if inode.shard.sb.stamped_elsewhere {
            store_dirty(inode, backing)?;
        }
        Ok(Self { inode, times: inode.take_stamped(), reported: inode.take_reported() })
    }

    /// The answer is in the cache.
    fn answered(mut self) {
        (self.times, self.reported) = (AttrMask::empty(), false);
    }
}

impl Drop for AttrRequest<'_> {
    fn drop(&mut self) {
        self.inode.set_dirty(self.times);
        if self.reported {
            self.inode.set_reported();
        }
        self.inode.end_request();
    }
}

/// As [`refresh_inode`]. The inode's lock is held: it orders this with changes made here.
fn refresh_locked(inode: &Inode) -> Result<()> {
    let backing = inode.shard.sb.ask_backing().ok_or(Error::NotSupported)?;
    let request = AttrRequest::begin(inode, backing)?;
    let directory = inode.directory().ok();
    let is_changing = || inode.backed_dir().is_some_and(BackedDir::is_changing);
    let ask = || {
        let mut answer = Err(Error::Io);
        let mut counted = None;
        for _ in 0..REFRESHES_MAX {
            let before = directory.map(Directory::subdirs);
            answer = backing.getattr_one(inode.ino);
            // In this order: a change that has ended was counted, and a running one may be in the
            // answer.
            if !is_changing() && directory.map(Directory::subdirs) == before {
                counted = before;
                break;
            }
            std::thread::yield_now();
        }
        match answer {
            Ok(attr) => Ok(Some((attr, counted))),
            // The inode was removed. Threads that have it open keep the attributes that were
            // cached.
            Err(Error::NoEntry | Error::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let apply = |resize: &mut dyn FnMut(u64)| {
        let Some((attr, counted)) = ask()? else { return Ok(()) };
        // Before the times: a thread that sees the new times must not take the old size for the new
        // one.
        if attr.size != inode.size() {
            resize(attr.size);
        }
        inode.refresh(&attr, counted, &pin());
        Ok(())
    };
    inode.refresh_xattrs()?;
    match &inode.body {
        Body::File(..) => {
            let state = inode.file_state()?;
            state.change(inode, |data| apply(&mut |size| state.resize(inode, data, size)))?;
        }
        _ => apply(&mut |size| inode.set_size(size))?,
    }
    request.answered();
    Ok(())
}

/// Others have moved a directory in the backing. It leaves its old place in the cache and gets this
/// one.
///
/// Both names are locked, and the topology lock keeps ancestors in place. So in the cache, too, a
/// directory has one place and is not its own descendant.
pub(crate) fn move_directory(
    namespace: &Namespace,
    dir: &Counted<Dentry>,
    name: &[u8],
    moved: &Counted<Dentry>,
) -> Result<()> {
    let inode = dir.inode();
    let sb = &inode.shard.sb;
    let backing = sb.ask_backing().ok_or(Error::NotSupported)?;
    let directory = inode.directory()?;
    let hash = sb.hash(inode.ino, name);
    let _topology = namespace.topology.lock();
    let old = {
        let guard = pin();
        moved.place.load(&guard).and_then(|place| place.get())
    };
    let old_ino = |dirent: &Counted<Node<Dirent>>| dirent.parent_ref.dir.inode().ino;
    let key = Lockable::name(inode, hash)?.key;
    let old_key = match &old {
        Some(dirent) => {
            let old_dir = dirent.parent_ref.dir.inode();
            Lockable::name(old_dir, sb.hash(old_dir.ino, dirent.name.as_bytes()))?.key
        }
        None => key,
    };
    let _names = namespace.names.lock(&[key, old_key]);
    let leads_here = |dir, name: &[u8]| match backing.lookup_one(dir, name) {
        Err(Error::NoEntry | Error::Stale) => Ok::<_, Error>(false),
        answer => Ok(answer?.is_some_and(|attr| attr.ino == moved.inode().ino)),
    };
    if !leads_here(inode.ino, name)? {
        return Ok(());
    }
    if let Some(dirent) = &old
        && leads_here(old_ino(dirent), dirent.name.as_bytes())?
    {
        // Either the directory was moved back between the two answers, or the cache has dropped the
        // name at this place. In the second case the entry does not show it.
        let shown = {
            let guard = pin();
            dirent.value.load(&guard).is_some_and(|shown| shown.ptr_eq(moved.as_shared()))
        };
        if shown {
            // Or it has two places, which no directory can have.
            return if leads_here(inode.ino, name)? { Err(Error::Stale) } else { Ok(()) };
        }
    }
    let mut seq = namespace.rename_seq.lock();
    let _moving = seq.write();
    let guard = pin();
    let still = moved.place.load(&guard);
    let unmoved = match (&old, still) {
        (Some(old), Some(still)) => still.ptr_eq(old.as_shared()),
        (None, None) => true,
        _ => false,
    };
    if !unmoved || directory.dirent(hash, name, &guard).is_some() {
        return Ok(());
    }
    let mut up = Some(dir.as_shared());
    while let Some(above) = up {
        if above.ptr_eq(moved.as_shared()) {
            // The cached places above are even older.
            return Err(Error::Stale);
        }
        up = above.to_ref().parent(&guard);
    }
    if let Some(dirent) = still
        && dirent.to_ref().value.load(&guard).is_some_and(|shown| shown.ptr_eq(moved.as_shared()))
    {
        unbind(dirent.to_ref().parent_dir().to_ref().directory()?, dirent, &guard);
    }
    bind_loaded(dir, directory, hash, name, moved.clone(), &guard)
}
