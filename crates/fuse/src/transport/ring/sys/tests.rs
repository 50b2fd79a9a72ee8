use super::*;

/// The layout is that of `struct io_uring_sqe`.
#[test]
fn submission_has_the_layout_of_the_kernel() {
    let built = UringCmd80::new(Fd(7), 0x1234_5678).cmd([9; 80]).addr(Some(0x1122_3344_5566)).build().user_data(42);
    // SAFETY: see `with_len`.
    let bytes: [u8; 128] = unsafe { mem::transmute(with_len(built, 2)) };
    let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!((u32_at(4), u32_at(8), u64_at(16), u32_at(24)), (7, 0x1234_5678, 0x1122_3344_5566, 2));
    assert_eq!((u64_at(32), &bytes[48..]), (42, &[9; 80][..]));
}
