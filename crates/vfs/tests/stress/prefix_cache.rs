//! The path-prefix cache while paths change: a walk finds the state of an instant during the walk.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, Error, OpenFlags, RenameFlags, Result};

use crate::{
    harness::{alone, run_workers, scale, seed},
    tree::{FOLLOW, NEW, Tree},
};

const THREADS: usize = 8;

/// One thread changes a path back and forth: `change` makes it odd and then even again. It
/// publishes the number of changes before and after each one. The other threads walk. If no change
/// was in progress from the beginning of a walk to its end, the walk must find the state after that
/// number of changes. The changes continue until there were enough such walks.
///
/// ```text
/// changing thread                walking thread
///                                before := done
/// begun := n
/// change
///                                walk
/// done := n
///                                begun == before? then the result must be that of `before`
/// ```
fn walks_against(
    what: &str,
    rounds: usize,
    change: impl Fn(&Tree, bool) + Sync,
    found: fn(&Tree, &Context) -> Result<u64>,
) {
    let _alone = alone();
    let (tree, seed, rounds) = (Tree::new(), seed(), scale(rounds));
    for dir in ["/a", "/a/b", "/z", "/z/b"] {
        tree.mkdir(dir);
        tree.vfs.chmod(&tree.context, At::Cwd, dir, 0o755, FOLLOW).expect("changed");
    }
    tree.touch("/a/b/file");
    tree.touch("/z/b/file");
    let user = Context::new(&tree.vfs, Credentials::user(1000, 1000, &[]));
    let even = found(&tree, &user);
    change(&tree, true);
    let odd = found(&tree, &user);
    change(&tree, false);
    assert!(even != odd && found(&tree, &user) == even, "{even:?} {odd:?}");
    let (begun, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let judged = AtomicUsize::new(0);
    run_workers(what, THREADS, seed, |me| {
        // Each walk uses either a context that all threads share or one of its own.
        let own = user.clone().with_umask(me.id as u32).with_credentials(Credentials::user(1000, 1000, &[]));
        if me.id == 0 {
            for round in 1.. {
                let is_over = round > rounds && judged.load(Ordering::Relaxed) > rounds / 8;
                if is_over || !me.go_on() {
                    break;
                }
                begun.store(round, Ordering::SeqCst);
                change(&tree, round % 2 == 1);
                done.store(round, Ordering::SeqCst);
                if round > rounds {
                    // The scheduler has let the others walk too rarely between two changes.
                    std::thread::sleep(Duration::from_micros(50));
                } else if me.rng.one_in(4) {
                    std::thread::yield_now();
                }
            }
            begun.store(usize::MAX, Ordering::SeqCst);
        }
        while me.go_on() && begun.load(Ordering::SeqCst) != usize::MAX {
            let context = if me.rng.one_in(2) { &user } else { &own };
            let before = done.load(Ordering::SeqCst);
            let result = found(&tree, context);
            if begun.load(Ordering::SeqCst) == before {
                assert_eq!(result, if before % 2 == 0 { even } else { odd }, "after {before} changes");
                judged.fetch_add(1, Ordering::Relaxed);
            } else {
                // The result is one of the two states, or a state in between: no file, or a file
                // that has just lost its name.
                let between = matches!(result, Ok(0) | Err(Error::NoEntry | Error::Access));
                let possible = result == even || result == odd || between;
                assert!(possible, "{result:?}");
            }
        }
    });
}

fn file(tree: &Tree, context: &Context) -> Result<u64> {
    tree.vfs.stat(context, At::Cwd, "/a/b/file", FOLLOW).map(|stat| stat.ino)
}

fn root(tree: &Tree) -> (&pando_vfs::Vfs, &Context) {
    (&tree.vfs, &tree.context)
}

fn exchange(tree: &Tree, one: &str, other: &str) {
    let (vfs, root) = root(tree);
    vfs.rename(root, At::Cwd, one, At::Cwd, other, RenameFlags::EXCHANGE).expect("exchanged");
}

/// Seen to fail: a prefix used with another sequence; a prefix cached with a sequence that was read
/// after the walk.
#[test]
fn p3_prefixes_during_exchange() {
    walks_against("p3_prefixes_during_exchange", 20_000, |tree, _| exchange(tree, "/a", "/z"), file);
}

/// Seen to fail: a prefix used although its directory was removed.
#[test]
fn p3_prefixes_during_rmdir_and_mkdir() {
    walks_against(
        "p3_prefixes_during_rmdir_and_mkdir",
        10_000,
        |tree, odd| {
            let (vfs, root) = root(tree);
            vfs.unlink(root, At::Cwd, "/a/b/file").expect("there");
            vfs.rmdir(root, At::Cwd, "/a/b").expect("empty");
            vfs.mkdir(root, At::Cwd, "/a/b", 0o755).expect("free");
            if odd {
                vfs.link(root, At::Cwd, "/z/b/file", At::Cwd, "/a/b/file", FOLLOW).expect("free");
            } else {
                drop(vfs.open(root, At::Cwd, "/a/b/file", NEW, 0o644).expect("free"));
            }
        },
        |tree, context| {
            // A new file each time, so they are distinguished by their link counts.
            tree.vfs.stat(context, At::Cwd, "/a/b/file", FOLLOW).map(|stat| u64::from(stat.nlink))
        },
    );
}

/// Seen to fail: a change of permissions that does not write the sequence, or writes it before the
/// change.
#[test]
fn p11_prefixes_during_chmod() {
    walks_against(
        "p11_prefixes_during_chmod",
        20_000,
        |tree, odd| {
            let (vfs, root) = root(tree);
            vfs.chmod(root, At::Cwd, "/a", if odd { 0o700 } else { 0o755 }, FOLLOW).expect("changed");
        },
        file,
    );
}

/// Seen to fail: a mount that does not write the sequence.
#[test]
fn p14_prefixes_during_mount() {
    walks_against(
        "p14_prefixes_during_mount",
        3000,
        |tree, odd| {
            let (vfs, root) = root(tree);
            if odd {
                vfs.mount(root, At::Cwd, "/a", MemFs::new(MemOptions::default())).expect("mounted");
            } else {
                vfs.umount(root, At::Cwd, "/a").expect("unmounted");
            }
        },
        file,
    );
}

/// A thread that makes a file by a cached prefix makes it in the directory where the path leads.
#[test]
fn p3_creates_follow_exchanged_directories() {
    walks_against(
        "p3_creates_follow_exchanged_directories",
        10_000,
        |tree, _| exchange(tree, "/a/b", "/z/b"),
        |tree, context| {
            let file = tree.vfs.open(context, At::Cwd, "/a/b/file", OpenFlags::RDONLY | OpenFlags::CREAT, 0o644)?;
            Ok(file.dentry().ino())
        },
    );
}
