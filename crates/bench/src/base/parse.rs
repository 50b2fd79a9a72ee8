//! Parsers of option values.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr, time::Duration};

/// A number of seconds, with a fraction if need be.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let allowed = 0.01..=3600.0;
    if allowed.contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err("not from 0.01 to 3600".into()) }
}

/// A parser of whole numbers in a range.
pub(crate) fn number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let (start, end) = (range.start(), range.end());
        text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| format!("not a number from {start} to {end}"))
    }
}
