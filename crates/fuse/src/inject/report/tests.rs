use super::*;

#[test]
fn report_shows_counts() {
    let counts = Counts::new();
    counts.requests(Operation::Lookup, 2);
    counts.requests(Operation::Readdirplus, 1);
    counts.entries(7);
    counts.begin();
    counts.begin();
    counts.end();
    counts.begin();
    let report = counts.report(3);
    assert_eq!((report.count(Operation::Lookup), report.count(Operation::Getattr)), (2, 0));
    assert_eq!((report.entries, report.waiting_max, report.in_flight_max), (7, 2, 3));
    let said = report.to_string();
    assert!(said.starts_with("lookup 2, readdirplus 1, 7 directory entries") && !said.contains("getattr"), "{said}");
    let json = report.to_json();
    assert!(json.contains("\"lookup\": 2") && json.contains("\"getattr\": 0"), "{json}");
    assert!(json.ends_with("\"entries\": 7, \"waiting_max\": 2, \"in_flight_max\": 3}"), "{json}");
}
