use super::*;

const MS: Duration = Duration::from_millis(1);

fn injector(depth: usize) -> Injector {
    let delays = vec![(Operation::Lookup, MS * 300), (Operation::Getattr, MS * 500), (Operation::Readdir, MS * 7)];
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
    assert_eq!(done_in_ms(&injector(1), Work::NamesWithAttributes(10)), 8070);
    assert_eq!(done_in_ms(&injector(5), Work::NamesWithAttributes(10)), 1614);
    assert_eq!(done_in_ms(&injector(5), Work::Names(10)), 14);
    assert_eq!(done_in_ms(&injector(1), Work::Names(0)), 0);
    assert_eq!(done_in_ms(&injector(1), Work::One(Operation::Read)), 0, "reads have no delay");
}
