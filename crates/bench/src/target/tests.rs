use super::{
    backed::BackedTarget, before::BeforeTarget, dir::DirTarget, host::HostTarget, mem::MemTarget, mount::MountTarget,
    store::StoreTarget, traced::TracedTarget, *,
};

#[test]
fn target_names_are_parsed() {
    assert!("dir=/x".parse::<TargetSpec>().is_ok_and(|spec| spec.name() == "dir=/x"));
    assert!("dir=".parse::<TargetSpec>().is_err());
    let error = "tmpfs".parse::<TargetSpec>().expect_err("no such target");
    assert!(error.contains("dir=PATH"), "{error}");
    assert_eq!("map:scc".parse::<TargetSpec>().is_ok(), cfg!(feature = "peers"));
}

#[test]
fn documentation_page_has_all_targets_and_old_locks() {
    let page = include_str!("../../../../docs/bench.md");
    let names = TARGETS.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    assert!(names.len() >= 10, "{names:?}");
    let locks = include_str!("before/locks.rs").lines().filter_map(|line| {
        let lock = line.strip_prefix("pub(super) struct ")?.split(['(', ' ']).next()?;
        (lock != "KernelLocks").then_some(lock)
    });
    for name in names.into_iter().chain(locks) {
        assert!(page.contains(&format!("`{name}`")), "docs/bench.md has no {name}");
    }
}

/// A temporary directory, on tmpfs if there is one: fast, and without caches that a test would
/// empty for the whole machine.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory")
}

/// Whether a target supports an operation. If it does, the operation must have succeeded.
fn has<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
        other => Some(other.expect("the operation is there, and fails")),
    }
}

/// Checks the behaviour that all targets must share for workloads to be comparable. Returns the
/// unsupported operations.
fn behaves(target: &dyn Target) -> Vec<&'static str> {
    let session = target.open().expect("it opens");
    let mut actor = session.actor().expect("an actor");
    let [dir, file, other] = ["d", "d/f", "d/g"].map(TreePath::new);
    let mut lacks = Vec::new();
    let mut note = |name, there: bool| lacks.extend((!there).then_some(name));
    actor.mkdir(&dir).expect("mkdir");
    actor.stat_missing(&file).expect("a missing name");
    actor.create(&file).expect("create");
    actor.stat(&file).expect("stat");
    let exists = actor.stat_missing(&file).map_err(|error| error.kind());
    assert_eq!(exists, Err(std::io::ErrorKind::AlreadyExists));
    actor.unlink(&file).expect("unlink");
    assert!(actor.stat(&file).is_err());
    assert!(actor.unlink(&file).is_err());
    actor.create(&file).expect("create it again");

    note("rename", has(actor.rename(&file, &other)).is_some());
    if actor.stat(&other).is_ok() {
        assert!(actor.stat(&file).is_err(), "renamed, not linked");
        actor.rename(&other, &file).expect("and back");
    }
    note("open_close", has(actor.open_close(&file)).is_some());
    let xattr = has(actor.set_xattr(&file, c"user.colour", b"green"));
    note("set_xattr", xattr.is_some());
    for level in Level::ALL {
        let listed = has(actor.list(&dir, level));
        let count = |from, count| if level >= from && xattr.is_some() { count } else { 0 };
        let (xattrs, value_bytes) = (count(Level::XattrNames, 1), count(Level::XattrValues, 5));
        assert!(listed.is_none_or(|listed| listed == Listed { entries: 1, xattrs, value_bytes }), "{listed:?}");
        note("list", listed.is_some());
        let by_records = has(actor.records(&dir, level));
        assert!(by_records.is_none() || by_records == listed, "{by_records:?}");
    }
    if let Some(handle) = has(actor.open(&file)) {
        handle_behaves(&*handle);
        assert_eq!(has(handle.path()).map(|len| len >= "/d/f".len()), Some(true));
        opens_and_closes(&mut *actor, [&file, &other]);
    } else {
        note("open", false);
    }
    // In a new thread: the thread keeps its working directory.
    let cwd = std::thread::scope(|scope| {
        let render = || {
            let mut actor = session.actor().expect("an actor");
            has(actor.chdir(&dir)).map(|()| actor.getcwd().expect("getcwd"))
        };
        scope.spawn(render).join().expect("no panic")
    });
    note("getcwd", cwd.is_some());
    assert!(cwd.is_none_or(|len| len >= "/d".len()));
    note("drop_caches", has(actor.drop_caches(Caches::Inodes)).is_some());
    actor.stat(&file).expect("the cache was emptied, not the tree");
    actor.unlink(&file).expect("unlink");
    note("rmdir", has(actor.rmdir(&dir)).is_some());
    drop(actor);
    session.close().expect("it closes");
    lacks
}

fn handle_behaves(handle: &dyn Handle) {
    handle.truncate(1000).expect("truncate");
    assert_eq!(handle.seek(SeekFrom::End(-10)).expect("END"), 990);
    assert_eq!(handle.seek(SeekFrom::Current(-90)).expect("CUR"), 900);
    assert_eq!(handle.write(b"pando").expect("write"), 5);
    assert_eq!(handle.seek(SeekFrom::Current(0)).expect("tell"), 905);
    assert_eq!(handle.seek(SeekFrom::Start(900)).expect("SET"), 900);
    let mut buffer = [1; 8];
    assert_eq!(handle.read(&mut buffer).expect("read"), 8);
    assert_eq!(&buffer, b"pando\0\0\0");
    assert!(handle.seek(SeekFrom::Current(-2000)).is_err());
    handle.fsync().expect("fsync");
}

fn opens_and_closes(actor: &mut dyn Actor, [there, none]: [&TreePath; 2]) {
    let mut works = 0;
    let mut work = |handle: &dyn Handle| {
        works += 1;
        handle.seek(SeekFrom::Start(0)).map(drop)
    };
    actor.with_open(there, Open::Read, &mut work).expect("it is there");
    assert!(actor.with_open(none, Open::Read, &mut work).is_err());
    actor.with_open(none, Open::Create, &mut work).expect("it is made");
    actor.unlink(none).expect("unlink");
    assert_eq!(works, 2);
    let failed = actor.with_open(there, Open::Read, &mut |handle| handle.write(b"x").map(drop));
    assert!(failed.is_err(), "for reading only");
}

#[test]
fn directory_target_behaves() {
    let temp = scratch();
    let lacks = behaves(&DirTarget::new(temp.path()));
    // Not all file systems have extended attributes, and only root may empty caches.
    assert!(lacks.iter().all(|lack| matches!(*lack, "set_xattr" | "list" | "drop_caches")), "{lacks:?}");
    assert_eq!(std::fs::read_dir(temp.path()).expect("it stays").count(), 0);
}

/// On a machine that allows no mounts, the target says so instead of failing.
#[test]
fn mounted_target_behaves() {
    let session = MountTarget.open().expect("it opens");
    if let Err(error) = session.actor() {
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        pandofs_testkit::skipped(&error.to_string());
        return;
    }
    let root = session.tree().expect("a path");
    session.close().expect("it is unmounted");
    assert!(!root.exists());
    let lacks = behaves(&MountTarget);
    assert!(lacks.is_empty() || lacks == ["drop_caches"], "{lacks:?}");
}

#[test]
fn host_target_behaves() {
    let temp = scratch();
    let lacks = behaves(&HostTarget::new(temp.path()));
    // Not all file systems have extended attributes.
    assert!(lacks.iter().all(|lack| matches!(*lack, "set_xattr" | "list")), "{lacks:?}");
    assert_eq!(std::fs::read_dir(temp.path()).expect("it stays").count(), 0);
}

#[test]
fn store_target_behaves() {
    let temp = scratch();
    let lacks = behaves(&StoreTarget::new(temp.path()));
    assert_eq!(lacks, behaves(&BackedTarget));
    assert_eq!(std::fs::read_dir(temp.path()).expect("it stays").count(), 0);
}

#[test]
fn memory_target_behaves() {
    assert_eq!(behaves(&MemTarget), ["drop_caches"]);
}

#[test]
fn backed_target_behaves() {
    assert!(behaves(&BackedTarget).is_empty());
}

#[test]
fn tracing_changes_no_result() {
    assert_eq!(behaves(&TracedTarget), behaves(&MemTarget));
}

#[test]
fn old_locks_change_no_result() {
    assert_eq!(behaves(&BeforeTarget { inner: Box::new(MemTarget), misses: false }), ["drop_caches"]);
    assert!(behaves(&BeforeTarget { inner: Box::new(BackedTarget), misses: true }).is_empty());
}

#[cfg(feature = "peers")]
#[test]
fn peer_targets_behave() {
    for name in ["peer:vfs", "peer:rsfs", "map:papaya", "map:scc"] {
        let lacks = behaves(&*name.parse::<TargetSpec>().expect("a name").target());
        assert!(lacks.contains(&"open") && lacks.contains(&"set_xattr"), "{name}: {lacks:?}");
    }
}
