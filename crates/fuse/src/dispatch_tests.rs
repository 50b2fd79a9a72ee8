//! Requests as bytes, without a kernel.

use std::{cell::Cell, panic, sync::Once, time::Duration};

use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{Error, Vfs};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::{
    ServerOptions,
    wire::abi::{InHeader, StatxTime},
};

#[path = "../../vfs/tests/support/splitmix.rs"]
mod splitmix;

const ROOT: u64 = 1;

fn dispatch(valid: Duration) -> Dispatch {
    let vfs = Vfs::new(MemFs::new(MemOptions::new().size_bytes(1 << 20).inodes(1000))).unwrap();
    Dispatch {
        server: Server::new(vfs, ServerOptions { valid, birth_times: !valid.is_zero() }),
        clear_privileges: true,
    }
}

/// A request as the device hands it out.
fn request(opcode: u32, node: u64, args: &[&[u8]]) -> Vec<u8> {
    let args = args.concat();
    let len = (size_of::<InHeader>() + args.len()) as u32;
    let header = InHeader { len, opcode, unique: 4, node, pid: 1, ..InHeader::default() };
    [header.as_bytes(), &args].concat()
}

/// What is answered.
fn ask(dispatch: &Dispatch, opcode: u32, node: u64, args: &[&[u8]]) -> Result<Vec<u8>> {
    let bytes = request(opcode, node, args);
    let mut room = vec![0; 1 << 16];
    match dispatch.answer(Request::whole(&bytes)?, &mut room) {
        Reply::Now(answered) => answered.map(|len| room[..len].to_vec()),
        Reply::Nothing => Ok(Vec::new()),
        Reply::Later(..) => panic!("nothing is slow here"),
    }
}

fn create(dispatch: &Dispatch, name: &[u8]) -> (EntryOut, OpenOut) {
    let flags = CreateIn { flags: 2, mode: 0o100_666, umask: 0o022, open_flags: 0 };
    let made = ask(dispatch, Opcode::Create as u32, ROOT, &[flags.as_bytes(), name, b"\0"]).unwrap();
    let (entry, rest) = EntryOut::read_from_prefix(&made).unwrap();
    (entry, OpenOut::read_from_bytes(rest).unwrap())
}

#[test]
fn a_file_comes_and_goes() {
    let dispatch = dispatch(Duration::from_secs(3));
    let (entry, open) = create(&dispatch, b"f");
    assert_eq!((entry.attr.mode, entry.entry_valid, open.flags), (0o100_644, 3, fopen::NOFLUSH | fopen::KEEP_CACHE));
    let at = |size| ReadWriteIn { handle: open.handle, offset: 1, size, flags: 2, ..ReadWriteIn::default() };
    let written = ask(&dispatch, Opcode::Write as u32, entry.node, &[at(5).as_bytes(), b"hello"]).unwrap();
    assert_eq!(SizeOut::read_from_bytes(&written).unwrap().size, 5);
    assert_eq!(ask(&dispatch, Opcode::Read as u32, entry.node, &[at(100).as_bytes()]).unwrap(), b"hello");
    let attr = ask(&dispatch, Opcode::Getattr as u32, entry.node, &[&[0; 16]]).unwrap();
    assert_eq!(AttrOut::read_from_bytes(&attr).unwrap().attr.size, 6);
    let asked = StatxIn { mask: 0x800, ..StatxIn::default() };
    let statx = ask(&dispatch, Opcode::Statx as u32, entry.node, &[asked.as_bytes()]).unwrap();
    let statx = StatxOut::read_from_bytes(&statx).unwrap();
    let StatxTime { secs, nanos, .. } = statx.btime;
    assert!(statx.mask & 0x800 != 0 && (secs, nanos) <= (statx.mtime.secs, statx.mtime.nanos));
    assert_eq!(ask(&dispatch, Opcode::Unlink as u32, ROOT, &[b"f\0"]), Ok(Vec::new()));
    assert_eq!(ask(&dispatch, Opcode::Unlink as u32, ROOT, &[b"f\0"]), Err(Error::NoEntry));
    let release = ReleaseIn { handle: open.handle, ..ReleaseIn::default() };
    assert_eq!(ask(&dispatch, Opcode::Release as u32, entry.node, &[release.as_bytes()]), Ok(Vec::new()));
    let forget = BatchForgetIn { count: 1, dummy: 0 };
    let one = ForgetOne { node: entry.node, lookups: 1 };
    ask(&dispatch, Opcode::BatchForget as u32, 0, &[forget.as_bytes(), one.as_bytes()]).unwrap();
    assert_eq!(ask(&dispatch, Opcode::Getattr as u32, entry.node, &[&[0; 16]]), Err(Error::Stale));
}

#[test]
fn a_file_without_a_name_is_given_one() {
    let dispatch = dispatch(Duration::ZERO);
    // O_TMPFILE, O_RDWR.
    let flags = CreateIn { flags: 0o20_200_002, mode: 0o600, umask: 0, open_flags: 0 };
    let made = ask(&dispatch, Opcode::Tmpfile as u32, ROOT, &[flags.as_bytes(), b"/\0"]).unwrap();
    let entry = EntryOut::read_from_prefix(&made).unwrap().0;
    assert_eq!((entry.attr.nlink, entry.attr.mode), (0, 0o100_600));
    let old = LinkIn { old_node: entry.node };
    let linked = ask(&dispatch, Opcode::Link as u32, ROOT, &[old.as_bytes(), b"named\0"]).unwrap();
    let linked = EntryOut::read_from_bytes(&linked).unwrap();
    assert_eq!((linked.node, linked.attr.nlink), (entry.node, 1));
}

#[test]
fn what_is_missing_lasts_as_long_as_what_is_there() {
    let lasting = dispatch(Duration::from_secs(3));
    let absent = ask(&lasting, Opcode::Lookup as u32, ROOT, &[b"none\0"]).unwrap();
    let absent = EntryOut::read_from_bytes(&absent).unwrap();
    assert_eq!((absent.node, absent.entry_valid), (0, 3));
    assert_eq!(ask(&dispatch(Duration::ZERO), Opcode::Lookup as u32, ROOT, &[b"none\0"]), Err(Error::NoEntry));
}

#[test]
fn malformed_requests_have_their_errno() {
    let dispatch = dispatch(Duration::ZERO);
    let (entry, open) = create(&dispatch, b"f");
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
        (Opcode::Ioctl as u32, none, Error::NotTty),
        (Opcode::Statx as u32, &[0; 24], Error::NotImplemented),
        // More than there is room for.
        (Opcode::Read as u32, long.as_bytes(), Error::Io),
        // INTERRUPT, FLUSH, and numbers that nobody has given yet.
        (36, &[0; 8], Error::NotImplemented),
        (25, &[0; 24], Error::NotImplemented),
        (0, none, Error::NotImplemented),
        (u32::MAX, none, Error::NotImplemented),
    ] {
        let node = if args == long.as_bytes() { entry.node } else { ROOT };
        assert_eq!(ask(&dispatch, opcode, node, &[args]), Err(error), "{opcode} {args:?}");
    }
    // It says more than it has: those that it has are forgotten, and nothing else happens.
    let forget = BatchForgetIn { count: u32::MAX, dummy: 0 };
    ask(&dispatch, Opcode::BatchForget as u32, 0, &[forget.as_bytes(), &[1; 8]]).unwrap();
}

thread_local! {
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Tells whether this thread panics, also where that is caught.
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

/// Requests that say anything at all are answered, none by a panic, and the tree goes on to work.
#[test]
fn whatever_is_asked_nothing_panics() {
    watch_for_panics();
    let seed: u64 = std::env::var("PANDO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let dispatch = dispatch(Duration::ZERO);
    let mut state = seed;
    let mut random = || splitmix::next(&mut state);
    for number in 0..200_000 {
        let opcode = (random() % 56) as u32;
        // Words that mean something where numbers are expected, among bytes of any value.
        let mut args = Vec::new();
        for _ in 0..random() % 12 {
            match random() % 4 {
                0 => args.extend_from_slice(&(random() % 4).to_ne_bytes()),
                1 => args.extend_from_slice(&random().to_ne_bytes()),
                2 => args.extend_from_slice([&b"a\0"[..], b"b\0", b"..\0", b"user.x\0", b"/\0"][random() as usize % 5]),
                _ => args.push(random() as u8),
            }
        }
        let answer = ask(&dispatch, opcode, random() % 6, &[&args]);
        assert!(!PANICKED.get(), "seed {seed}, request {number}: {opcode} {args:?} -> {answer:?}");
    }
    // What was left there may fill the tree; a directory that is there already will do.
    let looked = ask(&dispatch, Opcode::Getattr as u32, ROOT, &[&[0; 16]]).unwrap();
    assert_eq!(AttrOut::read_from_bytes(&looked).unwrap().attr.ino, ROOT);
}
