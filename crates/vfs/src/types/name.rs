//! Names: their limits, their storage, and how a path is split into them.

pub use pando_records::{XATTR_NAME_MAX, XATTR_SIZE_MAX};
use pando_sync::siphash13;

use crate::{Error, Result};

/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// The longest path, in bytes, including the final NUL of a system call.
pub const PATH_MAX: usize = 4096;
/// The number of symbolic links that one walk follows before it fails with ELOOP.
pub const SYMLINKS_MAX: u32 = 40;

const INLINE: usize = 22;

/// A name in 24 bytes. Up to 22 bytes are stored inline, longer names on the heap.
pub(crate) enum Name {
    Inline { len: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

const _: () = assert!(size_of::<Name>() == 24);

impl Name {
    pub(crate) fn new(name: &[u8]) -> Self {
        match u8::try_from(name.len()) {
            Ok(len) if name.len() <= INLINE => {
                let mut bytes = [0; INLINE];
                bytes[..name.len()].copy_from_slice(name);
                Self::Inline { len, bytes }
            }
            _ => Self::Heap(name.into()),
        }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len).min(INLINE)],
            Self::Heap(bytes) => bytes,
        }
    }
}

/// The keyed hash of the names of one directory.
#[derive(Clone, Copy)]
pub(crate) struct NameHash((u64, u64));

impl NameHash {
    pub(crate) fn new(keys: (u64, u64)) -> Self {
        Self(keys)
    }

    #[inline]
    pub(crate) fn hash(self, name: &[u8]) -> u64 {
        siphash13(self.0, name)
    }
}

/// Whether two short byte strings are equal. It compares by words, which is faster than a call of
/// `memcmp`.
#[inline]
pub(crate) fn equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    if let (Some(one_end), Some(other_end)) = (one.last_chunk::<8>(), other.last_chunk::<8>()) {
        // The last word overlaps the one before.
        let (words, others) = (one.as_chunks::<8>().0, other.as_chunks::<8>().0);
        one_end == other_end && words.iter().zip(others).all(|(word, other)| word == other)
    } else if let (Some(one_end), Some(other_end)) = (one.last_chunk::<4>(), other.last_chunk::<4>()) {
        one_end == other_end && one.first_chunk::<4>() == other.first_chunk::<4>()
    } else {
        one.iter().zip(other).all(|(byte, other)| byte == other)
    }
}

/// A component of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Component<'p> {
    Dot,
    DotDot,
    Name(&'p [u8]),
}

/// The next component, and the rest after its slashes. None at the end. The caller has removed
/// leading slashes.
#[inline]
pub(crate) fn split(path: &[u8]) -> Option<(Component<'_>, &[u8])> {
    if path.is_empty() {
        return None;
    }
    let end = first_slash(path);
    let rest = skip_slashes(&path[end..]);
    let component = match &path[..end] {
        b"." => Component::Dot,
        b".." => Component::DotDot,
        name => Component::Name(name),
    };
    Some((component, rest))
}

/// Whether a component without slashes is a valid name in a directory.
#[inline]
pub(crate) fn is_name(component: &[u8]) -> bool {
    !matches!(component, b"" | b"." | b"..") && component.len() <= NAME_MAX && !has_nul(component)
}

/// The position of the first slash, or the length of the path if there is none.
#[inline]
fn first_slash(path: &[u8]) -> usize {
    let (words, rest) = path.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        if let Some(slash) = first_zero(u64::from_le_bytes(*word) ^ SLASHES) {
            return at * 8 + slash;
        }
    }
    words.len() * 8 + rest.iter().position(|&b| b == b'/').unwrap_or(rest.len())
}

/// The position of the last slash.
#[inline]
pub(crate) fn last_slash(path: &[u8]) -> Option<usize> {
    const LOWS: u64 = !HIGHS;
    let mut end = path.len();
    while let Some(word) = path[..end].last_chunk::<8>() {
        let word = u64::from_le_bytes(*word) ^ SLASHES;
        // Exact in every byte, because no carry crosses into the next one. That matters here, where
        // the highest byte counts.
        let found = !((word & LOWS).wrapping_add(LOWS) | word | LOWS);
        if found != 0 {
            return Some(end - 1 - found.leading_zeros() as usize / 8);
        }
        end -= 8;
    }
    path[..end].iter().rposition(|&byte| byte == b'/')
}

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGHS: u64 = ONES << 7;
const SLASHES: u64 = u64::from_ne_bytes([b'/'; 8]);

/// The lowest byte of the word that is zero.
#[inline]
pub(crate) fn first_zero(word: u64) -> Option<usize> {
    let found = zeros(word);
    // The lowest byte that is flagged is zero. Bytes above it may be flagged wrongly.
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// Nonzero if and only if a byte of the word is zero. The highest bit of that byte is set then
/// (Mycroft, 1987).
#[inline]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// The path without leading slashes.
#[inline]
pub(crate) fn skip_slashes(path: &[u8]) -> &[u8] {
    let mut path = path;
    while let [b'/', rest @ ..] = path {
        path = rest;
    }
    path
}

/// Checks a path as a whole.
///
/// # Errors
/// [`Error::NameTooLong`] from [`PATH_MAX`] on, [`Error::Invalid`] for a NUL inside.
#[inline]
pub(crate) fn check_path(path: &[u8]) -> Result<()> {
    if path.len() >= PATH_MAX {
        return Err(Error::NameTooLong);
    }
    // A system call would end the path at the NUL. Here it can only be a mistake or an attack.
    if has_nul(path) { Err(Error::Invalid) } else { Ok(()) }
}

/// Whether the bytes contain a NUL. It has no branch per word, because there is hardly ever one.
#[inline]
fn has_nul(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let whole = words.iter().fold(0, |found, word| found | zeros(u64::from_le_bytes(*word)));
    let tail = match bytes.last_chunk::<8>() {
        // Overlaps bytes that were checked already.
        Some(last) => zeros(u64::from_le_bytes(*last)) != 0,
        None => rest.contains(&0),
    };
    whole != 0 || tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_are_stored() {
        for len in 0..=NAME_MAX {
            let name: Vec<u8> = (0..len).map(|i| i as u8 | 1).collect();
            assert_eq!(Name::new(&name).as_bytes(), name);
        }
    }

    /// Seen to fail: one word too few, at either end, of either size.
    #[test]
    fn equal_compares_every_byte() {
        for len in 0..40_usize {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            assert!(equal(&bytes, &bytes.clone()), "{len}");
            assert!(!equal(&bytes, &[&bytes[..], &[0]].concat()), "{len}");
            for at in 0..len {
                let mut other = bytes.clone();
                other[at] ^= 0x80;
                assert!(!equal(&bytes, &other), "{at} of {len}");
            }
        }
    }

    #[test]
    fn first_slash_finds_every_position() {
        for len in 0..40_usize {
            // Bytes beside a slash in value are where a carry would give a wrong result.
            for filler in [1_u8, b'/' - 1, b'/' + 1, b'/' | 0x80, 0x80, 0xff] {
                let path = vec![filler; len];
                assert_eq!(first_slash(&path), len, "{path:?}");
                for at in 0..len {
                    for next in at..len {
                        let mut path = path.clone();
                        (path[at], path[next]) = (b'/', b'/');
                        assert_eq!(first_slash(&path), at, "{path:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn last_slash_finds_every_position() {
        for len in 0..40_usize {
            for filler in [1_u8, b'/' - 1, b'/' + 1, b'/' | 0x80, 0x80, 0xff] {
                let path = vec![filler; len];
                assert_eq!(last_slash(&path), None, "{path:?}");
                for at in 0..len {
                    for next in at..len {
                        let mut path = path.clone();
                        (path[at], path[next]) = (b'/', b'/');
                        assert_eq!(last_slash(&path), Some(next), "{path:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn has_nul_finds_every_position() {
        for len in 0..40_usize {
            // Bytes beside zero in value are where a carry would give a wrong result.
            for filler in [1_u8, 2, 0x7f, 0x80, 0x81, 0xff] {
                let path = vec![filler; len];
                assert!(!has_nul(&path), "{path:?}");
                for at in 0..len {
                    let mut path = path.clone();
                    path[at] = 0;
                    assert!(has_nul(&path), "{path:?}");
                }
            }
        }
    }

    #[test]
    fn split_returns_components() {
        assert_eq!(split(b"a//b/"), Some((Component::Name(b"a"), &b"b/"[..])));
        assert_eq!(split(b".."), Some((Component::DotDot, &b""[..])));
        assert_eq!(split(b"./x"), Some((Component::Dot, &b"x"[..])));
        assert_eq!(split(b""), None);
        assert_eq!(skip_slashes(b"///a"), b"a");
    }
}
