//! Numbers as ls shows them: sizes with units, rounded up, and plain digits.

/// Appends a number.
pub fn digits(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a number, right-aligned in `width` columns.
pub fn right(number: u64, width: usize, out: &mut Vec<u8>) {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(number).as_bytes();
    spaces(width.saturating_sub(text.len()), out);
    out.extend_from_slice(text);
}

/// Appends spaces.
pub fn spaces(count: usize, out: &mut Vec<u8>) {
    out.resize(out.len() + count, b' ');
}

/// How many digits a number has.
pub fn width(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Appends bytes as in 512, 1.5K, 20M: one digit after the point below ten, always rounded up.
pub fn human(bytes: u128, out: &mut Vec<u8>) {
    if bytes < 1024 {
        digits(bytes as u64, out);
        return;
    }
    let mut unit = 0;
    let mut scale = 1024_u128;
    while unit < 5 && bytes.div_ceil(scale) >= 1024 {
        scale *= 1024;
        unit += 1;
    }
    let tenths = (bytes * 10).div_ceil(scale);
    if tenths < 100 {
        digits((tenths / 10) as u64, out);
        out.extend_from_slice(&[b'.', b'0' + (tenths % 10) as u8]);
    } else {
        digits(bytes.div_ceil(scale) as u64, out);
    }
    out.push(b"KMGTPE"[unit]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes seen from GNU ls 9.1 -h.
    #[test]
    fn sizes_are_rounded_up() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10137, "9.9K"),
            (10138, "10K"),
            (10240, "10K"),
            (10241, "11K"),
            (1_047_552, "1023K"),
            (1_047_553, "1.0M"),
            (1 << 30, "1.0G"),
            (i64::MAX as u128, "8.0E"),
            (u128::from(u64::MAX), "16E"),
        ] {
            let mut out = Vec::new();
            human(bytes, &mut out);
            assert_eq!(out, text.as_bytes(), "{bytes}");
        }
    }

    #[test]
    fn widths_are_those_of_the_digits() {
        for number in [0, 1, 9, 10, 99, 100, u64::MAX] {
            assert_eq!(width(number), number.to_string().len());
        }
    }
}
