//! Tracing: which operations are recorded, which are filtered out, which are lost, and that paths
//! are those at the time of the call.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    Access, At, Context, Credentials, Error, OpenFlags, RenameFlags, Seek, SetAttr, SetTime, Vfs, Walk, XattrFlags,
    trace::{Event, TraceOp, TraceOptions, Tracer},
};

fn tree() -> (Vfs, Context) {
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("there is room for a root");
    let context = Context::new(&vfs, Credentials::root());
    (vfs, context)
}

fn start(vfs: &Vfs) -> Tracer {
    vfs.trace(TraceOptions::default()).expect("no other trace")
}

fn all(tracer: &mut Tracer) -> Vec<Event> {
    let mut events = Vec::new();
    while tracer.poll(usize::MAX, |event| events.push(event.clone())) > 0 {}
    events
}

/// The events as `op path[ -> second][: error]`.
fn lines(tracer: &mut Tracer) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let line = |event: &Event| {
        let second = event.second.as_ref().map_or(String::new(), |second| format!(" -> {}", text(second)));
        let error = event.error.map_or(String::new(), |error| format!(": {}", error.errno()));
        format!("{} {}{second}{error}", event.op, text(&event.path))
    };
    all(tracer).iter().map(line).collect()
}

#[test]
fn each_operation_is_traced_once() {
    let (vfs, context) = tree();
    let mut tracer = start(&vfs);
    let cx = &context;
    let dir = vfs.mkdir(cx, At::Cwd, "d", 0o755).expect("mkdir");
    let flags = OpenFlags::RDWR | OpenFlags::CREAT;
    let file = vfs.open(cx, At::Dir(&dir), "f", flags, 0o644).expect("open");
    file.write(b"pando").expect("write");
    file.pread(&mut [0; 8], 0).expect("pread");
    file.lseek(Seek::Set(0)).expect("a store is not seen");
    file.lseek(Seek::Hole(0)).expect("hole");
    file.truncate(1).expect("truncate");
    file.fallocate(0, 0, 10).expect("fallocate");
    file.fsync().expect("fsync");
    vfs.link(cx, At::Cwd, "/d/f", At::Dir(&dir), "g", Walk::empty()).expect("link");
    vfs.symlink(cx, "../x", At::Cwd, "d//s").expect("symlink");
    vfs.readlink(cx, At::Cwd, "d/s", Walk::empty()).expect("readlink");
    assert_eq!(vfs.stat(cx, At::Cwd, "d/none", Walk::empty()), Err(Error::NoEntry));
    vfs.chmod(cx, At::Cwd, "d/f", 0o600, Walk::empty()).expect("chmod");
    vfs.setattr(cx, file.dentry(), &SetAttr::default()).expect("setattr");
    let _ = vfs.getattr(file.dentry());
    let set = vfs.setxattr(cx, At::Cwd, "d/f", "user.a", "b", XattrFlags::empty(), Walk::empty());
    set.expect("setxattr");
    vfs.getxattr(cx, At::Cwd, "d/f", "user.a", Walk::empty()).expect("getxattr");
    vfs.listxattr(cx, At::Cwd, "d/f", Walk::empty()).expect("listxattr");
    vfs.removexattr(cx, At::Cwd, "d/f", "user.a", Walk::empty()).expect("removexattr");
    vfs.rename(cx, At::Cwd, "d/f", At::Cwd, "/h", RenameFlags::empty()).expect("rename");
    file.pwrite(b"x", 0).expect("pwrite");
    vfs.unlink(cx, At::Cwd, "h").expect("unlink");
    file.pwrite(b"x", 0).expect("pwrite");
    vfs.statfs(cx, At::Cwd, "/").expect("statfs");
    let open = vfs.open(cx, At::Cwd, "d", OpenFlags::DIRECTORY, 0).expect("open");
    open.readdir(0, |_| true).expect("readdir");
    open.readdir_plus(cx, 0, |_, _| true).expect("readdir_plus");
    assert_eq!(vfs.rmdir(cx, At::Cwd, "d"), Err(Error::NotEmpty));
    vfs.lookup(cx, At::Dir(&dir), "..", Walk::empty()).expect("lookup");
    assert_eq!(vfs.unlink(cx, At::Cwd, "/"), Err(Error::IsDirectory));
    vfs.mknod(cx, At::Cwd, "n", 0o100_644, 0).expect("mknod");
    vfs.access(cx, At::Dir(&dir), "/n", Access::READ, Walk::empty()).expect("access");
    vfs.chown(cx, At::Cwd, "n", None, None, Walk::empty()).expect("chown");
    vfs.utimens(cx, At::Cwd, "n", SetTime::Now, SetTime::Now, Walk::empty()).expect("utimens");
    vfs.truncate(cx, At::Cwd, "n", 9).expect("truncate");
    let found = vfs.lookup(cx, At::Cwd, "n", Walk::empty()).expect("lookup");
    let file = vfs.open_dentry(cx, &found, OpenFlags::RDWR).expect("open_dentry");
    file.read(&mut [0]).expect("read");
    file.readv(&mut []).expect("readv");
    file.preadv(&mut [], 0).expect("preadv");
    let expected = "mkdir /d, create /d/f, write /d/f, read /d/f, seek /d/f, truncate /d/f, fallocate /d/f, fsync /d/f, \
        link /d/f -> /d/g, symlink /d//s -> ../x, readlink /d/s, stat /d/none: 2, setattr /d/f, setattr /d/f, stat /d/f, \
        setxattr /d/f, getxattr /d/f, listxattr /d/f, removexattr /d/f, rename /d/f -> /h, write /h, unlink /h, \
        write /h (deleted), statfs /, open /d, readdir /d, readdir /d, rmdir /d: 39, lookup /d/.., unlink /: 21, \
        mknod /n, access /n, setattr /n, setattr /n, truncate /n, lookup /n, open /n, read /n, read /n, read /n";
    assert_eq!(lines(&mut tracer), expected.split(", ").collect::<Vec<_>>());
    assert_eq!(tracer.lost(), 0);
}

#[test]
fn path_is_that_at_the_time_of_the_call() {
    let (vfs, context) = tree();
    let cx = &context;
    let mkdir = |path: &str| vfs.mkdir(cx, At::Cwd, path, 0o755).expect("mkdir");
    let rename = |from: &str, to: &str| {
        vfs.rename(cx, At::Cwd, from, At::Cwd, to, RenameFlags::empty()).expect("rename");
    };
    mkdir("a");
    let deep = mkdir("a/b");
    let mut tracer = vfs
        .trace(TraceOptions { ops: [TraceOp::Stat, TraceOp::Mkdir].into_iter().collect(), ..TraceOptions::default() })
        .expect("no other trace");
    let stat = || vfs.stat(cx, At::Dir(&deep), "f", Walk::empty());
    let _ = stat();
    rename("a", "z");
    let _ = stat();
    rename("z/b", "b");
    let _ = stat();
    vfs.rmdir(cx, At::Cwd, "b").expect("rmdir");
    let _ = stat();
    let _ = vfs.mkdir(cx, At::Dir(&deep), "f", 0o755);
    let expected =
        ["stat /a/b/f: 2", "stat /z/b/f: 2", "stat /b/f: 2", "stat /b (deleted)/f: 2", "mkdir /b (deleted)/f: 2"];
    assert_eq!(lines(&mut tracer), expected);
}

/// For directories of any inode number: the record of one directory does not replace that of the
/// other.
#[test]
fn both_paths_of_a_rename_are_rendered() {
    let (vfs, context) = tree();
    let dirs: Vec<_> = (0..40).map(|n| vfs.mkdir(&context, At::Cwd, format!("{n}"), 0o755).expect("mkdir")).collect();
    let mut tracer = start(&vfs);
    for dir in &dirs {
        let moved = vfs.rename(&context, At::Dir(&dirs[0]), "x", At::Dir(dir), "y", RenameFlags::empty());
        assert_eq!(moved, Err(Error::NoEntry));
    }
    let expected: Vec<_> = (0..40).map(|n| format!("rename /0/x -> /{n}/y: 2")).collect();
    assert_eq!(lines(&mut tracer), expected);
}

#[test]
fn paths_start_at_the_root_of_the_namespace() {
    let (vfs, mut context) = tree();
    let jail = vfs.mkdir(&context, At::Cwd, "jail", 0o755).expect("mkdir");
    vfs.mount(&context, At::Cwd, "jail", MemFs::new(MemOptions::default())).expect("mount");
    vfs.chroot(&mut context, At::Cwd, "jail").expect("chroot");
    vfs.chdir(&mut context, At::Cwd, "/").expect("chdir");
    let mut tracer = start(&vfs);
    vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("mkdir");
    let _ = vfs.stat(&context, At::Dir(&jail), "under the mount", Walk::empty());
    let tmp = vfs
        .open(&context, At::Cwd, "d", OpenFlags::TMPFILE | OpenFlags::DIRECTORY | OpenFlags::RDWR, 0o600)
        .expect("tmpfile");
    tmp.write(b"x").expect("write");
    let number = format!("write #{} (deleted)", tmp.dentry().ino());
    let lines = lines(&mut tracer);
    assert_eq!(lines[..3], ["mkdir /jail/d", "stat /jail/under the mount: 2", "create /jail/d"]);
    assert_eq!(lines[3].replace('/', ""), number);
}

#[test]
fn path_in_unmounted_tree_omits_the_mount_point() {
    let (vfs, context) = tree();
    vfs.mkdir(&context, At::Cwd, "point", 0o755).expect("mkdir");
    vfs.mount(&context, At::Cwd, "point", MemFs::new(MemOptions::default())).expect("mount");
    let dir = vfs.mkdir(&context, At::Cwd, "point/d", 0o755).expect("mkdir");
    let mut tracer = start(&vfs);
    let stat = || vfs.stat(&context, At::Dir(&dir), "", Walk::EMPTY_PATH).map(drop);
    stat().expect("stat");
    vfs.umount(&context, At::Cwd, "point").expect("umount");
    stat().expect("what is held can be looked at");
    let lines = lines(&mut tracer);
    assert_eq!(lines[0], "stat /point/d");
    assert!(lines[1].starts_with("stat /d"), "{lines:?}");
}

#[test]
fn filters_select_events() {
    let (vfs, context) = tree();
    let trace = |options: TraceOptions| {
        let mut tracer = vfs.trace(options).expect("no other trace");
        let _ = vfs.stat(&context, At::Cwd, "none", Walk::empty());
        vfs.stat(&context, At::Cwd, "/", Walk::empty()).expect("stat");
        let root = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("open");
        let slow = Duration::from_millis(3);
        let wait = |_: pando_vfs::DirEntry<'_>| {
            let until = Instant::now() + slow;
            while Instant::now() < until {
                thread::yield_now();
            }
            true
        };
        root.readdir(0, wait).expect("readdir");
        lines(&mut tracer)
    };
    let default = TraceOptions::default();
    assert_eq!(trace(default), ["stat /none: 2", "stat /", "open /", "readdir /"]);
    assert_eq!(trace(TraceOptions { errors_only: true, ..default }), ["stat /none: 2"]);
    let ops = [TraceOp::Open, TraceOp::Readdir].into_iter().collect();
    assert_eq!(trace(TraceOptions { ops, ..default }), ["open /", "readdir /"]);
    // The scan takes at least 6 ms for `.` and `..`, by another clock. The other operations are
    // faster unless this machine stood still.
    let slow = trace(TraceOptions { min_latency: Duration::from_millis(5), ..default });
    assert!(slow.contains(&"readdir /".to_owned()), "{slow:?}");
    let never = TraceOptions { min_latency: Duration::from_secs(86400), ..default };
    assert_eq!(trace(never), [""; 0]);
    assert_eq!(trace(TraceOptions { min_latency: Duration::MAX, ..default }), [""; 0]);
}

#[test]
fn only_one_trace_at_a_time() {
    let (vfs, context) = tree();
    let first = start(&vfs);
    assert_eq!(vfs.trace(TraceOptions::default()).err(), Some(Error::Busy));
    let other = tree();
    let mut of_another = start(&other.0);
    vfs.mkdir(&context, At::Cwd, "unread", 0o755).expect("mkdir");
    drop(first);
    vfs.mkdir(&context, At::Cwd, "unseen", 0o755).expect("mkdir");
    let mut second = start(&vfs);
    vfs.mkdir(&context, At::Cwd, "seen", 0o755).expect("mkdir");
    other.0.mkdir(&other.1, At::Cwd, "other", 0o755).expect("mkdir");
    assert_eq!(lines(&mut second), ["mkdir /seen"]);
    assert_eq!(lines(&mut of_another), ["mkdir /other"]);
}

#[test]
fn full_ring_counts_lost_events() {
    let (vfs, context) = tree();
    let options = TraceOptions { ring_bytes: 0, ..TraceOptions::default() };
    let mut tracer = vfs.trace(options).expect("no other trace");
    const CALLS: u64 = 5000;
    let call = || {
        for _ in 0..CALLS {
            vfs.stat(&context, At::Cwd, "/", Walk::empty()).expect("stat");
        }
    };
    call();
    let seen = all(&mut tracer).len() as u64;
    assert!(seen > 100 && tracer.lost() > 0, "{seen}");
    assert_eq!(seen + tracer.lost(), CALLS);
    // Events of a thread that has ended are counted too.
    thread::scope(|scope| scope.spawn(call).join().expect("no panic"));
    let more = all(&mut tracer).len() as u64;
    assert_eq!(seen + more + tracer.lost(), 2 * CALLS);
}

#[test]
fn rings_of_ended_threads_are_reused() {
    let (vfs, context) = tree();
    let options = TraceOptions { ring_bytes: 0, ..TraceOptions::default() };
    let mut tracer = vfs.trace(options).expect("no other trace");
    let in_a_thread = |n: u64| {
        thread::scope(|scope| {
            let call = || vfs.mkdir(&context, At::Cwd, format!("d{n}"), 0o755).map(drop);
            scope.spawn(call).join().expect("no panic").expect("mkdir");
        });
    };
    // More threads than there are rings, until the reader has noticed that they have ended.
    (0..300).for_each(in_a_thread);
    let events = all(&mut tracer);
    assert_eq!((events.len(), tracer.lost()), (256, 44));
    let threads: HashSet<u32> = events.iter().map(|event| event.thread).collect();
    assert_eq!(threads.len(), 256);
    (300..310).for_each(in_a_thread);
    assert_eq!((all(&mut tracer).len(), tracer.lost()), (10, 44));
    // Events are in the order in which the operations began, on whichever thread.
    let here = |path| drop(vfs.mkdir(&context, At::Cwd, path, 0o755).expect("mkdir"));
    here("first");
    in_a_thread(310);
    here("last");
    assert_eq!(lines(&mut tracer), ["mkdir /first", "mkdir /d310", "mkdir /last"]);
}

/// While directories move, each path begins with a path that the directory had.
#[test]
fn paths_are_consistent_while_directories_move() {
    let (vfs, context) = tree();
    let cx = &context;
    for dir in ["a", "b", "a/x"] {
        vfs.mkdir(cx, At::Cwd, dir, 0o755).expect("mkdir");
    }
    let deep = vfs.mkdir(cx, At::Cwd, "a/x/d", 0o755).expect("mkdir");
    let file = vfs.open(cx, At::Dir(&deep), "f", OpenFlags::WRONLY | OpenFlags::CREAT, 0o600).expect("open");
    let ops = [TraceOp::Stat, TraceOp::Fsync].into_iter().collect();
    let mut tracer = vfs.trace(TraceOptions { ops, ..TraceOptions::default() }).expect("no other trace");
    let stop = AtomicBool::new(false);
    let mut seen = HashSet::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let there_and_back = [("a/x", "b/y"), ("b/y", "a/x")];
            while !stop.load(Ordering::Relaxed) {
                for (from, to) in there_and_back {
                    vfs.rename(cx, At::Cwd, from, At::Cwd, to, RenameFlags::empty()).expect("rename");
                }
            }
        });
        let worker = scope.spawn(|| {
            for _ in 0..20_000 {
                vfs.stat(cx, At::Dir(&deep), "f", Walk::empty()).expect("stat");
                file.fsync().expect("fsync");
            }
        });
        while !worker.is_finished() {
            tracer.poll(4096, |event| _ = seen.insert(event.path.clone()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    while tracer.poll(4096, |event| _ = seen.insert(event.path.clone())) > 0 {}
    let allowed = ["/a/x/d/f", "/b/y/d/f"].map(|path| path.as_bytes().to_vec());
    assert!(!seen.is_empty() && seen.iter().all(|path| allowed.contains(path)), "{seen:?}");
}
