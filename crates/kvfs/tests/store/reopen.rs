//! A store that is closed and opened again has the same tree.

use std::{os::unix::fs::PermissionsExt, sync::Arc};

use pando_kv::{Embedded, Engine, Hostile, Hostility, Transaction};
use pando_kvfs::{KvFs, OpenError, StoreOptions};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{Context, Credentials, Vfs, VfsOptions};
use rustix::process::{getegid, geteuid};

use crate::{
    machine::{Image, Machine},
    operations::change,
    support::{Rng, difference, seed, seen},
};

/// A tree in memory. Its root belongs to the user of this process, as that of a store.
fn memory_tree() -> Vfs {
    let options = VfsOptions::new().owner(geteuid().as_raw(), getegid().as_raw());
    Vfs::with_options(MemFs::new(MemOptions::default()), options).expect("a tree")
}

/// A store has the tree that is in memory. Random operations on both have the same results, and
/// then the trees are the same. Closes the store.
fn agree(store: KvFs, (memory, in_memory): (&Vfs, &Context), random: &mut Rng) {
    let closed = store.closed();
    let vfs = Vfs::new(store).expect("a tree");
    let context = Context::new(&vfs, Credentials::root());
    assert_eq!(difference(&seen(&vfs, &context), &seen(memory, in_memory)), None, "opened");
    for number in 0..100 {
        let mut same = random.clone();
        let result = change(&vfs, &context, random);
        assert_eq!(result, change(memory, in_memory, &mut same), "operation {number}");
        match random.below(10) {
            0 => vfs.sync().expect("stored"),
            1 | 2 => drop(vfs.evict(1 + random.below(16) as usize).expect("stored")),
            _ => {}
        }
    }
    assert_eq!(difference(&seen(&vfs, &context), &seen(memory, in_memory)), None, "before it is closed");
    drop((context, vfs));
    closed.wait().expect("stored");
}

#[test]
fn store_has_what_a_tree_in_memory_has() {
    let mut random = Rng(seed());
    let memory = memory_tree();
    let in_memory = Context::new(&memory, Credentials::root());
    let dir = tempfile::tempdir().expect("a directory");
    for _ in 0..10 {
        let store = KvFs::open(dir.path(), StoreOptions::new()).expect("a store");
        agree(store, (&memory, &in_memory), &mut random);
    }
}

/// An engine that refuses commits, or does not say whether it has made them, changes nothing.
#[test]
fn hostile_engine_is_not_noticed() {
    let mut random = Rng(seed());
    let memory = memory_tree();
    let in_memory = Context::new(&memory, Credentials::root());
    let machine = Machine::new(&Image::default());
    drop(Embedded::create(Arc::new(machine.clone())).expect("made"));
    for _ in 0..5 {
        let engine = Embedded::open(Arc::new(machine.clone())).expect("undamaged");
        let hostility =
            Hostility { seed: random.next(), conflicts: 300, unknown: 300, short_pages: true, ..Hostility::default() };
        let engine = Box::new(Hostile::new(engine, hostility));
        let store = KvFs::new(engine, Box::new(machine.clone()), StoreOptions::new()).expect("a store");
        agree(store, (&memory, &in_memory), &mut random);
    }
}

#[test]
fn store_has_one_user() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = KvFs::open(dir.path(), StoreOptions::new()).expect("a new store");
    assert!(matches!(KvFs::open(dir.path(), StoreOptions::new()), Err(OpenError::InUse)));
    let closed = store.closed();
    drop(store);
    closed.wait().expect("stored");
    KvFs::open(dir.path(), StoreOptions::new()).expect("free again");
}

/// The permissions of files in the tree are those of the tree. The host has others for the store.
#[test]
fn store_is_for_its_user_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("new/store");
    drop(KvFs::open(&store, StoreOptions::new()).expect("a new store"));
    for name in ["", "pandofs-records", "pandofs-contents"] {
        let mode = std::fs::metadata(store.join(name)).expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}: {mode:o}");
    }
}

/// An engine with the records of another program.
#[test]
fn other_records_are_refused() {
    let machine = Machine::new(&Image::default());
    let engine = Embedded::create(Arc::new(machine.clone())).expect("made");
    let mut theirs = Transaction::new();
    theirs.put("key", "value");
    engine.commit(&theirs).expect("no failure");
    let opened = KvFs::new(Box::new(engine), Box::new(machine), StoreOptions::new());
    assert!(matches!(opened, Err(OpenError::NotAStore)));
}

/// The header says which version made the store.
#[test]
fn stores_of_other_versions_are_refused() {
    let opened = |format: u32| {
        let machine = Machine::new(&Image::default());
        let engine = Embedded::create(Arc::new(machine.clone())).expect("made");
        let mut header = Transaction::new();
        header.put([b'0', 0, 0, 0, 0, 0, 0, 0, 0], format!("pandofs store {format}\n0123456789abcdef"));
        engine.commit(&header).expect("no failure");
        KvFs::new(Box::new(engine), Box::new(machine), StoreOptions::new())
    };
    assert!(matches!(opened(1), Err(OpenError::Older)));
    assert!(matches!(opened(3), Err(OpenError::Newer)));
    assert!(matches!(opened(10), Err(OpenError::Newer)));
}

/// A directory that is not a store stays as it is.
#[test]
fn other_directories_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("file"), "mine").expect("written");
    assert!(matches!(KvFs::open(dir.path(), StoreOptions::new()), Err(OpenError::NotAStore)));
    assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 1);
    std::fs::write(dir.path().join("pandofs-records"), "mine").expect("written");
    assert!(matches!(KvFs::open(dir.path(), StoreOptions::new()), Err(OpenError::Damaged(_) | OpenError::Io(_))));
    assert_eq!(std::fs::read(dir.path().join("pandofs-records")).expect("reads"), b"mine");
}
