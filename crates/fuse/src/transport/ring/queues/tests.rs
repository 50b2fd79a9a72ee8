use super::*;

#[test]
fn cpu_lists_are_counted() {
    for (list, cpus) in [("0\n", Some(1)), ("0-1\n", Some(2)), ("0-3,8,10-11", Some(7))] {
        assert_eq!(count(list), cpus);
    }
    for list in ["", "x", "3-1", "0-99999", "0-65535"] {
        assert_eq!(count(list), None, "{list}");
    }
    assert!(shares(1).is_some_and(|shares| shares.len() == 1 && !shares[0].queues.is_empty()));
}

#[test]
fn each_queue_has_exactly_one_thread() {
    let of = |queues: &[u16], cpu| Share { queues: queues.to_vec(), cpu };
    assert_eq!(share(2, &[0, 1], 2), [of(&[0], Some(0)), of(&[1], Some(1))]);
    assert_eq!(share(2, &[0, 1], 8), [of(&[0], Some(0)), of(&[1], Some(1))]);
    assert_eq!(share(4, &[0, 1, 2, 3], 2), [of(&[0, 2], None), of(&[1, 3], None)]);
    // In a container: two of five CPUs are ours, but there are callers on the others as well.
    assert_eq!(share(5, &[1, 3], 2), [of(&[1, 0, 4], Some(1)), of(&[3, 2], Some(3))]);
    assert_eq!(share(2, &[5], 1), [of(&[0, 1], None)]);
}

#[test]
fn requests_that_may_wait_have_many_threads() {
    let shares = share_for_waiting(3, &[0, 1], 66).unwrap();
    let of_queue =
        |queue: u16, cpu| shares.iter().filter(|share| **share == Share { queues: vec![queue], cpu }).count();
    // This process may not run on the third CPU, but callers may.
    assert_eq!([of_queue(0, Some(0)), of_queue(1, Some(1)), of_queue(2, None)], [66, 66, WAITING_ELSEWHERE]);
    let all: Vec<u16> = (0..100).collect();
    let threads = |queues, allowed: &[u16], waiting| {
        share_for_waiting(queues, allowed, waiting).map(|shares| (shares.len(), shares.first().unwrap().cpu))
    };
    assert_eq!(threads(64, &all[..64], 66), Some((1024, Some(0))));
    assert_eq!(threads(65, &all[..65], 66), None);
    assert_eq!(threads(65, &all[..65], 4), Some((260, Some(0))));
    // Many CPUs that are not there.
    assert_eq!(threads(240, &all[..2], 66), Some((2 * 36 + 238 * 4, Some(0))));
    assert_eq!(threads(1000, &all[..2], 66), None);
}
