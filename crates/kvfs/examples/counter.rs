//! Counts in a store. Kill it at any time, also with SIGKILL, and start it again: it goes on from
//! the last number that it has printed, or from a later one.
//! `cargo run -p pando-kvfs --example counter -- DIR`

use std::{env, error::Error};

use pando_kvfs::{KvFs, StoreOptions};
use pando_vfs::fs::Fs;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = env::args_os().nth(1).ok_or("usage: counter DIR")?;
    let fs = Fs::new(KvFs::open(dir, StoreOptions::new())?)?;
    let start = match fs.read_to_string("/count") {
        Ok(text) => text.parse()?,
        Err(_) => 0,
    };
    println!("begins after {start}");
    for number in start + 1_u64.. {
        // A rename replaces the file as a whole. So it always has a number.
        fs.write("/count.new", number.to_string())?;
        fs.rename("/count.new", "/count")?;
        if number % 1000 == 0 {
            // From here on, this number survives a crash of the machine.
            fs.open("/count")?.fsync()?;
            println!("{number}");
        }
    }
    Ok(())
}
