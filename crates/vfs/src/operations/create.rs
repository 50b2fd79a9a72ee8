//! Making names: mkdir, mknod, symlink, link, and open's O_CREAT and O_TMPFILE.
//!
//! Protocol 2 (create against rmdir): all that can fail comes first; the slot is inserted *pending*, seen by nobody;
//! then the directory's life is looked at. Alive: published, and that store is the instant of the operation. Removed:
//! the slot is taken back, ENOENT.

use std::sync::{Arc, OnceLock};

use pando_sync::{BlockBox, Counted, Guard, Node, OpCell, Shared, Unlinked};

use crate::{
    At, AttrMask, Charge, Context, DentryRef, Driver, Error, FileKind, NodeAttr, Result, Timestamp, Vfs,
    caches::binding::{adopt, change_count, unbind_stale},
    objects::{
        dentry::{Dentry, Slot},
        directory::Directory,
        inode::{Body, Inode},
        lockable::Lockable,
        superblock::{Shard, SuperBlock},
    },
    operations::{
        backed::{check_fresh, find, note_refusal},
        locks::{Locks, in_need_of_space, look, run},
        namei::{lookup, walk, walk_parent},
        parent::Parent,
        permit::may_change,
        step::{Call, Step, Stop},
    },
    trace::{Place, TraceOp},
    types::{
        Access, Walk,
        cred::PermView,
        name::check_path,
        stat::{MODE_BITS, S_ISGID, S_ISVTX, S_IXGRP},
    },
};

/// What is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Make<'a> {
    File,
    Directory,
    Symlink(&'a [u8]),
    /// A fifo, socket or device node, with its device number.
    Special(FileKind, u32),
}

impl Make<'_> {
    fn kind(&self) -> FileKind {
        match self {
            Make::File => FileKind::File,
            Make::Directory => FileKind::Directory,
            Make::Symlink(_) => FileKind::Symlink,
            Make::Special(kind, _) => *kind,
        }
    }

    fn body(&self) -> Body {
        match self {
            Make::File => Body::File(OnceLock::new()),
            Make::Directory => Body::Directory(BlockBox::new(Directory::new())),
            Make::Symlink(target) => Body::Symlink((*target).into()),
            Make::Special(_, rdev) => Body::Special(*rdev),
        }
    }
}

impl Vfs {
    /// Makes a directory (mkdirat).
    ///
    /// # Errors
    /// EEXIST, ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG, ENOSPC.
    #[doc(alias = "mkdirat")]
    pub fn mkdir(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, mode: u32) -> Result<DentryRef> {
        let path = path.as_ref();
        self.traced(TraceOp::Mkdir, (context, at, path), || {
            self.make(context, at, path, Make::Directory, mode & (0o777 | S_ISVTX))
        })
    }

    /// Makes a file, fifo, socket or device node (mknodat). `mode` holds the kind (`S_IF*`; none: a regular file).
    ///
    /// # Errors
    /// As mkdir; EINVAL for another kind, EPERM for a directory, or for a device without the capability.
    #[doc(alias = "mknodat")]
    pub fn mknod(
        &self,
        context: &Context,
        at: At<'_>,
        path: impl AsRef<[u8]>,
        mode: u32,
        rdev: u32,
    ) -> Result<DentryRef> {
        let path = path.as_ref();
        self.traced(TraceOp::Mknod, (context, at, path), || self.mknod_at(context, at, path, mode, rdev))
    }

    fn mknod_at(&self, context: &Context, at: At<'_>, path: &[u8], mode: u32, rdev: u32) -> Result<DentryRef> {
        let make = match FileKind::from_mode(mode).ok_or(Error::Invalid)? {
            FileKind::File => Make::File,
            FileKind::Directory => return Err(Error::NotPermitted),
            FileKind::Symlink => return Err(Error::Invalid),
            kind @ (FileKind::CharDevice | FileKind::BlockDevice) => Make::Special(kind, rdev),
            kind => Make::Special(kind, 0),
        };
        self.make(context, at, path, make, mode & MODE_BITS)
    }

    /// Makes a symbolic link to `target` (symlinkat).
    ///
    /// # Errors
    /// As mkdir; ENOENT for an empty target, ENAMETOOLONG for one of 4096 bytes or more.
    #[doc(alias = "symlinkat")]
    pub fn symlink(
        &self,
        context: &Context,
        target: impl AsRef<[u8]>,
        at: At<'_>,
        path: impl AsRef<[u8]>,
    ) -> Result<DentryRef> {
        let (target, path) = (target.as_ref(), path.as_ref());
        self.traced_two(TraceOp::Symlink, Place::Walk(context, at, path), Place::Text(target), || {
            self.symlink_at(context, target, at, path)
        })
    }

    fn symlink_at(&self, context: &Context, target: &[u8], at: At<'_>, path: &[u8]) -> Result<DentryRef> {
        if target.is_empty() {
            return Err(Error::NoEntry);
        }
        check_path(target)?;
        self.make(context, at, path, Make::Symlink(target), 0o777)
    }

    /// The target of a symbolic link (readlinkat); the link itself is never followed.
    ///
    /// # Errors
    /// EINVAL if it is no symbolic link (ENOENT for an empty path), and those of the walk.
    pub fn readlink(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, flags: Walk) -> Result<Vec<u8>> {
        let path = path.as_ref();
        self.traced(TraceOp::Readlink, (context, at, path), || self.readlink_at(context, at, path, flags))
    }

    fn readlink_at(&self, context: &Context, at: At<'_>, path: &[u8], flags: Walk) -> Result<Vec<u8>> {
        look(self.name_space(), |guard| {
            let dentry = walk(self.name_space(), context, &at, path, flags | Walk::NOFOLLOW, guard)?;
            let inode = dentry.to_ref().inode();
            match &inode.body {
                Body::Symlink(target) => {
                    if !context.read_only && inode.times.accessed(guard, i64::MIN, || Timestamp::now().0) {
                        inode.set_dirty(AttrMask::ATIME);
                    }
                    Ok(target.to_vec())
                }
                _ => Err(if path.is_empty() { Error::NoEntry } else { Error::Invalid }.into()),
            }
        })
    }

    fn make(&self, context: &Context, at: At<'_>, path: &[u8], make: Make<'_>, mode: u32) -> Result<DentryRef> {
        run(self.name_space(), |attempt, locks| {
            let guard = attempt.guard;
            let parent = attempt.parent(0, || walk_parent(self.name_space(), context, &at, path, false, guard))?;
            if parent.slash && !matches!(make, Make::Directory) {
                let taken = lookup(parent.dir, parent.name(Error::Exists)?, guard)?.is_some();
                return Err(Stop::Error(if taken { Error::Exists } else { Error::NoEntry }));
            }
            make_at(context, parent, make, mode, guard, locks).map(DentryRef)
        })
    }

    /// Makes a further name for a file (linkat).
    ///
    /// # Errors
    /// EPERM for a directory, EXDEV across superblocks, EEXIST, ENOENT (also for a file whose last name is gone),
    /// EMLINK from 2^32 names on; otherwise as mkdir.
    #[doc(alias = "linkat")]
    pub fn link(
        &self,
        context: &Context,
        old_at: At<'_>,
        old_path: impl AsRef<[u8]>,
        new_at: At<'_>,
        new_path: impl AsRef<[u8]>,
        flags: Walk,
    ) -> Result<DentryRef> {
        let (old_path, new_path) = (old_path.as_ref(), new_path.as_ref());
        let (old, new) = (Place::Walk(context, old_at, old_path), Place::Walk(context, new_at, new_path));
        self.traced_two(TraceOp::Link, old, new, || {
            let old = self.lookup_at(context, old_at, old_path, flags)?;
            self.link_at(context, &old, new_at, new_path)
        })
    }

    fn link_at(&self, context: &Context, old: &DentryRef, new_at: At<'_>, new_path: &[u8]) -> Result<DentryRef> {
        let inode = old.0.inode();
        run(self.name_space(), |attempt, locks| {
            let guard = attempt.guard;
            let parent =
                attempt.parent(0, || walk_parent(self.name_space(), context, &new_at, new_path, false, guard))?;
            let dir = parent.dir.to_ref().expect_dir()?;
            let name = parent.name(Error::Exists)?;
            let hash = parent.hash_of(name);
            if !locks.answered() {
                check_fresh(parent.dir, dir, dir.directory()?)?;
                if find(parent.dir, hash, name, guard)?.is_some() {
                    return Err(Error::Exists.into());
                }
            }
            if parent.slash {
                return Err(Error::NoEntry.into());
            }
            context.writable()?;
            if !Arc::ptr_eq(&dir.shard.sb, &inode.shard.sb) {
                return Err(Error::CrossDevice.into());
            }
            let sb = &dir.shard.sb;
            let wanted = [Lockable::name(dir, hash)?, Lockable::inode(inode)];
            let backed = sb.driver.backing().is_some();
            locks.names(&wanted[..1 + usize::from(backed)])?;
            if !locks.answered() {
                may_change(context, dir, guard)?;
                sb.expect_open()?;
            }
            if inode.is_dir() {
                return Err(dir.directory()?.refusal(Error::NotPermitted, guard).into());
            }
            if backed {
                if !locks.answered() && inode.links.count() == 0 {
                    return Err(Error::NoEntry.into());
                }
                let told = locks.call(&[parent], || {
                    let (ino, dir, name) = (inode.ino, dir.ino, Box::<[u8]>::from(name));
                    Call::new(sb, move |backing| backing.link(ino, dir, &name).map(|()| 0))
                });
                told.inspect_err(note_refusal(dir.directory()?, hash, name, guard))?;
                unbind_stale(dir.directory()?, hash, name, guard);
            }
            // Counted before the name is there, so the count is never too low (protocol 6).
            // In a removed directory there is no room to ask for.
            inode.link_comes().or_else(|error| Err(dir.directory()?.refusal(error, guard)))?;
            let now = Timestamp::now().0;
            let dentry = Dentry::new_link(Dentry::first(&old.0), if backed { sb.links.next_id() } else { 0 });
            let bound = dir.directory()?.anchor(parent.dir, guard).and_then(|anchor| {
                let slot = Unlinked::new(Slot::new(anchor, name, OpCell::new_pending(dentry.clone())));
                dentry.place.fill(slot.reference());
                bind(dir, (hash, name), slot, &dentry, now, guard)
            });
            if bound.is_err() {
                inode.link_stays_away();
            }
            bound?;
            inode.touch(now);
            if backed {
                sb.links.add(&dentry);
            }
            Ok(DentryRef(dentry))
        })
    }

    /// A file without a name, on the superblock of the directory at `path` (O_TMPFILE).
    pub(crate) fn make_nameless(
        &self,
        context: &Context,
        at: At<'_>,
        path: &[u8],
        flags: Walk,
        mode: u32,
        linkable: bool,
    ) -> Result<DentryRef> {
        let attempt = |guard: &Guard| {
            let dentry = walk(self.name_space(), context, &at, path, flags, guard)?;
            let dir = dentry.to_ref().expect_dir()?;
            let sb = &dir.shard.sb;
            if sb.driver.backing().is_some() {
                return Err(Error::NotSupported.into());
            }
            context.check(dir, &dir.perm(guard), Access::WRITE | Access::EXEC)?;
            let perm = new_perm(context, dir, FileKind::File, mode, guard);
            let shard = sb.shard(guard)?;
            sb.driver.charge(Charge::Inode)?;
            // From here on the inode pays back when it is dropped with its dentry.
            let inode = Inode::new(shard, FileKind::File, perm, Make::File.body(), 0, Timestamp::now().0);
            if linkable {
                inode.links.allow();
            }
            Ok(DentryRef(Counted::new(Dentry::new(inode))))
        };
        in_need_of_space(|| look(self.name_space(), attempt))
    }
}

/// Makes an inode and a name for it in a directory.
pub(crate) fn make_at(
    context: &Context,
    place: Parent<'_>,
    make: Make<'_>,
    mode: u32,
    guard: &Guard,
    locks: &mut Locks<'_>,
) -> Step<Counted<Dentry>> {
    let parent = place.dir.to_ref().expect_dir()?;
    let (sb, name) = (&parent.shard.sb, place.name(Error::Exists)?);
    // Who binds the name from now on is met by the insertion, under the name's lock.
    let hash = expect_free(place, parent, name, guard, locks)?;
    locks.names(&[Lockable::name(parent, hash)?])?;
    if !locks.answered() {
        may_change(context, parent, guard)?;
    }
    match make {
        // A whiteout (character device 0/0) may be made by anybody.
        Make::Special(FileKind::CharDevice, 0) => {}
        Make::Special(FileKind::CharDevice | FileKind::BlockDevice, _) if !context.capable() => {
            return Err(parent.directory()?.refusal(Error::NotPermitted, guard).into());
        }
        _ => {}
    }
    // All that can fail comes before the inode, which only its dentry pays back. In a tree that was taken down, nobody would let
    // go of an anchor.
    let shard = match sb.shard(guard) {
        // What the backing has made comes in: who closes the tree waits for the name's lock.
        Err(_) if locks.answered() => parent.shard.clone(),
        shard => shard?,
    };
    let anchor = match parent.directory()?.anchor(place.dir, guard) {
        // Not removed, but evicted since the walk: another walk finds it again.
        Err(Error::NoEntry) if !parent.directory()?.is_removed(guard) => return Err(Stop::Again),
        anchor => anchor.inspect_err(|_| forget_made(sb, shard.clone(), make, guard, locks))?,
    };
    let fresh = || (new_perm(context, parent, make.kind(), mode, guard), Timestamp::now().0);
    let (perm, now) = locks.made.filter(|_| locks.answered()).unwrap_or_else(fresh);
    let ino = if sb.driver.backing().is_some() {
        locks.made = Some((perm, now));
        Some(make_in_backing(place, parent, (hash, name), || create_call(parent, name, make, perm, now), guard, locks)?)
    } else {
        // From here on nothing is refused but the name itself: it is taken by now, or its directory is removed. The inode pays
        // back when its dentry is let go of.
        charge_for(&*sb.driver, make)?;
        None
    };
    // The slot and what it shows are read together, and mostly go together: one allocation. Both are made where they stay.
    let (slot, place, dentry) = Unlinked::pair(
        || match ino {
            Some(ino) => Dentry::new(new_backed_inode(shard, make, perm, ino, now)),
            None => Dentry::new(Inode::new(shard, make.kind(), perm, make.body(), 1, now)),
        },
        |dentry| Slot::new(anchor, name, OpCell::new_pending(dentry)),
    );
    dentry.place.fill(place);
    let backed = ino.is_some();
    if backed {
        // Before anybody can come to it by its name.
        adopt(sb, &dentry, guard);
    }
    // A backing may have taken its time since.
    let changed = if backed { Timestamp::now().0 } else { now };
    let bound = bind(parent, (hash, name), slot, &dentry, changed, guard);
    if backed && bound.is_err() {
        drop(sb.inodes.leave(&dentry, guard));
    }
    bound?;
    Ok(dentry)
}

/// The hash of a name that shows nothing.
#[inline]
fn expect_free(place: Parent<'_>, parent: &Inode, name: &[u8], guard: &Guard, locks: &Locks<'_>) -> Step<u64> {
    let hash = place.hash_of(name);
    let exists = match place.seen {
        Some(seen) => seen.dentry.is_some(),
        // What the backing has made is not asked for.
        None if locks.answered() => false,
        None => {
            check_fresh(place.dir, parent, parent.directory()?)?;
            find(place.dir, hash, name, guard)?.is_some()
        }
    };
    if exists { Err(Error::Exists.into()) } else { Ok(hash) }
}

/// Has the backing make an inode and its name; its number there.
#[inline]
fn make_in_backing(
    place: Parent<'_>,
    parent: &Inode,
    (hash, name): (u64, &[u8]),
    call: impl FnOnce() -> Call,
    guard: &Guard,
    locks: &mut Locks<'_>,
) -> Step<u64> {
    let directory = parent.directory()?;
    let ino = locks.call(&[place], call).inspect_err(note_refusal(directory, hash, name, guard))?;
    unbind_stale(directory, hash, name, guard);
    Ok(ino)
}

/// What the backing has made, if it has, finds its directory removed: as what was made and goes again, it is paid back, and
/// the backing is to hear that nobody uses it.
#[cold]
fn forget_made(sb: &SuperBlock, shard: Arc<Shard>, make: Make<'_>, guard: &Guard, locks: &Locks<'_>) {
    if let (Some(ino), Some((perm, now))) = (locks.answer(), locks.made) {
        let dentry = Counted::new(Dentry::new(new_backed_inode(shard, make, perm, ino, now)));
        adopt(sb, &dentry, guard);
        drop(sb.inodes.leave(&dentry, guard));
    }
}

/// Tells the backing of a new inode and its name.
fn create_call(parent: &Inode, name: &[u8], make: Make<'_>, perm: PermView, now: i64) -> Call {
    let attr = new_attr(make, perm, now);
    let (dir, name) = (parent.ino, Box::<[u8]>::from(name));
    let sb = parent.shard.sb.clone();
    Call::new(&parent.shard.sb, move |backing| {
        // Paid for before it is made: what a backing has made is not refused afterwards.
        let credit = Credit::take(&*sb.driver, Charge::Inode)?;
        let ino = backing.create(dir, &name, &attr)?;
        credit.keep();
        Ok(ino)
    })
}

/// A new inode's attributes, but for the number.
fn new_attr(make: Make<'_>, perm: PermView, now: i64) -> NodeAttr {
    let target: Box<[u8]> = if let Make::Symlink(target) = make { target.into() } else { Box::default() };
    let now = Timestamp(now);
    NodeAttr {
        ino: 0,
        kind: make.kind(),
        mode: perm.mode,
        uid: perm.uid,
        gid: perm.gid,
        nlink: if matches!(make, Make::Directory) { 2 } else { 1 },
        size: target.len() as u64,
        rdev: if let Make::Special(_, rdev) = make { rdev } else { 0 },
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        target,
    }
}

/// The inode that a backing has just made. It is paid for.
fn new_backed_inode(shard: Arc<Shard>, make: Make<'_>, perm: PermView, ino: u64, now: i64) -> Inode {
    let body = match make {
        Make::Directory => Body::Directory(BlockBox::new(Directory::backed(change_count(&shard.sb, ino), 2))),
        _ => make.body(),
    };
    Inode::loaded(shard, &NodeAttr { ino, ..new_attr(make, perm, now) }, body)
}

/// Puts a slot, in which a new dentry is pending whose place it is, into the directory `parent`. The caller holds the
/// name's lock.
fn bind(
    parent: &Inode,
    (hash, name): (u64, &[u8]),
    slot: Unlinked<Slot>,
    dentry: &Counted<Dentry>,
    now: i64,
    guard: &Guard,
) -> Result<()> {
    let directory = parent.directory()?;
    let is_dir = dentry.is_dir();
    let node = directory.insert(hash, name, slot, guard).inspect_err(|_| drop(dentry.place.replace(None)))?;
    // Counted before it can be seen, so that no removal is counted before its creation.
    directory.count_up(is_dir, guard);
    let creation = node.to_ref().value.creation();
    if directory.life.keep_alive(guard) {
        creation.publish(guard);
        parent.entries_changed(now);
        note_bound(parent, hash, node, guard);
        return Ok(());
    }
    let Some(_taken_back) = creation.retract() else {
        // Whoever tried to remove the directory published it for us: then it has been there.
        parent.entries_changed(now);
        note_bound(parent, hash, node, guard);
        return Ok(());
    };
    drop(dentry.place.replace(None));
    directory.remove(node, guard);
    directory.count_down(is_dir, guard);
    directory.detach();
    Err(Error::NoEntry)
}

/// A name of a directory is there: a backed one no longer remembers that it is not. The caller holds the name's lock.
fn note_bound(parent: &Inode, hash: u64, slot: Shared<'_, Node<Slot>>, guard: &Guard) {
    if let Some(backed) = parent.backed_dir() {
        backed.note_present(hash, slot.to_ref().name.as_bytes(), guard);
        parent.set_dirty(AttrMask::MTIME | AttrMask::CTIME);
    }
}

/// Owner and mode of a new inode in `parent`: the mode cut by the umask, the group by the setgid rules.
fn new_perm(context: &Context, parent: &Inode, kind: FileKind, mode: u32, guard: &Guard) -> PermView {
    let dir_perm = parent.perm(guard);
    let (asked, mut mode) = (mode, mode & if kind == FileKind::Symlink { 0o777 } else { !context.umask });
    let mut gid = context.cred.gid;
    if dir_perm.mode & S_ISGID != 0 {
        gid = dir_perm.gid;
        if kind == FileKind::Directory {
            mode |= S_ISGID;
        } else if asked & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP && !context.capable() && !context.cred.in_group(gid)
        {
            mode &= !S_ISGID;
        }
    }
    PermView { mode, uid: context.cred.uid, gid }
}

/// Pays for an inode of a tree in memory: its dentry gives it back.
fn charge_for(driver: &dyn Driver, make: Make<'_>) -> Result<()> {
    let Make::Symlink(target) = make else { return driver.charge(Charge::Inode) };
    let credit = Credit::take(driver, Charge::Inode)?;
    driver.charge(Charge::Target(target.len()))?;
    credit.keep();
    Ok(())
}

/// What was paid for, until it is known to be used: otherwise it is given back, also if the driver panics meanwhile.
struct Credit<'d> {
    driver: &'d dyn Driver,
    what: Charge,
}

impl<'d> Credit<'d> {
    fn take(driver: &'d dyn Driver, what: Charge) -> Result<Self> {
        driver.charge(what)?;
        Ok(Self { driver, what })
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Credit<'_> {
    fn drop(&mut self) {
        self.driver.release(self.what);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::{Credentials, driver::tests::Counting, operations::namei::look_at};

    /// Who finds at last that others have made the name, and then does nothing more: what he has paid for is given back, not
    /// held by what was to show it, which waits for readers.
    #[test]
    fn who_comes_second_has_nothing_left() {
        let paid = Arc::new(Counting::default());
        let vfs = Vfs::new(paid.clone()).expect("a tree");
        let context = Context::new(&vfs, Credentials::root());
        for (name, make) in [("f", Make::File), ("d", Make::Directory), ("s", Make::Symlink(b"target"))] {
            let result = run(vfs.name_space(), |attempt, locks| {
                let guard = attempt.guard;
                let mut place = walk_parent(vfs.name_space(), &context, &At::Cwd, name.as_bytes(), false, guard)?;
                let hash = place.hash_of(name.as_bytes());
                place.seen = Some(look_at(place.dir, (name.as_bytes(), hash), guard)?);
                vfs.mkdir(&context, At::Cwd, name, 0o755)?;
                let before = paid.0.load(SeqCst);
                let made = make_at(&context, place, make, 0o644, guard, locks).map(drop);
                assert_eq!(paid.0.load(SeqCst), before, "{name}");
                made
            });
            assert_eq!(result, Err(Error::Exists));
        }
    }

    /// The same of a further link, which holds its inode.
    #[test]
    fn a_link_that_comes_second_is_dead() {
        let vfs = Vfs::new(Counting::default()).expect("a tree");
        let context = Context::new(&vfs, Credentials::root());
        let file = vfs.mknod(&context, At::Cwd, "f", 0o644, 0).expect("made");
        let (root, guard) = (vfs.root(), pando_sync::pin());
        let parent = root.0.inode();
        let link = Dentry::new_link(file.0.clone(), 0);
        let seen = link.share(&guard);
        let anchor = parent.directory().and_then(|dir| dir.anchor(root.0.as_shared(), &guard)).expect("a directory");
        let slot = Unlinked::new(Slot::new(anchor, b"f", OpCell::new_pending(link.clone())));
        link.place.fill(slot.reference());
        let hash = parent.shard.sb.hash(parent.ino, b"f");
        assert_eq!(bind(parent, (hash, b"f"), slot, &link, 0, &guard), Err(Error::Exists));
        drop(link);
        assert!(seen.get().is_none());
    }
}
