//! Locks of files: random calls have the same results as on a file of the kernel, deadlocks are
//! found, waits end, and no two threads have what excludes each other.

#[path = "support/splitmix.rs"]
mod splitmix;

use std::{
    fs,
    sync::atomic::{AtomicI64, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, c_int, flock},
};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, Error, File, LockKind, LockOwner, LockRange, LockWait, OpenFlags, Vfs};
use pandofs_testkit::await_value;

use LockKind::{Exclusive, Shared};
use LockWait::{For, No};

fn tree() -> (Vfs, Context) {
    let vfs = Vfs::new(MemFs::new(MemOptions::new())).expect("a tree");
    let root = Context::new(&vfs, Credentials::root());
    (vfs, root)
}

fn open(vfs: &Vfs, context: &Context, path: &str) -> File {
    vfs.open(context, At::Cwd, path, OpenFlags::RDWR | OpenFlags::CREAT, 0o600).expect("opened")
}

fn range(start: u64, len: u64) -> LockRange {
    LockRange::new(start, len).expect("in range")
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        splitmix::next(&mut self.0) % end
    }
}

/// A lock of an open file of the kernel.
fn lock_of(kind: c_int, start: u64, len: u64) -> flock {
    let (l_start, l_len) = (start.cast_signed(), len.cast_signed());
    flock { l_type: kind as i16, l_whence: SEEK_SET as i16, l_start, l_len, l_pid: 0 }
}

/// F_OFD_SETLK. The errno, or 0.
fn set_by_kernel(file: &fs::File, kind: c_int, start: u64, len: u64) -> i32 {
    let lock = lock_of(kind, start, len);
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).map_or_else(|errno| errno as i32, |_| 0)
}

/// F_OFD_GETLK: whether another one has a lock that excludes this one.
fn is_excluded_by_kernel(file: &fs::File, kind: c_int, start: u64, len: u64) -> bool {
    let mut lock = lock_of(kind, start, len);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).expect("asked");
    i32::from(lock.l_type) != F_UNLCK
}

/// Some owners lock, unlock and ask, in ranges that often touch. Each result is that of the kernel.
/// The kernel's locks of open files are split and merged as those of processes are.
#[test]
fn random_calls_have_the_results_of_the_kernel() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let (vfs, context) = tree();
        let temp = tempfile::NamedTempFile::new().expect("a file");
        let flags = [(true, true), (true, true), (true, true), (true, false), (false, true)];
        let theirs: Vec<_> =
            flags.map(|(read, write)| fs::File::options().read(read).write(write).open(temp.path()).unwrap()).into();
        let ours: Vec<_> = flags
            .map(|(read, write)| {
                let mode = [OpenFlags::RDONLY, OpenFlags::WRONLY, OpenFlags::RDWR]
                    [usize::from(write) + usize::from(read && write)];
                vfs.open(&context, At::Cwd, "/f", mode | OpenFlags::CREAT, 0o600).expect("opened")
            })
            .into();
        for step in 0..300 {
            let (who, start, len) = (random.below(5) as usize, random.below(40), random.below(12));
            // Half of the trees have processes as owners.
            let owner = if seed % 2 == 0 { LockOwner::OpenFile } else { LockOwner::Process(who as u64) };
            let place = LockRange::new(start, len).expect("in range");
            let case = format!("seed {seed}, step {step}, {who} at {start}, {len}");
            match random.below(5) {
                kind @ 0..=2 => {
                    let number = [F_RDLCK, F_WRLCK, F_UNLCK][kind as usize];
                    let expected = set_by_kernel(&theirs[who], number, start, len);
                    let found = match kind {
                        0 => ours[who].lock_range(owner, Shared, place, No),
                        1 => ours[who].lock_range(owner, Exclusive, place, No),
                        _ => ours[who].unlock_range(owner, place),
                    };
                    assert_eq!(found.map_or_else(Error::errno, |()| 0), expected, "{case}, {kind}");
                }
                kind => {
                    let (kind, number) = [(Shared, F_RDLCK), (Exclusive, F_WRLCK)][kind as usize - 3];
                    let expected = is_excluded_by_kernel(&theirs[who], number, start, len);
                    let found = ours[who].conflicting_lock(owner, kind, place).expect("asked");
                    assert_eq!(found.is_some(), expected, "{case}: {found:?}");
                }
            }
        }
        // At the end, another open file asks for each byte whether it could lock it.
        let (asker, theirs_too) =
            (open(&vfs, &context, "/f"), fs::File::options().read(true).write(true).open(temp.path()).unwrap());
        for byte in 0..60 {
            for (kind, number) in [(Shared, F_RDLCK), (Exclusive, F_WRLCK)] {
                let expected = is_excluded_by_kernel(&theirs_too, number, byte, 1);
                let found = asker.conflicting_lock(LockOwner::OpenFile, kind, range(byte, 1)).expect("asked");
                assert_eq!(found.is_some(), expected, "seed {seed}, byte {byte}: {found:?}");
            }
        }
    }
}

#[test]
fn locks_end_as_on_linux() {
    let (vfs, context) = tree();
    let [one, other] = [(); 2].map(|()| open(&vfs, &context, "/f"));
    let free = |file: &File, owner| file.conflicting_lock(owner, Exclusive, LockRange::WHOLE).expect("asked").is_none();
    // By any open file of the process.
    one.lock_range(LockOwner::Process(1), Exclusive, range(0, 10), No).expect("locked");
    other.lock_range(LockOwner::Process(1), Exclusive, range(20, 0), No).expect("locked");
    let held = other.conflicting_lock(LockOwner::Process(2), Shared, range(5, 100)).expect("asked").expect("one");
    assert_eq!((held.kind, held.range, held.process), (Exclusive, range(0, 10), Some(1)));
    assert!(free(&other, LockOwner::Process(1)) && !free(&one, LockOwner::Process(2)));
    // Those that touch become one.
    one.lock_range(LockOwner::Process(1), Exclusive, range(10, 5), No).expect("locked");
    let held = other.conflicting_lock(LockOwner::Process(2), Shared, range(5, 3)).expect("asked").expect("one");
    assert_eq!(held.range, range(0, 15));
    one.lock_range(LockOwner::Process(1), Exclusive, range(15, 5), No).expect("locked");
    let held = other.conflicting_lock(LockOwner::Process(2), Shared, range(5, 3)).expect("asked").expect("one");
    assert_eq!(held.range, LockRange::WHOLE);
    drop(one);
    let path = vfs.open(&context, At::Cwd, "/f", OpenFlags::PATH, 0).expect("opened");
    path.release_process_locks(1);
    assert!(!free(&other, LockOwner::Process(2)), "the embedder says which process closes which file");
    other.release_process_locks(1);
    assert!(free(&other, LockOwner::Process(2)));
    for (number, file) in [&other, &open(&vfs, &context, "/g")].into_iter().enumerate() {
        file.lock_range(LockOwner::Process(3), Shared, range(number as u64, 1), No).expect("locked");
    }
    vfs.release_process_locks(3);
    assert!(vfs.has_no_locks());
    // Of the open file.
    let one = open(&vfs, &context, "/f");
    one.lock_range(LockOwner::OpenFile, Shared, LockRange::WHOLE, No).expect("locked");
    one.flock(Exclusive, No).expect("locked");
    assert!(!free(&other, LockOwner::OpenFile));
    assert_eq!(other.flock(Shared, No), Err(Error::TryAgain));
    drop(one);
    assert!(free(&other, LockOwner::OpenFile) && vfs.has_no_locks());
    // Locks of a file that is removed, and of another file of that name.
    let removed = open(&vfs, &context, "/g");
    removed.flock(Exclusive, No).expect("locked");
    vfs.unlink(&context, At::Cwd, "/g").expect("removed");
    assert_eq!(open(&vfs, &context, "/g").flock(Exclusive, No), Ok(()));
    drop(removed);
    assert!(vfs.has_no_locks());
}

#[test]
fn flocks_are_converted_as_on_linux() {
    let (vfs, context) = tree();
    let [one, other, third] = [(); 3].map(|()| open(&vfs, &context, "/f"));
    // Alone, in both directions, and again.
    for kind in [Shared, Exclusive, Exclusive, Shared, Shared] {
        assert_eq!(one.flock(kind, No), Ok(()));
    }
    assert_eq!((other.flock(Shared, No), third.flock(Exclusive, No)), (Ok(()), Err(Error::TryAgain)));
    assert_eq!(one.flock(Exclusive, No), Err(Error::TryAgain));
    assert_eq!(other.flock(Exclusive, No), Ok(()), "the failed call has removed the shared one");
    assert_eq!((other.unlock(), one.unlock(), vfs.has_no_locks()), (Ok(()), Ok(()), true));
    // A shared one for an exclusive one, while another thread waits for an exclusive one.
    other.flock(Exclusive, No).expect("locked");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| third.flock(Exclusive, LONG));
        until_waiting(&third, 1);
        assert_eq!(other.flock(Shared, No), Ok(()), "nobody gets in between");
        assert_eq!(one.flock(Shared, No), Ok(()));
        assert_eq!((one.unlock(), other.unlock()), (Ok(()), Ok(())));
        assert_eq!(waiting.join().expect("no panic"), Ok(()));
    });
    // By two threads that share the open file.
    thread::scope(|scope| {
        let waiting = [(); 2].map(|()| scope.spawn(|| one.flock(Exclusive, LONG)));
        until_waiting(&one, 2);
        third.unlock().expect("unlocked");
        waiting.into_iter().for_each(|waiting| assert_eq!(waiting.join().expect("no panic"), Ok(())));
    });
    assert_eq!((one.unlock(), vfs.has_no_locks()), (Ok(()), true), "it had one");
}

#[test]
fn impossible_locks_are_refused() {
    let (vfs, context) = tree();
    let file = open(&vfs, &context, "/f");
    assert_eq!(LockRange::new(1 << 63, 1), Err(Error::Invalid));
    assert_eq!(LockRange::new(2, (1 << 63) - 1), Err(Error::Overflow));
    assert_eq!(LockRange::new(5, 1 << 63).err(), Some(Error::Overflow));
    assert_eq!(LockRange::new(1, (1 << 63) - 1).map(|range| (range.start(), range.end())), Ok((1, None)));
    assert_eq!(LockRange::new(1, 2).map(|range| (range.start(), range.end())), Ok((1, Some(3))));
    let neither = OpenFlags::from_bits_retain(3);
    let cases = [
        (OpenFlags::RDONLY, Exclusive, Ok(())),
        (OpenFlags::WRONLY, Shared, Ok(())),
        (OpenFlags::PATH, Shared, Err(Error::BadHandle)),
        (neither, Shared, Err(Error::BadHandle)),
    ];
    for (flags, kind, flock) in cases {
        let file = vfs.open(&context, At::Cwd, "/f", flags, 0).expect("opened");
        let refused = file.lock_range(LockOwner::OpenFile, kind, LockRange::WHOLE, No);
        assert_eq!(refused, Err(Error::BadHandle), "{flags:?}");
        assert_eq!(file.flock(Exclusive, No), flock, "{flags:?}");
    }
    let dir = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opened");
    assert_eq!(dir.lock_range(LockOwner::OpenFile, Shared, LockRange::WHOLE, No), Ok(()));
    drop(dir);
    // A wait with an end.
    let other = open(&vfs, &context, "/f");
    other.lock_range(LockOwner::OpenFile, Exclusive, range(5, 5), No).expect("locked");
    let time = Duration::from_millis(20);
    assert_eq!(file.lock_range(LockOwner::OpenFile, Shared, range(0, 6), For(time)), Err(Error::TryAgain));
    assert_eq!(file.lock_range(LockOwner::OpenFile, Shared, range(0, 5), For(time)), Ok(()));
    // And one that is interrupted.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| file.lock_range(LockOwner::Process(7), Shared, range(7, 1), LONG));
        until_waiting(&file, 1);
        file.interrupt_lock_waits();
        assert_eq!(waiting.join().expect("no panic"), Err(Error::Interrupted));
    });
    drop((file, other));
    assert!(vfs.has_no_locks());
}

/// A guest cannot fill the memory, neither with locks nor by splitting one.
#[test]
fn there_is_a_most_of_locks() {
    let (vfs, context) = tree();
    let files: Vec<_> = (0..8192).map(|number| open(&vfs, &context, &format!("/{number}"))).collect();
    let mut made = 0;
    'all: for place in 0.. {
        for file in &files {
            match file.lock_range(LockOwner::OpenFile, Shared, range(2 * place, 1), No) {
                Ok(()) => made += 1,
                Err(error) => {
                    assert_eq!(error, Error::NoLocks);
                    break 'all;
                }
            }
        }
    }
    assert!(((1 << 20) - 2..=1 << 20).contains(&made), "{made}");
    // A change of the kind is no new lock. Two that touch become one. A split is refused, an end
    // that is cut off is not.
    let file = &files[0];
    assert_eq!(file.lock_range(LockOwner::OpenFile, Exclusive, range(0, 1), No), Ok(()));
    assert_eq!(file.unlock_range(LockOwner::OpenFile, range(0, 1)), Ok(()));
    assert_eq!(file.lock_range(LockOwner::OpenFile, Shared, range(10_000, 10), No), Ok(()));
    assert_eq!(file.unlock_range(LockOwner::OpenFile, range(10_003, 1)), Err(Error::NoLocks));
    assert_eq!(file.unlock_range(LockOwner::OpenFile, range(10_003, 100)), Ok(()));
    drop(files);
    assert!(vfs.has_no_locks());
}

/// Long enough for a slow machine. A test that is wrong ends all the same.
const LONG: LockWait = For(Duration::from_secs(600));

/// Waits until so many threads wait for a lock of the file.
fn until_waiting(file: &File, count: usize) {
    while file.lock_waiters() < count {
        thread::yield_now();
    }
}

/// A circle of processes, of each length: the call that would close it fails, and the others go on.
#[test]
fn deadlocks_are_found() {
    for length in 2..6_u64 {
        let (vfs, context) = tree();
        let file = |number: u64| open(&vfs, &context, &format!("/{number}"));
        for process in 0..length {
            // Besides, a lock of an open file and one of a process that waits for nobody: the one
            // with the first byte is not always the one of the circle.
            file(process).lock_range(LockOwner::Process(100), Shared, range(0, 1), No).expect("locked");
            file(process).lock_range(LockOwner::Process(process), Exclusive, range(7, 1), No).expect("locked");
        }
        thread::scope(|scope| {
            let waiting: Vec<_> = (1..length)
                .map(|process| {
                    let next = file((process + 1) % length);
                    let seen = file((process + 1) % length);
                    let own = file(process);
                    let waiting = scope.spawn(move || {
                        let result = next.lock_range(LockOwner::Process(process), Shared, range(1, 20), LONG);
                        // For the one that waits for this process.
                        own.release_process_locks(process);
                        next.release_process_locks(process);
                        result
                    });
                    until_waiting(&seen, 1);
                    waiting
                })
                .collect();
            let closing = |owner, wait| file(1).lock_range(owner, Exclusive, LockRange::WHOLE, wait);
            assert_eq!(closing(LockOwner::Process(0), LONG), Err(Error::Deadlock), "{length} processes");
            // Without a wait, or by an open file, it is no deadlock.
            assert_eq!(closing(LockOwner::Process(0), No), Err(Error::TryAgain));
            assert_eq!(closing(LockOwner::OpenFile, For(Duration::from_millis(1))), Err(Error::TryAgain));
            // One that has ended its wait is in no circle.
            file(0).release_process_locks(0);
            waiting.into_iter().for_each(|waiting| assert_eq!(waiting.join().expect("no panic"), Ok(())));
        });
        vfs.release_process_locks(100);
        assert!(vfs.has_no_locks());
    }
}

/// A process waits for all that have the range, also for one that has got a lock there since the
/// wait began.
#[test]
fn deadlocks_by_a_later_lock_are_found() {
    let (vfs, context) = tree();
    let [one, two] = [1, 2].map(LockOwner::Process);
    // At first it waits for a process that waits for nobody, or for an open file.
    for first in [LockOwner::Process(3), LockOwner::OpenFile] {
        let [a, b] = ["/a", "/b"].map(|path| open(&vfs, &context, path));
        b.lock_range(one, Exclusive, LockRange::WHOLE, No).expect("locked");
        a.lock_range(first, Shared, LockRange::WHOLE, No).expect("locked");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let result = a.lock_range(one, Exclusive, LockRange::WHOLE, LONG);
                b.release_process_locks(1);
                result
            });
            until_waiting(&a, 1);
            a.lock_range(two, Shared, range(5, 1), No).expect("locked");
            let closing = b.lock_range(two, Exclusive, LockRange::WHOLE, LONG);
            // One of the two gets EDEADLK, and the other one its lock.
            if closing == Err(Error::Deadlock) {
                a.release_process_locks(2);
                a.unlock_range(first, LockRange::WHOLE).expect("unlocked");
            }
            let results = (closing, waiting.join().expect("no panic"));
            let [none, told] = [Ok(()), Err(Error::Deadlock)];
            assert!(results == (none, told) || results == (told, none), "{results:?}");
        });
        (1..=3).for_each(|process| vfs.release_process_locks(process));
    }
    assert!(vfs.has_no_locks());
}

/// A wait that was in vain has removed the old lock, and not the one that another thread has got by
/// the same open file meanwhile.
#[test]
fn the_end_of_a_wait_removes_nothing() {
    let (vfs, context) = tree();
    let [one, other, third] = [(); 3].map(|()| open(&vfs, &context, "/f"));
    other.flock(Shared, No).expect("locked");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| one.flock(Exclusive, For(Duration::from_millis(100))));
        until_waiting(&one, 1);
        one.flock(Shared, No).expect("locked");
        assert_eq!(waiting.join().expect("no panic"), Err(Error::TryAgain));
    });
    other.unlock().expect("unlocked");
    assert_eq!(third.flock(Exclusive, No), Err(Error::TryAgain));
    drop(one);
    assert_eq!((third.flock(Exclusive, No), third.unlock(), vfs.has_no_locks()), (Ok(()), Ok(()), true));
}

/// A process that was just let in, or interrupted, waits no more, also before its thread runs
/// again: that is no circle.
#[test]
fn a_wait_that_has_ended_is_no_deadlock() {
    let (vfs, context) = tree();
    let [a, b] = ["/a", "/b"].map(|path| open(&vfs, &context, path));
    let (one, two) = (LockOwner::Process(1), LockOwner::Process(2));
    for round in 0..200 {
        a.lock_range(one, Exclusive, LockRange::WHOLE, No).expect("locked");
        b.lock_range(two, Exclusive, LockRange::WHOLE, No).expect("locked");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let result = b.lock_range(one, Exclusive, LockRange::WHOLE, LONG);
                vfs.release_process_locks(1);
                result
            });
            until_waiting(&b, 1);
            let result = if round % 2 == 0 {
                b.unlock_range(two, LockRange::WHOLE).expect("unlocked");
                Ok(())
            } else {
                b.interrupt_lock_waits();
                Err(Error::Interrupted)
            };
            assert_eq!(a.lock_range(two, Exclusive, LockRange::WHOLE, LONG), Ok(()), "round {round}");
            assert_eq!(waiting.join().expect("no panic"), result);
        });
        vfs.release_process_locks(2);
    }
    assert!(vfs.has_no_locks());
}

/// A lock that is released, cut, made shared or dropped with its open file wakes a thread that
/// waits for it. No other change does.
#[test]
fn waits_end_when_there_is_room() {
    let (vfs, context) = tree();
    let changes: [fn(File); 4] = [
        |file| file.unlock_range(LockOwner::Process(1), range(5, 1)).expect("unlocked"),
        |file| file.lock_range(LockOwner::Process(1), Shared, range(0, 6), No).expect("locked"),
        |file| file.release_process_locks(1),
        |file| {
            file.release_process_locks(1);
            drop(file);
        },
    ];
    for change in changes {
        let [holder, waiter] = [(); 2].map(|()| open(&vfs, &context, "/f"));
        holder.lock_range(LockOwner::Process(1), Exclusive, range(0, 10), No).expect("locked");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.lock_range(LockOwner::Process(2), Shared, range(5, 1), LONG));
            until_waiting(&waiter, 1);
            let other = open(&vfs, &context, "/f");
            other.release_process_locks(9);
            holder.unlock_range(LockOwner::Process(1), range(8, 1)).expect("unlocked");
            assert_eq!(waiter.lock_waiters(), 1, "no room for it");
            change(holder);
            await_value(true, || waiting.is_finished());
            assert_eq!(waiting.join().expect("no panic"), Ok(()));
        });
        vfs.release_process_locks(1);
        vfs.release_process_locks(2);
        assert!(vfs.has_no_locks());
    }
}

/// Random processes lock and unlock ranges of a few files. Each has at most what excludes no other,
/// and a circle is broken by EDEADLK: a wait that does not end fails the test.
#[test]
fn nobody_has_what_another_excludes() {
    const FILES: u64 = 3;
    const BYTES: u64 = 8;
    let rounds = if cfg!(debug_assertions) { 3_000 } else { 20_000 };
    let (vfs, context) = tree();
    // How many have a byte: -1 is an exclusive one.
    let held: Vec<AtomicI64> = (0..FILES * BYTES).map(|_| AtomicI64::new(0)).collect();
    let deadlocks = AtomicUsize::new(0);
    thread::scope(|scope| {
        for process in 0..6_u64 {
            let (vfs, context, held, deadlocks) = (&vfs, &context, &held, &deadlocks);
            scope.spawn(move || {
                let mut random = Random(process);
                let files: Vec<_> = (0..FILES).map(|number| open(vfs, context, &format!("/{number}"))).collect();
                let owner = |file: u64| if file == 2 { LockOwner::OpenFile } else { LockOwner::Process(process) };
                // The file, byte and kind of each lock.
                let mut mine: Vec<(u64, u64, LockKind)> = Vec::new();
                let unlock = |(file, byte, kind): (u64, u64, LockKind)| {
                    let change = if kind == Exclusive { 1 } else { -1 };
                    held[(file * BYTES + byte) as usize].fetch_add(change, Ordering::SeqCst);
                    files[file as usize].unlock_range(owner(file), range(byte, 1)).expect("unlocked");
                };
                for _ in 0..rounds {
                    let (file, byte) = (random.below(FILES), random.below(BYTES));
                    let kind = if random.below(3) == 0 { Exclusive } else { Shared };
                    if mine.len() == 3 || mine.iter().any(|lock| (lock.0, lock.1) == (file, byte)) {
                        mine.drain(..).for_each(unlock);
                        continue;
                    }
                    // Those of open files are in no deadlock that is found: they wait for a moment.
                    let wait = if file == 2 { For(Duration::from_micros(200)) } else { LONG };
                    match files[file as usize].lock_range(owner(file), kind, range(byte, 1), wait) {
                        Ok(()) => {
                            let count = &held[(file * BYTES + byte) as usize];
                            if kind == Exclusive {
                                assert_eq!(count.fetch_sub(1, Ordering::SeqCst), 0, "an exclusive lock");
                            } else {
                                assert!(count.fetch_add(1, Ordering::SeqCst) >= 0, "a shared lock");
                            }
                            mine.push((file, byte, kind));
                        }
                        Err(Error::Deadlock) => {
                            deadlocks.fetch_add(1, Ordering::SeqCst);
                            mine.drain(..).for_each(unlock);
                        }
                        Err(error) => assert_eq!((error, file), (Error::TryAgain, 2)),
                    }
                }
                mine.drain(..).for_each(unlock);
            });
        }
    });
    assert!(deadlocks.into_inner() > 0, "the test makes deadlocks");
    assert!(held.iter().all(|count| count.load(Ordering::SeqCst) == 0));
    assert!(vfs.has_no_locks());
}
