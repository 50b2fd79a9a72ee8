//! Where contents have data, and where a copy of them may have holes.

use std::ops::Range;

/// The ranges of `contents` that a copy must write, in order: runs of blocks of this size that have
/// other bytes than zeros. A copy may leave holes elsewhere.
///
/// # Panics
/// If the size is zero.
pub fn data_runs(contents: &[u8], block_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let blocks = contents.len().div_ceil(block_bytes);
    let place = move |block: usize| block * block_bytes..contents.len().min((block + 1) * block_bytes);
    let has_data = move |block: &usize| contents[place(*block)].iter().any(|&byte| byte != 0);
    let mut next = 0;
    std::iter::from_fn(move || {
        let first = (next..blocks).find(has_data)?;
        let end = (first..blocks).find(|block| !has_data(block)).unwrap_or(blocks);
        next = end;
        Some(place(first).start..place(end - 1).end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_blocks_with_data() {
        for (contents, expected) in [
            (&b""[..], &[][..]),
            (b"\0\0\0", &[]),
            (b"a", &[(0, 1)]),
            (b"\0\0\0\0a", &[(4, 5)]),
            (b"\0\0\0a\0\0", &[(2, 4)]),
            (b"a\0\0b\0\0\0", &[(0, 4)]),
            (b"a\0\0\0c\0\0d", &[(0, 2), (4, 8)]),
        ] {
            let found: Vec<_> = data_runs(contents, 2).map(|run| (run.start, run.end)).collect();
            assert_eq!(found, expected, "{contents:?}");
        }
    }
}
