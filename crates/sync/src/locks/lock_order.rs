//! The order of locks, asserted at run time in debug builds.
//!
//! Each kind of lock has a [`LockClass`], and a thread takes classes in ascending order only.
//! Threads that keep to the order cannot wait for each other in a circle. So the assertion catches
//! a deadlock in any run that takes locks in the wrong order, not only in the rare run in which two
//! threads meet. This is the idea of Linux's lockdep (Ingo Molnar, 2006), with an order that is
//! given instead of learnt. Release builds compile all of it to nothing.

use std::marker::PhantomData;

use crate::locks::lock_stats;

/// The kinds of locks, in the order in which a thread may take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LockClass {
    /// Revocation of a directory's permissions: one at a time. A thread that is refused waits for
    /// it.
    Permissions,
    /// The superblock's topology lock: a directory changes its parent.
    Topology,
    /// Name locks. All names of an operation are taken at once, so the class is taken once.
    Names,
    /// The superblock's rename sequence: a directory changes its place.
    RenameSeq,
    /// An open file's position.
    Handle,
    /// A file's data.
    Data,
    /// An inode's extended attributes. Counted, and not checked: no other lock is taken while it is
    /// held. (A backing may be asked.)
    Xattrs,
    /// The table of running calls of a [`SingleFlight`](crate::SingleFlight). Counted, and not
    /// checked: no thread waits while it holds it.
    SingleFlight,
}

impl LockClass {
    /// All of them, in their order.
    pub const ALL: [Self; 8] = [
        Self::Permissions,
        Self::Topology,
        Self::Names,
        Self::RenameSeq,
        Self::Handle,
        Self::Data,
        Self::Xattrs,
        Self::SingleFlight,
    ];
}

/// How many classes there are.
#[cfg(all(any(debug_assertions, feature = "lock-stats"), not(loom)))]
pub(crate) const CLASSES: usize = LockClass::ALL.len();

#[cfg(all(debug_assertions, not(loom)))]
std::thread_local! {
    /// How many locks of each class this thread holds. Counts and not a stack, since locks may be
    /// released in any order.
    static HELD: std::cell::Cell<[u32; CLASSES]> = const { std::cell::Cell::new([0; CLASSES]) };
}

/// While this lives, its thread counts as a holder of a lock of a class. Tied to its thread.
#[derive(Debug)]
#[must_use = "the class counts as held only while this lives"]
pub struct Held {
    #[cfg(all(debug_assertions, not(loom)))]
    class: LockClass,
    _not_send: PhantomData<*mut ()>,
}

/// Notes that this thread is about to wait for a lock of `class`.
///
/// # Panics
/// In debug builds, when the thread holds a lock of this class or of a later one.
#[inline]
pub fn enter(class: LockClass) -> Held {
    #[cfg(all(debug_assertions, not(loom)))]
    if let Some(highest) = highest_held() {
        assert!(highest < class, "lock order: {class:?} was asked for while {highest:?} is held");
    }
    lock_stats::entered(class);
    hold(class)
}

/// Notes that this thread has got a lock of `class` without waiting for it.
///
/// Any order is allowed, since in a circle of waiting threads each thread waits.
#[inline]
pub fn entered_without_waiting(class: LockClass) -> Held {
    hold(class)
}

/// The highest class that this thread holds; always `None` in release builds.
#[must_use]
pub(crate) fn highest_held() -> Option<LockClass> {
    #[cfg(all(debug_assertions, not(loom)))]
    {
        let held = HELD.try_with(std::cell::Cell::get).unwrap_or_default();
        LockClass::ALL.into_iter().rev().find(|&class| held[class as usize] > 0)
    }
    #[cfg(not(all(debug_assertions, not(loom))))]
    None
}

#[inline]
fn hold(class: LockClass) -> Held {
    #[cfg(all(debug_assertions, not(loom)))]
    {
        change(class, |n| n + 1);
        Held { class, _not_send: PhantomData }
    }
    #[cfg(not(all(debug_assertions, not(loom))))]
    {
        let _ = class;
        Held { _not_send: PhantomData }
    }
}

#[cfg(all(debug_assertions, not(loom)))]
fn change(class: LockClass, f: impl FnOnce(u32) -> u32) {
    // A thread that is ending has no thread-locals left, and is not checked any more.
    let _ = HELD.try_with(|held| {
        let mut counts = held.get();
        counts[class as usize] = f(counts[class as usize]);
        held.set(counts);
    });
}

#[cfg(all(debug_assertions, not(loom)))]
impl Drop for Held {
    fn drop(&mut self) {
        change(self.class, |n| n - 1);
    }
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ascending_order_is_allowed_and_release_in_any_order() {
        let topology = enter(LockClass::Topology);
        let names = enter(LockClass::Names);
        let data = enter(LockClass::Data);
        drop(names);
        assert_eq!(highest_held(), Some(LockClass::Data));
        drop(data);
        assert_eq!(highest_held(), Some(LockClass::Topology));
        drop(topology);
        assert_eq!(highest_held(), None);
        drop(enter(LockClass::Names));
    }

    #[test]
    #[should_panic(expected = "Names was asked for while Handle is held")]
    fn descending_order_panics() {
        let _handle = enter(LockClass::Handle);
        let _names = enter(LockClass::Names);
    }

    #[test]
    #[should_panic(expected = "Names was asked for while Names is held")]
    fn same_class_twice_panics() {
        let _once = enter(LockClass::Names);
        let _twice = enter(LockClass::Names);
    }

    #[test]
    fn try_lock_in_any_order_is_allowed_and_counts_as_held() {
        let _data = enter(LockClass::Data);
        drop(entered_without_waiting(LockClass::Names));
        let held = std::thread::spawn(|| {
            let _names = entered_without_waiting(LockClass::Names);
            highest_held()
        });
        assert_eq!(held.join().expect("no panic"), Some(LockClass::Names));
        assert_eq!(highest_held(), Some(LockClass::Data));
    }
}
