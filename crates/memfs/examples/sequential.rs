//! Sequential writes and reads of one large file, compared with plain copies of the same bytes in
//! the same process.
//!
//! `cargo run --release -p pando-memfs --example sequential [MiB]`
//!
//! The bound for a write is a copy into memory that the process touches for the first time, since a
//! new page is such memory. The bound for a read is a copy from memory that is already mapped.

use std::time::Instant;

use pando_memfs::{MemFs, MemOptions, PAGE_BYTES};
use pando_vfs::Driver;

fn main() {
    let mib: usize = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(1024);
    let bytes = mib << 20;
    println!("{mib} MiB, each figure the best of 3, in MB/s");
    println!(
        "{:>10} {:>12} {:>12} {:>8} {:>12} {:>12} {:>8}",
        "unit", "write", "copy", "ratio", "read", "copy", "ratio"
    );
    for unit in [PAGE_BYTES, 128 << 10, 1 << 20] {
        let source = vec![0x5A_u8; unit];
        let mut target = vec![0_u8; unit];
        let (mut write, mut read, mut copy_in, mut copy_out) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
        for _ in 0..3 {
            let mut plain: Vec<u8> = Vec::with_capacity(bytes);
            copy_in = copy_in.max(rate(bytes, || {
                for _ in 0..bytes / unit {
                    plain.extend_from_slice(&source);
                }
            }));
            copy_out = copy_out.max(rate(bytes, || {
                for chunk in plain.chunks_exact(unit) {
                    target.copy_from_slice(std::hint::black_box(chunk));
                }
            }));
            drop(plain);

            let memfs = MemFs::new(MemOptions::default());
            let mut data = memfs.data(2);
            write = write.max(rate(bytes, || {
                for at in (0..bytes).step_by(unit) {
                    assert_eq!(data.write_at(&source, at as u64), Ok(unit));
                }
            }));
            read = read.max(rate(bytes, || {
                for at in (0..bytes).step_by(unit) {
                    assert_eq!(data.read_at(&mut target, at as u64, bytes as u64), Ok(unit));
                    std::hint::black_box(&target);
                }
            }));
            assert!(target == source);
        }
        println!(
            "{unit:>10} {write:>12.0} {copy_in:>12.0} {:>8.2} {read:>12.0} {copy_out:>12.0} {:>8.2}",
            write / copy_in,
            read / copy_out
        );
    }
}

fn rate(bytes: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    bytes as f64 / 1e6 / start.elapsed().as_secs_f64()
}
