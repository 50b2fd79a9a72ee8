//! After a crash at any call, with any loss of what was not flushed, a store has the operations
//! before some instant, and all that a sync has waited for (P15).

use std::{sync::Arc, time::Duration};

use pando_kv::Embedded;
use pando_kvfs::{KvFs, StoreOptions};
use pando_vfs::{At, Context, Credentials, FileKind, OpenFlags, Vfs};

use crate::{
    machine::{Image, Machine, Progress},
    operations::change,
    support::{Rng, Tree, difference, seed, seen},
};

/// The namespace over the store of a machine.
pub fn open(machine: &Machine) -> (Vfs, Context) {
    let engine = Embedded::open(Arc::new(machine.clone())).expect("undamaged");
    // Only commits that the test asks for.
    let options = StoreOptions::new().interval(Duration::from_secs(1000));
    let store = KvFs::new(Box::new(engine), Box::new(machine.clone()), options).expect("a store");
    let vfs = Vfs::new(store).expect("a tree");
    let context = Context::new(&vfs, Credentials::root());
    (vfs, context)
}

/// Runs operations, and opens every image that a crash has left. Returns how many there were.
fn crashes(random: &mut Rng, one_in: u64) -> usize {
    let machine = Machine::new(&Image::default());
    drop(Embedded::create(Arc::new(machine.clone())).expect("made"));
    let (vfs, context) = open(&machine);
    vfs.sync().expect("stored");
    machine.crash(Rng(random.next()), one_in);
    let mut states: Vec<Tree> = vec![seen(&vfs, &context)];
    let mut progress = Progress::default();
    while states.len() < 60 {
        if random.below(6) == 0 {
            vfs.sync().expect("stored");
            progress.synced = progress.returned;
            machine.note_synced(progress.synced);
        } else {
            let _ = change(&vfs, &context, random);
            states.push(seen(&vfs, &context));
            progress.returned += 1;
            machine.note_returned(progress.returned);
        }
        if random.below(8) == 0 {
            vfs.evict(1 + random.below(16) as usize).expect("stored");
        }
    }
    let images = machine.take_images();
    for (progress, image) in &images {
        check(&states, *progress, image);
    }
    images.len()
}

pub fn check(states: &[Tree], progress: Progress, image: &Image) {
    let machine = Machine::new(image);
    expect_consistent(&machine);
    let (vfs, context) = open(&machine);
    let found = seen(&vfs, &context);
    let legal = &states[progress.synced..states.len().min(progress.returned + 2)];
    if !legal.contains(&found) {
        let near = legal.iter().filter_map(|legal| difference(legal, &found)).collect::<Vec<_>>();
        panic!("{progress:?} of {}: {near:#?}", states.len());
    }
    // Nothing is left of what the crash has undone.
    for (path, node) in found.iter().filter(|(_, node)| node.kind == FileKind::File) {
        let file = vfs.open(&context, At::Cwd, path, OpenFlags::RDWR, 0).expect("opens");
        let mut beyond = [1; 100];
        file.truncate(node.bytes.len() as u64 + 100).expect("grows");
        assert_eq!(file.pread(&mut beyond, node.bytes.len() as u64), Ok(100));
        assert_eq!(beyond, [0; 100], "{path} beyond {}", node.bytes.len());
    }
    vfs.sync().expect("stored");
}

/// All records fit together.
pub fn expect_consistent(machine: &Machine) {
    let engine = Embedded::open(Arc::new(machine.clone())).expect("undamaged");
    let report = pando_kvfs::check_parts(&engine, machine, &mut |_| ()).expect("readable");
    assert_eq!(report.problems, [""; 0]);
}

#[test]
fn store_has_a_prefix_of_the_operations_after_a_crash() {
    let mut random = Rng(seed());
    let rounds = pandofs_testkit::number("PANDO_CRASH_ROUNDS").unwrap_or(20);
    let images: usize = (0..rounds).map(|_| crashes(&mut random, 2)).sum();
    println!("{images} images");
    assert!(images as u64 > rounds * 5, "{images}");
}
