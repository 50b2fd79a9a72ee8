//! The units of sizes, from `--block-size`, `-h`, `--si`, `-k` and the environment, and numbers in
//! these units.

use std::env;

use crate::text::{
    human::{digits, spaces},
    words::Words,
};

/// The units of sizes. Numbers are rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// The bytes of a unit.
    block: u64,
    /// The unit is chosen for each number, so that it has few digits.
    automatic: bool,
    /// The letter of the unit follows the number.
    letter: bool,
    /// A `B` follows the letter.
    bytes: bool,
    /// Larger units are powers of 1024, and otherwise of 1000.
    binary: bool,
}

/// Text that is not a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSize {
    /// The units of the text before the error. None if it has none.
    block: Option<u64>,
}

const LETTERS: &[u8; 9] = b"\0KMGTPEZY";

const AUTOMATIC: Words<Scale> = Words::new(&[("human-readable", Scale::human(true)), ("si", Scale::human(false))]);

impl Scale {
    /// Bytes.
    pub const BYTES: Self = Self::of(1);
    /// KiB.
    pub const KIB: Self = Self::of(1024);

    /// Units of this number of bytes.
    const fn of(block: u64) -> Self {
        Self { block, automatic: false, letter: false, bytes: false, binary: false }
    }

    /// Units that are chosen for each number.
    pub const fn human(binary: bool) -> Self {
        Self { block: 1, automatic: true, letter: true, bytes: false, binary }
    }

    /// The units of the environment, or the default.
    fn default_unit() -> Self {
        if env::var_os("POSIXLY_CORRECT").is_some() { Self::of(512) } else { Self::KIB }
    }

    /// Parses a size, as in `K`, `1000`, `2MB`, `'1` or `si`.
    ///
    /// # Errors
    /// It is not a size.
    pub fn parse(text: &str) -> Result<Self, NoSize> {
        // A quote asks for digit groups of the locale. The locales C and C.UTF-8 have none.
        let text = text.strip_prefix('\'').unwrap_or(text);
        if let Some(scale) = AUTOMATIC.find(text) {
            return Ok(scale);
        }
        let (number, rest) = leading_number(text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b'));
        let number = match (number, rest.chars().next()) {
            (Some(number), _) => number,
            // Lower-case letters without a meaning count as units here, and are refused below.
            (None, Some(letter)) if "eEgGkKmMpPtTyYzZ0".contains(letter) => Some(1),
            _ => return Err(NoSize { block: None }),
        };
        let (factor, len) = unit(rest).ok_or(NoSize { block: number })?;
        let block = number.and_then(|number| number.checked_mul(factor?));
        if len < rest.len() {
            return Err(NoSize { block: Some(block.unwrap_or(u64::MAX)) });
        }
        let block = block.ok_or(NoSize { block: Some(u64::MAX) })?;
        if block == 0 {
            return Err(NoSize { block: None });
        }
        let has_digit = text.starts_with(|first: char| first.is_ascii_digit());
        let letter = !has_digit && !text.contains(|c: char| c.is_ascii_digit());
        let ends_with_b = text.ends_with('B');
        let binary = letter && (!ends_with_b || text.ends_with("iB"));
        Ok(Self { block, automatic: false, letter, bytes: letter && ends_with_b, binary })
    }

    /// The units of blocks and of file sizes from the environment.
    pub fn from_env() -> (Self, Self) {
        let of_ls = env::var_os("LS_BLOCK_SIZE");
        let block_size = env::var_os("BLOCK_SIZE");
        let is_for_files = of_ls.is_some() || block_size.is_some();
        let said = of_ls.or(block_size).or_else(|| env::var_os("BLOCKSIZE"));
        let blocks = match said.map(|said| Self::parse(&said.to_string_lossy())) {
            Some(Ok(scale)) => scale,
            Some(Err(NoSize { block: Some(block) })) if block > 0 => Self::of(block),
            None | Some(Err(_)) => Self::default_unit(),
        };
        (blocks, if is_for_files { blocks } else { Self::BYTES })
    }

    /// Appends a number of units of `from` bytes.
    pub fn write(self, number: u64, from: u64, out: &mut Vec<u8>) {
        if self.automatic {
            return self.write_automatic(u128::from(number) * u128::from(from), out);
        }
        let units = if from.is_multiple_of(self.block) || self.block.is_multiple_of(from) {
            (u128::from(number) * u128::from(from)).div_ceil(u128::from(self.block))
        } else {
            inexact_units(number, from, self.block)
        };
        match u64::try_from(units) {
            Ok(units) => digits(units, out),
            Err(_) => out.extend_from_slice(units.to_string().as_bytes()),
        }
        if self.letter {
            let base = self.base();
            let (mut exponent, mut power) = (0, 1);
            while power < u128::from(self.block) && exponent < LETTERS.len() - 1 {
                power *= base;
                exponent += 1;
            }
            self.write_letter(exponent, out);
        }
    }

    fn base(self) -> u128 {
        if self.binary { 1024 } else { 1000 }
    }

    fn write_letter(self, exponent: usize, out: &mut Vec<u8>) {
        if exponent > 0 {
            out.push(if exponent == 1 && !self.binary { b'k' } else { LETTERS[exponent] });
        }
        if self.bytes {
            out.extend_from_slice(if self.binary && exponent > 0 { b"iB" } else { b"B" });
        }
    }

    /// One digit after the point below ten, always rounded up.
    fn write_automatic(self, bytes: u128, out: &mut Vec<u8>) {
        let base = self.base();
        if bytes < base {
            return digits(bytes as u64, out);
        }
        let (mut exponent, mut unit) = (1, base);
        while exponent < LETTERS.len() - 1 && bytes.div_ceil(unit) >= base {
            unit *= base;
            exponent += 1;
        }
        let tenths = (bytes * 10).div_ceil(unit);
        if tenths < 100 {
            digits((tenths / 10) as u64, out);
            out.extend_from_slice(&[b'.', b'0' + (tenths % 10) as u8]);
        } else {
            digits(bytes.div_ceil(unit) as u64, out);
        }
        self.write_letter(exponent, out);
    }

    /// Appends a number of units of `from` bytes, right-aligned.
    pub fn right(self, number: u64, from: u64, width: usize, out: &mut Vec<u8>) {
        let begin = out.len();
        self.write(number, from, out);
        let missing = width.saturating_sub(out.len() - begin);
        if missing > 0 {
            spaces(missing, out);
            out[begin..].rotate_right(missing);
        }
    }

    /// The number of columns of a number.
    pub fn width(self, number: u64, from: u64) -> usize {
        if self == Self::BYTES && from == 1 {
            return crate::text::human::width(number);
        }
        let mut text = Vec::with_capacity(24);
        self.write(number, from, &mut text);
        text.len()
    }
}

/// The number at the front, as strtoumax(3) reads it. The outer None: there is no number. The inner
/// None: it is too large.
fn leading_number(text: &str) -> (Option<Option<u64>>, &str) {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let hexadecimal = hexadecimal.filter(|rest| rest.starts_with(|first: char| first.is_ascii_hexdigit()));
    let (digits, radix) = match hexadecimal {
        Some(rest) => (rest, 16),
        None if digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    if end == 0 {
        return (None, text);
    }
    (Some(u64::from_str_radix(&digits[..end], radix).ok()), &digits[end..])
}

/// The factor of a unit at the front of a text (None if it is too large), and the length of the
/// unit. None if it is not a unit.
fn unit(text: &str) -> Option<(Option<u64>, usize)> {
    let Some(&letter) = text.as_bytes().first() else { return Some((Some(1), 0)) };
    let exponent = match letter {
        b'k' | b'K' => 1,
        b'm' | b'M' => 2,
        b'g' | b'G' => 3,
        b't' | b'T' => 4,
        b'P' => 5,
        b'E' => 6,
        b'Z' => 7,
        b'Y' => 8,
        _ => return None,
    };
    let (base, len) = match &text.as_bytes()[1..] {
        [b'i', b'B', ..] => (1024_u64, 3),
        [b'B' | b'D', ..] => (1000, 2),
        _ => (1024, 1),
    };
    Some((base.checked_pow(exponent), len))
}

/// A number of new units if the old unit is not a multiple of the new one, rounded up. It uses 64
/// bits of precision, as GNU ls does: the quotient of the units is rounded first, and then the
/// product.
fn inexact_units(number: u64, from: u64, to: u64) -> u128 {
    if number == 0 {
        return 0;
    }
    // from / to as 64 bits and an exponent.
    let mut shift = 64 + to.ilog2() - from.ilog2();
    let mut quotient = rounded_quotient(from, shift, to);
    if quotient > u128::from(u64::MAX) {
        shift -= 1;
        quotient = rounded_quotient(from, shift, to);
    }
    let product = u128::from(number) * quotient;
    let excess = (128 - product.leading_zeros()).saturating_sub(64);
    let product = round_half_even(product, excess);
    // product * 2^(excess - shift), rounded up.
    match shift.checked_sub(excess) {
        Some(down) if down >= 128 => 1,
        Some(down) => (product >> down) + u128::from(product & ((1 << down) - 1) != 0),
        None => product << (excess - shift),
    }
}

/// from * 2^shift / to, rounded to the next whole number.
fn rounded_quotient(from: u64, shift: u32, to: u64) -> u128 {
    let (from, to) = (u128::from(from) << shift.min(127 - from.ilog2()), u128::from(to));
    let (whole, rest) = (from / to, from % to);
    match (rest * 2).cmp(&to) {
        std::cmp::Ordering::Less => whole,
        std::cmp::Ordering::Equal => whole + (whole & 1),
        std::cmp::Ordering::Greater => whole + 1,
    }
}

/// The number without its lowest bits, rounded to the nearest, and halves to even.
fn round_half_even(number: u128, bits: u32) -> u128 {
    if bits == 0 {
        return number;
    }
    let (whole, rest, half) = (number >> bits, number & ((1 << bits) - 1), 1_u128 << (bits - 1));
    whole + u128::from(rest > half || rest == half && whole & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(scale: Scale, number: u64, from: u64) -> String {
        let mut out = Vec::new();
        scale.write(number, from, &mut out);
        String::from_utf8(out).unwrap()
    }

    /// The expected sizes are the output of GNU ls 9.1 -h.
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
            (i64::MAX as u64, "8.0E"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(shown(Scale::human(true), bytes, 1), text, "{bytes}");
        }
        for (bytes, text) in [(999, "999"), (1000, "1.0k"), (999_001, "1.0M"), (12_345, "13k")] {
            assert_eq!(shown(Scale::human(false), bytes, 1), text, "{bytes}");
        }
    }

    /// The expected sizes are the output of GNU ls 9.1 --block-size.
    #[test]
    fn units_are_shown_if_given_by_letter() {
        for (size, number, from, text) in [
            ("K", 1025, 1, "2K"),
            ("1K", 1025, 1, "2"),
            ("KB", 1025, 1, "2kB"),
            ("KiB", 1025, 1, "2KiB"),
            ("MB", 5_000_001, 1, "6MB"),
            ("'1", 1_234_567, 1, "1234567"),
            ("1000", 125, 512, "64"),
            ("1000", 1, 512, "1"),
            ("3", 1, 512, "171"),
            ("si", 1500, 1, "1.5k"),
            ("human", 1536, 1, "1.5K"),
            ("0x10", 33, 1, "3"),
        ] {
            assert_eq!(shown(Scale::parse(size).unwrap(), number, from), text, "{size} {number}");
        }
        for nonsense in ["", "x", "0", "1e", "1p", "1Kx", "-1", "1Y", "99999999999999999999", "e"] {
            assert!(Scale::parse(nonsense).is_err(), "{nonsense}");
        }
    }
}
