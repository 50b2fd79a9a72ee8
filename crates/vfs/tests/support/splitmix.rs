//! Random numbers for tests, also for tests of other crates.

/// The next number of a reproducible sequence (splitmix64: Steele, Lea, Flood, *Fast splittable
/// pseudorandom number generators*, 2014).
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
