//! Inodes, pages, and retired memory are freed.

use std::sync::{
    Arc, Barrier,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, DentryRef, Error, OpenFlags, RenameFlags, Walk, XattrFlags};

use crate::{
    harness::{THREADS, Worker, alone, run_workers, scale, seed},
    tree::{NEW, RW, Tree, collect},
};

/// Makes, fills, links, moves and removes files below a directory of its own, and leaves some of
/// them.
fn churn(tree: &Tree, me: &mut Worker<'_>, round: usize) {
    let (vfs, context) = (&tree.vfs, &tree.context);
    let base = format!("/{}.{round}", me.id);
    tree.mkdir(&base);
    for i in 0..4 {
        let path = format!("{base}/{i}");
        let file = vfs.open(context, At::Cwd, &path, NEW, 0o600).expect("made");
        file.pwrite(&[7; 5000], me.rng.below(1 << 20) as u64).expect("written");
        vfs.link(context, At::Cwd, &path, At::Cwd, format!("{path}l"), Walk::empty()).expect("linked");
        let target = if me.rng.one_in(2) { path.repeat(30) } else { path.clone() };
        vfs.symlink(context, target, At::Cwd, format!("{path}s")).expect("made");
        vfs.setxattr(context, At::Cwd, &path, "user.x", "value", XattrFlags::empty(), Walk::empty()).expect("set");
        vfs.chmod(context, At::Cwd, &path, 0o640, Walk::empty()).expect("set");
        if me.rng.one_in(2) {
            vfs.unlink(context, At::Cwd, &path).expect("removed");
        }
    }
    tree.mkdir(&format!("{base}/sub"));
    vfs.rename(
        context,
        At::Cwd,
        format!("{base}/sub"),
        At::Cwd,
        format!("/moved{}.{round}", me.id),
        RenameFlags::empty(),
    )
    .expect("moved");
    drop(vfs.open(context, At::Cwd, &base, RW | OpenFlags::TMPFILE | OpenFlags::DIRECTORY, 0o600).expect("made"));
    if me.rng.one_in(2) {
        tree.remove_below(&base);
        vfs.rmdir(context, At::Cwd, &base).expect("removed");
    }
}

/// After all this, and after everything is removed, every inode and page is free, and no retired
/// memory is left.
#[test]
fn emptied_tree_frees_all_memory() {
    let _alone = alone();
    let (tree, seed, rounds) = (Tree::new(), seed(), scale(15));
    run_workers("emptied_tree_frees_all_memory", THREADS, seed, |me| {
        for round in 0..rounds {
            if !me.go_on() {
                return;
            }
            churn(&tree, me, round);
        }
    });
    assert!(tree.used().0 > 1, "some of it stayed");
    tree.remove_below("/");
    assert_eq!(tree.used(), (1, 0));
    collect();
    assert_eq!(pando_sync::retired_bytes(), 0);
}

/// Links and attributes of one file are made and removed in all ways, mostly with a refusal.
/// Exactly those that exist at the end are charged.
#[test]
fn file_is_charged_for_its_links_and_xattrs() {
    let _alone = alone();
    let (tree, seed, rounds) = (Tree::with_limits(12, 10), seed(), scale(2000));
    tree.touch("/file");
    let flags = RW | OpenFlags::TMPFILE | OpenFlags::DIRECTORY;
    let anonymous = tree.vfs.open(&tree.context, At::Cwd, "/", flags, 0o600).expect("made");
    run_workers("file_is_charged_for_its_links_and_xattrs", THREADS, seed, |me| {
        let (vfs, context) = (&tree.vfs, &tree.context);
        for _ in 0..rounds {
            if !me.go_on() {
                return;
            }
            let name = format!("/{}", me.rng.below(8));
            let attribute = format!("user.{}", me.rng.below(3));
            let other = format!("/{}", me.rng.below(8));
            // Each operation may be refused, and some change nothing.
            let result = match me.rng.below(7) {
                0 => vfs.link(context, At::Cwd, "/file", At::Cwd, &name, Walk::empty()).map(drop),
                1 => vfs.link(context, At::Dir(anonymous.dentry()), "", At::Cwd, &name, Walk::EMPTY_PATH).map(drop),
                2 => vfs.rename(context, At::Cwd, &name, At::Cwd, other, RenameFlags::empty()),
                3 => vfs.removexattr(context, At::Cwd, "/file", &attribute, Walk::empty()),
                4 => {
                    let value = vec![0; me.rng.below(1500)];
                    vfs.setxattr(context, At::Cwd, "/file", &attribute, value, XattrFlags::empty(), Walk::empty())
                }
                _ => vfs.unlink(context, At::Cwd, &name),
            };
            let expected = [Error::Exists, Error::NoEntry, Error::NoSpace, Error::NoData];
            assert!(result.is_ok() || result.is_err_and(|error| expected.contains(&error)), "{result:?}");
        }
    });
    // The root, the two files, and the names of each file but one.
    let names = tree.list(At::Cwd, "/");
    let one = tree.ino("/file").expect("it keeps that name");
    let of_file = names.iter().filter(|(_, ino, _)| *ino == one).count() as u64;
    let of_anonymous = names.len() as u64 - of_file;
    for attribute in ["user.0", "user.1", "user.2"] {
        // It may not exist.
        let _ = tree.vfs.removexattr(&tree.context, At::Cwd, "/file", attribute, Walk::empty());
    }
    assert_eq!(tree.used().0, 1 + of_file + of_anonymous.max(1));
    tree.remove_below("/");
    drop(anonymous);
    assert_eq!(tree.used(), (1, 0));
}

/// An attribute is set while its file is removed. It is charged until the file is freed, and no
/// longer.
#[test]
fn xattrs_of_removed_files_are_refunded() {
    let _alone = alone();
    let (tree, seed, rounds) = (Tree::new(), seed(), scale(2000));
    run_workers("xattrs_of_removed_files_are_refunded", THREADS, seed, |me| {
        let (vfs, context) = (&tree.vfs, &tree.context);
        for _ in 0..rounds {
            if !me.go_on() {
                return;
            }
            let name = format!("/{}", me.rng.below(2));
            let result = match me.rng.below(4) {
                0 => vfs.open(context, At::Cwd, &name, NEW, 0o600).map(drop),
                1 => vfs.unlink(context, At::Cwd, &name),
                _ => vfs.setxattr(context, At::Cwd, &name, "user.x", [0; 3000], XattrFlags::empty(), Walk::empty()),
            };
            assert!(matches!(result, Ok(()) | Err(Error::Exists | Error::NoEntry)), "{result:?}");
        }
    });
    tree.remove_below("/");
    assert_eq!(tree.used(), (1, 0));
}

/// A directory is removed or replaced while another thread releases it. Whichever thread is last,
/// the inode is refunded once.
#[test]
fn removed_directory_refunds_its_inode_once() {
    let _alone = alone();
    let (tree, rounds) = (Tree::new(), scale(10_000));
    let begun = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        // If one thread panics, the channel closes and the other thread ends.
        let (sender, received) = std::sync::mpsc::sync_channel::<DentryRef>(0);
        let begun = &begun;
        threads.spawn(move || {
            for (round, dir) in received.iter().enumerate() {
                // The release falls into a different moment of the removal in each round. The wait
                // is bounded, since the other thread may have panicked.
                let mut patience = 0..1_000_000;
                while begun.load(Ordering::Acquire) <= round && patience.next().is_some() {}
                (0..round % 499).for_each(|_| std::hint::spin_loop());
                drop(dir);
            }
        });
        for round in 0..rounds {
            tree.mkdir("/dir");
            tree.mkdir("/new");
            let dir = tree.vfs.lookup(&tree.context, At::Cwd, "/dir", Walk::empty()).expect("made");
            sender.send(dir).expect("the other thread is there");
            begun.store(round + 1, Ordering::Release);
            if round % 2 == 0 {
                tree.vfs.rmdir(&tree.context, At::Cwd, "/dir").expect("empty");
            }
            let flags = RenameFlags::empty();
            tree.vfs.rename(&tree.context, At::Cwd, "/new", At::Cwd, "/dir", flags).expect("empty");
            tree.vfs.rmdir(&tree.context, At::Cwd, "/dir").expect("empty");
        }
    });
    assert_eq!(tree.used(), (1, 0));
}

/// A tree that is dropped with everything in it leaves nothing either, neither its superblock nor
/// its driver.
#[test]
fn dropped_tree_frees_all_memory() {
    let _alone = alone();
    let seed = seed();
    for round in 0..scale(4) {
        let driver = Arc::new(MemFs::new(MemOptions::default()));
        let tree = Tree::of(driver.clone());
        run_workers("dropped_tree_frees_all_memory", THREADS, seed ^ round as u64, |me| {
            churn(&tree, me, 0);
        });
        drop(tree);
        collect();
        assert_eq!(pando_sync::retired_bytes(), 0);
        assert_eq!(Arc::strong_count(&driver), 1, "the driver is still held");
    }
}

/// Inodes of removed directories are free again as soon as a thread needs them. A tree with few
/// inodes never reports ENOSPC while it is empty.
#[test]
fn inodes_of_removed_directories_are_free_at_once() {
    let _alone = alone();
    let tree = Tree::with_limits(10, 10);
    for round in 0..scale(500) {
        let made = tree.vfs.mkdir(&tree.context, At::Cwd, "/d", 0o777);
        assert!(made.is_ok(), "round {round}: {made:?}, and the tree is empty");
        drop(made);
        for i in 0..8 {
            let made = tree.vfs.open(&tree.context, At::Cwd, format!("/d/{i}"), NEW, 0o600);
            assert!(made.is_ok(), "round {round}: {made:?}, with {} of 10 inodes in use", i + 2);
        }
        assert_eq!(tree.vfs.mkdir(&tree.context, At::Cwd, "/more", 0o777).err(), Some(Error::NoSpace));
        tree.remove_below("/");
    }
}

/// A reader stalls and holds its guard. All other threads continue. When it drops the guard, the
/// retired memory is freed.
#[test]
fn stalled_reader_delays_only_reclamation() {
    let _alone = alone();
    let (tree, seed, rounds) = (Tree::new(), seed(), scale(20));
    collect();
    let (stalled, over) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let guard = pando_sync::pin();
            stalled.wait();
            // Parked and not asleep, so it continues when it is unparked.
            while !over.load(Ordering::Relaxed) {
                std::thread::park();
            }
            drop(guard);
        });
        stalled.wait();
        run_workers("stalled_reader_delays_only_reclamation", 4, seed, |me| {
            for round in 0..rounds {
                if !me.go_on() {
                    return;
                }
                churn(&tree, me, round);
            }
        });
        assert!(pando_sync::retired_bytes() > 0, "a guard as old as the garbage keeps it");
        over.store(true, Ordering::Relaxed);
        reader.thread().unpark();
    });
    tree.remove_below("/");
    assert_eq!(tree.used(), (1, 0));
    assert_eq!(pando_sync::retired_bytes(), 0);
}
