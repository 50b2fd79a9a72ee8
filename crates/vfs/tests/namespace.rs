//! The name space over a tree in memory.

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, Driver, OpenFlags, Vfs, Walk};

mod scenarios;

const TRAITS: scenarios::Traits = scenarios::Traits { tmpfile: true, dir_size: true };

fn driver(inodes: Option<u64>) -> impl Driver {
    MemFs::new(MemOptions { inodes, ..MemOptions::default() })
}

#[test]
fn what_is_removed_is_given_back_at_once() {
    let options = MemOptions { inodes: Some(100), size_bytes: Some(1 << 20) };
    let vfs = Vfs::new(MemFs::new(options)).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    let free = || vfs.statfs(&context, At::Cwd, "/").map(|s| (s.ffree, s.bfree));
    let touch =
        |path| drop(vfs.open(&context, At::Cwd, path, OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("made"));
    let empty = free();
    // A directory whose former entry is still open.
    vfs.mkdir(&context, At::Cwd, "/d", 0o777).expect("made");
    touch("/d/f");
    let open = vfs.open(&context, At::Cwd, "/d/f", OpenFlags::RDWR, 0).expect("opens");
    vfs.unlink(&context, At::Cwd, "/d/f").expect("removed");
    vfs.rmdir(&context, At::Cwd, "/d").expect("removed");
    assert_eq!(vfs.d_path(&context, open.dentry(), 100), Ok(b"/d/f (deleted)".to_vec()));
    drop(open);
    assert_eq!(free(), empty);
    // What could not be made in a directory that is removed.
    vfs.mkdir(&context, At::Cwd, "/gone", 0o777).expect("made");
    let gone = vfs.open(&context, At::Cwd, "/gone", OpenFlags::DIRECTORY, 0).expect("opens");
    vfs.rmdir(&context, At::Cwd, "/gone").expect("removed");
    let made = vfs.mkdir(&context, At::Dir(gone.dentry()), "x", 0o777).map(drop);
    assert_eq!((made, free()), (Err(pando_vfs::Error::NoEntry), empty));
    // A file whose last name was not its first.
    touch("/a");
    vfs.open(&context, At::Cwd, "/a", OpenFlags::RDWR, 0).expect("opens").write(&[1; 10_000]).expect("written");
    vfs.link(&context, At::Cwd, "/a", At::Cwd, "/b", Walk::NOFOLLOW).expect("linked");
    vfs.unlink(&context, At::Cwd, "/a").expect("removed");
    assert_ne!(free(), empty);
    vfs.unlink(&context, At::Cwd, "/b").expect("removed");
    // Tests beside this one may be reading, each for a moment.
    while free() != empty {
        pando_sync::collect();
    }
}
