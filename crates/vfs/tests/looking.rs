//! Reads take no lock (P1). The locks of the whole process are counted, so this test has a process
//! of its own. They are counted only with `--features pando-sync/lock-stats`. Without that feature
//! the test reports that it checks nothing. With `PANDO_LOCK_STATS=1` it then fails.

use std::io::Write;

use pando_memfs::{MemFs, MemOptions};
use pando_sync::lock_counts;
use pando_vfs::{Access, At, Context, Credentials, Error, OpenFlags, Result, Seek, Vfs, Walk, XattrFlags};

const FOLLOW: Walk = Walk::empty();

#[test]
fn p1_looking_takes_no_lock() {
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a new tree");
    // Not root, so that permissions are checked.
    let (root, user) = (Context::new(&vfs, Credentials::root()), Context::new(&vfs, Credentials::user(1, 1, &[])));
    let before = lock_counts();
    if before.is_none() {
        assert!(std::env::var_os("PANDO_LOCK_STATS").is_none_or(|value| value != "1"), "locks are not counted");
        // Written directly to stderr, since the test harness hides the output of a test that
        // passes.
        let _ = writeln!(std::io::stderr(), "skipped: locks are not counted without --features pando-sync/lock-stats");
        return;
    }
    let file = || -> Result<_> {
        vfs.mkdir(&root, At::Cwd, "/d", 0o755)?;
        vfs.mkdir(&root, At::Cwd, "/d/e", 0o755)?;
        vfs.symlink(&root, "/d/e", At::Cwd, "/link")?;
        vfs.open(&root, At::Cwd, "/d/e/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o644)
    };
    let file = file().expect("made");
    file.pwrite(b"data", 100_000).expect("written, behind a hole");
    vfs.setxattr(&root, At::Cwd, "/d/e/f", "user.a", b"value", XattrFlags::empty(), FOLLOW).expect("set");
    assert!(before != lock_counts(), "changes take locks");
    let dir = vfs.open(&user, At::Cwd, "/d/e", OpenFlags::DIRECTORY, 0).expect("opens");

    let look = || -> Result<()> {
        assert_eq!(vfs.stat(&user, At::Cwd, "/link/f", FOLLOW)?, file.stat());
        assert_eq!(vfs.stat(&user, At::Cwd, "/d/e/../f", FOLLOW).err(), Some(Error::NoEntry));
        vfs.access(&user, At::Cwd, "/d/e/f", Access::READ, FOLLOW)?;
        assert_eq!(vfs.readlink(&user, At::Cwd, "/link", Walk::NOFOLLOW)?, b"/d/e");
        let mut entries = 0;
        dir.readdir(0, |_| {
            entries += 1;
            true
        })?;
        assert_eq!(entries, 3);
        assert_eq!(vfs.d_path(&user, file.dentry(), 100)?, b"/d/e/f");
        assert_eq!(vfs.getcwd(&user, 100)?, b"/");
        assert_eq!(vfs.getxattr(&user, At::Cwd, "/d/e/f", "user.a", FOLLOW)?, b"value");
        assert_eq!(vfs.listxattr(&user, At::Cwd, "/d/e/f", FOLLOW)?.len(), 1);
        for seek in [Seek::Set(5), Seek::End(0), Seek::Hole(0), Seek::Data(0)] {
            assert_eq!(file.lseek(seek)?, file.tell());
        }
        Ok(())
    };
    // The first round sets the access times, so that none is due in the second.
    look().expect("all is there");
    let before = lock_counts();
    look().expect("all is there");
    assert_eq!(lock_counts(), before);
}
