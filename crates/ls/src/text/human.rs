//! Plain numbers, as in ls.

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

/// The number of digits of a number.
pub fn width(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_numbers_of_digits() {
        for number in [0, 1, 9, 10, 99, 100, u64::MAX] {
            assert_eq!(width(number), number.to_string().len());
        }
    }
}
