//! File handles (`name_to_handle_at`, NFS): each refers to its file as long as the file has a name,
//! whatever the kernel has forgotten.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    common::{Mounted, can_mount, skipped},
    requests::{Forgetter, alone, forgetter},
};

/// A process that makes the two calls, because neither the standard library nor rustix has them.
struct Handles {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Handles {
    /// None, after reporting why, if Python is missing.
    fn new() -> Option<Self> {
        let script = include_str!("handles.py");
        let started = Command::new("python3").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = started else {
            skipped("no python3 here");
            return None;
        };
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Some(Self { child, input, output })
    }

    fn ask(&mut self, call: &str) -> String {
        writeln!(self.input, "{call}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn take(&mut self, path: &Path) -> String {
        let handle = self.ask(&format!("take {}", path.display()));
        assert!(handle.bytes().all(|byte| byte.is_ascii_hexdigit()), "{}: {handle}", path.display());
        handle
    }

    /// `KIND INO MODE NLINK`, and the path; or the name of an errno, twice.
    fn open(&mut self, mounted: &Mounted, handle: &str) -> (String, String) {
        let answer = self.ask(&format!("open {} {handle}", mounted.root().display()));
        answer.rsplit_once(' ').map_or((answer.clone(), answer.clone()), |(found, path)| (found.into(), path.into()))
    }

    /// Asserts that the handle of a removed file becomes stale. The kernel keeps the inode
    /// until the server has answered the release of an open file, which no caller waits for.
    fn assert_becomes_stale(&mut self, mounted: &Mounted, handle: &str) {
        for _ in 0..1000 {
            let found = self.open(mounted, handle).0;
            if found == "ESTALE" {
                return;
            }
            assert!(found.ends_with(" 0"), "{found}: it has no name");
            thread::sleep(Duration::from_millis(5));
        }
        panic!("{handle} is still found");
    }

    fn read(&mut self, mounted: &Mounted, handle: &str) -> String {
        self.ask(&format!("read {} {handle}", mounted.root().display()))
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The requirements of the tests here. None, after reporting why.
fn needed() -> Option<(Forgetter, Handles)> {
    if can_mount() { Some((forgetter()?, Handles::new()?)) } else { None }
}

/// A mount of a tree in memory, and one of a tree in a store.
fn kinds_of_trees() -> [Tree; 2] {
    [None, Some(tempfile::tempdir().unwrap())].map(Tree)
}

/// The store of a tree. None: it is in memory.
struct Tree(Option<TempDir>);

impl Tree {
    fn mount(&self, options: &[&str]) -> Mounted {
        // The inodes of a store leave the cache soon.
        let store = self.0.as_ref().map(|dir| ["--store", dir.path().to_str().unwrap(), "--cached-inodes", "8"]);
        Mounted::new(&[store.as_ref().map_or(&[][..], |options| options), options].concat())
    }
}

fn facts(kind: &str, path: &Path) -> String {
    let found = fs::symlink_metadata(path).unwrap();
    format!("{kind} {} {:o} {}", found.ino(), found.mode() & 0o7777, found.nlink())
}

#[test]
fn handles_outlive_the_kernel_caches() {
    let _alone = alone();
    let Some((forgetter, mut handles)) = needed() else { return };
    for tree in kinds_of_trees() {
        let mounted = tree.mount(&[]);
        let path = |name: &str| mounted.path(name);
        fs::create_dir_all(path("a/b/c")).unwrap();
        fs::write(path("a/b/file"), "contents").unwrap();
        fs::hard_link(path("a/b/file"), path("a/second")).unwrap();
        symlink("target", path("a/link")).unwrap();
        let kinds = [("dir", ""), ("dir", "a"), ("dir", "a/b/c"), ("file", "a/b/file"), ("link", "a/link")];
        let taken = kinds.map(|(kind, name)| (handles.take(&path(name)), facts(kind, &path(name))));
        let file = &taken[3].0;
        for _ in 0..3 {
            for ((handle, facts), (kind, name)) in taken.iter().zip(kinds) {
                forgetter.forget();
                let (found, shown) = handles.open(&mounted, handle);
                assert_eq!(found, *facts, "{name}");
                if kind == "dir" {
                    // The kernel has no path of it any more. It finds the parents by
                    // `..`, one after the other.
                    assert_eq!(Path::new(&shown).components().as_path(), path(name).components().as_path());
                }
            }
            forgetter.forget();
            assert_eq!(handles.read(&mounted, file), "contents");
        }

        // The file is moved, by itself and with its directory.
        fs::rename(path("a/b/file"), path("moved")).unwrap();
        fs::create_dir(path("new")).unwrap();
        fs::rename(path("a/b"), path("new/b")).unwrap();
        forgetter.forget();
        assert_eq!(handles.open(&mounted, file).0, facts("file", &path("moved")));
        let (found, shown) = handles.open(&mounted, &taken[2].0);
        assert_eq!((found, Path::new(&shown)), (facts("dir", &path("new/b/c")), &*path("new/b/c")));

        // One name is removed, and then the other.
        fs::remove_file(path("moved")).unwrap();
        forgetter.forget();
        assert_eq!(handles.read(&mounted, file), "contents");
        assert_eq!(handles.open(&mounted, file).0, facts("file", &path("a/second")));
        fs::remove_file(path("a/second")).unwrap();
        fs::remove_dir(path("new/b/c")).unwrap();
        fs::write(path("replacement"), "").unwrap();
        fs::rename(path("replacement"), path("a/link")).unwrap();
        for (handle, _) in &taken[2..] {
            handles.assert_becomes_stale(&mounted, handle);
            forgetter.forget();
            assert_eq!(handles.open(&mounted, handle).0, "ESTALE");
        }
        mounted.umount();
    }
}

#[test]
fn a_removed_file_is_found_while_it_is_open() {
    let _alone = alone();
    let Some((forgetter, mut handles)) = needed() else { return };
    for tree in kinds_of_trees() {
        let mounted = tree.mount(&[]);
        fs::write(mounted.path("file"), "contents").unwrap();
        let handle = handles.take(&mounted.path("file"));
        let open = fs::File::open(mounted.path("file")).unwrap();
        fs::remove_file(mounted.path("file")).unwrap();
        forgetter.forget();
        assert_eq!(handles.read(&mounted, &handle), "contents");
        drop(open);
        handles.assert_becomes_stale(&mounted, &handle);
        // All of it is freed.
        let used = || rustix::fs::statvfs(mounted.root()).map(|stat| stat.f_files - stat.f_ffree).unwrap();
        while used() > 1 {
            thread::yield_now();
        }
        mounted.umount();
    }
}

#[test]
fn handles_of_other_trees_are_stale() {
    let _alone = alone();
    let Some((forgetter, mut handles)) = needed() else { return };
    for (tree, other) in kinds_of_trees().into_iter().zip(kinds_of_trees()) {
        let (one, other) = (tree.mount(&[]), other.mount(&[]));
        for mounted in [&one, &other] {
            fs::write(mounted.path("file"), "contents").unwrap();
        }
        let (mine, theirs) = (handles.take(&one.path("file")), handles.take(&other.path("file")));
        // As if both files had one number: the node of one file, in two words after the type, and
        // the generation of the other.
        let theirs = format!("{}{}", &mine[..24], &theirs[24..]);
        for forget in [false, true] {
            if forget {
                forgetter.forget();
            }
            assert_eq!(handles.read(&one, &mine), "contents");
            assert_eq!(handles.open(&one, &theirs).0, "ESTALE");
        }
        // Type, node (in two words) and generation: another number in each place.
        let words: Vec<u32> =
            (0..mine.len() / 8).map(|at| u32::from_str_radix(&mine[at * 8..at * 8 + 8], 16).unwrap()).collect();
        for at in 1..words.len() {
            for forged in [0, 1, words[at] ^ 1 << 24, u32::MAX].into_iter().filter(|&forged| forged != words[at]) {
                let mut words = words.clone();
                words[at] = forged;
                let handle: String = words.iter().map(|word| format!("{word:08x}")).collect();
                assert_eq!(handles.open(&one, &handle).0, "ESTALE", "{handle}");
            }
        }
        assert_eq!(handles.read(&one, &mine), "contents");
        one.umount();
        other.umount();
    }
}

/// A store is mounted again, by another server.
#[test]
fn handles_of_a_store_outlive_its_server() {
    let _alone = alone();
    let Some((_, mut handles)) = needed() else { return };
    let [_, tree] = kinds_of_trees();
    let mounted = tree.mount(&[]);
    let path = |name: &str| mounted.path(name);
    fs::create_dir_all(path("a/b")).unwrap();
    fs::write(path("a/b/file"), "contents").unwrap();
    let (dir, file) = (handles.take(&path("a/b")), handles.take(&path("a/b/file")));
    let known = (facts("dir", &path("a/b")), facts("file", &path("a/b/file")));
    mounted.umount();

    let mounted = tree.mount(&[]);
    let (found, shown) = handles.open(&mounted, &dir);
    assert_eq!((&found, Path::new(&shown)), (&known.0, &*mounted.path("a/b")));
    assert_eq!((handles.open(&mounted, &file).0, handles.read(&mounted, &file)), (known.1, "contents".into()));
    fs::remove_file(mounted.path("a/b/file")).unwrap();
    mounted.umount();

    let mounted = tree.mount(&[]);
    assert_eq!((handles.open(&mounted, &dir).0, handles.open(&mounted, &file).0), (known.0, "ESTALE".into()));
    mounted.umount();
}

/// Look-ups by number, while the kernel forgets and looks up again, and while files are moved and
/// removed.
#[test]
fn handles_are_found_beside_forgets_and_renames() {
    const FILES: usize = 100;
    let _alone = alone();
    let Some((forgetter, mut handles)) = needed() else { return };
    for tree in kinds_of_trees() {
        let mounted = tree.mount(&["--threads", "4"]);
        let path = |at: usize| mounted.path(format!("stays-{at}"));
        let taken: Vec<String> = (0..FILES)
            .map(|at| {
                fs::write(path(at), at.to_string()).unwrap();
                handles.take(&path(at))
            })
            .collect();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    forgetter.forget();
                }
            });
            scope.spawn(|| {
                for at in (0..FILES).cycle() {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = mounted.path("moved");
                    fs::rename(path(at), &name).unwrap();
                    fs::write(mounted.path("goes"), "").unwrap();
                    fs::remove_file(mounted.path("goes")).unwrap();
                    fs::rename(&name, path(at)).unwrap();
                }
            });
            let _done = SetAtEnd(&done);
            for _ in 0..20 {
                for (at, handle) in taken.iter().enumerate() {
                    assert_eq!(handles.read(&mounted, handle), at.to_string());
                }
            }
        });
        (0..FILES).for_each(|at| fs::remove_file(path(at)).unwrap());
        for handle in &taken {
            handles.assert_becomes_stale(&mounted, handle);
        }
        mounted.umount();
    }
}

/// Ends the threads of a test, even if it fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
