//! The server without a kernel: what is counted, what is refused, what a panic costs.

use std::{
    cell::RefCell,
    collections::HashSet,
    io,
    path::Path,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use pando_fuse::{Attr, Caller, Connection, MountOptions, Server, ServerOptions, Transport};
use pando_mapfs::{Call, MapFs, MapHandle, MapOptions};
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{At, Charge, Context, Credentials, Driver, Error, FileData, FileKind, Result, SetAttr, StatFs, Vfs};

const ROOT: u64 = 1;
const ME: Caller = Caller::new(0, 0);
const YOU: Caller = Caller::new(1000, 100);
/// The kernel says that privileges go.
const TAKEN: Caller = Caller { keeps_privileges: Some(false), ..ME };
const O_RDWR: u32 = 2;
const O_TRUNC: u32 = 0o1000;
const INODES: u64 = 10_000;

fn memfs() -> MemFs {
    MemFs::new(MemOptions { size_bytes: Some(1 << 20), inodes: Some(INODES) })
}

fn server() -> Server {
    Server::new(Vfs::new(memfs()).unwrap(), ServerOptions::default())
}

/// Inodes that are charged, besides the root's.
fn used(server: &Server) -> u64 {
    INODES - 1 - server.statfs(ME, ROOT).unwrap().ffree
}

fn create(server: &Server, name: &str) -> (Attr, u64) {
    server.create(ME, ROOT, name.as_bytes(), 0o644, 0, O_RDWR).unwrap()
}

/// A transport need not know which options of a mount are the server's.
#[test]
fn a_server_is_told_how_its_tree_is_mounted() {
    /// Takes the server, and has no kernel.
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
fn a_node_is_known_while_it_is_counted() {
    let server = server();
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
    assert_eq!(server.write(ME, handle, 0, b"still open"), Ok(10));
    assert_eq!(used(&server), 1);
    server.release(handle).unwrap();
    assert_eq!(server.release(handle), Err(Error::BadHandle));
    assert_eq!(used(&server), 0, "nothing holds the inode any more");
}

#[test]
fn refused_look_ups_are_not_counted() {
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
    assert_eq!(used(&server), 0);
}

/// Reads a directory in answers of `room` entries; names in order, and how many answers it took.
fn scan(server: &Server, handle: u64, room: usize) -> (Vec<Vec<u8>>, usize) {
    let (mut names, mut cookie, mut answers) = (Vec::new(), 0, 0);
    loop {
        let mut left = room;
        let before = names.len();
        server
            .readdirplus(ME, handle, cookie, &mut |entry, attr| {
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
        answers += 1;
        if names.len() == before {
            return (names, answers);
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
    let (names, answers) = scan(&server, dir, 7);
    assert_eq!((names.len(), answers), (1002, 1002_usize.div_ceil(7) + 1));
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 1002);
    // Each was counted exactly once: without a name, one forget makes its number unknown.
    let (first, second) = nodes.split_at(500);
    for (i, &node) in first.iter().enumerate() {
        server.unlink(ME, ROOT, format!("name-{i}").as_bytes()).unwrap();
        assert!(server.getattr(node).is_ok());
        server.forget(node, 1);
        assert_eq!(server.getattr(node), Err(Error::Stale));
    }
    second.iter().for_each(|&node| server.forget(node, 1));
    // None of those that are refused is counted.
    let mut offered = 0;
    let refuse = &mut |_: &pando_vfs::DirEntry<'_>, _: Option<Attr>| {
        offered += 1;
        offered <= 2
    };
    server.readdirplus(ME, dir, 0, refuse).unwrap();
    assert_eq!(offered, 3);
    // Nor is any of an answer in the middle of which something panics.
    quietly(|| {
        let mut taken = 0;
        let result = server.readdirplus(ME, dir, 0, &mut |_, _| {
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
    assert_eq!(used(&server), 0);
}

/// A backing has numbers of its own, and another tree may have the same: where it is mounted beside others, no name leads to it,
/// or to what is mounted in it. Seen to fail: what was mounted was the root to the kernel, both being number 1.
#[test]
fn what_may_have_the_number_of_something_else_is_not_served() {
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
    // All that is in memory is served, and what is mounted later is not shown either.
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
    server.readdirplus(ME, dir, 0, add).unwrap();
    assert_eq!(names, [(b".".to_vec(), None), (b"..".to_vec(), None), (b"memory".to_vec(), Some(memory.node))]);
    // In a tree with a backing, not even what is in memory is.
    let vfs = Vfs::new(mapfs()).unwrap();
    let context = Context::new(&vfs, Credentials::root());
    vfs.mkdir(&context, At::Cwd, "/m", 0o755).unwrap();
    vfs.mount(&context, At::Cwd, "/m", memfs()).unwrap();
    let server = Server::new(vfs, ServerOptions::default());
    assert_eq!(server.lookup(ME, ROOT, b"m"), Err(Error::CrossDevice));
    assert!(server.lookup(ME, ROOT, b"f").unwrap().is_some());
}

/// An entry without attributes would be a node of size zero to the kernel, which the server has not counted.
#[test]
fn entries_that_cannot_be_had_with_their_names_are_looked_up() {
    let map = MapFs::new(MapOptions::default());
    let store = map.handle();
    let ino = store.create(MapHandle::ROOT, "f", FileKind::File, 0o644).unwrap();
    store.link(ino, MapHandle::ROOT, "h").unwrap();
    let server = Server::new(Vfs::new(map).unwrap(), ServerOptions::default());
    // A known inode's further name is not taken out of a batch: it is asked for alone.
    let node = server.lookup(ME, ROOT, b"f").unwrap().unwrap().node;
    let dir = server.open(ME, ROOT, 0).unwrap();
    let fails = |error| pando_mapfs::Fault::Random { call: Some(Call::Lookup), one_in: 1, seed: 0, error };
    store.inject(fails(Error::Io));
    let (mut seen, mut last) = (Vec::new(), 0);
    let mut read = |cookie| {
        seen.clear();
        let result = server.readdirplus(ME, dir, cookie, &mut |entry, attr| {
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
    assert_eq!(read(last), (Err(Error::Io), vec![], last), "the first of an answer");
    store.clear_faults();
    store.inject(fails(Error::NoEntry));
    assert_eq!(read(last), (Ok(()), vec![], last), "vanished");
    store.clear_faults();
    let (result, seen, _) = read(last);
    assert_eq!((result, seen), (Ok(()), vec![named(b"h")]));
    // The look-up, and one for each name.
    server.forget(node, 2);
    assert!(server.getattr(node).is_ok());
    server.forget(node, 1);
    assert_eq!(server.getattr(node), Err(Error::Stale));
    server.release(dir).unwrap();
}

#[test]
fn a_connection_that_ends_leaves_nothing() {
    let vfs = Vfs::new(memfs()).unwrap();
    let mut server = Server::new(vfs.clone(), ServerOptions::default());
    for i in 0..100 {
        let name = format!("name-{i}");
        create(&server, &name);
        server.unlink(ME, ROOT, name.as_bytes()).unwrap();
    }
    assert_eq!(used(&server), 100);
    server.disconnect();
    assert_eq!(used(&server), 0);
}

#[test]
fn malformed_requests_are_refused() {
    let server = server();
    let (made, handle) = create(&server, "f");
    for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
        // By these two the kernel finds what a file handle names.
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
    assert_eq!(server.rename(ME, (ROOT, b"f"), (ROOT, b"g"), 4), Err(Error::Invalid));
    assert_eq!(server.mknod(ME, ROOT, b"x", 0o170_644, 0, 0), Err(Error::Invalid));
    assert_eq!(server.setxattr(ME, made.node, b"user.a", b"", 8), Err(Error::Invalid));
    for node in [0, 1 << 20, u64::MAX] {
        assert_eq!(server.getattr(node), Err(Error::Stale));
        assert_eq!(server.lookup(ME, node, b"f"), Err(Error::Stale));
        server.forget(node, u64::MAX);
    }
    for handle in [handle + 1, 1 << 40, u64::MAX] {
        assert_eq!(server.read(handle, 0, &mut [0]), Err(Error::BadHandle));
        assert_eq!(server.write(TAKEN, handle, 0, b"x"), Err(Error::BadHandle));
        assert_eq!(server.readdir(handle, 0, &mut |_| true), Err(Error::BadHandle));
        assert_eq!(server.release(handle), Err(Error::BadHandle));
    }
    assert_eq!(server.read(handle, u64::MAX, &mut [0; 2]), Err(Error::Invalid));
    assert_eq!(server.write(ME, handle, u64::MAX, b"xy"), Err(Error::Invalid));
    assert_eq!(server.fallocate(ME, handle, 1 << 30, 0, 1), Err(Error::NotSupported));
    assert_eq!(server.lseek(handle, 0, 0), Err(Error::Invalid));
    assert_eq!(server.lseek(handle, 0, 3), Err(Error::NoDeviceAddress));
    assert_eq!(server.readdir(handle, 0, &mut |_| true), Err(Error::NotDirectory));
    assert_eq!(server.lookup(ME, made.node, b"x"), Err(Error::NotDirectory));
    let dir = server.open(ME, ROOT, 0).unwrap();
    assert_eq!(server.readdir(dir, u64::MAX, &mut |_| true), Err(Error::Invalid));
    assert_eq!(server.read(dir, 0, &mut [0]), Err(Error::IsDirectory));
    // The root is never counted, so it cannot be forgotten.
    server.forget(ROOT, u64::MAX);
    assert_eq!(server.getattr(ROOT).unwrap().stat.kind, FileKind::Directory);
}

#[test]
fn new_nodes_are_the_callers_under_its_umask() {
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

#[test]
fn changed_contents_lose_privileges() {
    let server = server();
    let (made, handle) = server.create(YOU, ROOT, b"f", 0o777, 0, O_RDWR).unwrap();
    let marked = |mode| server.setattr(YOU, made.node, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
    let mode = || server.getattr(made.node).unwrap().stat.mode;
    let cut = SetAttr { size: Some(3), ..SetAttr::default() };
    marked(0o6777);
    server.write(ME, handle, 0, b"xxxx").unwrap();
    server.setattr(ME, made.node, &cut).unwrap();
    assert_eq!(mode(), 0o6777, "who may keep them keeps them");
    server.write(TAKEN, handle, 0, b"x").unwrap();
    assert_eq!(mode(), 0o777);
    marked(0o6767);
    server.setattr(YOU, made.node, &cut).unwrap();
    assert_eq!(mode(), 0o2767, "setgid without group execution marks for locking");
    marked(0o6777);
    server.open(YOU, made.node, O_RDWR | O_TRUNC).unwrap();
    assert_eq!((mode(), server.getattr(made.node).unwrap().stat.size), (0o777, 0));
}

/// A permission that is taken away in the same moment is gone: only the bits of privilege change.
#[test]
fn losing_privileges_undoes_no_chmod() {
    let server = server();
    let (made, _) = server.create(YOU, ROOT, b"f", 0o777, 0, O_RDWR).unwrap();
    let chmod = |mode| server.setattr(ME, made.node, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
    let barrier = Barrier::new(2);
    let undone = thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5000 {
                barrier.wait();
                let handle = server.open(YOU, made.node, O_RDWR | O_TRUNC).unwrap();
                server.release(handle).unwrap();
                barrier.wait();
            }
        });
        let rounds = (0..5000).filter(|_| {
            chmod(0o4777);
            barrier.wait();
            chmod(0o700);
            barrier.wait();
            server.getattr(made.node).unwrap().stat.mode != 0o700
        });
        rounds.count()
    });
    assert_eq!(undone, 0);
}

/// The kernel takes any count for all pages that it writes back.
#[test]
fn pages_that_are_written_back_in_part_are_an_error() {
    const PAGE: usize = 4096;
    let server = server();
    let (_, handle) = create(&server, "f");
    let (_, other) = create(&server, "other");
    server.fallocate(ME, other, 0, 0, (1 << 20) - 100 * PAGE as u64).unwrap();
    let pages = vec![7; 256 * PAGE];
    assert_eq!(server.write_back(ME, handle, 0, &pages), Err(Error::NoSpace));
    assert_eq!(server.write(ME, handle, 0, &pages), Ok(100 * PAGE), "one who is told how much");
    assert_eq!(server.write_back(ME, handle, 0, &pages[..100 * PAGE]), Ok(100 * PAGE));
}

/// A page that is written back through a descriptor that appends goes where it belongs.
#[test]
fn appending_is_the_kernels_business() {
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

/// A tree whose files panic while `armed`.
struct Fragile {
    inner: MemFs,
    armed: Arc<AtomicBool>,
}

struct FragileData {
    inner: Box<dyn FileData>,
    armed: Arc<AtomicBool>,
}

impl FragileData {
    fn crack(&self) {
        assert!(!self.armed.load(Ordering::Relaxed), "a file cracked");
    }
}

impl Driver for Fragile {
    fn statfs(&self) -> StatFs {
        self.inner.statfs()
    }
    fn charge(&self, what: Charge) -> Result<()> {
        assert!(!self.armed.load(Ordering::Relaxed), "an inode cracked");
        self.inner.charge(what)
    }
    fn release(&self, what: Charge) {
        self.inner.release(what);
    }
    fn data(&self, ino: u64) -> Box<dyn FileData> {
        Box::new(FragileData { inner: self.inner.data(ino), armed: self.armed.clone() })
    }
}

impl FileData for FragileData {
    fn read_at(&self, buf: &mut [u8], offset: u64, size: u64) -> Result<usize> {
        self.crack();
        self.inner.read_at(buf, offset, size)
    }
    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<usize> {
        self.crack();
        self.inner.write_at(data, offset)
    }
    fn truncate(&mut self, old_size: u64, new_size: u64) -> Result<()> {
        self.crack();
        self.inner.truncate(old_size, new_size)
    }
    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        self.inner.allocate(offset, len)
    }
    fn punch(&mut self, offset: u64, len: u64) -> Result<()> {
        self.inner.punch(offset, len)
    }
    fn seek_data(&self, offset: u64, size: u64) -> Option<u64> {
        self.inner.seek_data(offset, size)
    }
    fn seek_hole(&self, offset: u64, size: u64) -> u64 {
        self.inner.seek_hole(offset, size)
    }
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }
    fn sync(&mut self) -> Result<()> {
        self.inner.sync()
    }
}

/// Runs what panics on purpose without the hook's printing of it.
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

#[test]
fn a_panic_costs_one_request() {
    let armed = Arc::new(AtomicBool::new(false));
    let fragile = Fragile { inner: memfs(), armed: armed.clone() };
    let server = Server::new(Vfs::new(fragile).unwrap(), ServerOptions::default());
    let (made, handle) = create(&server, "f");
    server.write(ME, handle, 0, b"whole").unwrap();
    armed.store(true, Ordering::Relaxed);
    quietly(|| {
        assert_eq!(server.write(ME, handle, 0, b"lost"), Err(Error::Io));
        assert_eq!(server.read(handle, 0, &mut [0; 5]), Err(Error::Io));
        let cut = SetAttr { size: Some(1), ..SetAttr::default() };
        assert_eq!(server.setattr(ME, made.node, &cut), Err(Error::Io));
        assert_eq!(server.mkdir(ME, ROOT, b"d", 0o755, 0), Err(Error::Io));
        assert_eq!(server.create(ME, ROOT, b"g", 0o644, 0, O_RDWR), Err(Error::Io));
    });
    armed.store(false, Ordering::Relaxed);
    // Nothing stayed locked, pending or half made, also for other threads and for the same names.
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut text = [0; 8];
            assert_eq!(server.read(handle, 0, &mut text), Ok(5));
            assert_eq!(&text[..5], b"whole");
            assert_eq!(server.write(ME, handle, 5, b"!"), Ok(1));
            assert_eq!(server.lookup(ME, ROOT, b"d"), Ok(None));
            server.mkdir(ME, ROOT, b"d", 0o755, 0).unwrap();
            server.rmdir(ME, ROOT, b"d").unwrap();
            let (_, other) = create(&server, "g");
            server.release(other).unwrap();
        });
    });
    assert_eq!(server.getattr(made.node).unwrap().stat.size, 6);
}

#[test]
fn counts_are_exact_under_contention() {
    let server = server();
    let (made, handle) = create(&server, "f");
    server.release(handle).unwrap();
    // Threads look one file up and forget it, each its own count: the number stays known, and nothing is left over.
    let barrier = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..2000 {
                    let found = server.lookup(ME, ROOT, b"f").unwrap().unwrap();
                    assert_eq!(server.getattr(found.node).unwrap().node, made.node);
                    server.forget(found.node, 1);
                }
            });
        }
    });
    server.unlink(ME, ROOT, b"f").unwrap();
    assert!(server.getattr(made.node).is_ok());
    server.forget(made.node, 1);
    assert_eq!(server.getattr(made.node), Err(Error::Stale));
    assert_eq!(used(&server), 0);

    // The last count is given up and taken again, over and over, by threads at once.
    let (made, handle) = create(&server, "g");
    server.release(handle).unwrap();
    server.forget(made.node, 1);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let found = server.lookup(ME, ROOT, b"g").unwrap().unwrap();
                    server.forget(found.node, 1);
                }
            });
        }
    });
    server.unlink(ME, ROOT, b"g").unwrap();
    assert_eq!(server.getattr(made.node), Err(Error::Stale));
    assert_eq!(used(&server), 0);
}

/// The kernel sends a creation for a name that it has found missing, and has asked for no permission to a file.
#[test]
fn what_was_made_meanwhile_is_looked_up_before_it_is_opened() {
    let server = server();
    let (made, handle) = create(&server, "secret");
    server.write(ME, handle, 0, b"mine").unwrap();
    for flags in [O_RDWR, O_RDWR | O_TRUNC] {
        assert_eq!(server.create(YOU, ROOT, b"secret", 0o600, 0, flags), Err(Error::Stale));
    }
    assert_eq!(server.getattr(made.node).unwrap().stat.size, 4);
}
