//! xgetdents of a backed tree: few calls of the driver, and an errno for each entry that fails.

use pando_mapfs::{Call, Fault, MapHandle, MapOptions};
use pando_vfs::{
    At, Context, Error, File, FileKind, Next, OpenFlags, Vfs, Walk, XattrFlags,
    records::{Mask, Unpacked, XattrValue},
};

use crate::support::{evict_down_to, mounted, with_reports};

const FILES: u32 = 200;
const CALLS: [Call; 4] = [Call::Scan, Call::Lookup, Call::Getattr, Call::Xattrs];

/// A store with files that others have made, each with an extended attribute.
fn filled(options: MapOptions) -> (Vfs, Context, MapHandle, File) {
    with_files(mounted(options))
}

fn with_files((vfs, root, store): (Vfs, Context, MapHandle)) -> (Vfs, Context, MapHandle, File) {
    for n in 0..FILES {
        let ino = store.create(MapHandle::ROOT, n.to_string(), FileKind::File, 0o600 + n % 8).expect("made");
        store.set_xattr(ino, b"user.number", Some(n.to_string().as_bytes())).expect("set");
    }
    let dir = vfs.open(&root, At::Cwd, "/", OpenFlags::DIRECTORY, 0).expect("opens");
    (vfs, root, store, dir)
}

/// Name, mode, the value of the attribute, and the two errnos.
type Shown = (String, Option<u32>, Option<String>, [Option<i32>; 2]);

fn list(dir: &File, context: &Context, size: usize) -> Vec<Shown> {
    let (mut buffer, mut cookie, mut all) = (vec![0; size], 0, Vec::new());
    loop {
        let packed = dir.xgetdents(context, cookie, Mask::level(3).expect("a level"), &mut buffer).expect("lists");
        for record in Unpacked::new(&buffer[..packed.bytes]) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let value = record.xattrs().next().map(|xattr| match xattr.value {
                XattrValue::Bytes(bytes) => text(bytes),
                odd => panic!("{odd:?}"),
            });
            let mode = record.attr().map(|attr| attr.mode & 0o7777);
            all.push((text(record.name()), mode, value, [record.errno(), record.xattr_errno()]));
        }
        cookie = packed.cookie;
        match packed.next {
            Next::End => return all.split_off(2),
            Next::More => {}
            Next::Needs(bytes) => panic!("{bytes}"),
        }
    }
}

fn expected(n: &str) -> Shown {
    let number: u32 = n.parse().expect("a number");
    (n.to_owned(), Some(0o600 + number % 8), Some(n.to_owned()), [None; 2])
}

#[test]
fn a_listing_takes_one_call_of_each_kind_for_a_batch() {
    for scans_add_attributes in [false, true] {
        let (vfs, root, store, dir) = filled(MapOptions { scans_add_attributes, ..MapOptions::default() });
        // Those of `.` and `..`, which no scan has.
        vfs.listxattr(&root, At::Cwd, "/", Walk::empty()).expect("loads");
        let before = CALLS.map(|call| store.calls(call));
        let listed = list(&dir, &root, 1 << 20);
        assert_eq!(listed.len(), FILES as usize);
        listed.iter().for_each(|shown| assert_eq!(*shown, expected(&shown.0)));
        let after = CALLS.map(|call| store.calls(call));
        let made: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        // The store of the tests scans 64 entries at a time.
        let alone = u64::from(!scans_add_attributes);
        assert_eq!(made, [4, alone, 0, alone], "{scans_add_attributes}");
        assert_eq!(list(&dir, &root, 1 << 20), listed);
        assert_eq!(CALLS.map(|call| store.calls(call))[1..], after[1..], "all is cached");
    }
}

/// Small buffers do not make the store list the same entries again and again.
#[test]
fn calls_grow_with_the_entries_and_not_with_their_square() {
    let (_vfs, root, store, dir) = filled(MapOptions::default());
    let whole = list(&dir, &root, 1 << 20);
    let before = store.calls(Call::Scan);
    assert_eq!(list(&dir, &root, 2048), whole);
    let scans = store.calls(Call::Scan) - before;
    assert!(scans < u64::from(FILES) / 4, "{scans}");
}

#[test]
fn an_entry_that_cannot_be_read_has_its_errno() {
    let (vfs, root, store, dir) = filled(MapOptions::default());
    let whole = list(&dir, &root, 1 << 20);
    // The batch fails, and the inodes stay unknown.
    evict_down_to(&vfs, &store, 1);
    store.inject(Fault::Nth { call: Some(Call::Xattrs), after: 0, error: Error::NoMemory });
    for (name, mode, value, errnos) in list(&dir, &root, 1 << 20) {
        let expected = expected(&name);
        assert_eq!((mode, value, errnos), (expected.1, None, [None, Some(Error::NoMemory.errno())]));
    }
    assert_eq!(list(&dir, &root, 1 << 20), whole);
    // Others remove a file after it was listed.
    evict_down_to(&vfs, &store, 1);
    let parked = store.park(Call::Lookup);
    std::thread::scope(|scope| {
        let lister = scope.spawn(|| list(&dir, &root, 1 << 20));
        parked.reached();
        store.remove(MapHandle::ROOT, "8").expect("removed");
        drop(parked);
        for shown in lister.join().expect("no panic") {
            if shown.0 == "8" {
                assert_eq!(shown, ("8".into(), None, None, [Some(Error::NoEntry.errno()), None]));
            } else {
                assert_eq!(shown, expected(&shown.0));
            }
        }
    });
}

#[test]
fn a_failed_scan_is_an_error_after_the_entries_before_it() {
    let (_vfs, root, store, dir) = filled(MapOptions::default());
    let mut buffer = vec![0; 1 << 20];
    store.inject(Fault::Nth { call: Some(Call::Scan), after: 0, error: Error::Io });
    assert_eq!(dir.xgetdents(&root, 0, Mask::STAT, &mut buffer), Err(Error::Io));
    let first = dir.xgetdents(&root, 0, Mask::STAT, &mut buffer[..4096]).expect("lists");
    assert!(first.entries > 2 && first.next == Next::More);
}

/// A listing shows changes by others at once.
#[test]
fn changes_by_others_are_shown() {
    let (vfs, root, store, dir) = filled(MapOptions::default());
    list(&dir, &root, 1 << 20);
    let ino = store.lookup(MapHandle::ROOT, "7").expect("asked").expect("there");
    store.chmod(ino, 0o123).expect("changed");
    store.set_xattr(ino, b"user.number", Some(b"seven")).expect("set");
    store.remove(MapHandle::ROOT, "8").expect("removed");
    vfs.setxattr(&root, At::Cwd, "/9", "user.number", "nine", XattrFlags::REPLACE, Walk::empty()).expect("set");
    let listed = list(&dir, &root, 1 << 20);
    let shown = |name: &str| listed.iter().find(|shown| shown.0 == name).cloned();
    assert_eq!(shown("7"), Some(("7".into(), Some(0o123), Some("seven".into()), [None; 2])));
    assert_eq!(shown("8"), None);
    assert_eq!(shown("9").and_then(|shown| shown.2), Some("nine".into()));
}

/// Others change an extended attribute after a scan has read the old one.
#[test]
fn an_extended_attribute_that_a_scan_has_read_does_not_outlast_a_change_by_others() {
    for exact_reports in [false, true] {
        let options = MapOptions { scans_add_attributes: true, ..MapOptions::default() };
        let (vfs, root, store, dir) = with_files(with_reports(exact_reports, options));
        let ino = store.lookup(MapHandle::ROOT, "7").expect("asked").expect("there");
        let parked = store.park_reply(Call::Scan);
        std::thread::scope(|scope| {
            let lister = scope.spawn(|| list(&dir, &root, 1 << 20));
            parked.reached();
            store.set_xattr(ino, b"user.number", Some(b"seven")).expect("set");
            drop(parked);
            let listed = lister.join().expect("no panic");
            assert_eq!(listed.len(), FILES as usize);
        });
        let value = vfs.getxattr(&root, At::Cwd, "/7", "user.number", Walk::empty()).expect("there");
        assert_eq!(value, b"seven", "{exact_reports}");
    }
}
