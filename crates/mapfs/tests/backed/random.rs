//! Random operations on a tree in memory and on a backed tree, with evictions in between. Results,
//! errnos and trees must be the same.

use std::sync::atomic::{AtomicBool, Ordering};

use pando_mapfs::MapOptions;
use pando_memfs::{MemFs, MemOptions};
use pando_vfs::{
    At, Context, Credentials, Error, FileKind, OpenFlags, RenameFlags, Result, SetTime, Timestamp, Vfs, Walk,
    XattrFlags,
};

use crate::support::{Rng, assert_same, evict_all, evict_down_to, mounted, seed, seen, stored};

const OPERATIONS: usize = 20_000;

/// One operation with all its random parameters.
#[derive(Debug, Clone)]
pub enum Op {
    Mkdir(String, u32),
    Create(String, OpenFlags, u32),
    Symlink(String, String),
    Mknod(String),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, RenameFlags),
    Chmod(String, u32),
    Chown(String, Option<u32>, Option<u32>),
    Utimens(String, i64),
    Truncate(String, u64),
    Write(String, u64, u8, usize),
    Read(String, u64, usize),
    Stat(String, Walk),
    Readlink(String),
    List(String),
    Setxattr(String, u8, XattrFlags),
    Getxattr(String, u8),
    Removexattr(String, u8),
}

/// The result of an operation, as far as both trees must agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Nothing,
    Bytes(Vec<u8>),
    Names(Vec<String>),
    Stat(FileKind, u32, u32, u32, u32, u64, Option<Timestamp>),
}

fn path(rng: &mut Rng) -> String {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let depth = 1 + rng.below(3);
    (0..depth).map(|_| format!("/{}", NAMES[rng.below(6) as usize])).collect()
}

/// The next operation.
pub fn op(rng: &mut Rng) -> Op {
    let (at, to) = (path(rng), path(rng));
    let k = rng.below(3) as u8;
    match rng.below(40) {
        0..=4 => Op::Mkdir(at, 0o700 | rng.below(0o100) as u32),
        5..=9 => {
            let excl = if rng.below(2) == 0 { OpenFlags::EXCL } else { OpenFlags::empty() };
            let trunc = if rng.below(4) == 0 { OpenFlags::TRUNC } else { OpenFlags::empty() };
            Op::Create(at, OpenFlags::RDWR | OpenFlags::CREAT | excl | trunc, 0o600 | rng.below(0o100) as u32)
        }
        10 => Op::Symlink(to[1..].into(), at),
        11 => Op::Mknod(at),
        12 | 13 => Op::Link(at, to),
        14..=16 => Op::Unlink(at),
        17 | 18 => Op::Rmdir(at),
        19..=22 => {
            const FLAGS: [RenameFlags; 5] = [
                RenameFlags::empty(),
                RenameFlags::empty(),
                RenameFlags::NOREPLACE,
                RenameFlags::EXCHANGE,
                RenameFlags::WHITEOUT,
            ];
            Op::Rename(at, to, FLAGS[rng.below(FLAGS.len() as u64) as usize])
        }
        23 => Op::Chmod(at, rng.below(0o10000) as u32),
        24 => Op::Chown(at, Some(rng.below(3) as u32), (rng.below(2) == 0).then_some(7)),
        25 => Op::Utimens(at, rng.below(1_000_000) as i64),
        26 => Op::Truncate(at, rng.below(5000)),
        27..=29 => Op::Write(at, rng.below(3000), rng.next() as u8, 1 + rng.below(500) as usize),
        30 | 31 => Op::Read(at, rng.below(3000), 1 + rng.below(3000) as usize),
        32..=34 => Op::Stat(at, if rng.below(2) == 0 { Walk::NOFOLLOW } else { Walk::empty() }),
        35 => Op::Readlink(at),
        36 => Op::List(at),
        37 => {
            Op::Setxattr(at, k, [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE][rng.below(3) as usize])
        }
        38 => Op::Getxattr(at, k),
        _ => Op::Removexattr(at, k),
    }
}

/// Makes random operations from several threads, while one more thread repeats `beside`. A thread
/// stops when `is_enough` of the number of its operations. None may return an `unexpected` error,
/// such as one that only an inconsistent cache returns.
pub fn run_beside(
    (vfs, caller): (&Vfs, &Context),
    seed: u64,
    threads: u64,
    unexpected: &[Error],
    is_enough: impl Fn(usize) -> bool + Sync,
    beside: impl Fn() + Sync,
) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                beside();
            }
        });
        let work = |id: u64| {
            let mut rng = Rng(seed ^ id.wrapping_mul(0xa076_1d64_78bd_642f));
            for _ in (0..).take_while(|&done| !is_enough(done)) {
                let op = op(&mut rng);
                let result = carry_out(vfs, caller, &op);
                let error = result.err();
                assert!(error.is_none_or(|error| !unexpected.contains(&error)), "{op:?}: {error:?}");
            }
        };
        let threads: Vec<_> = (1..=threads).map(|id| scope.spawn(move || work(id))).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        stop.store(true, Ordering::Relaxed);
        other.join().expect("no panic beside the operations");
        assert!(results.iter().all(std::thread::Result::is_ok), "a thread has failed");
    });
}

/// Makes the operation, and returns its result.
pub fn carry_out(vfs: &Vfs, caller: &Context, op: &Op) -> Result<Answer> {
    const FOLLOW: Walk = Walk::empty();
    let (cwd, key) = (At::Cwd, |k: &u8| format!("user.{k}"));
    match op {
        Op::Mkdir(at, mode) => vfs.mkdir(caller, cwd, at, *mode).map(drop),
        Op::Create(at, flags, mode) => vfs.open(caller, cwd, at, *flags, *mode).map(drop),
        Op::Symlink(target, at) => vfs.symlink(caller, target, cwd, at).map(drop),
        Op::Mknod(at) => vfs.mknod(caller, cwd, at, FileKind::Fifo.to_mode() | 0o640, 0).map(drop),
        Op::Link(at, to) => vfs.link(caller, cwd, at, cwd, to, Walk::NOFOLLOW).map(drop),
        Op::Unlink(at) => vfs.unlink(caller, cwd, at),
        Op::Rmdir(at) => vfs.rmdir(caller, cwd, at),
        Op::Rename(at, to, flags) => vfs.rename(caller, cwd, at, cwd, to, *flags),
        Op::Chmod(at, mode) => vfs.chmod(caller, cwd, at, *mode, FOLLOW),
        Op::Chown(at, uid, gid) => vfs.chown(caller, cwd, at, *uid, *gid, Walk::NOFOLLOW),
        Op::Utimens(at, secs) => {
            let time = SetTime::At(Timestamp::from_parts(*secs, 5));
            vfs.utimens(caller, cwd, at, time, time, FOLLOW)
        }
        Op::Truncate(at, size) => vfs.truncate(caller, cwd, at, *size),
        Op::Write(at, offset, fill, len) => {
            let file = vfs.open(caller, cwd, at, OpenFlags::RDWR, 0)?;
            file.pwrite(&vec![*fill; *len], *offset).map(drop)
        }
        Op::Read(at, offset, len) => {
            let mut bytes = vec![0; *len];
            let count = vfs.open(caller, cwd, at, OpenFlags::RDONLY, 0)?.pread(&mut bytes, *offset)?;
            bytes.truncate(count);
            return Ok(Answer::Bytes(bytes));
        }
        Op::Stat(at, walk) => {
            let s = vfs.stat(caller, cwd, at, *walk)?;
            // Only times that were set, and sizes of all but directories. The others depend on the
            // clock and the driver.
            let set = (s.mtime.secs() < 1_000_000).then_some(s.mtime);
            let size = if s.kind == FileKind::Directory { 0 } else { s.size };
            return Ok(Answer::Stat(s.kind, s.mode, s.nlink, s.uid, s.gid, size, set));
        }
        Op::Readlink(at) => return vfs.readlink(caller, cwd, at, Walk::NOFOLLOW).map(Answer::Bytes),
        Op::List(at) => {
            let dir = vfs.open(caller, cwd, at, OpenFlags::DIRECTORY, 0)?;
            let mut names = Vec::new();
            dir.readdir(0, |entry| {
                names.push(String::from_utf8_lossy(entry.name).into_owned());
                true
            })?;
            names.sort();
            return Ok(Answer::Names(names));
        }
        Op::Setxattr(at, k, how) => vfs.setxattr(caller, cwd, at, key(k), [*k; 3], *how, FOLLOW),
        Op::Getxattr(at, k) => return vfs.getxattr(caller, cwd, at, key(k), FOLLOW).map(Answer::Bytes),
        Op::Removexattr(at, k) => vfs.removexattr(caller, cwd, at, key(k), FOLLOW),
    }
    .map(|()| Answer::Nothing)
}

/// Runs the same operations on both trees. `between` is called on the backed tree before each
/// operation, and `beside` runs on a thread of its own.
fn same_results(mut between: impl FnMut(&Vfs, &mut Rng), beside: impl Fn(&Vfs, &AtomicBool) + Sync) {
    let mut rng = Rng(seed());
    let memory = Vfs::new(MemFs::new(MemOptions::default())).expect("a new tree");
    let root = Context::new(&memory, Credentials::root());
    let (backed, backed_root, store) = mounted(MapOptions::default());
    let user = |context: &Context| context.clone().with_credentials(Credentials::user(1, 7, &[]));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let evictor = scope.spawn(|| beside(&backed, &stop));
        let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for i in 0..OPERATIONS {
                between(&backed, &mut rng);
                let op = op(&mut rng);
                let as_user = rng.below(5) == 0;
                let caller = |root: &Context| if as_user { user(root) } else { root.clone() };
                let expected = carry_out(&memory, &caller(&root), &op);
                let found = carry_out(&backed, &caller(&backed_root), &op);
                assert_eq!(found, expected, "operation {i}: {op:?}");
                if i % 1000 == 0 {
                    backed.sync().expect("stored");
                    assert_same(&seen(&backed, &backed_root), &seen(&memory, &root), "the trees");
                    assert_same(&seen(&backed, &backed_root), &stored(&store), "cache and store");
                }
            }
        }));
        stop.store(true, Ordering::Relaxed);
        evictor.join().expect("evicts");
        work.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    evict_all(&backed);
    assert_same(&seen(&backed, &backed_root), &seen(&memory, &root), "the trees");
    assert_same(&seen(&backed, &backed_root), &stored(&store), "cache and store");
    evict_down_to(&backed, &store, 1);
}

#[test]
fn evictions_change_no_result() {
    same_results(
        |vfs, rng| {
            if rng.below(3) == 0 {
                let count = 1 + rng.below(20) as usize;
                vfs.evict(count).expect("stored");
            }
        },
        |_, _| {},
    );
}

#[test]
fn concurrent_evictions_change_no_result() {
    same_results(
        |_, _| {},
        |vfs, stop| {
            while !stop.load(Ordering::Relaxed) {
                assert_ne!(vfs.evict(usize::MAX).err(), Some(Error::Stale));
            }
        },
    );
}
