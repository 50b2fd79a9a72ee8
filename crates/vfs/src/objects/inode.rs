//! The inode: what a file *is*, whatever its names.
//!
//! | field | guarded by |
//! | --- | --- |
//! | `ino`, `kind`, `shard`, `birth`, `backed`, `body`'s kind, a symlink's target | immutable |
//! | `perm` | atomic pointer to an immutable record: whole for every reader (P11) |
//! | `links` | one atomic word (protocol 6): `links` |
//! | `size` | written under the data lock, read atomically without it (P6) |
//! | `times` | atomic words, merged by the reader; `btime` is immutable: `times` |
//! | `dirty` | atomic bits; a fence on either side orders them with what they tell of |
//! | `flags` | atomic: independent bits |
//! | a file's contents | made once; then `file_state` |
//! | `xattrs` | an immutable map, replaced under its own lock |

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU8, AtomicU64, Ordering, fence},
};

use pando_sync::{AtomicCounted, BlockBox, Counted, Guard, lock};

use crate::{
    AttrMask, Charge, Error, FileKind, NodeAttr, Result,
    objects::{
        backed_dir::BackedDir,
        directory::{Directory, Subdirs},
        file_state::FileState,
        links::Links,
        superblock::Shard,
        times::Times,
        xattr_map::{Xattrs, cost_of},
    },
    types::{cred::PermView, part::Part},
};

/// What an inode holds, by kind.
pub(crate) enum Body {
    File(OnceLock<BlockBox<FileState>>),
    Directory(BlockBox<Directory>),
    Symlink(Box<[u8]>),
    /// A fifo, socket or device node, with its device number.
    Special(u32),
}

/// The backing is to hear when nobody uses the inode any more: it is the one of its number.
const ADOPTED: u8 = 1;
/// In memory: capabilities were given to it at some time.
const CAPABLE: u8 = 2;
/// In memory: its number was handed out at some time.
const NUMBERED: u8 = 4;

/// The inode: first what a walk through it reads, then what stat reads besides.
#[repr(C)]
pub(crate) struct Inode {
    pub body: Body,
    pub shard: Arc<Shard>,
    pub ino: u64,
    perm: AtomicCounted<PermView>,
    /// What it was made with; in force until `perm` holds a record.
    birth: PermView,
    pub kind: FileKind,
    /// Whether a backing knows it.
    backed: bool,
    /// What the backing does not know yet ([`AttrMask`]): stored before an eviction, and by fsync.
    dirty: AtomicU8,
    /// [`ADOPTED`], [`CAPABLE`], [`NUMBERED`].
    flags: AtomicU8,
    pub links: Links,
    size: AtomicU64,
    pub times: Times,
    /// None until they are wanted. Once there, they stay.
    pub xattrs: AtomicCounted<Xattrs>,
}

// There are millions of them. A walk reads the first line, and stat the second besides.
const _: () = assert!(size_of::<Inode>() <= 128);
const _: () = assert!(std::mem::offset_of!(Inode, links) == 64 && std::mem::offset_of!(Inode, xattrs) <= 128);

impl Inode {
    pub(crate) fn new(shard: Arc<Shard>, kind: FileKind, perm: PermView, body: Body, nlink: u32, now: i64) -> Self {
        let size = match &body {
            Body::Symlink(target) => target.len() as u64,
            _ => 0,
        };
        Self {
            ino: shard.next_ino(),
            kind,
            backed: false,
            dirty: AtomicU8::new(0),
            flags: AtomicU8::new(0),
            birth: perm,
            perm: AtomicCounted::new(None),
            links: Links::new(nlink),
            size: AtomicU64::new(size),
            times: Times::new(now),
            body,
            xattrs: AtomicCounted::new(None),
            shard,
        }
    }

    /// An inode that a backing knows.
    pub(crate) fn loaded(shard: Arc<Shard>, attr: &NodeAttr, body: Body) -> Self {
        Self {
            ino: attr.ino,
            kind: attr.kind,
            backed: true,
            dirty: AtomicU8::new(0),
            flags: AtomicU8::new(0),
            birth: PermView { mode: attr.mode, uid: attr.uid, gid: attr.gid },
            perm: AtomicCounted::new(None),
            links: Links::new(attr.nlink),
            size: AtomicU64::new(attr.size),
            times: Times::loaded(attr),
            body,
            xattrs: AtomicCounted::new(None),
            shard,
        }
    }

    /// Takes over what somebody else has changed in the backing, but for the size, which a file has together with its layout
    /// ([`FileState::resize`]). `subdirs`: of a directory, as counted when it was asked, if it is known that it counted the same.
    pub(crate) fn refresh(&self, attr: &NodeAttr, subdirs: Option<Subdirs>, guard: &Guard) {
        // A write takes setuid and setgid away at once, and the backing may hear of it later.
        const PRIVILEGES: u32 = 0o6000;
        let known = self.dirty();
        let dropped = if known.contains(AttrMask::MODE) { PRIVILEGES & !self.perm(guard).mode } else { 0 };
        let perm = PermView { mode: attr.mode & !dropped, uid: attr.uid, gid: attr.gid };
        if self.perm(guard) != perm {
            // Infallible: the change never refuses.
            let _ = self.change_perm(guard, |_| Ok(perm));
        }
        match (&self.body, subdirs) {
            (Body::Directory(directory), Some(subdirs)) => directory.set_nlink(attr.nlink, subdirs),
            (Body::Directory(_), None) => {}
            _ => self.links.set(attr.nlink),
        }
        self.times.refresh(attr, known, self.striped_stamp(), guard);
    }

    /// The one inode of its number: from now on, the backing is to hear when it goes.
    pub(crate) fn set_adopted(&self, adopted: bool) {
        if adopted {
            self.flags.fetch_or(ADOPTED, Ordering::Release);
        } else {
            self.flags.fetch_and(!ADOPTED, Ordering::Release);
        }
    }

    /// Its number is about to be handed out.
    pub(crate) fn set_numbered(&self) {
        // SeqCst: with `Links::down`. The thread that removes the last name sees the flag, or its removal is seen afterwards.
        if !self.backed && self.flags.load(Ordering::Relaxed) & NUMBERED == 0 {
            self.flags.fetch_or(NUMBERED, Ordering::SeqCst);
        }
    }

    /// Whether its number was ever handed out, so that its entry must leave with its last name.
    pub(crate) fn was_numbered(&self) -> bool {
        self.flags.load(Ordering::SeqCst) & NUMBERED != 0
    }

    /// Capabilities are about to be given to it, in memory.
    pub(crate) fn set_capable(&self) {
        self.flags.fetch_or(CAPABLE, Ordering::Release);
    }

    /// Whether they ever were.
    pub(crate) fn was_capable(&self) -> bool {
        self.flags.load(Ordering::Acquire) & CAPABLE != 0
    }

    /// The latest stamp that a directory's stripes hold; of anything else none.
    pub(crate) fn striped_stamp(&self) -> i64 {
        self.directory().map_or(i64::MIN, Directory::latest_stamp)
    }

    /// The entries of a directory have changed, as it can be seen by now: mtime and ctime.
    pub(crate) fn entries_changed(&self, now: i64) {
        if let Body::Directory(directory) = &self.body {
            let at = directory.stamp(now, self.times.mtime.load(Ordering::Relaxed));
            if self.times.ctime.load(Ordering::Relaxed) > at {
                self.times.changed(at);
            }
        }
    }

    /// Whether it has no name any more. A root has none either, and is not meant.
    pub(crate) fn is_nameless(&self, guard: &Guard) -> bool {
        match &self.body {
            Body::Directory(directory) => directory.is_removed(guard),
            _ => self.links.count() == 0,
        }
    }

    /// A further name of a file is about to come: counted, and paid for unless it is the first. What is charged for a
    /// file in memory is an inode, and a link for each name that it counts but one; while a count changes, rather more.
    ///
    /// # Errors
    /// ENOENT when the last name is gone for good, EMLINK, ENOSPC.
    pub(crate) fn link_comes(&self) -> Result<()> {
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
            // Refused, or else the first name has come or gone since.
            counted?;
        }
    }

    /// The name that [`Inode::link_comes`] was about could not be made.
    pub(crate) fn link_stays_away(&self) {
        self.pay_back_link(self.links.undo_up());
    }

    /// A name of a file is gone. Others may have taken away some that are not known here.
    pub(crate) fn link_gone(&self) {
        if !self.backed || self.links.count() > 0 {
            self.pay_back_link(self.links.down());
        }
    }

    /// There is one name less than the so many that there were.
    fn pay_back_link(&self, were: u32) {
        if were > 1 && !self.backed {
            self.shard.sb.driver.release(Charge::Link);
        }
    }

    /// Attributes have changed: the change of a name, say. A backing hears of it later.
    pub(crate) fn touch(&self, now: i64) {
        self.stamp(now);
        self.set_dirty(AttrMask::CTIME);
    }

    /// As [`Inode::touch`]; a backing, if there is one, has been told that it was `now`.
    pub(crate) fn touch_as_stored(&self, now: i64) {
        if self.stamp(now) != now {
            self.set_dirty(AttrMask::CTIME);
        }
    }

    /// Stamps a change of attributes, also of a directory whose entries have changed later than `now`; says with what.
    fn stamp(&self, now: i64) -> i64 {
        self.times.changed(now.max(self.striped_stamp().saturating_add(1)))
    }

    /// Says that the cache knows something of this inode that its backing, if there is one, does not.
    pub(crate) fn set_dirty(&self, what: AttrMask) {
        if !self.backed {
            return;
        }
        // With the other one, in `take_dirty`: who takes it for dirty no more sees what is new, or is seen here.
        fence(Ordering::SeqCst);
        if !self.dirty().contains(what) {
            self.dirty.fetch_or(what.bits(), Ordering::Release);
        }
    }

    /// What the cache knows better than the backing.
    pub(crate) fn dirty(&self) -> AttrMask {
        AttrMask::from_bits_retain(self.dirty.load(Ordering::Acquire))
    }

    /// Which of these were dirty; they are clean from here on.
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

    /// Whether it is of a tree with a backing.
    pub(crate) fn is_backed(&self) -> bool {
        self.backed
    }

    /// What a directory of a backed tree has besides; none for all else.
    pub(crate) fn backed_dir(&self) -> Option<&BackedDir> {
        self.directory().ok()?.backed.as_deref()
    }

    /// Mode, owner and group, whole. No write.
    #[inline]
    pub(crate) fn perm(&self, guard: &Guard) -> PermView {
        match self.perm.load(guard) {
            None => self.birth,
            Some(record) => *record.to_ref(),
        }
    }

    /// Changes mode, owner and group in one step; `change` may run more than once.
    pub(crate) fn change_perm(
        &self,
        guard: &Guard,
        mut change: impl FnMut(PermView) -> Result<PermView>,
    ) -> Result<()> {
        loop {
            let now = self.perm.load(guard);
            let new = change(now.map_or(self.birth, |record| *record.to_ref()))?;
            if self.perm.compare_exchange(now, Some(Counted::new(new))).is_ok() {
                return Ok(());
            }
        }
    }

    /// Whether extended attributes are cached.
    pub(crate) fn has_xattrs(&self) -> bool {
        !self.xattrs.is_none()
    }

    /// The size in bytes: one untorn load.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        // Acquire: bytes written before the size grew are seen by whoever sees the size.
        self.size.load(Ordering::Acquire)
    }

    /// Sets the size. Of a file: by [`FileState::resize`], with the data lock held exclusively.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// Where it lies.
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
            self.xattrs
                .load(&pando_sync::pin())
                .map(|xattrs| Part::of("Xattrs (the lock, and where the map is)", xattrs.to_ref())),
        );
    }

    /// The last reference is gone: gives back what must be exact at once.
    pub(crate) fn last_put(&self) {
        if let Some(state) = self.file_state_if_any() {
            state.last_put();
        }
        let sb = &self.shard.sb;
        sb.driver.release(Charge::Inode);
        // More names than one only where the whole tree goes: they were not taken away one by one.
        if matches!(self.body, Body::Symlink(_)) || self.links.count() > 1 {
            self.pay_back_rest();
        }
        if self.flags.load(Ordering::Acquire) & ADOPTED != 0 {
            // Told later: this may run under a guard, and the backing may wait.
            lock(&sb.forgotten).insert(self.ino);
        }
    }

    /// How long a symbolic link's target is.
    pub(crate) fn target_len(&self) -> usize {
        if let Body::Symlink(target) = &self.body { target.len() } else { 0 }
    }

    /// What an inode in memory was charged for besides itself, but for its attributes.
    #[cold]
    fn pay_back_rest(&self) {
        let driver = &self.shard.sb.driver;
        if self.backed {
            return;
        }
        if let Body::Symlink(target) = &self.body {
            driver.release(Charge::Target(target.len()));
        }
        (1..self.links.count()).for_each(|_| driver.release(Charge::Link));
    }
}

impl Drop for Inode {
    /// Attributes are paid back now: until here somebody may have set one, who had found the inode before its last reference
    /// was put.
    fn drop(&mut self) {
        if self.has_xattrs()
            && !self.backed
            && let Some(xattrs) = self.xattrs.swap(None)
        {
            xattrs.take(|name, value| self.shard.sb.driver.release(cost_of(name, value)));
        }
    }
}
