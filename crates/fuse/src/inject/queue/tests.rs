use super::*;

const MS: Duration = Duration::from_millis(1);

fn done_ms(queue: &mut ServiceQueue, start: Instant, at_ms: u32, service_ms: u32) -> u128 {
    (queue.arrive(start + MS * at_ms, MS * service_ms) - start).as_millis()
}

#[test]
fn one_server_serves_in_order() {
    let (mut one, start) = (ServiceQueue::new(NonZeroUsize::new(1)), Instant::now());
    let done: Vec<_> = (0..4).map(|_| done_ms(&mut one, start, 0, 5)).collect();
    assert_eq!(done, [5, 10, 15, 20]);
    assert_eq!(done_ms(&mut one, start, 18, 5), 25, "waits for the item before it");
    assert_eq!(done_ms(&mut one, start, 100, 5), 105, "the server is free");
    assert_eq!(one.busy_max(), 1);
}

#[test]
fn first_free_server_takes_next_item() {
    let (mut two, start) = (ServiceQueue::new(NonZeroUsize::new(2)), Instant::now());
    let done: Vec<_> = [10, 2, 2, 2].map(|service| done_ms(&mut two, start, 0, service)).into();
    assert_eq!(done, [10, 2, 4, 6]);
    assert_eq!(two.busy_max(), 2);
}

#[test]
fn no_limit_means_no_waiting() {
    let (mut any, start) = (ServiceQueue::new(None), Instant::now());
    assert!((0..100).all(|_| done_ms(&mut any, start, 0, 7) == 7));
    assert_eq!(any.busy_max(), 100);
    assert_eq!(done_ms(&mut any, start, 7, 1), 8);
    assert_eq!(any.busy_max(), 100, "all had left by then");
}

#[test]
fn queue_agrees_with_reference_model() {
    // The model is a plain list of when each server is free. Both get the same random arrivals.
    let mut seed = 7_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for count in 1..9 {
        let (mut queue, start) = (ServiceQueue::new(NonZeroUsize::new(count)), Instant::now());
        let (mut ends, mut at) = (vec![0_u64; count], 0);
        for _ in 0..500 {
            at += random(4);
            let service = 1 + random(9);
            let first = (0..count).min_by_key(|&server| ends[server]).unwrap();
            ends[first] = ends[first].max(at) + service;
            assert_eq!(u128::from(ends[first]), done_ms(&mut queue, start, at as u32, service as u32));
        }
        assert_eq!(queue.busy_max(), count);
    }
}
