//! A change that the store is just being told of, and the permission for it, which is taken away.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use pando_mapfs::{Call, MapFs, MapHandle, MapOptions};
use pando_vfs::{
    At, Context, Credentials, Error, FileKind, RenameFlags, Result, SetAttr, Vfs, Walk,
    introspection::{is_locked, permissions_wait_for_changes, waiting_for_permissions},
};

use crate::support::{Used, Watched, mounted, names};

/// Takes the permission to change `/d` away while the store is being told of a change of it: that change is the earlier
/// one, so it is done when the chmod is.
fn closed_while(call: Call, change: impl Fn(&Vfs, &Context) -> Result<()> + Sync, then: &[&str]) {
    until(|| is_closed_while(call, &change, then));
}

/// False if this tree shows nothing: locks are striped, and one that the change has is also that of the directory's attributes, so
/// the chmod waits for that.
fn is_closed_while(call: Call, change: impl Fn(&Vfs, &Context) -> Result<()> + Sync, then: &[&str]) -> bool {
    let (vfs, root, store) = mounted(MapOptions::default());
    let user = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    let new_file = |name| vfs.mknod(&root, At::Cwd, name, FileKind::File.to_mode() | 0o600, 0).map(drop);
    let dir = vfs.mkdir(&root, At::Cwd, "/d", 0o755).expect("made");
    new_file("/d/old").expect("made");
    vfs.chmod(&root, At::Cwd, "/d", 0o777, Walk::empty()).expect("opened");
    let parked = store.park(call);
    thread::scope(|scope| {
        let changer = scope.spawn(|| change(&vfs, &user));
        parked.reached();
        if is_locked(&dir, None) {
            return false;
        }
        let told = store.calls(Call::Setattr);
        let closer = scope.spawn(|| {
            vfs.chmod(&root, At::Cwd, "/d", 0o755, Walk::empty()).expect("closed");
            let mut left = names(&vfs, &root, "/d");
            left.sort_unstable();
            left
        });
        until(|| permissions_wait_for_changes(&vfs) || store.calls(Call::Setattr) > told);
        let early = store.calls(Call::Setattr) > told;
        drop(parked);
        assert!(!early, "{call:?}: a change was under way after permission for it was taken away");
        assert_eq!(closer.join().expect("no panic"), then, "{call:?}");
        assert_eq!(changer.join().expect("no panic"), Ok(()), "{call:?}: permitted before");
        assert!(change(&vfs, &user).is_err(), "{call:?}: permitted afterwards");
        true
    })
}

fn until(done: impl Fn() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

#[test]
fn permission_is_taken_away_after_what_is_under_way() {
    let mode = FileKind::File.to_mode() | 0o600;
    closed_while(Call::Create, |vfs, user| vfs.mknod(user, At::Cwd, "/d/new", mode, 0).map(drop), &["new", "old"]);
    closed_while(Call::Remove, |vfs, user| vfs.unlink(user, At::Cwd, "/d/old"), &[]);
    closed_while(
        Call::Rename,
        |vfs, user| vfs.rename(user, At::Cwd, "/d/old", At::Cwd, "/d/new", RenameFlags::empty()),
        &["new"],
    );
}

/// A chmod that seems to add takes away after all: while it waits, it is noticed that others have opened the directory.
#[test]
fn what_a_chmod_takes_away_is_judged_by_what_it_replaces() {
    until(is_judged_by_what_it_replaces);
}

/// False if this tree shows nothing, as above.
fn is_judged_by_what_it_replaces() -> bool {
    let driver = MapFs::new(MapOptions::default());
    let (store, visits) = (driver.handle(), Arc::<AtomicUsize>::default());
    let counted = visits.clone();
    let count = move |used| {
        counted.fetch_add(usize::from(used == Used::Backing), SeqCst);
    };
    let vfs = Vfs::new(Watched(driver, count)).expect("a new tree");
    let (root, user) =
        (Context::new(&vfs, Credentials::root()), Context::new(&vfs, Credentials::user(1000, 1000, &[])));
    let dir = vfs.mkdir(&root, At::Cwd, "/d", 0o750).expect("made");
    let ino = store.lookup(MapHandle::ROOT, "d").expect("works").expect("made");
    store.chmod(ino, 0o777).expect("opened by others");
    let noticing = store.park(Call::Getattr);
    thread::scope(|scope| {
        let (vfs, root, user, dir) = (&vfs, &root, &user, &dir);
        let noticer = scope.spawn(move || vfs.lookup(root, At::Dir(dir), "x", Walk::empty()).map(drop));
        noticing.reached();
        // When it comes to the backing it has looked at what is known now, if that is what it judges by.
        let before = visits.load(SeqCst);
        let to = SetAttr::new().mode(0o770);
        let closer = scope.spawn(move || vfs.setattr(root, dir, &to).map(|stat| (stat.mode, names(vfs, root, "/d"))));
        until(|| visits.load(SeqCst) > before);
        let telling = store.park(Call::Setattr);
        drop(noticing);
        telling.reached();
        if ["x", "new"].iter().any(|name| is_locked(dir, Some(name))) {
            return false;
        }
        noticer.join().expect("no panic").expect_err("not there");
        // What is permitted too early ends after the chmod.
        let making = store.park(Call::Create);
        let mode = FileKind::File.to_mode() | 0o600;
        let maker = scope.spawn(move || vfs.mknod(user, At::Dir(dir), "new", mode, 0).map(drop));
        until(|| waiting_for_permissions(vfs) == 1 || store.calls(Call::Create) > 1);
        drop(telling);
        assert_eq!(closer.join().expect("no panic"), Ok((0o770, Vec::new())));
        drop(making);
        assert_eq!(maker.join().expect("no panic"), Err(Error::Access), "made after it was forbidden");
        true
    })
}

/// Who asks the store for a directory's attributes while a subdirectory comes or goes, which the store knows and the cache does
/// not yet, does not count it twice.
#[test]
fn a_subdirectory_that_comes_or_goes_is_counted_once() {
    type Change = fn(&Vfs, &Context) -> Result<()>;
    let changes: [(Call, Change, u32); 2] = [
        (Call::Remove, |vfs, root| vfs.rmdir(root, At::Cwd, "/d/gone"), 3),
        (Call::Create, |vfs, root| vfs.mkdir(root, At::Cwd, "/d/new", 0o755).map(drop), 5),
    ];
    for (call, change, nlink) in changes {
        until(|| is_counted_once(call, change, nlink));
    }
}

/// False if this tree shows nothing, as above.
fn is_counted_once(call: Call, change: fn(&Vfs, &Context) -> Result<()>, nlink: u32) -> bool {
    let (vfs, root, store) = mounted(MapOptions::default());
    let [dir, ..] = ["/d", "/d/kept", "/d/gone"].map(|path| vfs.mkdir(&root, At::Cwd, path, 0o755).expect("made"));
    // A chown of what is setgid asks for the mode that others may have given it.
    vfs.chmod(&root, At::Cwd, "/d", 0o2775, Walk::empty()).expect("changed");
    let parked = store.park_answer(call);
    let shown = thread::scope(|scope| {
        let changer = scope.spawn(|| change(&vfs, &root));
        parked.reached();
        if is_locked(&dir, None) {
            return false;
        }
        let owner = scope.spawn(|| vfs.chown(&root, At::Cwd, "/d", Some(1), None, Walk::empty()));
        until(|| permissions_wait_for_changes(&vfs) || owner.is_finished());
        drop(parked);
        assert_eq!((changer.join().expect("no panic"), owner.join().expect("no panic")), (Ok(()), Ok(())));
        true
    });
    let now = vfs.stat(&root, At::Cwd, "/d", Walk::empty()).expect("there").nlink;
    assert!(!shown || now == nlink, "{call:?}: {now}");
    shown
}
