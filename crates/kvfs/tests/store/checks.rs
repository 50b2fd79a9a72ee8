//! The check of a store finds each record that is missing or wrong, and a repair makes a consistent
//! tree of the others.

use std::sync::Arc;

use pando_kv::{Embedded, Engine, FileStorage, Transaction};
use pando_kvfs::{KvFs, Report, StoreOptions, check_parts, repair, repair_parts};
use pando_vfs::{At, OpenFlags, Walk, XattrFlags, fs::Fs};

use crate::{
    acl::{ACCESS, DEFAULT, acl},
    crash::open,
    machine::{Image, Machine},
    support::{Tree, seen},
};

/// A store with records of all kinds: its image while a file without a name is open.
fn filled() -> Image {
    let machine = Machine::new(&Image::default());
    drop(Embedded::create(Arc::new(machine.clone())).expect("made"));
    let (vfs, context) = open(&machine);
    let file = |path: &str, len: usize| {
        let file = vfs.open(&context, At::Cwd, path, OpenFlags::RDWR | OpenFlags::CREAT, 0o644).expect("made");
        file.pwrite(&vec![1; len], 0).expect("written");
        file
    };
    vfs.mkdir(&context, At::Cwd, "/d", 0o755).expect("made");
    vfs.mkdir(&context, At::Cwd, "/d/e", 0o755).expect("made");
    file("/d/e/small", 100);
    file("/large", 30_000);
    vfs.link(&context, At::Cwd, "/large", At::Cwd, "/d/link", Walk::empty()).expect("linked");
    vfs.setxattr(&context, At::Cwd, "/large", "user.x", "value", XattrFlags::empty(), Walk::empty()).expect("set");
    let _unnamed = file("/unnamed", 10);
    vfs.unlink(&context, At::Cwd, "/unnamed").expect("removed");
    vfs.sync().expect("stored");
    machine.image()
}

fn checked(image: &Image, change: &Transaction) -> Report {
    let machine = Machine::new(image);
    let engine = Embedded::open(Arc::new(machine.clone())).expect("undamaged");
    engine.commit(change).expect("no failure");
    check_parts(&engine, &machine, &mut |_| ()).expect("readable")
}

/// Repairs a store with this change. Returns what the repair has changed, and the tree.
fn repaired(image: &Image, change: &Transaction) -> (Vec<String>, Tree) {
    let machine = Machine::new(image);
    let engine = Embedded::open(Arc::new(machine.clone())).expect("undamaged");
    engine.commit(change).expect("no failure");
    let into = Machine::new(&Image { contents: image.contents.clone(), ..Image::default() });
    let made = Embedded::create(Arc::new(into.clone())).expect("made");
    let changes = repair_parts(&engine, &machine, &made).expect("repaired");
    drop(made);
    let (vfs, context) = open(&into);
    let tree = seen(&vfs, &context);
    // It can be used.
    let made = vfs.open(&context, At::Cwd, "/new", OpenFlags::RDWR | OpenFlags::CREAT, 0o644);
    assert_eq!(made.expect("made").pwrite(&[1; 40_000], 0), Ok(40_000));
    vfs.sync().expect("stored");
    (changes, tree)
}

/// All records of an image but the header and the totals.
fn records(image: &Image) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    let engine = Embedded::open(Arc::new(Machine::new(image))).expect("undamaged");
    let snapshot = engine.snapshot().expect("readable");
    snapshot.scan(&[]..&[0xff], &mut |key, value| records.push((key.to_vec(), value.to_vec()))).expect("readable");
    records.retain(|(key, _)| key[0] != b'0');
    records
}

/// [`repaired`] has checked that nothing is wrong any more.
#[test]
fn repair_keeps_what_is_not_damaged() {
    let image = filled();
    let (changes, whole) = repaired(&image, &Transaction::new());
    assert_eq!((changes, whole.len()), (vec![], 6), "the root, and five names");
    let mut kept = 0;
    for (key, value) in records(&image) {
        let (mut without, mut cut, mut twice) = (Transaction::new(), Transaction::new(), Transaction::new());
        without.remove(&*key);
        cut.put(&*key, &value[..value.len() / 2]);
        twice.put([&key[..1], &[0x7f], &key[2..]].concat(), &*value);
        for change in [without, cut, twice] {
            let (changes, tree) = repaired(&image, &change);
            let differs = checked(&image, &change).problems != [""; 0];
            assert_eq!(differs, !changes.is_empty(), "{key:02x?}: {changes:?}");
            // Not only of totals.
            assert!(!differs || changes.iter().any(|change| change.contains("inode ") || change.contains("director")));
            // Directories have other link counts if one of them is lost.
            let same =
                whole.iter().filter(|(path, node)| tree.get(*path).is_some_and(|found| found.bytes == node.bytes));
            let same = same.count();
            assert!(same >= 2, "{key:02x?}: {:?}, {changes:?}", tree.keys());
            kept += same;
        }
    }
    println!("{kept} paths");
}

/// A file whose name is lost gets another one, and keeps its bytes.
#[test]
fn files_without_a_name_are_in_lost_and_found() {
    let image = filled();
    let mut nameless = Transaction::new();
    records(&image).iter().filter(|(key, _)| key[0] == b'n').for_each(|(key, _)| nameless.remove(&**key));
    let (changes, tree) = repaired(&image, &nameless);
    let lost = |wanted: &dyn Fn(&[u8]) -> bool| {
        tree.iter().filter(|(path, node)| path.starts_with("/lost+found/#") && wanted(&node.bytes)).count()
    };
    assert_eq!((lost(&|bytes| bytes == [1; 100]), lost(&|bytes| bytes == [1; 30_000])), (1, 1), "{changes:?}");
    assert_eq!(lost(&<[u8]>::is_empty), 2, "both directories: {:?}", tree.keys());
}

/// Records that no operation makes.
#[test]
fn nonsense_is_repaired() {
    let image = filled();
    let number = |first: u8, ino: u64| [&[first][..], &ino.to_be_bytes()].concat();
    let found = records(&image);
    let names: Vec<_> = found.iter().filter(|(key, _)| key[0] == b'n').collect();
    let (key, value) = names[0];
    let dir = u64::from_be_bytes(names[1].0[1..9].try_into().expect("8 bytes"));
    let mut nonsense = Vec::new();
    // The root is to be freed, and a directory with names.
    for ino in [1, dir] {
        let mut unnamed = Transaction::new();
        unnamed.put(number(b'u', ino), "");
        nonsense.push(unnamed);
    }
    // A name in the record of another hash, and twice in one.
    for other in [[&key[..9], &[1; 8]].concat(), [&key[..9], &[0xff; 8]].concat()] {
        let (mut moved, mut twice) = (Transaction::new(), Transaction::new());
        moved.remove(&**key);
        moved.put(&*other, &**value);
        twice.put(&**key, [&value[..], value].concat());
        nonsense.extend([moved, twice]);
    }
    // Totals.
    for totals in [vec![], vec![0xff; 64], vec![0x7f; 64]] {
        let mut wrong = Transaction::new();
        wrong.put([b'0', 0, 0, 0, 0, 0, 0, 0, 1], totals);
        nonsense.push(wrong);
    }
    for (place, change) in nonsense.iter().enumerate() {
        let problems = checked(&image, change).problems;
        let (changes, tree) = repaired(&image, change);
        assert!(!problems.is_empty() && !changes.is_empty(), "{place}: {problems:?}, {changes:?}");
        assert!(tree.len() >= 6, "{place}: {:?}", tree.keys());
    }
}

/// Two directories that have each other's names: the root leads to neither.
#[test]
fn directories_in_a_circle_are_in_lost_and_found() {
    let machine = Machine::new(&Image::default());
    drop(Embedded::create(Arc::new(machine.clone())).expect("made"));
    let (vfs, context) = open(&machine);
    for path in ["/a", "/a/b", "/a/b/c"] {
        vfs.mkdir(&context, At::Cwd, path, 0o755).expect("made");
    }
    let ino = |path| vfs.stat(&context, At::Cwd, path, Walk::empty()).expect("there").ino;
    let (a, b) = (ino("/a"), ino("/a/b"));
    vfs.sync().expect("stored");
    let image = machine.image();
    // The name of `a` goes from the root to `b`. Its hash does not depend on the directory.
    let mut circle = Transaction::new();
    let of_root = |key: &[u8]| key[0] == b'n' && key[1..9] == 1_u64.to_be_bytes();
    let (key, value) = records(&image).into_iter().find(|(key, _)| of_root(key)).expect("one name");
    circle.remove(&*key);
    circle.put([b"n", &b.to_be_bytes()[..], &key[9..]].concat(), value);
    let (changes, tree) = repaired(&image, &circle);
    let lost = tree.keys().filter(|path| path.starts_with("/lost+found/")).count();
    assert_eq!(lost, 3, "inodes {a} and {b}, and what is below: {:?}, {changes:?}", tree.keys());
}

#[test]
fn missing_and_wrong_records_are_found() {
    let image = filled();
    let whole = checked(&image, &Transaction::new());
    assert_eq!((whole.inodes, whole.names, &whole.problems[..]), (6, 5, &[][..]));
    let mut records = Vec::new();
    let engine = Embedded::open(Arc::new(Machine::new(&image))).expect("undamaged");
    let snapshot = engine.snapshot().expect("readable");
    snapshot.scan(&[]..&[0xff], &mut |key, value| records.push((key.to_vec(), value.to_vec()))).expect("readable");
    for (key, value) in &records {
        let mut without = Transaction::new();
        without.remove(&**key);
        assert_ne!(checked(&image, &without).problems, [""; 0], "without {key:02x?}");
        let mut cut = Transaction::new();
        cut.put(&**key, &value[..value.len() / 2]);
        // That of a file without a name is empty. A shorter header is refused by the open.
        if !value.is_empty() && key[0] != b'0' {
            assert_ne!(checked(&image, &cut).problems, [""; 0], "half of {key:02x?}");
        }
        let mut twice = Transaction::new();
        let other = [&key[..1], &[0x7f], &key[2..]].concat();
        twice.put(other, &**value);
        if key[0] != b'0' {
            assert_ne!(checked(&image, &twice).problems, [""; 0], "twice {key:02x?}");
        }
    }
}

/// The ACL and the mode are in one record. If they differ, the mode is what the owner saw.
#[test]
fn acls_that_do_not_fit_the_mode_are_found() {
    let machine = Machine::new(&Image::default());
    drop(Embedded::create(Arc::new(machine.clone())).expect("made"));
    let (vfs, context) = open(&machine);
    vfs.mkdir(&context, At::Cwd, "/d", 0o750).expect("made");
    for name in [ACCESS, DEFAULT] {
        let value = acl(0o750, 7, 6);
        vfs.setxattr(&context, At::Cwd, "/d", name, value, XattrFlags::empty(), Walk::empty()).expect("set");
    }
    vfs.sync().expect("stored");
    let image = machine.image();
    assert_eq!(checked(&image, &Transaction::new()).problems, [""; 0]);
    let dir = |(key, value): &(Vec<u8>, Vec<u8>)| key[0] == b'i' && key[1..9] != 1_u64.to_be_bytes() && value[0] == 1;
    let (key, value) = records(&image).into_iter().find(dir).expect("one directory");
    // The mode is after the kind and the flags. A file has no default ACL.
    for (place, byte) in [(2, 0o300_u16.to_le_bytes()[0]), (0, 0)] {
        let (mut changed, mut wrong) = (value.clone(), Transaction::new());
        changed[place] = byte;
        wrong.put(&*key, changed);
        let problems = checked(&image, &wrong).problems;
        assert!(problems.iter().any(|problem| problem.contains("its ACLs do not fit")), "{problems:?}");
        let (changes, _) = repaired(&image, &wrong);
        assert!(changes.iter().any(|change| change.contains("its ACLs are changed")), "{changes:?}");
    }
}

/// An inode notes in which records its names are.
#[test]
fn wrong_notes_of_names_are_found() {
    // Before the notes: an inode without ACLs, and with its contents in a record.
    const COUNT: usize = 68;
    let image = filled();
    let found = records(&image);
    let noting = |(key, value): &&(Vec<u8>, Vec<u8>)| key[0] == b'i' && value[..2] == [0, 0] && value[COUNT] == 1;
    let (key, value) = found.iter().find(noting).expect("a file with one name");
    let note = &value[COUNT + 1..COUNT + 17];
    let mut other = note.to_vec();
    other[9] ^= 1;
    // Another one, none, one twice, and one too many of an inode that may have more.
    let (all, some) = (0, 8);
    for (flags, notes) in [(all, vec![&*other]), (all, vec![]), (all, vec![note, note]), (some, vec![note, &*other])] {
        let mut changed = value[..COUNT].to_vec();
        changed[1] = flags;
        changed.push(notes.len() as u8);
        notes.iter().for_each(|note| changed.extend(*note));
        let mut wrong = Transaction::new();
        wrong.put(&**key, changed);
        let problems = checked(&image, &wrong).problems;
        assert!(problems.len() == 1 && problems[0].contains("its names are not those"), "{problems:?}");
        let (changes, tree) = repaired(&image, &wrong);
        assert!(changes.len() == 1 && changes[0].contains("its names are noted again"), "{changes:?}");
        assert_eq!(tree.len(), 6, "the root, and five names");
    }
}

#[test]
fn missing_file_with_contents_is_found() {
    let mut image = filled();
    image.contents.clear();
    let problems = checked(&image, &Transaction::new()).problems;
    assert!(problems.len() == 1 && problems[0].contains("the file with its contents is missing"), "{problems:?}");
}

/// In a directory: nothing is changed before it was asked for, and then the old records are kept.
#[test]
fn repair_of_a_directory_is_shown_before_it_is_made() {
    let temp = tempfile::tempdir().expect("a directory");
    let (dir, records) = (temp.path(), temp.path().join("pandofs-records"));
    let store = KvFs::open(dir, StoreOptions::new()).expect("a store");
    let (closed, fs) = (store.closed(), Fs::new(store).expect("a tree"));
    fs.write("/file", "contents").expect("written");
    drop(fs);
    closed.wait().expect("stored");
    assert_eq!(repair(dir, true).expect("a store"), [""; 0], "nothing is wrong");
    {
        let engine = Embedded::open(Arc::new(FileStorage::open(&records).expect("there"))).expect("undamaged");
        let mut name = None;
        let snapshot = engine.snapshot().expect("readable");
        snapshot.scan(&b"n"[..]..&b"o"[..], &mut |key, _| name = Some(key.to_vec())).expect("readable");
        drop(snapshot);
        let mut nameless = Transaction::new();
        nameless.remove(name.expect("one"));
        engine.commit(&nameless).expect("no failure");
    }
    let names = || {
        let names = std::fs::read_dir(dir).expect("there").map(|entry| entry.expect("there").file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let problems = || pando_kvfs::check(dir, &mut |_| ()).expect("a store").problems;
    let before = (names(), problems());
    let shown = repair(dir, false).expect("a store");
    assert!(shown.iter().any(|change| change.contains("has lost its name, it is in lost+found as #")), "{shown:?}");
    assert_eq!((names(), problems()), before, "nothing is changed yet");
    assert_eq!(repair(dir, true).expect("a store"), shown);
    assert_eq!(problems(), [""; 0]);
    std::fs::rename(dir.join("pandofs-records"), dir.join("repaired")).expect("there");
    std::fs::rename(dir.join("pandofs-records.before"), &records).expect("kept");
    assert_eq!(problems(), before.1);
    std::fs::rename(dir.join("repaired"), &records).expect("there");
    let fs = Fs::new(KvFs::open(dir, StoreOptions::new()).expect("a store")).expect("a tree");
    let lost = fs.read_dir("/lost+found").expect("there").map(|entry| entry.expect("there").path());
    let lost: Vec<_> = lost.collect();
    assert_eq!((lost.len(), fs.read(&lost[0])), (1, Ok(b"contents".to_vec())));
}
