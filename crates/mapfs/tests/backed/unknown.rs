//! Changes whose outcome the store does not know, because a message was lost. The namespace asks
//! for the state before it answers.

use pando_mapfs::{Call, Fault, MapHandle, MapOptions, Message};
use pando_vfs::{
    At, Context, Error, OpenFlags, RenameFlags, Result, SetAttr, SetTime, Timestamp, Vfs, Walk, XattrFlags,
};

use crate::{
    random::{carry_out, op},
    support::{Rng, assert_same, evict_down_to, mounted, seed, seen, stored},
};

/// Operations in the random test.
const OPERATIONS: usize = 3000;

/// An operation that makes one change, and the call by which the namespace asks for its outcome.
type Step = (&'static str, Call, fn(&Vfs, &Context) -> Result<()>);

const CWD: At<'static> = At::Cwd;

fn time(seconds: i64) -> SetTime {
    SetTime::At(Timestamp::from_parts(seconds, 7))
}

/// One operation for each kind of change and of result, in an order in which each succeeds.
const STEPS: [Step; 16] = [
    ("mkdir", Call::Lookup, |vfs, root| vfs.mkdir(root, CWD, "/d", 0o755).map(drop)),
    ("mkdir below", Call::Lookup, |vfs, root| vfs.mkdir(root, CWD, "/d/e", 0o750).map(drop)),
    ("open", Call::Lookup, |vfs, root| {
        vfs.open(root, CWD, "/f", OpenFlags::RDWR | OpenFlags::CREAT | OpenFlags::EXCL, 0o644).map(drop)
    }),
    ("symlink", Call::Lookup, |vfs, root| vfs.symlink(root, "/f", CWD, "/s").map(drop)),
    ("link", Call::Lookup, |vfs, root| vfs.link(root, CWD, "/f", CWD, "/d/g", Walk::empty()).map(drop)),
    ("chmod", Call::Getattr, |vfs, root| vfs.chmod(root, CWD, "/f", 0o600, Walk::empty())),
    ("chown", Call::Getattr, |vfs, root| vfs.chown(root, CWD, "/f", Some(3), None, Walk::empty())),
    ("utimens", Call::Getattr, |vfs, root| vfs.utimens(root, CWD, "/f", time(1), time(2), Walk::empty())),
    ("setxattr", Call::Xattrs, |vfs, root| {
        vfs.setxattr(root, CWD, "/f", "user.k", "v", XattrFlags::CREATE, Walk::empty())
    }),
    ("removexattr", Call::Xattrs, |vfs, root| vfs.removexattr(root, CWD, "/f", "user.k", Walk::empty())),
    ("rename", Call::Lookup, |vfs, root| vfs.rename(root, CWD, "/s", CWD, "/t", RenameFlags::NOREPLACE)),
    ("rename over", Call::Lookup, |vfs, root| vfs.rename(root, CWD, "/t", CWD, "/d/g", RenameFlags::empty())),
    ("whiteout", Call::Lookup, |vfs, root| vfs.rename(root, CWD, "/d/g", CWD, "/w", RenameFlags::WHITEOUT)),
    ("exchange", Call::Lookup, |vfs, root| vfs.rename(root, CWD, "/d/e", CWD, "/f", RenameFlags::EXCHANGE)),
    ("unlink", Call::Lookup, |vfs, root| vfs.unlink(root, CWD, "/d/e")),
    ("rmdir", Call::Lookup, |vfs, root| vfs.rmdir(root, CWD, "/f")),
];

/// Loses this message of each change from now on.
fn lose(store: &MapHandle, message: Message) {
    store.inject(Fault::Lost { message, call: None, one_in: 1, seed: 0 });
}

/// Seen to fail: an unknown outcome that counts as a refusal.
#[test]
fn change_whose_reply_is_lost_succeeds() {
    let (vfs, root, store) = mounted(MapOptions::default());
    for (what, _, step) in STEPS {
        let (before, failed) = (stored(&store), store.calls_failed());
        lose(&store, Message::Reply);
        assert_eq!(step(&vfs, &root), Ok(()), "{what}");
        store.clear_faults();
        assert_eq!(store.calls_failed(), failed + 1, "{what}");
        assert!(stored(&store) != before || what == "utimens", "{what}");
        assert_same(&seen(&vfs, &root), &stored(&store), what);
    }
    evict_down_to(&vfs, &store, 1);
}

/// Seen to fail: an unknown outcome that counts as success.
#[test]
fn change_whose_request_is_lost_fails_and_changes_nothing() {
    let (vfs, root, store) = mounted(MapOptions::default());
    for (what, _, step) in STEPS {
        let before = stored(&store);
        lose(&store, Message::Request);
        assert_eq!(step(&vfs, &root), Err(Error::Io), "{what}");
        store.clear_faults();
        assert_same(&stored(&store), &before, what);
        assert_same(&seen(&vfs, &root), &before, what);
        assert_eq!(step(&vfs, &root), Ok(()), "{what} the second time");
    }
    evict_down_to(&vfs, &store, 1);
}

/// While the store cannot say what has happened, the caller gets its error. After that the cache
/// shows the state of the store, whichever message was lost.
///
/// Seen to fail: the cache keeps what it had.
#[test]
fn cache_asks_again_if_the_outcome_stays_unknown() {
    for message in [Message::Request, Message::Reply] {
        let (vfs, root, store) = mounted(MapOptions::default());
        for (what, question, step) in STEPS {
            let what = format!("{what}, {message:?} lost");
            // With everything cached, the first call that fails is the question about the outcome.
            assert_same(&seen(&vfs, &root), &stored(&store), &what);
            for path in ["/d", "/d/e", "/d/g", "/f", "/s", "/t", "/w"] {
                let stat = vfs.stat(&root, CWD, path, Walk::NOFOLLOW);
                assert!(matches!(stat, Ok(_) | Err(Error::NoEntry)), "{path}: {stat:?}");
            }
            let failed = store.calls_failed();
            lose(&store, message);
            store.inject(Fault::Nth { call: Some(question), after: 0, error: Error::Quota });
            assert_eq!(step(&vfs, &root), Err(Error::Quota), "{what}");
            store.clear_faults();
            assert_eq!(store.calls_failed(), failed + 2, "{what}");
            assert_same(&seen(&vfs, &root), &stored(&store), &what);
            if message == Message::Request {
                assert_eq!(step(&vfs, &root), Ok(()), "{what}");
            }
        }
        evict_down_to(&vfs, &store, 1);
    }
}

/// A store that has lost the connection answers nothing. Neither does the cache then.
#[test]
fn nothing_is_answered_from_the_cache_while_an_outcome_is_unknown() {
    let (vfs, root, store) = mounted(MapOptions::default());
    vfs.mkdir(&root, CWD, "/d", 0o755).expect("made");
    let cut_off = || store.inject(Fault::Random { call: None, one_in: 1, seed: 0, error: Error::Quota });
    lose(&store, Message::Reply);
    store.inject(Fault::Nth { call: Some(Call::Lookup), after: 0, error: Error::Quota });
    assert_eq!(vfs.rmdir(&root, CWD, "/d"), Err(Error::Quota));
    cut_off();
    assert_eq!(vfs.stat(&root, CWD, "/d", Walk::empty()).err(), Some(Error::Quota));
    store.clear_faults();
    assert_eq!(vfs.stat(&root, CWD, "/d", Walk::empty()).err(), Some(Error::NoEntry));
}

/// Neither is a file that is open, nor a directory that is.
///
/// Seen to fail: the attributes of a dentry are never asked for again.
#[test]
fn open_file_is_asked_for_again_after_an_unknown_outcome() {
    let (vfs, root, store) = mounted(MapOptions::default());
    let file = vfs.open(&root, CWD, "/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("made");
    let dir = vfs.mkdir(&root, CWD, "/d", 0o755).expect("made");
    for (path, dentry) in [("/f", file.dentry()), ("/d", &dir)] {
        assert!(vfs.stat(&root, CWD, path, Walk::empty()).is_ok(), "what is cached is up to date");
        lose(&store, Message::Reply);
        store.inject(Fault::Nth { call: Some(Call::Getattr), after: 0, error: Error::Quota });
        assert_eq!(vfs.chmod(&root, CWD, path, 0o700, Walk::empty()), Err(Error::Quota), "{path}");
        store.inject(Fault::Nth { call: Some(Call::Lookup), after: 0, error: Error::NoSpace });
        assert_eq!(vfs.getattr(dentry).map(|stat| stat.mode), Err(Error::NoSpace), "{path}");
        store.clear_faults();
        assert_eq!(vfs.getattr(dentry).map(|stat| stat.mode), Ok(0o700), "{path}");
    }
    // No directory has a name that leads to it.
    vfs.unlink(&root, CWD, "/f").expect("removed");
    lose(&store, Message::Reply);
    store.inject(Fault::Nth { call: Some(Call::Getattr), after: 0, error: Error::Quota });
    assert_eq!(vfs.setattr(&root, file.dentry(), &SetAttr::new().mode(0o600)).err(), Some(Error::Quota));
    store.clear_faults();
    assert_eq!(vfs.getattr(file.dentry()).map(|stat| stat.mode), Ok(0o600), "removed, and still open");
}

/// Runs `operation`, which loses `message`. Others make `theirs` before the outcome is asked for.
fn others_are_faster(
    message: Message,
    (vfs, root, store): &(Vfs, Context, MapHandle),
    operation: fn(&Vfs, &Context) -> Result<()>,
    theirs: impl FnOnce(),
) -> Result<()> {
    assert_same(&seen(vfs, root), &stored(store), "at first");
    for path in ["/a/f", "/a/d", "/b/f", "/b/d", "/b/g"] {
        let stat = vfs.stat(root, CWD, path, Walk::NOFOLLOW);
        assert!(matches!(stat, Ok(_) | Err(Error::NoEntry)), "{path}: {stat:?}");
    }
    lose(store, message);
    let question = store.park(Call::Lookup);
    let result = std::thread::scope(|scope| {
        let operation = scope.spawn(|| operation(vfs, root));
        question.reached();
        theirs();
        drop(question);
        operation.join().expect("no panic")
    });
    store.clear_faults();
    assert_same(&seen(vfs, root), &stored(store), "afterwards");
    result
}

/// A tree with `/a/f`, `/a/d` and `/b`, and the numbers of `/a` and `/b`.
fn tree_of_two() -> ((Vfs, Context, MapHandle), u64, u64) {
    let tree = mounted(MapOptions::default());
    let (vfs, root, _) = &tree;
    let [a, b] = ["/a", "/b"].map(|path| vfs.mkdir(root, CWD, path, 0o755).expect("made").ino());
    vfs.mkdir(root, CWD, "/a/d", 0o755).expect("made");
    drop(vfs.open(root, CWD, "/a/f", OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("made"));
    (tree, a, b)
}

/// Seen to fail: the old name stays in the cache, since others report only the new place.
#[test]
fn renamed_file_that_others_move_on_does_not_stay_at_its_old_name() {
    let (tree, _, b) = tree_of_two();
    let store = tree.2.clone();
    let rename: fn(&Vfs, &Context) -> Result<()> =
        |vfs, root| vfs.rename(root, CWD, "/a/f", CWD, "/b/g", RenameFlags::empty());
    let moved_on = || store.rename((b, b"g"), (b, b"h"), RenameFlags::empty()).expect("moved");
    assert_eq!(others_are_faster(Message::Reply, &tree, rename, moved_on), Err(Error::Io));
    let stat = tree.0.stat(&tree.1, CWD, "/a/f", Walk::empty());
    assert_eq!(stat.err(), Some(Error::NoEntry));
}

/// Others make the same rename without a whiteout. The caller must not take it for its own.
#[test]
fn whiteout_that_was_not_made_is_not_reported_as_made() {
    let (tree, a, b) = tree_of_two();
    let store = tree.2.clone();
    let rename: fn(&Vfs, &Context) -> Result<()> =
        |vfs, root| vfs.rename(root, CWD, "/a/f", CWD, "/b/g", RenameFlags::WHITEOUT);
    let moved = || store.rename((a, b"f"), (b, b"g"), RenameFlags::empty()).expect("moved");
    assert_eq!(others_are_faster(Message::Request, &tree, rename, moved), Err(Error::Io));
}

/// Seen to fail: the name is gone, so the directory counts as removed, and nothing can be made in
/// it.
#[test]
fn directory_that_others_move_is_not_taken_for_removed() {
    let (tree, a, b) = tree_of_two();
    let store = tree.2.clone();
    let (vfs, root, _) = &tree;
    let dir = vfs.lookup(root, CWD, "/a/d", Walk::empty()).expect("there");
    let moved = || store.rename((a, b"d"), (b, b"d"), RenameFlags::empty()).expect("moved");
    let removed = others_are_faster(Message::Request, &tree, |vfs, root| vfs.rmdir(root, CWD, "/a/d"), moved);
    assert_eq!(removed, Err(Error::Io));
    assert_eq!(vfs.mkdir(root, At::Dir(&dir), "e", 0o755).map(drop), Ok(()));
    assert_eq!(vfs.stat(root, CWD, "/b/d", Walk::empty()).map(|stat| stat.ino), Ok(dir.ino()));
    drop(dir);
    evict_down_to(vfs, &store, 1);
}

/// Seen to fail: the name is gone, so the file counts as removed, and has no links.
#[test]
fn file_that_others_move_is_not_taken_for_removed() {
    let (tree, a, b) = tree_of_two();
    let store = tree.2.clone();
    let (vfs, root, _) = &tree;
    let file = vfs.open(root, CWD, "/a/f", OpenFlags::RDWR, 0).expect("opens");
    let moved = || store.rename((a, b"f"), (b, b"f"), RenameFlags::empty()).expect("moved");
    let removed = others_are_faster(Message::Request, &tree, |vfs, root| vfs.unlink(root, CWD, "/a/f"), moved);
    assert_eq!(removed, Err(Error::Io));
    assert_eq!(vfs.getattr(file.dentry()).map(|stat| stat.nlink), Ok(1));
    drop(file);
    evict_down_to(vfs, &store, 1);
}

/// Others have made the name first, with the same owner and mode. The namespace must not take that
/// inode for its own.
#[test]
fn inode_of_another_user_is_not_taken_for_the_one_to_be_made() {
    let (vfs, root, store) = mounted(MapOptions::default());
    assert_eq!(vfs.stat(&root, CWD, "/d", Walk::empty()).err(), Some(Error::NoEntry));
    let create = store.park(Call::Create);
    std::thread::scope(|scope| {
        let made = scope.spawn(|| vfs.mkdir(&root, CWD, "/d", 0o755).map(drop));
        create.reached();
        store.create(MapHandle::ROOT, "d", pando_vfs::FileKind::Directory, 0o755).expect("made by others");
        lose(&store, Message::Reply);
        drop(create);
        assert_eq!(made.join().expect("no panic"), Err(Error::Io));
    });
    store.clear_faults();
    assert_same(&seen(&vfs, &root), &stored(&store), "afterwards");
    evict_down_to(&vfs, &store, 1);
}

#[test]
fn cache_and_store_agree_whatever_is_lost() {
    let mut rng = Rng(seed());
    let (vfs, root, store) = mounted(MapOptions::default());
    for _ in 0..OPERATIONS {
        let op = op(&mut rng);
        let message = if rng.below(2) == 0 { Message::Request } else { Message::Reply };
        store.inject(Fault::Lost { message, call: None, one_in: 2, seed: rng.next() });
        if rng.below(3) == 0 {
            store.inject(Fault::Nth { call: None, after: rng.below(5), error: Error::Quota });
        }
        if rng.below(4) == 0 {
            let evicted = vfs.evict(1 + rng.below(30) as usize);
            assert!(matches!(evicted, Ok(_) | Err(Error::Quota | Error::Io)), "{evicted:?}");
        }
        let before = stored(&store);
        let result = carry_out(&vfs, &root, &op);
        store.clear_faults();
        if result == Err(Error::Io) {
            assert_same(&stored(&store), &before, &format!("{op:?} has failed"));
        }
        assert_same(&seen(&vfs, &root), &stored(&store), &format!("after {op:?}: {result:?}"));
    }
    assert!(store.calls_failed() > 200, "only {} failures", store.calls_failed());
    evict_down_to(&vfs, &store, 1);
}
