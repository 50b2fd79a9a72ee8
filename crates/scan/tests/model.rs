//! Scans and walks against a plain model: readdir, lstat, llistxattr and lgetxattr.

use std::{collections::BTreeMap, path::Path};

use pando_scan::{Event, MIN_BUDGET_BYTES, Mask, Options, Order, Scan, Walk, WalkOptions, Workers};

mod common;

use common::{MASKS, Random, known, model, populate, temp};

/// Scans a directory. Each name must come once.
fn scan(dir: &Path, options: &Options) -> BTreeMap<std::ffi::OsString, common::Known> {
    let mut found = BTreeMap::new();
    let mut scan = Scan::open(dir, options).unwrap();
    while let Some(batch) = scan.next_batch().unwrap() {
        assert!(!batch.is_empty());
        for record in batch.iter() {
            let (name, known) = known(&record);
            assert!(found.insert(name, known).is_none(), "{:?} was returned twice", record.name());
        }
    }
    found
}

fn all_options() -> Vec<Options> {
    let mut all = Vec::new();
    for mask in MASKS {
        for budget_bytes in [MIN_BUDGET_BYTES, Options::new().budget_bytes] {
            for workers in [Workers::Auto, Workers::Fixed(1), Workers::Fixed(3), Workers::AtMost(7)] {
                for order in [Order::Auto, Order::Directory, Order::Inode] {
                    all.push(Options::new().mask(mask).budget_bytes(budget_bytes).workers(workers).order(order));
                }
            }
        }
    }
    all
}

#[test]
fn scan_matches_the_model() {
    for seed in 0..3 {
        let dir = temp();
        populate(dir.path(), [0, 40, 900][seed], &mut Random(seed as u64));
        let expected = MASKS.map(|mask| model(dir.path(), mask));
        for options in all_options() {
            let expected = &expected[MASKS.iter().position(|&mask| mask == options.mask).unwrap()];
            assert_eq!(scan(dir.path(), &options), *expected, "seed {seed}, {options:?}");
        }
    }
}

#[test]
fn records_come_in_directory_order() {
    let dir = temp();
    populate(dir.path(), 3000, &mut Random(7));
    let order = |options: &Options| {
        let mut scan = Scan::open(dir.path(), options).unwrap();
        let mut names = Vec::new();
        while let Some(batch) = scan.next_batch().unwrap() {
            names.extend(batch.iter().map(|record| (record.name().to_vec(), record.cookie())));
        }
        names
    };
    let plain = order(&Options::new().mask(Mask::empty()).workers(Workers::Fixed(1)));
    for options in all_options() {
        assert_eq!(order(&options), plain, "{options:?}");
    }
}

/// The paths that a walk should find, and their records.
fn model_tree(dir: &Path, mask: Mask, into: &mut BTreeMap<std::path::PathBuf, common::Known>) {
    for (name, known) in model(dir, mask) {
        let path = dir.join(name);
        if known.kind == Some(pando_records::FileKind::Directory) {
            model_tree(&path, mask, into);
        }
        into.insert(path, known);
    }
}

/// A tree with several levels of directories.
fn populate_tree(dir: &Path, depth: u32, random: &mut Random) {
    populate(dir, 30, random);
    if depth > 0 {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                populate_tree(&entry.path(), depth - 1, random);
            }
        }
    }
}

#[test]
fn walk_matches_the_model() {
    let dir = temp();
    populate_tree(dir.path(), 3, &mut Random(11));
    for mask in MASKS {
        let mut expected = BTreeMap::new();
        model_tree(dir.path(), mask, &mut expected);
        for workers in [Workers::Auto, Workers::Fixed(1), Workers::Fixed(5)] {
            let scan = Options::new().mask(mask).workers(workers);
            let mut walk = Walk::open(dir.path(), WalkOptions::new().scan(scan)).unwrap();
            let mut found = BTreeMap::new();
            let mut inside = None;
            while let Some(event) = walk.next_event() {
                match event {
                    Event::Enter(directory) => assert!(inside.replace(directory.path.to_owned()).is_none()),
                    Event::Batch(directory, batch) => {
                        assert_eq!(inside.as_deref(), Some(directory.path), "output is per directory");
                        for record in batch.iter() {
                            let (name, known) = known(&record);
                            assert!(found.insert(directory.path.join(name), known).is_none());
                        }
                    }
                    Event::Leave(directory, _) => assert_eq!(inside.take().as_deref(), Some(directory.path)),
                    Event::Failed(failure) => panic!("{failure:?}"),
                }
            }
            assert_eq!(found, expected, "{mask:?}, {workers:?}");
        }
    }
}

#[test]
fn children_may_be_sorted_or_removed() {
    let dir = temp();
    for name in ["b/x", "a/y", "c/z", "a/w"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    let mut walk = Walk::open(dir.path(), WalkOptions::default()).unwrap();
    let mut seen = Vec::new();
    while let Some(event) = walk.next_event() {
        match event {
            Event::Enter(directory) => seen.push(directory.path.strip_prefix(dir.path()).unwrap().to_owned()),
            Event::Leave(_, children) => {
                children.retain(|child| child.name != b"c");
                children.sort_by(|a, b| b.name.cmp(a.name));
            }
            _ => {}
        }
    }
    assert_eq!(seen, ["", "b", "b/x", "a", "a/y", "a/w"].map(std::path::PathBuf::from));
}
