//! The buckets: the table of segments of sentinels, and how many buckets there should be.
//!
//! With `2^bits` buckets, bucket `i` begins at key `i << (64 - bits)`. Its sentinel is linked there
//! on first use. Each doubling of the buckets adds one *segment* of sentinels. So to grow means to
//! allocate one segment (zeroed, and untouched until used) and to publish a small table of
//! segments. To shrink means to retire whole segments. Segment 0 has the first `2^BASE_BITS`
//! buckets, and segment `s` those with an odd multiple of `2^-(BASE_BITS + s)`. A sentinel's `next`
//! is the word on which the writers of a bucket do their compare-and-swap. Two sentinels share a
//! cache line: the same number of cache lines with twice the buckets keeps as many writers apart,
//! and halves the walks.
//!
//! A shrinking thread publishes the smaller table of segments first, and then kills. So a thread
//! that loaded the larger table did so before the kill. A sentinel that it finds LINKED there was
//! in the list at an instant of its own operation. That is the start which fact F2 (in `raw`)
//! requires, although it may be dead by now. A writer that finds its start marked has seen what was
//! published before, loads the table again and gets another start.
//!
//! A sentinel that was killed while it was being linked may still be in the list when its bucket
//! has a new one, with the same key. Either of them may come first, so a thread that unlinks starts
//! before that key.

use crate::tuning::{
    CONTENDED_AFTER, CONTENDED_BITS, DECAY_SAMPLES, GROWTH_BITS, INDEX_AT_ONCE_BITS, LINKED_TOGETHER, LIST_MAX,
    SAMPLE_EVERY,
};
use std::{alloc::Layout, ops::RangeInclusive, ptr::NonNull};

use super::{
    SplitTable,
    index::Index,
    raw::{self, Link, Walk},
    sentinel::{DEAD, LINKED, LINKING, Segment, Sentinel, UNUSED},
};
use crate::{
    allocator,
    facade::{AtomicPtr, AtomicUsize, Ordering},
    reclaim::{self, Guard},
};

/// Segment 0 has `2^BASE_BITS` buckets. (Fewer under the model checker, whose tables are small.)
pub(super) const BASE_BITS: u32 = if cfg!(loom) { 1 } else { 3 };
/// At most `2^MAX_BITS` buckets.
const MAX_BITS: u32 = 34;
const SEGMENTS: usize = (MAX_BITS - BASE_BITS + 1) as usize;
/// The low bits of a published address, which hold the bits of indexed buckets.
const INDEXED: usize = align_of::<Buckets>() - 1;
const _: () = assert!(MAX_BITS as usize <= INDEXED);

/// The address of a table's index, with which a part of the index can be prefetched before the
/// table itself is read: [`SplitTable::index_address`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexAddress(*mut Buckets);

impl IndexAddress {
    /// Prefetches the part of the index that belongs to a hash, if there is an index. The memory
    /// may have been freed.
    #[inline]
    pub fn prefetch(self, hash: u64) {
        // SAFETY: the index is used only to prefetch.
        if let Some(index) = unsafe { Buckets::index(self.0) } {
            index.prefetch(hash);
        }
    }
}

/// A published, immutable table of segments. The groups of its index follow it, if it has one.
#[repr(C, align(64))]
pub(super) struct Buckets {
    bits: u32,
    /// The bits that contention requested; zero for none.
    floor: u32,
    /// Samples of an empty table: an independent statistic.
    empty_samples: AtomicUsize,
    segments: [*mut Segment; SEGMENTS],
    /// The model checker reports it if it is leaked, or read before it was published.
    #[cfg(loom)]
    made: loom::alloc::Track<loom::cell::UnsafeCell<()>>,
}

impl Buckets {
    /// The segments of the table.
    fn held(&self) -> &[*mut Segment] {
        &self.segments[..=(self.bits - BASE_BITS) as usize]
    }

    /// Whether elements are indexed: not after contention.
    fn is_indexed(&self) -> bool {
        self.floor == 0
    }

    /// The word that a `SplitTable` holds: the address and, if there is an index, the bits of the
    /// buckets in the low bits. So a look-up of a group waits for nothing but the `SplitTable`.
    ///
    /// # Safety
    /// It came from `allocate`, and is not freed.
    unsafe fn published(this: *mut Self) -> *mut Self {
        // SAFETY: the caller's contract.
        let (bits, indexed) = unsafe { ((*this).bits, (*this).is_indexed()) };
        if indexed { this.map_addr(|addr| addr | bits as usize) } else { this }
    }

    /// The address in a published word.
    #[inline]
    fn address(published: *mut Self) -> *mut Self {
        published.map_addr(|addr| addr & !INDEXED)
    }

    /// The index of a published table. None after contention.
    ///
    /// # Safety
    /// It came from `allocate`, and is not freed while the index is used for anything but
    /// [`Index::prefetch`].
    #[inline]
    unsafe fn index<'g>(published: *mut Self) -> Option<Index<'g>> {
        let bits = published.addr() & INDEXED;
        // SAFETY: the groups follow without a gap, since the size of this is a multiple of a cache
        // line. The rest is the caller's contract.
        (bits != 0).then(|| unsafe { Index::at(Self::address(published).wrapping_add(1).cast(), bits as u32) })
    }

    /// The layout of the table, with the groups of the index.
    fn layout(&self) -> Option<Layout> {
        let own = Layout::new::<Self>();
        if !self.is_indexed() {
            return Some(own);
        }
        Some(own.extend(Index::layout(self.bits)?).ok()?.0)
    }

    /// Allocates it, with an empty index; `None` when memory is short.
    fn allocate(self) -> Option<*mut Self> {
        let this = allocator::try_alloc_zeroed(self.layout()?)?.cast::<Self>().as_ptr();
        // SAFETY: memory of the layout, not shared yet; the groups are zeroes.
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
    pub(super) fn sentinel_before(&self, key: u64) -> Option<&Sentinel> {
        self.linked(self.bucket(key))
    }

    #[inline]
    fn bucket(&self, key: u64) -> usize {
        (key >> (u64::BITS - self.bits)) as usize
    }

    /// The first key of a bucket. (Zero for the one behind the last.)
    fn key(&self, index: usize) -> u64 {
        (index as u64) << (u64::BITS - self.bits)
    }

    /// The segment of the bucket's sentinel, and its place there.
    #[inline]
    fn place(&self, index: usize) -> (usize, usize) {
        let doublings = self.bits - BASE_BITS;
        let zeros = index.trailing_zeros().min(doublings);
        let segment = doublings - zeros;
        (segment as usize, index >> (zeros + u32::from(segment != 0)))
    }

    #[inline]
    fn sentinel(&self, index: usize) -> *mut Sentinel {
        let (segment, place) = self.place(index);
        #[cfg(loom)]
        reclaim::model::check_access(self.segments[segment].cast());
        // SAFETY: `place` is within the segment while `index < 2^bits`, as `bucket()` and the loops
        // ensure. The table's segments are allocated while the table can be reached, and then for
        // the guards that reached it.
        unsafe { Segment::sentinel(self.segments[segment], place) }
    }

    /// The nearest linked sentinel at or below `index`, among its ancestors (each has one bit
    /// fewer).
    #[inline]
    fn linked(&self, mut index: usize) -> Option<&Sentinel> {
        loop {
            // SAFETY: as for `self.sentinel`: allocated for as long as `self` is.
            let sentinel = unsafe { &*self.sentinel(index) };
            let linked = sentinel.is_linked();
            // Checks the access again, after the load, before which other threads may have run.
            #[cfg(loom)]
            let _ = self.sentinel(index);
            if linked {
                return Some(sentinel);
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
            let sentinels = 1_usize << (BASE_BITS as usize + s.saturating_sub(1));
            *segment = held.get(s).copied().or_else(|| Segment::allocate(sentinels)).unwrap_or_default();
            !segment.is_null()
        });
        let new = Self {
            bits,
            floor,
            empty_samples: AtomicUsize::new(0),
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

    /// Its size in bytes, without the segments.
    fn bytes(&self) -> usize {
        self.layout().map_or(0, |layout| layout.size())
    }

    /// # Safety
    /// It came from `allocate`, and is not used any more.
    unsafe fn free(buckets: *mut ()) {
        let buckets = buckets.cast::<Self>();
        // SAFETY: the caller's contract; not null.
        unsafe {
            let layout = (*buckets).layout().expect("it was allocated with this layout");
            if let Some(index) = Self::index(Self::published(buckets)) {
                index.drop_in_place();
            }
            buckets.drop_in_place();
            allocator::free(NonNull::new_unchecked(buckets).cast(), layout);
        }
    }
}

/// How many bits of buckets a table with `len` elements and `bits` should have. After a change the
/// load is one to two (after several changes, if there were far too few buckets). There is no
/// change while the load is between one quarter and two. Zero means no buckets.
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

/// The most buckets that contention can request: 256 for each core (8 KiB), 512 to 4096 in all.
/// Each time that contention continues there are four times as many, so little contention makes few
/// buckets.
fn most_bits() -> u32 {
    use std::sync::OnceLock;
    static MOST: OnceLock<u32> = OnceLock::new();
    *MOST.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (256 * cores).clamp(512, 4096).ilog2()
    })
}

/// True once in `SAMPLE_EVERY` calls on a thread, so that the count is not itself a contended cache
/// line.
fn sampled() -> bool {
    std::thread_local!(static CALLS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    // The model checker needs deterministic executions.
    cfg!(loom) || CALLS.try_with(|c| c.replace(c.get().wrapping_add(1)).is_multiple_of(SAMPLE_EVERY)).unwrap_or(false)
}

impl<T: Send + Sync + 'static> SplitTable<T> {
    pub(super) fn load_buckets<'g>(&self, guard: &'g Guard) -> Option<&'g Buckets> {
        let buckets = Buckets::address(self.load_published(guard));
        // SAFETY: published, so allocated, and retired only after it was replaced, so it waits for
        // the guard.
        unsafe { buckets.as_ref() }
    }

    /// The index of the buckets. Does not read the table of segments.
    #[inline]
    pub(super) fn load_index<'g>(&self, guard: &'g Guard) -> Option<Index<'g>> {
        // SAFETY: as in `load_buckets`.
        unsafe { Buckets::index(self.load_published(guard)) }
    }

    /// The current address of the index.
    #[inline]
    #[must_use]
    pub fn index_address(&self, guard: &Guard) -> IndexAddress {
        IndexAddress(self.load_published(guard))
    }

    #[inline]
    fn load_published(&self, _guard: &Guard) -> *mut Buckets {
        // Acquire: pairs with the release of the thread that published it.
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

    /// The start of a walk to `key`: the nearest linked sentinel below it. Writes nothing.
    #[inline]
    pub(super) fn start<'a>(&'a self, key: u64, guard: &'a Guard) -> &'a AtomicPtr<Link> {
        self.start_sentinel(key, guard).map_or(&self.head, Sentinel::next)
    }

    /// The sentinel at which `start` begins, or none for the head.
    #[inline]
    pub(super) fn start_sentinel<'a>(&'a self, key: u64, guard: &'a Guard) -> Option<&'a Sentinel> {
        self.load_buckets(guard).and_then(|b| b.sentinel_before(key))
    }

    /// Like `start`, but links the bucket's sentinel if it is not linked.
    #[inline]
    pub(super) fn start_or_link<'a>(&'a self, key: u64, guard: &'a Guard) -> &'a AtomicPtr<Link> {
        let Some(buckets) = self.load_buckets(guard) else { return &self.head };
        let index = buckets.bucket(key);
        // SAFETY: as in `Buckets::linked`.
        let sentinel = unsafe { &*buckets.sentinel(index) };
        if !sentinel.is_linked() {
            self.link_buckets_around(buckets, index, guard);
        }
        buckets.linked(index).map_or(&self.head, Sentinel::next)
    }

    /// Links a bucket's sentinel and those of its neighbours. A look-up links none, and would walk
    /// from further away. Otherwise a table that grows once more before all are linked would keep
    /// buckets without sentinels, into which no thread inserts, and longer walks.
    #[cold]
    fn link_buckets_around(&self, buckets: &Buckets, index: usize, guard: &Guard) {
        self.link_bucket(buckets, index, guard);
        let first = index & !(LINKED_TOGETHER - 1);
        let behind = first + LINKED_TOGETHER.min(1 << buckets.bits);
        for neighbour in first..behind {
            self.link_bucket(buckets, neighbour, guard);
        }
        self.index_elements(buckets.key(first)..=buckets.key(behind).wrapping_sub(1), guard);
    }

    /// Adds the elements of these keys to the index.
    fn index_elements(&self, keys: RangeInclusive<u64>, guard: &Guard) {
        let Some(index) = self.load_index(guard) else { return };
        for element in self.iter_after(keys.start() >> 1, guard) {
            let key = element.to_ref().link.key.load(Ordering::Relaxed);
            if key > *keys.end() {
                break;
            }
            // SAFETY: found in the list under the guard, under which the index was loaded.
            unsafe { index.add_if_absent(key, raw::link_of(element), guard) };
        }
    }

    /// Links a sentinel and, before it, its ancestors (at most `bits` of them), unless other
    /// threads are linking them.
    #[cold]
    fn link_bucket(&self, buckets: &Buckets, index: usize, guard: &Guard) {
        let ptr = buckets.sentinel(index);
        // SAFETY: as in `Buckets::linked`.
        let sentinel = unsafe { &*ptr };
        if sentinel.state.load(Ordering::Relaxed) != UNUSED {
            return;
        }
        if index != 0 {
            self.link_bucket(buckets, index & (index - 1), guard);
        }
        // Relaxed: nothing of the sentinel has been written before.
        if sentinel.state.compare_exchange(UNUSED, LINKING, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let key = buckets.key(index);
        sentinel.link.key.store(key, Ordering::Relaxed);
        loop {
            let start = self.start(key, guard);
            // SAFETY: `start` gives what `walk` requires.
            let walk = unsafe { raw::walk::<T, std::convert::Infallible>(start, key, guard, |_, _| None) };
            let Walk::Past(place) = walk else { continue };
            // SAFETY: claimed above, so linked here and nowhere else; killed before its segment is
            // retired.
            if unsafe { place.link(ptr.cast()) } {
                break;
            }
        }
        // Release: a thread that sees it LINKED sees its link. Acquire: if it is DEAD, the smaller
        // table is published.
        if sentinel.state.compare_exchange(LINKING, LINKED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            let _ = sentinel.link.mark();
            self.unlink(key, guard);
            // SAFETY: the killer counted this thread as a holder, after it took the segment out of
            // the table.
            unsafe { Segment::release(buckets.segments[buckets.place(index).0]) };
        }
    }

    /// Removes one sentinel of a segment that is no longer in the table from the list, for ever.
    fn kill_bucket(&self, old: &Buckets, index: usize, guard: &Guard) {
        // SAFETY: as in `Buckets::linked`.
        let sentinel = unsafe { &*old.sentinel(index) };
        // SAFETY: the segment is allocated: this thread's guard is older than its retirement.
        let holders = unsafe { &(*old.segments[old.place(index).0]).holders };
        let mut state = sentinel.state.load(Ordering::Acquire);
        loop {
            if state == LINKING {
                // Before the kill, since the linking thread may release right after it. Relaxed:
                // this thread is a holder itself.
                holders.fetch_add(1, Ordering::Relaxed);
            }
            match sentinel.state.compare_exchange(state, DEAD, Ordering::AcqRel, Ordering::Acquire) {
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
            let _ = sentinel.link.mark();
            self.unlink(old.key(index), guard);
        }
    }

    /// Tells the table the number of its elements and whether there was contention, and grows or
    /// shrinks its buckets if that is due.
    ///
    /// `len` is the number of elements, and may be approximate. `contended` is what
    /// [`super::Inserted`] and [`super::Removed`] reported. To be called after every insertion and
    /// removal: mostly it compares a few numbers. It never waits. One caller resizes at a time, and
    /// the others continue meanwhile. One call makes at most 16 buckets of one (128 where there
    /// were none).
    ///
    /// Buckets that contention requested (at most 4096) outlast the contention. They are freed only
    /// when some thousands of calls have found the table empty, without more contention. Otherwise
    /// names that are created and removed in an otherwise empty directory would build and free
    /// buckets all the time.
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
            if bits < most_bits() && self.contention.fetch_add(1, Ordering::Relaxed) + 1 >= CONTENDED_AFTER {
                floor = (bits + 2).max(CONTENDED_BITS).min(most_bits());
            }
        } else if len == 0
            && let Some(b) = buckets
            && floor != 0
            && sampled()
            && b.empty_samples.fetch_add(1, Ordering::Relaxed) + 1 >= DECAY_SAMPLES
        {
            floor = 0;
        }
        let bits_wanted = wanted(len, bits, floor);
        if (bits_wanted, floor) != (bits, old_floor) {
            self.resize(buckets, bits_wanted, floor, guard);
        }
    }

    /// Replaces `seen`, if it is still published and no other thread is resizing.
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
        self.contention.store(0, Ordering::Relaxed);
        // SAFETY: just allocated.
        let describe = |new: *mut Buckets| unsafe { ((*new).held().len(), Buckets::published(new)) };
        let (kept, published) = new.map_or((0, std::ptr::null_mut()), describe);
        let retired = Buckets::address(self.buckets.swap(published, Ordering::AcqRel));
        // Sentinels that were linked before are not linked again, which would index their elements.
        // (If the table has grown much, most elements are indexed when further sentinels are
        // linked.)
        if bits <= INDEX_AT_ONCE_BITS || bits < old.map_or(0, |old| old.bits) {
            self.index_elements(0..=u64::MAX, guard);
        }
        let Some(old) = old else { return };
        if old.held().len() > kept {
            // In order of keys, so that the walks are short, also where no sentinel is left to
            // start from.
            for index in (0..1 << old.bits).filter(|&i| old.place(i).0 >= kept) {
                self.kill_bucket(old, index, guard);
            }
            for &segment in &old.held()[kept..] {
                // SAFETY: the table was a holder, and has just published a table without it.
                unsafe { Segment::release(segment) };
            }
        }
        // SAFETY: replaced above, by the only thread that resizes. It came from `allocate`.
        unsafe { reclaim::retire(retired.cast(), old.bytes(), Buckets::free) };
    }

    /// The bytes of the sentinels and of their table.
    #[must_use]
    pub fn bucket_bytes(&self) -> usize {
        let guard = reclaim::pin();
        let Some(buckets) = self.load_buckets(&guard) else { return 0 };
        // SAFETY: as in `Buckets::linked`.
        let sentinels = buckets.held().iter().map(|&s| unsafe { (*s).sentinels });
        sentinels.map(|n| Segment::layout(n).map_or(0, |l| l.size())).sum::<usize>() + buckets.bytes()
    }

    /// Frees the buckets: the table is being dropped, and its list is empty.
    pub(super) fn drop_buckets(&mut self) {
        let buckets = Buckets::address(self.buckets.swap(std::ptr::null_mut(), Ordering::Relaxed));
        if buckets.is_null() {
            return;
        }
        // SAFETY: published, so it came from `allocate`. This thread owns the table, which is the
        // only holder of its segments, as no operation is in progress. Earlier guards read only
        // elements, as no iterator borrows the table any more.
        unsafe {
            for &segment in (*buckets).held() {
                Segment::free(segment.cast());
            }
            Buckets::free(buckets.cast());
        }
    }
}

/// Releases the try-lock of resizing, also after a panic.
struct Resizing<'a>(&'a crate::facade::AtomicBool);

impl Drop for Resizing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Seen to fail: each number changed, and each condition left out.
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
