use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, OpenFlags, Vfs};

use super::*;

#[test]
fn odd_numbers_have_inverses() {
    for odd in [1, 3, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
        assert_eq!(odd.wrapping_mul(inverse(odd)), 1);
    }
}

#[test]
fn unknown_handles_are_refused_and_harm_nothing() {
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).unwrap();
    let context = Context::new(&vfs, Credentials::root());
    let open = |name: &str| {
        let flags = OpenFlags::CREAT | OpenFlags::WRONLY;
        vfs.open(&context, At::Cwd, name, flags, 0o600).unwrap()
    };
    let handles = Handles::new();
    let gone = handles.keep(open("gone"), |_| Ok(())).unwrap();
    handles.take(gone).unwrap();
    let refused = |handle| {
        assert_eq!(handles.with(handle, |_| Ok(())), Err(Error::BadHandle));
        assert_eq!(handles.take(handle).err(), Some(Error::BadHandle));
    };
    refused(gone);
    (0..10_000).for_each(refused);
    (0..64).for_each(|bit| refused(gone ^ 1 << bit));
    let kept: Vec<u64> =
        ["a", "b", "c"].into_iter().map(|name| handles.keep(open(name), |_| Ok(())).unwrap()).collect();
    let inodes: Vec<u64> =
        kept.iter().map(|&handle| handles.with(handle, |file| Ok(file.stat().ino)).unwrap()).collect();
    assert!(inodes[0] != inodes[1] && inodes[1] != inodes[2], "{inodes:?}");
}
