//! After a crash during the operations of several threads, a store has all that had returned before
//! anything began that it has, too (P15).

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use pando_kv::Embedded;
use pando_vfs::{At, RenameFlags, Walk};

use crate::{
    crash::{expect_consistent, open},
    machine::{Image, Machine, Progress},
    support::{Rng, seed, seen},
};

const THREADS: usize = 4;
/// The renames of each thread.
const RENAMES: usize = 60;

/// When an operation began and when it returned, in counts of all that has begun or returned.
type Interval = (usize, usize);

fn marker(thread: usize, number: usize) -> String {
    format!("/m{thread}-{number}")
}

/// Each thread renames a file of its own, again and again, in one directory. Returns the number of
/// crashes.
fn crashes(random: &mut Rng) -> usize {
    let machine = Machine::new(&Image::default());
    drop(Embedded::create(std::sync::Arc::new(machine.clone())).expect("made"));
    let (vfs, context) = open(&machine);
    for thread in 0..THREADS {
        vfs.mknod(&context, At::Cwd, marker(thread, 0), 0o100_644, 0).expect("made");
    }
    vfs.sync().expect("stored");
    machine.crash(Rng(random.next()), 2);
    let (clock, has_ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let intervals: Vec<Mutex<Vec<Interval>>> = (0..THREADS).map(|_| Mutex::default()).collect();
    let tick = || {
        let now = clock.fetch_add(1, SeqCst);
        machine.note_returned(now);
        now
    };
    thread::scope(|scope| {
        let syncing = scope.spawn(|| {
            while !has_ended.load(SeqCst) {
                let before = tick();
                vfs.sync().expect("stored");
                machine.note_synced(before);
            }
        });
        let work = |thread: usize| {
            for number in 0..RENAMES {
                let (old, new) = (marker(thread, number), marker(thread, number + 1));
                let began = tick();
                vfs.rename(&context, At::Cwd, old, At::Cwd, new, RenameFlags::empty()).expect("renamed");
                intervals[thread].lock().expect("no panic").push((began, tick()));
                let dir = format!("/d{thread}");
                match number % 2 {
                    0 => drop(vfs.mkdir(&context, At::Cwd, dir, 0o755).expect("made")),
                    _ => vfs.rmdir(&context, At::Cwd, dir).expect("removed"),
                }
            }
        };
        let workers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        has_ended.store(true, SeqCst);
        syncing.join().expect("no panic");
    });
    let intervals: Vec<Vec<Interval>> =
        intervals.into_iter().map(|intervals| intervals.into_inner().expect("no panic")).collect();
    let images = machine.take_images();
    images.iter().for_each(|(progress, image)| check(&intervals, *progress, image));
    images.len()
}

fn check(intervals: &[Vec<Interval>], progress: Progress, image: &Image) {
    let machine = Machine::new(image);
    expect_consistent(&machine);
    let (vfs, context) = open(&machine);
    let tree = seen(&vfs, &context);
    let mut found: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for name in tree.keys().filter_map(|path| path.strip_prefix("/m")) {
        let (thread, number) = name.split_once('-').expect("a marker");
        found.entry(thread.parse().expect("a number")).or_default().push(number.parse().expect("a number"));
    }
    let counts: Vec<usize> = (0..THREADS)
        .map(|thread| match found.get(&thread).map(Vec::as_slice) {
            Some([count]) => *count,
            other => panic!("thread {thread}: {other:?}"),
        })
        .collect();
    let subdirectories = tree.keys().filter(|path| path.starts_with("/d")).count();
    let root = vfs.stat(&context, At::Cwd, "/", Walk::empty()).expect("there");
    assert_eq!(root.nlink as usize, 2 + subdirectories);
    for (count, own) in counts.iter().zip(intervals) {
        assert!(*count >= own.iter().filter(|(_, returned)| *returned < progress.synced).count(), "synced");
        let Some((began, _)) = count.checked_sub(1).map(|last| own[last]) else { continue };
        assert!(began <= progress.returned, "had not begun");
        for (other_count, other) in counts.iter().zip(intervals) {
            let before = other.iter().filter(|(_, returned)| *returned < began).count();
            assert!(*other_count >= before, "{counts:?}: one that had returned before is missing");
        }
    }
}

#[test]
fn store_has_a_prefix_of_the_operations_of_all_threads() {
    let mut random = Rng(seed());
    let rounds = pandofs_testkit::number("PANDO_CRASH_ROUNDS").unwrap_or(5);
    let images: usize = (0..rounds).map(|_| crashes(&mut random)).sum();
    println!("{images} images");
    assert!(images as u64 > rounds, "{images}");
}
