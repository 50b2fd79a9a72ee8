//! SipHash of a whole slice at once.
//!
//! The keyed hash of Aumasson and Bernstein (*SipHash: a fast short-input PRF*, 2012), in the
//! variant that hash tables use: one round for each word and three at the end. The whole name is
//! given at once, so there is no state of a streaming hasher. That makes the code simple, not
//! faster. It takes about 100 instructions and 6 ns for a name of up to 10 bytes, as the crate
//! `siphasher` does (it is tested against it), since the rounds are most of the work.

/// The SipHash-1-3 of `bytes`. The key has 128 bits and is given in two halves, little-endian as in
/// memory.
///
/// A pseudo-random function of the bytes, to a party that does not know the key.
#[inline]
#[must_use]
pub fn siphash13(key: (u64, u64), bytes: &[u8]) -> u64 {
    siphash::<1, 3>(key, bytes)
}

/// SipHash with `C` rounds for each word and `D` at the end.
#[inline]
fn siphash<const C: usize, const D: usize>(key: (u64, u64), bytes: &[u8]) -> u64 {
    let mut v = [
        key.0 ^ 0x736f_6d65_7073_6575,
        key.1 ^ 0x646f_7261_6e64_6f6d,
        key.0 ^ 0x6c79_6765_6e65_7261,
        key.1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    for &word in words {
        absorb::<C>(&mut v, u64::from_le_bytes(word));
    }
    absorb::<C>(&mut v, last(bytes, rest) | (bytes.len() as u64) << 56);
    v[2] ^= 0xff;
    for _ in 0..D {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline]
fn absorb<const C: usize>(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    for _ in 0..C {
        round(v);
    }
    v[0] ^= word;
}

/// The bytes after the last whole word, as the low part of a word.
#[inline]
fn last(bytes: &[u8], rest: &[u8]) -> u64 {
    if rest.is_empty() {
        return 0;
    }
    if let Some(tail) = bytes.last_chunk::<8>() {
        // The last eight bytes, without those that belong to the word before.
        return u64::from_le_bytes(*tail) >> (64 - 8 * rest.len());
    }
    // Fewer than eight bytes in all. Two reads of four bytes may overlap, or three single bytes may
    // be the same byte.
    let n = rest.len();
    if let (Some(low), Some(high)) = (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        u64::from(u32::from_le_bytes(*low)) | u64::from(u32::from_le_bytes(*high)) << (8 * (n - 4))
    } else {
        let byte = |at: usize| u64::from(rest[at]) << (8 * at);
        byte(0) | byte(n / 2) | byte(n - 1)
    }
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::hash::Hasher;

    const KEY: (u64, u64) = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);

    /// The test vectors of the paper's authors are for two and four rounds. The code is the same.
    #[test]
    fn agrees_with_the_reference_vectors() {
        let bytes: Vec<u8> = (0..64).collect();
        let expected = [
            (0, 0x726f_db47_dd0e_0e31_u64),
            (1, 0x74f8_39c5_93dc_67fd),
            (7, 0xab02_00f5_8b01_d137),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
            (63, 0x958a_324c_eb06_4572),
        ];
        for (len, hash) in expected {
            assert_eq!(siphash::<2, 4>(KEY, &bytes[..len]), hash, "{len} bytes");
        }
    }

    #[test]
    fn agrees_with_an_independent_implementation_at_every_length() {
        let mut seed = 1_u64;
        for len in 0..=300 {
            let bytes: Vec<u8> = (0..len)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (seed >> 56) as u8
                })
                .collect();
            let key = (seed, seed.rotate_left(21));
            let mut hasher = siphasher::sip::SipHasher13::new_with_keys(key.0, key.1);
            hasher.write(&bytes);
            assert_eq!(siphash13(key, &bytes), hasher.finish(), "{len} bytes");
        }
    }
}
