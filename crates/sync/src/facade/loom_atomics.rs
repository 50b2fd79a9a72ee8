//! Atomics for the models: loom's, changed so that its search finds every race between a load and a
//! write.
//!
//! loom 0.7 records, for each atomic, only the *last* access of any kind and the last write. It
//! reorders an access only against the recorded one. (Dynamic partial-order reduction asks for the
//! last access of *each thread*: Flanagan and Godefroid, *Dynamic partial-order reduction for model
//! checking software*, 2005.) So a load hides the loads before it. If a thread loads and then does
//! a compare-and-swap, loom never tries its swap before an earlier load of another thread. With a
//! reader against `load; compare_exchange`, loom explores one execution:
//!
//! ```text
//!   reader      writer                what loom records
//!   load                              the reader's load
//!               load                  the writer's load
//!               compare_exchange      races with the writer's own load only: nothing to reorder
//! ```
//!
//! So each atomic here has an object for each thread that loads it. The thread touches its object
//! before a load, and all other threads touch it before a write. In this way loom records the last
//! load of each reader. Two loads do not touch the same object, so they are not tried in both
//! orders. Writes need nothing more: the next access of another thread races with a write in loom's
//! own records.
//!
//! The object is a condition variable on which no thread waits. A notification is a step of the
//! search and orders nothing: it shows a thread no writes of another thread that it would not see
//! without it, with fences or without.

use loom::{
    sync::{Condvar, atomic as inner},
    thread::{self, ThreadId},
};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use inner::Ordering;

/// The threads that have loaded an atomic (or made an access that conflicts as a load does), each
/// with the condition variable that it shares with the writers.
///
/// The mutex is `std`'s: it is no step of the model, and it is never held across one.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<Vec<(ThreadId, Arc<Condvar>)>>);

impl Readers {
    /// Called before an access that conflicts with writes only.
    #[track_caller]
    pub(crate) fn before_load(&self) {
        let me = thread::current().id();
        let mine = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match all.iter().find(|(reader, _)| *reader == me) {
                Some((_, loads)) => loads.clone(),
                None => {
                    let loads = Arc::new(Condvar::new());
                    all.push((me, loads.clone()));
                    loads
                }
            }
        };
        mine.notify_one();
    }

    /// Called before a write, and before an access that may write.
    #[track_caller]
    pub(crate) fn before_write(&self) {
        let me = thread::current().id();
        // Not in one critical section, since a new reader may come meanwhile.
        for i in 0.. {
            let next = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(i).cloned();
            let Some((reader, loads)) = next else { break };
            if reader != me {
                loads.notify_one();
            }
        }
    }
}

/// An atomic type with the name of loom's, and the methods that all atomics have.
macro_rules! atomic {
    ($(#[$meta:meta])* $name:ident $(<$T:ident>)?, $value:ty) => {
        $(#[$meta])*
        pub(crate) struct $name $(<$T>)? {
            value: inner::$name $(<$T>)?,
            readers: Readers,
        }

        #[allow(dead_code, reason = "as much of std's interface for one type as for another")]
        impl $(<$T>)? $name $(<$T>)? {
            pub(crate) fn new(value: $value) -> Self {
                Self { value: inner::$name::new(value), readers: Readers::default() }
            }
            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.readers.before_load();
                self.value.load(order)
            }
            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.readers.before_write();
                self.value.store(value, order);
            }
            atomic!(@writes $value; swap(value: $value));
            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.readers.before_write();
                self.value.compare_exchange(current, new, success, failure)
            }
            #[track_caller]
            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.readers.before_write();
                self.value.compare_exchange_weak(current, new, success, failure)
            }
        }
    };
    (@writes $value:ty; $($method:ident($arg:ident: $argument:ty)),*) => {
        $(
            #[track_caller]
            pub(crate) fn $method(&self, $arg: $argument, order: Ordering) -> $value {
                self.readers.before_write();
                self.value.$method($arg, order)
            }
        )*
    };
}

/// An integer, with arithmetic.
macro_rules! number {
    ($name:ident, $value:ty) => {
        atomic!(
            #[derive(Debug, Default)]
            $name,
            $value
        );

        #[allow(dead_code, reason = "as much of std's interface for one type as for another")]
        impl $name {
            atomic!(@writes $value; fetch_add(n: $value), fetch_sub(n: $value), fetch_and(n: $value));
            atomic!(@writes $value; fetch_or(n: $value), fetch_max(n: $value));
        }
    };
}

atomic!(AtomicPtr<T>, *mut T);
atomic!(
    #[derive(Debug, Default)]
    AtomicBool,
    bool
);
number!(AtomicI64, i64);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);

#[cfg(test)]
mod loom_model;
