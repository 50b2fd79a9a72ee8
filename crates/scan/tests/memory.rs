//! The allocations of a scan: none for an entry, and never more than its budget.

use std::{fs, path::Path};

use pando_scan::{MIN_BUDGET_BYTES, Options, Order, Scan, Workers};
use pandofs_testkit::Counting;
use rustix::fs::XattrFlags;

mod common;

use common::{MASKS, temp};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn fill(dir: &Path, count: usize) {
    for number in 0..count {
        let path = dir.join(format!("file{number:06}"));
        if number % 3 == 0 {
            std::os::unix::fs::symlink("../".repeat(number % 40 + 1), &path).unwrap();
            continue;
        }
        fs::write(&path, b"").unwrap();
        // A file system without them has less to be read.
        let _ = rustix::fs::setxattr(&path, "user.grove", b"aspen", XattrFlags::empty());
    }
}

/// Entries, allocations, and the most bytes at a time.
fn measure(dir: &Path, options: &Options) -> (usize, usize, usize) {
    let (calls, live) = (Counting::calls(), Counting::live());
    let mut scan = Scan::open(dir, options).unwrap();
    let (mut entries, mut sum) = (0, 0);
    while let Some(batch) = scan.next_batch().unwrap() {
        for record in batch.iter() {
            entries += 1;
            sum += record.attr().map_or(0, |attr| attr.size) + record.xattrs().count() as u64;
            sum += record.link_target().map_or(0, |target| target.unwrap().len() as u64);
        }
    }
    assert!(sum < u64::MAX);
    drop(scan);
    (entries, Counting::calls() - calls, Counting::peak() - live)
}

/// One test, since the allocator counts for the whole process.
#[test]
fn entries_allocate_nothing_and_the_budget_holds() {
    let (small, large) = (temp(), temp());
    fill(small.path(), 3000);
    fill(large.path(), 9000);
    for mask in MASKS {
        for workers in [Workers::Fixed(1), Workers::Fixed(4), Workers::Auto] {
            for (budget_bytes, order) in [
                (MIN_BUDGET_BYTES, Order::Directory),
                (4 << 20, Order::Inode),
                (Options::new().budget_bytes, Order::Directory),
            ] {
                let options = Options::new().mask(mask).budget_bytes(budget_bytes).workers(workers).order(order);
                let (few, few_calls, _) = measure(small.path(), &options);
                let (many, many_calls, peak) = measure(large.path(), &options);
                assert_eq!((few, many), (3000, 9000));
                // The rest is for a batch: its shared head, and its jobs.
                let for_each = many_calls.saturating_sub(few_calls) as f64 / (many - few) as f64;
                assert!(for_each < 0.02, "{for_each} allocations for an entry: {few_calls}, {many_calls}, {options:?}");
                // Beyond the budget: heads, and the order of the calls.
                assert!(peak < budget_bytes + (256 << 10), "{peak} bytes of {budget_bytes}, {options:?}");
            }
        }
    }
}
