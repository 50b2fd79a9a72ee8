//! Ways that threads remember, while they change: what a walk finds is what was there at an instant of it.

use std::sync::atomic::{AtomicUsize, Ordering};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, Error, OpenFlags, RenameFlags, Result};

use crate::{
    harness::{alone, crew, scale, seed},
    tree::{FOLLOW, NEW, Tree},
};

const THREADS: usize = 8;

/// One thread changes a way to and fro, by `change` to the odd and to the even, and says before each change and after it how
/// many there are. The others walk: if no change was under way from the beginning of a walk to its end, it has found what is
/// there after so many.
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
    crew(what, THREADS, seed, |me| {
        // By turns, a context of all and one of one's own.
        let own = user.clone().with_umask(me.id as u32).with_credentials(Credentials::user(1000, 1000, &[]));
        if me.id == 0 {
            for round in 1..=rounds {
                if !me.go_on() {
                    break;
                }
                begun.store(round, Ordering::SeqCst);
                change(&tree, round % 2 == 1);
                done.store(round, Ordering::SeqCst);
                if me.rng.one_in(4) {
                    std::thread::yield_now();
                }
            }
            begun.store(usize::MAX, Ordering::SeqCst);
        }
        let mut walks = 0;
        while me.go_on() && begun.load(Ordering::SeqCst) != usize::MAX {
            let context = if me.rng.one_in(2) { &user } else { &own };
            let before = done.load(Ordering::SeqCst);
            let result = found(&tree, context);
            if begun.load(Ordering::SeqCst) == before {
                assert_eq!(result, if before % 2 == 0 { even } else { odd }, "after {before} changes");
                walks += 1;
            } else {
                // The two, or what is between them: nothing, or what has just lost its name.
                let between = matches!(result, Ok(0) | Err(Error::NoEntry | Error::Access));
                let possible = result == even || result == odd || between;
                assert!(possible, "{result:?}");
            }
        }
        judged.fetch_add(walks, Ordering::Relaxed);
    });
    assert!(judged.into_inner() > rounds / 8, "hardly any walk was between two changes");
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

/// Seen to fail: a prefix recalled by another sequence; remembered with a sequence that is read after the walk.
#[test]
fn p3_ways_that_change_places() {
    walks_against("p3_ways_that_change_places", 20_000, |tree, _| exchange(tree, "/a", "/z"), file);
}

/// Seen to fail: a removed directory recalled.
#[test]
fn p3_ways_that_are_removed_and_made() {
    walks_against(
        "p3_ways_that_are_removed_and_made",
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
            // A new file each time: by its links.
            tree.vfs.stat(context, At::Cwd, "/a/b/file", FOLLOW).map(|stat| u64::from(stat.nlink))
        },
    );
}

/// Seen to fail: a change of permissions that does not write the sequence, or does it before.
#[test]
fn p11_ways_that_are_closed() {
    walks_against(
        "p11_ways_that_are_closed",
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
fn p14_ways_that_are_mounted_on() {
    walks_against(
        "p14_ways_that_are_mounted_on",
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

/// Who makes a file by a way that he remembers makes it where that leads.
#[test]
fn p3_files_are_made_where_the_way_leads() {
    walks_against(
        "p3_files_are_made_where_the_way_leads",
        10_000,
        |tree, _| exchange(tree, "/a/b", "/z/b"),
        |tree, context| {
            let file = tree.vfs.open(context, At::Cwd, "/a/b/file", OpenFlags::RDONLY | OpenFlags::CREAT, 0o644)?;
            Ok(file.dentry().ino())
        },
    );
}
