//! How an operation takes its locks without ever waiting under a reclamation guard.
//!
//! An operation that changes names is an *attempt*: under a guard it walks, looks, and *tries* its locks. In the common
//! case it gets them, and goes on under the same guard, without having counted a reference on the directory that it
//! shares with others. If a lock is taken, the attempt ends; guard and walk are given up, the locks that were wanted
//! (they are numbers, not objects) are waited for in their order, and the attempt starts again with them in hand.
//!
//! Order: topology, names (by stripe), rename sequence. The handle's mutex and the data lock come after and never here.
//! Who takes permissions of a directory away holds a lock that comes before all of them ([`crate::operations::permit`]).

use std::{slice, sync::Arc};

use pando_sync::{ClassGuard, Guard, LockGrain, MAX_NAMES, NameGuard, NameKey, SeqGuard, pin};

use crate::{
    Error, Result,
    objects::{
        lockable::Lockable,
        superblock::{NameSpace, SuperBlock},
    },
    operations::{
        parent::Parent,
        step::{Call, Pinned, Step, Stop},
    },
    types::cred::PermView,
};

/// What an attempt needs locked.
#[derive(Clone, Copy)]
struct Wanted {
    names: [NameKey; MAX_NAMES],
    /// So many of `names`.
    count: u8,
    topology: bool,
    rename_seq: bool,
}

impl Wanted {
    const NOTHING: Self =
        Self { names: [NameKey { dir: 0, hash: 0 }; MAX_NAMES], count: 0, topology: false, rename_seq: false };

    fn names(&self) -> &[NameKey] {
        &self.names[..usize::from(self.count)]
    }
}

/// The locks of one operation. Dropping releases them, the last taken first.
pub(crate) struct Locks<'v> {
    rename_seq: Option<SeqGuard<'v>>,
    names: Option<NameGuard<'v>>,
    topology: Option<ClassGuard<'v>>,
    wanted: Wanted,
    /// Whether all of `wanted` is held; otherwise nothing of it counts.
    held: bool,
    /// What was removed is held by what was removed before, until that is reclaimed (an inode by further links, a file by what
    /// its openers are counted on): reclaimed at once, if nobody reads.
    pub collect: bool,
    /// What the backing has answered to this operation's change, until the attempt takes it up.
    answer: Option<Result<u64>>,
    /// Permissions and times of the inode that the backing was told to make: the next attempt's are younger.
    pub made: Option<(PermView, i64)>,
    name_space: &'v NameSpace,
}

/// What an attempt works with: its guard, and what an earlier attempt has pinned.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'g> {
    pub guard: &'g Guard,
    pinned: &'g Pinned,
}

impl<'g> Attempt<'g> {
    /// The directory and name that this operation is about: pinned, once the backing has been told of the change, and
    /// by a walk before.
    pub(crate) fn parent(self, which: usize, walk: impl FnOnce() -> Step<Parent<'g>>) -> Step<Parent<'g>> {
        match self.pinned.parent(which, self.guard) {
            Some(parent) => Ok(parent),
            None => walk(),
        }
    }
}

impl<'v> Locks<'v> {
    fn new(name_space: &'v NameSpace) -> Self {
        Self {
            rename_seq: None,
            names: None,
            topology: None,
            wanted: Wanted::NOTHING,
            held: false,
            collect: false,
            answer: None,
            made: None,
            name_space,
        }
    }

    /// Whether the backing has already made the change: what was checked before is not checked again, and nothing is asked.
    pub(crate) fn answered(&self) -> bool {
        self.answer.is_some()
    }

    /// What the backing has answered, if it has made the change.
    pub(crate) fn answer(&self) -> Option<u64> {
        self.answer?.ok()
    }

    /// A refusal that the operation does not accept: the next attempt asks again.
    fn forget_refusal(&mut self) {
        self.answer = self.answer.filter(Result::is_ok);
    }

    /// Tells the backing of a change, with the locks held that are held now: the attempt ends here, the call is made
    /// without a guard, and the next attempt, with the same `parents`, comes here again and gets the answer.
    pub(crate) fn call(&mut self, parents: &[Parent<'_>], call: impl FnOnce() -> Call) -> Step<u64> {
        match self.answer {
            Some(answer) => Ok(answer?),
            None => Err(Stop::Change(Box::new((Pinned::new(parents)?, call())))),
        }
    }

    /// Takes the locks of `names`, without waiting.
    pub(crate) fn names(&mut self, names: &[Lockable<'_>]) -> Step<()> {
        self.all(false, names, false)
    }

    /// Takes the locks of `names`, and those that a directory needs which changes its place (`rename_seq`) or its
    /// parent (`topology`), without waiting.
    #[inline]
    pub(crate) fn all(&mut self, topology: bool, names: &[Lockable<'_>], rename_seq: bool) -> Step<()> {
        if self.held && !self.covers(topology, names, rename_seq) {
            self.release();
        }
        if !self.held {
            self.wanted.topology = topology;
            self.wanted.rename_seq = rename_seq;
            match names {
                [name] if !topology && !rename_seq => self.take_one(name)?,
                _ => self.take(names)?,
            }
        }
        if names.iter().all(Lockable::stands) {
            return Ok(());
        }
        // Each name in there has a lock of its own by now, which the next attempt finds.
        self.release();
        Err(Stop::Again)
    }

    /// As [`Locks::take`], for what most operations need. Word by word: what is copied as a whole right after it was
    /// written in parts is waited for.
    #[inline]
    fn take_one(&mut self, name: &Lockable<'_>) -> Step<()> {
        let NameKey { dir, hash } = name.key;
        self.wanted.names[0].dir = dir;
        self.wanted.names[0].hash = hash;
        self.wanted.count = 1;
        let Some(locked) = self.name_space.names.try_lock_one(NameKey { dir, hash }) else {
            return Err(Self::taken(slice::from_ref(name)));
        };
        self.names = Some(locked);
        self.held = true;
        Ok(())
    }

    /// Somebody has one of these locks, maybe for another name.
    #[cold]
    fn taken(names: &[Lockable<'_>]) -> Stop {
        names.iter().filter_map(|name| name.grain).for_each(LockGrain::note_contention);
        Stop::Wait
    }

    /// Takes what is wanted, and `names`, without waiting.
    #[inline]
    fn take(&mut self, names: &[Lockable<'_>]) -> Step<()> {
        self.wanted.names.iter_mut().zip(names).for_each(|(wanted, name)| *wanted = name.key);
        self.wanted.count = names.len() as u8;
        if self.wanted.topology {
            self.topology = Some(self.name_space.topology.try_lock().ok_or(Stop::Wait)?);
        }
        self.names = self.name_space.names.try_lock(self.wanted.names());
        if self.names.is_none() {
            return Err(Self::taken(names));
        }
        if self.wanted.rename_seq {
            self.rename_seq = Some(self.name_space.rename_seq.try_lock().ok_or(Stop::Wait)?);
        }
        self.held = true;
        Ok(())
    }

    fn covers(&self, topology: bool, names: &[Lockable<'_>], rename_seq: bool) -> bool {
        let keys = names.iter().map(|name| &name.key);
        self.wanted.names().iter().eq(keys)
            && (self.wanted.topology || !topology)
            && (self.wanted.rename_seq || !rename_seq)
    }

    /// Carries out `change`, at an instant of which a directory may change its place: with the rename sequence odd, if its
    /// lock was wanted. Renderings of paths wait for `change`, and not for what comes before and after it.
    pub(crate) fn moving<T>(&mut self, change: impl FnOnce() -> T) -> T {
        let _moving = self.rename_seq.as_mut().map(SeqGuard::write);
        change()
    }

    fn release(&mut self) {
        self.rename_seq = None;
        self.names = None;
        self.topology = None;
        self.held = false;
    }

    /// Waits for what the last attempt wanted. No guard is held.
    fn wait(&mut self) {
        self.release();
        let wanted = self.wanted;
        if wanted.topology {
            self.topology = Some(self.name_space.topology.lock());
        }
        self.names = Some(self.name_space.names.lock(wanted.names()));
        if wanted.rename_seq {
            self.rename_seq = Some(self.name_space.rename_seq.lock());
        }
        self.held = true;
    }
}

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

/// Runs attempts until one has a result.
pub(crate) fn run<T>(
    name_space: &NameSpace,
    mut attempt: impl for<'g> FnMut(Attempt<'g>, &mut Locks<'_>) -> Step<T>,
) -> Result<T> {
    breathe();
    let mut told = None;
    let result = run_attempts(name_space, &mut attempt, &mut told);
    // The last name of an inode may have gone, and nobody had it open.
    if let Some(sb) = told {
        sb.drain_forgotten();
    }
    result
}

/// As [`run`]; `told` is the tree whose backing was told of a change.
fn run_attempts<T>(
    name_space: &NameSpace,
    attempt: &mut impl for<'g> FnMut(Attempt<'g>, &mut Locks<'_>) -> Step<T>,
    told: &mut Option<Arc<SuperBlock>>,
) -> Result<T> {
    let mut locks = Locks::new(name_space);
    let mut pinned = Pinned::default();
    let mut collected = false;
    let mut moved = 0;
    loop {
        if !locks.answered() {
            pinned = Pinned::default();
        }
        let step = {
            // Who holds that lock already keeps the others out.
            let _still = if locks.rename_seq.is_none() { hold_still(name_space, moved) } else { None };
            attempt(Attempt { guard: &pin(), pinned: &pinned }, &mut locks)
        };
        match step {
            Ok(result) => {
                let collect = locks.collect;
                drop(locks);
                if collect {
                    pando_sync::collect();
                }
                return Ok(result);
            }
            Err(Stop::Error(Error::NoSpace)) if !collected => {
                // A further link that was removed gives its inode back when it is reclaimed: no refusal before that was tried.
                locks.release();
                locks.forget_refusal();
                pando_sync::collect_all();
                if let Some(sb) = told {
                    sb.drain_forgotten();
                }
                collected = true;
            }
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Wait) => locks.wait(),
            Err(Stop::Revoked(ino)) => {
                locks.release();
                name_space.wait_for_permissions(ino);
            }
            Err(Stop::Moved) => {
                locks.release();
                moved += 1;
            }
            // What was found has changed or died: whoever is at it may need the processor to go on.
            Err(Stop::Again) => {
                locks.forget_refusal();
                std::thread::yield_now();
            }
            Err(Stop::Change(change)) => {
                let (parents, call) = *change;
                pinned = parents;
                *told = Some(call.sb().clone());
                locks.answer = Some(call.make());
            }
            Err(Stop::Ask(question)) => {
                // A question takes a name's lock itself. What the backing has already done is not left alone with it.
                debug_assert!(!matches!(locks.answer, Some(Ok(_))), "a question after the change was made");
                locks.forget_refusal();
                locks.release();
                question.answer(name_space)?;
            }
        }
    }
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
        Stop::Again | Stop::Wait | Stop::Revoked(_) | Stop::Change(_) => std::thread::yield_now(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::{Vfs, driver::tests::Nothing};

    /// Whoever finds the lock of a directory's names taken waits for it once. From then on each name has its own, also for who
    /// waits for that of all meanwhile.
    #[test]
    fn names_get_locks_of_their_own_when_two_threads_meet() {
        let vfs = Vfs::new(Nothing).expect("a tree");
        let (root, name_space) = (vfs.root(), vfs.name_space());
        let dir = root.0.inode();
        let name = |hash| Lockable::name(dir, hash).expect("a directory");
        let mut first = Locks::new(name_space);
        assert!(first.names(&[name(1)]).is_ok());
        assert_eq!(name(1).key, name(2).key);
        let mut others = [2, 3].map(|hash| (hash, Locks::new(name_space)));
        for (hash, locks) in &mut others {
            assert!(matches!(locks.names(&[name(*hash)]), Err(Stop::Wait)));
        }
        drop(first);
        for (hash, locks) in &mut others {
            locks.wait();
            if name(*hash).key.hash != *hash {
                assert!(
                    matches!(locks.names(&[name(*hash)]), Err(Stop::Again)),
                    "the lock of all is another one's as well"
                );
            }
            assert!(locks.names(&[name(*hash)]).is_ok());
            assert_eq!(name(*hash).key.hash, *hash);
            // Nobody waits for who has a lock of his own, but by chance.
            assert!((10..20).any(|hash| name_space.names.try_lock(&[name(hash).key]).is_some()));
            assert!(name_space.names.try_lock(&[name(*hash).key]).is_none());
            locks.release();
        }
    }

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
