//! Model of [`SingleFlight`]. It has been seen to fail on the bugs its comments name.

use super::*;
use loom::{
    sync::{Arc, atomic::AtomicUsize},
    thread,
};

#[derive(Default)]
struct World {
    flights: SingleFlight<u8, usize>,
    /// Whether somebody asks.
    asking: AtomicUsize,
    /// How often somebody did: the answers.
    asked: AtomicUsize,
    /// The latest answer that somebody has been given.
    given: AtomicUsize,
}

/// Three threads ask for one key. Each gets an answer that was asked for while it waited; a question is never asked by
/// two at a time; and nobody sleeps for ever.
///
/// Seen to fail: landing before leaving the table (one who came after an answer was given out gets it), a landing that
/// wakes one only (the other sleeps for ever), a flight that is looked up and inserted under two locks of the table (two
/// ask at a time).
#[test]
fn one_asks_and_all_who_came_share() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let work = |world: &World| {
            let before = world.given.load(Ordering::SeqCst);
            let answer = world.flights.ask(&1, || {
                assert_eq!(world.asking.fetch_add(1, Ordering::SeqCst), 0, "two ask at a time");
                let answer = world.asked.fetch_add(1, Ordering::SeqCst) + 1;
                assert_eq!(world.asking.fetch_sub(1, Ordering::SeqCst), 1);
                answer
            });
            assert!(answer > before, "an answer that was given out before: {answer}");
            world.given.fetch_max(answer, Ordering::SeqCst);
        };
        let threads = [(); 2].map(|()| {
            let world = world.clone();
            thread::spawn(move || work(&world))
        });
        work(&world);
        threads.into_iter().for_each(|thread| thread.join().expect("ends"));
        assert!(facade::lock(&world.flights.tables[0]).is_empty());
    });
}
