//! How an operation takes its locks without ever waiting under a reclamation guard.
//!
//! Difficulties, and the type or function that answers each:
//! 1. *A thread that waits under a guard delays all reclamation.* An operation that changes names
//!    is therefore an *attempt*. Under a guard it walks, checks, and *tries* its locks ([`Locks`]).
//!    In the common case it gets them and finishes under the same guard. It has then counted no
//!    reference on the directory that it shares with other threads.
//! 2. *A lock may be taken.* Then the attempt ends and yields a [`Stop`]. [`change()`] drops the
//!    guard and the result of the walk, waits for the wanted locks in their order, and runs the
//!    attempt again while it holds them. The locks are numbers, not objects, so nothing needs to be
//!    kept alive meanwhile.
//! 3. *Directories may move forever while an attempt climbs.* After a few such attempts
//!    [`block_moves`] keeps every directory in place for one attempt.
//! 4. *A reader that stalls delays reclamation.* [`apply_back_pressure`] bounds retired memory, and
//!    an operation that finds no space is tried once more after a collection
//!    ([`retry_after_reclaim`]).

use pando_sync::{Guard, SeqGuard, pin};

use crate::{
    Error, Result,
    caches::ask::Ask,
    objects::superblock::Namespace,
    operations::{
        locks::Locks,
        remote::change::{self, Never, PreparedChange},
        step::{Commit, Step, Stop},
    },
};

/// Runs `change`, and runs it once more if there was no space: removed objects may still hold space
/// until they are reclaimed. The caller holds no guard, and no lock except that of an open file's
/// position, which nothing here waits for.
pub(crate) fn retry_after_reclaim<T>(change: impl Fn() -> Result<T>) -> Result<T> {
    apply_back_pressure();
    match change() {
        Err(Error::NoSpace) => {
            pando_sync::collect_all();
            change()
        }
        done => done,
    }
}

/// After this many attempts that saw directories move, the next attempt runs with moves blocked.
const MOVED_ATTEMPTS: u32 = 4;

/// Blocks moves of directories for one attempt, if too many attempts have seen them move. Takes the
/// lock of the rename sequence, and waits for no other lock.
pub(crate) fn block_moves(namespace: &Namespace, moved: u32) -> Option<SeqGuard<'_>> {
    (moved >= MOVED_ATTEMPTS).then(|| namespace.rename_seq.lock())
}

/// Runs attempts until one has made its change. A change of a tree in memory is made by the attempt
/// itself. For a backed tree the attempt only yields the change, which is then committed to the
/// backing.
pub(crate) fn change<T, C: PreparedChange>(
    namespace: &Namespace,
    mut attempt: impl for<'g> FnMut(&'g Guard, &mut Locks<'_>) -> Step<Commit<T, Box<C>>>,
) -> Result<Commit<T, C::Done>> {
    apply_back_pressure();
    let mut locks = Locks::new(namespace);
    let mut collected = false;
    let mut moved = 0;
    loop {
        let step = {
            // If this thread already holds the lock of the rename sequence, others are already kept
            // out.
            let _moves_blocked = if locks.rename_seq.is_none() { block_moves(namespace, moved) } else { None };
            attempt(&pin(), &mut locks)
        };
        let stop = match step {
            Ok(Commit::Local(result)) => {
                locks.end_operation();
                return Ok(Commit::Local(result));
            }
            Ok(Commit::Remote(change)) => match carry_out(change, &mut locks) {
                Ok(done) => return Ok(Commit::Remote(done)),
                Err(stop) => stop,
            },
            Err(stop) => stop,
        };
        match stop {
            Stop::Error(Error::NoSpace) if !collected => {
                // A removed hard link releases its inode when it is reclaimed. So the operation is
                // refused only after a collection.
                locks.release();
                pando_sync::collect_all();
                collected = true;
            }
            Stop::Error(error) => return Err(error),
            Stop::Wait => locks.wait(),
            Stop::Revoked(ino) => {
                locks.release();
                namespace.wait_for_revocation(ino);
            }
            Stop::Moved => {
                locks.release();
                moved += 1;
            }
            // An object that the attempt found has changed or died. The thread that changes it may
            // need the CPU to finish.
            Stop::Again => std::thread::yield_now(),
            Stop::Ask(question) => {
                // Asking the backing takes a name lock itself.
                locks.release();
                question.answer(namespace)?;
            }
        }
    }
}

/// Commits a change to the backing, publishes it, and releases the locks.
#[inline(never)]
fn carry_out<C: PreparedChange>(change: Box<C>, locks: &mut Locks<'_>) -> Step<C::Done> {
    let sb = change.sb().clone();
    let step = change::carry_out(&*change, locks);
    drop(change);
    locks.end_operation();
    if matches!(step, Err(Stop::Error(Error::NoSpace))) {
        pando_sync::collect_all();
    }
    // This may have removed the last name of an inode that no thread had open.
    sb.send_forgets();
    sb.make_room(1);
    step
}

/// Like [`change()`], for operations that never concern a backing.
pub(crate) fn run<T>(
    namespace: &Namespace,
    mut attempt: impl for<'g> FnMut(&'g Guard, &mut Locks<'_>) -> Step<T>,
) -> Result<T> {
    change::<T, Never>(namespace, |guard, locks| attempt(guard, locks).map(Commit::Local)).map(|done| match done {
        Commit::Local(result) => result,
        Commit::Remote(never) => match never {},
    })
}

/// Limit of retired memory that waits for readers. When a reader stalls, the threads that retire
/// more memory wait for it, so memory does not grow without bound.
const RETIRED_MAX_BYTES: usize = 64 << 20;

/// Checks the amount of retired memory before every 64th operation of a thread that will retire
/// more. The caller holds no guard and no lock.
pub(crate) fn apply_back_pressure() {
    const OPERATIONS: u32 = 64;
    std::thread_local!(static COUNT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    let count = COUNT.with(|count| count.replace(count.get().wrapping_add(1)));
    if count.is_multiple_of(OPERATIONS) {
        pando_sync::back_pressure(RETIRED_MAX_BYTES);
    }
}

/// Like [`run`], for operations that change no names: without locks.
pub(crate) fn run_lockless<T>(
    namespace: &Namespace,
    mut attempt: impl for<'g> FnMut(&'g Guard) -> Step<T>,
) -> Result<T> {
    let mut retries = Retries::default();
    loop {
        let step = {
            let _moves_blocked = block_moves(namespace, retries.moved);
            attempt(&pin())
        };
        match step {
            Ok(result) => return Ok(result),
            Err(stop) => before_retry(namespace, stop, &mut retries)?,
        }
    }
}

/// Why an operation without locks was attempted again.
#[derive(Default)]
pub(crate) struct Retries {
    /// The attempts that saw directories move.
    pub moved: u32,
    /// The attempts that ended with a request for the attributes of an inode.
    pub answers: u32,
}

/// Prepares the next attempt of an operation without locks.
#[cold]
pub(crate) fn before_retry(namespace: &Namespace, stop: Stop, retries: &mut Retries) -> Result<()> {
    match stop {
        Stop::Error(error) => return Err(error),
        Stop::Ask(question) => {
            retries.answers += u32::from(matches!(*question, Ask::Attributes(_)));
            question.answer(namespace)?;
        }
        Stop::Moved => retries.moved += 1,
        // An object that the attempt found has died. The thread that removes it may need the CPU
        // to finish.
        Stop::Again | Stop::Wait | Stop::Revoked(_) => std::thread::yield_now(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use pando_sync::NameKey;

    use super::*;
    use crate::objects::lockable::Lockable;

    /// An attempt that meets nothing but moving directories finally runs with all of them kept in
    /// place. This holds with names locked as well.
    #[test]
    fn walk_completes_while_directories_keep_moving() {
        let namespace = Namespace::new(&crate::VfsOptions::new());
        let (key, tries) = (NameKey { dir: 1, hash: 2 }, AtomicU32::new(0));
        let walk = || {
            let last = tries.fetch_add(1, Ordering::Relaxed) == 100;
            match namespace.rename_seq.try_lock() {
                None => Ok(()),
                Some(_) if last => Err(Stop::Error(Error::Io)),
                Some(_) => Err(Stop::Moved),
            }
        };
        assert_eq!(run_lockless(&namespace, |_| walk()), Ok(()));
        tries.store(0, Ordering::Relaxed);
        let held = namespace.names.lock(&[key]);
        std::thread::scope(|scope| {
            let changer = scope.spawn(|| {
                run(&namespace, |_, locks| {
                    walk()?;
                    locks.names(&[Lockable { key, granularity: None }])
                })
            });
            while tries.load(Ordering::Relaxed) <= MOVED_ATTEMPTS {
                std::thread::yield_now();
            }
            drop(held);
            assert_eq!(changer.join().expect("no panic"), Ok(()));
        });
    }
}
