//! Walks that start at a directory of the path-prefix cache. Each change of the path since then is
//! noticed at once.
#![forbid(unsafe_code)]

use std::{
    sync::{Mutex, mpsc},
    thread,
};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    At, Charge, Context, Credentials, Error, NAME_MAX, OpenFlags, RenameFlags, Resolve, Result, Walk, XattrFlags,
};

#[path = "support/acl.rs"]
mod acl;
#[path = "support/tree.rs"]
mod tree;
#[path = "support/watched.rs"]
mod watched;

use acl::{ACCESS, acl};
use tree::{FOLLOW, NEW, RW, Tree};
use watched::{Used, Watched};

const FILE: &str = "/a/b/file";
/// How often a path is walked so that its prefix is cached for sure, and used.
const OFTEN: usize = 6;

/// `/a/b/file`, and another file `/z/b/file`.
struct Scene {
    tree: Tree,
    user: Context,
    here: u64,
    there: u64,
}

impl Scene {
    fn new() -> Self {
        let tree = Tree::new();
        for dir in ["/a", "/a/b", "/z", "/z/b"] {
            tree.mkdir(dir);
        }
        let (here, there) = (tree.touch(FILE), tree.touch("/z/b/file"));
        let user = Context::new(&tree.vfs, Credentials::user(1000, 1000, &[]));
        let scene = Self { tree, user, here, there };
        for _ in 0..OFTEN {
            assert_eq!(scene.ino(FILE), Ok(here));
        }
        scene
    }

    fn ino(&self, path: &str) -> Result<u64> {
        ino(self, &self.user, path)
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) {
        self.tree.vfs.rename(&self.tree.context, At::Cwd, from, At::Cwd, to, flags).expect("renamed");
    }

    fn chmod(&self, path: &str, mode: u32) {
        self.tree.vfs.chmod(&self.tree.context, At::Cwd, path, mode, FOLLOW).expect("changed");
    }
}

fn ino(scene: &Scene, context: &Context, path: &str) -> Result<u64> {
    scene.tree.vfs.stat(context, At::Cwd, path, FOLLOW).map(|stat| stat.ino)
}

/// Seen to fail: a prefix used without a check of the rename sequence.
#[test]
fn moved_directory_is_not_found_at_its_old_path() {
    let scene = Scene::new();
    for moved in ["/a", "/a/b"] {
        scene.rename(moved, "/elsewhere", RenameFlags::empty());
        assert_eq!(scene.ino(FILE), Err(Error::NoEntry), "{moved}");
        let (_, rest) = FILE.split_at(moved.len());
        assert_eq!(scene.ino(&format!("/elsewhere{rest}")), Ok(scene.here));
        scene.rename("/elsewhere", moved, RenameFlags::empty());
        assert_eq!(scene.ino(FILE), Ok(scene.here));
    }
}

#[test]
fn exchanged_directories_are_found_at_their_new_paths() {
    let scene = Scene::new();
    for (one, other) in [("/a", "/z"), ("/a/b", "/z/b")] {
        for (here, there) in [(scene.there, scene.here), (scene.here, scene.there)] {
            scene.rename(one, other, RenameFlags::EXCHANGE);
            assert_eq!((scene.ino(FILE), scene.ino("/z/b/file")), (Ok(here), Ok(there)));
        }
    }
}

/// Seen to fail: a prefix used although its directory was removed.
#[test]
fn recreated_directory_replaces_the_removed_one() {
    let scene = Scene::new();
    let (vfs, root) = (&scene.tree.vfs, &scene.tree.context);
    // As long as the directory is held open, the cache still finds it.
    let open =
        [("/a/b", OpenFlags::DIRECTORY), (FILE, RW)].map(|(path, flags)| vfs.open(root, At::Cwd, path, flags, 0));
    vfs.unlink(root, At::Cwd, FILE).expect("gone");
    assert_eq!(scene.ino(FILE), Err(Error::NoEntry));
    vfs.rmdir(root, At::Cwd, "/a/b").expect("gone");
    assert_eq!(scene.ino(FILE), Err(Error::NoEntry));
    scene.tree.mkdir("/a/b");
    let new = scene.tree.touch(FILE);
    assert_eq!(scene.ino(FILE), Ok(new));
    drop(open);
    // Replaced as an empty directory.
    vfs.unlink(root, At::Cwd, FILE).expect("gone");
    scene.rename("/z/b", "/a/b", RenameFlags::empty());
    assert_eq!(scene.ino(FILE), Ok(scene.there));
}

/// Seen to fail: a change of permissions that does not write the rename sequence.
#[test]
fn search_permission_is_checked_after_a_change() {
    let scene = Scene::new();
    for dir in ["/", "/a", "/a/b"] {
        scene.chmod(dir, 0o700);
        assert_eq!(scene.ino(FILE), Err(Error::Access), "{dir}");
        assert_eq!(ino(&scene, &scene.tree.context, FILE), Ok(scene.here), "root goes anywhere");
        scene.tree.vfs.chown(&scene.tree.context, At::Cwd, dir, Some(1000), None, FOLLOW).expect("given");
        assert_eq!(scene.ino(FILE), Ok(scene.here), "its owner");
        scene.tree.vfs.chown(&scene.tree.context, At::Cwd, dir, Some(0), None, FOLLOW).expect("taken");
        assert_eq!(scene.ino(FILE), Err(Error::Access), "{dir}");
        scene.chmod(dir, 0o755);
        assert_eq!(scene.ino(FILE), Ok(scene.here));
    }
}

/// Seen to fail: an ACL that is set or removed without the rename sequence.
#[test]
fn acl_that_keeps_a_user_out_is_noticed() {
    let scene = Scene::new();
    let (vfs, root) = (&scene.tree.vfs, &scene.tree.context);
    for dir in ["/", "/a", "/a/b"] {
        let set = |bits| {
            let value = acl(0o755, 1000, bits);
            vfs.setxattr(root, At::Cwd, dir, ACCESS, value, XattrFlags::empty(), FOLLOW).expect("set");
        };
        set(6);
        assert_eq!(scene.ino(FILE), Err(Error::Access), "{dir}");
        set(1);
        assert_eq!(scene.ino(FILE), Ok(scene.here));
        set(0);
        assert_eq!(scene.ino(FILE), Err(Error::Access), "{dir}");
        vfs.removexattr(root, At::Cwd, dir, ACCESS, FOLLOW).expect("removed");
        assert_eq!(scene.ino(FILE), Ok(scene.here));
    }
}

/// Seen to fail: the context's identity kept when its credentials, directories or rules change.
#[test]
fn changed_context_does_not_use_old_prefixes() {
    let scene = Scene::new();
    let (vfs, root) = (&scene.tree.vfs, &scene.tree.context);
    scene.chmod("/a", 0o750);
    vfs.chown(root, At::Cwd, "/a", Some(0), Some(1000), FOLLOW).expect("given");
    assert_eq!(scene.ino(FILE), Ok(scene.here), "by its group");
    let stranger = scene.user.clone().with_credentials(Credentials::user(2000, 2000, &[]));
    assert_eq!(ino(&scene, &stranger, FILE), Err(Error::Access));
    let trusted = stranger.clone().checked_by_caller(true);
    for _ in 0..OFTEN {
        assert_eq!(ino(&scene, &trusted, FILE), Ok(scene.here));
    }
    assert_eq!(ino(&scene, &trusted.clone().checked_by_caller(false), FILE), Err(Error::Access));
    assert_eq!(ino(&scene, &scene.user.clone(), FILE), Ok(scene.here));
    let beneath = scene.user.clone().with_resolve(Resolve::BENEATH);
    assert_eq!(ino(&scene, &beneath, FILE), Err(Error::CrossDevice), "an absolute path");
    assert_eq!(ino(&scene, &beneath, &FILE[1..]), Ok(scene.here));
    let mut moving = root.clone();
    for (dir, found) in [("/a", scene.here), ("/z", scene.there), ("/a", scene.here)] {
        vfs.chdir(&mut moving, At::Cwd, dir).expect("a directory");
        for _ in 0..OFTEN {
            assert_eq!(ino(&scene, &moving, "b/file"), Ok(found));
        }
    }
    let dirs = ["/a", "/z"].map(|dir| vfs.lookup(root, At::Cwd, dir, FOLLOW).expect("there"));
    for (dir, found) in dirs.iter().zip([scene.here, scene.there]) {
        vfs.chroot(&mut moving, At::Dir(dir), ".").expect("a directory");
        for _ in 0..OFTEN {
            assert_eq!(ino(&scene, &moving, "/b/file"), Ok(found));
        }
    }
}

/// This must hold whatever the number of walks and the sequence. Seen to fail: a prefix used in
/// another `Vfs`.
#[test]
fn context_of_another_vfs_is_refused() {
    let (scene, other) = (Scene::new(), Scene::new());
    let vfs = &other.tree.vfs;
    for _ in 0..OFTEN {
        assert_eq!(scene.ino(FILE), Ok(scene.here));
        assert_eq!(vfs.stat(&scene.user, At::Cwd, FILE, FOLLOW).map(drop), Err(Error::CrossDevice));
        assert_eq!(vfs.open(&scene.user, At::Cwd, FILE, NEW, 0o644).map(drop), Err(Error::CrossDevice));
    }
}

/// All kinds of last components after a cached prefix. The same operations run in two trees. In the
/// first, one context makes all operations. In the second, each operation has a new context. Seen
/// to fail: the last component looked up literally, symbolic links not followed, names not checked,
/// a trailing slash lost.
#[test]
fn last_component_resolves_as_without_the_cache() {
    const OPERATIONS: usize = 20_000;
    let long = [NAME_MAX, NAME_MAX + 1].map(|len| "x".repeat(len));
    let ends =
        ["one", "two", "three", "none", ".", "..", "", "one/", "two//", "three/.", "on\0e", "\0", &long[0], &long[1]];
    let targets = ["one", "./two", "three/", "none", "", "/a/b/one", "..", "../c/one"];
    let trees = [(), ()].map(|()| {
        let tree = Tree::new();
        for dir in ["/a", "/a/b", "/a/c"] {
            tree.mkdir(dir);
        }
        tree
    });
    let known = &trees[0].context;
    let mut random = 7_u64;
    let mut below = |n: usize| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) as usize % n
    };
    let mut outcomes = Vec::new();
    for _ in 0..OPERATIONS {
        let mut draw = || format!("/a/{}/{}", ["b", "c"][below(2)], ends[below(ends.len())]);
        let (path, other) = (draw(), draw());
        let (operation, target) = (below(12), targets[below(targets.len())]);
        let flags = [FOLLOW, Walk::NOFOLLOW][below(2)];
        let [of_known, of_new] = [&trees[0], &trees[1]].map(|tree| {
            let new = Context::new(&tree.vfs, Credentials::root());
            let (vfs, context) = (&tree.vfs, if std::ptr::eq(tree, &trees[0]) { known } else { &new });
            let open = |flags| vfs.open(context, At::Cwd, &path, flags, 0o644).map(|file| file.dentry().kind() as u64);
            match operation {
                0 => vfs.stat(context, At::Cwd, &path, flags).map(|stat| stat.kind as u64),
                1 => open(OpenFlags::empty()),
                2 => open(RW | OpenFlags::CREAT),
                3 => open(NEW),
                4 => vfs.mkdir(context, At::Cwd, &path, 0o755).map(|_| 0),
                5 => vfs.rmdir(context, At::Cwd, &path).map(|()| 0),
                6 => vfs.unlink(context, At::Cwd, &path).map(|()| 0),
                7 => vfs.symlink(context, target, At::Cwd, &path).map(|_| 0),
                8 => vfs.rename(context, At::Cwd, &path, At::Cwd, &other, RenameFlags::empty()).map(|()| 0),
                9 => vfs.link(context, At::Cwd, &path, At::Cwd, &other, flags).map(|_| 0),
                10 => vfs.readlink(context, At::Cwd, &path, FOLLOW).map(|target| target.len() as u64),
                _ => vfs.truncate(context, At::Cwd, &path, 1).map(|()| 0),
            }
        });
        assert_eq!(of_known, of_new, "{operation} of {path:?}, {other:?}, {target:?}, {flags:?}");
        if !outcomes.contains(&(operation, of_known)) {
            outcomes.push((operation, of_known));
        }
    }
    for operation in 0..12 {
        assert!(outcomes.iter().any(|(of, outcome)| *of == operation && outcome.is_ok()), "{operation}: {outcomes:?}");
    }
    for error in [
        Error::NoEntry,
        Error::Exists,
        Error::NotDirectory,
        Error::IsDirectory,
        Error::Loop,
        Error::Invalid,
        Error::NameTooLong,
    ] {
        assert!(outcomes.iter().any(|(_, outcome)| *outcome == Err(error)), "{error}: {outcomes:?}");
    }
}

/// Seen to fail: a mount that does not write the rename sequence.
#[test]
fn mount_on_a_prefix_is_crossed() {
    let scene = Scene::new();
    let (vfs, root) = (&scene.tree.vfs, &scene.tree.context);
    let mut inside = Err(Error::NoEntry);
    for dir in ["/a", "/a/b"] {
        vfs.mount(root, At::Cwd, dir, MemFs::new(MemOptions::default())).expect("mounted");
        for _ in 0..OFTEN {
            assert_eq!(scene.ino(FILE), Err(Error::NoEntry), "{dir}");
        }
        if dir == "/a" {
            scene.tree.mkdir("/a/b");
        }
        inside = inside.or(Ok(scene.tree.touch(FILE)));
        for _ in 0..OFTEN {
            assert!(scene.ino(FILE).is_ok_and(|ino| ino != scene.here));
        }
        vfs.umount(root, At::Cwd, dir).expect("unmounted");
        for _ in 0..OFTEN {
            assert_eq!(scene.ino(FILE), Ok(scene.here));
        }
    }
}

/// Seen to fail: the context's resolve rules ignored there.
#[test]
fn mount_on_the_last_component_is_crossed() {
    let scene = Scene::new();
    let (vfs, root) = (&scene.tree.vfs, &scene.tree.context);
    let confined = scene.user.clone().with_resolve(Resolve::NO_XDEV);
    scene.tree.mkdir("/a/b/dir");
    let walks = || [&scene.user, &confined].map(|context| ino(&scene, context, "/a/b/dir"));
    let below = walks()[0];
    for _ in 0..OFTEN {
        assert_eq!(walks(), [below, below]);
    }
    vfs.mount(root, At::Cwd, "/a/b/dir", MemFs::new(MemOptions::default())).expect("mounted");
    for _ in 0..OFTEN {
        let [free, confined] = walks();
        assert_ne!(free, below);
        assert_eq!(confined, Err(Error::CrossDevice));
    }
}

/// The same path from two directories. Seen to fail: such a prefix cached.
#[test]
fn paths_from_a_handle_are_not_cached() {
    let scene = Scene::new();
    let (vfs, root) = (&scene.tree.vfs, &scene.tree.context);
    let dirs = ["/a", "/z"].map(|dir| vfs.lookup(root, At::Cwd, dir, FOLLOW).expect("there"));
    for _ in 0..OFTEN {
        for (dir, found) in dirs.iter().zip([scene.here, scene.there]) {
            let stat = |path| vfs.stat(&scene.user, At::Dir(dir), path, FOLLOW).map(|stat| stat.ino);
            assert_eq!((stat("b/file"), stat(FILE)), (Ok(found), Ok(scene.here)));
        }
    }
}

/// A tree is shut down while a guest, whose root is in that tree, holds one of its directories and
/// walks. Prefixes that these walks find must be gone afterwards. The order in which the
/// directories are emptied is random, so the test repeats until a walk of the guest has succeeded
/// during the shutdown. Seen to fail: a prefix used in a tree that is being shut down.
#[test]
fn prefix_in_unmounted_tree_is_not_used() {
    type Ask = mpsc::Sender<mpsc::Sender<Result<u64>>>;
    static GUEST: Mutex<Option<Ask>> = Mutex::new(None);
    static MEANWHILE: Mutex<Vec<Result<u64>>> = Mutex::new(Vec::new());
    let ask = || {
        let guest = GUEST.lock().expect("no panic").clone();
        guest.map(|guest| {
            let (answers, answer) = mpsc::channel();
            guest.send(answers).expect("the guest answers");
            answer.recv().expect("an answer")
        })
    };
    let tree = Tree::new();
    let (vfs, root) = (&tree.vfs, &tree.context);
    tree.mkdir("/m");
    for _ in 0..200 {
        let besides = move |used| {
            if let Used::Release(Charge::Target(_)) = used {
                MEANWHILE.lock().expect("no panic").extend(ask());
            }
        };
        vfs.mount(root, At::Cwd, "/m", Watched(MemFs::new(MemOptions::default()), besides)).expect("mounted");
        tree.mkdir("/m/x");
        let y = tree.mkdir("/m/x/y");
        for n in 0..4 {
            vfs.symlink(root, "target", At::Cwd, format!("/m/{n}")).expect("made");
        }
        let top = vfs.lookup(root, At::Cwd, "/m", FOLLOW).expect("there");
        let guest = Context::rooted(&top, Credentials::root()).expect("a directory");
        let (asks, asked) = mpsc::channel::<mpsc::Sender<Result<u64>>>();
        *GUEST.lock().expect("no panic") = Some(asks);
        MEANWHILE.lock().expect("no panic").clear();
        let (guest, held) = (&guest, y.ino());
        thread::scope(|scope| {
            scope.spawn(move || {
                let stat = || vfs.stat(guest, At::Cwd, "/x/y/.", FOLLOW).map(|stat| stat.ino);
                assert!((0..OFTEN).all(|_| stat() == Ok(held)));
                while let Ok(answer) = asked.recv() {
                    answer.send(stat()).expect("awaited");
                }
            });
            // By now the prefix is cached.
            assert_eq!(ask(), Some(Ok(held)));
            vfs.umount(root, At::Cwd, "/m").expect("unmounted");
            let then = ask();
            // Otherwise the guest would wait for another question.
            *GUEST.lock().expect("no panic") = None;
            assert_eq!(then, Some(Err(Error::NoEntry)));
        });
        if MEANWHILE.lock().expect("no panic").contains(&Ok(held)) {
            return;
        }
    }
    panic!("no walk succeeded during an umount");
}

/// Seen to fail: each of the two cached.
#[test]
fn paths_with_symlinks_or_dotdot_are_not_cached() {
    let scene = Scene::new();
    let (vfs, root) = (&scene.tree.vfs, &scene.tree.context);
    for target in ["a", "z", "a"] {
        vfs.symlink(root, target, At::Cwd, "/link").expect("made");
        let found = if target == "a" { scene.here } else { scene.there };
        for _ in 0..OFTEN {
            assert_eq!(scene.ino("/link/b/file"), Ok(found));
        }
        vfs.unlink(root, At::Cwd, "/link").expect("gone");
        assert_eq!(scene.ino("/link/b/file"), Err(Error::NoEntry));
    }
    scene.tree.mkdir("/a/e");
    for _ in 0..OFTEN {
        assert_eq!(scene.ino("/a/e/../b/file"), Ok(scene.here));
    }
    vfs.rmdir(root, At::Cwd, "/a/e").expect("gone");
    assert_eq!(scene.ino("/a/e/../b/file"), Err(Error::NoEntry));
    let jail = vfs.lookup(root, At::Cwd, "/a", FOLLOW).expect("there");
    let guest = Context::rooted(&jail, Credentials::user(1000, 1000, &[])).expect("a directory");
    for _ in 0..OFTEN {
        assert_eq!(ino(&scene, &guest, "/b/../../../b/file"), Ok(scene.here), "no way out");
        assert_eq!(ino(&scene, &guest, "/b/../../z/b/file"), Err(Error::NoEntry));
        assert_eq!(scene.ino("/a/../z/b/file"), Ok(scene.there));
        assert_eq!(scene.ino("/a/b/.."), scene.ino("/a"));
        assert_eq!(scene.ino("/a/b/."), scene.ino("/a/b"));
    }
}

/// Prefixes of all lengths, and more of them than the cache of a thread holds.
#[test]
fn many_prefixes_of_all_lengths() {
    let tree = Tree::new();
    let user = Context::new(&tree.vfs, Credentials::user(1000, 1000, &[]));
    let stat = |path: &str| tree.vfs.stat(&user, At::Cwd, path, FOLLOW).map(|stat| stat.ino);
    for len in 1..=120 {
        let dir = format!("/{}", "x".repeat(len));
        tree.mkdir(&dir);
        let (file, spread) = (format!("{dir}/file"), format!("{dir}///file"));
        let made = tree.touch(&file);
        for _ in 0..OFTEN {
            assert_eq!((stat(&file), stat(&spread)), (Ok(made), Ok(made)), "{len}");
            assert_eq!(stat(&format!("{dir}/file/")), Err(Error::NotDirectory));
            assert_eq!(stat(&format!("{dir}/fil\0e")), Err(Error::Invalid));
            assert_eq!(stat(&format!("{dir}/{}", "x".repeat(256))), Err(Error::NameTooLong));
            assert_eq!(stat(&format!("{dir}/{}", "x/".repeat(2048))), Err(Error::NameTooLong));
        }
    }
    let made: Vec<_> = (0..6000).map(|n| (tree.mkdir(&format!("/{n}")), tree.touch(&format!("/{n}/file")))).collect();
    for _ in 0..OFTEN {
        for (n, (_, file)) in made.iter().enumerate() {
            assert_eq!(stat(&format!("/{n}/file")), Ok(*file));
            assert_eq!(stat(&format!("/{n}/none")), Err(Error::NoEntry));
        }
    }
}

/// A cached prefix holds nothing: neither a count nor memory.
#[test]
fn cached_prefixes_hold_nothing() {
    let tree = Tree::new();
    let empty = tree.used();
    for n in 0..200 {
        let dir = format!("/{n}");
        tree.mkdir(&dir);
        let file = format!("{dir}/file");
        tree.touch(&file);
        assert!((0..OFTEN).all(|_| tree.ino(&file).is_ok()));
    }
    assert_eq!(tree.remove_below("/"), 400);
    assert_eq!(tree.used(), empty);
}
