//! Short cuts into the list: sentinels, the segments they live in, and when there are how many.
//!
//! With `2^bits` buckets, bucket `i` begins at key `i << (64 - bits)`, where its sentinel stands once somebody has
//! wanted it. All sentinels that doubling the buckets adds live in one *segment*, so growing allocates one segment
//! (zeroed, and untouched until used) and publishes a small table of segments; shrinking gives whole segments back.
//! Segment 0 has the first `2^BASE_BITS` buckets, segment `s` those with an odd multiple of `2^-(BASE_BITS + s)`.
//! A sentinel's `next` is what the writers of a bucket compare and swap. Two sentinels share a cache line: the same
//! number of lines with twice the buckets keeps as many writers apart, and halves the walks.
//!
//! A sentinel's life:
//!
//! ```text
//! UNUSED --claim--> LINKING --done--> LINKED --kill--> DEAD, marked, unlinked by the killer
//!    |                 |
//!    +------kill-------+--kill--> DEAD; who was linking it finds out, marks and unlinks it, and releases the segment
//! ```
//!
//! Shrinking publishes the smaller table of segments first and kills then. So whoever loaded the larger table, did so
//! before the kill, and a sentinel that it finds LINKED there was in the list at an instant of its own operation: the
//! start that fact F2 (in `raw`) asks for, although it may be dead by now. A writer that finds its start marked has
//! seen what was published before, loads the table again and gets another start.
//!
//! A sentinel that was killed while it was being linked may still be in the list when its bucket has a new one, of the
//! same key. Which of them stands first is open, so whoever unlinks starts before that key.
//!
//! A segment is held by the table and by each LINKING sentinel that the killer had to leave behind (`holders`); the last
//! to let go retires it, and all its sentinels are unlinked by then.

use crate::tuning::{
    CONTENDED_AFTER, CONTENDED_BITS, DECAY_SAMPLES, GROWTH_BITS, LINKED_TOGETHER, LIST_MAX, SAMPLE_EVERY,
};
use std::{alloc::Layout, ops::RangeInclusive, ptr::NonNull};

use super::{
    SplitTable,
    hint::Hint,
    index::Index,
    raw::{self, Link, Walk},
};
use crate::{
    allocator,
    facade::{AtomicPtr, AtomicUsize, Ordering},
    reclaim::{self, Guard},
};

/// Segment 0 has `2^BASE_BITS` buckets. (Fewer under the model checker, whose worlds are small.)
pub(super) const BASE_BITS: u32 = if cfg!(loom) { 1 } else { 3 };
/// No more buckets than `2^MAX_BITS`.
const MAX_BITS: u32 = 34;
const SEGMENTS: usize = (MAX_BITS - BASE_BITS + 1) as usize;
/// The low bits of a published address, where the bits of indexed buckets are.
const INDEXED: usize = align_of::<Buckets>() - 1;
const _: () = assert!(MAX_BITS as usize <= INDEXED);
/// A table of up to so many buckets, as a power of two, tells at once where its elements lie.
const TOLD_BITS: u32 = 10;

/// A sentinel.
#[repr(C, align(32))]
pub(super) struct Line {
    link: Link,
    state: AtomicUsize,
    #[cfg(not(loom))]
    hint: Hint,
    /// The segment, for the model checker's reclaimer.
    #[cfg(loom)]
    home: *const (),
}

/// Never used; all bits of a line are zero.
const UNUSED: usize = 0;
/// An operation is putting it into the list.
const LINKING: usize = 1;
/// In the list, and a start for walks.
const LINKED: usize = 2;
/// Its segment is being given back.
const DEAD: usize = 3;

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == 32 && size_of::<Segment>() == 64);

impl Line {
    // Acquire: pairs with the release of who linked it, so its key and `next` are there.
    #[inline]
    fn is_linked(&self) -> bool {
        self.state.load(Ordering::Acquire) == LINKED
    }

    /// Where walks go on from here.
    #[inline]
    pub(super) fn next(&self) -> &AtomicPtr<Link> {
        &self.link.next
    }

    /// Where more elements of the bucket lie.
    #[inline]
    #[cfg(not(loom))]
    pub(super) fn hint(&self) -> &Hint {
        &self.hint
    }

    /// The model checker has no caches to warm.
    #[cfg(loom)]
    pub(super) fn hint(&self) -> &Hint {
        static HINT: Hint = Hint::none();
        &HINT
    }
}

/// The head of a segment; its lines follow in the same allocation.
#[repr(C, align(64))]
struct Segment {
    lines: usize,
    /// Who must let go before the segment is retired: the table, and operations that were linking when it was killed.
    holders: AtomicUsize,
}

impl Segment {
    fn layout(lines: usize) -> Option<Layout> {
        Some(Layout::new::<Self>().extend(Layout::array::<Line>(lines).ok()?).ok()?.0)
    }

    /// A segment of unused lines; `None` when memory is short.
    fn allocate(lines: usize) -> Option<*mut Self> {
        let segment = allocator::try_alloc_zeroed(Self::layout(lines)?)?.cast::<Self>().as_ptr();
        // SAFETY: fresh memory of the head's layout.
        unsafe { segment.write(Self { lines, holders: AtomicUsize::new(1) }) };
        // Zeroes are unused lines, except to the model checker, whose atomics are more than a word.
        #[cfg(loom)]
        for i in 0..lines {
            let link = Link { next: AtomicPtr::new(std::ptr::null_mut()), key: crate::facade::AtomicU64::new(0) };
            let line = Line { link, state: AtomicUsize::new(UNUSED), home: segment.cast() };
            // SAFETY: within the allocation, by its layout.
            unsafe { Self::line(segment, i).write(line) };
        }
        Some(segment)
    }

    /// # Safety
    /// `segment` is allocated and has more than `index` lines.
    #[inline]
    unsafe fn line(segment: *mut Self, index: usize) -> *mut Line {
        // SAFETY: the lines follow the head without a gap, as its size is a multiple of their alignment; the caller's bound.
        unsafe { segment.add(1).cast::<Line>().add(index) }
    }

    /// # Safety
    /// `segment` came from `allocate`, and nobody uses it any more.
    unsafe fn free(segment: *mut ()) {
        let segment = segment.cast::<Self>();
        // SAFETY: the caller's contract.
        let lines = unsafe { (*segment).lines };
        #[cfg(loom)]
        for i in 0..lines {
            // SAFETY: initialised by `allocate`, dropped once.
            unsafe { Self::line(segment, i).drop_in_place() };
        }
        let layout = Self::layout(lines).expect("it was allocated with this layout");
        // SAFETY: not null, and as allocated.
        unsafe { allocator::free(NonNull::new_unchecked(segment).cast(), layout) };
    }

    /// # Safety
    /// The caller is one of the holders, each of which releases once; `segment` is in no published table, and the
    /// caller's guard is older than this.
    unsafe fn release(segment: *mut Self) {
        // SAFETY: held by the caller until here.
        let (holders, lines) = unsafe { (&(*segment).holders, (*segment).lines) };
        // AcqRel: the last one out has seen the others' unlinking.
        if holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            let bytes = Self::layout(lines).map_or(0, |l| l.size());
            // SAFETY: no line of it is in the list or in a published table, and the last holder retires it, once.
            unsafe { reclaim::retire(segment.cast(), bytes, Self::free) };
        }
    }
}

/// Fails the model when the sentinel's segment has been reclaimed.
///
/// # Safety
/// `link` is a sentinel's.
#[cfg(loom)]
pub(super) unsafe fn check_access(link: *const Link) {
    // SAFETY: a sentinel's link is the first field of its line; the model frees nothing before its end.
    reclaim::model::check_access(unsafe { (*link.cast::<Line>()).home });
}

/// Where the index of a table was, to ask for a part of it before the table itself is there: [`SplitTable::index_address`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexAddress(*mut Buckets);

impl IndexAddress {
    /// Asks for what the index says of a hash, if there is one. It need not be there any more.
    #[inline]
    pub fn prefetch(self, hash: u64) {
        // SAFETY: it is used for nothing else.
        if let Some(index) = unsafe { Buckets::index(self.0) } {
            index.prefetch(hash);
        }
    }
}

/// A published, immutable table of segments, and behind it the groups of its index, if it has one.
#[repr(C, align(64))]
pub(super) struct Buckets {
    bits: u32,
    /// The bits that contention asked for; zero for none.
    floor: u32,
    /// Samples of an empty table: an independent statistic.
    calm: AtomicUsize,
    segments: [*mut Segment; SEGMENTS],
    /// The model checker notices when it is left, and when it is read before it was published.
    #[cfg(loom)]
    made: loom::alloc::Track<loom::cell::UnsafeCell<()>>,
}

impl Buckets {
    /// How many segments there are.
    fn held(&self) -> &[*mut Segment] {
        &self.segments[..=(self.bits - BASE_BITS) as usize]
    }

    /// Whether elements are indexed: not after contention.
    fn is_indexed(&self) -> bool {
        self.floor == 0
    }

    /// What a table has of it: its address, and in the low bits those of the buckets, if there is an index. So whoever looks for
    /// a group waits for nothing but the table.
    ///
    /// # Safety
    /// It came from `allocate`, and is not freed.
    unsafe fn published(this: *mut Self) -> *mut Self {
        // SAFETY: the caller's.
        let (bits, indexed) = unsafe { ((*this).bits, (*this).is_indexed()) };
        if indexed { this.map_addr(|addr| addr | bits as usize) } else { this }
    }

    /// The address of what was published.
    #[inline]
    fn address(published: *mut Self) -> *mut Self {
        published.map_addr(|addr| addr & !INDEXED)
    }

    /// Where elements lie, by what was published. None after contention.
    ///
    /// # Safety
    /// It came from `allocate`, and is not freed as long as the index is used for anything but [`Index::prefetch`].
    #[inline]
    unsafe fn index<'g>(published: *mut Self) -> Option<Index<'g>> {
        let bits = published.addr() & INDEXED;
        // SAFETY: the groups lie behind without a gap, as this fills lines; the caller's.
        (bits != 0).then(|| unsafe { Index::at(Self::address(published).wrapping_add(1).cast(), bits as u32) })
    }

    /// Its memory, with the groups of the index.
    fn layout(&self) -> Option<Layout> {
        let own = Layout::new::<Self>();
        if !self.is_indexed() {
            return Some(own);
        }
        Some(own.extend(Index::layout(self.bits)?).ok()?.0)
    }

    /// Puts it into memory of its own, with an empty index; none when memory is short.
    fn allocate(self) -> Option<*mut Self> {
        let this = allocator::try_alloc_zeroed(self.layout()?)?.cast::<Self>().as_ptr();
        // SAFETY: memory of the layout, and nobody else's; the groups are zeroes.
        unsafe {
            this.write(self);
            if let Some(index) = Self::index(Self::published(this)) {
                index.make_empty();
            }
        }
        Some(this)
    }

    /// The sentinel from which a walk to `key` begins.
    #[inline]
    pub(super) fn line_before(&self, key: u64) -> Option<&Line> {
        self.linked(self.bucket(key))
    }

    #[inline]
    fn bucket(&self, key: u64) -> usize {
        (key >> (u64::BITS - self.bits)) as usize
    }

    /// Where a bucket begins. (The one behind the last, at zero again.)
    fn key(&self, index: usize) -> u64 {
        (index as u64) << (u64::BITS - self.bits)
    }

    /// Which segment the bucket's sentinel is in, and where there.
    #[inline]
    fn place(&self, index: usize) -> (usize, usize) {
        let doublings = self.bits - BASE_BITS;
        let zeros = index.trailing_zeros().min(doublings);
        let segment = doublings - zeros;
        (segment as usize, index >> (zeros + u32::from(segment != 0)))
    }

    #[inline]
    fn line(&self, index: usize) -> *mut Line {
        let (segment, place) = self.place(index);
        #[cfg(loom)]
        reclaim::model::check_access(self.segments[segment].cast());
        // SAFETY: `place` is within the segment as long as `index < 2^bits`, which `index()` and the loops grant; the
        // table's segments are allocated while the table can be reached, and then for the guards that reached it.
        unsafe { Segment::line(self.segments[segment], place) }
    }

    /// The nearest sentinel at or below `index` among its ancestors (each has one bit less) that is in the list.
    #[inline]
    fn linked(&self, mut index: usize) -> Option<&Line> {
        loop {
            // SAFETY: as for `self.line`: allocated for as long as `self` is.
            let line = unsafe { &*self.line(index) };
            let linked = line.is_linked();
            // Checks the access again, after the load, before which other threads may have run.
            #[cfg(loom)]
            let _ = self.line(index);
            if linked {
                return Some(line);
            }
            if index == 0 {
                return None;
            }
            index &= index - 1;
        }
    }

    /// A successor with `2^bits` buckets and this floor; `None` when memory is short.
    fn resized(old: Option<&Self>, bits: u32, floor: u32) -> Option<*mut Self> {
        let mut segments = [std::ptr::null_mut::<Segment>(); SEGMENTS];
        let held = old.map_or(&[][..], Self::held);
        let wanted = (bits - BASE_BITS) as usize + 1;
        let made = segments.iter_mut().enumerate().take(wanted).all(|(s, segment)| {
            let lines = 1_usize << (BASE_BITS as usize + s.saturating_sub(1));
            *segment = held.get(s).copied().or_else(|| Segment::allocate(lines)).unwrap_or_default();
            !segment.is_null()
        });
        let new = Self {
            bits,
            floor,
            calm: AtomicUsize::new(0),
            segments,
            #[cfg(loom)]
            made: loom::alloc::Track::new(loom::cell::UnsafeCell::new(())),
        };
        let allocated = if made { new.allocate() } else { None };
        if allocated.is_none() {
            for fresh in segments.into_iter().skip(held.len()).filter(|segment| !segment.is_null()) {
                // SAFETY: allocated above and never published.
                unsafe { Segment::free(fresh.cast()) };
            }
        }
        allocated
    }

    /// Bytes of its own, without the segments.
    fn bytes(&self) -> usize {
        self.layout().map_or(0, |layout| layout.size())
    }

    /// # Safety
    /// It came from `allocate`, and nobody uses it any more.
    unsafe fn free(buckets: *mut ()) {
        let buckets = buckets.cast::<Self>();
        // SAFETY: the caller's contract; not null.
        unsafe {
            let layout = (*buckets).layout().expect("it was allocated with this layout");
            if let Some(index) = Self::index(Self::published(buckets)) {
                index.take_apart();
            }
            buckets.drop_in_place();
            allocator::free(NonNull::new_unchecked(buckets).cast(), layout);
        }
    }
}

/// How many bits of buckets a table of `len` elements should have, which has `bits`: a load of one to two after a
/// change (after several, if it has far too few), and none before it has left one quarter to two. Zero means no buckets.
fn wanted(len: usize, bits: u32, floor: u32) -> u32 {
    let buckets = if bits == 0 { 0 } else { 1_usize << bits };
    let due = len > (2 * buckets).max(LIST_MAX) || len < buckets / 4;
    let fitting = match len {
        _ if !due => bits,
        0..=LIST_MAX => 0,
        _ => len.ilog2().clamp(BASE_BITS, MAX_BITS.min(bits.max(BASE_BITS) + GROWTH_BITS)),
    };
    fitting.max(floor)
}

/// The most that contention can ask for: 256 buckets a core (8 KiB), 512 to 4096 in all. Each time that threads go on
/// meeting there are four times as many, so where few meet there are few.
fn most_bits() -> u32 {
    use std::sync::OnceLock;
    static MOST: OnceLock<u32> = OnceLock::new();
    *MOST.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (256 * cores).clamp(512, 4096).ilog2()
    })
}

/// True once in `SAMPLE_EVERY` calls on a thread, so that counting is not itself a contended line.
fn sampled() -> bool {
    std::thread_local!(static CALLS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    // The model checker wants every execution alike.
    cfg!(loom) || CALLS.try_with(|c| c.replace(c.get().wrapping_add(1)).is_multiple_of(SAMPLE_EVERY)).unwrap_or(false)
}

impl<T: Send + Sync + 'static> SplitTable<T> {
    pub(super) fn load_buckets<'g>(&self, guard: &'g Guard) -> Option<&'g Buckets> {
        let buckets = Buckets::address(self.load_published(guard));
        // SAFETY: published, so allocated, and retired only after it was replaced: it waits for the guard.
        unsafe { buckets.as_ref() }
    }

    /// The index of the buckets, of which nothing is read.
    #[inline]
    pub(super) fn load_index<'g>(&self, guard: &'g Guard) -> Option<Index<'g>> {
        // SAFETY: as in `load_buckets`.
        unsafe { Buckets::index(self.load_published(guard)) }
    }

    /// Where the index is now.
    #[inline]
    #[must_use]
    pub fn index_address(&self, guard: &Guard) -> IndexAddress {
        IndexAddress(self.load_published(guard))
    }

    #[inline]
    fn load_published(&self, _guard: &Guard) -> *mut Buckets {
        // Acquire: pairs with the release of who published it.
        let published = self.buckets.load(Ordering::Acquire);
        #[cfg(loom)]
        {
            let buckets = Buckets::address(published);
            reclaim::model::check_access(buckets.cast());
            // SAFETY: as in `load_buckets`.
            unsafe { buckets.as_ref() }.inspect(|b| b.made.get_ref().with(|_| ()));
        }
        published
    }

    /// Where a walk to `key` begins: as near below as a sentinel is linked. Writes nothing.
    #[inline]
    pub(super) fn start<'a>(&'a self, key: u64, guard: &'a Guard) -> &'a AtomicPtr<Link> {
        self.start_line(key, guard).map_or(&self.head, Line::next)
    }

    /// As `start`: the sentinel, or none for the head.
    #[inline]
    pub(super) fn start_line<'a>(&'a self, key: u64, guard: &'a Guard) -> Option<&'a Line> {
        self.load_buckets(guard).and_then(|b| b.line_before(key))
    }

    /// As `start_line`, and links the bucket's sentinel if it was not.
    #[inline]
    pub(super) fn start_or_link<'a>(&'a self, key: u64, guard: &'a Guard) -> Option<&'a Line> {
        let buckets = self.load_buckets(guard)?;
        let index = buckets.bucket(key);
        // SAFETY: as in `Buckets::linked`.
        let line = unsafe { &*buckets.line(index) };
        if !line.is_linked() {
            self.link_buckets_around(buckets, index, guard);
        }
        buckets.linked(index)
    }

    /// Links a bucket's sentinel and its neighbours'. Who only looks links none, and would walk from further away: a
    /// table that grows once more before it is done would keep buckets that nobody inserts into, and longer walks.
    #[cold]
    fn link_buckets_around(&self, buckets: &Buckets, index: usize, guard: &Guard) {
        self.link_bucket(buckets, index, guard);
        let first = index & !(LINKED_TOGETHER - 1);
        let behind = first + LINKED_TOGETHER.min(1 << buckets.bits);
        for neighbour in first..behind {
            self.link_bucket(buckets, neighbour, guard);
        }
        self.tell(buckets.key(first)..=buckets.key(behind).wrapping_sub(1), guard);
    }

    /// Tells the index where the elements of these keys lie.
    fn tell(&self, keys: RangeInclusive<u64>, guard: &Guard) {
        let Some(index) = self.load_index(guard) else { return };
        for element in self.iter_after(keys.start() >> 1, guard) {
            let key = element.to_ref().link.key.load(Ordering::Relaxed);
            if key > *keys.end() {
                break;
            }
            // SAFETY: met in the list under the guard, under which the index was loaded.
            unsafe { index.note_again(key, raw::link_of(element), guard) };
        }
    }

    /// Links a sentinel and, before it, its ancestors (at most `bits` of them), unless others are at it already.
    #[cold]
    fn link_bucket(&self, buckets: &Buckets, index: usize, guard: &Guard) {
        let ptr = buckets.line(index);
        // SAFETY: as in `Buckets::linked`.
        let line = unsafe { &*ptr };
        if line.state.load(Ordering::Relaxed) != UNUSED {
            return;
        }
        if index != 0 {
            self.link_bucket(buckets, index & (index - 1), guard);
        }
        // Relaxed: nothing of the line has been written before.
        if line.state.compare_exchange(UNUSED, LINKING, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let key = buckets.key(index);
        line.link.key.store(key, Ordering::Relaxed);
        loop {
            let start = self.start(key, guard);
            // SAFETY: `start` gives what `walk` asks for.
            let walk = unsafe { raw::walk::<T, std::convert::Infallible>(start, key, guard, |_, _| None) };
            let Walk::Past(spot) = walk else { continue };
            // SAFETY: claimed above, so linked here and nowhere else; killed before its segment is retired.
            if unsafe { spot.link(ptr.cast()) } {
                self.hint_around(buckets, index, guard);
                break;
            }
        }
        // Release: who sees it LINKED sees its link. Acquire: if it is DEAD, the smaller table is published.
        if line.state.compare_exchange(LINKING, LINKED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            let _ = line.link.mark();
            self.unlink(key, guard);
            // SAFETY: the killer counted us as a holder, having taken the segment out of the table.
            unsafe { Segment::release(buckets.segments[buckets.place(index).0]) };
        }
    }

    /// A sentinel was linked: its hints, and those of the bucket before it, which it has cut short.
    fn hint_around(&self, buckets: &Buckets, index: usize, guard: &Guard) {
        if cfg!(loom) {
            return;
        }
        // SAFETY: as in `Buckets::linked`.
        let line = unsafe { &*buckets.line(index) };
        let before = index.checked_sub(1).and_then(|before| buckets.linked(before));
        for line in std::iter::once(line).chain(before) {
            let mut elements = [std::ptr::null_mut(); 3];
            // A marked `next` leads on as well as any other: nothing but hints comes of it.
            let mut here = raw::unmarked(line.link.next.load(Ordering::Acquire));
            for element in &mut elements {
                if here.is_null() {
                    break;
                }
                // SAFETY: read from a link that was met in the list, or is a linked sentinel, under the guard.
                let link = unsafe { raw::met::<T>(here, guard) };
                if link.key.load(Ordering::Relaxed) & 1 == 0 {
                    break;
                }
                *element = here;
                // SAFETY: met just now.
                here = raw::unmarked(unsafe { raw::following::<T>(here, link) });
            }
            line.hint().set(elements[1], elements[2]);
        }
    }

    /// Takes one sentinel of a segment that is no more in the table out of the list, for ever.
    fn kill_bucket(&self, old: &Buckets, index: usize, guard: &Guard) {
        // SAFETY: as in `Buckets::linked`.
        let line = unsafe { &*old.line(index) };
        // SAFETY: the segment is allocated: our guard is older than its retirement.
        let holders = unsafe { &(*old.segments[old.place(index).0]).holders };
        let mut state = line.state.load(Ordering::Acquire);
        loop {
            if state == LINKING {
                // Before the kill: who links may let go right after it. Relaxed: we are a holder ourselves.
                holders.fetch_add(1, Ordering::Relaxed);
            }
            match line.state.compare_exchange(state, DEAD, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => {
                    if state == LINKING {
                        holders.fetch_sub(1, Ordering::Relaxed);
                    }
                    state = now;
                }
            }
        }
        if state == LINKED {
            let _ = line.link.mark();
            self.unlink(old.key(index), guard);
        }
    }

    /// Tells the table what the caller knows, and lets it grow or shrink its buckets if that is due.
    ///
    /// `len` is the number of elements, and may be approximate; `contended` is what [`super::Inserted`] and
    /// [`super::Removed`] reported. Meant to be called after every insertion and removal: mostly it compares a few
    /// numbers. Never waits; one caller resizes at a time, and others go on meanwhile. One call makes 16 buckets of one at
    /// most (128 where there were none).
    ///
    /// Buckets that contention asked for (at most 4096) outlast the contention, and are given back only when the table
    /// is found empty, by some thousands of calls, without more of it: names that come and go in an otherwise empty
    /// directory would else build and tear them down all the time.
    #[inline]
    pub fn adapt(&self, len: usize, contended: bool, guard: &Guard) {
        let buckets = self.load_buckets(guard);
        let (bits, floor) = buckets.map_or((0, 0), |b| (b.bits, b.floor));
        if contended || (len == 0 && floor != 0) || wanted(len, bits, floor) != bits {
            self.adapt_slowly(len, contended, buckets, guard);
        }
    }

    #[cold]
    fn adapt_slowly(&self, len: usize, contended: bool, buckets: Option<&Buckets>, guard: &Guard) {
        let (bits, old_floor) = buckets.map_or((0, 0), |b| (b.bits, b.floor));
        let mut floor = old_floor;
        // Relaxed, all of it: statistics.
        if contended {
            if bits < most_bits() && self.heat.fetch_add(1, Ordering::Relaxed) + 1 >= CONTENDED_AFTER {
                floor = (bits + 2).max(CONTENDED_BITS).min(most_bits());
            }
        } else if len == 0
            && let Some(b) = buckets
            && floor != 0
            && sampled()
            && b.calm.fetch_add(1, Ordering::Relaxed) + 1 >= DECAY_SAMPLES
        {
            floor = 0;
        }
        let bits_wanted = wanted(len, bits, floor);
        if (bits_wanted, floor) != (bits, old_floor) {
            self.resize(buckets, bits_wanted, floor, guard);
        }
    }

    /// Replaces `seen`, if it is still what is published and nobody else is at it.
    pub(super) fn resize(&self, seen: Option<&Buckets>, bits: u32, floor: u32, guard: &Guard) {
        // Acquire and (in `Resizing`) Release: resizes follow each other.
        if self.resizing.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        let _resizing = Resizing(&self.resizing);
        let old = self.load_buckets(guard);
        if old.map(std::ptr::from_ref) != seen.map(std::ptr::from_ref) {
            return;
        }
        let new = match bits {
            0 => None,
            _ => match Buckets::resized(old, bits, floor) {
                Some(new) => Some(new),
                None => return,
            },
        };
        self.heat.store(0, Ordering::Relaxed);
        // SAFETY: just made.
        let describe = |new: *mut Buckets| unsafe { ((*new).held().len(), Buckets::published(new)) };
        let (kept, published) = new.map_or((0, std::ptr::null_mut()), describe);
        let retired = Buckets::address(self.buckets.swap(published, Ordering::AcqRel));
        // What was linked before is not linked again, which would tell of it. (If the table has grown much, sentinels to come
        // will tell of the most.)
        if bits <= TOLD_BITS || bits < old.map_or(0, |old| old.bits) {
            self.tell(0..=u64::MAX, guard);
        }
        let Some(old) = old else { return };
        if old.held().len() > kept {
            // In order of keys, so that the walks are short also where no sentinel is left to start from.
            for index in (0..1 << old.bits).filter(|&i| old.place(i).0 >= kept) {
                self.kill_bucket(old, index, guard);
            }
            for &segment in &old.held()[kept..] {
                // SAFETY: the table was a holder, and has just published a table without it.
                unsafe { Segment::release(segment) };
            }
        }
        // SAFETY: replaced above, by the only thread that resizes; it came from `allocate`.
        unsafe { reclaim::retire(retired.cast(), old.bytes(), Buckets::free) };
    }

    /// Bytes held by sentinels and their tables.
    #[must_use]
    pub fn bucket_bytes(&self) -> usize {
        let guard = reclaim::pin();
        let Some(buckets) = self.load_buckets(&guard) else { return 0 };
        // SAFETY: as in `Buckets::linked`.
        let lines = buckets.held().iter().map(|&s| unsafe { (*s).lines });
        lines.map(|n| Segment::layout(n).map_or(0, |l| l.size())).sum::<usize>() + buckets.bytes()
    }

    /// Frees the buckets: the table is being dropped, and its list is gone.
    pub(super) fn drop_buckets(&mut self) {
        let buckets = Buckets::address(self.buckets.swap(std::ptr::null_mut(), Ordering::Relaxed));
        if buckets.is_null() {
            return;
        }
        // SAFETY: published, so it came from `allocate`; the table is ours alone, and is the only holder of its segments, as no
        // operation is under way, and guards of the past look at elements only, now that no iterator borrows the table.
        unsafe {
            for &segment in (*buckets).held() {
                Segment::free(segment.cast());
            }
            Buckets::free(buckets.cast());
        }
    }
}

/// Releases the try-lock of resizing, also when a panic passes.
struct Resizing<'a>(&'a crate::facade::AtomicBool);

impl Drop for Resizing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Seen to fail: each number moved, and each condition left out.
    #[test]
    fn as_many_as_the_elements_are_worth() {
        const MOST: usize = 5_000;
        let mut bits = 0;
        let buckets = |bits| if bits == 0 { 0 } else { 1_usize << bits };
        for len in (0..=MOST).chain((0..MOST).rev()) {
            let old = buckets(bits);
            bits = wanted(len, bits, 0);
            let new = buckets(bits);
            assert!(len <= LIST_MAX.max(2 * new) && new / 4 <= len, "{len} elements in {new} buckets");
            if new != old {
                assert!(len > 2 * old || len < old / 4, "{len} elements were not so many, or few, for {old}");
                assert!(bits == 0 || (new..2 * new).contains(&len), "{new} buckets do not fit {len} elements");
            }
        }
        assert_eq!((bits, wanted(0, 0, 7), wanted(1 << 10, 7, 7)), (0, 7, 10), "a floor is a floor");
    }
}
