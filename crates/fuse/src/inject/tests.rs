use super::*;

const MS: Duration = Duration::from_millis(1);

fn injector(depth: usize) -> Injector {
    let delays = vec![
        (Operation::Lookup, MS * 300),
        (Operation::Getattr, MS * 500),
        (Operation::Readdir, MS * 7),
        (Operation::Listxattr, MS * 11),
        (Operation::Getxattr, MS * 2),
    ];
    Injector::new(InjectorOptions::new().delays(delays).depth(NonZeroUsize::new(depth))).unwrap()
}

/// The time in milliseconds after which some work will be done that arrives now.
fn done_in_ms(injector: &Injector, work: Work) -> u128 {
    let now = Instant::now();
    injector.due(work, || now).map_or(0, |due| (due - now).as_millis())
}

#[test]
fn entry_costs_the_same_alone_and_in_a_batch() {
    assert_eq!(done_in_ms(&injector(1), Work::One(Operation::Lookup)), 300);
    assert_eq!(done_in_ms(&injector(1), Work::Found), 800);
    let entries = |entries, attributes| Work::Records(Records { entries, attributes, ..Records::default() });
    assert_eq!(done_in_ms(&injector(1), entries(10, true)), 8070);
    assert_eq!(done_in_ms(&injector(5), entries(10, true)), 1614);
    assert_eq!(done_in_ms(&injector(5), entries(10, false)), 14);
    assert_eq!(done_in_ms(&injector(1), entries(0, false)), 0);
    let names = Records { entries: 10, attributes: false, lists: false, values: 30 };
    assert_eq!(done_in_ms(&injector(1), Work::Records(names)), 30 * 2 + 70);
    let all = Records { attributes: true, lists: true, ..names };
    assert_eq!(done_in_ms(&injector(1), Work::Records(all)), 30 * 2 + 8070 + 10 * 11);
    assert_eq!(done_in_ms(&injector(40), Work::Records(all)), 807 + 11);
    assert_eq!(done_in_ms(&injector(1), Work::One(Operation::Read)), 0, "reads have no delay");
}
