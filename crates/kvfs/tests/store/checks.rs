//! The check of a store finds each record that is missing or wrong.

use std::sync::Arc;

use pando_kv::{Embedded, Engine, Transaction};
use pando_kvfs::{Report, check_parts};
use pando_vfs::{At, OpenFlags, Walk, XattrFlags};

use crate::{
    crash::open,
    machine::{Image, Machine},
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

#[test]
fn missing_file_with_contents_is_found() {
    let mut image = filled();
    image.contents.clear();
    let problems = checked(&image, &Transaction::new()).problems;
    assert!(problems.len() == 1 && problems[0].contains("the file with its contents is missing"), "{problems:?}");
}
