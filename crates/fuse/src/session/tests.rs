use std::time::Duration;

use super::*;
use crate::server::Changes;

#[test]
fn init_of_an_older_kernel_is_shorter() {
    let words: [u32; 6] = [7, 31, 131_072, 0x8000_0001, 7, 9];
    let init = parse_init(words[..4].as_bytes());
    assert_eq!((init.minor, init.flags, init.flags2), (31, 0x8000_0001, 0));
    assert_eq!(parse_init(words.as_bytes()).flags2, 7);
}

#[test]
fn pages_of_a_request_hold_the_largest_write() {
    for (page_bytes, pages) in [(4 << 10, 256), (16 << 10, 64), (64 << 10, 16), (4 << 20, 1)] {
        assert_eq!(max_pages(page_bytes), pages);
    }
}

#[test]
fn wanted_features_depend_on_the_mount() {
    let options = |changes| ServerOptions { changes, ..ServerOptions::default() };
    let plain = wanted(true, &options(Changes::OnlyHere), true, false);
    assert!(plain.contains(InitFlags::DO_READDIRPLUS | InitFlags::HANDLE_KILLPRIV_V2));
    let keeps_listings = InitFlags::CACHE_SYMLINKS | InitFlags::NO_OPENDIR_SUPPORT;
    assert!(plain.contains(keeps_listings));
    assert!(!plain.intersects(InitFlags::OVER_IO_URING | InitFlags::AUTO_INVAL_DATA));
    let other = wanted(false, &options(Changes::Elsewhere), false, true);
    assert!(other.contains(InitFlags::OVER_IO_URING | InitFlags::AUTO_INVAL_DATA));
    let not = InitFlags::READDIRPLUS_AUTO | InitFlags::HANDLE_KILLPRIV_V2 | keeps_listings;
    assert!(!other.intersects(not));
    let told = wanted(true, &options(Changes::Reported { otherwise: Duration::ZERO }), true, false);
    assert!(told.contains(keeps_listings | InitFlags::AUTO_INVAL_DATA), "contents may be mapped by others");
}
