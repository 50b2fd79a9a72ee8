//! An embedder's first program: a tree in memory, a directory, a file.

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::fs::Fs;

fn main() -> pando_vfs::Result<()> {
    let fs = Fs::new(MemFs::new(MemOptions::new()))?;
    fs.create_dir_all("/grove/north")?;
    fs.write("/grove/north/tree", "forty-seven thousand trunks, one root\n")?;
    print!("{}", fs.read_to_string("/grove/north/tree")?);
    Ok(())
}
