//! How an operation takes its locks without ever waiting under a reclamation guard.
//!
//! An operation that changes names is an *attempt*: under a guard it walks, looks, and *tries* its locks. In the common
//! case it gets them, and goes on under the same guard, without having counted a reference on the directory that it
//! shares with others. If a lock is taken, the attempt ends; guard and walk are given up, the locks that were wanted
//! (they are numbers, not objects) are waited for in their order, and the attempt starts again with them in hand.

use pando_sync::{Guard, SeqGuard, pin};

use crate::{
    Error, Result,
    objects::superblock::NameSpace,
    operations::{
        locks::Locks,
        remote::change::{self, Change, Never},
        step::{Commit, Step, Stop},
    },
};

/// Tries again what there was no space for: that of what is gone may wait to be reclaimed. The caller holds no guard, and no
/// lock but that of an open file's position, which nothing here waits for.
pub(crate) fn in_need_of_space<T>(change: impl Fn() -> Result<T>) -> Result<T> {
    breathe();
    match change() {
        Err(Error::NoSpace) => {
            pando_sync::collect_all();
            change()
        }
        done => done,
    }
}

/// So many attempts see directories change their places; during the next one none does.
const MOVED_ATTEMPTS: u32 = 4;

/// Keeps directories in their places for an attempt, if too many have seen them move. It does not wait for other locks.
pub(crate) fn hold_still(name_space: &NameSpace, moved: u32) -> Option<SeqGuard<'_>> {
    (moved >= MOVED_ATTEMPTS).then(|| name_space.rename_seq.lock())
}

/// Runs attempts until one has made its change: in memory, or in a backing, to which an attempt only yields what is to be done.
pub(crate) fn change<T, C: Change>(
    name_space: &NameSpace,
    mut attempt: impl for<'g> FnMut(&'g Guard, &mut Locks<'_>) -> Step<Commit<T, Box<C>>>,
) -> Result<Commit<T, C::Done>> {
    breathe();
    let mut locks = Locks::new(name_space);
    let mut collected = false;
    let mut moved = 0;
    loop {
        let step = {
            // A thread that holds that lock already keeps the others out.
            let _still = if locks.rename_seq.is_none() { hold_still(name_space, moved) } else { None };
            attempt(&pin(), &mut locks)
        };
        let stop = match step {
            Ok(Commit::Local(result)) => {
                locks.give_back();
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
                // A further link that was removed gives its inode back when it is reclaimed: no refusal before that was tried.
                locks.release();
                pando_sync::collect_all();
                collected = true;
            }
            Stop::Error(error) => return Err(error),
            Stop::Wait => locks.wait(),
            Stop::Revoked(ino) => {
                locks.release();
                name_space.wait_for_permissions(ino);
            }
            Stop::Moved => {
                locks.release();
                moved += 1;
            }
            // What was found has changed or died: the thread that is at it may need the processor to go on.
            Stop::Again => std::thread::yield_now(),
            Stop::Ask(question) => {
                // A question takes a name's lock itself.
                locks.release();
                question.answer(name_space)?;
            }
        }
    }
}

/// Carries out a change of a backing, and gives the locks back.
#[inline(never)]
fn carry_out<C: Change>(change: Box<C>, locks: &mut Locks<'_>) -> Step<C::Done> {
    let sb = change.sb().clone();
    let step = change::carry_out(&*change, locks);
    drop(change);
    locks.give_back();
    if matches!(step, Err(Stop::Error(Error::NoSpace))) {
        pando_sync::collect_all();
    }
    // The last name of an inode may have gone, and nobody had it open.
    sb.drain_forgotten();
    step
}

/// As [`change()`], of what is no business of a backing.
pub(crate) fn run<T>(
    name_space: &NameSpace,
    mut attempt: impl for<'g> FnMut(&'g Guard, &mut Locks<'_>) -> Step<T>,
) -> Result<T> {
    change::<T, Never>(name_space, |guard, locks| attempt(guard, locks).map(Commit::Local)).map(|done| match done {
        Commit::Local(result) => result,
        Commit::Remote(never) => match never {},
    })
}

/// Garbage that waits for readers stays below this: a reader that stalls delays those who make more, and memory does not
/// grow without bound.
const RETIRED_MAX_BYTES: usize = 64 << 20;

/// Looks at the garbage now and then, before an operation that will make more. No guard and no lock is held.
pub(crate) fn breathe() {
    const OPERATIONS: u32 = 64;
    std::thread_local!(static COUNT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    let count = COUNT.with(|count| count.replace(count.get().wrapping_add(1)));
    if count.is_multiple_of(OPERATIONS) {
        pando_sync::back_pressure(RETIRED_MAX_BYTES);
    }
}

/// As [`run`], for what only looks: without locks.
pub(crate) fn look<T>(name_space: &NameSpace, mut attempt: impl for<'g> FnMut(&'g Guard) -> Step<T>) -> Result<T> {
    let mut moved = 0;
    loop {
        let step = {
            let _still = hold_still(name_space, moved);
            attempt(&pin())
        };
        match step {
            Ok(result) => return Ok(result),
            Err(stop) => look_again(name_space, stop, &mut moved)?,
        }
    }
}

/// What is to be done before the next look; `moved` counts those that met directories in motion.
#[cold]
pub(crate) fn look_again(name_space: &NameSpace, stop: Stop, moved: &mut u32) -> Result<()> {
    match stop {
        Stop::Error(error) => return Err(error),
        Stop::Ask(question) => question.answer(name_space)?,
        Stop::Moved => *moved += 1,
        // What was found died: whoever takes it away may need the processor to go on.
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

    /// Whoever meets nothing but directories that move is at last let through with all of them kept where they are, also with
    /// names locked.
    #[test]
    fn moves_do_not_keep_a_walk_from_ending() {
        let name_space = NameSpace::new();
        let (key, tries) = (NameKey { dir: 1, hash: 2 }, AtomicU32::new(0));
        let walk = || {
            let last = tries.fetch_add(1, Ordering::Relaxed) == 100;
            match name_space.rename_seq.try_lock() {
                None => Ok(()),
                Some(_) if last => Err(Stop::Error(Error::Io)),
                Some(_) => Err(Stop::Moved),
            }
        };
        assert_eq!(look(&name_space, |_| walk()), Ok(()));
        tries.store(0, Ordering::Relaxed);
        let held = name_space.names.lock(&[key]);
        std::thread::scope(|scope| {
            let changer = scope.spawn(|| {
                run(&name_space, |_, locks| {
                    walk()?;
                    locks.names(&[Lockable { key, grain: None }])
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
