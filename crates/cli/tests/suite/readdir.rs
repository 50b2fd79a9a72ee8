//! getdents(2), readdir(3), rewinddir(3), seekdir(3).

use std::{
    collections::BTreeSet,
    fs,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
};

use nix::{
    errno::Errno,
    fcntl::{self, OFlag},
    sys::stat::Mode,
    unistd::{Whence, lseek},
};
use rustix::fs::{FileType, RawDir};

use crate::place::{Case, OWNER, Place, STRANGER, as_nix, case, fails, name, open, users};

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    name: String,
    kind: FileType,
    inode: u64,
    /// The position after it.
    next: i64,
}

fn directory(place: &Place, path: &str) -> OwnedFd {
    open(place, path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)
}

/// The entries that one call of getdents returns.
fn some(dir: &OwnedFd, buffer: usize) -> nix::Result<Vec<Entry>> {
    let mut buffer = vec![MaybeUninit::uninit(); buffer];
    let (mut raw, mut found) = (RawDir::new(dir, &mut buffer), Vec::new());
    while let Some(entry) = raw.next() {
        let entry = as_nix(entry)?;
        found.push(Entry {
            name: entry.file_name().to_string_lossy().into_owned(),
            kind: entry.file_type(),
            inode: entry.ino(),
            next: entry.next_entry_cookie().cast_signed(),
        });
        if raw.is_buffer_empty() {
            break;
        }
    }
    Ok(found)
}

/// The entries of the next call. None at the end.
fn more(dir: &OwnedFd, buffer: usize) -> Option<Vec<Entry>> {
    Some(some(dir, buffer).expect("read")).filter(|found| !found.is_empty())
}

/// All entries that follow, by calls with small buffers.
fn rest(dir: &OwnedFd) -> Vec<Entry> {
    let mut all = Vec::new();
    while let Some(found) = more(dir, 512) {
        all.extend(found);
    }
    all
}

/// The names without `.` and `..`. Asserts that none is there twice.
fn names(entries: &[Entry]) -> BTreeSet<String> {
    let set: BTreeSet<_> = entries.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(set.len(), entries.len(), "a name twice");
    set.into_iter().filter(|name| name != "." && name != "..").collect()
}

/// The names of many new files in a new directory.
fn many(place: &Place) -> BTreeSet<String> {
    place.dir("dir");
    let new = |index| {
        place.file(&format!("dir/file-{index}"));
        format!("file-{index}")
    };
    (0..300).map(new).collect()
}

pub const CASES: &[Case] = &[
    case("an empty directory has `.` and `..`, once each", |place| {
        place.dir("dir");
        let mut found: Vec<_> = rest(&directory(place, "dir")).into_iter().map(|entry| entry.name).collect();
        found.sort();
        assert_eq!(found, [".", ".."]);
    }),
    case("each entry is listed once, with its type and inode", |place| {
        place.dir("dir");
        place.file("dir/file");
        place.dir("dir/inner");
        place.symlink("missing", "dir/link");
        fs::hard_link(place.path("dir/file"), place.path("dir/alias")).expect("linked");
        place.fifo("dir/fifo");
        place.socket("dir/socket");
        let found = rest(&directory(place, "dir"));
        for (name, kind) in [
            (".", FileType::Directory),
            ("..", FileType::Directory),
            ("file", FileType::RegularFile),
            ("inner", FileType::Directory),
            ("link", FileType::Symlink),
            ("alias", FileType::RegularFile),
            ("fifo", FileType::Fifo),
            ("socket", FileType::Socket),
        ] {
            let inode = fs::symlink_metadata(place.path("dir").join(name)).expect("there").ino();
            let same: Vec<_> = found.iter().filter(|entry| entry.name == name).collect();
            assert_eq!(same.len(), 1, "{name}");
            assert_eq!((same[0].kind, same[0].inode), (kind, inode), "{name}");
        }
        assert_eq!(found.len(), 8);
    }),
    case("many entries are listed once each, whatever the size of the buffer", |place| {
        let expected = many(place);
        for buffer in [64, 1_000, 4_096, 1 << 20] {
            let (dir, mut all) = (directory(place, "dir"), Vec::new());
            while let Some(found) = more(&dir, buffer) {
                all.extend(found);
            }
            assert_eq!((names(&all), all.len()), (expected.clone(), expected.len() + 2));
        }
    }),
    case("names of 255 bytes, and names that are not UTF-8, are listed", |place| {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
        place.dir("dir");
        place.file(&format!("dir/{}", name(255)));
        fs::write(place.path("dir").join(OsStr::from_bytes(b"\xff\n\x01")), "").expect("made");
        let mut found: Vec<_> =
            fs::read_dir(place.path("dir")).expect("read").map(|entry| entry.expect("read").file_name()).collect();
        found.sort();
        assert_eq!(found, [OsStr::new(&name(255)), OsStr::from_bytes(b"\xff\n\x01")]);
    }),
    case("a buffer without space for an entry is EINVAL", |place| {
        place.dir("dir");
        let dir = directory(place, "dir");
        fails(Errno::EINVAL, some(&dir, 16));
        assert_eq!(rest(&dir).len(), 2);
    }),
    case("a file is ENOTDIR, and a descriptor of O_PATH is EBADF", |place| {
        place.file("file");
        place.dir("dir");
        fails(Errno::ENOTDIR, some(&open(place, "file", OFlag::O_RDONLY), 512));
        fails(Errno::EBADF, some(&open(place, "dir", OFlag::O_PATH), 512));
    }),
    case("an entry that exists during the whole listing is listed once", |place| {
        let before = many(place);
        let dir = directory(place, "dir");
        let mut all = some(&dir, 2_048).expect("read");
        let mut stay = before.clone();
        for round in 0..6 {
            for index in (round..300).step_by(7) {
                if stay.remove(&format!("file-{index}")) {
                    fs::remove_file(place.path(&format!("dir/file-{index}"))).expect("removed");
                }
            }
            place.file(&format!("dir/new-{round}"));
            all.extend(some(&dir, 2_048).expect("read"));
        }
        all.extend(rest(&dir));
        let found = names(&all);
        assert!(stay.is_subset(&found), "missing: {:?}", stay.difference(&found));
        let strange: Vec<_> = found.difference(&before).filter(|name| !name.starts_with("new-")).collect();
        assert!(strange.is_empty(), "{strange:?}");
    }),
    case("a directory can be emptied while it is listed", |place| {
        let before = many(place);
        let (dir, mut removed) = (directory(place, "dir"), BTreeSet::new());
        while let Some(found) = more(&dir, 512) {
            for name in names(&found) {
                fs::remove_file(place.path("dir").join(&name)).expect("removed");
                removed.insert(name);
            }
        }
        assert_eq!(removed, before);
        fs::remove_dir(place.path("dir")).expect("empty");
    }),
    case("at the end nothing more is listed", |place| {
        place.dir("dir");
        let dir = directory(place, "dir");
        rest(&dir);
        for _ in 0..2 {
            assert_eq!(some(&dir, 512), Ok(vec![]));
        }
    }),
    case("after a rewind, all entries are listed again, with the new ones", |place| {
        let mut expected = many(place);
        let dir = directory(place, "dir");
        for round in 0..3 {
            some(&dir, 512).expect("read");
            place.file(&format!("dir/new-{round}"));
            fs::remove_file(place.path(&format!("dir/file-{round}"))).expect("removed");
            expected.insert(format!("new-{round}"));
            expected.remove(&format!("file-{round}"));
            assert_eq!(lseek(&dir, 0, Whence::SeekSet), Ok(0));
            assert_eq!(names(&rest(&dir)), expected);
            assert_eq!(lseek(&dir, 0, Whence::SeekSet), Ok(0));
        }
    }),
    case("a listing continues at the position of each entry", |place| {
        many(place);
        let dir = directory(place, "dir");
        let all = rest(&dir);
        for index in [0, 1, 2, 50, 100, 298, 299, 300] {
            assert_eq!(lseek(&dir, all[index].next, Whence::SeekSet), Ok(all[index].next));
            assert_eq!(rest(&dir), all[index + 1..], "{index}");
        }
        let last = all.last().expect("there").next;
        assert_eq!(lseek(&dir, last, Whence::SeekSet), Ok(last));
        assert_eq!(rest(&dir), []);
    }),
    case("a position stays valid when entries are made and removed", |place| {
        many(place);
        let dir = directory(place, "dir");
        let all = rest(&dir);
        // `.` and `..` may be anywhere.
        let file = |from: usize| all[from..].iter().find(|entry| entry.name.starts_with("file-")).expect("there");
        for entry in [file(10), file(120)] {
            fs::remove_file(place.path("dir").join(&entry.name)).expect("removed");
        }
        place.file("dir/new");
        lseek(&dir, all[100].next, Whence::SeekSet).expect("moved");
        let (mut expected, found) = (names(&all[101..]), names(&rest(&dir)));
        expected.remove(&file(120).name);
        let missing: Vec<_> = expected.difference(&found).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let twice = names(&all[..101]);
        assert!(twice.is_disjoint(&found), "{:?}", twice.intersection(&found));
    }),
    case("each open has its own position, and a duplicate shares it", |place| {
        many(place);
        let (one, two) = (directory(place, "dir"), directory(place, "dir"));
        let same = nix::unistd::dup(&one).expect("a duplicate");
        let mut all = some(&one, 512).expect("read");
        all.extend(rest(&same));
        assert_eq!(all, rest(&two));
        assert_eq!(rest(&one), []);
    }),
    case("a removed directory is ENOENT", |place| {
        let path = place.dir("dir");
        let dir = directory(place, "dir");
        fs::remove_dir(path).expect("removed");
        // readdir(3) reports this error as the end.
        fails(Errno::ENOENT, some(&dir, 512));
    }),
    case("after a rewind, a renamed entry has its new name only", |place| {
        place.dir("dir");
        place.file("dir/old");
        let dir = directory(place, "dir");
        fs::rename(place.path("dir/old"), place.path("dir/new")).expect("renamed");
        // POSIX leaves open whether names are listed that are newer than the open or the rewind.
        assert_eq!(lseek(&dir, 0, Whence::SeekSet), Ok(0));
        assert_eq!(names(&rest(&dir)), BTreeSet::from(["new".to_owned()]));
    }),
    case("`..` of a directory that was moved is its new parent", |place| {
        for dir in ["one", "two", "one/dir"] {
            place.dir(dir);
        }
        fs::rename(place.path("one/dir"), place.path("two/dir")).expect("renamed");
        let found = rest(&directory(place, "two/dir"));
        let up = found.iter().find(|entry| entry.name == "..").expect("there");
        assert_eq!(up.inode, fs::metadata(place.path("two")).expect("there").ino());
    }),
    case("a listing changes at most the atime", |place| {
        place.dir("dir");
        place.file("dir/file");
        let dir = directory(place, "dir");
        let changed = place.changed(&["", "dir", "dir/file"], || some(&dir, 512));
        // A mount with noatime keeps it.
        assert!(matches!(changed.as_str(), "dir: atime" | ""), "{changed}");
    }),
    users("read permission is needed to list, and search permission is not", |place| {
        let path = place.dir("dir");
        place.file("dir/file");
        let opened = || fcntl::open(&path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty());
        for (user, permitted) in [(OWNER, 0o400), (STRANGER, 0o004)] {
            place.give("dir", permitted);
            let found = user.does(|| names(&rest(&opened().expect("permitted"))));
            assert_eq!(found, BTreeSet::from(["file".to_owned()]));
            place.give("dir", 0o777 & !permitted);
            fails(Errno::EACCES, user.does(opened));
        }
    }),
];
