//! After a crash at any call, with any loss of what was not flushed, an embedded engine has all
//! commits that have returned, and of the one in flight all or nothing.

use std::sync::Arc;

use pando_kv::{Embedded, Engine, MemoryStorage, Outcome};

use crate::{
    disk::Disk,
    support::{Records, Rng, commit, random_transaction, records, seed},
};

/// Runs transactions and opens every image that a crash has left. Returns how many there were.
fn crashes(random: &mut Rng, one_in: u64) -> usize {
    let disk = Arc::new(Disk::default());
    let engine = Embedded::create(disk.clone()).expect("made");
    disk.crash(Rng(random.next()), one_in);
    let mut model = Records::new();
    let mut states = vec![model.clone()];
    while states.len() < 40 {
        let transaction = random_transaction(random, &model);
        if commit(&mut model, &transaction) {
            assert_eq!(engine.commit(&transaction).expect("no failure"), Outcome::Committed);
            disk.note_return();
            states.push(model.clone());
        }
    }
    drop(engine);
    let images = disk.take_images();
    for (returned, image) in &images {
        let opened = Embedded::open(Arc::new(MemoryStorage::new(image.clone())));
        let engine = opened.unwrap_or_else(|error| panic!("after {returned} commits: {error}"));
        let found = records(&*engine.snapshot().expect("readable"));
        let legal = &states[*returned..states.len().min(returned + 2)];
        assert!(legal.contains(&found), "after {returned} commits");
    }
    images.len()
}

#[test]
fn committed_records_survive_crashes() {
    let mut random = Rng(seed());
    let rounds = pandofs_testkit::number("PANDO_CRASH_ROUNDS").unwrap_or(20);
    let images: usize = (0..rounds).map(|_| crashes(&mut random, 4)).sum();
    println!("{images} images");
    assert!(images as u64 > rounds * 10, "{images}");
}
