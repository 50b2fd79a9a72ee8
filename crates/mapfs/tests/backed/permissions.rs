//! A change that the store is just being told of, and the permission for it, which is taken away.

use std::{sync::mpsc, time::Duration};

use pando_mapfs::{Call, Delay, MapHandle, MapOptions, Wait};
use pando_vfs::{At, Context, Credentials, FileKind, RenameFlags, Result, SetAttr, Vfs, Walk};

use crate::support::{mounted, names};

/// Takes the permission to change `/d` away while the store is being told of a change of it: that change is the earlier
/// one, so it is done when the chmod is.
fn closed_while(call: Call, change: impl Fn(&Vfs, &Context) -> Result<()> + Sync, then: &[&str]) {
    let (vfs, root, store) = mounted(MapOptions::default());
    let user = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    let new_file = |name| vfs.mknod(&root, At::Cwd, name, FileKind::File.to_mode() | 0o600, 0).map(drop);
    vfs.mkdir(&root, At::Cwd, "/d", 0o755).expect("made");
    new_file("/d/old").expect("made");
    vfs.chmod(&root, At::Cwd, "/d", 0o777, Walk::empty()).expect("opened");
    let parked = store.park(call);
    std::thread::scope(|scope| {
        let changer = scope.spawn(|| change(&vfs, &user));
        parked.reached();
        let (done, is_done) = mpsc::channel();
        let (vfs, root, user) = (&vfs, &root, &user);
        scope.spawn(move || {
            vfs.chmod(root, At::Cwd, "/d", 0o755, Walk::empty()).expect("closed");
            let mut left = names(vfs, root, "/d");
            left.sort_unstable();
            done.send(left).expect("awaited");
        });
        let early = is_done.recv_timeout(Duration::from_millis(50)).is_ok();
        drop(parked);
        assert!(!early, "{call:?}: a change was under way after permission for it was taken away");
        assert_eq!(is_done.recv().expect("ends"), then, "{call:?}");
        assert_eq!(changer.join().expect("no panic"), Ok(()), "{call:?}: permitted before");
        assert!(change(vfs, user).is_err(), "{call:?}: permitted afterwards");
    });
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
    let (vfs, root, store) = mounted(MapOptions::default());
    let user = Context::new(&vfs, Credentials::user(1000, 1000, &[]));
    let dir = vfs.mkdir(&root, At::Cwd, "/d", 0o750).expect("made");
    let ino = store.lookup(MapHandle::ROOT, "d").expect("works").expect("made");
    store.chmod(ino, 0o777).expect("opened by others");
    // What is permitted too early ends after the chmod.
    store.set_delays(vec![Delay { call: Some(Call::Create), wait: Wait::Sleep(Duration::from_millis(200)) }]);
    let noticing = store.park(Call::Getattr);
    std::thread::scope(|scope| {
        let (vfs, root, user, dir) = (&vfs, &root, &user, &dir);
        let noticer = scope.spawn(move || vfs.lookup(root, At::Dir(dir), "x", Walk::empty()).map(drop));
        noticing.reached();
        let to = SetAttr { mode: Some(0o770), ..SetAttr::default() };
        let closer = scope.spawn(move || vfs.setattr(root, dir, &to).map(|stat| (stat.mode, names(vfs, root, "/d"))));
        // Long enough for it to have looked at what is known now; if it has not, this shows nothing.
        std::thread::sleep(Duration::from_millis(50));
        let telling = store.park(Call::Setattr);
        drop(noticing);
        noticer.join().expect("no panic").expect_err("not there");
        telling.reached();
        let mode = FileKind::File.to_mode() | 0o600;
        let maker = scope.spawn(move || vfs.mknod(user, At::Dir(dir), "new", mode, 0).map(drop));
        // It is refused, or made before the chmod returns.
        std::thread::sleep(Duration::from_millis(20));
        drop(telling);
        let then = closer.join().expect("no panic").expect("the owner may");
        let made = maker.join().expect("no panic").is_ok();
        assert_eq!((then.0, then.1.len()), (0o770, usize::from(made)), "made after it was forbidden");
        assert_eq!(names(vfs, root, "/d").len(), usize::from(made));
    });
}
