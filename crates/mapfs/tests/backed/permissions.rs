//! A change that is being committed, while the permission for it is revoked.

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
    introspection::{is_locked, revocation_waits_for_changes, waiting_for_revocations},
};

use crate::support::{Used, Watched, mounted, names};

/// Revokes the permission to change `/d` while a change of it is being committed. That change is
/// the earlier one, so it is done when the chmod returns.
fn closed_while(call: Call, change: impl Fn(&Vfs, &Context) -> Result<()> + Sync, then: &[&str]) {
    until(|| is_closed_while(call, &change, then));
}

/// Returns false if this tree shows nothing. Locks are striped: if a lock of the change is also
/// that of the directory's attributes, the chmod waits for it.
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
        let before = store.calls(Call::Setattr);
        let closer = scope.spawn(|| {
            vfs.chmod(&root, At::Cwd, "/d", 0o755, Walk::empty()).expect("closed");
            let mut left = names(&vfs, &root, "/d");
            left.sort_unstable();
            left
        });
        until(|| revocation_waits_for_changes(&vfs) || store.calls(Call::Setattr) > before);
        let early = store.calls(Call::Setattr) > before;
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
fn revocation_waits_for_changes_in_progress() {
    let mode = FileKind::File.to_mode() | 0o600;
    closed_while(Call::Create, |vfs, user| vfs.mknod(user, At::Cwd, "/d/new", mode, 0).map(drop), &["new", "old"]);
    closed_while(Call::Remove, |vfs, user| vfs.unlink(user, At::Cwd, "/d/old"), &[]);
    closed_while(
        Call::Rename,
        |vfs, user| vfs.rename(user, At::Cwd, "/d/old", At::Cwd, "/d/new", RenameFlags::empty()),
        &["new"],
    );
}

/// A chmod seems only to add permissions. While it waits, the cache notices that others have opened
/// the directory, so the chmod revokes permissions after all.
#[test]
fn revocation_is_decided_by_the_replaced_mode() {
    until(is_decided_by_the_replaced_mode);
}

/// Returns false if this tree shows nothing, as above.
fn is_decided_by_the_replaced_mode() -> bool {
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
        // When it calls the driver for its backing, it has already read the cached mode, if it
        // decides by that.
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
        // A change that is permitted too early ends after the chmod.
        let making = store.park(Call::Create);
        let mode = FileKind::File.to_mode() | 0o600;
        let maker = scope.spawn(move || vfs.mknod(user, At::Dir(dir), "new", mode, 0).map(drop));
        until(|| waiting_for_revocations(vfs) == 1 || store.calls(Call::Create) > 1);
        drop(telling);
        assert_eq!(closer.join().expect("no panic"), Ok((0o770, Vec::new())));
        drop(making);
        assert_eq!(maker.join().expect("no panic"), Err(Error::Access), "made after it was forbidden");
        true
    })
}

/// A directory's attributes are loaded while a subdirectory is made or removed that the store
/// already knows and the cache does not. The subdirectory is not counted twice.
#[test]
fn subdirectory_is_counted_once_during_a_refresh() {
    type Change = fn(&Vfs, &Context) -> Result<()>;
    let changes: [(Call, Change, u32); 2] = [
        (Call::Remove, |vfs, root| vfs.rmdir(root, At::Cwd, "/d/gone"), 3),
        (Call::Create, |vfs, root| vfs.mkdir(root, At::Cwd, "/d/new", 0o755).map(drop), 5),
    ];
    for (call, change, nlink) in changes {
        until(|| is_counted_once(call, change, nlink));
    }
}

/// Returns false if this tree shows nothing, as above.
fn is_counted_once(call: Call, change: fn(&Vfs, &Context) -> Result<()>, nlink: u32) -> bool {
    let (vfs, root, store) = mounted(MapOptions::default());
    let [dir, ..] = ["/d", "/d/kept", "/d/gone"].map(|path| vfs.mkdir(&root, At::Cwd, path, 0o755).expect("made"));
    // A chown of a setgid directory first loads the mode, which others may have changed.
    vfs.chmod(&root, At::Cwd, "/d", 0o2775, Walk::empty()).expect("changed");
    let parked = store.park_reply(call);
    let shown = thread::scope(|scope| {
        let changer = scope.spawn(|| change(&vfs, &root));
        parked.reached();
        if is_locked(&dir, None) {
            return false;
        }
        let owner = scope.spawn(|| vfs.chown(&root, At::Cwd, "/d", Some(1), None, Walk::empty()));
        until(|| revocation_waits_for_changes(&vfs) || owner.is_finished());
        drop(parked);
        assert_eq!((changer.join().expect("no panic"), owner.join().expect("no panic")), (Ok(()), Ok(())));
        true
    });
    let now = vfs.stat(&root, At::Cwd, "/d", Walk::empty()).expect("there").nlink;
    assert!(!shown || now == nlink, "{call:?}: {now}");
    shown
}
