//! Adds up the sizes of all entries of a directory of the host, however many there are, with a
//! cache of a fixed size:
//! `cargo run --release -p pando-hostfs --example sizes -- DIR [CACHED_INODES]`.

use std::{env, error::Error, fs, time::Instant};

use pando_hostfs::{HostFs, HostOptions};
use pando_vfs::{
    At, Context, Credentials, Next, OpenFlags, Vfs, VfsOptions,
    records::{Mask, Unpacked},
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let source = args.next().ok_or("usage: sizes DIR [CACHED_INODES]")?;
    let cached = args.next().map_or(Ok(100_000), |number| number.parse())?;
    let host = HostFs::open(source, HostOptions::new())?;
    let vfs = Vfs::with_options(host, VfsOptions::new().cached_inodes(cached))?;
    let context = Context::new(&vfs, Credentials::root());

    let begun = Instant::now();
    let dir = vfs.open(&context, At::Cwd, "/", OpenFlags::DIRECTORY, 0)?;
    let (mut buffer, mut cookie) = (vec![0; 65536], 0);
    let (mut entries, mut bytes) = (0, 0);
    loop {
        let packed = dir.xgetdents(&context, cookie, Mask::STAT, &mut buffer)?;
        for record in Unpacked::new(&buffer[..packed.bytes]) {
            entries += 1;
            bytes += record.attr().map_or(0, |attr| attr.size);
        }
        match packed.next {
            Next::End => break,
            Next::More => cookie = packed.cookie,
            Next::Needs(bytes) => buffer.resize(bytes, 0),
        }
    }
    println!("{entries} entries with {bytes} bytes in {:.1} s", begun.elapsed().as_secs_f64());
    // The most memory that this process has used.
    let status = fs::read_to_string("/proc/self/status")?;
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default());
    Ok(())
}
