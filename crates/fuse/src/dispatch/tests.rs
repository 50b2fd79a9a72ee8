//! Requests as bytes, without a kernel.

use std::{cell::Cell, panic, sync::Once};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::Vfs;
use pandofs_testkit::await_value;
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::{
    Caller, ServerOptions,
    wire::abi::{
        AttrOut, CreateIn, EntryOut, FsyncIn, InHeader, LinkIn, OpenIn, OpenOut, ReadWriteIn, ReleaseIn, SizeOut,
        StatxIn, StatxOut, StatxTime, fopen,
    },
};

#[path = "../../../vfs/tests/support/splitmix.rs"]
mod splitmix;

pub(crate) const ROOT: u64 = 1;

/// A dispatcher for a small tree in memory.
pub(crate) fn dispatcher(valid: Duration) -> Dispatcher {
    let vfs = Vfs::new(MemFs::new(MemOptions::new().size_bytes(1 << 20).inodes(1000))).unwrap();
    Dispatcher {
        server: Server::new(vfs, ServerOptions { valid, birth_times: !valid.is_zero(), ..ServerOptions::default() }),
        clear_privileges: true,
    }
}

/// A request as the device delivers it.
pub(crate) fn request(opcode: u32, node: u64, args: &[&[u8]]) -> Vec<u8> {
    let args = args.concat();
    let len = (size_of::<InHeader>() + args.len()) as u32;
    let header = InHeader { len, opcode, unique: 4, node, pid: 1, ..InHeader::default() };
    [header.as_bytes(), &args].concat()
}

/// The body of the reply.
fn ask(dispatcher: &Dispatcher, opcode: u32, node: u64, args: &[&[u8]]) -> Result<Vec<u8>> {
    let bytes = request(opcode, node, args);
    let mut body = vec![0; 1 << 16];
    match dispatcher.dispatch(Request::whole(&bytes)?, &mut body) {
        Reply::Now(outcome) => outcome.map(|len| body[..len].to_vec()),
        Reply::None => Ok(Vec::new()),
        Reply::Held(..) => panic!("nothing holds replies back"),
    }
}

fn inodes_in_use(dispatcher: &Dispatcher) -> u64 {
    let stat = dispatcher.server.statfs(Caller::new(0, 0), ROOT).unwrap();
    stat.files - stat.ffree
}

fn create(dispatcher: &Dispatcher, name: &[u8]) -> (EntryOut, OpenOut) {
    let flags = CreateIn { flags: 2, mode: 0o100_666, umask: 0o022, open_flags: 0 };
    let made = ask(dispatcher, Opcode::Create as u32, ROOT, &[flags.as_bytes(), name, b"\0"]).unwrap();
    let (entry, rest) = EntryOut::read_from_prefix(&made).unwrap();
    (entry, OpenOut::read_from_bytes(rest).unwrap())
}

#[test]
fn file_is_created_used_and_forgotten() {
    let dispatcher = dispatcher(Duration::from_secs(3));
    let (entry, open) = create(&dispatcher, b"f");
    assert_eq!((entry.attr.mode, entry.entry_valid, open.flags), (0o100_644, 3, fopen::NOFLUSH | fopen::KEEP_CACHE));
    let at = |size| ReadWriteIn { handle: open.handle, offset: 1, size, flags: 2, ..ReadWriteIn::default() };
    let written = ask(&dispatcher, Opcode::Write as u32, entry.node, &[at(5).as_bytes(), b"hello"]).unwrap();
    assert_eq!(SizeOut::read_from_bytes(&written).unwrap().size, 5);
    assert_eq!(ask(&dispatcher, Opcode::Read as u32, entry.node, &[at(100).as_bytes()]).unwrap(), b"hello");
    let attr = ask(&dispatcher, Opcode::Getattr as u32, entry.node, &[&[0; 16]]).unwrap();
    assert_eq!(AttrOut::read_from_bytes(&attr).unwrap().attr.size, 6);
    let asked = StatxIn { mask: 0x800, ..StatxIn::default() };
    let statx = ask(&dispatcher, Opcode::Statx as u32, entry.node, &[asked.as_bytes()]).unwrap();
    let statx = StatxOut::read_from_bytes(&statx).unwrap();
    let StatxTime { secs, nanos, .. } = statx.btime;
    assert!(statx.mask & 0x800 != 0 && (secs, nanos) <= (statx.mtime.secs, statx.mtime.nanos));
    assert_eq!(ask(&dispatcher, Opcode::Unlink as u32, ROOT, &[b"f\0"]), Ok(Vec::new()));
    assert_eq!(ask(&dispatcher, Opcode::Unlink as u32, ROOT, &[b"f\0"]), Err(Error::NoEntry));
    let release = ReleaseIn { handle: open.handle, ..ReleaseIn::default() };
    assert_eq!(ask(&dispatcher, Opcode::Release as u32, entry.node, &[release.as_bytes()]), Ok(Vec::new()));
    let forget = BatchForgetIn { count: 1, dummy: 0 };
    let one = ForgetOne { node: entry.node, lookups: 1 };
    ask(&dispatcher, Opcode::BatchForget as u32, 0, &[forget.as_bytes(), one.as_bytes()]).unwrap();
    assert_eq!(ask(&dispatcher, Opcode::Getattr as u32, entry.node, &[&[0; 16]]), Err(Error::Stale));
}

/// Neither a look-up count nor a handle stays, so the inode is freed when its name is removed.
#[test]
fn a_reply_that_is_not_taken_is_taken_back() {
    let dispatcher = dispatcher(Duration::from_secs(3));
    let inodes_in_use = || inodes_in_use(&dispatcher);
    let open_dir = ask(&dispatcher, Opcode::Opendir as u32, ROOT, &[OpenIn::default().as_bytes()]).unwrap();
    let dir = OpenOut::read_from_bytes(&open_dir).unwrap().handle;
    let list = ReadWriteIn { handle: dir, size: 4096, ..ReadWriteIn::default() };
    let before = inodes_in_use();
    for (opcode, args) in [
        (Opcode::Lookup, &b"f\0"[..]),
        (Opcode::Open, OpenIn::default().as_bytes()),
        (Opcode::Readdirplus, list.as_bytes()),
    ] {
        let (entry, open) = create(&dispatcher, b"f");
        let node = if opcode == Opcode::Open { entry.node } else { ROOT };
        let bytes = request(opcode as u32, node, &[args]);
        let body = ask(&dispatcher, opcode as u32, node, &[args]).unwrap();
        dispatcher.unsent(Request::whole(&bytes).unwrap(), &body);
        let release = ReleaseIn { handle: open.handle, ..ReleaseIn::default() };
        ask(&dispatcher, Opcode::Release as u32, entry.node, &[release.as_bytes()]).unwrap();
        ask(&dispatcher, Opcode::Forget as u32, entry.node, &[ForgetIn { lookups: 1 }.as_bytes()]).unwrap();
        assert_eq!(inodes_in_use(), before + 1, "{opcode:?}: its name keeps it");
        ask(&dispatcher, Opcode::Unlink as u32, ROOT, &[b"f\0"]).unwrap();
        await_value(before, inodes_in_use);
    }
}

/// The kernel then names no handle in its requests.
#[test]
fn directories_need_not_be_opened() {
    let mut dispatcher = dispatcher(Duration::from_secs(3));
    dispatcher.server.list_by_node();
    create(&dispatcher, b"f");
    let open = OpenIn::default();
    assert_eq!(ask(&dispatcher, Opcode::Opendir as u32, ROOT, &[open.as_bytes()]), Err(Error::NotImplemented));
    let list = ReadWriteIn { size: 4096, ..ReadWriteIn::default() };
    for opcode in [Opcode::Readdir, Opcode::Readdirplus] {
        let listed = ask(&dispatcher, opcode as u32, ROOT, &[list.as_bytes()]).unwrap();
        assert_eq!(directory_entries(&listed, opcode == Opcode::Readdirplus).count(), 3, "{opcode:?}");
    }
    assert_eq!(ask(&dispatcher, Opcode::Fsyncdir as u32, ROOT, &[FsyncIn::default().as_bytes()]), Ok(Vec::new()));
}

/// Its reader was killed, and the kernel has forgotten the directory before the listing ended.
///
/// Seen to fail: the listing is kept, and with it the directory when it is removed.
#[test]
fn listing_of_a_killed_reader_is_closed() {
    let mut dispatcher = dispatcher(Duration::from_secs(3));
    dispatcher.server.list_by_node();
    let inodes_in_use = || inodes_in_use(&dispatcher);
    let before = inodes_in_use();
    let list = ReadWriteIn { size: 4096, ..ReadWriteIn::default() };
    for opcode in [Opcode::Readdir, Opcode::Readdirplus] {
        let made = dispatcher.server.mkdir(Caller::new(0, 0), ROOT, b"d", 0o755, 0).unwrap();
        ask(&dispatcher, Opcode::Forget as u32, made.node, &[ForgetIn { lookups: 1 }.as_bytes()]).unwrap();
        let bytes = request(opcode as u32, made.node, &[list.as_bytes()]);
        let body = ask(&dispatcher, opcode as u32, made.node, &[list.as_bytes()]).unwrap();
        ask(&dispatcher, Opcode::Rmdir as u32, ROOT, &[b"d\0"]).unwrap();
        assert_eq!(inodes_in_use(), before + 1, "{opcode:?}: it is being listed");
        dispatcher.unsent(Request::whole(&bytes).unwrap(), &body);
        await_value(before, inodes_in_use);
    }
}

#[test]
fn anonymous_file_is_linked() {
    let dispatcher = dispatcher(Duration::ZERO);
    // O_TMPFILE, O_RDWR.
    let flags = CreateIn { flags: 0o20_200_002, mode: 0o600, umask: 0, open_flags: 0 };
    let made = ask(&dispatcher, Opcode::Tmpfile as u32, ROOT, &[flags.as_bytes(), b"/\0"]).unwrap();
    let entry = EntryOut::read_from_prefix(&made).unwrap().0;
    assert_eq!((entry.attr.nlink, entry.attr.mode), (0, 0o100_600));
    let old = LinkIn { old_node: entry.node };
    let linked = ask(&dispatcher, Opcode::Link as u32, ROOT, &[old.as_bytes(), b"named\0"]).unwrap();
    let linked = EntryOut::read_from_bytes(&linked).unwrap();
    assert_eq!((linked.node, linked.attr.nlink), (entry.node, 1));
}

#[test]
fn negative_dentry_is_valid_as_long_as_a_positive_one() {
    let lasting = dispatcher(Duration::from_secs(3));
    let negative = ask(&lasting, Opcode::Lookup as u32, ROOT, &[b"none\0"]).unwrap();
    let negative = EntryOut::read_from_bytes(&negative).unwrap();
    assert_eq!((negative.node, negative.entry_valid), (0, 3));
    assert_eq!(ask(&dispatcher(Duration::ZERO), Opcode::Lookup as u32, ROOT, &[b"none\0"]), Err(Error::NoEntry));
}

#[test]
fn malformed_requests_have_an_errno() {
    let dispatcher = dispatcher(Duration::ZERO);
    let (entry, open) = create(&dispatcher, b"f");
    let long = ReadWriteIn { handle: open.handle, size: u32::MAX, flags: 2, ..ReadWriteIn::default() };
    let none: &[u8] = b"";
    for (opcode, args, error) in [
        (Opcode::Lookup as u32, none, Error::Invalid),
        (Opcode::Lookup as u32, b"no end", Error::Invalid),
        (Opcode::Lookup as u32, b"a/b\0", Error::Invalid),
        (Opcode::Unlink as u32, b"..\0", Error::Invalid),
        (Opcode::Mkdir as u32, b"short", Error::Invalid),
        (Opcode::Rename2 as u32, &[0; 16], Error::Invalid),
        (Opcode::Write as u32, long.as_bytes(), Error::Invalid),
        (Opcode::Setxattr as u32, b"\xff\xff\xff\xff\0\0\0\0user.x\0value", Error::Invalid),
        (Opcode::Init as u32, &[0; 64], Error::Invalid),
        (Opcode::Ioctl as u32, none, Error::Invalid),
        (Opcode::Ioctl as u32, &[0; 32], Error::NotTty),
        (Opcode::Statx as u32, &[0; 24], Error::NotImplemented),
        // More than fits into the reply.
        (Opcode::Read as u32, long.as_bytes(), Error::Io),
        // INTERRUPT, FLUSH, and numbers that are not used.
        (36, &[0; 8], Error::NotImplemented),
        (25, &[0; 24], Error::NotImplemented),
        (0, none, Error::NotImplemented),
        (u32::MAX, none, Error::NotImplemented),
    ] {
        let node = if args == long.as_bytes() { entry.node } else { ROOT };
        assert_eq!(ask(&dispatcher, opcode, node, &[args]), Err(error), "{opcode} {args:?}");
    }
    // The count is larger than the request. The nodes that are there are forgotten; nothing else
    // happens.
    let forget = BatchForgetIn { count: u32::MAX, dummy: 0 };
    ask(&dispatcher, Opcode::BatchForget as u32, 0, &[forget.as_bytes(), &[1; 8]]).unwrap();
}

thread_local! {
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// From now on [`PANICKED`] shows whether this thread panics, even if the panic is caught.
fn watch_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICKED.set(true);
            before(info);
        }));
    });
    PANICKED.set(false);
}

/// All of them have a reply, and the tree works afterwards.
#[test]
fn random_requests_do_not_panic() {
    watch_for_panics();
    let seed: u64 = std::env::var("PANDO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let dispatcher = dispatcher(Duration::ZERO);
    let mut state = seed;
    let mut random = || splitmix::next(&mut state);
    for number in 0..200_000 {
        let opcode = (random() % 56) as u32;
        // Small numbers and known names, which reach further than random bytes, among random bytes.
        let mut args = Vec::new();
        for _ in 0..random() % 12 {
            match random() % 4 {
                0 => args.extend_from_slice(&(random() % 4).to_ne_bytes()),
                1 => args.extend_from_slice(&random().to_ne_bytes()),
                2 => args.extend_from_slice([&b"a\0"[..], b"b\0", b"..\0", b"user.x\0", b"/\0"][random() as usize % 5]),
                _ => args.push(random() as u8),
            }
        }
        let answer = ask(&dispatcher, opcode, random() % 6, &[&args]);
        assert!(!PANICKED.get(), "seed {seed}, request {number}: {opcode} {args:?} -> {answer:?}");
    }
    // The tree may be full by now, so this asks for a directory that exists.
    let looked = ask(&dispatcher, Opcode::Getattr as u32, ROOT, &[&[0; 16]]).unwrap();
    assert_eq!(AttrOut::read_from_bytes(&looked).unwrap().attr.ino, ROOT);
}
