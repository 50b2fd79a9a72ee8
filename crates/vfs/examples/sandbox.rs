//! A tree for guests that are not trusted: each has a root of its own, room of its own, and one may
//! only look.

use std::sync::Arc;

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, Driver, Error, Resolve, Result, Vfs, fs::Fs};

/// What a guest may use: 1 MiB in files, and 100 inodes, links and attributes included.
fn room() -> MemOptions {
    MemOptions::new().size_bytes(1 << 20).inodes(100)
}

fn main() -> Result<()> {
    let vfs = Vfs::new(MemFs::new(MemOptions::default()))?;
    let host = Context::new(&vfs, Credentials::root());
    for dir in ["/shared", "/guest"] {
        vfs.mkdir(&host, At::Cwd, dir, 0o755)?;
    }
    Fs::with_context(vfs.clone(), host.clone()).write("/shared/manual", "read me\n")?;

    // A tree with limits of its own, mounted where the guest lives. The host keeps the driver, to
    // look at what is used.
    let room = Arc::new(MemFs::new(room()));
    vfs.mount(&host, At::Cwd, "/guest", room.clone())?;
    vfs.chown(&host, At::Cwd, "/guest", Some(1000), Some(1000), pando_vfs::Walk::empty())?;
    let home = vfs.lookup(&host, At::Cwd, "/guest", pando_vfs::Walk::empty())?;
    let user = Credentials::user(1000, 1000, &[]);
    let guest = Fs::with_context(vfs.clone(), Context::rooted(&home, user.clone())?);
    guest.write("/notes", "mine\n")?;
    print!("the guest reads: {}", guest.read_to_string("../../notes")?);
    assert_eq!(guest.read("/../shared/manual").err(), Some(Error::NoEntry));
    let refused = guest.write("/large", vec![0; 2 << 20]);
    println!("2 MiB in a room of one: {}", refused.expect_err("it does not fit"));
    println!("inodes in use: {}", room.statfs().files - room.statfs().ffree);

    // Another one may look at what is shared, and follows no link on its way.
    let shared = vfs.lookup(&host, At::Cwd, "/shared", pando_vfs::Walk::empty())?;
    let looking = Context::rooted(&shared, user)?.read_only(true).with_resolve(Resolve::NO_SYMLINKS);
    let reader = Fs::with_context(vfs, looking);
    print!("the reader reads: {}", reader.read_to_string("/manual")?);
    println!("and writes: {}", reader.write("/manual", "mine now\n").expect_err("read-only"));
    Ok(())
}
