//! xcreate: many new entries of a directory in one request.
//!
//! The records are the value of an extended attribute that is set
//! ([`pando_vfs::records::XCREATE`]). For that the
//! kernel checks that the mount is writable, and it holds the lock of the directory. For an ioctl
//! it does neither (decision 35). It makes no look-up in the directory meanwhile, so it gets no new
//! negative dentry there.
//!
//! The kernel does not learn of the entries by the reply, so it is told to drop what it has cached:
//! first negative dentries, then the listing and the attributes of the directory.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use pando_vfs::{
    At, Context, DentryRef, Error, File, FileKind, OpenFlags, Result, SetAttr, SetTime, Timestamp, Walk, XattrFlags,
    records::{Attr, Fields, PackedRecord, Time, Unpacked, XattrValue, data_runs},
};
use tracing::warn;
use zerocopy::IntoBytes;

use super::{Caller, Server, component};
use crate::{
    channel::notification,
    wire::abi::{Notification, NotifyInodeOut},
};

/// The failed calls whose result is kept for their threads.
const FAILED_MAX: usize = 64;
/// The size of the set of names, in words of 64 bits.
const NEGATIVE_WORDS: usize = 1 << 12;
/// A file gets a hole for each block of this size that has only zeros.
const BLOCK_BYTES: usize = 4096;
/// The nanoseconds of a second.
const NANOS: u32 = 1_000_000_000;

/// How many entries the last call of a thread made, if that call failed.
#[derive(Default)]
pub(super) struct FailedCalls(Mutex<VecDeque<FailedCall>>);

struct FailedCall {
    tid: u32,
    node: u64,
    made: usize,
}

impl FailedCalls {
    /// Notes the result of a call, and drops that of the last one of the same thread.
    fn set(&self, tid: u32, failed: Option<FailedCall>) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|call| call.tid != tid);
        calls.extend(failed);
        if calls.len() > FAILED_MAX {
            calls.pop_front();
        }
    }

    fn made(&self, tid: u32, node: u64) -> usize {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().find(|call| (call.tid, call.node) == (tid, node)).map_or(0, |call| call.made)
    }
}

/// The caches of the kernel that hide entries which it has not made.
#[derive(Default)]
pub(super) struct KernelCaches {
    /// Gone if the kernel is too old, or the mount has ended.
    device: Weak<OwnedFd>,
    negatives: Negatives,
}

/// The names of which the kernel may have a negative dentry: a Bloom filter. Each name has four
/// bits of one word. If not all of them are set, the name was not inserted.
///
/// A name is inserted before the reply that gives the kernel a negative dentry. Relaxed is enough:
/// the kernel's lock of the directory orders its look-ups there and xcreate. A look-up in another
/// directory may insert a name while all are cleared. If its bits are lost, it was requested before
/// the new epoch, so the kernel does not keep its answer.
struct Negatives {
    words: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl Default for Negatives {
    fn default() -> Self {
        Self { words: (0..NEGATIVE_WORDS).map(|_| AtomicU64::new(0)).collect(), hasher: RandomState::new() }
    }
}

impl Negatives {
    fn place(&self, dir: u64, name: &[u8]) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one((dir, name));
        let bits = [0, 6, 12, 18].map(|from| 1 << (hash >> from & 63)).iter().fold(0, |bits, bit| bits | bit);
        (&self.words[(hash >> 24) as usize % NEGATIVE_WORDS], bits)
    }

    fn insert(&self, dir: u64, name: &[u8]) {
        let (word, bits) = self.place(dir, name);
        if word.load(Ordering::Relaxed) & bits != bits {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }

    fn may_have(&self, dir: u64, name: &[u8]) -> bool {
        let (word, bits) = self.place(dir, name);
        word.load(Ordering::Relaxed) & bits == bits
    }

    fn set_all(&self, word: u64) {
        self.words.iter().for_each(|place| place.store(word, Ordering::Relaxed));
    }
}

impl KernelCaches {
    /// The kernel listens at this device from now on.
    pub(super) fn connect(&mut self, device: &Arc<OwnedFd>) {
        self.device = Arc::downgrade(device);
    }

    pub(super) fn disconnect(&mut self) {
        self.device = Weak::new();
    }

    /// The kernel is about to get a negative dentry.
    pub(super) fn gets_negative(&self, dir: u64, name: &[u8]) {
        if self.is_connected() {
            self.negatives.insert(dir, name);
        }
    }

    fn is_connected(&self) -> bool {
        self.device.strong_count() > 0
    }

    /// If the kernel may have a negative dentry of one of these names, makes it look up all names
    /// again. The kernel takes no lock for it.
    fn drop_negatives<'n>(&self, dir: u64, mut names: impl Iterator<Item = &'n [u8]>) -> Result<()> {
        if !self.is_connected() {
            return Err(Error::NotSupported);
        }
        if names.any(|name| self.negatives.may_have(dir, name)) {
            self.negatives.set_all(0);
            self.send(Notification::IncEpoch, &[]).inspect_err(|_| self.negatives.set_all(u64::MAX))?;
        }
        Ok(())
    }

    /// Makes the kernel drop the listing and the attributes of a directory. The kernel takes only
    /// locks of pages for it.
    fn drop_listing(&self, node: u64) {
        let out = NotifyInodeOut { node, offset: 0, len: 0 };
        if let Err(error) = self.send(Notification::InvalInode, &[out.as_bytes()]) {
            warn!(%error, node, "the kernel may show an old listing");
        }
    }

    fn send(&self, what: Notification, parts: &[&[u8]]) -> Result<()> {
        let device = self.device.upgrade().ok_or(Error::NotSupported)?;
        rustix::io::write(device.as_fd(), &notification(what, parts)).map_err(|_| Error::NotSupported)?;
        Ok(())
    }
}

impl Server {
    /// The value of [`pando_vfs::records::XCREATE`]: how many entries the last call of this thread
    /// made, if it failed.
    ///
    /// # Errors
    /// ENODATA if the node is no directory, or its entries must be made by single calls.
    pub(super) fn made(&self, caller: Caller, node: u64) -> Result<Vec<u8>> {
        let is_dir = self.nodes.get(node)?.kind() == FileKind::Directory;
        if !is_dir || !self.kernel.is_connected() || caller.maker_credentials().is_none() {
            return Err(Error::NoData);
        }
        Ok(self.failed_calls.made(caller.tid, node).to_string().into_bytes())
    }

    /// Makes entries in a directory, in the order of `records`. Each is made as a whole or not at
    /// all; the first error ends the call. The kernel has checked only that the caller may change
    /// the directory, so the rest is checked here.
    ///
    /// # Errors
    /// ENOTSUP if they must be made by single calls; EINVAL for bytes that are no records, of which
    /// none are made; ENOTDIR; of each record EEXIST and what single calls return.
    pub(super) fn xcreate(&self, caller: Caller, node: u64, records: &[u8]) -> Result<()> {
        let dir = self.nodes.get(node)?;
        if dir.kind() != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        let context = Context::new(&self.vfs, caller.maker_credentials().ok_or(Error::NotSupported)?).with_umask(0);
        if !are_records(records) {
            self.failed_calls.set(caller.tid, None);
            return Err(Error::Invalid);
        }
        self.kernel.drop_negatives(node, Unpacked::new(records).map(|record| record.name()))?;
        let mut made = 0;
        let done = Unpacked::new(records).try_for_each(|record| {
            self.make(&context, &dir, &record)?;
            made += 1;
            Ok(())
        });
        self.kernel.drop_listing(node);
        self.failed_calls.set(caller.tid, done.is_err().then_some(FailedCall { tid: caller.tid, node, made }));
        done
    }

    /// Makes one entry.
    fn make(&self, context: &Context, dir: &DentryRef, record: &PackedRecord<'_>) -> Result<()> {
        let name = component(record.name())?;
        let (attr, kind) = (record.attr().ok_or(Error::Invalid)?, record.kind().ok_or(Error::Invalid)?);
        let (here, body) = (At::Dir(dir), record.target().unwrap_or_default());
        let (made, written) = match kind {
            FileKind::Directory => return Err(Error::Invalid),
            FileKind::File => {
                let flags = OpenFlags::WRONLY | OpenFlags::CREAT | OpenFlags::EXCL;
                let file = self.space.retry(|| self.vfs.open(context, here, name, flags, 0o600))?;
                (file.dentry().clone(), self.write_contents(&file, body))
            }
            FileKind::Symlink => (self.space.retry(|| self.vfs.symlink(context, body, here, name))?, Ok(())),
            special => {
                let device = rustix::fs::makedev(attr.rdev_major, attr.rdev_minor);
                let device = u32::try_from(device).map_err(|_| Error::Invalid)?;
                let mode = special.to_mode() | 0o600;
                (self.space.retry(|| self.vfs.mknod(context, here, name, mode, device))?, Ok(()))
            }
        };
        let done = written.and_then(|()| self.set_metadata(context, &made, &attr, record));
        if done.is_err() {
            // The kernel holds the lock of the directory, so the name still leads to this entry.
            let _ = self.vfs.unlink(context, here, name);
        }
        done
    }

    /// Writes the contents of a new file. Blocks of zeros become holes.
    fn write_contents(&self, file: &File, contents: &[u8]) -> Result<()> {
        let mut end = 0;
        for run in data_runs(contents, BLOCK_BYTES) {
            let mut at = run.start;
            while at < run.end {
                match self.space.retry(|| file.pwrite(&contents[at..run.end], at as u64))? {
                    0 => return Err(Error::NoSpace),
                    count => at += count,
                }
            }
            end = run.end;
        }
        if end < contents.len() {
            self.space.retry(|| file.truncate(contents.len() as u64))?;
        }
        Ok(())
    }

    /// Sets the attributes that a record names, and the extended ones.
    fn set_metadata(&self, context: &Context, made: &DentryRef, attr: &Attr, record: &PackedRecord<'_>) -> Result<()> {
        let has = |field: Fields| attr.have.contains(field);
        let time = |field, time: Time| match (has(field), time.nanos) {
            (false, _) => Ok(SetTime::Omit),
            (true, ..NANOS) => Ok(SetTime::At(Timestamp::from_parts(time.secs, time.nanos))),
            (true, _) => Err(Error::Invalid),
        };
        // The owner first: a change of it drops setuid, setgid and security.capability.
        let owner = SetAttr::new().uid(has(Fields::UID).then_some(attr.uid)).gid(has(Fields::GID).then_some(attr.gid));
        self.vfs.setattr(context, made, &owner)?;
        for xattr in record.xattrs() {
            let XattrValue::Bytes(value) = xattr.value else { return Err(Error::Invalid) };
            let (itself, how) = (At::Dir(made), XattrFlags::empty());
            let set = || self.vfs.setxattr(context, itself, b"", xattr.name, value, how, Walk::EMPTY_PATH);
            self.space.retry(set)?;
        }
        // Linux changes no permission bits of a symbolic link.
        let mode = has(Fields::MODE) && made.kind() != FileKind::Symlink;
        let rest = SetAttr::new()
            .mode(mode.then_some(attr.mode & 0o7777))
            .atime(time(Fields::ATIME, attr.atime)?)
            .mtime(time(Fields::MTIME, attr.mtime)?);
        self.vfs.setattr(context, made, &rest)?;
        Ok(())
    }
}

/// Whether these bytes are whole records, to the last byte.
fn are_records(bytes: &[u8]) -> bool {
    let mut records = Unpacked::new(bytes);
    let whole = |record: PackedRecord<'_>| record.xattrs().count() == record.xattr_count() as usize;
    records.by_ref().all(whole) && records.rest().is_empty()
}
