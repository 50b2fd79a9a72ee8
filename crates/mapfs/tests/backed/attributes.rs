//! Stored attributes of an inode: exactly those that were changed here. Others may have changed the
//! rest.

use std::time::Duration;

use pando_mapfs::{Call, Fault, MapHandle, MapOptions};
use pando_vfs::{
    At, Context, Credentials, Error, File, NodeAttr, OpenFlags, Seek, SetAttr, SetTime, Timestamp, Vfs, Walk,
};

use crate::support::{collect_until, mounted};

const FOLLOW: Walk = Walk::empty();

/// A new file with these permissions, opened by a user that is not its owner.
fn open_for_user(vfs: &Vfs, root: &Context, mode: u32) -> File {
    vfs.open(root, At::Cwd, "/f", OpenFlags::CREAT, 0o666).expect("made");
    vfs.chmod(root, At::Cwd, "/f", mode, FOLLOW).expect("changed");
    let user = root.clone().with_credentials(Credentials::user(1000, 1000, &[]));
    vfs.open(&user, At::Cwd, "/f", OpenFlags::RDWR, 0).expect("opens")
}

fn stored(store: &MapHandle, ino: u64) -> NodeAttr {
    store.node(ino).expect("there").attr
}

#[test]
fn foreign_attribute_changes_are_not_overwritten() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let file = open_for_user(&vfs, &context, 0o666);
    let ino = file.dentry().ino();
    assert_eq!((file.fsync(), file.read(&mut [0])), (Ok(()), Ok(0)));
    store.chmod(ino, 0o600).expect("changed");
    store.write(ino, b"theirs").expect("written");
    let mut theirs = stored(&store, ino);
    assert_eq!(file.fsync(), Ok(()));
    theirs.atime = file.stat().atime;
    assert_eq!(stored(&store, ino), theirs);
    let set = |what: &SetAttr| {
        store.chmod(ino, 0o640).expect("changed");
        vfs.setattr(&context, file.dentry(), what).expect("set");
        stored(&store, ino)
    };
    let mtime = Timestamp(5);
    let now = set(&SetAttr::new().mtime(SetTime::At(mtime)));
    assert_eq!((now.mode, now.mtime), (0o640, mtime));
    let now = set(&SetAttr::new().gid(7));
    assert_eq!((now.mode, now.uid, now.gid, now.mtime), (0o640, 0, 7, mtime));
}

/// Once an attribute is stored, the cache no longer has a newer value.
#[test]
fn stored_attributes_are_not_stored_again() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let file = open_for_user(&vfs, &context, 0o666);
    let ino = file.dentry().ino();
    let changes: [(SetAttr, &dyn Fn()); 3] = [
        (SetAttr::new().mtime(SetTime::At(Timestamp(5))), &|| {
            store.write(ino, b"theirs").expect("written");
        }),
        (SetAttr::new().mode(0o640), &|| store.chmod(ino, 0o600).expect("changed")),
        (SetAttr::new().uid(7), &|| store.chmod(ino, 0o606).expect("changed")),
    ];
    for (ours, theirs) in changes {
        assert_eq!(file.write(b"x"), Ok(1));
        vfs.setattr(&context, file.dentry(), &ours).expect("set");
        theirs();
        let mut then = stored(&store, ino);
        // After chmod and chown, the times of the earlier write still have to be stored.
        if ours.mtime == SetTime::Omit {
            then.mtime = file.stat().mtime;
        }
        assert_eq!((file.fsync(), stored(&store, ino)), (Ok(()), then), "{ours:?}");
    }
    // Values that the store refused still have to be stored.
    assert_eq!(file.write(b"x"), Ok(1));
    let stat = file.stat();
    store.inject(Fault::Nth { call: Some(Call::Setattr), after: 0, error: Error::Io });
    let ours = SetAttr::new().mtime(SetTime::At(Timestamp(6)));
    assert_eq!(vfs.setattr(&context, file.dentry(), &ours).err(), Some(Error::Io));
    assert_eq!(file.fsync(), Ok(()));
    let now = stored(&store, ino);
    assert_eq!((now.mtime, now.ctime), (stat.mtime, stat.ctime));
}

#[test]
fn foreign_setgid_of_a_directory_survives_sync() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let ino = vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made").ino();
    vfs.mkdir(&context, At::Cwd, "/d/sub", 0o755).expect("made");
    store.chmod(ino, 0o2775).expect("changed");
    assert_eq!(vfs.stat(&context, At::Cwd, "/d", FOLLOW).map(|stat| stat.mode), Ok(0o2775));
    assert_eq!(vfs.sync(), Ok(()));
    assert_eq!(stored(&store, ino).mode, 0o2775);
}

#[test]
fn privileges_are_dropped_before_contents_change() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let file = open_for_user(&vfs, &context, 0o4777);
    let ino = file.dentry().ino();
    let changes: [&dyn Fn() -> pando_vfs::Result<()>; 5] = [
        &|| file.write(b"x").map(drop),
        &|| file.pwrite(b"x", 0).map(drop),
        &|| file.truncate(1),
        &|| file.fallocate(0, 0, 2),
        &|| vfs.file_remove_privs(file.dentry(), || Credentials::user(9, 9, &[])),
    ];
    for (which, change) in changes.iter().enumerate() {
        vfs.chmod(&context, At::Cwd, "/f", 0o6777, FOLLOW).expect("changed");
        assert_eq!((change(), stored(&store, ino).mode), (Ok(()), 0o777), "{which}");
        // Others have cleared further bits, and no walk here has noticed it since.
        vfs.chmod(&context, At::Cwd, "/f", 0o6777, FOLLOW).expect("changed");
        store.chmod(ino, 0o4600).expect("changed");
        assert_eq!((change(), stored(&store, ino).mode), (Ok(()), 0o600), "{which}");
    }
}

#[test]
fn failed_write_keeps_privileges() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let file = open_for_user(&vfs, &context, 0o4777);
    let beyond = i64::MAX - 1;
    assert_eq!(file.lseek(Seek::Set(beyond)), Ok(beyond.cast_unsigned()));
    assert_eq!(
        (file.write(b"xy"), file.pwrite(b"xy", beyond.cast_unsigned())),
        (Err(Error::Invalid), Err(Error::Invalid))
    );
    assert_eq!(stored(&store, file.dentry().ino()).mode, 0o4777);
}

#[test]
fn file_open_after_shutdown_is_stored_on_close() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let file = open_for_user(&vfs, &context, 0o4777);
    let ino = file.dentry().ino();
    drop((vfs, context));
    assert_eq!((file.write(b"late"), stored(&store, ino).mode), (Ok(4), 0o777));
    let stat = file.stat();
    drop(file);
    let now = stored(&store, ino);
    assert_eq!((now.mtime, now.ctime), (stat.mtime, stat.ctime));
    collect_until(|| store.cached_inodes() == 0);
}

/// A program makes a new file durable with fsync of the file and of its directory, even if it has
/// written nothing.
#[test]
fn fsync_of_a_directory_and_of_an_empty_file_reaches_the_store() {
    let (vfs, context, store) = mounted(MapOptions::default());
    vfs.open(&context, At::Cwd, "/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("made");
    for path in ["/f", "/"] {
        let synced = store.calls(Call::Sync);
        let opened = vfs.open(&context, At::Cwd, path, OpenFlags::RDONLY, 0).expect("opens");
        assert_eq!((opened.fsync(), store.calls(Call::Sync)), (Ok(()), synced + 1), "{path}");
    }
}

/// Seen to fail: the second call finds nothing to store, and does not wait for the first.
#[test]
fn fsync_waits_for_a_thread_that_is_storing_the_times() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let open = || vfs.open(&context, At::Cwd, "/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("opens");
    let file = open();
    assert_eq!(file.write(b"x"), Ok(1));
    let known = file.stat();
    let parked = store.park(Call::Setattr);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| file.fsync());
        parked.reached();
        let second = scope.spawn(|| {
            let synced = open().fsync();
            (synced, stored(&store, known.ino).mtime)
        });
        std::thread::sleep(Duration::from_millis(50));
        drop(parked);
        assert_eq!(first.join().expect("no panic"), Ok(()));
        assert_eq!(second.join().expect("no panic"), (Ok(()), known.mtime));
    });
}

#[test]
fn whether_a_file_is_unlinked_is_known_without_a_request() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let file = vfs.open(&context, At::Cwd, "/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("made");
    let dir = vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
    assert!(!file.dentry().is_unlinked() && !dir.is_unlinked());
    assert_eq!((vfs.unlink(&context, At::Cwd, "/f"), vfs.rmdir(&context, At::Cwd, "/d")), (Ok(()), Ok(())));
    let calls = store.calls(Call::Getattr);
    assert!(file.dentry().is_unlinked() && dir.is_unlinked());
    assert_eq!(store.calls(Call::Getattr), calls);
}

/// With O_SYNC the times are stored with the data. With O_DSYNC they may be stored later.
#[test]
fn o_sync_stores_times_and_o_dsync_does_not() {
    let (vfs, context, store) = mounted(MapOptions::default());
    let mut synced = 0;
    for (flags, with_times) in [(OpenFlags::SYNC | OpenFlags::DSYNC, true), (OpenFlags::DSYNC, false)] {
        let flags = flags | OpenFlags::RDWR | OpenFlags::CREAT;
        let file = vfs.open(&context, At::Cwd, "/f", flags, 0o644).expect("opens");
        let writes: [fn(&File) -> pando_vfs::Result<usize>; 2] = [|file| file.write(b"x"), |file| file.pwrite(b"x", 5)];
        for write in writes {
            assert_eq!(write(&file), Ok(1));
            let (known, stored) = (file.stat(), stored(&store, file.dentry().ino()));
            assert_eq!((stored.mtime, stored.ctime) == (known.mtime, known.ctime), with_times);
            synced += 1;
            assert_eq!(store.calls(Call::Sync), synced, "{flags:?}");
        }
    }
    // sync stores everything.
    assert_eq!((vfs.sync(), store.calls(Call::Sync)), (Ok(()), synced + 1));
    let known = vfs.stat(&context, At::Cwd, "/f", FOLLOW).expect("there");
    assert_eq!(stored(&store, known.ino).mtime, known.mtime);
}
