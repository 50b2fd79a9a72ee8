//! Atomics for the models: loom's, with every race between a load and a write made visible to its search.
//!
//! loom 0.7 remembers, for each atomic, only the *last* access of any kind and the last that wrote, and tries another
//! order only of an access and the one that it remembers (dynamic partial-order reduction: Flanagan and Godefroid,
//! *Dynamic partial-order reduction for model checking software*, 2005, ask for the last one of *each thread*). So a
//! load hides the loads before it: a thread that loads and then compares and swaps never sees its swap tried before
//! an earlier load of another thread. Of a reader against `load; compare_exchange` one execution is explored:
//!
//! ```text
//!   reader      writer                what loom remembers
//!   load                              the reader's load
//!               load                  the writer's load
//!               compare_exchange      races with the writer's own load only: nothing to try
//! ```
//!
//! Here each atomic has something more for each thread that loads it, which the thread touches before a load and which
//! all others touch before a write: loom remembers each reader's last load. Two loads do not conflict, so that they are
//! not tried in both orders. A write needs no more than this: the next access of another thread races with it in loom's
//! own bookkeeping.
//!
//! What is touched is a condition variable that nobody waits for. To notify it is a step of the search and orders
//! nothing: no more than without it does one thread see of another's writes, be there fences or not.

use loom::{
    sync::{Condvar, atomic as inner},
    thread::{self, ThreadId},
};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use inner::Ordering;

/// The threads that have loaded an atomic (or done what conflicts as a load does), each with what it shares with those
/// who write.
///
/// The mutex is `std`'s: no step of the model, and never held across one.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<Vec<(ThreadId, Arc<Condvar>)>>);

impl Readers {
    /// Before what conflicts with writes only.
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

    /// Before a write, and before what may be one.
    #[track_caller]
    pub(crate) fn before_write(&self) {
        let me = thread::current().id();
        // One after the other, since a new reader may come meanwhile.
        for i in 0.. {
            let next = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(i).cloned();
            let Some((reader, loads)) = next else { break };
            if reader != me {
                loads.notify_one();
            }
        }
    }
}

/// An atomic of this name in loom and of this type, with what all of them can do.
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

/// A number, which can be counted with.
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
