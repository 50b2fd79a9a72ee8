//! The layer in the manner of `std::fs`: each call with a success and with a failure.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    At, Context, Credentials, Error, FileKind, OpenFlags, RenameFlags, Result, SetTime, Timestamp, Vfs, Walk,
    fs::{Fs, OpenOptions, TreeWalk, WalkError},
};
use pandofs_testkit::await_value;

#[path = "support/interrupted.rs"]
mod interrupted;
#[path = "support/watched.rs"]
mod watched;

use interrupted::interrupted;

fn fs() -> Fs {
    Fs::new(MemFs::new(MemOptions::default())).expect("a new tree")
}

fn names(fs: &Fs, path: &str) -> Vec<String> {
    let entries = fs.read_dir(path).expect("opens");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

#[test]
fn read_returns_what_write_wrote() {
    let fs = fs();
    fs.write("/a", "one").expect("made");
    fs.write("/a", b"longer than that").expect("replaced");
    assert_eq!(fs.read_to_string("/a").as_deref(), Ok("longer than that"));
    fs.write("/a", "").expect("emptied");
    assert_eq!(fs.read("/a"), Ok(Vec::new()));
    let large: Vec<u8> = (0..300_001_u32).map(|i| (i % 251) as u8).collect();
    fs.write("/large", &large).expect("made");
    assert!(fs.read("/large").expect("read") == large);
    fs.write("/binary", [0xff, 0xfe]).expect("made");
    assert_eq!(fs.read_to_string("/binary"), Err(Error::InvalidUtf8));
    assert_eq!(fs.read("/missing"), Err(Error::NoEntry));
    assert_eq!(fs.read("/"), Err(Error::IsDirectory));
    assert_eq!(fs.write("/missing/file", "x"), Err(Error::NoEntry));
}

#[test]
fn file_larger_than_memory_is_enomem() {
    let fs = fs();
    fs.create("/vast").expect("made").truncate(1 << 60).expect("a hole costs nothing");
    assert_eq!(fs.read("/vast"), Err(Error::NoMemory));
    assert_eq!(fs.read_to_string("/vast"), Err(Error::NoMemory));
}

#[test]
fn full_file_system_is_enospc() {
    let fs = Fs::new(MemFs::new(MemOptions::new().size_bytes(8192).inodes(3))).expect("a new tree");
    assert_eq!(fs.write("/a", vec![1; 8193]), Err(Error::NoSpace));
    assert_eq!(fs.metadata("/a").map(|stat| stat.size), Ok(8192), "what was written stays");
    fs.write("/b", "").expect("an inode is left");
    assert_eq!(fs.write("/c", ""), Err(Error::NoSpace));
    fs.remove_file("/a").expect("removed");
    fs.write("/c", vec![1; 8192]).expect("there is room again");
}

#[test]
fn open_files_speak_std_io() {
    let fs = fs();
    let mut file = OpenOptions::new().read(true).write(true).create(true).open(&fs, "/lines").expect("made");
    write!(file, "one\ntwo\n").expect("written");
    let rest = ["th", "ree\n"].map(|part| IoSlice::new(part.as_bytes()));
    assert_eq!((&file).write_vectored(&rest).expect("written through a shared reference"), 6);
    file.flush().expect("nothing to do");
    assert_eq!(file.stream_position().expect("told"), 14);
    file.rewind().expect("sought");
    let lines: Vec<String> = BufReader::new(&file).lines().map(|line| line.expect("text")).collect();
    assert_eq!(lines, ["one", "two", "three"]);
    assert_eq!(file.seek(SeekFrom::End(-6)).expect("sought"), 8);
    let mut rest = String::new();
    file.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "three\n");
    // More buffers than one call takes are read in part, as std has it.
    let (mut bytes, _) = ([[0]; 2000], file.rewind().expect("sought"));
    let mut buffers: Vec<IoSliceMut<'_>> = bytes.iter_mut().map(|byte| IoSliceMut::new(byte)).collect();
    assert_eq!(file.read_vectored(&mut buffers).expect("read"), 14);
    assert_eq!(bytes[..14].concat(), b"one\ntwo\nthree\n");
    assert_eq!(file.seek(SeekFrom::Current(-100)).expect_err("before the start").raw_os_error(), Some(22));
    assert_eq!(file.seek(SeekFrom::Start(u64::MAX)).expect_err("beyond the end").raw_os_error(), Some(75));
    assert_eq!(file.stream_position().expect("told"), 14, "unmoved");
    let error = fs.open("/lines").expect("opens").write_all(b"x").expect_err("not for writing");
    assert_eq!(error.raw_os_error(), Some(9));
    let copied = std::io::copy(&mut fs.open("/lines").expect("opens"), &mut std::io::sink()).expect("copied");
    assert_eq!(copied, 14);
}

#[test]
fn open_options_combine_as_they_do_in_std() {
    let fs = fs();
    let open = |options: OpenOptions| options.open(&fs, "/f").map(drop);
    let new = OpenOptions::new;
    assert_eq!(open(new()), Err(Error::Invalid));
    assert_eq!(open(new().read(true).create(true)), Err(Error::Invalid));
    assert_eq!(open(new().read(true).truncate(true)), Err(Error::Invalid));
    assert_eq!(open(new().append(true).truncate(true)), Err(Error::Invalid));
    assert_eq!(open(new().read(true)), Err(Error::NoEntry));
    assert_eq!(open(new().write(true)), Err(Error::NoEntry));
    assert_eq!(open(new().write(true).create_new(true).mode(0o640)), Ok(()));
    assert_eq!(fs.metadata("/f").map(|stat| stat.mode), Ok(0o640));
    assert_eq!(open(new().write(true).create_new(true)), Err(Error::Exists));
    fs.write("/f", "head").expect("written");
    assert_eq!(open(new().write(true).create(true)), Ok(()));
    assert_eq!(fs.read_to_string("/f").as_deref(), Ok("head"), "not emptied");
    let mut tail = new().append(true).open(&fs, "/f").expect("opens");
    tail.rewind().expect("sought");
    tail.write_all(b" and tail").expect("appended");
    assert_eq!(fs.read_to_string("/f").as_deref(), Ok("head and tail"));
    assert_eq!(open(new().write(true).truncate(true)), Ok(()));
    assert_eq!(fs.read_to_string("/f").as_deref(), Ok(""));
    assert_eq!(open(new().read(true).custom_flags(OpenFlags::DIRECTORY)), Err(Error::NotDirectory));
    // The access mode is not to be smuggled in.
    let file = new().read(true).custom_flags(OpenFlags::RDWR | OpenFlags::TRUNC).open(&fs, "/f").expect("opens");
    assert_eq!(pando_vfs::File::write(&file, b"x"), Err(Error::BadHandle));
}

#[test]
fn directories_are_made_read_and_removed() {
    let fs = fs();
    assert_eq!(fs.create_dir("/a/b"), Err(Error::NoEntry));
    fs.create_dir_all("/a/b/c").expect("made");
    fs.create_dir_all("/a/b/c").expect("there already");
    fs.create_dir_all("a/b/../b/./d/").expect("relative, and winding");
    fs.create_dir_all("/").expect("the root is there");
    fs.create_dir_all("").expect("nothing to make");
    fs.write("/a/file", "").expect("made");
    assert_eq!(fs.create_dir_all("/a/file"), Err(Error::Exists));
    assert_eq!(fs.create_dir_all("/a/file/x"), Err(Error::NotDirectory));
    assert_eq!(names(&fs, "/a/b"), ["c", "d"]);
    assert_eq!(fs.remove_dir("/a"), Err(Error::NotEmpty));
    assert_eq!(fs.remove_dir("/a/file"), Err(Error::NotDirectory));
    assert_eq!(fs.remove_file("/a/b"), Err(Error::IsDirectory));
    fs.remove_dir("/a/b/c").expect("removed");
    assert_eq!(names(&fs, "/a/b"), ["d"]);
    assert_eq!(fs.read_dir("/a/file").err(), Some(Error::NotDirectory));
    let mut gone = fs.read_dir("/a/b/d").expect("opens");
    fs.remove_dir("/a/b/d").expect("removed");
    assert_eq!((gone.next().map(|entry| entry.err()), gone.next().is_none()), (Some(Some(Error::NoEntry)), true));
}

#[test]
fn a_scan_meets_each_entry_once_over_many_batches() {
    let fs = fs();
    fs.create_dir("/many").expect("made");
    for i in 0..1000 {
        fs.write(format!("/many/{i}"), "").expect("made");
    }
    let mut scan = fs.read_dir("/many").expect("opens");
    let mut seen = BTreeSet::new();
    // Every other entry goes as soon as it is met; the rest of the scan does not mind.
    while let Some(entry) = scan.next().transpose().expect("an entry") {
        assert!(seen.insert(entry.file_name()), "twice: {entry:?}");
        if seen.len() % 2 == 0 {
            fs.remove_file(entry.path()).expect("removed");
        }
    }
    assert_eq!(seen.len(), 1000);
    assert!(scan.next().is_none());
    assert_eq!(names(&fs, "/many").len(), 500);
}

#[test]
fn entries_know_what_they_are() {
    let mut fs = fs();
    fs.create_dir_all("/d/sub").expect("made");
    fs.write("/d/file", "123").expect("made");
    fs.symlink("nowhere", "/d/link").expect("made");
    fs.set_current_dir("/d").expect("there");
    let mut seen = BTreeSet::new();
    for entry in fs.read_dir(".").expect("opens") {
        let entry = entry.expect("an entry");
        let stat = entry.metadata().expect("there");
        assert_eq!((stat.kind, stat.ino), (entry.file_type(), entry.ino()));
        assert_eq!(fs.symlink_metadata(entry.path()), Ok(stat));
        seen.insert((entry.path(), stat.is_dir(), stat.is_file(), stat.is_symlink()));
    }
    let expected = [("./file", false, true, false), ("./link", false, false, true), ("./sub", true, false, false)];
    assert_eq!(seen, expected.map(|(path, dir, file, link)| (PathBuf::from(path), dir, file, link)).into());
    // An entry is found in the directory that was read, wherever that is by now.
    let entry = fs.read_dir("/d/.").expect("opens").find(|e| e.as_ref().is_ok_and(|e| e.file_name() == "file"));
    let entry = entry.expect("met").expect("an entry");
    fs.rename("/d", "/e").expect("moved");
    assert_eq!(entry.metadata().map(|stat| stat.size), Ok(3));
    fs.remove_file("/e/file").expect("removed");
    assert_eq!(entry.metadata(), Err(Error::NoEntry));
}

#[test]
fn trees_are_removed_whole_and_nothing_else() {
    let fs = fs();
    fs.create_dir_all("/keep/inside").expect("made");
    fs.create_dir_all("/go/a/b").expect("made");
    fs.symlink("/keep", "/go/a/to_keep").expect("made");
    fs.symlink("/go", "/link_to_go").expect("made");
    for i in 0..700 {
        fs.write(format!("/go/a/{i}"), "x").expect("made");
        fs.create_dir(format!("/go/a/b/{i}")).expect("made");
    }
    assert_eq!(fs.remove_dir_all("/missing"), Err(Error::NoEntry));
    assert_eq!(fs.remove_dir_all("/go/a/7"), Err(Error::NotDirectory));
    fs.remove_dir_all("/link_to_go").expect("the link only");
    fs.symlink("/go", "/link_to_go").expect("made");
    fs.remove_dir_all("/link_to_go//").expect("the link only");
    assert_eq!(fs.exists("/go/a/7"), Ok(true));
    fs.remove_dir_all("/go/").expect("removed");
    assert_eq!(names(&fs, "/"), ["keep"]);
    assert_eq!(fs.exists("/keep/inside"), Ok(true));
    assert_eq!(fs.remove_dir_all("/"), Err(Error::Busy));
}

/// Another thread changes the tree after a directory of it was listed: no entry outside the tree is
/// removed, and all entries in it are.
#[test]
fn others_change_a_tree_that_is_being_removed() {
    fn exchange(fs: &Fs, one: &str, other: &str) -> Result<()> {
        fs.vfs().rename(fs.context(), At::Cwd, one, At::Cwd, other, RenameFlags::EXCHANGE)
    }
    type Change = fn(&Fs) -> Result<()>;
    // And whether it may be refused: what becomes something else after it was emptied.
    let changes: [(&str, Change, bool); 8] = [
        ("a directory becomes a link", |fs| exchange(fs, "/go/dir", "/link"), true),
        ("a directory becomes a file", |fs| exchange(fs, "/go/dir", "/file"), true),
        ("a file becomes a directory", |fs| exchange(fs, "/go/0", "/dir"), false),
        ("files go", |fs| (0..8).try_for_each(|i| fs.remove_file(format!("/go/{i}"))), false),
        ("a directory goes", |fs| fs.remove_dir("/go/dir"), false),
        ("more comes", |fs| (0..8).try_for_each(|i| fs.create_dir(format!("/go/more{i}"))), false),
        ("all of it goes", |fs| fs.remove_dir_all("/go"), false),
        ("all of it moves", |fs| fs.rename("/go", "/gone"), false),
    ];
    for (what, change, refusable) in changes {
        // Names are listed in any order, and at some time a file comes first.
        let in_time = (0..16).filter(|_| {
            let (driver, interruption) = interrupted();
            let fs = Fs::new(driver).expect("a new tree");
            for dir in ["/go", "/go/dir", "/keep", "/keep/inside", "/dir"] {
                fs.create_dir(dir).expect("made");
            }
            (0..8).for_each(|i| fs.write(format!("/go/{i}"), "").expect("made"));
            fs.symlink("/keep", "/link").expect("made");
            fs.write("/file", "").expect("made");
            let (others, changed) = (fs.clone(), Arc::<OnceLock<_>>::default());
            let noted = changed.clone();
            *interruption.lock().expect("no panic") = Some(Box::new(move || noted.set(change(&others)).expect("once")));
            let removed = fs.remove_dir_all("/go");
            assert_eq!((changed.get(), fs.exists("/keep/inside")), (Some(&Ok(())), Ok(true)), "{what}");
            assert!(removed.is_ok() || refusable && removed == Err(Error::NotDirectory), "{what}: {removed:?}");
            assert!(removed.is_err() || fs.exists("/go") == Ok(false), "{what}");
            assert!(fs.read_dir("/gone").map_or(true, |mut left| left.next().is_none()), "{what}");
            removed.is_ok()
        });
        assert!(in_time.count() > 0, "{what}");
    }
}

#[test]
fn a_tree_deeper_than_a_path_is_removed() {
    let mut fs = fs();
    fs.create_dir("/deep").expect("made");
    let mut inner = fs.clone();
    inner.set_current_dir("/deep").expect("there");
    for _ in 0..3000 {
        inner.create_dir("down").expect("made");
        inner.set_current_dir("down").expect("there");
    }
    inner.write("bottom", "x").expect("made");
    assert_eq!(inner.current_dir().map(|path| path.components().count()), Ok(3002));
    fs.set_current_dir("/").expect("there");
    fs.remove_dir_all("deep").expect("removed");
    assert_eq!(names(&fs, "/"), Vec::<String>::new());
    assert_eq!(inner.current_dir(), Err(Error::NoEntry));
}

#[test]
fn names_move_multiply_and_lead_elsewhere() {
    let fs = fs();
    fs.write("/a", "text").expect("made");
    fs.hard_link("/a", "/b").expect("linked");
    assert_eq!(fs.metadata("/a").map(|stat| stat.nlink), Ok(2));
    fs.symlink("b", "/c").expect("linked");
    assert_eq!(fs.read_link("/c").as_deref(), Ok(Path::new("b")));
    assert_eq!(fs.read_link("/a"), Err(Error::Invalid));
    assert_eq!(fs.read_to_string("/c").as_deref(), Ok("text"));
    assert_eq!(fs.symlink_metadata("/c").map(|stat| stat.kind), Ok(FileKind::Symlink));
    fs.hard_link("/c", "/d").expect("the link itself gets a name");
    assert!(fs.symlink_metadata("/d").expect("there").is_symlink());
    fs.rename("/a", "/moved").expect("moved");
    assert_eq!(fs.exists("/a"), Ok(false));
    fs.rename("/moved", "/b").expect("both are names of one file: nothing happens");
    fs.remove_file("/b").expect("removed");
    assert_eq!(fs.exists("/c"), Ok(false), "dangling");
    assert_eq!(fs.exists("/moved/x"), Ok(false));
    assert_eq!(fs.exists("/a\0b"), Err(Error::Invalid));
    assert_eq!(fs.rename("/missing", "/x"), Err(Error::NoEntry));
}

#[test]
fn copy_keeps_contents_and_permissions() {
    let fs = fs();
    let text = vec![7; 200_000];
    fs.write("/from", &text).expect("made");
    fs.set_permissions("/from", 0o751).expect("set");
    fs.write("/to", vec![1; 300_000]).expect("made");
    assert_eq!(fs.copy("/from", "/to"), Ok(200_000));
    assert_eq!(fs.copy("/from", "/new"), Ok(200_000));
    for path in ["/to", "/new"] {
        assert!(fs.read(path).expect("read") == text, "{path}");
        assert_eq!(fs.metadata(path).map(|stat| stat.mode), Ok(0o751), "{path}");
    }
    fs.hard_link("/from", "/same").expect("linked");
    assert_eq!(fs.copy("/from", "/same"), Err(Error::Invalid));
    assert_eq!(fs.copy("/", "/x"), Err(Error::Invalid));
    assert!(fs.read("/from").expect("read") == text, "untouched");
    assert_eq!(fs.exists("/x"), Ok(false));
}

#[test]
fn credentials_of_the_context_are_checked() {
    let vfs = Vfs::new(MemFs::new(MemOptions::default())).expect("a new tree");
    let root = Fs::with_context(vfs.clone(), Context::new(&vfs, Credentials::root()));
    let user = Fs::with_context(vfs.clone(), Context::new(&vfs, Credentials::user(1000, 1000, &[])));
    root.write("/public", "read me").expect("made");
    root.write("/private", "do not").expect("made");
    root.set_permissions("/private", 0o600).expect("set");
    assert_eq!(user.read_to_string("/public").as_deref(), Ok("read me"));
    assert_eq!(user.read("/private"), Err(Error::Access));
    assert_eq!(user.write("/mine", ""), Err(Error::Access));
    assert_eq!(user.set_permissions("/public", 0o777), Err(Error::NotPermitted));
    root.create_dir("/home").expect("made");
    root.set_permissions("/home", 0o1777).expect("set");
    user.write("/home/mine", "").expect("made");
    let stat = root.metadata("/home/mine").expect("there");
    assert_eq!((stat.uid, stat.mode), (1000, 0o644));
    let error: std::io::Error = user.read("/private").expect_err("private").into();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    root.set_permissions("/home", 0o700).expect("set");
    assert_eq!(user.exists("/home/mine"), Err(Error::Access), "without search permission the answer is unknown");
}

#[test]
fn threads_share_an_fs_or_have_clones() {
    let fs = fs();
    fs.create_dir("/d").expect("made");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (shared, own) = (&fs, fs.clone());
            scope.spawn(move || {
                for i in 0..500 {
                    let which = if i % 2 == 0 { shared } else { &own };
                    which.create_dir_all(format!("/d/{}/x", i % 50)).expect("made by somebody");
                    which.write(format!("/d/{thread}-{i}"), "x").expect("made");
                }
            });
        }
    });
    assert_eq!(fs.read_dir("/d").expect("opens").count(), 4 * 500 + 50);
}

#[test]
fn canonicalize_resolves_links_and_dots() {
    let mut fs = fs();
    fs.create_dir_all("/a/b").expect("made");
    fs.write("/a/b/file", "").expect("made");
    fs.symlink("../a/b", "/a/link").expect("made");
    fs.set_current_dir("/a").expect("changed");
    for path in ["b/file", "link/file", "./b/../b/./file", "/a//b/file", "../a/link/file"] {
        assert_eq!(fs.canonicalize(path).as_deref(), Ok(Path::new("/a/b/file")), "{path}");
    }
    assert_eq!(fs.canonicalize("/").as_deref(), Ok(Path::new("/")));
    assert_eq!(fs.canonicalize("missing"), Err(Error::NoEntry));
    assert_eq!(fs.canonicalize(""), Err(Error::NoEntry));
    let dir = fs.vfs().lookup(fs.context(), At::Cwd, "/a", Walk::empty()).expect("there");
    let below = Context::rooted(&dir, Credentials::root()).expect("a directory");
    let below = Fs::with_context(fs.vfs().clone(), below);
    assert_eq!(below.canonicalize("b/file").as_deref(), Ok(Path::new("/b/file")), "from the context's root");
}

/// All paths of a walk, in any order, or the first error.
fn walked(walk: TreeWalk<'_>) -> std::result::Result<BTreeSet<String>, WalkError> {
    walk.map(|entry| Ok(entry?.path().display().to_string())).collect()
}

#[test]
fn walk_returns_each_entry_once_and_follows_no_link() {
    let fs = fs();
    fs.create_dir_all("/tree/a/b/c").expect("made");
    fs.create_dir_all("/other").expect("made");
    fs.write("/other/file", "").expect("made");
    fs.symlink("/other", "/tree/a/link").expect("made");
    (0..1000).for_each(|i| fs.write(format!("/tree/a/b/{i}"), "").expect("made"));
    let all = walked(fs.walk("/tree")).expect("walked");
    assert_eq!(all.len(), 1004);
    assert!(all.contains("/tree/a/link") && all.contains("/tree/a/b/c") && all.contains("/tree/a/b/999"));
    let shallow = walked(fs.walk("/tree").max_depth(2)).expect("walked");
    assert_eq!(shallow.iter().map(String::as_str).collect::<Vec<_>>(), ["/tree/a", "/tree/a/b", "/tree/a/link"]);
    let deep = walked(fs.walk("/tree").min_depth(3).max_depth(3)).expect("walked");
    assert!(deep.len() == 1001 && deep.contains("/tree/a/b/c"), "{}", deep.len());
    let without_b = walked(fs.walk("/tree").filter_entry(|entry| entry.file_name() != "b")).expect("walked");
    assert_eq!(without_b.len(), 2);
    let mut order = fs.walk("/tree").map(|entry| entry.expect("an entry").path());
    let place = |path: &str, order: &[PathBuf]| order.iter().position(|seen| seen == Path::new(path));
    let order: Vec<_> = order.by_ref().collect();
    assert!(place("/tree/a/b", &order) < place("/tree/a/b/c", &order), "a directory is before its entries");
    assert_eq!(walked(fs.walk("/tree").max_depth(0)).expect("walked").len(), 0);
    // A start that is a symbolic link is followed, as by read_dir.
    assert_eq!(walked(fs.walk("/tree/a/link")).expect("walked").len(), 1);
}

#[test]
fn walk_reports_a_directory_that_cannot_be_read_and_continues() {
    let vfs = Vfs::new(MemFs::new(MemOptions::new())).expect("a new tree");
    let root = Fs::with_context(vfs.clone(), Context::new(&vfs, Credentials::root()));
    let user = Fs::with_context(vfs.clone(), Context::new(&vfs, Credentials::user(1, 1, &[])));
    for dir in ["a", "closed", "z"] {
        root.create_dir_all(format!("/tree/{dir}/below")).expect("made");
    }
    root.set_permissions("/tree/closed", 0o700).expect("set");
    let (mut paths, mut errors) = (BTreeSet::new(), Vec::new());
    for entry in user.walk("/tree") {
        match entry {
            Ok(entry) => assert!(paths.insert(entry.path())),
            Err(error) => errors.push(error),
        }
    }
    assert_eq!(paths.len(), 5);
    assert_eq!((errors.len(), errors[0].path(), errors[0].error()), (1, Path::new("/tree/closed"), Error::Access));
    assert_eq!(errors[0].to_string(), "/tree/closed: permission denied (EACCES)");
    assert_eq!(std::io::Error::from(errors.remove(0)).kind(), std::io::ErrorKind::PermissionDenied);
    let missing = walked(user.walk("/missing")).expect_err("missing");
    assert_eq!((missing.path(), Error::from(missing.clone())), (Path::new("/missing"), Error::NoEntry));
    assert_eq!(walked(user.walk("/tree/a/below/x")).map_err(Error::from), Err(Error::NoEntry));
}

#[test]
fn walk_survives_changes_and_does_not_leave_the_tree() {
    let fs = fs();
    (0..300).for_each(|i| fs.create_dir_all(format!("/tree/{i}/sub")).expect("made"));
    fs.create_dir_all("/secret/inside").expect("made");
    let mut met = BTreeSet::new();
    for (count, entry) in fs.walk("/tree").enumerate() {
        let path = entry.expect("an entry").path();
        assert!(path.starts_with("/tree") && !path.ends_with("inside"), "{path:?}");
        met.insert(path);
        if count == 0 {
            // Directories that the walk has read the names of, and has not opened.
            (100..200).for_each(|i| fs.remove_dir_all(format!("/tree/{i}")).expect("removed"));
            (200..300).for_each(|i| {
                fs.remove_dir_all(format!("/tree/{i}")).expect("removed");
                fs.symlink("/secret", format!("/tree/{i}")).expect("swapped");
            });
        }
    }
    assert!((0..100).all(|i| met.contains(Path::new(&format!("/tree/{i}/sub")))));
}

#[test]
fn tempfile_gets_a_name_once() {
    // With a limit, so that the free inodes do not depend on the machine's memory.
    let fs = Fs::new(MemFs::new(MemOptions::new().inodes(100))).expect("a new tree");
    let mut file = fs.tempfile_in("/").expect("made");
    assert_eq!((names(&fs, "/").len(), file.stat().nlink, file.stat().mode), (0, 0, 0o600));
    file.write_all(b"draft").expect("written");
    fs.write("/taken", "").expect("made");
    assert_eq!(fs.persist(&file, "/taken"), Err(Error::Exists));
    fs.persist(&file, "/letter").expect("named");
    assert_eq!(fs.read_to_string("/letter").as_deref(), Ok("draft"));
    fs.remove_file("/letter").expect("removed");
    assert_eq!(fs.persist(&file, "/again"), Err(Error::NoEntry), "its last name was removed");
    assert_eq!(fs.tempfile_in("/taken").err(), Some(Error::NotDirectory));
    let free = || fs.vfs().statfs(fs.context(), At::Cwd, "/").expect("counted").ffree;
    let before = free();
    drop(fs.tempfile_in("/").expect("made"));
    // It is freed with its last handle.
    await_value(before, free);
}

#[test]
fn set_times_changes_what_is_not_omitted() {
    let fs = fs();
    fs.write("/f", "").expect("made");
    fs.symlink("f", "/link").expect("made");
    let (old, new) = (Timestamp::from_parts(1000, 1), Timestamp::from_parts(-5, 0));
    fs.set_times("/link", old, old).expect("set");
    fs.set_times("/f", SetTime::Omit, new).expect("set");
    let stat = fs.metadata("/f").expect("there");
    assert_eq!((stat.atime, stat.mtime), (old, new));
    assert!(fs.symlink_metadata("/link").expect("there").mtime > old);
    assert_eq!(fs.set_times("/missing", old, old), Err(Error::NoEntry));
}
