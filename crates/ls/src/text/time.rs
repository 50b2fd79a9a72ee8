//! Times as text. A listing shows many times but few different minutes. So the text of a minute is
//! cached, and so is the period in which the offset of the time zone does not change.

use std::{
    borrow::Cow,
    env, fs,
    io::{self, Read},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use jiff::{
    Timestamp,
    fmt::strtime::{BrokenDownTime, Config, PosixCustom},
    tz::TimeZone,
};
use pando_records::Time;

use crate::text::{human::spaces, words::Words};

/// Time styles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeStyle {
    /// `2026-11-21 10:45:50.123456789 +0000`
    FullIso,
    /// `2026-11-21 10:45`
    LongIso,
    /// `11-21 10:45`, and `2026-11-21` for times that are not recent
    Iso,
    /// `Nov 21 10:45`, and `Nov 21  2026` for times that are not recent
    Locale,
    /// Formats of strftime: one for times that are not recent, one for recent times.
    Format {
        /// For times that are not recent.
        old: String,
        /// For recent times.
        recent: String,
    },
}

impl TimeStyle {
    /// Parses the argument of `--time-style`.
    ///
    /// # Errors
    /// It is not a style. The text lists the styles.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut text = text;
        while let Some(style) = text.strip_prefix("posix-") {
            if is_posix_locale() {
                return Ok(Self::Locale);
            }
            text = style;
        }
        const STYLES: Words<u8> = Words::new(&[("full-iso", 0), ("long-iso", 1), ("iso", 2), ("locale", 3)]);
        Ok(match STYLES.find(text) {
            Some(0) => Self::FullIso,
            Some(1) => Self::LongIso,
            Some(2) => Self::Iso,
            Some(_) => Self::Locale,
            None => {
                let format = text.strip_prefix('+').ok_or("a style is full-iso, long-iso, iso, locale or +FORMAT")?;
                let (old, recent) = format.split_once('\n').unwrap_or((format, format));
                if recent.contains('\n') {
                    return Err("a format has one line, or two: for times that are not recent, and for those that are"
                        .to_owned());
                }
                let (old, recent) = (without_modifiers(old)?, without_modifiers(recent)?);
                for format in [&old, &recent] {
                    formatted(format, Timestamp::UNIX_EPOCH, &TimeZone::UTC)
                        .map_err(|error| format!("{format:?}: {error}"))?;
                }
                Self::Format { old, recent }
            }
        })
    }
}

/// A time is recent if it lies within half a year (of 365.2425 days) before now.
const RECENT_SECONDS: i64 = 31_556_952 / 2;
const CACHED_MINUTES: usize = 256;
const TEXT_BYTES: usize = 39;

/// The text of a minute.
#[derive(Clone, Copy)]
struct Minute {
    /// Local minute since the epoch.
    minute: i64,
    recent: bool,
    len: u8,
    text: [u8; TEXT_BYTES],
}

/// The seconds from `from` to before `to`, in which local time is ahead by `offset`.
#[derive(Clone, Copy)]
struct Span {
    from: i64,
    to: i64,
    offset: i64,
}

/// Writes times.
pub struct Clock {
    style: TimeStyle,
    zone: TimeZone,
    now: Time,
    span: Span,
    minutes: Box<[Minute]>,
}

/// Local date and time.
struct Civil {
    year: i64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
}

impl Civil {
    /// From a local minute since the epoch. The calendar is the Gregorian one at all times. (The
    /// conversion from days to dates with eras of 400 years that begin in March: Howard Hinnant,
    /// "chrono-Compatible Low-Level Date Algorithms", 2013.)
    fn new(minute: i64) -> Self {
        let (day, of_day) = (minute.div_euclid(1440), minute.rem_euclid(1440));
        let shifted = day + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * of_year + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: month as u8,
            day: (of_year - (153 * march_month + 2) / 5 + 1) as u8,
            hour: (of_day / 60) as u8,
            minute: (of_day % 60) as u8,
        }
    }
}

/// The time zone of this process, as the C library finds it: `TZ`, or otherwise /etc/localtime.
/// Without `TZ`, jiff would also search all directories of /usr/share/zoneinfo for the name of that
/// zone.
fn local_zone() -> TimeZone {
    const LOCAL: &str = "/etc/localtime";
    let local = || {
        let link = fs::read_link(LOCAL).unwrap_or_default();
        let name = link.to_str().and_then(|link| link.split_once("/zoneinfo/")).map_or("local", |(_, name)| name);
        TimeZone::tzif(name, &fs::read(LOCAL).ok()?).ok()
    };
    match env::var_os("TZ") {
        Some(zone) => zone_of(zone.to_str().unwrap_or_default()),
        None => local().unwrap_or_else(TimeZone::system),
    }
}

/// The contents of a zone file, or the beginning of a file that is none, for example /dev/zero.
fn zone_file(path: &Path) -> io::Result<Vec<u8>> {
    const MOST: u64 = 1 << 20;
    let mut data = Vec::new();
    fs::File::open(path)?.take(MOST).read_to_end(&mut data)?;
    Ok(data)
}

/// The zone of `TZ`: a file of the system, or a POSIX rule, or else UTC. (jiff knows no directories
/// within that of the zones, ignores the case of names, and requires the start of summer time.)
fn zone_of(text: &str) -> TimeZone {
    let name = text.strip_prefix(':').unwrap_or(text);
    let zones = env::var_os("TZDIR").unwrap_or_else(|| "/usr/share/zoneinfo".into());
    let file = zone_file(&Path::new(&zones).join(name)).ok().and_then(|data| TimeZone::tzif(name, &data).ok());
    file.or_else(|| TimeZone::posix(name).ok())
        .or_else(|| TimeZone::posix(&format!("{name},M3.2.0,M11.1.0")).ok())
        .unwrap_or(TimeZone::UTC)
}

impl Clock {
    /// A clock of this process's zone.
    pub fn new(style: TimeStyle) -> Self {
        Self::with_zone(style, local_zone(), now())
    }

    fn with_zone(style: TimeStyle, zone: TimeZone, now: Time) -> Self {
        let empty = Minute { minute: i64::MIN, recent: false, len: 0, text: [0; TEXT_BYTES] };
        let span = Span { from: 0, to: 0, offset: 0 };
        Self { style, zone, now, span, minutes: vec![empty; CACHED_MINUTES].into() }
    }

    /// The width of an old time, for entries without one.
    pub fn width(&mut self) -> usize {
        let mut text = Vec::new();
        self.write_styled(Time::default(), &mut text);
        text.len()
    }

    /// Appends a time in its style, or as seconds if the style does not have its year.
    pub fn write(&mut self, time: Time, out: &mut Vec<u8>) {
        if self.write_styled(time, out).is_none() {
            let mut buffer = itoa::Buffer::new();
            let text = buffer.format(time.secs).as_bytes();
            spaces(self.width().saturating_sub(text.len()), out);
            out.extend_from_slice(text);
        }
    }

    /// Appends a time. None if the style does not have its year; then nothing is appended.
    fn write_styled(&mut self, time: Time, out: &mut Vec<u8>) -> Option<()> {
        let recent = self.is_recent(time);
        if let TimeStyle::Format { old, recent: format } = &self.style {
            let format = if recent { format } else { old };
            let format = with_seconds(format, time);
            let text = Timestamp::new(time.secs, time.nanos as i32).and_then(|at| formatted(&format, at, &self.zone));
            out.extend_from_slice(text.ok()?.as_bytes());
            return Some(());
        }
        let offset = self.offset(time.secs);
        let local = time.secs.checked_add(offset)?;
        let minute = local.div_euclid(60);
        let slot = minute.rem_euclid(CACHED_MINUTES as i64) as usize;
        let mut known = &self.minutes[slot];
        if known.minute != minute || known.recent != recent {
            self.minutes[slot] = self.minute(minute, recent)?;
            known = &self.minutes[slot];
        }
        out.extend_from_slice(&known.text[..usize::from(known.len)]);
        if self.style == TimeStyle::FullIso {
            write_rest(local.rem_euclid(60), time.nanos, offset, out);
        }
        Some(())
    }

    fn is_recent(&mut self, time: Time) -> bool {
        if time > self.now {
            // The file may have changed after the listing began.
            self.now = now();
        }
        let begin = Time { secs: self.now.secs - RECENT_SECONDS, nanos: self.now.nanos };
        begin < time && time < self.now
    }

    /// The offset of local time, in seconds.
    fn offset(&mut self, secs: i64) -> i64 {
        if !(self.span.from..self.span.to).contains(&secs) {
            self.span = self.span_of(secs);
        }
        self.span.offset
    }

    /// Beyond the years of jiff, the offset is that of its first or last moment.
    fn span_of(&self, secs: i64) -> Span {
        let at = Timestamp::new(secs, 0).unwrap_or(if secs < 0 { Timestamp::MIN } else { Timestamp::MAX });
        let offset = i64::from(self.zone.to_offset(at).seconds());
        // `preceding` leaves out a change at the moment itself.
        let after = Timestamp::new(secs.saturating_add(1), 0).unwrap_or(at);
        let from = self.zone.preceding(after).next().map_or(i64::MIN, |change| change.timestamp().as_second());
        let to = self.zone.following(at).next().map_or(i64::MAX, |change| change.timestamp().as_second());
        if (from..to).contains(&secs) { Span { from, to, offset } } else { Span { from: secs, to: secs, offset } }
    }

    /// None if the year does not fit into the C library's calendar. ls shows seconds then.
    fn minute(&self, minute: i64, recent: bool) -> Option<Minute> {
        const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
        let civil = Civil::new(minute);
        i32::try_from(civil.year - 1900).ok()?;
        let mut text = Vec::with_capacity(TEXT_BYTES);
        let month_name = &MONTHS[usize::from(civil.month) * 3 - 3..][..3];
        match &self.style {
            TimeStyle::Locale => {
                text.extend_from_slice(month_name);
                text.push(b' ');
                text.extend_from_slice(&if civil.day < 10 { [b' ', b'0' + civil.day] } else { two(civil.day) });
                text.push(b' ');
                if recent {
                    write_clock(&civil, &mut text);
                } else {
                    text.push(b' ');
                    write_year(civil.year, &mut text);
                }
            }
            TimeStyle::Iso if recent => {
                write_day(&civil, &mut text);
                text.push(b' ');
                write_clock(&civil, &mut text);
            }
            TimeStyle::Iso | TimeStyle::LongIso | TimeStyle::FullIso | TimeStyle::Format { .. } => {
                write_year(civil.year, &mut text);
                text.push(b'-');
                write_day(&civil, &mut text);
                text.push(b' ');
                if self.style != TimeStyle::Iso {
                    write_clock(&civil, &mut text);
                }
            }
        }
        let mut kept = Minute { minute, recent, len: text.len() as u8, text: [0; TEXT_BYTES] };
        kept.text[..text.len()].copy_from_slice(&text);
        Some(kept)
    }
}

/// A time in a format of strftime(3), with the names of the POSIX locale.
fn formatted(format: &str, at: Timestamp, zone: &TimeZone) -> Result<String, jiff::Error> {
    let config = Config::new().custom(PosixCustom::new());
    BrokenDownTime::from(&at.to_zoned(zone.clone())).to_string_with_config(&config, format)
}

/// A format in which `%s` is rounded down for a time before 1970. jiff rounds it up.
fn with_seconds(format: &str, time: Time) -> Cow<'_, str> {
    if time.secs >= 0 || time.nanos == 0 {
        return format.into();
    }
    let (mut text, mut rest) = (String::new(), format);
    while let Some(percent) = rest.find('%') {
        let (before, conversion) = rest.split_at(percent);
        text.push_str(before);
        let len = 1 + conversion[1..].chars().next().map_or(0, char::len_utf8);
        match &conversion[..len] {
            "%s" => text.push_str(itoa::Buffer::new().format(time.secs)),
            other => text.push_str(other),
        }
        rest = &conversion[len..];
    }
    (text + rest).into()
}

/// A format without E and O, which ask for years of an era or for other digits: the POSIX locale
/// has neither.
///
/// # Errors
/// It has a flag or a width that jiff ignores.
fn without_modifiers(format: &str) -> Result<String, String> {
    let (mut plain, mut rest) = (String::new(), format);
    while let Some(percent) = rest.find('%') {
        let (before, conversion) = rest.split_at(percent + 1);
        plain.push_str(before);
        let unflagged = conversion.trim_start_matches(['_', '-', '0', '^', '#']);
        let flags = &conversion[..conversion.len() - unflagged.len()];
        let (flags, conversion) = match unflagged.as_bytes() {
            // ls forgets the flags before it.
            [b'O', letter, ..] if b"deHImMSuUVwWy".contains(letter) => ("", &unflagged[1..]),
            [b'O', b'b' | b'B', ..] => (flags, &unflagged[1..]),
            [b'E', letter, ..] if b"cCxXyY".contains(letter) => (flags, &unflagged[1..]),
            _ => (flags, unflagged),
        };
        if !is_done(flags, conversion) {
            return Err(format!("{format:?}: flags and widths are not for each conversion, and colons only for %z"));
        }
        plain.push_str(flags);
        rest = conversion;
        // The first letter is not the start of a conversion. It may be another %.
        let first = rest.chars().next().map_or(0, char::len_utf8);
        plain.push_str(&rest[..first]);
        rest = &rest[first..];
    }
    Ok(plain + rest)
}

/// Whether jiff treats these flags and the text before the letter as ls does.
fn is_done(flags: &str, conversion: &str) -> bool {
    let rest = conversion.trim_start_matches(|char: char| char.is_ascii_digit());
    let width = &conversion[..conversion.len() - rest.len()];
    let after_colons = rest.trim_start_matches(':');
    let letter = after_colons.chars().next().unwrap_or_default();
    let passed_over = [
        (flags.contains('#'), "aAbBh"),
        (flags.contains(['-', '_']), "DNz"),
        (flags.contains('^'), "P"),
        (!width.is_empty(), "aAbBCDhnpPRtTuwxXzZ"),
        (width.len() > 1, "N"),
        (!flags.is_empty() || !width.is_empty(), "%"),
    ];
    let has_colons = after_colons.len() < rest.len();
    (!has_colons || letter == 'z') && passed_over.iter().all(|&(is, letters)| !is || !letters.contains(letter))
}

/// Whether the environment selects the POSIX locale for times.
fn is_posix_locale() -> bool {
    let values = ["LC_ALL", "LC_TIME", "LANG"].iter().filter_map(env::var_os);
    let locale = values.into_iter().find(|value| !value.is_empty());
    locale.is_none_or(|locale| locale == "C" || locale == "POSIX")
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

fn two(number: u8) -> [u8; 2] {
    [b'0' + number / 10, b'0' + number % 10]
}

fn write_clock(civil: &Civil, out: &mut Vec<u8>) {
    out.extend_from_slice(&two(civil.hour));
    out.push(b':');
    out.extend_from_slice(&two(civil.minute));
}

fn write_day(civil: &Civil, out: &mut Vec<u8>) {
    out.extend_from_slice(&two(civil.month));
    out.push(b'-');
    out.extend_from_slice(&two(civil.day));
}

/// At least four digits.
fn write_year(year: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{year:04}").as_bytes());
}

/// The end of the full style, after the minute.
fn write_rest(second: i64, nanos: u32, offset: i64, out: &mut Vec<u8>) {
    out.push(b':');
    out.extend_from_slice(&two(second as u8));
    out.push(b'.');
    let mut fraction = [b'0'; 9];
    let mut rest = nanos;
    for digit in fraction.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&fraction);
    out.extend_from_slice(if offset < 0 { b" -" } else { b" +" });
    let minutes = offset.unsigned_abs() / 60;
    out.extend_from_slice(&two((minutes / 60) as u8));
    out.extend_from_slice(&two((minutes % 60) as u8));
}

#[cfg(test)]
mod tests {
    use jiff::fmt::strtime;

    use super::*;

    const NOW: Time = Time { secs: 1_795_257_950, nanos: 500 };

    fn shown(style: &TimeStyle, zone: &str, time: Time) -> String {
        let zone = TimeZone::get(zone).unwrap();
        let mut out = Vec::new();
        Clock::with_zone(style.clone(), zone, NOW).write(time, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn at(secs: i64) -> Time {
        Time { secs, nanos: 7 }
    }

    #[test]
    fn the_local_zone_is_that_of_the_system() {
        for seconds in [-2_000_000_000, 0, 1_000_000_000, 1_750_000_000, 4_000_000_000] {
            let then = Timestamp::from_second(seconds).unwrap();
            let offset = |zone: TimeZone| zone.to_offset_info(then).offset();
            assert_eq!(offset(local_zone()), offset(TimeZone::system()), "{seconds}");
        }
    }

    #[test]
    fn styles_match_those_of_ls() {
        let recent = at(NOW.secs - 100);
        for (style, recent_text, old_text) in [
            (TimeStyle::Locale, "Nov 21 10:44", "Feb  3  2009"),
            (TimeStyle::Iso, "11-21 10:44", "2009-02-03 "),
            (TimeStyle::LongIso, "2026-11-21 10:44", "2009-02-03 04:05"),
            (TimeStyle::FullIso, "2026-11-21 10:44:10.000000007 +0000", "2009-02-03 04:05:06.000000007 +0000"),
            (TimeStyle::parse("+%Y/%m %s").unwrap(), "2026/11 1795257850", "2009/02 1233633906"),
            (TimeStyle::parse("+old\n%H:%M:%S.%N").unwrap(), "10:44:10.000000007", "old"),
        ] {
            assert_eq!(shown(&style, "UTC", recent), recent_text);
            assert_eq!(shown(&style, "UTC", at(1_233_633_906)), old_text);
        }
        assert!(TimeStyle::parse("nice").unwrap_err().contains("full-iso"));
        assert!(TimeStyle::parse("+%").unwrap_err().contains('%'));
        assert!(TimeStyle::parse("+a\nb\nc").unwrap_err().contains("two"));
        for conversion in ["%#a", "%-N", "%_z", "%^P", "%10A", "%10N", "%3u", "%:a", "%::b", "%_%"] {
            assert!(TimeStyle::parse(&format!("+%F {conversion}")).unwrap_err().contains("width"), "{conversion}");
        }
        for conversion in ["%#p", "%_d", "%^a", "%6d", "%3N", "%:z", "%%#a", "%Y-%m"] {
            assert!(TimeStyle::parse(&format!("+%F {conversion}")).is_ok(), "{conversion}");
        }
    }

    #[test]
    fn only_half_a_year_is_recent() {
        let begin = NOW.secs - RECENT_SECONDS;
        for (secs, nanos, recent) in [(begin, 500, false), (begin, 501, true), (NOW.secs, 499, true)] {
            let text = shown(&TimeStyle::Locale, "UTC", Time { secs, nanos });
            assert_eq!(text.contains(':'), recent, "{text}");
        }
    }

    /// Each moment around changes of the offset, with one clock whose caches are in use, against
    /// jiff's own calendar.
    #[test]
    fn cached_times_match_the_calendar() {
        for name in ["Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "Asia/Kathmandu"] {
            let zone = TimeZone::get(name).unwrap();
            let mut clock = Clock::with_zone(TimeStyle::FullIso, zone.clone(), NOW);
            let mut secs = -4_000_000_000_i64;
            while secs < 5_000_000_000 {
                let base = Timestamp::from_second(secs).unwrap();
                let change = zone.following(base).next().map_or(secs, |change| change.timestamp().as_second());
                for moment in [change - 1, change, change + 1, secs] {
                    let zoned = Timestamp::new(moment, 42).unwrap().to_zoned(zone.clone());
                    let expected = strtime::format("%Y-%m-%d %H:%M:%S.%9f", &zoned).unwrap();
                    let mut out = Vec::new();
                    clock.write(Time { secs: moment, nanos: 42 }, &mut out);
                    let text = String::from_utf8(out).unwrap();
                    assert!(text.starts_with(&expected), "{name} {moment}: {text}, {expected}");
                }
                secs += 86_400 * 45 + 12_345;
            }
        }
    }

    #[test]
    fn extreme_times_are_written() {
        assert_eq!(shown(&TimeStyle::LongIso, "UTC", at(i64::MAX)), i64::MAX.to_string());
        assert_eq!(shown(&TimeStyle::FullIso, "UTC", at(i64::MAX)), format!("{:>35}", i64::MAX));
        assert_eq!(shown(&TimeStyle::parse("+%c").unwrap(), "UTC", at(1 << 40)), format!("{:>24}", 1_u64 << 40));
        assert_eq!(shown(&TimeStyle::LongIso, "UTC", at(i64::MIN)), i64::MIN.to_string());
        assert_eq!(shown(&TimeStyle::LongIso, "UTC", at(1 << 40)), "36812-02-20 00:36");
        assert!(shown(&TimeStyle::LongIso, "Europe/Berlin", at(-70_000_000_000)).starts_with("-249-"));
        assert_eq!(shown(&TimeStyle::parse("+%Y").unwrap(), "UTC", at(i64::MAX)), i64::MAX.to_string());
    }
}
