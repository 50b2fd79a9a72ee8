//! Model of [`VersionedPair`]. It has been seen to fail on the bugs that its comment names.

use super::*;
use crate::{
    facade::{AtomicU64, Ordering},
    reclaim::model,
};
use loom::{sync::Arc, thread};

/// A reader gets word and record as they were before a change or after it. If it then reads the
/// word by itself, it does not get an older one. Seen to fail: a reader that does not load the
/// record again (the new word with the old record); an announcement without the predecessor (the
/// old word with the new record).
#[test]
fn word_and_record_change_at_one_instant() {
    model::check(|| {
        let world = Arc::new((AtomicU64::new(7), VersionedPair::new(None)));
        let writer = thread::spawn({
            let world = world.clone();
            move || world.1.change(7, 8, Some(1), || world.0.store(8, Ordering::Release))
        });
        let (word, pair) = &*world;
        let load = || word.load(Ordering::Acquire);
        let now = pair.read(load, |word, record| (word, record.copied()));
        assert!([(7, None), (8, Some(1))].contains(&now), "{now:?}");
        assert!(load() >= now.0);
        writer.join().expect("ends");
    });
}
