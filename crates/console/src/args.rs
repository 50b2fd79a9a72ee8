//! Parsers and settings that the command lines of several commands share.

use std::{fmt::Display, ops::RangeInclusive, path::PathBuf, str::FromStr, time::Duration};

use clap::builder::{OsStringValueParser, TypedValueParser};

/// The place in the help of options that all commands have: after the options of the command
/// itself, before --help.
pub const LAST: usize = 998;

/// Parses any path, also an empty one. The command reports that there is no such file as it does
/// for other paths, and goes on with the rest.
pub fn any_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Parses a whole number within `range`.
pub fn number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let (start, end) = (range.start(), range.end());
        text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| format!("not a number from {start} to {end}"))
    }
}

/// Parses a number of seconds from 0.01 to 3600.
///
/// # Errors
/// A message that says what is wrong.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let allowed = 0.01..=3600.0;
    if allowed.contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err("not from 0.01 to 3600".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_seconds_are_within_their_range() {
        let parse = number(1_u32..=1000);
        assert_eq!((parse("1"), parse("1000")), (Ok(1), Ok(1000)));
        for text in ["0", "1001", "-1", "", "x", "99999999999"] {
            assert_eq!(parse(text), Err("not a number from 1 to 1000".into()), "{text}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "nan", "1e9"] {
            assert_eq!(seconds(text), Err("not from 0.01 to 3600".into()), "{text}");
        }
        assert!(seconds("x").is_err());
    }
}
