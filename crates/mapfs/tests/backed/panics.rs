//! A store that panics inside a call (P14). Nothing has changed, nothing stays locked, pending or
//! counted, and the same operation succeeds afterwards.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pando_mapfs::{Call, Fault, MapFs, MapHandle, MapOptions};
use pando_vfs::{At, Context, Error, OpenFlags, RenameFlags, Result, SetTime, Vfs, Walk, XattrFlags};

use crate::support::{assert_same, evict_down_to, mounted, names, seen, stored};

const CWD: At<'_> = At::Cwd;
const FOLLOW: Walk = Walk::empty();

type Operation = fn(&Vfs, &Context, &MapHandle) -> Result<()>;

/// Operations in `/w` that need a call of a kind, if nothing is cached.
fn operations(call: Call) -> &'static [Operation] {
    match call {
        Call::Lookup => &[
            |vfs, root, _| vfs.stat(root, CWD, "/w/f", FOLLOW).map(drop),
            |vfs, root, _| vfs.open(root, CWD, "/w", OpenFlags::DIRECTORY, 0)?.readdir_plus(root, 0, |_, _| true),
        ],
        Call::Getattr => &[
            // Others have changed the file, so it is refreshed, with its data locked.
            |vfs, root, store| {
                let ino = vfs.stat(root, CWD, "/w/f", FOLLOW)?.ino;
                vfs.getxattr(root, CWD, "/w/f", "user.k", FOLLOW)?;
                store.chmod(ino, 0o644)?;
                vfs.stat(root, CWD, "/w/f", FOLLOW).map(drop)
            },
        ],
        Call::Create => &[
            |vfs, root, _| vfs.mkdir(root, CWD, "/w/new", 0o755).map(drop),
            |vfs, root, _| vfs.symlink(root, "target", CWD, "/w/new").map(drop),
            |vfs, root, _| vfs.open(root, CWD, "/w/new", OpenFlags::RDWR | OpenFlags::CREAT, 0o644).map(drop),
        ],
        Call::Link => &[|vfs, root, _| vfs.link(root, CWD, "/w/f", CWD, "/w/new", FOLLOW).map(drop)],
        Call::Remove => &[|vfs, root, _| vfs.unlink(root, CWD, "/w/f"), |vfs, root, _| vfs.rmdir(root, CWD, "/w/d")],
        Call::Rename => &[
            |vfs, root, _| vfs.rename(root, CWD, "/w/f", CWD, "/w/new", RenameFlags::empty()),
            |vfs, root, _| vfs.rename(root, CWD, "/w/f", CWD, "/w/g", RenameFlags::empty()),
            |vfs, root, _| vfs.rename(root, CWD, "/w/d", CWD, "/w/e/d", RenameFlags::empty()),
            |vfs, root, _| vfs.rename(root, CWD, "/w/d", CWD, "/w/f", RenameFlags::EXCHANGE),
        ],
        Call::Setattr => &[
            // This revokes the permission to make entries in the directory.
            |vfs, root, _| vfs.chmod(root, CWD, "/w", 0o500, FOLLOW),
            |vfs, root, _| vfs.utimens(root, CWD, "/w/f", SetTime::Now, SetTime::Omit, FOLLOW),
            // Only the cache knows when the data was written.
            |vfs, root, _| {
                vfs.open(root, CWD, "/w/f", OpenFlags::RDWR, 0)?.write(b"more")?;
                vfs.chmod(root, CWD, "/w/f", 0o600, FOLLOW)
            },
            |vfs, root, _| {
                let file = vfs.open(root, CWD, "/w/f", OpenFlags::RDWR, 0)?;
                file.write(b"more")?;
                file.fsync()
            },
        ],
        Call::Forget => &[|vfs, _, _| vfs.evict(usize::MAX).map(drop)],
        Call::Scan => &[|vfs, root, _| vfs.open(root, CWD, "/w", OpenFlags::DIRECTORY, 0)?.readdir(0, |_| true)],
        Call::Xattrs => &[|vfs, root, _| vfs.getxattr(root, CWD, "/w/f", "user.k", FOLLOW).map(drop)],
        Call::SetXattr => {
            &[|vfs, root, _| vfs.setxattr(root, CWD, "/w/f", "user.k", "new", XattrFlags::empty(), FOLLOW)]
        }
        Call::Read => &[|vfs, root, _| vfs.open(root, CWD, "/w/f", OpenFlags::RDONLY, 0)?.read(&mut [0; 9]).map(drop)],
        Call::Write => &[
            |vfs, root, _| vfs.open(root, CWD, "/w/f", OpenFlags::RDWR, 0)?.write(b"longer than before").map(drop),
            |vfs, root, _| vfs.truncate(root, CWD, "/w/f", 1),
        ],
        Call::Sync => &[
            |vfs, root, _| {
                let file = vfs.open(root, CWD, "/w/f", OpenFlags::RDWR, 0)?;
                file.read(&mut [0])?;
                file.fsync()
            },
            |vfs, root, _| vfs.open(root, CWD, "/w", OpenFlags::RDONLY, 0)?.fsync(),
            |vfs, _, _| vfs.sync(),
        ],
    }
}

/// A directory `/w` with two directories and two files.
fn make(vfs: &Vfs, root: &Context) -> Result<()> {
    for path in ["/w", "/w/d", "/w/e"] {
        vfs.mkdir(root, CWD, path, 0o755)?;
    }
    for path in ["/w/f", "/w/g"] {
        vfs.open(root, CWD, path, OpenFlags::RDWR | OpenFlags::CREAT, 0o644)?.write(b"bytes")?;
        vfs.setxattr(root, CWD, path, "user.k", "v", XattrFlags::empty(), FOLLOW)?;
    }
    Ok(())
}

/// Removes a directory and everything in it.
fn remove(vfs: &Vfs, root: &Context, dir: &str) -> Result<()> {
    for name in names(vfs, root, dir) {
        let path = format!("{dir}/{name}");
        match vfs.unlink(root, CWD, &path) {
            Err(Error::IsDirectory) => remove(vfs, root, &path)?,
            done => done?,
        }
    }
    vfs.rmdir(root, CWD, dir)
}

#[test]
fn p14_panicking_store_leaves_nothing_behind() {
    for call in Call::ALL {
        for (number, operation) in operations(call).iter().enumerate() {
            let what = format!("{call:?} {number}");
            let (vfs, root, store) = mounted(MapOptions::default());
            make(&vfs, &root).expect("made");
            evict_down_to(&vfs, &store, 1);
            vfs.stat(&root, CWD, "/w", FOLLOW).expect("there");
            let tree = stored(&store);

            store.inject(Fault::Panic { call });
            catch_unwind(AssertUnwindSafe(|| operation(&vfs, &root, &store))).expect_err(&what);
            // Data that was written before the times were to be stored stays written.
            if call != Call::Setattr {
                assert_same(&stored(&store), &tree, &what);
            }
            assert_same(&seen(&vfs, &root), &stored(&store), &what);
            let stats = || ["/w", "/w/d", "/w/f"].map(|path| vfs.stat(&root, CWD, path, FOLLOW).expect("there"));
            let known = stats();
            evict_down_to(&vfs, &store, 1);
            assert_eq!(stats(), known, "{what}: what only the cache knew");

            assert_eq!(operation(&vfs, &root, &store), Ok(()), "{what} the second time");
            assert_same(&seen(&vfs, &root), &stored(&store), &what);
            assert_eq!(remove(&vfs, &root, "/w"), Ok(()), "{what}");
            evict_down_to(&vfs, &store, 1);
            assert_eq!(store.inodes(), 1, "{what}");
        }
    }
}

/// A thread that waits for a name that another thread is making continues when that thread panics.
#[test]
fn p14_waiter_continues_after_a_panic() {
    let (vfs, root, store) = mounted(MapOptions::default());
    let parked = store.park(Call::Create);
    store.inject(Fault::Panic { call: Call::Create });
    std::thread::scope(|scope| {
        let make = || vfs.mkdir(&root, CWD, "/d", 0o755).map(drop);
        let first = scope.spawn(make);
        parked.reached();
        let second = scope.spawn(make);
        drop(parked);
        first.join().expect_err("a panic");
        assert_eq!(second.join().expect("no panic"), Ok(()));
    });
    assert_eq!(vfs.rmdir(&root, CWD, "/d"), Ok(()));
    evict_down_to(&vfs, &store, 1);
}

/// The drop of a namespace leaves nothing behind, whichever of its trees could not be stored.
#[test]
fn p14_panic_during_shutdown_frees_all_trees() {
    for panics in [0, 1] {
        let (vfs, root, outer) = mounted(MapOptions::default());
        vfs.mkdir(&root, CWD, "/m", 0o755).expect("made");
        let driver = MapFs::new(MapOptions::default());
        let stores = [outer, driver.handle()];
        vfs.mount(&root, CWD, "/m", driver).expect("mounted");
        make(&vfs, &root).expect("made");
        vfs.mkdir(&root, CWD, "/m/d", 0o755).expect("made");
        stores[panics].inject(Fault::Panic { call: Call::Setattr });
        catch_unwind(AssertUnwindSafe(|| drop((root, vfs)))).expect_err("a panic");
        let tries = (0..1000).take_while(|_| stores.iter().any(|store| store.cached_inodes() > 0));
        tries.for_each(|_| {
            pando_sync::collect();
            std::thread::yield_now();
        });
        assert_eq!(stores.each_ref().map(MapHandle::cached_inodes), [0, 0], "{panics}");
    }
}
