use super::Operation;

#[test]
fn operations_are_found_by_number_and_name() {
    for (number, &operation) in Operation::ALL.iter().enumerate() {
        assert_eq!(operation as usize, number);
        assert_eq!(Operation::named(operation.name()), Some(operation));
    }
    assert_eq!(Operation::named("swim"), None);
}
