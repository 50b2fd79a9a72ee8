//! Patterns of names as in fnmatch(3): `*`, `?`, `[...]` and backslashes. A dot at the beginning of
//! a name matches only a dot.

/// A pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    bytes: Vec<u8>,
    /// Its characters, if it is UTF-8.
    characters: Option<Vec<u32>>,
}

impl Pattern {
    /// A pattern of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), characters: characters(bytes) }
    }

    /// Whether a name matches. Characters are compared if both are UTF-8, and bytes otherwise.
    pub fn matches(&self, name: &[u8], utf8: bool) -> bool {
        let wide = |bytes: &[u8]| bytes.iter().map(|&byte| byte.into()).collect::<Vec<u32>>();
        let by_characters = if utf8 { self.characters.as_ref().zip(characters(name)) } else { None };
        by_characters.is_some_and(|(pattern, name)| matches(pattern, &name, true))
            || matches(&wide(&self.bytes), &wide(name), false)
    }
}

fn characters(bytes: &[u8]) -> Option<Vec<u32>> {
    Some(std::str::from_utf8(bytes).ok()?.chars().map(u32::from).collect())
}

/// Whether a name matches. Each time the rest does not match, the last `*` takes one more
/// character. Bytes that are not `unicode` are in no class beyond ASCII.
fn matches(pattern: &[u32], name: &[u32], unicode: bool) -> bool {
    let (mut at, mut in_name) = (0, 0);
    let mut star = None;
    loop {
        let period = in_name == 0 && name.first() == Some(&'.'.into());
        let step = match pattern.get(at).and_then(|&first| char::from_u32(first)) {
            Some('*') if !period => {
                star = Some((at + 1, in_name));
                at += 1;
                continue;
            }
            Some(_) => name.get(in_name).and_then(|&character| single(&pattern[at..], character, period, unicode)),
            None if at < pattern.len() => None,
            None if in_name == name.len() => return true,
            None => None,
        };
        match (step, &mut star) {
            (Some(len), _) => (at, in_name) = (at + len, in_name + 1),
            (None, Some((after, from))) if *from < name.len() => {
                *from += 1;
                (at, in_name) = (*after, *from);
            }
            _ => return false,
        }
    }
}

/// Whether the first part of a pattern matches a character, and the length of that part.
fn single(pattern: &[u32], character: u32, period: bool, unicode: bool) -> Option<usize> {
    let first = char::from_u32(pattern[0])?;
    match first {
        '*' => None,
        '?' => (!period).then_some(1),
        '[' => match bracket(&pattern[1..], character, unicode) {
            Some((_, _)) if period => None,
            Some((holds, len)) => holds.then_some(len + 1),
            // A bracket without an end.
            None => (character == u32::from('[')).then_some(1),
        },
        // A backslash at the end of a pattern matches nothing.
        '\\' => pattern.get(1).is_some_and(|&escaped| escaped == character).then_some(2),
        _ => (pattern[0] == character).then_some(1),
    }
}

/// Whether a bracket expression matches a character, and its length. None if it has no end.
fn bracket(pattern: &[u32], character: u32, unicode: bool) -> Option<(bool, usize)> {
    let is = |at: usize, what: char| pattern.get(at) == Some(&what.into());
    let mut at = usize::from(is(0, '!') || is(0, '^'));
    let (negated, begin) = (at == 1, at);
    let mut holds = false;
    loop {
        if is(at, ']') && at > begin {
            return Some((holds != negated, at + 1));
        }
        if is(at, '[')
            && is(at + 1, ':')
            && let Some((class, len)) = named(&pattern[at + 2..], ':')
        {
            // As in the C library, an unknown class matches nothing, whatever else is in the
            // brackets.
            holds |= is_in_class(&class, character)? && (unicode || character < 0x80);
            at += 2 + len;
            continue;
        }
        let (from, len) = element(&pattern[at..])?;
        at += len;
        if is(at, '-') && !is(at + 1, ']') && at + 1 < pattern.len() {
            let (to, len) = element(&pattern[at + 1..])?;
            at += 1 + len;
            holds |= (from..=to).contains(&character);
        } else {
            holds |= from == character;
        }
    }
}

/// A character in brackets, and its length: alone, after a backslash, or as in `[=a=]` and `[.a.]`.
fn element(pattern: &[u32]) -> Option<(u32, usize)> {
    let first = char::from_u32(*pattern.first()?);
    match (first, pattern.get(1).copied().and_then(char::from_u32)) {
        (Some('\\'), Some(_)) => Some((pattern[1], 2)),
        (Some('\\'), None) => None,
        (Some('['), Some(mark @ ('=' | '.'))) => match named(&pattern[2..], mark) {
            Some((name, len)) if name.chars().count() == 1 => Some((name.chars().next()?.into(), 2 + len)),
            _ => Some((pattern[0], 1)),
        },
        _ => Some((pattern[0], 1)),
    }
}

/// The text before a mark and a closing bracket, and the length of all of it.
fn named(pattern: &[u32], mark: char) -> Option<(String, usize)> {
    let end = pattern.windows(2).position(|two| two == [u32::from(mark), u32::from(']')])?;
    let name = pattern[..end].iter().map(|&letter| char::from_u32(letter)).collect::<Option<String>>()?;
    Some((name, end + 2))
}

fn is_in_class(class: &str, character: u32) -> Option<bool> {
    let Some(character) = char::from_u32(character) else { return Some(false) };
    Some(match class {
        "alpha" => character.is_alphabetic(),
        "digit" => character.is_ascii_digit(),
        "alnum" => character.is_alphanumeric(),
        "upper" => character.is_uppercase(),
        "lower" => character.is_lowercase(),
        "space" => character.is_whitespace(),
        "blank" => matches!(character, ' ' | '\t'),
        "punct" => character.is_ascii_punctuation() || !character.is_ascii() && !character.is_alphanumeric(),
        "print" => !character.is_control(),
        "graph" => !character.is_control() && !character.is_whitespace(),
        "cntrl" => character.is_control(),
        "xdigit" => character.is_ascii_hexdigit(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn patterns_match_as_in_fnmatch() {
        for (pattern, name, expected) in [
            ("*", "a", true),
            ("*", "", true),
            ("*", ".a", false),
            (".*", ".a", true),
            ("?a", ".a", false),
            ("[.]a", ".a", false),
            ("*.a", ".a", false),
            ("*~", "x~", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("[a-c]", "b", true),
            ("[!a-c]", "b", false),
            ("[]a]", "]", true),
            ("[^]a]", "b", true),
            ("[a-]", "-", true),
            ("[[:digit:]]x", "7x", true),
            ("[[:nonsense:]7]", "7", false),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", false),
            ("?", "\u{fc}", true),
            ("???", "\u{fc}", false),
            ("[\u{e0}-\u{fc}]", "\u{f0}", true),
        ] {
            assert_eq!(Pattern::new(pattern.as_bytes()).matches(name.as_bytes(), true), expected, "{pattern} {name}");
        }
        assert!(Pattern::new(b"??").matches("\u{fc}".as_bytes(), false));
        assert!(Pattern::new(b"?").matches(b"\xff", true));
    }
}
