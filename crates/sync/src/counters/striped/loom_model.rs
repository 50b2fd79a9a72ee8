//! Models of [`Striped`]. Each has been seen to fail on the bugs that its comment names.

use super::*;
use loom::{cell::UnsafeCell, sync::Arc, thread};

/// A part that is initialized by a write which its users must see.
struct Part {
    made: UnsafeCell<u64>,
    count: AtomicU64,
    /// loom reports it if it is leaked.
    _kept: Arc<()>,
}
impl Default for Part {
    fn default() -> Self {
        let part = Self { made: UnsafeCell::new(0), count: AtomicU64::new(0), _kept: Arc::new(()) };
        // SAFETY: not shared yet.
        part.made.with_mut(|p| unsafe { *p = 1 });
        part
    }
}
// SAFETY: `made` is only read after sharing. The model checks this.
unsafe impl Sync for Part {}
// SAFETY: as above.
unsafe impl Send for Part {}

fn add(striped: &Striped<Part>) {
    let part = striped.mine();
    // SAFETY: no thread writes it any more.
    assert_eq!(part.made.with(|p| unsafe { *p }), 1);
    part.count.fetch_add(1, Ordering::Relaxed);
}

/// Two threads add and inflate, a third one adds. Parts are seen initialized, nothing is lost,
/// nothing leaks. Seen to fail: Relaxed in `inflate` or in `stripes` (parts not seen initialized);
/// a second array that replaces the first (lost); an array that lost the race, or the final one,
/// not freed (leaked); a thread that lost the race and reports that it inflated.
#[test]
fn inflation_loses_and_leaks_nothing() {
    loom::model(|| {
        let striped = Arc::new(Striped::<Part>::default());
        let threads: Vec<_> = [true, false]
            .map(|inflates| {
                let striped = striped.clone();
                thread::spawn(move || {
                    let inflated = inflates && striped.note_contention();
                    add(&striped);
                    inflated
                })
            })
            .into();
        let mine = striped.note_contention();
        add(&striped);
        let theirs = threads.into_iter().map(|t| t.join().expect("ends"));
        assert_eq!(theirs.filter(|&inflated| inflated).count() + usize::from(mine), 1, "exactly one thread made them");
        assert!(striped.is_inflated());
        assert_eq!(striped.all().map(|p| p.count.load(Ordering::Relaxed)).sum::<u64>(), 3);
    });
}

/// After `freeze` the parts do not change. Seen to fail: `freeze` that only loads.
#[test]
fn frozen_value_keeps_its_parts() {
    loom::model(|| {
        let striped = Arc::new(Striped::<Part>::default());
        let other = thread::spawn({
            let striped = striped.clone();
            move || striped.note_contention()
        });
        striped.freeze();
        let parts = striped.all().count();
        other.join().expect("ends");
        assert_eq!(striped.all().count(), parts);
    });
}
