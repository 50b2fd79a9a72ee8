//! P4: no deadlock and no cycle. Afterwards the tree is a tree.

use std::{
    collections::HashSet,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use pando_vfs::{At, DentryRef, Error, FileKind, RenameFlags, Resolve, Walk};

use crate::{
    harness::{THREADS, Worker, alone, run_workers, scale, seed},
    tree::{FOLLOW, NEW, Tree},
};

const NAMES: [&str; 5] = ["0", "1", "2", "3", "a longer name, to lie on the heap"];
/// The number of directories that the threads know at a time.
const POOL: usize = 12;

/// Walks the whole tree and checks that it is one. Returns its inodes.
fn check_tree(tree: &Tree) -> HashSet<u64> {
    let mut inos = HashSet::from([tree.vfs.root().ino()]);
    let mut todo = vec![(tree.vfs.root(), String::new(), tree.vfs.root().ino())];
    while let Some((dir, path, parent)) = todo.pop() {
        let list = tree.list(At::Dir(&dir), ".");
        let subdirs = list.iter().filter(|entry| entry.2 == FileKind::Directory).count();
        let stat = tree.vfs.getattr(&dir).expect("in memory");
        assert_eq!((stat.nlink as usize, stat.size as usize), (2 + subdirs, 20 * (2 + list.len())), "{path}");
        let up = tree.vfs.stat(&tree.context, At::Dir(&dir), "..", FOLLOW).map(|stat| stat.ino);
        assert_eq!(up, Ok(parent), "`..` of {path}");
        let shown = tree.vfs.d_path(&tree.context, &dir, 1 << 20).expect("renders");
        assert_eq!(String::from_utf8_lossy(&shown), if path.is_empty() { "/" } else { &path });
        for (name, ino, kind) in list {
            let new = inos.insert(ino);
            assert!(new || kind != FileKind::Directory, "{path}/{name} is reached twice");
            let child = tree.vfs.lookup(&tree.context, At::Dir(&dir), &name, Walk::NOFOLLOW).expect("listed");
            assert_eq!(child.ino(), ino);
            if kind == FileKind::Directory {
                todo.push((child, format!("{path}/{name}"), dir.ino()));
            }
        }
    }
    inos
}

/// The state of the random test.
struct Shuffle {
    tree: Tree,
    pool: RwLock<Vec<DentryRef>>,
}

impl Shuffle {
    fn any(&self, me: &mut Worker<'_>) -> DentryRef {
        let pool = self.pool.read().unwrap_or_else(PoisonError::into_inner);
        pool[me.rng.below(pool.len())].clone()
    }

    /// Makes a directory, and adds it to the pool.
    fn mkdir(&self, me: &mut Worker<'_>) {
        let (dir, name) = (self.any(me), me.rng.pick(&NAMES));
        match self.tree.vfs.mkdir(&self.tree.context, At::Dir(&dir), name, 0o777) {
            Ok(made) => {
                let mut pool = self.pool.write().unwrap_or_else(PoisonError::into_inner);
                // The root stays, at index 0.
                let index = 1 + me.rng.below(POOL);
                if index < pool.len() { pool[index] = made } else { pool.push(made) }
            }
            Err(error) => assert!(matches!(error, Error::Exists | Error::NoEntry), "mkdir: {error}"),
        }
    }

    fn rename(&self, me: &mut Worker<'_>) {
        let (from, to) = (self.any(me), if me.rng.one_in(3) { None } else { Some(self.any(me)) });
        let (old, new) = (me.rng.pick(&NAMES), me.rng.pick(&NAMES));
        let flags = match me.rng.below(8) {
            0..=2 => RenameFlags::NOREPLACE,
            3..=5 => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        let target = to.as_ref().unwrap_or(&from);
        let moved = self.tree.vfs.rename(&self.tree.context, At::Dir(&from), old, At::Dir(target), new, flags);
        match moved {
            Ok(()) | Err(Error::NoEntry | Error::Exists | Error::NotEmpty) => {}
            Err(Error::IsDirectory | Error::NotDirectory) => assert!(flags.is_empty(), "{moved:?} with {flags:?}"),
            // A dentry in a directory is never an ancestor of it, whatever moves meanwhile.
            Err(Error::Invalid) => assert!(!target.ptr_eq(&from), "EINVAL within one directory"),
            Err(error) => panic!("rename: {error}"),
        }
    }

    fn step(&self, me: &mut Worker<'_>) {
        let (vfs, context) = (&self.tree.vfs, &self.tree.context);
        match me.rng.below(20) {
            0..=2 => self.mkdir(me),
            3..=13 => self.rename(me),
            14 => {
                let made = vfs.open(context, At::Dir(&self.any(me)), me.rng.pick(&NAMES), NEW, 0o644);
                assert!(matches!(made, Ok(_) | Err(Error::Exists | Error::NoEntry)), "open: {made:?}");
            }
            15 => {
                let gone = vfs.unlink(context, At::Dir(&self.any(me)), me.rng.pick(&NAMES));
                assert!(matches!(gone, Ok(()) | Err(Error::IsDirectory | Error::NoEntry)), "unlink: {gone:?}");
            }
            16 => {
                let gone = vfs.rmdir(context, At::Dir(&self.any(me)), me.rng.pick(&NAMES));
                let known = matches!(gone, Ok(()) | Err(Error::NotDirectory | Error::NotEmpty | Error::NoEntry));
                assert!(known, "rmdir: {gone:?}");
            }
            17 => {
                let dir = self.any(me);
                let path = vfs.d_path(context, &dir, 1 << 20).expect("renders");
                assert!(path.starts_with(b"/"), "{path:?}");
            }
            _ => {
                // Walks up to the root. In a cycle this would not reach it.
                let dir = self.any(me);
                let up = "../".repeat(1000);
                let mut here = dir;
                for _ in 0..100 {
                    here = vfs.lookup(context, At::Dir(&here), &up, FOLLOW).expect("each directory has a parent");
                    if here.ino() == 1 {
                        break;
                    }
                }
                assert_eq!(here.ino(), 1, "the walk up does not reach the root");
            }
        }
    }
}

/// Directories and files are moved, exchanged, made and removed at random, everywhere.
#[test]
fn p4_the_tree_stays_a_tree() {
    let _alone = alone();
    let (seed, steps) = (seed(), scale(8000));
    let tree = Tree::new();
    let mut pool = vec![tree.vfs.root()];
    for i in 0..POOL / 2 {
        pool.push(tree.mkdir(["/0", "/1", "/0/0", "/1/1", "/0/0/0", "/0/1"][i]));
    }
    let shuffle = Shuffle { tree, pool: RwLock::new(pool) };
    run_workers("p4_the_tree_stays_a_tree", THREADS, seed, |me| {
        for _ in 0..steps {
            if !me.go_on() {
                return;
            }
            shuffle.step(me);
        }
    });
    let Shuffle { tree, pool } = shuffle;
    drop(pool);
    let inos = check_tree(&tree);
    assert_eq!(tree.used(), (inos.len() as u64, 0), "inodes that no path leads to");
    tree.remove_below("/");
    assert_eq!(tree.used(), (1, 0));
}

/// All threads move a few directories between parents in cycles, and do nothing else. The topology
/// lock and the name locks are contended throughout.
#[test]
fn p4_directories_in_cycles() {
    let _alone = alone();
    let (seed, steps) = (seed(), scale(8000));
    let tree = Tree::new();
    let dirs: Vec<DentryRef> = (0..4).map(|i| tree.mkdir(&format!("/{i}"))).collect();
    let places: Vec<DentryRef> = dirs.iter().cloned().chain([tree.vfs.root()]).collect();
    run_workers("p4_directories_in_cycles", THREADS, seed, |me| {
        for _ in 0..steps {
            if !me.go_on() {
                return;
            }
            let (from, to) = (&places[me.rng.below(5)], &places[me.rng.below(5)]);
            let (old, new) = (me.rng.pick(&["0", "1", "2", "3"]), me.rng.pick(&["0", "1", "2", "3"]));
            let flags = if me.rng.one_in(3) { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
            let moved = tree.vfs.rename(&tree.context, At::Dir(from), old, At::Dir(to), new, flags);
            let known = matches!(moved, Ok(()) | Err(Error::NoEntry | Error::Exists | Error::Invalid));
            assert!(known, "{moved:?}");
            assert!(moved != Err(Error::Invalid) || !from.ptr_eq(to), "EINVAL within one directory");
        }
    });
    let inos = check_tree(&tree);
    assert_eq!(inos.len(), 5, "all are reached, each once");
    assert!(dirs.iter().all(|dir| inos.contains(&dir.ino())));
}

/// Directories leave a root and return while other threads walk up inside it. No path leads out.
#[test]
fn p4_no_path_leads_out_of_a_root() {
    let _alone = alone();
    let (tree, seed, steps) = (Tree::new(), seed(), scale(8000));
    for dir in ["/in", "/in/d", "/in/d/e", "/out", "/secret"] {
        tree.mkdir(dir);
    }
    let mut confined = tree.context.clone();
    tree.vfs.chroot(&mut confined, At::Cwd, "/in").expect("there");
    tree.vfs.chdir(&mut confined, At::Cwd, "/").expect("there");
    let beneath = confined.clone().with_resolve(Resolve::BENEATH);
    run_workers("p4_no_path_leads_out_of_a_root", THREADS, seed, |me| {
        for step in 0..steps {
            if !me.go_on() {
                return;
            }
            if me.id % 4 == 0 {
                let (old, new) = if step % 2 == 0 { ("/in/d", "/out/d") } else { ("/out/d", "/in/d") };
                let moved = tree.vfs.rename(&tree.context, At::Cwd, old, At::Cwd, new, RenameFlags::empty());
                assert!(matches!(moved, Ok(()) | Err(Error::NoEntry)), "{moved:?}");
            } else {
                let path = me.rng.pick(&["d/e/../../../secret", "d/e/../e/../e/../../../secret", "d/../../secret"]);
                assert_eq!(tree.vfs.stat(&confined, At::Cwd, path, FOLLOW).err(), Some(Error::NoEntry), "{path}");
                let refused = tree.vfs.stat(&beneath, At::Cwd, path, FOLLOW).err();
                assert!(matches!(refused, Some(Error::NoEntry | Error::CrossDevice)), "{path}: {refused:?}");
            }
        }
    });
}

/// A step up from deep inside a root ends, however fast other directories move. Seen to
/// fail: it took as long as the renames did.
#[test]
fn p4_walk_up_ends_despite_renames() {
    const DEPTH: usize = 3000;
    const WALKERS: usize = 1;
    let _alone = alone();
    let (tree, seed, steps) = (Tree::new(), seed(), scale(40));
    for dir in ["/in", "/a", "/b", "/a/d"] {
        tree.mkdir(dir);
    }
    let mut confined = tree.context.clone();
    tree.vfs.chroot(&mut confined, At::Cwd, "/in").expect("there");
    tree.vfs.chdir(&mut confined, At::Cwd, "/").expect("there");
    for _ in 0..DEPTH {
        tree.vfs.mkdir(&confined, At::Cwd, "d", 0o777).expect("made");
        tree.vfs.chdir(&mut confined, At::Cwd, "d").expect("made");
    }
    let walking = AtomicUsize::new(WALKERS);
    run_workers("p4_walk_up_ends_despite_renames", 2 * WALKERS, seed, |me| {
        if me.id >= WALKERS {
            for step in 0.. {
                if !me.go_on() || walking.load(Ordering::Relaxed) == 0 {
                    return;
                }
                let (old, new) = if step % 2 == 0 { ("/a/d", "/b/d") } else { ("/b/d", "/a/d") };
                let moved = tree.vfs.rename(&tree.context, At::Cwd, old, At::Cwd, new, RenameFlags::empty());
                assert!(matches!(moved, Ok(()) | Err(Error::NoEntry)), "{moved:?}");
            }
        }
        for step in 0..steps {
            if !me.go_on() {
                break;
            }
            let up = "../".repeat(1 + step % 500);
            assert!(tree.vfs.stat(&confined, At::Cwd, &up, FOLLOW).is_ok());
            // Also with names locked.
            let new = format!("{up}{}", me.id);
            tree.vfs.mkdir(&confined, At::Cwd, &new, 0o777).expect("made");
            tree.vfs.rmdir(&confined, At::Cwd, &new).expect("removed");
        }
        walking.fetch_sub(1, Ordering::Relaxed);
    });
}

/// Files move back and forth between two directories under many names. Lock stripes collide, in
/// both orders.
#[test]
fn p4_colliding_stripes() {
    let _alone = alone();
    let (tree, seed, steps) = (Tree::new(), seed(), scale(8000));
    let dirs = ["/a", "/b"];
    for dir in dirs {
        tree.mkdir(dir);
    }
    let count = 200;
    let mut before: Vec<u64> = (0..count).map(|i| tree.touch(&format!("{}/{i}", dirs[i % 2]))).collect();
    before.sort_unstable();
    run_workers("p4_colliding_stripes", THREADS, seed, |me| {
        for _ in 0..steps {
            if !me.go_on() {
                return;
            }
            let old = format!("{}/{}", me.rng.pick(&dirs), me.rng.below(count * 2));
            let new = format!("{}/{}", me.rng.pick(&dirs), me.rng.below(count * 2));
            let flags = if me.rng.one_in(4) { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
            let moved = tree.vfs.rename(&tree.context, At::Cwd, &old, At::Cwd, &new, flags);
            assert!(matches!(moved, Ok(()) | Err(Error::NoEntry | Error::Exists)), "{moved:?}");
        }
    });
    let mut after: Vec<u64> = dirs.iter().flat_map(|dir| tree.list(At::Cwd, dir)).map(|(_, ino, _)| ino).collect();
    after.sort_unstable();
    assert_eq!(after, before, "each file is still there, under one name");
    check_tree(&tree);
}
