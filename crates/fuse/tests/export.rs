//! Nodes that the kernel has forgotten and looks up again, as it does for file handles.

#[path = "support/inodes.rs"]
mod inodes;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use pando_fuse::{Caller, Server, ServerOptions};
use pando_mapfs::{MapFs, MapHandle, MapOptions};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{Error, FileKind, Vfs};

use crate::inodes::await_inodes;

const ROOT: u64 = 1;
const ME: Caller = Caller::new(0, 0);

fn server() -> Server {
    let driver = MemFs::new(MemOptions::new().inodes(1000));
    Server::new(Vfs::new(driver).unwrap(), ServerOptions::default())
}

/// The node of `name` in `node`, and its generation.
fn look_up(server: &Server, node: u64, name: &[u8]) -> Result<(u64, u32), Error> {
    server.lookup(ME, node, name)?.map(|attr| (attr.node, attr.generation)).ok_or(Error::NoEntry)
}

#[test]
fn forgotten_nodes_are_found_while_they_have_a_name() {
    let server = server();
    let dir = server.mkdir(ME, ROOT, b"dir", 0o755, 0).unwrap();
    let file = server.mknod(ME, dir.node, b"file", 0o100_644, 0, 0).unwrap();
    assert_eq!(file.generation, dir.generation);
    assert_ne!(file.generation, 0);
    server.link(ME, file.node, ROOT, b"second").unwrap();
    server.forget(file.node, 2);
    server.forget(dir.node, 1);
    for node in [file, dir] {
        assert_eq!(look_up(&server, node.node, b"."), Ok((node.node, node.generation)));
        server.forget(node.node, 1);
    }
    assert_eq!(look_up(&server, dir.node, b".."), Ok((ROOT, 0)));
    assert_eq!(look_up(&server, ROOT, b".."), Ok((ROOT, 0)));
    assert_eq!(look_up(&server, file.node, b".."), Err(Error::NotDirectory));

    server.unlink(ME, dir.node, b"file").unwrap();
    assert_eq!(look_up(&server, file.node, b".").map(|found| found.0), Ok(file.node));
    server.rmdir(ME, ROOT, b"dir").unwrap();
    assert_eq!(look_up(&server, dir.node, b"."), Err(Error::Stale));
    // It was counted once more above, so without a name it is found until that count is dropped.
    server.unlink(ME, ROOT, b"second").unwrap();
    assert_eq!(look_up(&server, file.node, b".").map(|found| found.0), Ok(file.node));
    server.forget(file.node, 2);
    assert_eq!(look_up(&server, file.node, b"."), Err(Error::Stale));
    await_inodes(&server, 1);
}

#[test]
fn nodes_replaced_by_rename_are_not_found() {
    let server = server();
    for kind in [FileKind::File, FileKind::Directory] {
        let make = |name: &[u8]| {
            let made = match kind {
                FileKind::Directory => server.mkdir(ME, ROOT, name, 0o755, 0),
                _ => server.mknod(ME, ROOT, name, 0o100_644, 0, 0),
            };
            let node = made.unwrap().node;
            server.forget(node, 1);
            node
        };
        let (moved, replaced) = (make(b"moved"), make(b"replaced"));
        server.rename(ME, (ROOT, b"moved"), (ROOT, b"replaced"), 0).unwrap();
        assert_eq!(look_up(&server, replaced, b"."), Err(Error::Stale));
        assert_eq!(look_up(&server, moved, b".").map(|found| found.0), Ok(moved));
        await_inodes(&server, 2);
        match kind {
            FileKind::Directory => server.rmdir(ME, ROOT, b"replaced").unwrap(),
            _ => server.unlink(ME, ROOT, b"replaced").unwrap(),
        }
        server.forget(moved, 1);
        await_inodes(&server, 1);
    }
}

/// One thread forgets the last count, and another removes the last name. One of them must release
/// the inode.
#[test]
fn forget_beside_removal_releases_the_inode() {
    let server = server();
    for round in 0..3000 {
        let is_dir = round % 2 == 0;
        let made = if is_dir {
            server.mkdir(ME, ROOT, b"it", 0o755, 0)
        } else {
            server.mknod(ME, ROOT, b"it", 0o100_644, 0, 0)
        };
        let node = made.unwrap().node;
        let start = AtomicBool::new(false);
        let wait = || {
            while !start.load(Ordering::Acquire) {
                std::hint::spin_loop()
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                wait();
                server.forget(node, 1);
            });
            scope.spawn(|| {
                wait();
                if look_up(&server, node, b".").is_ok() {
                    server.forget(node, 1);
                }
            });
            start.store(true, Ordering::Release);
            if is_dir { server.rmdir(ME, ROOT, b"it") } else { server.unlink(ME, ROOT, b"it") }.unwrap();
        });
        assert_eq!(look_up(&server, node, b"."), Err(Error::Stale), "round {round}");
        await_inodes(&server, 1);
    }
}

/// Without a count they are not: an idle entry would keep the inode in the cache for ever.
#[test]
fn nodes_of_a_backing_are_found_while_they_are_counted() {
    let map = MapFs::new(MapOptions::default());
    map.handle().create(MapHandle::ROOT, "f", FileKind::File, 0o644).unwrap();
    let vfs = Vfs::new(map).unwrap();
    let server = Server::new(vfs.clone(), ServerOptions::default());
    let node = server.lookup(ME, ROOT, b"f").unwrap().unwrap().node;
    assert_eq!(look_up(&server, node, b".").map(|found| found.0), Ok(node));
    server.forget(node, 2);
    assert_eq!(look_up(&server, node, b"."), Err(Error::Stale));
    assert_eq!(vfs.evict(1), Ok(1));
}
