//! The order of names with numbers in them (`-v`): `a2` before `a10`, as in GNU ls 9.
//!
//! Names are compared without their suffixes (`.tar.gz`) first, and with them if the rest is equal.
//! Letters come before other characters. A tilde comes before the end of the name.

use std::cmp::Ordering;

/// Compares two names. Different names may be equal, as `a1` and `a01` are.
pub fn compare(one: &[u8], other: &[u8]) -> Ordering {
    let hidden = |name: &[u8]| match name {
        b"" => 0,
        b"." => 1,
        b".." => 2,
        [b'.', ..] => 3,
        _ => 4,
    };
    let by_kind = hidden(one).cmp(&hidden(other));
    if by_kind.is_ne() || hidden(one) < 3 {
        return by_kind;
    }
    let parts = [one, other].map(|name| &name[..without_suffix(name)]);
    compare_parts(parts[0], parts[1]).then_with(|| compare_parts(one, other))
}

/// The length of a name without its suffix. The suffix is the longest end that consists of parts
/// such as `.tar` and `.z7~`, each of which begins with a letter or a tilde.
fn without_suffix(name: &[u8]) -> usize {
    let begins = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'~';
    let belongs = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'~';
    let (mut at, mut end) = (0, 0);
    loop {
        while name.get(at) == Some(&b'.') && name.get(at + 1).is_some_and(begins) {
            at += 2;
            at += name[at..].iter().take_while(|byte| belongs(byte)).count();
        }
        if at >= name.len() {
            return end;
        }
        at += 1;
        end = at;
    }
}

/// The rank of a character that is not a digit. Digits and the end are in the middle.
fn rank(name: &[u8], at: usize) -> i32 {
    match name.get(at) {
        None => -1,
        Some(byte) if byte.is_ascii_digit() => 0,
        Some(byte) if byte.is_ascii_alphabetic() => i32::from(*byte),
        Some(b'~') => -2,
        Some(byte) => i32::from(*byte) + 256,
    }
}

/// Compares in turns the parts without digits, by ranks, and the numbers, by values.
fn compare_parts(one: &[u8], other: &[u8]) -> Ordering {
    let is_digit = |name: &[u8], at: usize| name.get(at).is_some_and(u8::is_ascii_digit);
    let (mut at_one, mut at_other) = (0, 0);
    while at_one < one.len() || at_other < other.len() {
        while (at_one < one.len() && !is_digit(one, at_one)) || (at_other < other.len() && !is_digit(other, at_other)) {
            let order = rank(one, at_one).cmp(&rank(other, at_other));
            if order.is_ne() {
                return order;
            }
            (at_one, at_other) = (at_one + 1, at_other + 1);
        }
        let number = |name: &[u8], at: usize| {
            let rest = name.get(at..).unwrap_or_default();
            let zeros = rest.iter().take_while(|byte| **byte == b'0').count();
            let digits = rest[zeros..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            (at + zeros, at + zeros + digits)
        };
        let ((begin_one, end_one), (begin_other, end_other)) = (number(one, at_one), number(other, at_other));
        let order = (end_one - begin_one)
            .cmp(&(end_other - begin_other))
            .then_with(|| one.get(begin_one..end_one).cmp(&other.get(begin_other..end_other)));
        if order.is_ne() {
            return order;
        }
        (at_one, at_other) = (end_one, end_other);
    }
    Ordering::Equal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_by_their_values() {
        // The expected order is that of GNU ls 9.1 -v.
        let sorted = [
            "",
            ".",
            "..",
            ".a~",
            ".a",
            ".b",
            ".0",
            ".9",
            "0",
            "0a",
            "9",
            "99",
            "a~",
            "a",
            "a.b~",
            "a.b",
            "a.bc~",
            "a.bc",
            "a1",
            "a2.tar.gz",
            "a10.tar.gz",
            "a+",
            "a.",
            "a..a",
        ];
        for (index, one) in sorted.iter().enumerate() {
            for other in &sorted[..index] {
                assert_ne!(compare(other.as_bytes(), one.as_bytes()), Ordering::Greater, "{other} {one}");
            }
        }
        assert_eq!(compare(b"a01", b"a1"), Ordering::Equal);
        assert_eq!((without_suffix(b"a.tar.gz"), without_suffix(b".bashrc"), without_suffix(b"a.1")), (1, 0, 3));
    }
}
