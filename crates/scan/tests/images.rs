//! Scans of ext4, XFS, btrfs and tmpfs against the model, on mounts made by the test.

use std::{collections::BTreeMap, path::Path};

use pando_scan::{Event, MIN_BUDGET_BYTES, Mask, Options, Order, Scan, Walk, WalkOptions, Workers, XattrValue};
use rustix::fs::XattrFlags;

mod common;

use common::{MASKS, Random, known, model, mount::Mounted, populate};

fn scans_match_the_model(dir: &Path, seed: u64) {
    populate(dir, 1500, &mut Random(seed));
    for mask in MASKS {
        let expected = model(dir, mask);
        for (workers, order) in [(Workers::Auto, Order::Auto), (Workers::Fixed(4), Order::Inode)] {
            let mut scan = Scan::open(dir, &Options::new().mask(mask).workers(workers).order(order)).unwrap();
            let mut found = BTreeMap::new();
            while let Some(batch) = scan.next_batch().unwrap() {
                for record in batch.iter() {
                    let (name, known) = known(&record);
                    assert!(found.insert(name, known).is_none());
                }
            }
            assert_eq!(found, expected, "{mask:?}, {workers:?}, {order:?}");
        }
    }
}

/// Values as large as Linux allows, on one file more than the smallest budget holds.
fn large_values(dir: &Path, value_bytes: usize, count: usize) {
    let dir = dir.join("large");
    std::fs::create_dir(&dir).unwrap();
    for file in 0..20 {
        std::fs::write(dir.join(format!("f{file}")), b"").unwrap();
        let attributes = if file == 7 { count } else { 2 };
        for number in 0..attributes {
            let value = vec![(number * 31 + file) as u8; value_bytes];
            rustix::fs::setxattr(dir.join(format!("f{file}")), format!("user.v{number}"), &value, XattrFlags::empty())
                .unwrap();
        }
    }
    let expected = model(&dir, Mask::all());
    for (budget_bytes, all) in [(MIN_BUDGET_BYTES, false), (Options::new().budget_bytes, true)] {
        for workers in [Workers::Auto, Workers::Fixed(8)] {
            let options = Options::new().mask(Mask::all()).budget_bytes(budget_bytes).workers(workers);
            let mut scan = Scan::open(&dir, &options).unwrap();
            let mut seen = 0;
            while let Some(batch) = scan.next_batch().unwrap() {
                for record in batch.iter() {
                    seen += 1;
                    if record.name() == b"f7" && !all {
                        assert_eq!(record.xattr_errno(), Some(rustix::io::Errno::TOOBIG.raw_os_error()));
                        assert!(record.attr().is_some(), "the attributes are there");
                        let values = record.xattrs().filter(|xattr| matches!(xattr.value, XattrValue::Bytes(_)));
                        assert!((1..count).contains(&values.count()), "values that fit are kept");
                        continue;
                    }
                    let (name, known) = known(&record);
                    assert_eq!(Some(&known), expected.get(&name), "{budget_bytes} {workers:?}");
                }
            }
            assert_eq!(seen, expected.len());
        }
    }
}

/// Directories whose first file has values that do not fit into the slice of a directory that is
/// read ahead.
fn large_values_first(dir: &Path) {
    let dir = dir.join("first");
    for below in 0..4 {
        let below = dir.join(format!("d{below}"));
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(below.join("f"), b"").unwrap();
        for number in 0..20 {
            let name = format!("user.v{number}");
            rustix::fs::setxattr(below.join("f"), name, &[number; 65536], XattrFlags::empty()).unwrap();
        }
    }
    let scan = Options::new().mask(Mask::all()).workers(Workers::Fixed(4));
    let mut walk = Walk::open(dir, WalkOptions::new().scan(scan)).unwrap();
    let mut values = 0;
    while let Some(event) = walk.next_event() {
        let Event::Batch(_, batch) = event else { continue };
        for record in batch.iter() {
            assert_eq!(record.xattr_errno(), None);
            values += record.xattrs().filter(|xattr| matches!(xattr.value, XattrValue::Bytes(_))).count();
        }
    }
    assert_eq!(values, 4 * 20);
}

#[test]
fn ext4() {
    let Some(image) = Mounted::image("mkfs.ext4", &["-q"], 64 << 20) else { return };
    scans_match_the_model(&image.path(), 21);
}

#[test]
fn xfs() {
    let Some(image) = Mounted::image("mkfs.xfs", &["-q"], 320 << 20) else { return };
    scans_match_the_model(&image.path(), 22);
    large_values(&image.path(), 65536, 20);
    large_values_first(&image.path());
}

#[test]
fn btrfs() {
    let Some(image) = Mounted::image("mkfs.btrfs", &["-q"], 128 << 20) else { return };
    scans_match_the_model(&image.path(), 23);
    large_values(&image.path(), 12_000, 100);
}

#[test]
fn tmpfs() {
    let Some(mounted) = Mounted::tmpfs("size=50%") else { return };
    scans_match_the_model(&mounted.path(), 24);
}
