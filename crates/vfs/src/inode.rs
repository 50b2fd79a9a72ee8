//! The inode: what a file *is*, whatever its names.
//!
//! | field | guarded by |
//! | --- | --- |
//! | `ino`, `birth`, `btime`, `body`'s kind, a symlink's target | immutable |
//! | `perm` | atomic pointer to an immutable record: whole for every reader (P11) |
//! | `links` | one atomic word (protocol 6) |
//! | `size` | written under the data lock, read atomically without it (P6) |
//! | `times` | atomic words, merged by the reader |
//! | contents | `FileState`'s lock |
//! | `xattrs` | an immutable map, replaced under its own lock |

use std::sync::{
    Arc, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering, fence},
};

use pando_sync::{
    AtomicCounted, BiasedRwLock, BlockBox, Counted, Described, Guard, Object, assert_unpinned, counted,
    lock_order::{self, LockClass},
};

use crate::{
    AttrMask, Charge, Error, FileData, FileKind, Layout, NodeAttr, Result, Timestamp,
    directory::{Directory, Line, Subdirs},
    probe::Part,
    superblock::Shard,
    xattr_map::{Xattrs, cost_of},
};

/// Mode, owner and group: one record, changed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PermView {
    /// 07777.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl Object for PermView {}

/// Times set by utimens: they hold until an automatic stamp that is younger than the call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExplicitTimes {
    atime: Option<(i64, i64)>,
    mtime: Option<(i64, i64)>,
}

impl Object for ExplicitTimes {}

/// What an inode holds, by kind.
pub(crate) enum Body {
    File(OnceLock<BlockBox<FileState>>),
    Directory(BlockBox<Directory>),
    Symlink(Box<[u8]>),
    /// A fifo, socket or device node, with its device number.
    Special(u32),
}

/// The contents of a regular file, made when they are first needed. First what is read without the lock: by stat and by
/// seeks, beside whoever reads and writes.
#[repr(C, align(64))]
pub(crate) struct FileState {
    /// Occupied space, in units of 512 bytes: stored by whoever changes the contents, so that stat waits for nobody.
    blocks: AtomicU64,
    /// Where data is; none: everywhere up to the size. Changed with the lock held, read without (P6).
    layout: Described<Layout>,
    /// Whether the driver says so; otherwise `layout` means nothing.
    tracked: bool,
    /// None once the inode is gone. Lock class `Data`: the last in the order. Readers write to it, too, unless they are many.
    contents: Line<BiasedRwLock<Option<Box<dyn FileData>>>>,
}

const _: () = assert!(size_of::<FileState>() == 128);

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
    /// The backing is to hear when nobody uses it any more: it is the one inode of its number.
    adopted: AtomicBool,
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
            adopted: AtomicBool::new(false),
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
            adopted: AtomicBool::new(false),
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

    /// Takes over what somebody else has changed in the backing. `subdirs`: of a directory, as counted before it was asked.
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
            _ => self.links.set(attr.nlink),
        }
        if attr.size != self.size() {
            self.set_size(attr.size);
        }
        self.times.refresh(attr, known, self.striped_stamp(), guard);
    }

    /// The one inode of its number: from now on, the backing is to hear when it goes.
    pub(crate) fn set_adopted(&self, adopted: bool) {
        self.adopted.store(adopted, Ordering::Release);
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
        if driver.backing().is_some() {
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
        if self.shard.sb.driver.backing().is_none() || self.links.count() > 0 {
            self.pay_back_link(self.links.down());
        }
    }

    /// There is one name less than the so many that there were.
    fn pay_back_link(&self, were: u32) {
        if were > 1 && self.shard.sb.driver.backing().is_none() {
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

    /// The size in bytes: one untorn load.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        // Acquire: bytes written before the size grew are seen by whoever sees the size.
        self.size.load(Ordering::Acquire)
    }

    /// Sets the size; the caller holds the data lock exclusively.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// The contents' state, made if need be.
    pub(crate) fn file_state(&self) -> Result<&FileState> {
        match &self.body {
            Body::File(state) => Ok(state.get_or_init(|| {
                let data = self.shard.sb.driver.data(self.ino);
                let blocks = AtomicU64::new(data.blocks());
                let layout = data.layout();
                let tracked = layout.is_some();
                let layout = Described::new(layout.filter(|layout| !layout.is_full(self.size())));
                BlockBox::new(FileState { blocks, layout, tracked, contents: Line(BiasedRwLock::new(Some(data))) })
            })),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// The contents' state, if there are any contents: none where nothing was ever changed. At that instant the file is empty,
    /// whatever its size is by now.
    pub(crate) fn contents(&self) -> Result<Option<&FileState>> {
        match self.file_state_if_any() {
            None if self.shard.sb.driver.backing().is_some() => self.file_state().map(Some),
            found => Ok(found),
        }
    }

    /// The contents' state, if there has ever been any.
    pub(crate) fn file_state_if_any(&self) -> Option<&FileState> {
        match &self.body {
            Body::File(state) => state.get().map(|boxed| &**boxed),
            _ => None,
        }
    }

    /// Where it lies.
    pub(crate) fn parts(&self, parts: &mut Vec<Part>) {
        parts.push(Part::of("Inode.body", &self.body));
        parts.push(Part::of("Inode.perm", &self.perm));
        parts.push(Part::of("Inode.links", &self.links));
        parts.push(Part::of("Inode.size", &self.size));
        parts.push(Part::of("Inode.times", &self.times));
        if let Some(state) = self.file_state_if_any() {
            parts.push(Part::of("FileState", state));
            parts.push(Part::of("FileState.contents (its lock)", &state.contents));
            parts.push(Part::of("FileState.blocks", &state.blocks));
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
            // Nobody does I/O any more (that takes a reference), so nobody holds the lock.
            state.contents.0.write().take();
        }
        let sb = &self.shard.sb;
        sb.driver.release(Charge::Inode);
        // More names than one only where the whole tree goes: they were not taken away one by one.
        if matches!(self.body, Body::Symlink(_)) || self.links.count() > 1 {
            self.pay_back_rest();
        }
        if self.adopted.load(Ordering::Acquire) {
            // Told later: this may run under a guard, and the backing may wait.
            sb.forgotten.lock().unwrap_or_else(PoisonError::into_inner).insert(self.ino);
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
        if driver.backing().is_some() {
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
        if self.has_xattrs() && self.shard.sb.driver.backing().is_none() {
            self.take_xattrs(|name, value| self.shard.sb.driver.release(cost_of(name, value)));
        }
    }
}

/// The link count of anything but a directory: {count, linkable} in one word (protocol 6).
pub(crate) struct Links(AtomicU64);

impl Links {
    /// No name was ever taken away, and the first may be given (`O_TMPFILE` without `O_EXCL`).
    const LINKABLE: u64 = 1 << 63;
    /// As many as ext4 allows would be 65000; tmpfs has no limit but the word.
    const MAX: u64 = u32::MAX as u64;

    fn new(count: u32) -> Self {
        Self(AtomicU64::new(u64::from(count)))
    }

    /// What the backing says.
    fn set(&self, count: u32) {
        self.0.store(u64::from(count), Ordering::Release);
    }

    /// A nameless file may be linked once it is open.
    pub(crate) fn allow(&self) {
        self.0.fetch_or(Self::LINKABLE, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u32 {
        (self.0.load(Ordering::Acquire) & Self::MAX) as u32
    }

    /// One link more, before its name is inserted, if the count is one that will `do`; ENOENT when the last name is gone for
    /// good.
    fn up(&self, will_do: impl Fn(u64) -> bool) -> Result<bool> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if word & Self::MAX == 0 && word & Self::LINKABLE == 0 {
                return Err(Error::NoEntry);
            }
            if word & Self::MAX == Self::MAX {
                return Err(Error::TooManyLinks);
            }
            if !will_do(word & Self::MAX) {
                return Ok(false);
            }
            // LINKABLE stays: whether this becomes a name is not known yet.
            match self.0.compare_exchange_weak(word, word + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(true),
                Err(now) => word = now,
            }
        }
    }

    /// Takes back an [`Links::up`] whose name could not be made: a file that may get its first name still may. Says how many
    /// there were.
    fn undo_up(&self) -> u32 {
        let old = self.0.fetch_sub(1, Ordering::AcqRel) & Self::MAX;
        debug_assert!(old > 0, "a link was taken back that was never counted");
        old as u32
    }

    /// One link less, after its name was removed. There has been a name, so the last one is gone for good. Says how many
    /// there were.
    fn down(&self) -> u32 {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            debug_assert!(word & Self::MAX > 0, "a link was taken away that was never there");
            let new = (word & Self::MAX).saturating_sub(1);
            match self.0.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(old) => return (old & Self::MAX) as u32,
                Err(now) => word = now,
            }
        }
    }
}

/// The times of an inode. Automatic stamps only rise, each above the one before, so that a change is seen whatever the clock
/// says; a time set by utimens holds until the next of them.
pub(crate) struct Times {
    atime: AtomicI64,
    mtime: AtomicI64,
    ctime: AtomicI64,
    btime: i64,
    explicit: AtomicCounted<ExplicitTimes>,
}

impl Times {
    fn new(now: i64) -> Self {
        Self {
            atime: AtomicI64::new(now),
            mtime: AtomicI64::new(now),
            ctime: AtomicI64::new(now),
            btime: now,
            explicit: AtomicCounted::new(None),
        }
    }

    fn loaded(attr: &NodeAttr) -> Self {
        let now = Timestamp::now().0;
        // A time beyond now can only have been set: it holds until the next change, and is nothing to be raised.
        let explicit = |time: Timestamp| (time.0 > now).then_some((time.0, now));
        let (atime, mtime) = (explicit(attr.atime), explicit(attr.mtime));
        let record = (atime.is_some() || mtime.is_some()).then(|| Counted::new(ExplicitTimes { atime, mtime }));
        Self {
            atime: AtomicI64::new(attr.atime.0.min(now)),
            mtime: AtomicI64::new(attr.mtime.0.min(now)),
            ctime: AtomicI64::new(attr.ctime.0),
            btime: attr.btime.0,
            explicit: AtomicCounted::new(record),
        }
    }

    /// The backing's times, as if set by utimens: they hold until a change that is younger than they are. What is `known`
    /// better here stays.
    fn refresh(&self, attr: &NodeAttr, known: AttrMask, striped: i64, guard: &Guard) {
        let unless_known = |time, which| (!known.contains(which)).then_some(time);
        let (atime, mtime) = (unless_known(attr.atime, AttrMask::ATIME), unless_known(attr.mtime, AttrMask::MTIME));
        self.set(guard, atime, mtime, striped, Timestamp::now().0);
        if !known.contains(AttrMask::CTIME) {
            // Relaxed: an independent value.
            self.ctime.store(attr.ctime.0, Ordering::Relaxed);
        }
    }

    /// The contents changed.
    pub(crate) fn modified(&self, now: i64) {
        raise(&self.mtime, now);
        raise(&self.ctime, now);
    }

    /// The attributes changed; says when.
    pub(crate) fn changed(&self, now: i64) -> i64 {
        raise(&self.ctime, now)
    }

    /// The contents were read: writes only if relatime asks for it, and says so.
    /// `striped`: as [`Times::mtime`] has it.
    pub(crate) fn accessed(&self, guard: &Guard, striped: i64, now: impl FnOnce() -> i64) -> bool {
        const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;
        let (atime, mtime, ctime) = (self.atime(guard), self.mtime(guard, striped), self.ctime(striped));
        let now = now();
        // Older than the last change, or than a day.
        let due = atime <= mtime || atime <= ctime || now.saturating_sub(atime) >= DAY_NS;
        if due {
            raise(&self.atime, now);
        }
        due
    }

    pub(crate) fn atime(&self, guard: &Guard) -> i64 {
        merge(self.atime.load(Ordering::Relaxed), self.explicit.load(guard).and_then(|e| e.to_ref().atime))
    }

    /// `striped`: the latest stamp that a directory's stripes hold ([`Inode::striped_stamp`]).
    pub(crate) fn mtime(&self, guard: &Guard, striped: i64) -> i64 {
        let auto = self.mtime.load(Ordering::Relaxed).max(striped);
        merge(auto, self.explicit.load(guard).and_then(|e| e.to_ref().mtime))
    }

    pub(crate) fn ctime(&self, striped: i64) -> i64 {
        self.ctime.load(Ordering::Relaxed).max(striped)
    }

    pub(crate) fn btime(&self) -> i64 {
        self.btime
    }

    /// utimens: `now` is the clock at the call, `striped` as [`Times::mtime`] has it. ctime is another matter.
    pub(crate) fn set(
        &self,
        guard: &Guard,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
        striped: i64,
        now: i64,
    ) {
        // Not before what is stamped by now: the clock may have been set back since.
        let atime_at = now.max(self.atime.load(Ordering::Relaxed));
        let mtime_at = now.max(self.mtime.load(Ordering::Relaxed)).max(striped);
        loop {
            let current = self.explicit.load(guard);
            let old = current.map_or(ExplicitTimes { atime: None, mtime: None }, |e| *e.to_ref());
            let new = ExplicitTimes {
                atime: atime.map(|t| (t.0, atime_at)).or(old.atime),
                mtime: mtime.map(|t| (t.0, mtime_at)).or(old.mtime),
            };
            if self.explicit.compare_exchange(current, Some(Counted::new(new))).is_ok() {
                break;
            }
        }
        // What is stamped next is later than the call, also by a clock that is set back.
        if atime.is_some() {
            self.atime.fetch_max(atime_at, Ordering::Relaxed);
        }
        if mtime.is_some() {
            self.mtime.fetch_max(mtime_at, Ordering::Relaxed);
        }
    }
}

/// `auto` if it is younger than the explicit `(value, set at)`, otherwise the explicit value.
fn merge(auto: i64, explicit: Option<(i64, i64)>) -> i64 {
    match explicit {
        Some((value, set_at)) if auto <= set_at => value,
        _ => auto,
    }
}

/// Raises a stamp to `now`, or by one when the clock has not moved: two changes in a row differ. Says to what.
fn raise(stamp: &AtomicI64, now: i64) -> i64 {
    let mut old = stamp.load(Ordering::Relaxed);
    loop {
        let new = if now > old { now } else { old.saturating_add(1) };
        // Relaxed: an independent value, ordered with nothing.
        match stamp.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return new,
            Err(now) => old = now,
        }
    }
}

impl FileState {
    /// Changes the contents with the data lock held, and publishes what stat shows of them. The caller holds no guard.
    ///
    /// # Errors
    /// Those of `change`; ESTALE when the inode is gone.
    pub(crate) fn change<T>(&self, inode: &Inode, change: impl FnOnce(&mut dyn FileData) -> Result<T>) -> Result<T> {
        assert_unpinned("a file's data");
        let _order = lock_order::enter(LockClass::Data);
        let mut data = counted(LockClass::Data, || self.contents.0.try_write(), || self.contents.0.write());
        let data = data.as_mut().ok_or(Error::Stale)?.as_mut();
        let result = change(data);
        self.blocks.store(data.blocks(), Ordering::Relaxed);
        self.publish(inode.size(), inode.size(), data, || ());
        result
    }

    /// Another size of the file, after its contents were changed to it: where data is changes at the same instant. The
    /// data lock is held exclusively.
    pub(crate) fn resize(&self, inode: &Inode, data: &dyn FileData, size: u64) {
        self.publish(inode.size(), size, data, || inode.set_size(size));
    }

    /// Publishes where data is, if that has changed: not of a file that has no holes and had none.
    fn publish(&self, before: u64, after: u64, data: &dyn FileData, store: impl FnOnce()) {
        let Some(layout) = data.layout() else { return store() };
        let layout = Some(layout).filter(|layout| !layout.is_full(after));
        let unchanged = self.layout.holds(|old| match (old, &layout) {
            (Some(old), Some(new)) => new.is_still(old),
            (None, None) => true,
            _ => false,
        });
        if unchanged { store() } else { self.layout.change(before, after, layout, store) }
    }

    /// The size and where data is, at one instant; none: everywhere. Never waits. `Err` hands `look` back, if the driver does
    /// not say where data is.
    pub(crate) fn seek<T, L>(&self, inode: &Inode, look: L) -> std::result::Result<T, L>
    where
        L: FnOnce(u64, Option<&Layout>) -> T,
    {
        if self.tracked { Ok(self.layout.read(|| inode.size(), look)) } else { Err(look) }
    }

    /// Readers need nothing but a line of their core, until somebody writes: as if many had met here.
    pub(crate) fn favour_readers(&self) {
        self.contents.0.bias();
    }

    /// As [`FileState::look`], unless the contents are being changed.
    pub(crate) fn try_look<T>(&self, look: impl FnOnce(&dyn FileData) -> T) -> Option<T> {
        let data = self.contents.0.try_read()?;
        let _order = lock_order::entered_without_waiting(LockClass::Data);
        data.as_ref().map(|data| look(data.as_ref()))
    }

    /// Looks at the contents with the data lock shared. The caller holds no guard.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&dyn FileData) -> Result<T>) -> Result<T> {
        assert_unpinned("a file's data");
        let _order = lock_order::enter(LockClass::Data);
        let data = counted(LockClass::Data, || self.contents.0.try_read(), || self.contents.0.read());
        look(data.as_ref().ok_or(Error::Stale)?.as_ref())
    }
}

impl Inode {
    /// Occupied space in units of 512 bytes: one load, also beside a write.
    pub(crate) fn blocks(&self) -> u64 {
        match self.file_state_if_any() {
            Some(state) => state.blocks.load(Ordering::Relaxed),
            // Nothing was ever written, or a backing has it, without holes for all we know.
            None if self.shard.sb.driver.backing().is_some() => self.size().div_ceil(512),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_sync::pin;

    use super::*;
    use crate::{
        attr::stat_of,
        driver::tests::Nothing,
        superblock::{NameSpace, SuperBlock},
    };

    /// What was stamped before, by a clock that was ahead, is older than what is set now.
    #[test]
    fn times_are_set_also_when_the_clock_was_set_back() {
        let (times, guard, set) = (Times::new(2000), pin(), |time| Some(Timestamp(time)));
        times.modified(3000);
        times.set(&guard, set(5), set(6), i64::MIN, 1000);
        assert_eq!((times.atime(&guard), times.mtime(&guard, i64::MIN)), (5, 6));
        let striped = 4000;
        times.set(&guard, None, set(7), striped, 1000);
        assert_eq!((times.atime(&guard), times.mtime(&guard, striped)), (5, 7));
        assert_eq!(times.mtime(&guard, striped + 1), striped + 1, "changed since");
    }

    /// Nor does what is changed then stay hidden behind what was set before.
    #[test]
    fn changes_are_seen_also_when_the_clock_was_set_back() {
        let (times, guard) = (Times::new(1000), pin());
        times.set(&guard, Some(Timestamp(5)), Some(Timestamp(6)), i64::MIN, 3000);
        times.modified(2000);
        assert_eq!(times.mtime(&guard, i64::MIN), 3001);
        assert!(times.accessed(&guard, i64::MIN, || 2000));
        assert_eq!(times.atime(&guard), 3001);

        let sb = SuperBlock::new(Box::new(Nothing), Arc::new(NameSpace::new()));
        let (shard, perm) = (Arc::new(Shard::new(sb)), PermView { mode: 0o755, uid: 0, gid: 0 });
        let body = Body::Directory(BlockBox::new(Directory::new()));
        let dir = Inode::new(shard, FileKind::Directory, perm, body, 1, 3000);
        let shown = || {
            let stat = stat_of(&dir, &guard);
            (stat.mtime.0, stat.ctime.0)
        };
        for changes in 1..4 {
            dir.entries_changed(2000);
            assert_eq!(shown(), (3000 + changes, 3000 + changes));
        }
        for changes in 4..6 {
            dir.touch(2000);
            assert_eq!(shown(), (3003, 3000 + changes), "not hidden behind the entries");
        }
        dir.times.set(&guard, None, Some(Timestamp(6)), dir.striped_stamp(), 5000);
        dir.entries_changed(4000);
        assert_eq!(shown(), (5001, 5001));
        dir.times.changed(7000);
        dir.entries_changed(6000);
        assert_eq!(shown(), (6000, 7001));
    }
}
