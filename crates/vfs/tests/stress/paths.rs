//! P9: a rendered path existed, renames cannot starve rendering, and rendering cannot starve
//! renames.

use std::sync::atomic::{AtomicUsize, Ordering};

use pando_vfs::{At, DentryRef, RenameFlags};

use crate::{
    harness::{THREADS, Worker, alone, run_workers, scale, seed},
    tree::{FOLLOW, Tree},
};

/// Runs `rename` on the first threads until all others have rendered `renders` paths. Each path
/// must be one of `allowed`. Neither side can finish if the other starves it.
fn render_against(
    what: &str,
    tree: &Tree,
    renamers: usize,
    renders: usize,
    targets: &[(&DentryRef, &[&str])],
    rename: impl Fn(&mut Worker<'_>) + Sync,
) {
    let seed = seed();
    let (rendering, renamed) = (AtomicUsize::new(THREADS - renamers), AtomicUsize::new(0));
    run_workers(what, THREADS, seed, |me| {
        if me.id < renamers {
            // At least a quarter as many renames as renders of one thread, and until all renders
            // are done.
            let mut left = renders / 4;
            while left > 0 || rendering.load(Ordering::Relaxed) > 0 {
                if !me.go_on() {
                    return;
                }
                rename(me);
                left = left.saturating_sub(1);
                renamed.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        for _ in 0..renders {
            if !me.go_on() {
                return;
            }
            let (dentry, allowed) = targets[me.rng.below(targets.len())];
            let path = tree.vfs.d_path(&tree.context, dentry, 4096).expect("renders");
            let path = String::from_utf8_lossy(&path);
            assert!(allowed.contains(&&*path), "{path} has never existed");
        }
        rendering.fetch_sub(1, Ordering::Relaxed);
    });
    assert!(renamed.into_inner() >= renamers * (renders / 4));
}

fn rename(tree: &Tree, old: &str, new: &str) {
    tree.vfs
        .rename(&tree.context, At::Cwd, old, At::Cwd, new, RenameFlags::empty())
        .unwrap_or_else(|e| panic!("{old} to {new}: {e}"));
}

/// Two directories exchange places continuously, and their contents move with them.
#[test]
fn p9_paths_below_exchanged_directories() {
    let _alone = alone();
    let tree = Tree::new();
    for dir in ["/p", "/q", "/p/x", "/q/y", "/p/x/deep"] {
        tree.mkdir(dir);
    }
    let inside = ["/p/x/deep/f", "/q/y/g"].map(|path| {
        tree.touch(path);
        tree.vfs.lookup(&tree.context, At::Cwd, path, FOLLOW).expect("there")
    });
    let targets: [(&DentryRef, &[&str]); 2] =
        [(&inside[0], &["/p/x/deep/f", "/q/y/deep/f"]), (&inside[1], &["/q/y/g", "/p/x/g"])];
    render_against("p9_paths_below_exchanged_directories", &tree, 4, scale(10000), &targets, |_| {
        let swapped = tree.vfs.rename(&tree.context, At::Cwd, "/p/x", At::Cwd, "/q/y", RenameFlags::EXCHANGE);
        assert_eq!(swapped, Ok(()));
    });
}

/// A top directory, a directory below it and a file in that one move, each by a thread of its own.
#[test]
fn p9_paths_with_every_part_moving() {
    let _alone = alone();
    let tree = Tree::new();
    for dir in ["/t0", "/t0/x", "/q"] {
        tree.mkdir(dir);
    }
    tree.touch("/t0/x/f0");
    let look = |path: &str| tree.vfs.lookup(&tree.context, At::Cwd, path, FOLLOW).expect("there");
    let (x, file) = (look("/t0/x"), look("/t0/x/f0"));
    let top = look("/t0");
    let x_paths = ["/t0/x", "/t1/x", "/q/x"];
    let file_paths = ["/t0/x/f0", "/t0/x/f1", "/t1/x/f0", "/t1/x/f1", "/q/x/f0", "/q/x/f1"];
    let targets: [(&DentryRef, &[&str]); 2] = [(&x, &x_paths), (&file, &file_paths)];
    let none = RenameFlags::empty();
    render_against("p9_paths_with_every_part_moving", &tree, 3, scale(10000), &targets, |me| match me.id {
        0 => {
            rename(&tree, "/t0", "/t1");
            rename(&tree, "/t1", "/t0");
        }
        1 => {
            tree.vfs.rename(&tree.context, At::Dir(&top), "x", At::Cwd, "/q/x", none).expect("moved");
            tree.vfs.rename(&tree.context, At::Cwd, "/q/x", At::Dir(&top), "x", none).expect("moved");
        }
        _ => {
            tree.vfs.rename(&tree.context, At::Dir(&x), "f0", At::Dir(&x), "f1", none).expect("moved");
            tree.vfs.rename(&tree.context, At::Dir(&x), "f1", At::Dir(&x), "f0", none).expect("moved");
        }
    });
}

/// Each part of a path has two values, and one combination never exists. A path that mixes two
/// instants has that combination. The two parts are far apart, so that renames occur between the
/// reads of the two.
#[test]
fn p9_path_is_never_of_two_instants() {
    const DEPTH: usize = 300;
    let _alone = alone();
    let tree = Tree::new();
    for dir in ["/a", "/b", "/a/t"] {
        tree.mkdir(dir);
    }
    let middle = "/d".repeat(DEPTH);
    for depth in 1..=DEPTH {
        tree.mkdir(&format!("/a/t{}", &middle[..2 * depth]));
    }
    tree.mkdir(&format!("/a/t{middle}/s0"));
    tree.touch(&format!("/a/t{middle}/f0"));
    tree.touch(&format!("/a/t{middle}/s0/in"));
    let look =
        |end: &str| tree.vfs.lookup(&tree.context, At::Cwd, format!("/a/t{middle}{end}"), FOLLOW).expect("there");
    let (bottom, file, dir, inside) = (look(""), look("/f0"), look("/s0"), look("/s0/in"));
    let allowed = |end: &str| {
        [("a", 0), ("b", 0), ("b", 1)]
            .map(|(top, n)| format!("/{top}/t{middle}/{}", end.replace('#', if n == 0 { "0" } else { "1" })))
    };
    let (file_paths, dir_paths, inside_paths) = (allowed("f#"), allowed("s#"), allowed("s#/in"));
    let [file_paths, dir_paths, inside_paths] =
        [&file_paths, &dir_paths, &inside_paths].map(|paths| paths.each_ref().map(String::as_str));
    let targets: [(&DentryRef, &[&str]); 3] = [(&file, &file_paths), (&dir, &dir_paths), (&inside, &inside_paths)];
    render_against("p9_path_is_never_of_two_instants", &tree, 1, scale(1500), &targets, |_| {
        let below = |old: &str, new: &str| {
            let none = RenameFlags::empty();
            tree.vfs.rename(&tree.context, At::Dir(&bottom), old, At::Dir(&bottom), new, none).expect("moved");
        };
        rename(&tree, "/a/t", "/b/t");
        // These have their second names only while they are below /b.
        below("f0", "f1");
        below("s0", "s1");
        below("f1", "f0");
        below("s1", "s0");
        rename(&tree, "/b/t", "/a/t");
    });
}

/// A file is replaced while it is open. It is rendered as its path, or as its path and "(deleted)".
/// It never has the path of another file, and never loses "(deleted)".
#[test]
fn p9_deleted_path_stays_deleted() {
    let _alone = alone();
    let (tree, seed, rounds) = (Tree::new(), seed(), scale(2000));
    tree.mkdir("/d");
    tree.touch("/d/target");
    run_workers("p9_deleted_path_stays_deleted", THREADS, seed, |me| {
        for round in 0..rounds {
            if !me.go_on() {
                return;
            }
            if me.id < 4 {
                let temp = format!("/d/t{}.{round}", me.id);
                tree.touch(&temp);
                rename(&tree, &temp, "/d/target");
                continue;
            }
            let dentry = tree.vfs.lookup(&tree.context, At::Cwd, "/d/target", FOLLOW).expect("always there");
            let mut dead = false;
            for _ in 0..4 {
                let path = tree.vfs.d_path(&tree.context, &dentry, 4096).expect("renders");
                match path.as_slice() {
                    b"/d/target" => assert!(!dead, "alive again"),
                    b"/d/target (deleted)" => dead = true,
                    other => panic!("{}", String::from_utf8_lossy(other)),
                }
            }
            let now = tree.ino("/d/target").expect("always there");
            if dead {
                assert_ne!(now, dentry.ino(), "a deleted file is back");
            }
        }
    });
    assert_eq!(tree.used(), (3, 0));
}
