//! The inode: the file itself, independent of its names.
//!
//! | field | guarded by |
//! | --- | --- |
//! | `ino`, `kind`, `shard`, `initial_perm`, `backed`, `body`'s kind, link target | immutable |
//! | `perm` | atomic pointer to an immutable record: whole for every reader (P11) |
//! | `links` | one atomic word (protocol 6): `links` |
//! | `size` | written under the data lock, read atomically without it (P6) |
//! | `times` | atomic words, merged by the reader; `btime` is immutable: `times` |
//! | `dirty` | atomic bits; fences order them with the attributes that they stand for |
//! | `flags` | atomic: independent bits |
//! | a file's contents | allocated once; then `file_state` |
//! | `xattrs` | pointer set once; then an immutable map, replaced as a whole: `xattr_map` |

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU8, AtomicU64, Ordering, fence},
};

use pando_sync::{AtomicCounted, BlockBox, Guard, Object, pin};

use crate::{
    AttrMask, Charge, Error, FileKind, NodeAttr, Result,
    objects::{
        backed_dir::BackedDir,
        directory::{Directory, Subdirs},
        file_state::FileState,
        links::Links,
        permissions::{Record, permissions_of},
        stored_blocks::StoredBlocks,
        superblock::Shard,
        times::Times,
        xattr_map::{Xattrs, cost_of},
    },
    types::{
        cred::{PermView, Permissions, PermissionsRef},
        part::Part,
    },
};

/// The part of an inode that depends on its type.
pub(crate) enum Body {
    File(OnceLock<BlockBox<FileState>>, StoredBlocks),
    Directory(BlockBox<Directory>),
    Symlink(Box<[u8]>, StoredBlocks),
    /// A fifo, socket or device node, with its device number.
    Special(u32, StoredBlocks),
}

/// The times of changes, which a store may stamp itself.
pub(crate) const CHANGE_TIMES: AttrMask = AttrMask::MTIME.union(AttrMask::CTIME);

/// The inode cache has this inode under its number. When the inode is released, the backing must be
/// told to forget the number.
const ADOPTED: u8 = 1;
/// In memory only: the inode has, or once had, file capabilities.
const CAPABLE: u8 = 2;
/// With a backing only: a read-ahead has loaded the inode, and no walk or listing has found it yet.
const AHEAD: u8 = 2;
/// In memory only: the inode's number was handed out to a server at some time.
const NUMBERED: u8 = 4;
/// With a backing only: a walk has found the inode in the cache, or an eviction has left it alone.
const USED: u8 = 4;
/// With a backing only: others have changed the inode since its attributes were requested.
const REPORTED: u8 = 8;
/// With a backing only: the attributes are being requested, because others have changed the inode.
const REPORT_TAKEN: u8 = 16;
/// With a backing that stamps times only: the attributes are being requested, because it has
/// stamped times.
const TIMES_TAKEN: u8 = 32;
/// With a backing only: attributes are being stored.
const STORING: u8 = 64;
/// With a backing only: a walk has found the inode in the cache again, since an eviction last
/// looked at it. Analogous to `I_REFERENCED`.
const REFERENCED: u8 = 128;

/// The inode. The first cache line has the fields that a path walk reads; stat also reads the
/// second.
#[repr(C)]
pub(crate) struct Inode {
    pub body: Body,
    pub shard: Arc<Shard>,
    pub ino: u64,
    perm: Record,
    /// Mode, owner and group at creation. In force until `perm` holds a record. Immutable.
    initial_perm: PermView,
    pub kind: FileKind,
    /// Whether the inode is in a tree with a backing. Immutable.
    backed: bool,
    /// The attributes that have changed here ([`AttrMask`]) and that the backing may not know yet.
    /// They are stored before an eviction and by fsync. If the store stamps times itself, times are
    /// not stored. They are read again instead. A thread that does either takes the bits before it
    /// calls the backing, and sets a flag before that.
    dirty: AtomicU8,
    /// [`ADOPTED`], [`CAPABLE`] or [`AHEAD`], [`NUMBERED`] or [`USED`], [`REFERENCED`],
    /// [`REPORTED`], and [`REPORT_TAKEN`], [`TIMES_TAKEN`], [`STORING`] for a thread that has taken
    /// bits and is calling the backing. Atomic bits.
    flags: AtomicU8,
    pub links: Links,
    size: AtomicU64,
    pub times: Times,
    /// None until the first use. Set once, by compare-and-swap.
    pub xattrs: AtomicCounted<Xattrs>,
}

// There are millions of inodes. A walk reads the first line; stat also reads the second.
const _: () = assert!(size_of::<Inode>() <= 128);
const _: () = assert!(std::mem::offset_of!(Inode, links) == 64 && std::mem::offset_of!(Inode, xattrs) <= 128);

impl Inode {
    #[inline(always)]
    pub(crate) fn new(shard: Arc<Shard>, kind: FileKind, perm: Permissions, body: Body, nlink: u32, now: i64) -> Self {
        let size = match &body {
            Body::Symlink(target, _) => target.len() as u64,
            _ => 0,
        };
        Self {
            ino: shard.next_ino(),
            kind,
            backed: false,
            dirty: AtomicU8::new(0),
            flags: AtomicU8::new(0),
            initial_perm: perm.perm,
            perm: Record::new(perm),
            links: Links::new(nlink),
            size: AtomicU64::new(size),
            times: Times::new(now),
            body,
            xattrs: AtomicCounted::new(None),
            shard,
        }
    }

    /// An inode that was loaded from a backing.
    pub(crate) fn loaded(shard: Arc<Shard>, attr: &NodeAttr, body: Body) -> Self {
        let permissions = permissions_of(attr);
        let inode = Self {
            ino: attr.ino,
            kind: attr.kind,
            backed: true,
            dirty: AtomicU8::new(0),
            flags: AtomicU8::new(0),
            initial_perm: permissions.perm,
            perm: Record::new(permissions),
            links: Links::new(attr.nlink),
            size: AtomicU64::new(attr.size),
            times: Times::loaded(attr),
            body,
            xattrs: AtomicCounted::new(None),
            shard,
        };
        inode.set_stored_blocks(attr.blocks);
        inode.shard.sb.inodes.count_extra(0, inode.target_len() + permissions_of(attr).held_bytes());
        inode
    }

    /// Applies changes that others have made in the backing. The size is not among them: the size
    /// of a file changes together with its layout ([`FileState::resize`]). `subdirs` is the
    /// directory's own count from the time of the request, if that count is known to match the
    /// answer.
    pub(crate) fn refresh(&self, attr: &NodeAttr, subdirs: Option<Subdirs>, guard: &Guard) {
        // A write drops setuid and setgid at once. The backing may learn that later.
        let known = self.dirty();
        let dropped = if known.contains(AttrMask::MODE) { 0o6000 & !self.perm(guard).mode } else { 0 };
        let mut permissions = permissions_of(attr);
        permissions.perm.mode &= !dropped;
        if self.permissions(guard) != (&permissions).into() {
            // Infallible: this change returns no error.
            let _ = self.change_permissions(guard, |_| Ok(permissions.clone()));
        }
        match (&self.body, subdirs) {
            (Body::Directory(directory), Some(subdirs)) => directory.set_nlink(attr.nlink, subdirs),
            (Body::Directory(_), None) => {}
            _ => self.links.set(attr.nlink),
        }
        self.set_stored_blocks(attr.blocks);
        self.times.refresh(attr, known, self.striped_stamp(), guard);
    }

    /// Marks the inode as the one in the inode cache. If it is, the backing is told to forget the
    /// number when the inode is released.
    pub(crate) fn set_adopted(&self, adopted: bool) {
        if adopted {
            self.flags.fetch_or(ADOPTED, Ordering::Release);
        } else {
            self.flags.fetch_and(!ADOPTED, Ordering::Release);
        }
    }

    /// Called before the inode's number is handed out.
    pub(crate) fn set_numbered(&self) {
        // SeqCst: pairs with `Links::down`. The thread that removes the last name sees the flag, or
        // this thread sees the removal afterwards.
        if !self.backed && self.flags.load(Ordering::Relaxed) & NUMBERED == 0 {
            self.flags.fetch_or(NUMBERED, Ordering::SeqCst);
        }
    }

    /// Whether the number was ever handed out. Then the entry by number must be removed together
    /// with the last name.
    pub(crate) fn has_handed_out_number(&self) -> bool {
        !self.backed && self.flags.load(Ordering::SeqCst) & NUMBERED != 0
    }

    /// A walk has found this inode of a backed tree in the cache. The first time is that of the
    /// walk which has loaded it. Writes only what is not set. Returns whether a read-ahead has
    /// loaded it, and this is its first use.
    pub(crate) fn note_use(&self) -> bool {
        // Relaxed: hints for evictions.
        let flags = self.flags.load(Ordering::Relaxed);
        if flags & REFERENCED != 0 {
            return false;
        }
        self.flags.fetch_or(if flags & USED == 0 { USED } else { REFERENCED }, Ordering::Relaxed);
        self.take_read_ahead()
    }

    /// A read-ahead has loaded the inode.
    pub(crate) fn set_read_ahead(&self) {
        self.flags.fetch_or(AHEAD, Ordering::Relaxed);
    }

    /// Whether a read-ahead has loaded the inode, and nothing has used it so far. False from then
    /// on.
    pub(crate) fn take_read_ahead(&self) -> bool {
        self.backed && self.has_flags(AHEAD) && self.flags.fetch_and(!AHEAD, Ordering::Relaxed) & AHEAD != 0
    }

    /// Whether an eviction should leave the inode alone this time: it was found in the cache again
    /// since the last call, or no walk has found it yet and this is the first call.
    pub(crate) fn take_chance(&self) -> bool {
        let flags = self.flags.load(Ordering::Relaxed);
        if flags & REFERENCED != 0 {
            self.flags.fetch_and(!REFERENCED, Ordering::Relaxed);
        } else if flags & USED == 0 {
            self.flags.fetch_or(USED, Ordering::Relaxed);
        } else {
            return false;
        }
        true
    }

    /// Called before capabilities are set on a file in memory.
    pub(crate) fn set_capable(&self) {
        self.flags.fetch_or(CAPABLE, Ordering::Release);
    }

    /// Whether capabilities were ever set.
    pub(crate) fn was_capable(&self) -> bool {
        !self.backed && self.flags.load(Ordering::Acquire) & CAPABLE != 0
    }

    /// The latest stamp of a directory's stripes. The smallest value for any other inode.
    pub(crate) fn striped_stamp(&self) -> i64 {
        self.directory().map_or(i64::MIN, Directory::latest_stamp)
    }

    /// Stamps mtime and ctime of a directory after a change of its entries has become visible.
    pub(crate) fn entries_changed(&self, now: i64) {
        if self.is_stamped_elsewhere() {
            return;
        }
        if let Body::Directory(directory) = &self.body {
            let at = directory.stamp(now, self.times.mtime.load(Ordering::Relaxed));
            if self.times.ctime.load(Ordering::Relaxed) > at {
                self.times.changed(at);
            }
        }
    }

    /// Whether the inode has lost its last name. False for a root, although it has no name either.
    pub(crate) fn is_unlinked(&self, guard: &Guard) -> bool {
        match &self.body {
            Body::Directory(directory) => directory.is_removed(guard),
            _ => self.links.count() == 0,
        }
    }

    /// Counts a new name of a file before the name exists, and charges for it unless it is the
    /// first. A file in memory is charged for the inode, and for a link per counted name except
    /// one. While the count changes, the charge may be too high, never too low. Analogous to
    /// `inc_nlink()`.
    ///
    /// # Errors
    /// ENOENT if the last name has been removed for good, EMLINK, ENOSPC.
    pub(crate) fn count_link_up(&self) -> Result<()> {
        let driver = &self.shard.sb.driver;
        if self.backed {
            return self.links.up(|_| true).map(drop);
        }
        loop {
            let further = self.links.count() > 0;
            if further {
                driver.charge(Charge::Link)?;
            }
            let counted = self.links.up(|count| (count > 0) == further);
            if counted == Ok(true) {
                return Ok(());
            }
            if further {
                driver.release(Charge::Link);
            }
            // Refused. Or the first name was created or removed since the count was read.
            counted?;
        }
    }

    /// Undoes [`Inode::count_link_up`] after the name could not be created.
    pub(crate) fn undo_count_link_up(&self) {
        self.release_link_charge(self.links.undo_up());
    }

    /// Counts the removal of a name of a file. The count of a file in a backing may be zero
    /// already, if others have removed names that this cache does not know. Analogous to
    /// `drop_nlink()`.
    pub(crate) fn count_link_down(&self) {
        if !self.backed || self.links.count() > 0 {
            self.release_link_charge(self.links.down());
        }
    }

    /// Gives back the charge for one of `were` names.
    fn release_link_charge(&self, were: u32) {
        if were > 1 && !self.backed {
            self.shard.sb.driver.release(Charge::Link);
        }
    }

    /// Stamps ctime, for example after a name of the inode was changed. A backing is told later.
    pub(crate) fn touch(&self, now: i64) {
        self.stamp(now);
        self.set_dirty(AttrMask::CTIME);
    }

    /// As [`Inode::touch`], but the backing, if there is one, has already been told that ctime is
    /// `now`.
    pub(crate) fn touch_as_stored(&self, now: i64) {
        if self.stamp(now) != now {
            self.set_dirty(AttrMask::CTIME);
        }
    }

    /// Stamps a change of the attributes and returns the stamp. For a directory the stamp is later
    /// than the latest change of its entries, even if that is later than `now`.
    fn stamp(&self, now: i64) -> i64 {
        self.times.changed(now.max(self.striped_stamp().saturating_add(1)))
    }

    /// Marks attributes as newer than in the backing. No effect in memory.
    pub(crate) fn set_dirty(&self, what: AttrMask) {
        if !self.backed {
            return;
        }
        // Pairs with the fence in `take_dirty`. The thread that clears the bits sees the new
        // values, or this thread sees the bits cleared.
        fence(Ordering::SeqCst);
        if !self.dirty().contains(what) {
            self.dirty.fetch_or(what.bits(), Ordering::Release);
        }
    }

    /// The attributes that are newer here than in the backing.
    pub(crate) fn dirty(&self) -> AttrMask {
        AttrMask::from_bits_retain(self.dirty.load(Ordering::Acquire))
    }

    /// Whether the backing stamps the times.
    fn is_stamped_elsewhere(&self) -> bool {
        self.backed && self.shard.sb.stamped_elsewhere
    }

    /// The attributes that must be stored in the backing. If it stamps times, it must be told of an
    /// access.
    pub(crate) fn unstored(&self) -> AttrMask {
        if self.is_stamped_elsewhere() { self.dirty() - CHANGE_TIMES } else { self.dirty() }
    }

    /// Whether the backing may lack attributes that the cache has.
    pub(crate) fn has_unstored(&self) -> bool {
        // In this order: the thread that takes the dirty bits has set its flag before.
        !self.unstored().is_empty() || self.has_flags(STORING)
    }

    /// Attributes are to be stored. Until the call with false the backing may lack them. The caller
    /// holds the inode's lock.
    pub(crate) fn set_storing(&self, storing: bool) {
        if storing {
            self.flags.fetch_or(STORING, Ordering::Release);
        } else {
            self.flags.fetch_and(!STORING, Ordering::Release);
        }
    }

    /// Whether others have changed the inode, or the backing has stamped times, since the cached
    /// attributes were read. Then they must be read again before they are shown.
    pub(crate) fn is_outdated(&self) -> bool {
        if self.is_stamped_elsewhere() {
            // In this order: the thread that takes the dirty bits has set its flag before.
            let is_dirty = self.dirty().intersects(CHANGE_TIMES | AttrMask::ATIME);
            is_dirty || self.has_flags(REPORTED | REPORT_TAKEN | TIMES_TAKEN | STORING)
        } else {
            self.has_flags(REPORTED | REPORT_TAKEN)
        }
    }

    /// Others have changed the inode in the backing.
    pub(crate) fn set_reported(&self) {
        self.flags.fetch_or(REPORTED, Ordering::Release);
    }

    /// Whether others have changed the inode since the cached attributes were read.
    pub(crate) fn is_reported(&self) -> bool {
        self.has_flags(REPORTED | REPORT_TAKEN)
    }

    fn has_flags(&self, flags: u8) -> bool {
        self.flags.load(Ordering::Acquire) & flags != 0
    }

    /// Takes the dirty bits of times that the backing has stamped. An answer that is requested from
    /// now on has these times. Until [`Inode::end_request`] the inode is outdated. The caller holds
    /// its lock.
    pub(crate) fn take_stamped(&self) -> AttrMask {
        if !self.is_stamped_elsewhere() || !self.dirty().intersects(CHANGE_TIMES) {
            return AttrMask::empty();
        }
        self.flags.fetch_or(TIMES_TAKEN, Ordering::Release);
        self.take_dirty(CHANGE_TIMES)
    }

    /// Takes the mark of a report, if there is one. An answer that is requested from now on has the
    /// reported changes. Until [`Inode::end_request`] the inode is outdated. The caller holds its
    /// lock.
    pub(crate) fn take_reported(&self) -> bool {
        let reported = self.has_flags(REPORTED);
        if reported {
            self.flags.fetch_or(REPORT_TAKEN, Ordering::Release);
            self.flags.fetch_and(!REPORTED, Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
        reported
    }

    /// The answer is in the cache, or what was taken is set again.
    pub(crate) fn end_request(&self) {
        self.flags.fetch_and(!(REPORT_TAKEN | TIMES_TAKEN), Ordering::Release);
    }

    /// Clears these dirty bits and returns the ones that were set.
    pub(crate) fn take_dirty(&self, which: AttrMask) -> AttrMask {
        let taken = self.dirty.fetch_and(!which.bits(), Ordering::AcqRel) & which.bits();
        fence(Ordering::SeqCst);
        AttrMask::from_bits_retain(taken)
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    pub(crate) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(dir) => Ok(dir),
            _ => Err(Error::NotDirectory),
        }
    }

    pub(crate) fn is_backed(&self) -> bool {
        self.backed
    }

    /// The additional state of a directory in a tree with a backing. None for anything else.
    pub(crate) fn backed_dir(&self) -> Option<&BackedDir> {
        self.directory().ok()?.backed.as_deref()
    }

    /// Mode, owner and group as one consistent record. Writes nothing.
    #[inline]
    pub(crate) fn perm(&self, guard: &Guard) -> PermView {
        self.perm.perm(self.initial_perm, guard)
    }

    /// Mode, owner, group, flags and ACLs as one consistent record. Writes nothing.
    #[inline]
    pub(crate) fn permissions<'g>(&'g self, guard: &'g Guard) -> PermissionsRef<'g> {
        self.perm.get(&self.initial_perm, guard)
    }

    /// Changes mode, owner, group, flags and ACLs as one record. `change` may run more than once.
    pub(crate) fn change_permissions(
        &self,
        guard: &Guard,
        change: impl FnMut(Permissions) -> Result<Permissions>,
    ) -> Result<()> {
        let (was, is) = self.perm.change(self.initial_perm, guard, change)?;
        if self.backed {
            self.shard.sb.inodes.count_extra(was, is);
        }
        Ok(())
    }

    /// Counts the bytes of the cached extended attributes for the limit of the inode cache.
    pub(crate) fn count_xattrs(&self, xattrs: &Xattrs, bytes: usize) {
        let counted = xattrs.counted_bytes.swap(bytes, Ordering::Relaxed);
        self.shard.sb.inodes.count_extra(counted, bytes);
    }

    /// Whether extended attributes are cached.
    pub(crate) fn has_xattrs(&self) -> bool {
        !self.xattrs.is_none()
    }

    /// The size in bytes: one load, never torn.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        // Acquire: a thread that sees the new size sees the bytes that were written before it grew.
        self.size.load(Ordering::Acquire)
    }

    /// Sets the size. For a file only [`FileState::resize`] calls it, with the data lock held
    /// exclusively.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// Appends the parts and their addresses.
    pub(crate) fn parts(&self, parts: &mut Vec<Part>) {
        parts.push(Part::of("Inode.body", &self.body));
        parts.push(Part::of("Inode.perm", &self.perm));
        parts.push(Part::of("Inode.links", &self.links));
        parts.push(Part::of("Inode.size", &self.size));
        parts.push(Part::of("Inode.times", &self.times));
        if let Some(state) = self.file_state_if_any() {
            state.parts(parts);
        }
        parts.extend(
            self.xattrs.load(&pin()).map(|xattrs| Part::of("Xattrs (the lock, and where the map is)", xattrs.to_ref())),
        );
    }

    /// The last reference was put. Releases the resources whose limits must be exact at once.
    pub(crate) fn last_put(&self) {
        if let Some(state) = self.file_state_if_any() {
            state.last_put();
        }
        let sb = &self.shard.sb;
        sb.driver.release(Charge::Inode);
        // The count is above one only if the whole tree was unmounted, because then the names were
        // not removed one by one.
        if matches!(self.body, Body::Symlink(..)) || self.links.count() > 1 {
            self.release_other_charges();
        }
        if self.flags.load(Ordering::Acquire) & ADOPTED != 0 {
            // The backing is told later: this may run under a guard, and the backing may wait.
            sb.forgets.add(self.ino);
            sb.forgets.leave_to_others(self.ino);
        }
    }

    /// The length of a symbolic link's target, in bytes.
    pub(crate) fn target_len(&self) -> usize {
        if let Body::Symlink(target, _) = &self.body { target.len() } else { 0 }
    }

    /// Gives back the charges of an inode in memory other than the one for the inode itself and
    /// those for extended attributes and ACLs.
    #[cold]
    fn release_other_charges(&self) {
        let driver = &self.shard.sb.driver;
        if self.backed {
            return;
        }
        if let Body::Symlink(target, _) = &self.body {
            driver.release(Charge::Target(target.len()));
        }
        (1..self.links.count()).for_each(|_| driver.release(Charge::Link));
    }
}

impl Drop for Inode {
    /// Gives back the charges for extended attributes and ACLs. It cannot happen earlier: a thread
    /// that had found the inode before its last reference was put may have set one until now.
    fn drop(&mut self) {
        let sb = &self.shard.sb;
        if self.backed {
            sb.inodes.count_extra(self.target_len() + self.perm.take(|_| {}), 0);
        } else {
            self.perm.take(|what| sb.driver.release(what));
        }
        if self.has_xattrs()
            && let Some(xattrs) = self.xattrs.swap(None)
        {
            if self.backed {
                self.count_xattrs(&xattrs, 0);
            } else {
                xattrs.take(|name, value| sb.driver.release(cost_of(name, value.len())));
            }
        }
    }
}
