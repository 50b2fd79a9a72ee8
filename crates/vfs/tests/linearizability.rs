//! Single operations on names are linearizable (P3, P5), and sequential operations do what the
//! model does.
//!
//! The tests make thousands of short histories. A few threads make a few operations each, on a
//! handful of names in three directories that contain one another, and all begin together. Each
//! history must be explained by an order of the model's steps. Afterwards every name is looked up,
//! so the final state must be explained by the order as well.
#![forbid(unsafe_code)]

#[path = "support/harness.rs"]
#[expect(dead_code, reason = "the stress tests use the rest")]
mod harness;
#[path = "support/linearize.rs"]
mod linearize;
#[path = "support/model.rs"]
mod model;
#[path = "support/tree.rs"]
#[expect(dead_code, reason = "the stress tests use the rest")]
mod tree;

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use harness::{Rng, alone, run_workers, scale, seed};
use linearize::{Call, is_linearizable, render};
use model::{Model, Node, Op, Outcome, Place};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Charge, DentryRef, Driver, Error, FileData, FileKind, RenameFlags, StatFs, Walk};
use tree::{INODES, NEW, PAGES, Tree};

const NAMES: [&str; 3] = ["x", "y", "z"];

fn node_of(dentry: &DentryRef) -> Node {
    Node { ino: dentry.ino(), is_dir: dentry.kind() == FileKind::Directory }
}

/// A driver that yields the CPU inside operations. It yields where an inode is charged: a creator
/// has looked the name up and holds its lock, but has inserted nothing yet. It also yields where a
/// charge is refunded.
struct Yielding(MemFs, AtomicU64);

impl Yielding {
    fn maybe(&self) {
        if !self.1.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
            std::thread::yield_now();
        }
    }
}

impl Driver for Yielding {
    fn statfs(&self) -> pando_vfs::Result<StatFs> {
        Ok(self.0.statfs())
    }
    fn charge(&self, what: Charge) -> pando_vfs::Result<()> {
        self.maybe();
        self.0.charge(what)
    }
    fn release(&self, what: Charge) {
        self.maybe();
        self.0.release(what);
    }
    fn data(&self, ino: u64) -> Box<dyn FileData> {
        self.0.data(ino)
    }
}

/// Directories held open, by node.
struct Held(Vec<(Node, DentryRef)>);

impl Held {
    fn push(&mut self, dentry: DentryRef) {
        self.0.push((node_of(&dentry), dentry));
    }

    fn at(&self, place: Place) -> At<'_> {
        At::Dir(&self.0.iter().find(|(node, _)| *node == place.dir).expect("held").1)
    }

    fn any_place(&self, rng: &mut Rng) -> Place {
        Place { dir: self.0[rng.below(self.0.len())].0, name: rng.pick(&NAMES) }
    }

    fn any_op(&self, rng: &mut Rng) -> Op {
        let place = self.any_place(rng);
        match rng.below(16) {
            0 | 1 => Op::Create(place),
            2 | 3 => Op::Mkdir(place),
            4 => Op::Unlink(place),
            5 | 6 => Op::Rmdir(place),
            7 | 8 => Op::Stat(place),
            9 | 10 => Op::Link(place, self.any_place(rng)),
            11 => Op::Rename(place, self.any_place(rng), RenameFlags::NOREPLACE),
            12 | 13 => Op::Rename(place, self.any_place(rng), RenameFlags::EXCHANGE),
            _ => Op::Rename(place, self.any_place(rng), RenameFlags::empty()),
        }
    }

    /// Makes the operation on the tree. A directory that it made is returned as well.
    fn call(&self, tree: &Tree, op: Op) -> (Outcome, Option<DentryRef>) {
        let (vfs, context) = (&tree.vfs, &tree.context);
        let made = match op {
            Op::Create(p) => vfs.open(context, self.at(p), p.name, NEW, 0o644).map(|file| Some(file.dentry().clone())),
            Op::Mkdir(p) => vfs.mkdir(context, self.at(p), p.name, 0o777).map(Some),
            Op::Unlink(p) => vfs.unlink(context, self.at(p), p.name).map(|()| None),
            Op::Rmdir(p) => vfs.rmdir(context, self.at(p), p.name).map(|()| None),
            Op::Stat(p) => {
                let stat = vfs.stat(context, self.at(p), p.name, Walk::NOFOLLOW);
                let node = stat.map(|stat| Some(Node { ino: stat.ino, is_dir: stat.kind == FileKind::Directory }));
                return (node, None);
            }
            Op::Link(old, new) => {
                vfs.link(context, self.at(old), old.name, self.at(new), new.name, Walk::NOFOLLOW).map(Some)
            }
            Op::Rename(old, new, flags) => {
                vfs.rename(context, self.at(old), old.name, self.at(new), new.name, flags).map(|()| None)
            }
        };
        let made_dir = made.as_ref().ok().and_then(Clone::clone).filter(|_| matches!(op, Op::Mkdir(_)));
        (made.map(|dentry| dentry.map(|dentry| node_of(&dentry))), made_dir)
    }
}

/// A root of its own with two directories and two files in it, and its model.
fn small_tree(tree: &Tree, index: usize) -> (Held, Model) {
    let root = tree.mkdir(&format!("/{index}"));
    let mut held = Held(Vec::new());
    let mut model = Model::new(node_of(&root));
    let top = node_of(&root);
    held.push(root);
    let mut held_dir = None;
    for (place, make) in [
        (Place { dir: top, name: "x" }, Op::Mkdir as fn(Place) -> Op),
        (Place { dir: top, name: "y" }, Op::Mkdir),
        (Place { dir: top, name: "z" }, Op::Create),
    ] {
        let (outcome, dir) = held.call(tree, make(place));
        assert!(model.run(make(place), outcome), "{outcome:?}");
        if let Some(dir) = dir {
            held_dir.get_or_insert(node_of(&dir));
            held.push(dir);
        }
    }
    let inner = Place { dir: held_dir.expect("made above"), name: "x" };
    let (outcome, _) = held.call(tree, Op::Create(inner));
    assert!(model.run(Op::Create(inner), outcome), "{outcome:?}");
    (held, model)
}

/// Runs `count` histories one after the other on `threads` threads, and checks each.
fn histories(what: &str, threads: usize, calls: usize, count: usize) {
    let _alone = alone();
    let seed = seed();
    let options = MemOptions::new().inodes(INODES).size_bytes(PAGES * 4096);
    let tree = Tree::of(Yielding(MemFs::new(options), AtomicU64::new(0)));
    let trees: Vec<(Held, Model)> = (0..count).map(|index| small_tree(&tree, index)).collect();
    let recorded: Vec<Mutex<Vec<Call>>> = (0..count).map(|_| Mutex::default()).collect();
    let clock = AtomicU64::new(0);
    let tick = || clock.fetch_add(1, Ordering::SeqCst);
    run_workers(what, threads, seed, |me| {
        for (index, (held, _)) in trees.iter().enumerate() {
            if !me.go_on() {
                return;
            }
            let ops: Vec<Op> = (0..calls).map(|_| held.any_op(&mut me.rng)).collect();
            me.meet();
            let mut mine = Vec::with_capacity(calls);
            for op in ops {
                let called = tick();
                let (outcome, _) = held.call(&tree, op);
                mine.push(Call { thread: me.id, op, outcome, called, returned: tick() });
                if me.rng.one_in(6) {
                    std::thread::yield_now();
                }
            }
            recorded[index].lock().expect("whole").extend(mine);
        }
    });
    let mut overlaps = 0;
    for ((held, model), history) in trees.iter().zip(recorded) {
        let mut history = history.into_inner().expect("whole");
        overlaps += usize::from(
            history
                .iter()
                .any(|a| history.iter().any(|b| a.thread != b.thread && a.called < b.called && b.called < a.returned)),
        );
        for (dir, _) in &held.0 {
            for name in NAMES {
                let op = Op::Stat(Place { dir: *dir, name });
                let called = tick();
                let (outcome, _) = held.call(&tree, op);
                history.push(Call { thread: threads, op, outcome, called, returned: tick() });
            }
        }
        assert!(is_linearizable(model, &history), "no order explains this:\n{}from {model:#?}", render(&history));
    }
    println!("{overlaps} of {count} histories had calls that overlapped");
    assert!(overlaps > 0, "nothing ran at the same time");
    tree.remove_below("/");
    drop(trees);
    assert_eq!(tree.used(), (1, 0), "nothing is left over");
}

#[test]
fn p3_p5_histories_of_two_threads() {
    histories("p3_p5_histories_of_two_threads", 2, 6, scale(4000));
}

#[test]
fn p3_p5_histories_of_three_threads() {
    histories("p3_p5_histories_of_three_threads", 3, 4, scale(3000));
}

#[test]
fn p3_p5_histories_of_four_threads() {
    histories("p3_p5_histories_of_four_threads", 4, 4, scale(2000));
}

/// Compares the tree with the model: long random sequences, each result, and from time to time the
/// whole state.
#[test]
fn sequential_operations_match_the_model() {
    let _alone = alone();
    let seed = seed();
    let mut refused = 0;
    for round in 0..scale(10) {
        let mut rng = Rng::new(seed ^ round as u64);
        let tree = Tree::new();
        let (mut held, mut model) = small_tree(&tree, 0);
        for step in 0..1500 {
            let op = held.any_op(&mut rng);
            let (outcome, made) = held.call(&tree, op);
            let expected = model.refusal(op);
            assert_eq!(outcome.err(), expected, "round {round}, step {step}: {op:?} in {model:#?}");
            assert!(model.run(op, outcome), "round {round}, step {step}: {op:?} returned {outcome:?} in {model:#?}");
            refused += usize::from(expected.is_some());
            if let Some(dir) = made {
                // The root stays. Of the other directories a dozen are kept, removed ones too.
                if held.0.len() < 12 {
                    held.push(dir);
                } else {
                    let index = 1 + rng.below(11);
                    held.0[index] = (node_of(&dir), dir);
                }
            }
            if step % 50 == 0 {
                compare(&tree, &held, &model);
            }
        }
    }
    assert!(refused > 0, "everything was possible: the operations are too tame");
}

/// Compares everything that the model knows with the tree.
fn compare(tree: &Tree, held: &Held, model: &Model) {
    for (index, (node, dentry)) in held.0.iter().enumerate() {
        let stat = tree.vfs.getattr(dentry).expect("in memory");
        assert_eq!(stat.nlink as usize, model.nlink(*node), "links of {node:?} in {model:#?}");
        // The parent of this root is the tree's root, which the model does not know.
        if index > 0 {
            let up = tree.vfs.stat(&tree.context, At::Dir(dentry), "..", Walk::empty()).map(|stat| stat.ino);
            assert_eq!(up, Ok(model.parent(*node).ino), "`..` of {node:?}");
        }
        let path = tree.vfs.d_path(&tree.context, dentry, 1 << 20).expect("renders");
        assert_eq!(path.ends_with(b" (deleted)"), !model.is_alive(*node), "{}", String::from_utf8_lossy(&path));
        if !model.is_alive(*node) {
            continue;
        }
        let mut list = tree.list(At::Dir(dentry), ".");
        list.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = model.list(*node);
        assert_eq!(stat.size as usize, 20 * (2 + expected.len()));
        let names = list.iter().map(|(name, ino, kind)| (name.as_str(), *ino, *kind == FileKind::Directory));
        assert!(names.eq(expected.iter().map(|(name, child)| (*name, child.ino, child.is_dir))), "{list:?}");
        for (name, child) in expected {
            let stat = tree.vfs.stat(&tree.context, At::Dir(dentry), name, Walk::NOFOLLOW).expect("listed");
            assert_eq!(stat.nlink as usize, model.nlink(child), "links of {name}");
        }
    }
}

/// Tests of the checker: it accepts a history that an order explains, and rejects one that no order
/// explains.
mod checker {
    use super::*;

    const ROOT: Node = Node { ino: 1, is_dir: true };
    const FILE: Node = Node { ino: 2, is_dir: false };
    const X: Place = Place { dir: ROOT, name: "x" };
    const Y: Place = Place { dir: ROOT, name: "y" };

    fn call(thread: usize, op: Op, outcome: Outcome, called: u64, returned: u64) -> Call {
        Call { thread, op, outcome, called, returned }
    }

    fn with_file() -> Model {
        let mut model = Model::new(ROOT);
        assert!(model.run(Op::Create(X), Ok(Some(FILE))));
        model
    }

    /// One thread moves `x` to `y`, while another looks up `first` and then `second`.
    fn look_during_rename(first: (Place, Outcome), second: (Place, Outcome)) -> bool {
        let history = [
            call(0, Op::Rename(X, Y, RenameFlags::empty()), Ok(None), 0, 9),
            call(1, Op::Stat(first.0), first.1, 1, 2),
            call(1, Op::Stat(second.0), second.1, 3, 4),
        ];
        is_linearizable(&with_file(), &history)
    }

    #[test]
    fn half_done_rename_is_rejected() {
        let (gone, there) = (Err(Error::NoEntry), Ok(Some(FILE)));
        assert!(look_during_rename((X, there), (Y, there)));
        assert!(look_during_rename((Y, gone), (X, gone)), "the rename lies between the two");
        assert!(!look_during_rename((X, gone), (Y, gone)), "it had left, and had not arrived");
        assert!(!look_during_rename((Y, there), (X, there)), "it was in two places");
    }

    #[test]
    fn lost_create_is_rejected() {
        let made = call(0, Op::Create(Y), Ok(Some(Node { ino: 3, is_dir: false })), 0, 1);
        let missed = |called| call(1, Op::Stat(Y), Err(Error::NoEntry), called, called + 1);
        assert!(!is_linearizable(&with_file(), &[made, missed(2)]), "a create was lost");
        let slow = Call { returned: 9, ..made };
        assert!(is_linearizable(&with_file(), &[slow, missed(2)]));
    }

    #[test]
    fn two_creates_of_one_name_are_rejected() {
        let make = |thread, ino| call(thread, Op::Create(Y), Ok(Some(Node { ino, is_dir: false })), 0, 9);
        assert!(!is_linearizable(&with_file(), &[make(0, 3), make(1, 4)]), "EEXIST was forgotten");
        let refused = call(1, Op::Create(Y), Err(Error::Exists), 0, 9);
        assert!(is_linearizable(&with_file(), &[make(0, 3), refused]));
        assert!(!is_linearizable(&with_file(), &[refused]), "no call made it");
    }

    #[test]
    fn nothing_is_made_in_a_removed_directory() {
        let dir = Node { ino: 5, is_dir: true };
        let mut model = Model::new(ROOT);
        assert!(model.run(Op::Mkdir(X), Ok(Some(dir))));
        let inside = Place { dir, name: "x" };
        let removed = call(0, Op::Rmdir(X), Ok(None), 0, 9);
        let made = call(1, Op::Create(inside), Ok(Some(FILE)), 0, 9);
        assert!(!is_linearizable(&model, &[removed, made]), "both cannot succeed");
        let refused = call(1, Op::Create(inside), Err(Error::NoEntry), 0, 9);
        assert!(is_linearizable(&model, &[removed, refused]));
        let kept = call(0, Op::Rmdir(X), Err(Error::NotEmpty), 0, 9);
        assert!(is_linearizable(&model, &[kept, made]));
        assert!(!is_linearizable(&model, &[kept, refused]), "not empty, and nothing was in it");
    }
}
