//! Sizes as text: `4096`, `512M`, `1.5G`, `2GiB`.

/// Parses a size in bytes. Units are powers of 1024, with or without `B` or `iB`, in either case.
///
/// # Errors
/// A message that names the part that is wrong, and the units there are.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err("a size starts with a number, as in 512M or 1G".into());
    }
    let shift = shift(unit).ok_or_else(|| {
        format!("there is no unit {unit:?}: use K, M, G, T, P or E (powers of 1024), as in 512M or 1G")
    })?;
    let bytes = scale(number, shift)
        .ok_or_else(|| format!("{text} is not a number of bytes that fits: the largest size is 8E minus one byte"))?;
    if bytes == 0 {
        Err("a size of no bytes holds nothing: use a larger size, as in 512M or 1G".into())
    } else {
        Ok(bytes)
    }
}

fn shift(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_uppercase();
    let prefix = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
    match prefix {
        "" if unit == "IB" => None,
        "" => Some(0),
        prefix if prefix.len() == 1 => "KMGTPE".find(prefix).map(|index| 10 * (index as u32 + 1)),
        _ => None,
    }
}

/// `number` (digits with at most one point) times 2^`shift`, rounded down. It uses only integers.
fn scale(number: &str, shift: u32) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || fraction.len() > 15 || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    let part = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? };
    let part = (u128::from(part) << shift) / 10_u128.pow(fraction.len() as u32);
    let bytes = (u128::from(whole) << shift) + part;
    u64::try_from(bytes).ok().filter(|&bytes| bytes <= i64::MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [
            ("1", 1),
            ("4096", 4096),
            ("4k", 4096),
            ("4KiB", 4096),
            ("4kb", 4096),
            ("512M", 512 << 20),
            ("1G", 1 << 30),
            ("1.5G", 3 << 29),
            (".5K", 512),
            ("2T", 2 << 40),
            ("7E", 7 << 60),
            ("9223372036854775807", i64::MAX as u64),
            ("12b", 12),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn bad_sizes_name_the_wrong_part() {
        assert!(parse("10Q").unwrap_err().contains("\"Q\""));
        assert!(parse("10KM").unwrap_err().contains("\"KM\""));
        assert!(parse("1iB").unwrap_err().contains("\"iB\""));
        assert!(parse("").unwrap_err().contains("number"));
        assert!(parse("-1").unwrap_err().contains("number"));
        assert!(parse("G").unwrap_err().contains("number"));
        for too_much in ["8E", "16384P", "99999999999999999999", "1.2.3", "."] {
            assert!(parse(too_much).unwrap_err().contains("fits"), "{too_much}");
        }
        assert!(parse("0").unwrap_err().contains("no bytes"));
        assert!(parse("0.0001K").unwrap_err().contains("no bytes"));
    }
}
