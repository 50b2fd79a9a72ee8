//! Watches. That single events are those of inotify is checked by the oracle, on all drivers.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    At, ChangeByOthers, Context, Credentials, Error, InodeFlags, OpenFlags, RenameFlags, Subscriber, Vfs, Walk,
    WatchEvents, WatchId, Watcher, WatcherOptions,
};

#[path = "support/collect.rs"]
mod collect;

use collect::collect_until;

const FOLLOW: Walk = Walk::empty();

fn tree() -> (Vfs, Context) {
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("there is room for a root");
    let context = Context::new(&vfs, Credentials::root());
    (vfs, context)
}

fn watch(watcher: &Watcher, context: &Context, path: &str, events: WatchEvents) -> WatchId {
    watcher.add(context, At::Cwd, path, events, FOLLOW).expect("watched")
}

fn make(vfs: &Vfs, context: &Context, path: &str) {
    drop(vfs.mknod(context, At::Cwd, path, 0o100_644, 0).expect("made"));
}

/// All events as `NAME path`, without the bit for directories.
fn lines(watcher: &Watcher) -> Vec<String> {
    let line = |event: pando_vfs::WatchEvent| {
        let names: Vec<_> = (event.events - WatchEvents::ISDIR).iter_names().map(|(name, _)| name).collect();
        format!("{} {}", names.join("|"), String::from_utf8_lossy(&event.path)).trim_end().to_owned()
    };
    std::iter::from_fn(|| watcher.try_recv()).map(line).collect()
}

#[test]
fn everything_below_a_directory_is_watched_also_what_is_made_later() {
    let (vfs, context) = tree();
    let cx = &context;
    for dir in ["/w", "/w/old", "/out", "/out/moved"] {
        vfs.mkdir(cx, At::Cwd, dir, 0o755).expect("made");
    }
    let watcher = vfs.watcher(WatcherOptions::new());
    let names = WatchEvents::CREATE | WatchEvents::DELETE | WatchEvents::MOVE;
    watcher.add_recursive(cx, At::Cwd, "/w", names, FOLLOW).expect("watched");
    vfs.mkdir(cx, At::Cwd, "/w/old/new", 0o755).expect("made");
    make(&vfs, cx, "/w/old/new/f");
    make(&vfs, cx, "/out/moved/g");
    let rename = |old: &str, new: &str| vfs.rename(cx, At::Cwd, old, At::Cwd, new, RenameFlags::empty());
    rename("/out/moved", "/w/moved").expect("moved");
    make(&vfs, cx, "/w/moved/h");
    rename("/w/old", "/out/old").expect("moved");
    make(&vfs, cx, "/out/old/new/i");
    vfs.unlink(cx, At::Cwd, "/w/moved/g").expect("removed");
    let expected =
        ["CREATE old/new", "CREATE old/new/f", "MOVED_TO moved", "CREATE moved/h", "MOVED_FROM old", "DELETE moved/g"];
    assert_eq!(lines(&watcher), expected);
}

/// Also if it is a mount point, and the change is in the mounted tree.
#[test]
fn watch_of_everything_below_crosses_mount_points() {
    let (vfs, context) = tree();
    vfs.mkdir(&context, At::Cwd, "/m", 0o755).expect("made");
    let covered = vfs.watcher(WatcherOptions::new());
    covered.add_recursive(&context, At::Cwd, "/m", WatchEvents::CREATE, FOLLOW).expect("watched");
    vfs.mount(&context, At::Cwd, "/m", MemFs::new(MemOptions::default())).expect("mounted");
    let (all, inner) = (vfs.watcher(WatcherOptions::new()), vfs.watcher(WatcherOptions::new()));
    all.add_recursive(&context, At::Cwd, "/", WatchEvents::CREATE, FOLLOW).expect("watched");
    watch(&inner, &context, "/m", WatchEvents::CREATE);
    make(&vfs, &context, "/m/f");
    assert_eq!(lines(&covered), ["CREATE f"]);
    vfs.umount(&context, At::Cwd, "/m").expect("unmounted");
    assert_eq!(lines(&all), ["CREATE m/f"]);
    assert_eq!(lines(&inner), ["CREATE f", "UNMOUNT", "IGNORED"]);
}

#[test]
fn watch_ends_with_the_last_name_of_its_file() {
    let (vfs, context) = tree();
    let watcher = vfs.watcher(WatcherOptions::new());
    make(&vfs, &context, "/f");
    drop(vfs.link(&context, At::Cwd, "/f", At::Cwd, "/g", FOLLOW).expect("linked"));
    vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
    let inodes = || vfs.statfs(&context, At::Cwd, "/").expect("memory").ffree;
    let file = watch(&watcher, &context, "/f", WatchEvents::DELETE_SELF);
    watch(&watcher, &context, "/d", WatchEvents::CREATE);
    for name in ["/f", "/g"] {
        vfs.unlink(&context, At::Cwd, name).expect("removed");
    }
    vfs.rmdir(&context, At::Cwd, "/d").expect("removed");
    let before = inodes();
    // The second watch does not ask for DELETE_SELF.
    assert_eq!(lines(&watcher), ["DELETE_SELF", "IGNORED", "IGNORED"]);
    assert_eq!(watcher.remove(file), Err(Error::Invalid));
    // What was watched is freed.
    collect_until(|| inodes() >= before + 2);
}

#[test]
fn reader_that_is_slow_is_told_that_events_were_lost() {
    let (vfs, context) = tree();
    let watcher = vfs.watcher(WatcherOptions::new().capacity(2));
    watch(&watcher, &context, "/", WatchEvents::CREATE);
    for round in 0..2 {
        for name in 0..4 {
            make(&vfs, &context, &format!("/{round}{name}"));
        }
        assert_eq!(lines(&watcher), [format!("CREATE {round}0"), format!("CREATE {round}1"), "Q_OVERFLOW".into()]);
    }
}

/// What was watched is freed also if the event that says so is lost.
#[test]
fn files_are_freed_also_if_events_are_lost() {
    let (vfs, context) = tree();
    let watcher = vfs.watcher(WatcherOptions::new().capacity(1).watches(10));
    for round in 0..3 {
        for name in 0..10 {
            let path = format!("/{round}{name}");
            make(&vfs, &context, &path);
            watch(&watcher, &context, &path, WatchEvents::MODIFY);
        }
        (0..10).for_each(|name| vfs.unlink(&context, At::Cwd, format!("/{round}{name}")).expect("removed"));
    }
    assert_eq!(lines(&watcher), ["IGNORED", "Q_OVERFLOW"]);
}

/// A number that belongs to a watch that has ended does not end another one.
#[test]
fn watch_is_removed_by_its_own_number() {
    let (vfs, context) = tree();
    let watcher = vfs.watcher(WatcherOptions::new());
    let file = vfs.open(&context, At::Cwd, "/", OpenFlags::RDWR | OpenFlags::TMPFILE | OpenFlags::DIRECTORY, 0o600);
    let file = file.expect("made");
    let link = |name| vfs.link(&context, At::Dir(file.dentry()), "", At::Cwd, name, Walk::EMPTY_PATH).map(drop);
    link("/f").expect("linked");
    let first = watch(&watcher, &context, "/f", WatchEvents::ATTRIB);
    watcher.remove(first).expect("there");
    let second = watch(&watcher, &context, "/f", WatchEvents::ATTRIB);
    assert_ne!(first, second);
    assert_eq!(watcher.remove(first), Err(Error::Invalid));
    vfs.chmod(&context, At::Cwd, "/f", 0o640, FOLLOW).expect("changed");
    assert_eq!(lines(&watcher), ["IGNORED", "ATTRIB"]);
}

/// As inotify does, one after the other.
#[test]
fn event_that_repeats_the_last_one_is_left_out() {
    let (vfs, context) = tree();
    let watcher = vfs.watcher(WatcherOptions::new());
    watch(&watcher, &context, "/", WatchEvents::MODIFY | WatchEvents::CLOSE);
    let file = vfs.open(&context, At::Cwd, "/f", OpenFlags::WRONLY | OpenFlags::CREAT, 0o644).expect("made");
    (0..3).for_each(|_| assert_eq!(file.write(b"x"), Ok(1)));
    drop(file);
    assert_eq!(lines(&watcher), ["MODIFY f", "CLOSE_WRITE f"]);
}

#[test]
fn second_watch_of_an_inode_replaces_the_first() {
    let (vfs, context) = tree();
    let watcher = vfs.watcher(WatcherOptions::new().watches(1));
    let first = watch(&watcher, &context, "/", WatchEvents::CREATE);
    assert_eq!(watch(&watcher, &context, "/", WatchEvents::DELETE), first);
    make(&vfs, &context, "/f");
    vfs.unlink(&context, At::Cwd, "/f").expect("removed");
    assert_eq!(lines(&watcher), ["DELETE f"]);
    vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
    let more = || watcher.add(&context, At::Cwd, "/d", WatchEvents::CREATE, FOLLOW);
    assert_eq!(more(), Err(Error::NoSpace));
    assert_eq!((watcher.remove(first), watcher.remove(first)), (Ok(()), Err(Error::Invalid)));
    assert_eq!(lines(&watcher), ["IGNORED"]);
    assert!(more().is_ok_and(|more| more != first), "there is room again, and no number is used twice");
}

#[test]
fn bad_watches_are_refused() {
    let (vfs, context) = tree();
    let watcher = vfs.watcher(WatcherOptions::new());
    make(&vfs, &context, "/f");
    vfs.chmod(&context, At::Cwd, "/f", 0o600, FOLLOW).expect("changed");
    let other = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    let stranger = tree().1;
    let add = |context: &Context, path: &str, events| watcher.add(context, At::Cwd, path, events, FOLLOW);
    for events in [WatchEvents::empty(), WatchEvents::IGNORED, WatchEvents::CREATE | WatchEvents::ISDIR] {
        assert_eq!(add(&context, "/", events), Err(Error::Invalid), "{events:?}");
    }
    assert_eq!(add(&context, "/none", WatchEvents::CREATE), Err(Error::NoEntry));
    assert_eq!(add(&other, "/f", WatchEvents::MODIFY), Err(Error::Access));
    assert_eq!(add(&stranger, "/", WatchEvents::CREATE), Err(Error::CrossDevice));
    let below =
        |context: &Context, path: &str| watcher.add_recursive(context, At::Cwd, path, WatchEvents::MODIFY, FOLLOW);
    assert_eq!(below(&context, "/f"), Err(Error::NotDirectory));
    assert_eq!(below(&other, "/"), Err(Error::NotPermitted));
    // A file without a name may only be watched if it may still get one.
    let open = |flags| vfs.open(&context, At::Cwd, "/", OpenFlags::RDWR | flags, 0o600).expect("made");
    let tmpfile = OpenFlags::TMPFILE | OpenFlags::DIRECTORY;
    for (file, expected) in [(open(tmpfile), true), (open(tmpfile | OpenFlags::EXCL), false)] {
        let added = watcher.add(&context, At::Dir(file.dentry()), "", WatchEvents::MODIFY, Walk::EMPTY_PATH);
        assert_eq!(added.map(drop), if expected { Ok(()) } else { Err(Error::NoEntry) });
    }
    assert_eq!(lines(&watcher), ["IGNORED"]);
}

#[test]
fn dropped_watcher_watches_nothing() {
    let (vfs, context) = tree();
    let (dropped, left) = (vfs.watcher(WatcherOptions::new()), vfs.watcher(WatcherOptions::new()));
    for watcher in [&dropped, &left] {
        watch(watcher, &context, "/", WatchEvents::CREATE);
    }
    drop(dropped);
    make(&vfs, &context, "/f");
    assert_eq!(lines(&left), ["CREATE f"]);
}

#[test]
fn reader_waits_for_an_event() {
    let (vfs, context) = tree();
    let watcher = vfs.watcher(WatcherOptions::new());
    watch(&watcher, &context, "/", WatchEvents::CREATE);
    assert_eq!(watcher.recv_timeout(Duration::from_millis(1)), None);
    thread::scope(|scope| {
        let reader = scope.spawn(|| watcher.recv_timeout(Duration::MAX));
        thread::sleep(Duration::from_millis(5));
        make(&vfs, &context, "/f");
        assert_eq!(reader.join().expect("no panic").map(|event| event.path), Some(b"f".to_vec()));
    });
}

/// Threads make and remove the same names. The events of a name are those of a name: it is made,
/// then removed, and so on. Seen to fail: events that are queued after the lock is released.
#[test]
fn events_of_a_name_are_in_the_order_of_its_changes() {
    const NAMES: usize = 2;
    let (vfs, context) = tree();
    let watcher = vfs.watcher(WatcherOptions::new().capacity(usize::MAX));
    let wanted = WatchEvents::CREATE | WatchEvents::DELETE | WatchEvents::MOVE;
    watcher.add_recursive(&context, At::Cwd, "/", wanted, FOLLOW).expect("watched");
    thread::scope(|scope| {
        for thread in 0..4 {
            let (vfs, context) = (&vfs, &context);
            scope.spawn(move || {
                for round in 0..3000 {
                    let (one, other) = (format!("/{}", round % NAMES), format!("/{}", (round + 1) % NAMES));
                    let _ = match (thread + round) % 3 {
                        0 => vfs.mknod(context, At::Cwd, &one, 0o100_644, 0).map(drop),
                        1 => vfs.unlink(context, At::Cwd, &one),
                        _ => vfs.rename(context, At::Cwd, &one, At::Cwd, &other, RenameFlags::NOREPLACE),
                    };
                }
            });
        }
    });
    let mut is_there = [false; NAMES];
    let mut changes = 0;
    while let Some(event) = watcher.try_recv() {
        let name: usize = String::from_utf8(event.path.clone()).expect("text").parse().expect("a number");
        let appears = event.events.intersects(WatchEvents::CREATE | WatchEvents::MOVED_TO);
        assert_ne!(is_there[name], appears, "{event:?} after {changes} changes");
        is_there[name] = appears;
        changes += 1;
    }
    assert!(changes > 1000, "{changes}");
}

/// A directory moves to and fro between two others while files are made in it. The path in each
/// event was a path of the file.
#[test]
fn paths_are_of_one_instant() {
    let (vfs, context) = tree();
    for dir in ["/a", "/b", "/a/x", "/a/x/y"] {
        vfs.mkdir(&context, At::Cwd, dir, 0o755).expect("made");
    }
    let deep = vfs.lookup(&context, At::Cwd, "/a/x/y", FOLLOW).expect("there");
    let watcher = vfs.watcher(WatcherOptions::new().capacity(usize::MAX));
    watcher.add_recursive(&context, At::Cwd, "/", WatchEvents::CREATE, FOLLOW).expect("watched");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !done.load(Ordering::Relaxed) {
                let (from, to) = [("/a/x", "/b/z"), ("/b/z", "/a/x")][round % 2];
                vfs.rename(&context, At::Cwd, from, At::Cwd, to, RenameFlags::empty()).expect("moved");
                round += 1;
            }
        });
        for file in 0..5000 {
            drop(vfs.mknod(&context, At::Dir(&deep), file.to_string(), 0o100_644, 0).expect("made"));
        }
        done.store(true, Ordering::Relaxed);
    });
    let mut seen = [0, 0];
    for file in 0..5000 {
        let path = watcher.try_recv().expect("an event for each file").path;
        let possible = ["a/x/y", "b/z/y"].map(|dir| format!("{dir}/{file}"));
        let place = possible.iter().position(|possible| possible.as_bytes() == path);
        seen[place.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&path)))] += 1;
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

/// A server that makes the changes of its clients need not be told of them. Another one is.
#[test]
fn subscriber_is_told_of_what_it_has_not_changed_itself() {
    let (vfs, context) = tree();
    let told: [Arc<Mutex<Vec<String>>>; 2] = Default::default();
    let subscribers: [Arc<Subscriber>; 2] = told.each_ref().map(|told| {
        let told = told.clone();
        let subscriber: Arc<Subscriber> = Arc::new(move |change: ChangeByOthers<'_>| {
            told.lock().expect("no panic").push(match change {
                ChangeByOthers::Name { dir, name } => format!("{dir}/{}", String::from_utf8_lossy(name)),
                change => format!("{change:?}"),
            });
        });
        subscriber
    });
    let subscriptions = subscribers.each_ref().map(|subscriber| vfs.subscribe_in_process(subscriber.clone()));
    let take = || told.each_ref().map(|told| std::mem::take(&mut *told.lock().expect("no panic")));
    let root = vfs.root().ino();
    Vfs::as_subscriber(&subscribers[0], || make(&vfs, &context, "/a"));
    assert_eq!(take(), [vec![], vec![format!("{root}/a")]]);
    let ino = vfs.lookup(&context, At::Cwd, "/a", FOLLOW).expect("there").ino();
    vfs.chmod(&context, At::Cwd, "/a", 0o600, FOLLOW).expect("changed");
    let changed = || vec![format!("Inode({ino})")];
    assert_eq!(take(), [changed(), changed()]);
    vfs.set_inode_flags(&context, At::Cwd, "/a", InodeFlags::NODUMP, FOLLOW).expect("changed");
    assert_eq!(take(), [changed(), changed()]);
    drop(subscriptions);
    vfs.unlink(&context, At::Cwd, "/a").expect("removed");
    assert_eq!(take(), [const { Vec::<String>::new() }; 2]);
}
