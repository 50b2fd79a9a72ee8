//! P3: a rename takes effect at one instant.
//!
//! Most tests use *tokens*: names that change once. So a reader that has seen one of the two names
//! knows for certain what it must find under the other.

use std::sync::atomic::{AtomicUsize, Ordering};

use pando_vfs::{At, DentryRef, Error, FileKind, OpenFlags, RenameFlags};

use crate::{
    harness::{Rng, THREADS, Worker, alone, run_workers, scale, seed},
    tree::{FOLLOW, RW, Tree},
};

const MOVERS: usize = 4;
/// The tokens of each mover in each round.
const TOKENS: usize = 60;
const DIRS: [&str; 2] = ["/a", "/b"];

/// A token's two names, and the dentries to which they are bound before the rename.
struct Token {
    old: String,
    new: String,
    one: DentryRef,
    /// None if the new name is free.
    two: Option<DentryRef>,
}

impl Token {
    fn make(tree: &Tree, rng: &mut Rng, mover: usize, index: usize, both: bool) -> Self {
        let mut make = |path: &str| {
            if rng.one_in(3) {
                let dir = tree.mkdir(path);
                tree.touch(&format!("{path}/in"));
                dir
            } else {
                tree.touch(path);
                tree.vfs.lookup(&tree.context, At::Cwd, path, FOLLOW).expect("just made")
            }
        };
        let old = format!("{}/o{mover}.{index}", DIRS[index % 2]);
        let new = format!("{}/n{mover}.{index}", DIRS[index / 2 % 2]);
        let (one, two) = (make(&old), both.then(|| make(&new)));
        Self { old, new, one, two }
    }

    /// The directory part of a path.
    fn dir_of(path: &str) -> &str {
        path.rsplit_once('/').map_or("/", |(dir, _)| dir)
    }

    /// Checks that must hold once `dentry` is known to be at `path` for good.
    fn check_place(tree: &Tree, dentry: &DentryRef, path: &str) {
        let rendered = tree.vfs.d_path(&tree.context, dentry, 4096).expect("renders");
        assert_eq!(String::from_utf8_lossy(&rendered), path, "rendered");
        if dentry.kind() == FileKind::Directory {
            let up = tree.vfs.stat(&tree.context, At::Dir(dentry), "..", FOLLOW).map(|stat| stat.ino);
            assert_eq!(up, tree.ino(Self::dir_of(path)), "`..` of {path}");
            assert!(tree.ino(&format!("{path}/in")).is_ok(), "{path}/in");
        }
    }
}

/// Runs rounds of movers, which rename their tokens, and of readers, which look at the tokens in
/// use.
fn tokens(what: &str, both: bool, flags: RenameFlags, look: impl Fn(&Tree, &Token, &mut Rng) + Sync) {
    let seed = seed();
    let tree = Tree::new();
    for dir in DIRS {
        tree.mkdir(dir);
    }
    let mut rng = Rng::new(seed);
    for round in 0..scale(30) {
        let tokens: Vec<Vec<Token>> = (0..MOVERS)
            .map(|mover| (0..TOKENS).map(|index| Token::make(&tree, &mut rng, mover, index, both)).collect())
            .collect();
        let cursors = [const { AtomicUsize::new(0) }; MOVERS];
        run_workers(what, THREADS, seed ^ round as u64, |me: &mut Worker<'_>| {
            if me.id < MOVERS {
                for (index, token) in tokens[me.id].iter().enumerate() {
                    if !me.go_on() {
                        return;
                    }
                    cursors[me.id].store(index, Ordering::Relaxed);
                    let moved = tree.vfs.rename(&tree.context, At::Cwd, &token.old, At::Cwd, &token.new, flags);
                    assert_eq!(moved, Ok(()), "{} to {}", token.old, token.new);
                    // There are many readers. This lets them read each token.
                    for _ in 0..me.rng.below(4) {
                        std::thread::yield_now();
                    }
                }
                return;
            }
            for _ in 0..TOKENS * 8 {
                if !me.go_on() {
                    return;
                }
                let mover = me.rng.below(MOVERS);
                let index = cursors[mover].load(Ordering::Relaxed) + me.rng.below(3);
                look(&tree, &tokens[mover][index.min(TOKENS - 1)], &mut me.rng);
            }
        });
        for token in tokens.iter().flatten() {
            Token::check_place(&tree, &token.one, &token.new);
            match &token.two {
                Some(two) => Token::check_place(&tree, two, &token.old),
                None if flags.contains(RenameFlags::WHITEOUT) => assert!(is_whiteout(&tree, &token.old)),
                None => assert_eq!(tree.ino(&token.old), Err(Error::NoEntry)),
            }
        }
        drop(tokens);
        for dir in DIRS {
            tree.remove_below(dir);
        }
        assert_eq!(tree.used(), (3, 0));
    }
}

fn is_whiteout(tree: &Tree, path: &str) -> bool {
    let stat = tree.vfs.stat(&tree.context, At::Cwd, path, FOLLOW).expect("the name is always bound");
    (stat.kind, stat.rdev) == (FileKind::CharDevice, 0)
}

/// The old name is never free, and a thread that sees the whiteout finds the new name. Seen to
/// fail: the whiteout made under the name's lock after the rename.
#[test]
fn p3_whiteout_takes_the_old_name_at_once() {
    let _alone = alone();
    tokens("p3_whiteout_takes_the_old_name_at_once", false, RenameFlags::WHITEOUT, |tree, token, rng| {
        let ino = token.one.ino();
        if rng.one_in(2) {
            let found = tree.ino(&token.old).expect("the name is always bound");
            if found != ino {
                assert!(is_whiteout(tree, &token.old));
                assert_eq!(tree.ino(&token.new), Ok(ino), "{} is a whiteout, {} not there", token.old, token.new);
                Token::check_place(tree, &token.one, &token.new);
            }
        } else if let Ok(found) = tree.ino(&token.new) {
            assert_eq!(found, ino);
            assert!(is_whiteout(tree, &token.old), "{} and {} both there", token.old, token.new);
        }
        // Nor does a listing miss it.
        if rng.one_in(10) {
            let (dir, name) = token.old.rsplit_once('/').expect("absolute");
            let listed = tree.list(At::Cwd, dir);
            assert_eq!(listed.iter().filter(|entry| entry.0 == name).count(), 1, "{} in a listing", token.old);
        }
    });
}

/// A thread that sees the old name gone finds the new one.
#[test]
fn p3_old_name_gone_means_new_name_visible() {
    let _alone = alone();
    tokens("p3_old_name_gone_means_new_name_visible", false, RenameFlags::NOREPLACE, |tree, token, rng| {
        let ino = token.one.ino();
        if rng.one_in(2) {
            match tree.ino(&token.old) {
                Ok(found) => assert_eq!(found, ino),
                Err(error) => {
                    assert_eq!(error, Error::NoEntry);
                    assert_eq!(tree.ino(&token.new), Ok(ino), "{} is gone, {} not there", token.old, token.new);
                    Token::check_place(tree, &token.one, &token.new);
                }
            }
        } else if let Ok(found) = tree.ino(&token.new) {
            assert_eq!(found, ino);
            assert_eq!(tree.ino(&token.old), Err(Error::NoEntry), "{} and {} both there", token.old, token.new);
            Token::check_place(tree, &token.one, &token.new);
        }
    });
}

/// An exchange is seen as a whole, by look-ups in either order, by `..`, and by path rendering.
#[test]
fn p3_exchange_is_never_half_done() {
    let _alone = alone();
    tokens("p3_exchange_is_never_half_done", true, RenameFlags::EXCHANGE, |tree, token, rng| {
        let two = token.two.as_ref().expect("both names were bound");
        let (first, second) = if rng.one_in(2) {
            ((&token.old, &token.one, two), (&token.new, two, &token.one))
        } else {
            ((&token.new, two, &token.one), (&token.old, &token.one, two))
        };
        let seen = tree.ino(first.0).expect("an exchanged name is always bound");
        assert!(seen == first.1.ino() || seen == first.2.ino(), "{} shows a stranger", first.0);
        let other = tree.ino(second.0).expect("an exchanged name is always bound");
        if seen == first.2.ino() {
            assert_eq!(other, second.2.ino(), "{} has changed, {} not", first.0, second.0);
            Token::check_place(tree, &token.one, &token.new);
            Token::check_place(tree, two, &token.old);
        }
        // Before, during and after the exchange, the path is one of the two, and never deleted.
        let rendered = tree.vfs.d_path(&tree.context, &token.one, 4096).expect("renders");
        assert!(rendered == token.old.as_bytes() || rendered == token.new.as_bytes(), "{rendered:?}");
    });
}

/// A target that is replaced over and over exists at every moment: files over files, and empty
/// directories over empty directories.
#[test]
fn p3_rename_over_keeps_target_visible() {
    let _alone = alone();
    let (tree, seed, rounds) = (Tree::new(), seed(), scale(4000));
    for dir in DIRS {
        tree.mkdir(dir);
    }
    let (file, dir) = ("/a/target", "/a/dir");
    tree.vfs
        .open(&tree.context, At::Cwd, file, RW | OpenFlags::CREAT, 0o644)
        .and_then(|f| f.write(b"whole"))
        .expect("made");
    tree.mkdir(dir);
    let context = &tree.context;
    run_workers("p3_rename_over_keeps_target_visible", THREADS, seed, |me| {
        for round in 0..rounds {
            if !me.go_on() {
                return;
            }
            let temp = format!("{}/t{}.{round}", me.rng.pick(&DIRS), me.id);
            match me.id % 8 {
                0 | 1 => {
                    let made = tree.vfs.open(context, At::Cwd, &temp, RW | OpenFlags::CREAT, 0o644);
                    made.and_then(|f| f.write(b"whole")).expect("made");
                    assert_eq!(tree.vfs.rename(context, At::Cwd, &temp, At::Cwd, file, RenameFlags::empty()), Ok(()));
                }
                2 => {
                    tree.mkdir(&temp);
                    assert_eq!(tree.vfs.rename(context, At::Cwd, &temp, At::Cwd, dir, RenameFlags::empty()), Ok(()));
                }
                3 | 4 => {
                    let stat = tree.vfs.stat(context, At::Cwd, file, FOLLOW);
                    assert_eq!(stat.map(|stat| stat.size), Ok(5), "the target is missing, or another");
                }
                5 => {
                    // If the target were missing for a moment, this would make another, empty file.
                    let open = tree.vfs.open(context, At::Cwd, file, RW | OpenFlags::CREAT, 0o644).expect("opens");
                    let mut bytes = [0; 8];
                    assert_eq!(open.pread(&mut bytes, 0), Ok(5));
                    assert_eq!(&bytes[..5], b"whole");
                }
                6 => {
                    let refused = tree.vfs.open(context, At::Cwd, file, crate::tree::NEW, 0o644);
                    assert_eq!(refused.err(), Some(Error::Exists));
                    let refused = tree.vfs.mkdir(context, At::Cwd, dir, 0o777);
                    assert_eq!(refused.err(), Some(Error::Exists));
                }
                _ => {
                    assert!(tree.ino(dir).is_ok(), "the target is missing");
                    assert!(tree.list(At::Cwd, "/a").iter().filter(|entry| entry.0 == "target").count() == 1);
                }
            }
        }
    });
    assert_eq!(tree.used(), (5, 1));
    let stat = tree.vfs.stat(context, At::Cwd, "/a", FOLLOW).expect("there");
    assert_eq!((stat.nlink, stat.size), (3, 80));
    for dir in DIRS {
        tree.remove_below(dir);
    }
    assert_eq!(tree.used(), (3, 0));
}
