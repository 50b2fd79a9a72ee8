//! copy_file_range between files of the host.
#![forbid(unsafe_code)]

use std::{fs, sync::Arc};

use pando_hostfs::{HostFs, HostOptions, Recheck};
use pando_vfs::{At, Context, Credentials, Driver, File, OpenFlags, Vfs};

#[test]
fn the_host_copies() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(dir.path().join("from"), &bytes).expect("written");
    fs::write(dir.path().join("to"), "0123456789").expect("written");
    let driver = Arc::new(HostFs::open(dir.path(), HostOptions::new().recheck(Recheck::Never)).expect("opened"));
    let vfs = Vfs::new(driver.clone()).expect("a tree");
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let who = if uid == 0 { Credentials::root() } else { Credentials::user(uid, gid, &[]) };
    let context = Context::new(&vfs, who);
    let open = |path: &str, flags| -> File { vfs.open(&context, At::Cwd, path, flags, 0o644).expect("opens") };
    let (from, to) = (open("/from", OpenFlags::RDONLY), open("/to", OpenFlags::WRONLY));

    // One call may copy less.
    let mut copied = 0;
    loop {
        match to.copy_range(5 + copied as u64, &from, 100 + copied as u64, bytes.len()).expect("copied") {
            0 => break,
            more => copied += more,
        }
    }
    assert_eq!(copied, bytes.len() - 100);
    let expected = [b"01234", &bytes[100..]].concat();
    assert!(fs::read(dir.path().join("to")).expect("read") == expected);
    assert_eq!(to.stat().size, expected.len() as u64);

    // Not by reading and writing here.
    let source = from.backing_file().expect("no error").expect("a file of the host");
    let mut data = driver.data(to.dentry().ino());
    assert_eq!(data.copy_from(0, &source, 0, 3), Ok(3));
    assert_eq!(&fs::read(dir.path().join("to")).expect("read")[..5], [0, 1, 2, b'3', b'4']);
}
