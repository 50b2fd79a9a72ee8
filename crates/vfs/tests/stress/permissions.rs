//! A revoked permission is gone, even for operations that are in progress.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pando_vfs::{At, Context, Credentials, Error, InodeFlags, RenameFlags, Walk, XattrFlags};

use crate::{
    acl::{ACCESS, acl},
    harness::{alone, run_workers, scale, seed},
    tree::{FOLLOW, NEW, Tree},
};

const THREADS: usize = 16;
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A user's names are made and removed in a directory while its owner opens and closes it. Once a
/// chmod or chown has closed the directory, nothing in it changes, whatever was in progress.
///
/// Seen to fail:
/// - the permission checked again right before the change, and no wait for threads that have
///   checked
/// - a chmod that waits before it announces the revocation
/// - a chmod that waits for all locks but a few
/// - a change that does not check for a revocation
#[test]
fn p2_no_change_after_permission_is_revoked() {
    let _alone = alone();
    let (tree, seed, rounds) = (Tree::new(), seed(), scale(6000));
    let vfs = &tree.vfs;
    tree.mkdir("/d");
    vfs.chmod(&tree.context, At::Cwd, "/d", 0o755, FOLLOW).expect("closed");
    let user = Context::new(vfs, Credentials::user(1000, 1000, &[]));
    let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    run_workers("p2_no_change_after_permission_is_revoked", THREADS, seed, |me| {
        if me.id == 0 {
            for round in 0..rounds {
                if !me.go_on() {
                    break;
                }
                // By its mode, its owner, its flags, or its ACL.
                let close = |closed: bool| match round % 4 {
                    0 => vfs.chmod(&tree.context, At::Cwd, "/d", if closed { 0o755 } else { 0o777 }, FOLLOW),
                    1 => vfs.chown(&tree.context, At::Cwd, "/d", Some(if closed { 0 } else { 1000 }), None, FOLLOW),
                    2 if closed => vfs.set_inode_flags(&tree.context, At::Cwd, "/d", InodeFlags::IMMUTABLE, FOLLOW),
                    2 => vfs.chmod(&tree.context, At::Cwd, "/d", 0o777, FOLLOW),
                    _ if closed => vfs.removexattr(&tree.context, At::Cwd, "/d", ACCESS, FOLLOW),
                    _ => {
                        let value = acl(0o755, 1000, 7);
                        vfs.setxattr(&tree.context, At::Cwd, "/d", ACCESS, value, XattrFlags::empty(), FOLLOW)
                    }
                };
                close(false).expect("opened");
                std::thread::yield_now();
                close(true).expect("closed");
                if round % 4 == 3 {
                    // It stayed as the mask had made it.
                    vfs.chmod(&tree.context, At::Cwd, "/d", 0o755, FOLLOW).expect("changed");
                }
                let then = tree.list(At::Cwd, "/d");
                std::thread::yield_now();
                assert_eq!(tree.list(At::Cwd, "/d"), then, "something changed after permission was taken away");
                if round % 4 == 2 {
                    vfs.set_inode_flags(&tree.context, At::Cwd, "/d", InodeFlags::empty(), FOLLOW).expect("cleared");
                    vfs.chmod(&tree.context, At::Cwd, "/d", 0o755, FOLLOW).expect("closed");
                }
            }
            over.store(true, Ordering::Relaxed);
        }
        while me.go_on() && !over.load(Ordering::Relaxed) {
            let [old, new] = [0; 2].map(|_| format!("/d/{}", me.rng.pick(&NAMES)));
            let result = match me.rng.below(8) {
                0 | 1 => vfs.open(&user, At::Cwd, &new, NEW, 0o644).map(drop),
                2 => vfs.mkdir(&user, At::Cwd, &new, 0o755).map(drop),
                3 => vfs.link(&user, At::Cwd, &old, At::Cwd, &new, Walk::NOFOLLOW).map(drop),
                4 => vfs.rmdir(&user, At::Cwd, &old),
                5 => vfs.rename(&user, At::Cwd, &old, At::Cwd, &new, RenameFlags::empty()),
                _ => vfs.unlink(&user, At::Cwd, &old),
            };
            done.fetch_add(usize::from(result.is_ok()), Ordering::Relaxed);
            let expected = matches!(
                result,
                Ok(())
                    | Err(Error::Access
                        | Error::Exists
                        | Error::NoEntry
                        | Error::IsDirectory
                        | Error::NotDirectory
                        | Error::NotPermitted)
            );
            assert!(expected, "{result:?}");
        }
    });
    assert!(done.into_inner() > 0, "nothing was ever permitted");
    tree.remove_below("/");
    assert_eq!(tree.used(), (1, 0));
}

/// Files are removed, renamed and linked while one thread protects them. Once a file or directory
/// is append-only, it keeps its names, whatever was in progress.
///
/// Seen to fail: a change of flags that does not wait for the holders of names' locks.
#[test]
fn p2_protected_file_keeps_its_names() {
    let _alone = alone();
    let (tree, seed, rounds) = (Tree::new(), seed(), scale(6000));
    let (vfs, context) = (&tree.vfs, &tree.context);
    let (kept, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    run_workers("p2_protected_file_keeps_its_names", THREADS, seed, |me| {
        if me.id == 0 {
            for round in 0..rounds {
                if !me.go_on() {
                    break;
                }
                let path = format!("/{}", NAMES[round % 6]);
                let made = match round % 2 {
                    0 => vfs.mknod(context, At::Cwd, &path, 0o644, 0),
                    _ => vfs.mkdir(context, At::Cwd, &path, 0o755),
                };
                let Ok(dentry) = made else { continue };
                let set = |flags| {
                    vfs.set_inode_flags(context, At::Dir(&dentry), "", flags, Walk::EMPTY_PATH).expect("changed");
                };
                let look = || (dentry.stat().nlink, vfs.d_path(context, &dentry, 100));
                std::thread::yield_now();
                set(InodeFlags::APPEND);
                let then = look();
                std::thread::yield_now();
                assert_eq!(look(), then, "a name has changed after the file was protected");
                kept.fetch_add(usize::from(then.0 > 0), Ordering::Relaxed);
                set(InodeFlags::empty());
            }
            over.store(true, Ordering::Relaxed);
        }
        while me.go_on() && !over.load(Ordering::Relaxed) {
            let [old, new] = [0; 2].map(|_| format!("/{}", me.rng.pick(&NAMES)));
            let _ = match me.rng.below(5) {
                0 => vfs.unlink(context, At::Cwd, &old),
                1 => vfs.rmdir(context, At::Cwd, &old),
                2 => vfs.rename(context, At::Cwd, &old, At::Cwd, &new, RenameFlags::EXCHANGE),
                3 => vfs.link(context, At::Cwd, &old, At::Cwd, &new, Walk::NOFOLLOW).map(drop),
                _ => vfs.rename(context, At::Cwd, &old, At::Cwd, &new, RenameFlags::empty()),
            };
        }
    });
    assert!(kept.into_inner() > 0, "no file was there when it was protected");
    tree.remove_below("/");
    assert_eq!(tree.used(), (1, 0));
}
