//! The server without a kernel: look-up counts, refused requests, panics.

mod counts;
#[path = "../support/inodes.rs"]
mod inodes;
mod listings;
mod panics;
mod privileges;

use std::{cell::RefCell, collections::HashSet, io, path::Path};

use pando_fuse::{Attr, Caller, Connection, Directory, MountOptions, Server, ServerOptions, Transport};
use pando_mapfs::{Call, MapFs, MapHandle, MapOptions};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Context, Credentials, Error, FileKind, Vfs};

use crate::inodes::await_inodes;

const ROOT: u64 = 1;
const ME: Caller = Caller::new(0, 0);
const YOU: Caller = Caller::new(1000, 100);
/// The kernel says that the request clears setuid and setgid.
const CLEARS: Caller = Caller { keeps_privileges: Some(false), ..ME };
const O_RDWR: u32 = 2;
const O_TRUNC: u32 = 0o1000;

fn memfs() -> MemFs {
    MemFs::new(MemOptions::new().size_bytes(1 << 20).inodes(10_000))
}

fn server() -> Server {
    Server::new(Vfs::new(memfs()).unwrap(), ServerOptions::default())
}

fn create(server: &Server, name: &str) -> (Attr, u64) {
    server.create(ME, ROOT, name.as_bytes(), 0o644, 0, O_RDWR).unwrap()
}

/// A transport need not know which mount options concern the server.
#[test]
fn server_gets_its_mount_options() {
    /// A transport that only stores the server.
    #[derive(Default)]
    struct NoKernel(RefCell<Option<Server>>);
    impl Transport for NoKernel {
        fn attach(&self, server: Server, _: &Path, _: &MountOptions) -> io::Result<Box<dyn Connection>> {
            *self.0.borrow_mut() = Some(server);
            Err(io::ErrorKind::Unsupported.into())
        }
    }
    for no_atime in [false, true] {
        let transport = NoKernel::default();
        let options = MountOptions { no_atime, ..MountOptions::default() };
        assert!(transport.connect(server(), Path::new("/"), &options).is_err());
        let server = transport.0.into_inner().unwrap();
        let link = server.symlink(ME, ROOT, b"link", b"target").unwrap();
        server.readlink(ME, link.node).unwrap();
        let atime = server.getattr(link.node).unwrap().stat.atime;
        assert_eq!(atime == link.stat.atime, no_atime);
    }
}

#[test]
fn node_is_known_while_it_is_counted() {
    let server = server();
    let (made, handle) = create(&server, "f");
    let found = server.lookup(ME, ROOT, b"f").unwrap().unwrap();
    assert_eq!(found.node, made.node);
    server.unlink(ME, ROOT, b"f").unwrap();
    assert_eq!(server.lookup(ME, ROOT, b"f"), Ok(None));
    // Two look-ups are counted, and the file is open.
    assert_eq!(server.getattr(made.node).unwrap().stat.nlink, 0);
    server.forget(made.node, 1);
    assert!(server.getattr(made.node).is_ok());
    server.forget(made.node, 1);
    assert_eq!(server.getattr(made.node), Err(Error::Stale));
    assert_eq!(server.write(ME, handle, 0, b"still open"), Ok(10));
    await_inodes(&server, 2);
    server.release(handle).unwrap();
    assert_eq!(server.release(handle), Err(Error::BadHandle));
    await_inodes(&server, 1);
}

#[test]
fn failed_requests_count_no_look_up() {
    let server = server();
    let (made, handle) = create(&server, "f");
    server.release(handle).unwrap();
    assert_eq!(server.mkdir(ME, ROOT, b"f", 0o755, 0), Err(Error::Exists));
    assert_eq!(server.link(ME, made.node, ROOT, b"f"), Err(Error::Exists));
    let exclusive = server.create(ME, ROOT, b"f", 0o644, 0, O_RDWR | 0o200);
    assert_eq!(exclusive, Err(Error::Exists));
    server.unlink(ME, ROOT, b"f").unwrap();
    server.forget(made.node, 1);
    assert_eq!(server.getattr(made.node), Err(Error::Stale));
    await_inodes(&server, 1);
}

/// Reads a directory in replies of `per_reply` entries. Returns the names in order, and the number
/// of replies.
fn scan(server: &Server, dir: Directory, per_reply: usize) -> (Vec<Vec<u8>>, usize) {
    let (mut names, mut cookie, mut replies) = (Vec::new(), 0, 0);
    loop {
        let mut left = per_reply;
        let before = names.len();
        server
            .readdirplus(ME, dir, cookie, &mut |entry, attr| {
                if left == 0 {
                    return false;
                }
                left -= 1;
                let dots = entry.name == b"." || entry.name == b"..";
                assert!(attr.is_none_or(|attr| !dots && attr.node == entry.ino));
                names.push(entry.name.to_vec());
                cookie = entry.cookie;
                true
            })
            .unwrap();
        replies += 1;
        if names.len() == before {
            return (names, replies);
        }
    }
}

#[test]
fn entries_that_did_not_fit_are_not_counted() {
    let server = server();
    let nodes: Vec<u64> = (0..1000)
        .map(|i| {
            let (made, handle) = create(&server, &format!("name-{i}"));
            server.release(handle).unwrap();
            server.forget(made.node, 1);
            made.node
        })
        .collect();
    let dir = server.open(ME, ROOT, 0).unwrap();
    let (names, replies) = scan(&server, Directory::Handle(dir), 7);
    assert_eq!((names.len(), replies), (1002, 1002_usize.div_ceil(7) + 1));
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 1002);
    // Each was counted exactly once: after the name is removed, one forget makes the node unknown.
    let (first, second) = nodes.split_at(500);
    for (i, &node) in first.iter().enumerate() {
        server.unlink(ME, ROOT, format!("name-{i}").as_bytes()).unwrap();
        assert!(server.getattr(node).is_ok());
        server.forget(node, 1);
        assert_eq!(server.getattr(node), Err(Error::Stale));
    }
    second.iter().for_each(|&node| server.forget(node, 1));
    // Entries that `add` refuses are not counted.
    let mut offered = 0;
    let refuse = &mut |_: &pando_vfs::DirEntry<'_>, _: Option<Attr>| {
        offered += 1;
        offered <= 2
    };
    server.readdirplus(ME, Directory::Handle(dir), 0, refuse).unwrap();
    assert_eq!(offered, 3);
    // If a panic interrupts a reply, none of its entries is counted.
    quietly(|| {
        let mut taken = 0;
        let result = server.readdirplus(ME, Directory::Handle(dir), 0, &mut |_, _| {
            taken += 1;
            assert!(taken < 250, "a panic in the middle");
            true
        });
        assert_eq!(result, Err(Error::Io));
    });
    server.release(dir).unwrap();
    for (i, &node) in nodes.iter().enumerate().skip(500) {
        assert!(server.getattr(node).is_ok(), "it has a name");
        server.unlink(ME, ROOT, format!("name-{i}").as_bytes()).unwrap();
        assert_eq!(server.getattr(node), Err(Error::Stale));
    }
    await_inodes(&server, 1);
}

/// A backing has inode numbers of its own, and another tree may have the same ones. So if it is
/// mounted in another tree, it is not served, nor is a tree that is mounted in it. Seen to fail:
/// the kernel took the mounted tree for the root, because both have number 1.
#[test]
fn trees_with_ambiguous_inode_numbers_are_not_served() {
    let mapfs = || {
        let driver = MapFs::new(MapOptions::default());
        driver.handle().create(MapHandle::ROOT, "f", FileKind::File, 0o644).unwrap();
        driver
    };
    let vfs = Vfs::new(memfs()).unwrap();
    let context = Context::new(&vfs, Credentials::root());
    for name in ["backed", "memory", "later"] {
        vfs.mkdir(&context, At::Cwd, name, 0o755).unwrap();
    }
    vfs.mount(&context, At::Cwd, "/backed", mapfs()).unwrap();
    vfs.mount(&context, At::Cwd, "/memory", memfs()).unwrap();
    let server = Server::new(vfs.clone(), ServerOptions::default());
    assert_eq!(server.lookup(ME, ROOT, b"backed"), Err(Error::CrossDevice));
    // All trees in memory are served. A tree that is mounted later is not shown either.
    let memory = server.lookup(ME, ROOT, b"memory").unwrap().unwrap();
    let made = server.mkdir(ME, memory.node, b"made", 0o755, 0).unwrap();
    assert_eq!(server.getattr(made.node).map(|attr| attr.stat), Ok(made.stat));
    let covered = server.lookup(ME, ROOT, b"later").unwrap().unwrap();
    vfs.mount(&context, At::Cwd, "/later", mapfs()).unwrap();
    assert_eq!(server.lookup(ME, ROOT, b"later"), Err(Error::CrossDevice));
    assert_eq!(server.getattr(covered.node).map(|attr| attr.stat), Ok(covered.stat));
    let dir = server.open(ME, ROOT, 0).unwrap();
    let mut names = Vec::new();
    let add = &mut |entry: &pando_vfs::DirEntry<'_>, attr: Option<Attr>| {
        names.push((entry.name.to_vec(), attr.map(|attr| attr.node)));
        true
    };
    server.readdirplus(ME, Directory::Handle(dir), 0, add).unwrap();
    assert_eq!(names, [(b".".to_vec(), None), (b"..".to_vec(), None), (b"memory".to_vec(), Some(memory.node))]);
    // In a tree with a backing, not even a tree in memory is served.
    let vfs = Vfs::new(mapfs()).unwrap();
    let context = Context::new(&vfs, Credentials::root());
    vfs.mkdir(&context, At::Cwd, "/m", 0o755).unwrap();
    vfs.mount(&context, At::Cwd, "/m", memfs()).unwrap();
    let server = Server::new(vfs, ServerOptions::default());
    assert_eq!(server.lookup(ME, ROOT, b"m"), Err(Error::CrossDevice));
    assert!(server.lookup(ME, ROOT, b"f").unwrap().is_some());
}

/// The kernel would take an entry without attributes for a node of size 0, which the server has not
/// counted.
#[test]
fn entries_without_attributes_are_looked_up() {
    let map = MapFs::new(MapOptions::default());
    let store = map.handle();
    let ino = store.create(MapHandle::ROOT, "f", FileKind::File, 0o644).unwrap();
    store.link(ino, MapHandle::ROOT, "h").unwrap();
    let server = Server::new(Vfs::new(map).unwrap(), ServerOptions::default());
    // A batch does not return the second name of a known inode: it is looked up alone.
    let node = server.lookup(ME, ROOT, b"f").unwrap().unwrap().node;
    let dir = server.open(ME, ROOT, 0).unwrap();
    let fails = |error| pando_mapfs::Fault::Random { call: Some(Call::Lookup), one_in: 1, seed: 0, error };
    store.inject(fails(Error::Io));
    let (mut seen, mut last) = (Vec::new(), 0);
    let mut read = |cookie| {
        seen.clear();
        let result = server.readdirplus(ME, Directory::Handle(dir), cookie, &mut |entry, attr| {
            last = entry.cookie;
            seen.push((entry.name.to_vec(), attr.map(|attr| attr.node)));
            true
        });
        (result, seen.clone(), last)
    };
    let dots = [(b".".to_vec(), None), (b"..".to_vec(), None)];
    let named = |name: &[u8]| (name.to_vec(), Some(node));
    let (result, seen, last) = read(0);
    assert_eq!((result, seen), (Ok(()), [&dots[..], &[named(b"f")]].concat()));
    assert_eq!(read(last), (Err(Error::Io), vec![], last), "the first entry of a reply");
    store.clear_faults();
    store.inject(fails(Error::NoEntry));
    assert_eq!(read(last), (Ok(()), vec![], last), "vanished");
    store.clear_faults();
    let (result, seen, _) = read(last);
    assert_eq!((result, seen), (Ok(()), vec![named(b"h")]));
    // One count for the look-up, and one for each name.
    server.forget(node, 2);
    assert!(server.getattr(node).is_ok());
    server.forget(node, 1);
    assert_eq!(server.getattr(node), Err(Error::Stale));
    server.release(dir).unwrap();
}

#[test]
fn disconnect_releases_all_inodes() {
    let vfs = Vfs::new(memfs()).unwrap();
    let mut server = Server::new(vfs.clone(), ServerOptions::default());
    for i in 0..100 {
        let name = format!("name-{i}");
        create(&server, &name);
        server.unlink(ME, ROOT, name.as_bytes()).unwrap();
    }
    await_inodes(&server, 101);
    server.disconnect();
    await_inodes(&server, 1);
}

#[test]
fn malformed_requests_are_refused() {
    let server = server();
    let (made, handle) = create(&server, "f");
    for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
        // The kernel looks up these two for a file handle.
        let looked_up = server.lookup(ME, ROOT, name).map(|found| found.map(|attr| attr.node));
        let expected = if matches!(name, b"." | b"..") { Ok(Some(ROOT)) } else { Err(Error::Invalid) };
        assert_eq!(looked_up, expected, "{name:?}");
        assert_eq!(server.mkdir(ME, ROOT, name, 0o755, 0), Err(Error::Invalid));
        assert_eq!(server.mknod(ME, ROOT, name, 0o100_644, 0, 0), Err(Error::Invalid));
        assert_eq!(server.symlink(ME, ROOT, name, b"t"), Err(Error::Invalid));
        assert_eq!(server.link(ME, made.node, ROOT, name), Err(Error::Invalid));
        assert_eq!(server.unlink(ME, ROOT, name), Err(Error::Invalid));
        assert_eq!(server.rmdir(ME, ROOT, name), Err(Error::Invalid));
        assert_eq!(server.rename(ME, (ROOT, name), (ROOT, b"x"), 0), Err(Error::Invalid));
        assert_eq!(server.rename(ME, (ROOT, b"f"), (ROOT, name), 0), Err(Error::Invalid));
        assert_eq!(server.create(ME, ROOT, name, 0o644, 0, O_RDWR), Err(Error::Invalid));
    }
    assert_eq!(server.lookup(ME, ROOT, &[b'n'; 256]), Err(Error::NameTooLong));
    assert_eq!(server.rename(ME, (ROOT, b"f"), (ROOT, b"g"), 8), Err(Error::Invalid));
    assert_eq!(server.mknod(ME, ROOT, b"x", 0o170_644, 0, 0), Err(Error::Invalid));
    assert_eq!(server.setxattr(ME, made.node, b"user.a", b"", 8), Err(Error::Invalid));
    for node in [0, 1 << 20, u64::MAX] {
        assert_eq!(server.getattr(node), Err(Error::Stale));
        assert_eq!(server.lookup(ME, node, b"f"), Err(Error::Stale));
        server.forget(node, u64::MAX);
    }
    for handle in [handle + 1, 1 << 40, u64::MAX] {
        assert_eq!(server.read(handle, 0, &mut [0]), Err(Error::BadHandle));
        assert_eq!(server.write(CLEARS, handle, 0, b"x"), Err(Error::BadHandle));
        assert_eq!(server.readdir(Directory::Handle(handle), 0, &mut |_| true), Err(Error::BadHandle));
        assert_eq!(server.release(handle), Err(Error::BadHandle));
    }
    assert_eq!(server.read(handle, u64::MAX, &mut [0; 2]), Err(Error::Invalid));
    assert_eq!(server.write(ME, handle, u64::MAX, b"xy"), Err(Error::Invalid));
    assert_eq!(server.fallocate(ME, handle, 1 << 30, 0, 1), Err(Error::NotSupported));
    assert_eq!(server.lseek(handle, 0, 0), Err(Error::Invalid));
    assert_eq!(server.lseek(handle, 0, 3), Err(Error::NoDeviceAddress));
    assert_eq!(server.readdir(Directory::Handle(handle), 0, &mut |_| true), Err(Error::NotDirectory));
    assert_eq!(server.lookup(ME, made.node, b"x"), Err(Error::NotDirectory));
    let dir = server.open(ME, ROOT, 0).unwrap();
    assert_eq!(server.readdir(Directory::Handle(dir), u64::MAX, &mut |_| true), Err(Error::Invalid));
    assert_eq!(server.read(dir, 0, &mut [0]), Err(Error::IsDirectory));
    // The root is never counted, so it cannot be forgotten.
    server.forget(ROOT, u64::MAX);
    assert_eq!(server.getattr(ROOT).unwrap().stat.kind, FileKind::Directory);
}

#[test]
fn new_nodes_have_the_owner_and_umask_of_the_caller() {
    let server = server();
    let (made, _) = server.create(YOU, ROOT, b"f", 0o666, 0o027, O_RDWR).unwrap();
    let stat = made.stat;
    assert_eq!((stat.uid, stat.gid, stat.mode, stat.nlink), (1000, 100, 0o640, 1));
    let stat = server.mkdir(YOU, ROOT, b"d", 0o777, 0o022).unwrap().stat;
    assert_eq!((stat.uid, stat.gid, stat.mode, stat.nlink), (1000, 100, 0o755, 2));
    let link = server.symlink(YOU, ROOT, b"l", b"f").unwrap();
    assert_eq!((link.stat.uid, link.stat.mode, link.stat.size), (1000, 0o777, 1));
    assert_eq!(server.readlink(YOU, link.node).unwrap(), b"f");
    let pipe = server.mknod(YOU, ROOT, b"p", 0o010_666, 0, 0o022).unwrap();
    assert_eq!((pipe.stat.kind, pipe.stat.mode), (FileKind::Fifo, 0o644));
}

/// The kernel takes a short write of pages for a complete one.
#[test]
fn short_write_back_is_an_error() {
    const PAGE: usize = 4096;
    let server = server();
    let (_, handle) = create(&server, "f");
    let (_, other) = create(&server, "other");
    server.fallocate(ME, other, 0, 0, (1 << 20) - 100 * PAGE as u64).unwrap();
    let pages = vec![7; 256 * PAGE];
    assert_eq!(server.write_back(ME, handle, 0, &pages), Err(Error::NoSpace));
    assert_eq!(server.write(ME, handle, 0, &pages), Ok(100 * PAGE), "write(2) may be short");
    assert_eq!(server.write_back(ME, handle, 0, &pages[..100 * PAGE]), Ok(100 * PAGE));
}

/// The kernel handles O_APPEND. A page that it writes back through such a descriptor does not go to
/// the end.
#[test]
fn write_ignores_append_flag() {
    const O_APPEND: u32 = 0o2000;
    let server = server();
    let (made, _) = create(&server, "f");
    let handle = server.open(ME, made.node, O_RDWR | O_APPEND).unwrap();
    assert_eq!(server.write(ME, handle, 0, b"0123456789"), Ok(10));
    assert_eq!(server.write_back(ME, handle, 2, b"ab"), Ok(2));
    let mut text = [0; 16];
    assert_eq!(server.read(handle, 0, &mut text), Ok(10));
    assert_eq!(&text[..10], b"01ab456789");
}

/// Runs code that panics on purpose, and keeps the panic hook from printing it.
fn quietly(run: impl FnOnce()) {
    thread_local! {
        static QUIET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    run();
    QUIET.set(false);
}

/// The kernel sends CREATE only for a name that it has not found, and has checked no permission of
/// a file.
#[test]
fn create_of_an_existing_name_makes_the_kernel_look_it_up() {
    let server = server();
    let (made, handle) = create(&server, "secret");
    server.write(ME, handle, 0, b"mine").unwrap();
    for flags in [O_RDWR, O_RDWR | O_TRUNC] {
        assert_eq!(server.create(YOU, ROOT, b"secret", 0o600, 0, flags), Err(Error::Stale));
    }
    assert_eq!(server.getattr(made.node).unwrap().stat.size, 4);
}
