//! Locks of files: two processes of a guest share a file, and one waits for the other.

use std::{thread, time::Duration};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Error, LockKind, LockOwner, LockRange, LockWait, OpenFlags, fs::Fs};

fn main() -> pando_vfs::Result<()> {
    let fs = Fs::new(MemFs::new(MemOptions::new()))?;
    fs.write("/accounts", [0; 200])?;
    let open = || fs.vfs().open(fs.context(), At::Cwd, "/accounts", OpenFlags::RDWR, 0);
    let (one, other) = (open()?, open()?);
    // The embedder numbers the processes. A record of the file is locked, not the whole file.
    let record = LockRange::new(100, 100)?;
    one.lock_range(LockOwner::Process(1), LockKind::Exclusive, record, LockWait::No)?;
    let refused = other.lock_range(LockOwner::Process(2), LockKind::Shared, record, LockWait::No);
    assert_eq!(refused, Err(Error::TryAgain));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let wait = LockWait::For(Duration::from_secs(60));
            other.lock_range(LockOwner::Process(2), LockKind::Shared, record, wait)
        });
        one.pwrite(b"paid", 100)?;
        // As a close by process 1 does.
        one.release_process_locks(1);
        waiting.join().expect("no panic")
    })?;
    let mut text = [0; 4];
    other.pread(&mut text, 100)?;
    println!("{}", String::from_utf8_lossy(&text));
    Ok(())
}
