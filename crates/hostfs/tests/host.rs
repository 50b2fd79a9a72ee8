//! A tree on a directory of the host, while others change the directory and try to lead it out.
#![forbid(unsafe_code)]

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use pando_hostfs::{HostFs, HostOptions, Recheck};
use pando_vfs::{
    At, ChangeByOthers, Context, Credentials, Error, File, OpenFlags, Result, Seek, Stat, Subscriber, Timestamp, Vfs,
    VfsOptions, Walk, XattrFlags, records::Mask,
};
use pandofs_testkit::{await_value, has, is_root, skipped};

/// A tree on a directory of its own.
struct Tree {
    vfs: Vfs,
    context: Context,
    driver: Arc<HostFs>,
    dir: tempfile::TempDir,
}

impl Tree {
    fn new(options: HostOptions) -> Self {
        Self::in_dir(tempfile::tempdir().expect("a directory"), options)
    }

    fn in_dir(dir: tempfile::TempDir, options: HostOptions) -> Self {
        Self::with(dir, options, VfsOptions::new())
    }

    fn with(dir: tempfile::TempDir, options: HostOptions, vfs: VfsOptions) -> Self {
        let inside = dir.path().join("tree");
        fs::create_dir(&inside).expect("made");
        let driver = Arc::new(HostFs::open(inside, options).expect("opened"));
        let vfs = Vfs::with_options(driver.clone(), vfs).expect("a tree");
        let context = Context::new(&vfs, credentials());
        Self { vfs, context, driver, dir }
    }

    /// The same path on the host.
    fn host(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join("tree").join(path)
    }

    fn stat(&self, path: &str) -> Result<Stat> {
        self.vfs.stat(&self.context, At::Cwd, path, Walk::NOFOLLOW)
    }

    fn open(&self, path: &str, flags: OpenFlags) -> Result<File> {
        self.vfs.open(&self.context, At::Cwd, path, flags, 0o644)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>> {
        let file = self.open(path, OpenFlags::RDONLY)?;
        let mut buffer = [0; 64];
        file.read(&mut buffer).map(|count| buffer[..count].to_vec())
    }
}

/// This process, as the tree sees it.
fn credentials() -> Credentials {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid == 0 { Credentials::root() } else { Credentials::user(uid, gid, &[]) }
}

/// A time as `std` returns it.
fn time(seconds: i64, nanoseconds: i64) -> Timestamp {
    Timestamp::from_parts(seconds, u32::try_from(nanoseconds).expect("less than a second"))
}

/// Nobody else changes the directory.
fn alone() -> HostOptions {
    HostOptions::new().recheck(Recheck::Never)
}

/// Inodes are opened by their handles, if this process may do that, and by the path from the root.
fn both_ways() -> [HostOptions; 2] {
    [alone(), alone().without_handles()]
}

#[test]
fn changes_on_the_host_are_seen_after_the_interval() {
    let tree = Tree::new(HostOptions::new().recheck(Recheck::Every(Duration::from_millis(5))));
    assert_eq!(tree.stat("file").unwrap_err(), Error::NoEntry);
    fs::write(tree.host("file"), "one").unwrap();
    await_value(Ok(3), || tree.stat("file").map(|stat| stat.size));
    fs::write(tree.host("file"), "longer").unwrap();
    await_value(Ok(6), || tree.stat("file").map(|stat| stat.size));
    fs::rename(tree.host("file"), tree.host("other")).unwrap();
    await_value((Err(Error::NoEntry), Ok(6)), || {
        (tree.stat("file").map(|stat| stat.size), tree.stat("other").map(|stat| stat.size))
    });
}

/// A tree that the kernel tells of changes, if this machine allows it and has a shell to make them.
fn watched() -> Option<Tree> {
    if !has(&["sh"]) {
        return None;
    }
    let tree = Tree::new(HostOptions::new().recheck(Recheck::Watch { otherwise: Duration::from_secs(3600) }));
    if !tree.driver.is_watched() {
        skipped("the kernel does not report changes here");
        return None;
    }
    Some(tree)
}

/// Another process changes the host.
fn sh(tree: &Tree, script: &str) {
    let status = Command::new("sh").args(["-ec", script]).current_dir(tree.host("")).status().expect("sh starts");
    assert!(status.success(), "{script}");
}

/// Each change by another process, and what the tree then shows of two names.
#[test]
fn changes_on_the_host_are_reported() {
    let Some(tree) = watched() else { return };
    fs::create_dir(tree.host("dir")).unwrap();
    let seen = |path: &str| tree.stat(path).map(|stat| (stat.size, stat.mode, stat.nlink));
    let gone = Err(Error::NoEntry);
    assert_eq!((seen("dir/a"), seen("b")), (gone, gone));
    let steps = [
        ("umask 022; printf one > dir/a", Ok((3, 0o644, 1)), gone),
        ("printf longer > dir/a", Ok((6, 0o644, 1)), gone),
        ("printf '%s' more >> dir/a", Ok((10, 0o644, 1)), gone),
        ("chmod 600 dir/a", Ok((10, 0o600, 1)), gone),
        ("ln dir/a b", Ok((10, 0o600, 2)), Ok((10, 0o600, 2))),
        ("printf x > b", Ok((1, 0o600, 2)), Ok((1, 0o600, 2))),
        ("rm dir/a", gone, Ok((1, 0o600, 1))),
        ("mv b dir/a", Ok((1, 0o600, 1)), gone),
        ("umask 022; : > b; mv b dir/a", Ok((0, 0o644, 1)), gone),
        ("mv dir other; mkdir dir", gone, gone),
        ("mv other/a b; rm -r other", gone, Ok((0, 0o644, 1))),
    ];
    for (script, a, b) in steps {
        sh(&tree, script);
        await_value((a, b), || (seen("dir/a"), seen("b")));
    }
    let links = || tree.stat(".").map(|stat| stat.nlink.into());
    sh(&tree, "mkdir one two");
    await_value(Ok(fs::metadata(tree.host("")).unwrap().nlink()), links);
}

/// The tree gets no reports of its own changes. A change elsewhere on the file system costs
/// nothing.
#[test]
fn own_changes_are_not_asked_for_again() {
    let Some(tree) = watched() else { return };
    for n in 0..100 {
        tree.open(&format!("f{n}"), OpenFlags::RDWR | OpenFlags::CREAT).unwrap();
    }
    let told = Arc::new(AtomicUsize::new(0));
    let subscriber: Arc<Subscriber> = Arc::new({
        let told = told.clone();
        move |_: ChangeByOthers<'_>| {
            told.fetch_add(1, Ordering::SeqCst);
        }
    });
    tree.vfs.subscribe(&subscriber);
    for n in 0..100 {
        let file = tree.open(&format!("f{n}"), OpenFlags::RDWR).unwrap();
        file.write(b"x").unwrap();
        tree.vfs.unlink(&tree.context, At::Cwd, format!("f{n}")).unwrap();
    }
    fs::write(tree.dir.path().join("outside"), "x").unwrap();
    // Events arrive in their order.
    assert_eq!(tree.stat("last").err(), Some(Error::NoEntry));
    sh(&tree, ": > ../outside; : > last");
    await_value(true, || tree.stat("last").is_ok());
    let told = told.load(Ordering::SeqCst);
    assert!((1..10).contains(&told), "told {told} times");
}

/// More events than the kernel queues, if the tree does not read them fast enough.
#[test]
fn a_flood_of_changes_is_seen() {
    let Some(tree) = watched() else { return };
    sh(&tree, "mkdir d; for n in 1 2 3 4 5 6 7 8; do : > d/$n; done");
    let count = || (1..9).filter(|n| tree.stat(&format!("d/{n}")).is_ok()).count();
    await_value(8, count);
    sh(&tree, "i=0; while [ $i -lt 12000 ]; do : > n$i; i=$((i+1)); done; rm d/*; rm -r n*");
    await_value(0, count);
    assert!(tree.stat("n1").is_err());
}

#[test]
fn attributes_are_those_of_the_host_after_changes_of_the_tree() {
    let tree = Tree::new(alone());
    let same = |path: &str| {
        let (here, there) = (tree.stat(path).unwrap(), fs::symlink_metadata(tree.host(path)).unwrap());
        assert_eq!(
            (here.size, here.blocks, here.nlink.into()),
            (there.size(), there.blocks(), there.nlink()),
            "{path}"
        );
        assert_eq!(here.mtime, time(there.mtime(), there.mtime_nsec()), "{path}");
        assert_eq!(here.ctime, time(there.ctime(), there.ctime_nsec()), "{path}");
        assert_eq!(here.mode | there.mode() & 0o170_000, there.mode(), "{path}");
    };
    tree.vfs.mkdir(&tree.context, At::Cwd, "dir", 0o755).unwrap();
    let file = tree.open("dir/file", OpenFlags::RDWR | OpenFlags::CREAT).unwrap();
    ["dir", "dir/file"].iter().for_each(|path| same(path));
    file.write(&[7; 100_000]).unwrap();
    ["dir", "dir/file"].iter().for_each(|path| same(path));
    assert_eq!(file.stat(), tree.stat("dir/file").unwrap());
    tree.vfs.link(&tree.context, At::Cwd, "dir/file", At::Cwd, "link", Walk::empty()).unwrap();
    tree.vfs.chmod(&tree.context, At::Cwd, "link", 0o600, Walk::empty()).unwrap();
    ["dir/file", "link", "."].iter().for_each(|path| same(path));
    tree.vfs.unlink(&tree.context, At::Cwd, "dir/file").unwrap();
    tree.vfs.symlink(&tree.context, b"target", At::Cwd, "dir/symlink").unwrap();
    ["dir", "link", "dir/symlink"].iter().for_each(|path| same(path));
    file.truncate(5).unwrap();
    same("link");
}

/// The ACL of a file changes its mode, and a chmod its ACL.
#[test]
fn an_acl_is_that_of_the_host_after_changes_of_the_tree() {
    const ACL: &str = "system.posix_acl_access";
    let tree = Tree::new(alone());
    drop(tree.open("file", OpenFlags::RDWR | OpenFlags::CREAT).unwrap());
    let on_host = || {
        let mut value = vec![0; 256];
        let found = rustix::fs::getxattr(tree.host("file"), ACL, &mut value[..]);
        found.map(|len| value[..len].to_vec()).map_err(|_| Error::NoData)
    };
    let in_tree = || tree.vfs.getxattr(&tree.context, At::Cwd, "file", ACL, Walk::empty());
    // rw- for the owner, rwx for user 7, r-- for the group; mask rwx, and nothing for others.
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 7, 7), (4, 4, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let entries = entries.iter().flat_map(|(tag, permissions, id)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    });
    let acl: Vec<u8> = [2, 0, 0, 0].into_iter().chain(entries).collect();
    let set = tree.vfs.setxattr(&tree.context, At::Cwd, "file", ACL, &acl, XattrFlags::empty(), Walk::empty());
    if set == Err(Error::NotSupported) {
        skipped("no ACLs in the temporary directory");
        return;
    }
    set.unwrap();
    assert_eq!((in_tree(), on_host()), (Ok(acl.clone()), Ok(acl.clone())));
    assert_eq!(tree.stat("file").unwrap().mode & 0o777, 0o670);
    tree.vfs.chmod(&tree.context, At::Cwd, "file", 0o640, Walk::empty()).unwrap();
    assert_eq!(in_tree(), on_host());
    assert_ne!(in_tree(), Ok(acl.clone()), "the mask has changed");

    let stranger = Context::new(&tree.vfs, Credentials::user(4321, 4321, &[]));
    let set = tree.vfs.setxattr(&stranger, At::Cwd, "file", ACL, &acl, XattrFlags::empty(), Walk::empty());
    assert_eq!(set, Err(Error::NotPermitted));
}

/// Seen to fail: a thread gets the times from before while another one is asking for them, or is
/// storing an access.
#[test]
fn times_of_a_write_and_a_read_show_while_another_thread_asks_for_them() {
    // In memory, if possible: thousands of calls of fsync would slow the disk down.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let tree = Tree::in_dir(dir, alone());
    let file = tree.open("file", OpenFlags::RDWR | OpenFlags::CREAT).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..5000 {
                file.pwrite(b"x", 0).unwrap();
                file.pread(&mut [0], 0).unwrap();
                let (here, there) = (tree.stat("file").unwrap(), fs::metadata(tree.host("file")).unwrap());
                let times = (time(there.atime(), there.atime_nsec()), time(there.mtime(), there.mtime_nsec()));
                assert_eq!((here.atime, here.mtime), times);
            }
        });
        while !writer.is_finished() {
            tree.stat("file").unwrap();
            file.fsync().unwrap();
        }
    });
}

/// The tree still uses the first inode, and has no descriptor of it that would keep its number on
/// the host from being used again.
#[test]
fn an_inode_number_that_the_host_uses_again_is_another_inode() {
    let tree = Tree::new(HostOptions::new().descriptors(0).recheck(Recheck::Every(Duration::from_millis(5))));
    let others: Vec<String> = (0..64).map(|i| format!("other{i}")).collect();
    others.iter().for_each(|name| fs::write(tree.host(name), "").unwrap());
    let begin = Instant::now();
    // Tests that run beside this one may get the number first.
    while begin.elapsed() < Duration::from_secs(15) {
        fs::write(tree.host("file"), "old").unwrap();
        let on_host = || fs::metadata(tree.host("file")).unwrap().ino();
        let number = on_host();
        await_value(true, || tree.stat("file").is_ok());
        let old = tree.vfs.lookup(&tree.context, At::Cwd, "file", Walk::empty()).unwrap();
        // That of the host, unless the tree still has the inode that had it before.
        let number_in_tree = old.stat().ino;
        tree.vfs.evict(usize::MAX).unwrap();
        for name in &others {
            tree.stat(name).unwrap();
        }
        fs::remove_file(tree.host("file")).unwrap();
        fs::write(tree.host("file"), "new").unwrap();
        let is_used_again = on_host() == number;
        if is_used_again {
            await_value(Ok(b"new".to_vec()), || tree.read("file"));
            assert_eq!(old.stat().ino, number_in_tree);
            assert_ne!(tree.stat("file").unwrap().ino, number_in_tree);
            return;
        }
        drop(old);
        fs::remove_file(tree.host("file")).unwrap();
        await_value(Err(Error::NoEntry), || tree.stat("file").map(drop));
    }
    skipped("the file system of the temporary directory does not use inode numbers again");
}

/// Others have removed a file that is open, and the tree has no descriptor of it any more. Then the
/// host gives its inode number to file after file: while it makes one, ext4 answers ENOMEM to those
/// that open the old file by its handle.
#[test]
fn errors_of_the_host_reach_lseek() {
    let tree = Tree::new(HostOptions::new().descriptors(0).recheck(Recheck::Never));
    let others: Vec<String> = (0..64).map(|i| format!("other{i}")).collect();
    others.iter().for_each(|name| fs::write(tree.host(name), "").unwrap());
    fs::write(tree.host("file"), "contents").unwrap();
    let file = tree.open("file", OpenFlags::RDONLY).unwrap();
    assert!(others.iter().all(|name| tree.stat(name).is_ok()));
    fs::remove_file(tree.host("file")).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            for _ in 0..5_000 {
                fs::write(tree.host("new"), "").unwrap();
                fs::remove_file(tree.host("new")).unwrap();
            }
        });
        while !other.is_finished() {
            for seek in [Seek::Data(0), Seek::Hole(0)] {
                assert_eq!(file.lseek(seek), Err(Error::Stale));
            }
        }
    });
}

/// A thread replaces a directory by a symbolic link that leads out of the tree, again and again.
#[test]
fn a_symbolic_link_in_the_place_of_a_directory_leads_nowhere() {
    for options in both_ways() {
        let tree = Tree::new(options.recheck(Recheck::Every(Duration::from_millis(1))));
        let outside = tree.dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "outside").unwrap();
        fs::create_dir(tree.host("real")).unwrap();
        fs::write(tree.host("real/file"), "inside").unwrap();
        symlink(&outside, tree.host("link")).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for from in ["real", "link"] {
                        fs::rename(tree.host(from), tree.host("name")).unwrap();
                        std::thread::sleep(Duration::from_micros(100));
                        fs::rename(tree.host("name"), tree.host(from)).unwrap();
                    }
                }
            });
            let (mut inside, begun) = (0, std::time::Instant::now());
            for round in 0.. {
                // The other thread may not have run so far.
                if round >= 20_000 && (inside > 0 || begun.elapsed() > Duration::from_secs(30)) {
                    break;
                }
                match tree.read("name/file") {
                    Ok(found) => {
                        assert_eq!(String::from_utf8_lossy(&found), "inside");
                        inside += 1;
                    }
                    Err(Error::NoEntry | Error::NotDirectory | Error::Stale | Error::Loop) => {}
                    Err(error) => panic!("{error}"),
                }
                if round % 16 == 0 {
                    tree.vfs.evict(usize::MAX).unwrap();
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(inside > 0, "the directory was never there");
        });
    }
}

/// Threads read ahead in a directory that is ten times as large as the cache. While they load names
/// of it, others of it leave the cache. The driver keeps no inode that the tree has not cached.
#[test]
fn a_read_ahead_through_a_full_cache_keeps_nothing() {
    const LIMIT: usize = 500;
    const FILES: usize = 10 * LIMIT;
    let tree = Tree::with(tempfile::tempdir().unwrap(), alone(), VfsOptions::new().cached_inodes(LIMIT));
    (0..FILES).for_each(|n| fs::write(tree.host(&format!("file{n}")), "").unwrap());
    let dir = tree.open(".", OpenFlags::DIRECTORY).unwrap();
    for _ in 0..3 {
        let progress = dir.readahead(&tree.context, 0, usize::MAX, Mask::STAT).unwrap().wait().unwrap();
        assert_eq!(progress.listed, FILES as u64);
    }
    let evicted = tree.vfs.evict(usize::MAX).unwrap();
    assert!(evicted >= LIMIT / 10, "{evicted} were cached");
    // A name that stays locked for long is left out.
    let (_, inodes) = tree.driver.usage();
    assert!(inodes <= LIMIT / 10, "{inodes} inodes that nothing uses");
}

#[test]
fn descriptors_stay_bounded() {
    const FILES: usize = 2_000;
    for options in both_ways() {
        let tree = Tree::new(options.descriptors(160));
        for i in 0..FILES {
            fs::write(tree.host(&format!("{i}")), "x").unwrap();
        }
        for _ in 0..2 {
            for i in 0..FILES {
                assert_eq!(tree.read(&format!("{i}")).unwrap(), b"x");
            }
        }
        let (descriptors, inodes) = tree.driver.usage();
        assert!(descriptors <= 160, "{descriptors} descriptors");
        assert!(inodes >= FILES, "{inodes} inodes");
        tree.vfs.evict(usize::MAX).unwrap();
        let (descriptors, inodes) = tree.driver.usage();
        assert!(
            descriptors <= 1 && inodes <= 1,
            "{descriptors} descriptors and {inodes} inodes after all were evicted"
        );
    }
}

/// Each thread that removes files keeps them open, and none stays open afterwards.
#[test]
fn files_without_names_are_closed_with_their_last_user() {
    for options in both_ways() {
        let tree = Tree::new(options);
        let files: Vec<File> = (0..100)
            .map(|i| {
                let name = format!("{i}");
                let file = tree.open(&name, OpenFlags::RDWR | OpenFlags::CREAT).unwrap();
                file.write(name.as_bytes()).unwrap();
                tree.vfs.unlink(&tree.context, At::Cwd, &name).unwrap();
                file
            })
            .collect();
        tree.vfs.evict(usize::MAX).unwrap();
        for (i, file) in files.iter().enumerate() {
            let mut buffer = [0; 8];
            let count = file.pread(&mut buffer, 0).unwrap();
            assert_eq!(buffer[..count], *i.to_string().as_bytes());
            assert_eq!(file.stat().nlink, 0);
        }
        drop(files);
        await_value(true, || {
            tree.vfs.evict(usize::MAX).unwrap();
            tree.driver.usage().1 <= 1
        });
    }
}

#[test]
fn a_source_that_vanishes_is_an_error_and_no_more() {
    for options in both_ways() {
        let tree = Tree::new(options);
        fs::create_dir(tree.host("dir")).unwrap();
        tree.stat("dir").unwrap();
        fs::remove_dir_all(tree.host("")).unwrap();
        assert!(tree.stat("").is_err());
        assert!(tree.stat(".").is_ok(), "the root stays open");
        assert_eq!(tree.open("file", OpenFlags::WRONLY | OpenFlags::CREAT).unwrap_err(), Error::NoEntry);
        tree.vfs.evict(usize::MAX).unwrap();
        assert_eq!(tree.stat("dir").unwrap_err(), Error::NoEntry);
    }
}

/// The default ACL of a directory decides what others may do with new files.
#[test]
fn a_default_acl_is_not_widened() {
    let tree = Tree::new(alone());
    fs::create_dir(tree.host("dir")).unwrap();
    // Version 2, and the entries of the owner (7), the group (5) and others (0).
    let acl: Vec<u8> = [[1u16, 7], [4, 5], [32, 0]]
        .iter()
        .flat_map(|[tag, permissions]| {
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &u32::MAX.to_le_bytes()].concat()
        })
        .collect();
    let acl = [&2u32.to_le_bytes()[..], &acl].concat();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(tree.host("dir"), "system.posix_acl_default", &acl, flags).is_err() {
        return skipped("the file system of the temporary directory has no ACLs");
    }
    let open = |path: &str, mode| {
        tree.vfs.open(&tree.context, At::Cwd, path, OpenFlags::RDWR | OpenFlags::CREAT, mode).unwrap();
        fs::metadata(tree.host(path)).unwrap().mode() & 0o7777
    };
    assert_eq!(open("dir/file", 0o644), 0o640);
    assert_eq!(open("dir/setuid", 0o4755), 0o4750);
    assert_eq!(tree.stat("dir/file").unwrap().mode, 0o640);
    assert_eq!(open("file", 0o644), 0o644);
}

#[test]
fn only_a_directory_can_be_opened() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = |path: &Path| HostFs::open(path, HostOptions::new()).unwrap_err().raw_os_error();
    assert_eq!(error(&file), Some(Error::NotDirectory.errno()));
    assert_eq!(error(&dir.path().join("missing")), Some(Error::NoEntry.errno()));
}

#[test]
fn root_makes_files_for_others_and_stays_root() {
    if !is_root() {
        return;
    }
    for options in both_ways() {
        let tree = Tree::new(options);
        fs::set_permissions(tree.host(""), fs::Permissions::from_mode(0o777)).unwrap();
        tree.vfs.evict(usize::MAX).unwrap();
        let user = Context::new(&tree.vfs, Credentials::user(1000, 1001, &[]));
        tree.vfs.chmod(&tree.context, At::Cwd, ".", 0o777, Walk::empty()).unwrap();
        tree.vfs.mkdir(&user, At::Cwd, "dir", 0o700).unwrap();
        let flags = OpenFlags::RDWR | OpenFlags::CREAT;
        tree.vfs.open(&user, At::Cwd, "dir/file", flags, 0o4750).unwrap().write(b"x").unwrap();
        for path in ["dir", "dir/file"] {
            let found = fs::metadata(tree.host(path)).unwrap();
            assert_eq!((found.uid(), found.gid()), (1000, 1001), "{path}");
        }
        // By now this thread makes files with its own ids again.
        fs::write(tree.host("own"), "").unwrap();
        let own = fs::metadata(tree.host("own")).unwrap();
        assert_eq!((own.uid(), own.gid()), (credentials().uid, credentials().gid));
    }
}

/// Set in the process of [`an_ordinary_user_acts_as_itself`].
const AS_USER: &str = "PANDO_TEST_AS_USER";

#[test]
fn an_ordinary_user_acts_as_itself() {
    if std::env::var_os(AS_USER).is_some() {
        return as_user();
    }
    if !is_root() {
        return;
    }
    let test = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // The folder of the build may be closed to others.
    let copy = dir.path().join("test");
    fs::copy(test, &copy).unwrap();
    let output = Command::new(copy)
        .args(["--exact", "an_ordinary_user_acts_as_itself", "--nocapture"])
        .env(AS_USER, "1")
        .env("TMPDIR", dir.path())
        .uid(1234)
        .gid(1234)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn as_user() {
    let tree = Tree::new(alone());
    let file = tree.open("file", OpenFlags::RDWR | OpenFlags::CREAT).unwrap();
    file.write(b"mine").unwrap();
    tree.vfs.mkdir(&tree.context, At::Cwd, "dir", 0o755).unwrap();
    tree.vfs.rename(&tree.context, At::Cwd, "file", At::Cwd, "dir/moved", pando_vfs::RenameFlags::empty()).unwrap();
    tree.vfs.link(&tree.context, At::Cwd, "dir/moved", At::Cwd, "link", Walk::empty()).unwrap();
    tree.vfs.unlink(&tree.context, At::Cwd, "dir/moved").unwrap();
    tree.vfs.evict(usize::MAX).unwrap();
    assert_eq!(tree.read("link").unwrap(), b"mine");
    tree.vfs.unlink(&tree.context, At::Cwd, "link").unwrap();
    let mut buffer = [0; 8];
    assert_eq!(file.pread(&mut buffer, 0).unwrap(), 4);
    // What the host does not permit this process, the tree cannot do either.
    let capable = Context::new(&tree.vfs, Credentials::root());
    assert_eq!(tree.vfs.mkdir(&capable, At::Cwd, "roots", 0o755).unwrap_err(), Error::NotPermitted);
    assert!(!tree.host("roots").exists());
}
