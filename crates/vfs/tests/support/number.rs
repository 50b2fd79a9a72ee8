//! Parameters of tests, also for tests of other crates.

/// A number from the environment. A value that is not a number is an error: otherwise a seed with a
/// typing error would be ignored.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}
