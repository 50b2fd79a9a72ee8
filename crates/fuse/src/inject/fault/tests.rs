use super::*;

#[test]
fn faults_select_requests() {
    let fault = |operation, error, when| Fault { operation, error, when };
    let faults = Faults::new(vec![
        fault(Operation::Getattr, Error::Stale, When::Nth(2)),
        fault(Operation::Lookup, Error::Io, When::Named(b"bad".into())),
        fault(Operation::Read, Error::Io, When::Always),
    ]);
    let getattr: Vec<_> = (0..3).map(|_| faults.next(Operation::Getattr, None)).collect();
    assert_eq!(getattr, [None, Some(Error::Stale), None]);
    assert_eq!(faults.next(Operation::Lookup, Some(b"good")), None);
    assert_eq!(faults.next(Operation::Lookup, Some(b"bad")), Some(Error::Io));
    assert_eq!(faults.next(Operation::Read, None), Some(Error::Io));
    assert_eq!(faults.next(Operation::Write, None), None);
}
