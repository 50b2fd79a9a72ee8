//! The namespace over a tree in memory.

use std::{
    cell::RefCell,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    At, Charge, Context, Credentials, Driver, Error, File, OpenFlags, RenameFlags, Result, Vfs, VfsOptions, Walk,
    XattrFlags, introspection,
};

use collect::collect_until;
use scenarios::acl::{ACCESS, DEFAULT, acl};

#[path = "support/collect.rs"]
mod collect;
#[path = "support/interrupted.rs"]
mod interrupted;
mod scenarios;
#[path = "support/watched.rs"]
mod watched;

use interrupted::{interrupted, interrupted_at};
use watched::{Used, Watched};

const TRAITS: scenarios::Traits = scenarios::Traits { dir_size: true, unique_numbers: true, handles: true };

fn driver(inodes: Option<u64>) -> impl Driver {
    MemFs::new(MemOptions::new().inodes(inodes))
}

#[test]
fn root_has_the_requested_attributes() {
    let vfs = Vfs::with_options(driver(None), VfsOptions::new().owner(1, 2).mode(0o41_770)).expect("a new tree");
    let stat = vfs.root().stat();
    assert_eq!((stat.uid, stat.gid, stat.mode), (1, 2, 0o1770));
}

#[test]
fn removed_objects_release_inodes_and_pages() {
    let options = MemOptions::new().inodes(100).size_bytes(1 << 20);
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
    collect_until(|| free() == empty);
    // A directory that could not be made in a removed directory.
    vfs.mkdir(&context, At::Cwd, "/gone", 0o777).expect("made");
    let gone = vfs.open(&context, At::Cwd, "/gone", OpenFlags::DIRECTORY, 0).expect("opens");
    vfs.rmdir(&context, At::Cwd, "/gone").expect("removed");
    let made = vfs.mkdir(&context, At::Dir(gone.dentry()), "x", 0o777).map(drop);
    assert_eq!(made, Err(pando_vfs::Error::NoEntry));
    // An object that a caller holds is counted, as on tmpfs. So are the removed directories that
    // contain it.
    assert_ne!(free(), empty);
    drop(gone);
    collect_until(|| free() == empty);
    let mut deep = context.clone();
    for _ in 0..50 {
        vfs.mkdir(&deep, At::Cwd, "d", 0o777).expect("made");
        vfs.chdir(&mut deep, At::Cwd, "d").expect("there");
    }
    (0..50).rev().for_each(|depth| vfs.rmdir(&context, At::Cwd, "d/".repeat(depth + 1)).expect("removed"));
    pando_sync::collect();
    assert_eq!(free().map(|(inodes, _)| inodes + 50), empty.map(|(inodes, _)| inodes));
    drop(deep);
    collect_until(|| free() == empty);
    // A file whose last name was not its first.
    touch("/a");
    vfs.open(&context, At::Cwd, "/a", OpenFlags::RDWR, 0).expect("opens").write(&[1; 10_000]).expect("written");
    vfs.link(&context, At::Cwd, "/a", At::Cwd, "/b", Walk::NOFOLLOW).expect("linked");
    vfs.unlink(&context, At::Cwd, "/a").expect("removed");
    assert_ne!(free(), empty);
    vfs.unlink(&context, At::Cwd, "/b").expect("removed");
    collect_until(|| free() == empty);
}

/// A tree with this many inodes and pages, root included, and its driver.
fn tree_for(inodes: u64, pages: u64) -> (Arc<MemFs>, Vfs, Context) {
    let options = MemOptions::new().inodes(inodes).size_bytes(pages * 4096);
    let memfs = Arc::new(MemFs::new(options));
    let vfs = Vfs::new(memfs.clone()).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    (memfs, vfs, context)
}

#[test]
fn hard_links_count_against_the_inode_limit() {
    let (memfs, vfs, context) = tree_for(4, 1);
    let free = || memfs.statfs().unwrap().ffree;
    let link = |from, to| vfs.link(&context, At::Cwd, from, At::Cwd, to, Walk::empty()).map(drop);
    let unlink = |path| vfs.unlink(&context, At::Cwd, path).expect("removed");
    let nlink = || vfs.stat(&context, At::Cwd, "/a", Walk::empty()).expect("there").nlink;
    drop(vfs.open(&context, At::Cwd, "/a", OpenFlags::CREAT, 0o600).expect("made"));
    assert_eq!((link("/a", "/b"), link("/a", "/c"), free()), (Ok(()), Ok(()), 0));
    assert_eq!((link("/a", "/d"), nlink()), (Err(Error::NoSpace), 3));
    assert_eq!((link("/a", "/b"), nlink()), (Err(Error::Exists), 3));
    // A link in a removed directory fails too, and the error of the directory comes first.
    unlink("/c");
    let gone = vfs.mkdir(&context, At::Cwd, "/gone", 0o700).expect("made");
    vfs.rmdir(&context, At::Cwd, "/gone").expect("removed");
    let into_gone = vfs.link(&context, At::Cwd, "/a", At::Dir(&gone), "d", Walk::empty()).map(drop);
    assert_eq!((free(), into_gone, nlink()), (0, Err(Error::NoEntry), 2));
    drop(gone);
    collect_until(|| free() == 1);
    assert_eq!(link("/a", "/c"), Ok(()));
    unlink("/b");
    assert_eq!((free(), link("/a", "/d"), free()), (1, Ok(()), 0));
    // Replaced by another file's name, the file has one name less.
    unlink("/d");
    drop(vfs.open(&context, At::Cwd, "/other", OpenFlags::CREAT, 0o600).expect("made"));
    assert_eq!(free(), 0);
    vfs.rename(&context, At::Cwd, "/other", At::Cwd, "/c", RenameFlags::empty()).expect("moved");
    assert_eq!((free(), nlink()), (1, 1));
    unlink("/c");
    unlink("/a");
    collect_until(|| free() == 3);
    // The first name of an anonymous file is charged with the file.
    let flags = OpenFlags::RDWR | OpenFlags::TMPFILE | OpenFlags::DIRECTORY;
    let file = vfs.open(&context, At::Cwd, "/", flags, 0o600).expect("made");
    let name = |path| vfs.link(&context, At::Dir(file.dentry()), "", At::Cwd, path, Walk::EMPTY_PATH).map(drop);
    assert_eq!((free(), name("/1"), free()), (2, Ok(()), 2));
    assert_eq!((name("/2"), name("/3"), name("/4")), (Ok(()), Ok(()), Err(Error::NoSpace)));
    drop(file);
    // When the whole tree is dropped, its charges are refunded too.
    drop((context, vfs));
    collect_until(|| free() == 4);
}

/// A rename that finds no inode for its whiteout changes nothing.
#[test]
fn whiteouts_count_against_the_inode_limit() {
    let (memfs, vfs, context) = tree_for(4, 1);
    let free = || memfs.statfs().unwrap().ffree;
    let rename = |old, new| vfs.rename(&context, At::Cwd, old, At::Cwd, new, RenameFlags::WHITEOUT);
    let ino = |path| vfs.stat(&context, At::Cwd, path, Walk::empty()).map(|stat| stat.ino);
    drop(vfs.open(&context, At::Cwd, "/a", OpenFlags::CREAT, 0o600).expect("made"));
    let a = ino("/a");
    assert_eq!((rename("/a", "/b"), free()), (Ok(()), 1));
    drop(vfs.open(&context, At::Cwd, "/c", OpenFlags::CREAT, 0o600).expect("made"));
    let whiteout = ino("/a");
    assert_eq!((rename("/b", "/d"), rename("/b", "/c"), free()), (Err(Error::NoSpace), Err(Error::NoSpace), 0));
    assert_eq!((ino("/a"), ino("/b"), ino("/d")), (whiteout, a, Err(Error::NoEntry)));
    vfs.unlink(&context, At::Cwd, "/a").expect("removed");
    collect_until(|| free() == 1);
    // The one that it replaces is still there when a whiteout is charged, and gone afterwards.
    assert_eq!(rename("/b", "/c"), Ok(()));
    collect_until(|| free() == 1);
    ["/b", "/c"].iter().for_each(|path| vfs.unlink(&context, At::Cwd, path).expect("removed"));
    collect_until(|| free() == 3);
    // As on Linux, ENOTEMPTY comes before ENOSPC.
    for path in ["/d", "/full", "/full/in"] {
        vfs.mkdir(&context, At::Cwd, path, 0o700).expect("made");
    }
    assert_eq!((free(), rename("/d", "/full")), (0, Err(Error::NotEmpty)));
}

/// The attributes of a file that a thread removed before it fell asleep do not block other threads.
#[test]
fn objects_removed_by_a_sleeping_thread_are_refunded() {
    let (memfs, vfs, context) = tree_for(3, 1);
    drop(vfs.open(&context, At::Cwd, "/a", OpenFlags::CREAT, 0o600).expect("made"));
    vfs.setxattr(&context, At::Cwd, "/a", "user.x", vec![1; 978], XattrFlags::empty(), Walk::empty()).expect("set");
    assert_eq!(memfs.statfs().unwrap().ffree, 0);
    let (removed, asleep) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            vfs.unlink(&context, At::Cwd, "/a").expect("removed");
            removed.wait();
            asleep.wait();
        });
        removed.wait();
        for path in ["/d", "/e"] {
            while vfs.mkdir(&context, At::Cwd, path, 0o777).is_err() {
                std::thread::yield_now();
            }
        }
        asleep.wait();
    });
}

#[test]
fn xattrs_count_against_the_inode_limit() {
    let (memfs, vfs, context) = tree_for(3, 1);
    let free = || memfs.statfs().unwrap().ffree;
    let set = |name: &str, len, how| vfs.setxattr(&context, At::Cwd, "/a", name, vec![1; len], how, Walk::empty());
    let (any, create) = (XattrFlags::empty(), XattrFlags::CREATE);
    drop(vfs.open(&context, At::Cwd, "/a", OpenFlags::CREAT, 0o600).expect("made"));
    // An inode is worth 1024 bytes, and one is free. Each attribute costs 40 bytes besides its name
    // (6 bytes) and its value.
    assert_eq!((set("user.x", 979, any), free()), (Err(Error::NoSpace), 1));
    assert_eq!((set("user.x", 978, any), free()), (Ok(()), 0));
    assert_eq!(set("user.y", 0, any), Err(Error::NoSpace));
    assert_eq!(vfs.mkdir(&context, At::Cwd, "/d", 0o777).err(), Some(Error::NoSpace));
    // While an attribute is replaced, both values are charged, as on tmpfs.
    assert_eq!((set("user.x", 0, any), set("user.x", 1, create)), (Err(Error::NoSpace), Err(Error::NoSpace)));
    vfs.removexattr(&context, At::Cwd, "/a", "user.x", Walk::empty()).expect("removed");
    assert_eq!((free(), set("user.x", 400, any), set("user.x", 10, any)), (1, Ok(()), Ok(())));
    assert_eq!((set("user.y", 1024 - 2 * 46 - 10, create), set("user.z", 0, any)), (Ok(()), Err(Error::NoSpace)));
    // An operation that is refused costs nothing.
    let remove = |name| vfs.removexattr(&context, At::Cwd, "/a", name, Walk::empty());
    assert_eq!((remove("user.y"), set("user.x", 1, create)), (Ok(()), Err(Error::Exists)));
    assert_eq!(set("user.y", 1024 - 2 * 46 - 10, create), Ok(()));
    vfs.unlink(&context, At::Cwd, "/a").expect("removed");
    collect_until(|| free() == 2);
}

/// As an extended attribute each; on tmpfs they take no space.
#[test]
fn acls_count_against_the_inode_limit() {
    let (memfs, vfs, context) = tree_for(5, 1);
    let free = || memfs.statfs().unwrap().ffree;
    let set = |path: &str, name: &str, value: &[u8]| {
        vfs.setxattr(&context, At::Cwd, path, name, value, XattrFlags::empty(), Walk::empty())
    };
    let acl = acl(0o700, 1000, 7);
    vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
    assert_eq!((acl.len(), free()), (44, 3));
    // Besides an attribute that leaves room for both and nothing more, in what an inode costs.
    let both = [ACCESS, DEFAULT].map(|name| 40 + name.len() + acl.len()).iter().sum::<usize>();
    set("/d", "user.x", &vec![1; 1024 - 46 - both]).expect("set");
    assert_eq!((set("/d", DEFAULT, &acl), set("/d", ACCESS, &acl), free()), (Ok(()), Ok(()), 2));
    assert_eq!((set("/d", ACCESS, &acl), free()), (Ok(()), 2));
    // A new directory inherits both.
    vfs.mkdir(&context, At::Cwd, "/d/sub", 0o755).expect("made");
    assert_eq!(free(), 0);
    let refused = vfs.open(&context, At::Cwd, "/d/file", OpenFlags::RDWR | OpenFlags::CREAT, 0o644).err();
    assert_eq!((refused, set("/d/sub", "user.x", &[1; 1024])), (Some(Error::NoSpace), Err(Error::NoSpace)));
    vfs.chmod(&context, At::Cwd, "/d/sub", 0o700, Walk::empty()).expect("changed");
    vfs.rmdir(&context, At::Cwd, "/d/sub").expect("removed");
    collect_until(|| free() == 2);
    vfs.removexattr(&context, At::Cwd, "/d", ACCESS, Walk::empty()).expect("removed");
    set("/d", DEFAULT, &acl[..4]).expect("removed, too");
    vfs.removexattr(&context, At::Cwd, "/d", "user.x", Walk::empty()).expect("removed");
    assert_eq!(free(), 3);
}

#[test]
fn long_symlink_targets_count_against_the_limits() {
    let (memfs, vfs, context) = tree_for(10, 1);
    let free = || (memfs.statfs().unwrap().ffree, memfs.statfs().unwrap().bfree);
    let link = |len, path| vfs.symlink(&context, "x".repeat(len), At::Cwd, path).map(drop);
    assert_eq!((link(127, "/short"), free()), (Ok(()), (8, 1)));
    assert_eq!((link(128, "/long"), free()), (Ok(()), (7, 0)));
    assert_eq!((link(128, "/more"), link(4095, "/more"), free()), (Err(Error::NoSpace), Err(Error::NoSpace), (7, 0)));
    vfs.unlink(&context, At::Cwd, "/long").expect("removed");
    collect_until(|| free() == (8, 1));
    assert_eq!((link(4095, "/more"), free()), (Ok(()), (7, 0)));
}

#[test]
fn read_during_first_write_sees_all_or_nothing() {
    let (interrupted, interruption) = interrupted();
    let vfs = Vfs::new(interrupted).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    let open = |flags| vfs.open(&context, At::Cwd, "/f", flags, 0o600).expect("opens");
    let (writer, reader) = (open(OpenFlags::RDWR | OpenFlags::CREAT), open(OpenFlags::RDONLY));
    let write = move || assert_eq!(writer.pwrite(b"abc", 0), Ok(3));
    *interruption.lock().expect("no panic") = Some(Box::new(write));
    let mut buffer = [7; 3];
    let count = reader.pread(&mut buffer, 0).expect("reads");
    assert!(interruption.lock().expect("no panic").is_none(), "written meanwhile");
    assert!(count == 0 || (count, buffer) == (3, *b"abc"), "{count}: {buffer:?}");
}

/// Capabilities that are set on a file while another thread is about to write to it or to chown it
/// belong to the old contents. The write or chown drops them.
#[test]
fn capabilities_set_during_a_change_are_dropped() {
    type Change = fn(&Vfs, &Context, &File) -> Result<()>;
    let changes: [(Used, Change); 3] = [
        (Used::Data, |_, _, file| file.pwrite(b"theirs", 0).map(drop)),
        (Used::Data, |_, _, file| file.write(b"theirs").map(drop)),
        (Used::Backing, |vfs, caller, _| vfs.chown(caller, At::Cwd, "/f", None, Some(1000), Walk::empty())),
    ];
    for (number, (used, change)) in changes.into_iter().enumerate() {
        for cred in [Credentials::user(1000, 1000, &[]), Credentials::root()] {
            let (interrupted, interruption) = interrupted_at(used);
            let vfs = Vfs::new(interrupted).expect("a new tree");
            let root = Context::new(&vfs, Credentials::root());
            vfs.mknod(&root, At::Cwd, "/f", 0o100_755, 0).expect("made");
            vfs.chown(&root, At::Cwd, "/f", Some(1000), Some(1000), Walk::empty()).expect("given");
            let caller = root.clone().with_credentials(cred);
            let file = vfs.open(&caller, At::Cwd, "/f", OpenFlags::RDWR, 0).expect("opens");
            let give = {
                let (vfs, root) = (vfs.clone(), root.clone());
                move || {
                    let (name, any) = ("security.capability", XattrFlags::empty());
                    vfs.setxattr(&root, At::Cwd, "/f", name, "v", any, Walk::empty()).expect("given");
                }
            };
            *interruption.lock().expect("no panic") = Some(Box::new(give));
            assert_eq!(change(&vfs, &caller, &file), Ok(()), "{number}");
            assert!(interruption.lock().expect("no panic").is_none(), "{number}: given meanwhile");
            let left = vfs.listxattr(&root, At::Cwd, "/f", Walk::empty());
            assert_eq!(left, Ok(Vec::new()), "{number}");
        }
    }
}

#[test]
fn unmounted_tree_is_freed() {
    let driver = |inodes| Arc::new(MemFs::new(MemOptions::new().inodes(inodes)));
    let gone = |driver: &Arc<MemFs>| collect_until(|| Arc::strong_count(driver) == 1);
    let (full, first, second) = (driver(Some(0)), driver(None), driver(None));
    assert_eq!(Vfs::new(full.clone()).err(), Some(Error::NoSpace));
    gone(&full);
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    let point = vfs.mkdir(&context, At::Cwd, "/m", 0o755).expect("made");
    vfs.mount(&context, At::Cwd, "/m", first.clone()).expect("mounted");
    let mount = |driver: &Arc<MemFs>| vfs.mount(&context, At::Dir(&point), "", driver.clone());
    assert_eq!((mount(&second), mount(&full)), (Err(Error::NoEntry), Err(Error::NoEntry)));
    assert_eq!(vfs.mount(&context, At::Cwd, "/m", second.clone()), Err(Error::Busy));
    gone(&second);
    for i in 0..3000 {
        vfs.mknod(&context, At::Cwd, format!("/m/{i}"), 0o100_600, 0).expect("made");
    }
    assert_eq!(vfs.umount(&context, At::Cwd, "/m"), Ok(()));
    gone(&first);
}

/// A file that many threads open has a per-CPU reference count. That count holds the file, and the
/// file holds the count, until the name of the file is removed.
#[test]
fn file_opened_by_many_is_freed() {
    let (memfs, vfs, context) = tree_for(4, 1);
    let free = || memfs.statfs().unwrap().ffree;
    let open = |path| vfs.open(&context, At::Cwd, path, OpenFlags::CREAT, 0o600).expect("opens");
    let make_contended = |path| {
        introspection::force_per_cpu_count(&vfs, &vfs.lookup(&context, At::Cwd, path, Walk::empty()).expect("there"))
    };
    // Removed, replaced, and a directory. Each is open at the time, through its per-CPU reference
    // count.
    drop((open("/a"), open("/b"), vfs.mkdir(&context, At::Cwd, "/d", 0o700)));
    for path in ["/a", "/b", "/d", "/"] {
        make_contended(path);
    }
    let dir = vfs.open(&context, At::Cwd, "/d", OpenFlags::DIRECTORY, 0).expect("opens");
    let files = [open("/a"), open("/b")];
    assert_eq!(files[1].dentry().ino(), vfs.lookup(&context, At::Cwd, "/b", Walk::empty()).expect("there").ino());
    vfs.rename(&context, At::Cwd, "/a", At::Cwd, "/b", RenameFlags::empty()).expect("moved");
    vfs.unlink(&context, At::Cwd, "/b").expect("removed");
    vfs.rmdir(&context, At::Cwd, "/d").expect("removed");
    (0..8).for_each(|_| pando_sync::collect());
    assert_eq!(free(), 0, "what is open is counted");
    assert_eq!(vfs.d_path(&context, files[0].dentry(), 100), Ok(b"/b (deleted)".to_vec()));
    drop((files, dir));
    collect_until(|| free() == 3);
    // Freed together with its tree.
    let driver = Arc::new(MemFs::new(MemOptions::default()));
    vfs.mkdir(&context, At::Cwd, "/m", 0o755).expect("made");
    vfs.mount(&context, At::Cwd, "/m", driver.clone()).expect("mounted");
    vfs.mkdir(&context, At::Cwd, "/m/d", 0o755).expect("made");
    let file = open("/m/f");
    for path in ["/m/d", "/m/f"] {
        make_contended(path);
    }
    assert_eq!(vfs.umount(&context, At::Cwd, "/m"), Ok(()));
    introspection::force_per_cpu_count(&vfs, file.dentry());
    drop(file);
    collect_until(|| Arc::strong_count(&driver) == 1);
}

/// The same while threads find the file contended, open it, replace it and remove it at the same
/// time.
#[test]
fn file_opened_by_many_during_removal_is_freed() {
    let (memfs, vfs, context) = tree_for(100, 1);
    let (vfs, context, left) = (&vfs, &context, &AtomicU32::new(2));
    let flags = OpenFlags::RDWR | OpenFlags::CREAT;
    std::thread::scope(|scope| {
        for name in ["/x", "/y"] {
            scope.spawn(move || {
                for _ in 0..2000 {
                    // A removed file is counted as long as another thread may be reading it.
                    while let Err(error) = vfs.open(context, At::Cwd, name, flags, 0o600).map(drop) {
                        assert_eq!(error, Error::NoSpace);
                        std::thread::yield_now();
                    }
                    let _ = vfs.rename(context, At::Cwd, name, At::Cwd, "/f", RenameFlags::empty());
                    let _ = vfs.unlink(context, At::Cwd, "/f");
                }
                left.fetch_sub(1, SeqCst);
            });
        }
        for contends in [true, false] {
            scope.spawn(move || {
                while left.load(SeqCst) > 0 {
                    let Ok(file) = vfs.open(context, At::Cwd, "/f", OpenFlags::RDWR, 0) else { continue };
                    if contends {
                        introspection::force_per_cpu_count(vfs, file.dentry());
                    }
                }
            });
        }
    });
    collect_until(|| memfs.statfs().unwrap().ffree == 99);
}

/// Files that other threads make, move and remove during the umount leave nothing behind. A name in
/// a directory that was already emptied would hold the directory and its driver forever.
#[test]
fn changes_during_umount_leave_nothing_behind() {
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    vfs.mkdir(&context, At::Cwd, "/m", 0o755).expect("made");
    let flags = OpenFlags::RDWR | OpenFlags::CREAT | OpenFlags::EXCL;
    for round in 0..300 {
        let driver = Arc::new(MemFs::new(MemOptions::default()));
        vfs.mount(&context, At::Cwd, "/m", driver.clone()).expect("mounted");
        let dirs = ["/m/a", "/m/b"].map(|path| vfs.mkdir(&context, At::Cwd, path, 0o755).expect("made"));
        std::thread::scope(|scope| {
            for me in 0..2 {
                let (vfs, context, dirs) = (&vfs, &context, &dirs);
                scope.spawn(move || {
                    let [from, to] = [me, 1 - me].map(|index| At::Dir(&dirs[index]));
                    (0..).find(|count| {
                        let name = format!("{me}.{count}");
                        let made = vfs.open(context, from, &name, flags, 0o600).map(drop);
                        made.and_then(|()| vfs.rename(context, from, &name, to, &name, RenameFlags::empty())).is_err()
                    })
                });
            }
            // The umount does not always start at once.
            (0..round % 16).for_each(|_| std::thread::yield_now());
            assert_eq!(vfs.umount(&context, At::Cwd, "/m"), Ok(()));
        });
        drop(dirs);
        collect_until(|| Arc::strong_count(&driver) == 1);
    }
}

std::thread_local! {
    /// A function that this thread runs whenever it calls the driver of the test below.
    static BESIDES: RefCell<Box<dyn FnMut(Used)>> = RefCell::new(Box::new(|_| ()));
}

/// A name is removed while its tree is shut down. One of the two threads refunds it, whichever step
/// of the removal the shutdown overtakes with all its remaining work. The file's hard link has been
/// reclaimed by then, so that nothing else holds the file. The tree is deep, which leaves time for
/// that reclamation.
#[test]
fn unlink_during_umount_refunds_once() {
    const DEEP: usize = 8;
    const INODES: u64 = 3 + 2 * DEEP as u64;
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    vfs.mkdir(&context, At::Cwd, "/m", 0o755).expect("made");
    for step in 0.. {
        let memfs = Arc::new(MemFs::new(MemOptions::new().inodes(INODES)));
        let besides = |used| BESIDES.with_borrow_mut(|besides| besides(used));
        vfs.mount(&context, At::Cwd, "/m", Watched(memfs.clone(), besides)).expect("mounted");
        let mut dir = vfs.lookup(&context, At::Cwd, "/m", Walk::empty()).expect("there");
        for depth in 1..=DEEP {
            vfs.symlink(&context, "x".repeat(depth), At::Dir(&dir), "s").expect("made");
            dir = vfs.mkdir(&context, At::Dir(&dir), "d", 0o755).expect("made");
        }
        vfs.mknod(&context, At::Dir(&dir), "f", 0o600, 0).expect("made");
        vfs.link(&context, At::Dir(&dir), "f", At::Cwd, "/m/f", Walk::empty()).expect("linked");
        assert_eq!(memfs.statfs().unwrap().ffree, 0);
        let (over, is_over) = mpsc::channel::<()>();
        let (stops, has_stopped) = mpsc::channel();
        let (vfs_there, context_there) = (vfs.clone(), context.clone());
        let mut remove = Some(move || {
            let mut steps = 0;
            BESIDES.set(Box::new(move |used| {
                if used == Used::Backing {
                    if steps == step {
                        stops.send(()).expect("awaited");
                        is_over.recv().expect_err("dropped");
                    }
                    steps += 1;
                }
            }));
            let removed = vfs_there.unlink(&context_there, At::Dir(&dir), "f");
            BESIDES.set(Box::new(|_| ()));
            removed
        });
        let (removes, removing) = mpsc::channel();
        BESIDES.set(Box::new(move |used| {
            let Used::Release(Charge::Target(depth)) = used else { return };
            thread::spawn(pando_sync::collect_all).join().expect("no panic");
            if depth == DEEP {
                let remover = thread::spawn(remove.take().expect("once"));
                removes.send((remover, has_stopped.recv().is_ok())).expect("awaited");
            }
        }));
        assert_eq!(vfs.umount(&context, At::Cwd, "/m"), Ok(()));
        BESIDES.set(Box::new(|_| ()));
        drop(over);
        let (remover, stopped) = removing.recv().expect("begun");
        let removed = remover.join().expect("no panic");
        collect_until(|| Arc::strong_count(&memfs) == 1);
        assert_eq!(memfs.statfs().unwrap().ffree, INODES);
        (0..INODES).for_each(|_| memfs.charge(Charge::Inode).expect("room"));
        assert_eq!(memfs.charge(Charge::Inode), Err(Error::NoSpace), "refunded twice");
        if !stopped {
            assert!(step > 0 && removed == Ok(()));
            break;
        }
    }
}

#[test]
fn create_in_unmounted_tree_is_stale() {
    let driver = Arc::new(MemFs::new(MemOptions::default()));
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    vfs.mkdir(&context, At::Cwd, "/m", 0o755).expect("made");
    vfs.mount(&context, At::Cwd, "/m", driver.clone()).expect("mounted");
    let dead = vfs.mkdir(&context, At::Cwd, "/m/d", 0o755).expect("made");
    let flags = OpenFlags::RDWR | OpenFlags::CREAT;
    let file = vfs.open(&context, At::Cwd, "/m/f", flags, 0o600).expect("made");
    assert_eq!(vfs.umount(&context, At::Cwd, "/m"), Ok(()));
    let (at, stale) = (At::Dir(&dead), Some(Error::Stale));
    assert_eq!(vfs.mkdir(&context, at, "x", 0o755).err(), stale);
    assert_eq!(vfs.open(&context, at, "x", flags, 0o600).err(), stale);
    assert_eq!(vfs.link(&context, At::Dir(file.dentry()), "", at, "x", Walk::EMPTY_PATH).err(), stale);
    // A lookup count that is added too late is not kept either.
    assert_eq!(vfs.exports().remember(&dead, 1), Ok(()));
    vfs.exports().forget(dead.ino(), 1);
    drop((dead, file));
    collect_until(|| Arc::strong_count(&driver) == 1);
}

/// A tree that were mounted there could neither be reached nor unmounted. The shutdown could miss
/// directories that exchange their places.
#[test]
fn mount_and_exchange_fail_during_umount() {
    let lower = Arc::new(MemFs::new(MemOptions::default()));
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a new tree");
    let context = Context::new(&vfs, Credentials::root());
    vfs.mkdir(&context, At::Cwd, "/m", 0o755).expect("made");
    let (upper, interruption) = interrupted();
    vfs.mount(&context, At::Cwd, "/m", upper).expect("mounted");
    let dir = vfs.mkdir(&context, At::Cwd, "/m/d", 0o755).expect("made");
    for path in ["/m/d/a", "/m/d/b"] {
        vfs.mkdir(&context, At::Cwd, path, 0o755).expect("made");
    }
    let late = {
        let (vfs, context, lower) = (vfs.clone(), context.clone(), lower.clone());
        move || {
            let at = At::Dir(&dir);
            assert_eq!(vfs.mount(&context, at, ".", lower), Err(Error::NoEntry));
            assert_eq!(vfs.rename(&context, at, "a", at, "b", RenameFlags::EXCHANGE), Err(Error::Stale));
        }
    };
    // The driver is asked for its backing twice: first while the tree is still mounted, then when
    // it no longer is.
    let again = interruption.clone();
    *interruption.lock().expect("no panic") =
        Some(Box::new(move || *again.lock().expect("no panic") = Some(Box::new(late))));
    assert_eq!(vfs.umount(&context, At::Cwd, "/m"), Ok(()));
    assert!(interruption.lock().expect("no panic").is_none(), "tried meanwhile");
    collect_until(|| Arc::strong_count(&lower) == 1);
}
