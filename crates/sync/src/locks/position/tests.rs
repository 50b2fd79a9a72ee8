//! Tests of positions.

use super::*;
use crate::base::stopper::Stopper;
use std::convert::Infallible;

fn by(delta: u64) -> impl FnMut(u64) -> Result<u64, Infallible> {
    move |cur| Ok(cur + delta)
}

#[test]
fn seek_and_tell() {
    let position = Position::new(5);
    assert_eq!(position.tell(), 5);
    position.set(Position::MAX);
    assert_eq!(position.tell(), Position::MAX);
    position.set(7);
    assert_eq!(position.seek_relative(by(3)), Ok(10));
    assert_eq!(position.seek_relative(Err), Err(10));
    assert_eq!(position.tell(), 10);
}

#[test]
fn finished_io_moves_the_position() {
    let position = Position::new(5);
    let io = position.begin();
    assert_eq!((io.position(), position.tell()), (5, 5));
    assert!(io.finish(9));
    assert_eq!(position.tell(), 9);
    drop(position.begin());
    assert_eq!(position.tell(), 9);
    assert_eq!(position.seek_relative(by(1)), Ok(10));
}

#[test]
fn seek_during_an_io_wins() {
    let position = Position::new(5);
    let io = position.begin();
    position.set(50);
    // The bit is clear, so a relative seek of another thread does not wait.
    std::thread::scope(|s| assert_eq!(s.spawn(|| position.seek_relative(by(1))).join().expect("ends"), Ok(51)));
    assert!(!io.finish(9));
    assert_eq!(position.tell(), 51);
}

/// A seek to the position at which the I/O started is a seek too.
#[test]
fn seek_to_the_start_of_an_io_wins() {
    let position = Position::new(5);
    let io = position.begin();
    position.set(5);
    assert!(!io.finish(9));
    assert_eq!(position.tell(), 5);
    let io = position.begin();
    position.set(6);
    position.set(5);
    drop(io);
    assert_eq!(position.tell(), 5);
    assert!(position.begin().finish(6));
}

#[test]
fn panic_ends_the_io() {
    let position = Position::new(5);
    let result = std::thread::scope(|s| {
        s.spawn(|| {
            let _io = position.begin();
            panic!("on purpose");
        })
        .join()
    });
    assert!(result.is_err());
    assert_eq!(position.seek_relative(by(1)), Ok(6));
    assert!(position.begin().finish(7));
}

#[test]
#[should_panic(expected = "63 bits")]
fn position_above_63_bits_panics() {
    Position::default().set(1 << 63);
}

/// The plain store against compare-and-swaps on the real machine. The model has an exchange
/// instead.
#[test]
fn set_is_never_lost() {
    use std::sync::atomic::AtomicBool;
    const STEP: u64 = 1 << 32;
    let (position, stop) = (Position::new(0), AtomicBool::new(false));
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(position.seek_relative(by(1)).is_ok());
                let io = position.begin();
                let start = io.position();
                io.finish(start + 1);
            }
        });
        let _stopper = Stopper(&stop);
        for i in 1..200_000 {
            position.set(i * STEP);
            assert_eq!(position.tell() / STEP, i, "a compare-and-swap undid a seek");
            assert!((i * STEP + 1..(i + 1) * STEP).contains(&position.seek_relative(by(1)).expect("no overflow")));
        }
    });
}

#[test]
fn reads_and_writes_are_atomic_and_relative_seeks_are_not_lost() {
    let position = Position::new(0);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for _ in 0..10_000 {
                    let io = position.begin();
                    let start = io.position();
                    assert!(io.finish(start + 3), "no thread sets");
                }
            });
            s.spawn(|| {
                for _ in 0..10_000 {
                    assert!(position.seek_relative(by(1)).is_ok());
                }
            });
        }
    });
    assert_eq!(position.tell(), 2 * 10_000 * (3 + 1));
}
