//! Reference-counted objects that a reader with a guard may read without counting.
//!
//! An object is made as a [`Counted`], an owning reference. Other objects hold it in an
//! [`AtomicCounted`], a place that owns one reference and can be loaded, swapped and compared
//! atomically. A reader with a [`Guard`] gets a [`Shared`] from such a place without a write. It
//! may read the object until the guard is dropped, and it can turn the view into an owning
//! reference, unless the object is dead by then.
//!
//! Why it is sound: the reference of a place is put only after the pointer has left the place, and
//! an object is retired when its last reference is put. So a guard under which the pointer was
//! found was alive before the object was retired, and the memory waits for that guard.

use std::{alloc::Layout, marker::PhantomData, ops::Deref, ptr::NonNull};

use crate::{
    allocator,
    facade::{AtomicPtr, AtomicUsize, Ordering},
    reclaim::{self, Guard},
    refcount::{
        lock_ref::LockRef,
        weak::{self, Weak},
    },
};

/// An object that can be reference-counted and read under a guard.
pub trait Object: Send + Sync + Sized + 'static {
    /// Runs once, when the last reference is put, on the thread that puts it. Readers with a guard
    /// may still read the object, and the object itself is dropped only after them. Anything that
    /// must be exact at once (quotas, tables) is undone here. Neither this nor the drop takes a
    /// guard (asserted in debug builds). The drop may run on any thread that takes a guard, under
    /// any lock that this thread holds, so it does not wait.
    fn last_put(&self) {}

    /// The memory that belongs to the object besides its own, in bytes. Called after
    /// [`Object::last_put`], for [`retired_bytes`](crate::retired_bytes).
    fn held_bytes(&self) -> usize {
        0
    }

    /// Whether another thread may wait for what the drop returns (part of a limit). Called after
    /// [`Object::last_put`]. If true, the retired object is flushed at once, and
    /// [`collect`](crate::collect) on any thread can free it.
    fn is_awaited(&self) -> bool {
        false
    }

    /// Whether there may be a [`Weak`] to it. Then its death writes a cache line that readers of
    /// other objects share. The answer does not change during its life.
    fn allows_weak(&self) -> bool {
        false
    }
}

/// The object, and its count behind it. So references do not write the cache lines in which the
/// object begins. Aligned so that three low bits of its address are free for tags.
#[repr(C, align(8))]
pub(crate) struct Block<T> {
    value: T,
    refs: LockRef,
}

impl<T> Block<T> {
    /// The offset of the object in the block, for structures that link objects through one of their
    /// fields.
    pub(crate) const VALUE: usize = std::mem::offset_of!(Self, value);
}

/// An owning reference to a `T`.
pub struct Counted<T: Object> {
    block: NonNull<Block<T>>,
    _owns: PhantomData<T>,
}

// SAFETY: `Object` requires Send and Sync. The count is atomic, so references may be used and put
// on any thread.
unsafe impl<T: Object> Send for Counted<T> {}
// SAFETY: as above. A shared `Counted` gives out `&T` and clones, which is sound for a Sync `T`.
unsafe impl<T: Object> Sync for Counted<T> {}

impl<T: Object> Counted<T> {
    /// A new object with one reference. One allocation: eight bytes and the value.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self::with_references(value, 1)
    }

    /// A new object with so many references. One is returned, the others belong to the caller.
    pub(crate) fn with_references(value: T, references: usize) -> Self {
        Self { block: allocator::place(Block { value, refs: LockRef::new(references) }), _owns: PhantomData }
    }

    /// Two new objects in one allocation, next to each other, each with its own count. It is for
    /// objects that are mostly read together and mostly die together. The first object is made with
    /// a reference to the second. There are two references to each, since a second one costs
    /// nothing while no other thread has any. (Both are passed as functions, so that they are
    /// constructed in place.)
    ///
    /// The memory is freed when both are dead.
    #[inline]
    #[must_use]
    pub fn pair<S: Object>(second: impl FnOnce() -> S, first: impl FnOnce(Counted<S>) -> T) -> ([Self; 2], Counted<S>) {
        let layout = const { Pair::layout::<T, S>() };
        let start = Vacant::new(layout.whole);
        // SAFETY: fresh memory of the layout, with room for a block of `S` at `second`. If the
        // constructor unwinds, the memory is freed with nothing in it.
        let [second, given] = unsafe { Pair::place(start.0, layout.foot, layout.second, second) };
        let room = start.keep();
        // SAFETY: the layout ends with the footer.
        let foot = unsafe {
            let foot = room.byte_add(layout.foot).cast::<Pair>();
            foot.write(Pair { alive: AtomicUsize::new(1), bytes: layout.whole.size() });
            foot
        };
        // SAFETY: as above, a block of `T` at the start. If its constructor unwinds, the second
        // object is put, and the memory is freed with it.
        let first = unsafe { Pair::place(room, layout.foot, 0, || first(given)) };
        // Relaxed, and no read-modify-write: no other thread knows the first object yet, and the
        // second, which is held here, is not freed before the first is counted. SAFETY: `second` is
        // alive, so the footer is.
        unsafe { foot.as_ref() }.alive.store(2, Ordering::Relaxed);
        (first, second)
    }

    /// Whether both are the same object.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.block == other.block
    }

    /// A view that borrows from this reference, comparable with the views that guards give.
    #[must_use]
    pub fn as_shared(&self) -> Shared<'_, T> {
        // SAFETY: `self` keeps the object alive for the borrow.
        unsafe { Shared::from_raw(self.block) }
    }

    /// A view that lasts as long as a guard, even if this reference is dropped first. The object is
    /// alive now, so when it is retired, it waits for the guard.
    #[must_use]
    pub fn share<'g>(&self, _guard: &'g Guard) -> Shared<'g, T> {
        // SAFETY: alive while the guard is, so it is retired after the guard was taken, if at all.
        unsafe { Shared::from_raw(self.block) }
    }

    /// Freezes the count if there are exactly `references` to the object, this one and others that
    /// belong to the caller. From then on [`Shared::get`] fails. For caches that evict objects to
    /// which only they refer.
    #[must_use]
    pub fn freeze(this: &Self, references: usize) -> bool {
        this.block().refs.freeze(references)
    }

    /// Undoes [`Counted::freeze`].
    pub fn unfreeze(this: &Self) {
        this.block().refs.unfreeze();
    }

    /// How many references there are; a hint.
    #[must_use]
    pub fn count(this: &Self) -> usize {
        this.block().refs.count()
    }

    fn block(&self) -> &Block<T> {
        check_access(self.block.as_ptr());
        // SAFETY: this reference keeps the block alive.
        unsafe { self.block.as_ref() }
    }

    /// Puts this reference and `more` others of the caller's, at once.
    pub(crate) fn put_with(self, more: usize) {
        std::mem::ManuallyDrop::new(self).put(1 + more);
    }

    /// Puts so many references. This one is among them, and must not be used afterwards.
    fn put(&mut self, references: usize) {
        let block = self.block();
        if !block.refs.put(references) {
            return;
        }
        reclaim::release(|| block.value.last_put());
        if block.value.allows_weak() {
            weak::note_death(self.block);
        }
        let is_awaited = block.value.is_awaited();
        let bytes = size_of::<Block<T>>() + block.value.held_bytes();
        /// # Safety
        /// `ptr` is a block that is not used any more.
        unsafe fn free<T>(ptr: *mut ()) {
            let block = ptr.cast::<Block<T>>();
            // SAFETY: the caller's contract.
            match unsafe { &*block }.refs.tag() {
                // SAFETY: a single object, allocated by `Counted::with_references`.
                0 => unsafe { allocator::discard(NonNull::new_unchecked(block)) },
                // SAFETY: made by `Pair::place`, which wrote the tag.
                tag => drop(unsafe { Pair::free(block, tag) }),
            }
        }
        // SAFETY: the count is dead, so no place owns a reference (each holds one), and no guard
        // taken from now on can find the pointer. The count dies once, so this is the only
        // retirement.
        unsafe { reclaim::retire(self.block.as_ptr().cast(), bytes, free::<T>) };
        if is_awaited {
            reclaim::flush_retired();
        }
    }

    /// Turns the reference into a pointer, without putting it.
    pub(crate) fn into_raw(self) -> *mut Block<T> {
        let ptr = self.block.as_ptr();
        std::mem::forget(self);
        ptr
    }

    /// Turns a pointer from [`Counted::into_raw`] back into a reference.
    ///
    /// # Safety
    /// `ptr` came from `into_raw`, and its reference is restored once.
    pub(crate) unsafe fn from_raw(ptr: NonNull<Block<T>>) -> Self {
        Self { block: ptr, _owns: PhantomData }
    }
}

/// The footer of an allocation that two blocks share. Each block's count carries the distance to
/// the footer, in units of eight bytes; zero for a single block. The blocks come first, so each
/// begins on a cache line if the first fills its lines.
#[repr(C, align(8))]
struct Pair {
    /// Blocks that have not been freed.
    alive: AtomicUsize,
    /// The size of the whole allocation.
    bytes: usize,
}

/// Allocated memory that holds nothing yet.
struct Vacant(NonNull<u8>, Layout);

impl Vacant {
    fn new(layout: Layout) -> Self {
        Self(allocator::alloc(layout), layout)
    }

    fn keep(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for Vacant {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not used.
        unsafe { allocator::free(self.0, self.1) };
    }
}

/// The offsets in a pair. The first block is at its start.
struct PairLayout {
    whole: Layout,
    second: usize,
    foot: usize,
}

impl Pair {
    const fn layout<T, S>() -> PairLayout {
        const { assert!(align_of::<Block<T>>() == 8 && align_of::<Block<S>>() == 8, "a pair is of plain objects") };
        let second = size_of::<Block<T>>();
        let foot = second + size_of::<Block<S>>();
        let Ok(whole) = Layout::from_size_align(foot + size_of::<Self>(), align_of::<Self>()) else {
            panic!("two objects fit the address space")
        };
        PairLayout { whole, second, foot }
    }

    /// # Safety
    /// `start` is allocated, with a footer at `foot` and uninitialized room for a `Block<U>` at
    /// `offset`.
    #[inline]
    unsafe fn place<U: Object>(
        start: NonNull<u8>,
        foot: usize,
        offset: usize,
        value: impl FnOnce() -> U,
    ) -> [Counted<U>; 2] {
        let refs = LockRef::two_tagged(u16::try_from((foot - offset) / 8).expect("objects are small"));
        // SAFETY: the caller's contract. The count is two.
        unsafe {
            let block = start.byte_add(offset).cast::<Block<U>>();
            block.write(Block { value: value(), refs });
            [Counted::from_raw(block), Counted::from_raw(block)]
        }
    }

    /// Drops a block of a pair. Returns whether it was the last one, with which the memory was
    /// freed.
    ///
    /// # Safety
    /// `block` was made by `place` with a footer that lies `8 * tag` behind it, and is not used any
    /// more.
    unsafe fn free<U>(block: *mut Block<U>, tag: u16) -> bool {
        // SAFETY: the caller's contract. The footer exists as long as one of its blocks does, and
        // the allocation ends with it.
        unsafe {
            std::ptr::drop_in_place(block);
            let foot = NonNull::new_unchecked(block).byte_add(usize::from(tag) * 8).cast::<Self>();
            let alive = &foot.as_ref().alive;
            // Acquire: the other block's use of the memory is over. If one is left, it is this one,
            // and no other thread will read the count, so it is not decremented. Release: this
            // block's use is over.
            let last = alive.load(Ordering::Acquire) == 1 || alive.fetch_sub(1, Ordering::AcqRel) == 1;
            if last {
                let bytes = foot.as_ref().bytes;
                foot.drop_in_place();
                let start = foot.add(1).byte_sub(bytes).cast();
                allocator::free(start, Layout::from_size_align_unchecked(bytes, align_of::<Self>()));
            }
            last
        }
    }
}

fn check_access<T>(block: *const Block<T>) {
    #[cfg(loom)]
    reclaim::model::check_access(block.cast());
    let _ = block;
}

impl<T: Object> Deref for Counted<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.block().value
    }
}

impl<T: Object> Clone for Counted<T> {
    fn clone(&self) -> Self {
        self.block().refs.clone_held();
        Self { block: self.block, _owns: PhantomData }
    }
}

impl<T: Object> Drop for Counted<T> {
    fn drop(&mut self) {
        self.put(1);
    }
}

impl<T: Object + std::fmt::Debug> std::fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// A view of an object. It costs nothing to take, and is valid as long as the guard or reference
/// that it came from.
pub struct Shared<'g, T: Object> {
    block: NonNull<Block<T>>,
    _from: PhantomData<&'g T>,
}

impl<T: Object> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Object> Copy for Shared<'_, T> {}

impl<'g, T: Object> Shared<'g, T> {
    /// # Safety
    /// The block stays allocated for `'g`.
    #[inline]
    pub(crate) unsafe fn from_raw(block: NonNull<Block<T>>) -> Self {
        Self { block, _from: PhantomData }
    }

    pub(crate) fn as_raw(self) -> NonNull<Block<T>> {
        self.block
    }

    /// A weak pointer to the object; `None` if it is dead or does not allow that
    /// ([`Object::allows_weak`]).
    #[must_use]
    pub fn downgrade(self) -> Option<Weak<T>> {
        Weak::new(self)
    }

    /// The object, for as long as the guard lives.
    #[inline]
    #[must_use]
    pub fn to_ref(self) -> &'g T {
        check_access(self.block.as_ptr());
        // SAFETY: `from_raw`'s contract.
        &unsafe { &*self.block.as_ptr() }.value
    }

    /// An owning reference, unless the object is dead.
    #[must_use]
    pub fn get(self) -> Option<Counted<T>> {
        Some(self.get_noting_contention()?.0)
    }

    /// Like [`Shared::get`]. Also returns whether another thread changed the count at the same
    /// time.
    #[must_use]
    pub fn get_noting_contention(self) -> Option<(Counted<T>, bool)> {
        check_access(self.block.as_ptr());
        // SAFETY: `from_raw`'s contract.
        let contended = unsafe { &*self.block.as_ptr() }.refs.get()?;
        Some((Counted { block: self.block, _owns: PhantomData }, contended))
    }

    /// Whether both are the same object.
    #[must_use]
    pub fn ptr_eq(self, other: Shared<'_, T>) -> bool {
        self.block == other.block
    }

    /// How many references there are; a hint.
    #[must_use]
    pub fn count(self) -> usize {
        // SAFETY: `from_raw`'s contract.
        unsafe { &*self.block.as_ptr() }.refs.count()
    }
}

impl<T: Object> Deref for Shared<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.to_ref()
    }
}

/// A place that owns a reference, or none, and is changed atomically.
pub struct AtomicCounted<T: Object> {
    ptr: AtomicPtr<Block<T>>,
    _owns: PhantomData<Counted<T>>,
}

impl<T: Object> AtomicCounted<T> {
    /// A place that holds `value`.
    #[must_use]
    pub fn new(value: Option<Counted<T>>) -> Self {
        Self { ptr: AtomicPtr::new(into_ptr(value)), _owns: PhantomData }
    }

    /// The object in the place. Writes nothing.
    #[inline]
    #[must_use]
    pub fn load<'g>(&self, _guard: &'g Guard) -> Option<Shared<'g, T>> {
        // Acquire: pairs with the release of the thread that stored it.
        let ptr = NonNull::new(self.ptr.load(Ordering::Acquire))?;
        // SAFETY: the guard was alive when the pointer was loaded, and the place owned a reference
        // then: see the argument above.
        Some(unsafe { Shared::from_raw(ptr) })
    }

    /// Whether the place holds nothing. Cheaper than [`AtomicCounted::load`]: it needs no guard.
    #[inline]
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.ptr.load(Ordering::Acquire).is_null()
    }

    /// Stores `new` and returns what was there.
    pub fn swap(&self, new: Option<Counted<T>>) -> Option<Counted<T>> {
        let old = self.ptr.swap(into_ptr(new), Ordering::AcqRel);
        // SAFETY: the place owned one reference to `old`, which it does not own any more.
        NonNull::new(old).map(|old| unsafe { Counted::from_raw(old) })
    }

    /// Stores `new` if `current` is there, and returns the old reference. Otherwise returns `new`.
    ///
    /// # Errors
    /// `new`, when the place held something else.
    pub fn compare_exchange(
        &self,
        current: Option<Shared<'_, T>>,
        new: Option<Counted<T>>,
    ) -> Result<Option<Counted<T>>, Option<Counted<T>>> {
        let current = current.map_or(std::ptr::null_mut(), |current| current.as_raw().as_ptr());
        let new = into_ptr(new);
        // Relaxed on failure: the value is not used then.
        match self.ptr.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed) {
            // SAFETY: the place owned one reference to `old`, which it does not own any more.
            Ok(old) => Ok(NonNull::new(old).map(|old| unsafe { Counted::from_raw(old) })),
            // SAFETY: `new` came from `into_ptr` above and was not stored.
            Err(_) => Err(NonNull::new(new).map(|new| unsafe { Counted::from_raw(new) })),
        }
    }
}

fn into_ptr<T: Object>(value: Option<Counted<T>>) -> *mut Block<T> {
    value.map_or(std::ptr::null_mut(), Counted::into_raw)
}

impl<T: Object> Drop for AtomicCounted<T> {
    fn drop(&mut self) {
        // Relaxed, and no read-modify-write: no other thread has access to the place.
        let last = self.ptr.load(Ordering::Relaxed);
        // SAFETY: the place owned one reference to `last`, and is dropped.
        drop(NonNull::new(last).map(|last| unsafe { Counted::from_raw(last) }));
    }
}

impl<T: Object> Default for AtomicCounted<T> {
    fn default() -> Self {
        Self::new(None)
    }
}

impl<T: Object + std::fmt::Debug> std::fmt::Debug for AtomicCounted<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.load(&reclaim::pin()).map(Shared::to_ref).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_model;
