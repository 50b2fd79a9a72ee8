//! Files without names (O_TMPFILE) in a tree with a backing.

use std::thread;

use pando_mapfs::{Call, Fault, MapFs, MapOptions};
use pando_vfs::{At, Context, Credentials, DirectoryLocks, Error, OpenFlags, Vfs, VfsOptions, Walk};

use crate::support::{collect_until, evict_all, evict_down_to, mounted};

const ANONYMOUS: OpenFlags = OpenFlags::RDWR.union(OpenFlags::TMPFILE).union(OpenFlags::DIRECTORY);

#[test]
fn an_anonymous_file_stays_one_inode_when_it_gets_names() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let file = vfs.open(&context, At::Cwd, "/", ANONYMOUS, 0o640).expect("made");
    let ino = file.dentry().ino();
    file.write(b"kept").expect("written");
    evict_all(&vfs);
    assert_eq!((store.unnamed_inodes(), file.stat().nlink), (vec![ino], 0));
    let link = |name: &str| vfs.link(&context, At::Dir(file.dentry()), "", At::Cwd, name, Walk::EMPTY_PATH).map(drop);
    // A refused link changes nothing.
    store.inject(Fault::Nth { call: Some(Call::Link), after: 0, error: Error::Io });
    assert_eq!(link("/f"), Err(Error::Io));
    for name in ["/f", "/g"] {
        link(name).expect("linked");
        evict_all(&vfs);
        let found = vfs.lookup(&context, At::Cwd, name, Walk::NOFOLLOW).expect("there");
        assert_eq!((found.ino(), vfs.getattr(&found)), (ino, vfs.getattr(file.dentry())), "{name}");
        file.write(b"more").expect("written");
        assert_eq!(vfs.getattr(&found).map(|stat| stat.size), Ok(file.stat().size), "one and the same");
    }
    for name in ["/f", "/g"] {
        vfs.unlink(&context, At::Cwd, name).expect("removed");
    }
    assert_eq!(link("/h"), Err(Error::NoEntry), "the last name is gone for good");
    drop(file);
    evict_down_to(&vfs, &store, 1);
}

#[test]
fn an_anonymous_file_that_is_closed_is_forgotten() {
    let (vfs, context, store) = mounted(MapOptions::default());
    for flags in [ANONYMOUS, ANONYMOUS | OpenFlags::EXCL] {
        let file = vfs.open(&context, At::Cwd, "/", flags, 0o640).expect("made");
        assert_eq!(store.unnamed_inodes().len(), 1);
        drop(file);
        // The tree tells the store at its next look-up or change.
        vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
        vfs.rmdir(&context, At::Cwd, "/d").expect("removed");
        evict_down_to(&vfs, &store, 1);
        assert_eq!(store.unnamed_inodes(), []);
    }
}

/// A server may get the last forget of a client before the close. Afterwards no other request may
/// come for long.
///
/// Seen to fail: a close that leaves it to the next change.
#[test]
fn an_anonymous_file_that_is_closed_last_is_forgotten_when_the_thread_is_idle() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let file = vfs.open(&context, At::Cwd, "/", ANONYMOUS, 0o640).expect("made");
    vfs.exports().remember(file.dentry(), 1).expect("the only tree");
    vfs.exports().forget(file.dentry().ino(), 1);
    vfs.thread_idle();
    assert_eq!(store.unnamed_inodes(), [file.dentry().ino()]);
    drop(file);
    vfs.thread_idle();
    assert_eq!(store.unnamed_inodes(), []);
}

/// Both numbers have one lock. The thread that finds it held leaves the number to its holder.
///
/// Seen to fail: a thread that does not look for numbers again when it has sent its own.
#[test]
fn a_number_whose_lock_is_held_is_forgotten_by_the_holder() {
    let driver = MapFs::new(MapOptions::default());
    let store = driver.handle();
    let options = VfsOptions::new().directory_locks(DirectoryLocks::Stripes(1));
    let vfs = Vfs::with_options(driver, options).expect("a tree");
    let context = Context::new(&vfs, Credentials::root());
    let open = || vfs.open(&context, At::Cwd, "/", ANONYMOUS, 0o640).expect("made");
    let (one, other) = (open(), open());
    let parked = store.park(Call::Forget);
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            drop(one);
            vfs.thread_idle();
        });
        parked.reached();
        let ino = other.dentry().ino();
        drop(other);
        vfs.thread_idle();
        assert!(store.unnamed_inodes().contains(&ino), "its lock is held");
        drop(parked);
        first.join().expect("no panic");
    });
    assert_eq!(store.unnamed_inodes(), []);
}

/// Its only name is an alias, which must not keep it.
#[test]
fn an_anonymous_file_that_had_a_name_is_forgotten_by_the_last_who_counts_it() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let file = vfs.open(&context, At::Cwd, "/", ANONYMOUS, 0o640).expect("made");
    let ino = file.dentry().ino();
    vfs.exports().remember(file.dentry(), 1).expect("the only tree");
    vfs.link(&context, At::Dir(file.dentry()), "", At::Cwd, "/f", Walk::EMPTY_PATH).expect("linked");
    vfs.unlink(&context, At::Cwd, "/f").expect("removed");
    drop(file);
    assert_eq!(store.unnamed_inodes(), [ino]);
    vfs.exports().forget(ino, 1);
    // If a test beside this one reads, the alias waits for it, and the tree tells the store at a
    // later change. Nothing is evicted.
    collect_until(|| {
        vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
        vfs.rmdir(&context, At::Cwd, "/d").expect("removed");
        store.unnamed_inodes().is_empty()
    });
}
