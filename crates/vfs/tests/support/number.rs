//! Numbers that steer tests, also those of other crates.

/// A number from the environment. What is none is not passed over: whoever gives a seed again would try another.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}
