//! Times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time: nanoseconds since the epoch in one word, from the year 1677 to 2262.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The current time of the wall clock.
    #[must_use]
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// The time that is `nanos` nanoseconds (less than 10^9) after `secs` seconds. Times beyond the
    /// range are clamped.
    #[must_use]
    pub const fn from_parts(secs: i64, nanos: u32) -> Self {
        const MIN: i128 = i64::MIN as i128;
        const MAX: i128 = i64::MAX as i128;
        // The range begins and ends in the middle of a second, so the exact time is clamped.
        match secs as i128 * 1_000_000_000 + nanos as i128 {
            ..=MIN => Self(i64::MIN),
            MAX.. => Self(i64::MAX),
            exact => Self(exact as i64),
        }
    }

    /// The whole seconds, rounded down.
    #[must_use]
    pub const fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// The nanoseconds after [`Timestamp::secs`].
    #[must_use]
    pub const fn nanos(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }
}

/// Times beyond the range are clamped.
impl From<SystemTime> for Timestamp {
    #[inline]
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)),
            Err(before) => Self(i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |n| -n)),
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let away = Duration::from_nanos(time.0.unsigned_abs());
        // A SystemTime has a larger range.
        if time.0 >= 0 { UNIX_EPOCH + away } else { UNIX_EPOCH - away }
    }
}

/// The new value of atime or mtime, as utimensat(2) takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    /// The old value stays (`UTIME_OMIT`).
    #[default]
    Omit,
    /// The current time (`UTIME_NOW`).
    Now,
    /// This value.
    At(Timestamp),
}

impl From<Timestamp> for SetTime {
    fn from(time: Timestamp) -> Self {
        Self::At(time)
    }
}

/// Times beyond the range of [`Timestamp`] are clamped.
impl From<SystemTime> for SetTime {
    fn from(time: SystemTime) -> Self {
        Self::At(time.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_exact_or_clamped() {
        for nanos in [0, 1, -1, 1_700_000_000_999_999_999, -1_200_000_000, i64::MAX, i64::MIN] {
            let time = SystemTime::from(Timestamp(nanos));
            let exact = match time.duration_since(UNIX_EPOCH) {
                Ok(since) => i128::try_from(since.as_nanos()),
                Err(before) => i128::try_from(before.duration().as_nanos()).map(|nanos| -nanos),
            };
            let whole = Timestamp(nanos);
            assert_eq!((exact, Timestamp::from(time)), (Ok(nanos.into()), whole));
            assert_eq!(Timestamp::from_parts(whole.secs(), whole.nanos()), whole);
        }
        for (secs, nanos, clamped) in [
            (Timestamp(i64::MIN).secs(), 0, i64::MIN),
            (i64::MIN, 999_999_999, i64::MIN),
            (i64::MAX, 0, i64::MAX),
            (Timestamp(i64::MAX).secs(), 999_999_999, i64::MAX),
        ] {
            assert_eq!(Timestamp::from_parts(secs, nanos), Timestamp(clamped));
        }
        let far = Duration::from_secs(1 << 40);
        assert_eq!(Timestamp::from(UNIX_EPOCH + far), Timestamp(i64::MAX));
        assert_eq!(Timestamp::from(UNIX_EPOCH - far), Timestamp(i64::MIN));
    }
}
