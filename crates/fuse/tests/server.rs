//! The server without a kernel: what is counted, what is refused, what a panic costs.

use pando_fuse::{Attr, Caller, Server, ServerOptions};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{Error, Vfs};

const ROOT: u64 = 1;
const ME: Caller = Caller { uid: 0, gid: 0 };
const O_RDWR: u32 = 2;

fn server() -> Server {
    let memfs = MemFs::new(MemOptions { size_bytes: Some(1 << 20), inodes: Some(100) });
    Server::new(Vfs::new(memfs).unwrap(), ServerOptions::default())
}

fn free(server: &Server) -> u64 {
    server.statfs(ME, ROOT).unwrap().ffree
}

fn create(server: &Server, name: &str) -> (Attr, u64) {
    server.create(ME, ROOT, name.as_bytes(), 0o644, 0, O_RDWR).unwrap()
}

#[test]
fn a_node_is_known_while_it_is_counted() {
    let server = server();
    let before = free(&server);
    let (made, handle) = create(&server, "f");
    let found = server.lookup(ME, ROOT, b"f").unwrap().unwrap();
    assert_eq!(found.node, made.node);
    server.unlink(ME, ROOT, b"f").unwrap();
    assert_eq!(server.lookup(ME, ROOT, b"f"), Ok(None));
    // Two look-ups were handed out, and the file is open.
    assert_eq!(server.getattr(made.node).unwrap().stat.nlink, 0);
    server.forget(made.node, 1);
    assert!(server.getattr(made.node).is_ok());
    server.forget(made.node, 1);
    assert_eq!(server.getattr(made.node), Err(Error::Stale));
    assert_eq!(server.write(handle, 0, b"still open", false), Ok(10));
    assert_eq!(free(&server), before - 1);
    server.release(handle).unwrap();
    assert_eq!(server.release(handle), Err(Error::BadHandle));
    assert_eq!(free(&server), before, "nothing holds the inode any more");
}
