//! The cost of a table: nanoseconds for each operation with one and two threads, and bytes for each
//! element.
//!
//! `cargo run --release -p pando-sync --example split_table`
//!
//! On Linux the time is the CPU time of the threads, so that other programs disturb less. Two
//! threads that do not disturb each other show a speed of 2.

use std::{hint::black_box, sync::Barrier, time::Instant};

use pando_sync::{Detached, Node, SplitTable, pin};

type Table = SplitTable<u64>;

fn hash(name: u64) -> u64 {
    let x = (name + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ x >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

fn insert(table: &Table, name: u64, node: Detached<u64>, len: u64) {
    let guard = pin();
    let done = table.insert(hash(name), |&n| n == name, node, &guard).expect("a new name");
    table.adapt(len as usize, done.contended, &guard);
}

fn remove(table: &Table, name: u64, len: u64) {
    let guard = pin();
    let found = table.get(hash(name), |&n| n == name, &guard).expect("it was inserted");
    let done = table.remove(found, &guard);
    table.adapt(len as usize, done.contended, &guard);
}

/// This thread's CPU time in nanoseconds (proc(5), `schedstat`), or else the elapsed time.
fn now(zero: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let on_core = stat.and_then(|s| s.split(' ').next()?.parse::<f64>().ok());
    on_core.unwrap_or_else(|| zero.elapsed().as_nanos() as f64)
}

/// Nanoseconds for one operation of one thread, when `threads` threads call `each` with (thread,
/// step).
fn time(threads: u64, steps: u64, each: impl Fn(u64, u64) + Sync) -> f64 {
    let start = Barrier::new(threads as usize + 1);
    std::thread::scope(|s| {
        let running: Vec<_> = (0..threads)
            .map(|t| {
                let (start, each) = (&start, &each);
                s.spawn(move || {
                    start.wait();
                    let zero = Instant::now();
                    let begun = now(zero);
                    (0..steps).for_each(|i| each(t, i));
                    (now(zero) - begun) / steps as f64
                })
            })
            .collect();
        start.wait();
        running.into_iter().map(|r| r.join().expect("no panic")).fold(0.0, f64::max)
    })
}

fn main() {
    println!(" elements threads    get ns   miss ns ins+remove ns   speed     retire ns");
    for elements in [0, 100, 100_000, 1_000_000_u64] {
        let table = Table::new();
        for name in 0..elements {
            insert(&table, name, Detached::new(name), name + 1);
        }
        let steps = 2_000_000;
        let mut alone = 0.0;
        for threads in [1, 2] {
            let at = |t: u64, i: u64| (i.wrapping_mul(0x9E37_79B1) ^ t << 20) % elements.max(1);
            let get = time(threads, steps, |t, i| {
                let name = at(t, i);
                let guard = pin();
                black_box(table.get(hash(name), |&n| n == name, &guard).map(|n| **n));
            });
            let miss = time(threads, steps, |t, i| {
                let name = elements + at(t, i);
                let guard = pin();
                black_box(table.get(hash(name), |&n| n == name, &guard).map(|n| **n));
            });
            // Each thread has names of its own, as in a directory in which each creates and removes
            // its files.
            let both = time(threads, steps / 2, |t, i| {
                let name = elements + (i % 64) * threads + t;
                insert(&table, name, Detached::new(name), elements + 1);
                remove(&table, name, elements);
            });
            // The part of it for the node's allocation and its retirement.
            let retire = time(threads, steps / 2, |_, i| {
                let _guard = pin();
                drop(black_box(Detached::new(i)));
            });
            alone = if threads == 1 { both } else { alone };
            let speed = threads as f64 * alone / both;
            println!("{elements:>9} {threads:>7} {get:>9.1} {miss:>9.1} {both:>13.1} {speed:>6.2}x {retire:>13.1}");
        }
        let node = size_of::<Node<u64>>() + size_of::<usize>();
        let buckets = table.bucket_bytes();
        let each = buckets as f64 / elements.max(1) as f64;
        println!("{:>9} {node} bytes a node of u64, {buckets} bytes of buckets ({each:.1} each)", "");
    }
}
