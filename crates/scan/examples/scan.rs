//! Scans directories and prints how many entries there are, and a sum: the cost of the scan itself.
//!
//! `scan LEVEL WORKERS ORDER DIRECTORY...`: level 0 to 3; workers `auto` or a number; order `auto`,
//! `directory` or `inode`. With `walk` before the level, trees are walked.

use std::process::ExitCode;

use pando_scan::{Batch, Event, Mask, Options, Order, Scan, Walk, WalkOptions, Workers, XattrValue};

fn add(batch: &Batch, entries: &mut u64, sum: &mut u64) {
    for record in batch.iter() {
        *entries += 1;
        *sum += record.attr().map_or(0, |attr| attr.size + u64::from(attr.mtime.nanos));
        for xattr in record.xattrs() {
            if let XattrValue::Bytes(value) = xattr.value {
                *sum += value.len() as u64 + value.first().map_or(0, |&byte| u64::from(byte));
            }
        }
    }
}

fn run(arguments: &[String]) -> Option<()> {
    let walk = arguments.first()? == "walk";
    let [level, workers, order, paths @ ..] = &arguments[usize::from(walk)..] else { return None };
    let options = Options::new()
        .mask(Mask::level(level.parse().ok()?)?)
        .workers(if workers == "auto" { Workers::Auto } else { Workers::Fixed(workers.parse().ok()?) })
        .order(match order.as_str() {
            "auto" => Order::Auto,
            "directory" => Order::Directory,
            "inode" => Order::Inode,
            _ => return None,
        });
    let (mut entries, mut sum) = (0, 0);
    for path in paths {
        if walk {
            let mut walk = Walk::open(path, WalkOptions::new().scan(options)).ok()?;
            while let Some(event) = walk.next_event() {
                match event {
                    Event::Batch(_, batch) => add(batch, &mut entries, &mut sum),
                    Event::Failed(failure) => eprintln!("{failure:?}"),
                    _ => {}
                }
            }
        } else {
            let mut scan = Scan::open(path, &options).map_err(|error| eprintln!("{error}")).ok()?;
            while let Some(batch) = scan.next_batch().map_err(|error| eprintln!("{error}")).ok()? {
                add(batch, &mut entries, &mut sum);
            }
        }
    }
    println!("{entries} entries, {sum}");
    Some(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if run(&arguments).is_none() {
        eprintln!("usage: scan [walk] 0|1|2|3 auto|WORKERS auto|directory|inode DIRECTORY...");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
