//! xcreate: many new entries of a directory in one request.
//!
//! The records are the value of an extended attribute that is set ([`XCREATE`]). For setxattr(2)
//! the kernel checks that the mount is writable, and it locks the directory until it has the reply.
//! For an ioctl the kernel does neither (decision 35).
//!
//! The kernel has not looked up the new names. If it may have a negative dentry of one of them,
//! nothing is made (`negatives`). Its listing and its attributes of the directory are dropped
//! afterwards.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use pando_vfs::{
    At, Context, DentryRef, Error, File, FileKind, InodeFlags, OpenFlags, Result, SetAttr, SetTime, Timestamp, Walk,
    XattrFlags,
    records::{Attr, Fields, PackedRecord, Time, Unpacked, XCREATE, XCREATE_ROOT, XattrValue, data_runs},
};
use tracing::warn;

use super::{Caller, Server, component, inode_flags::has_flag};

/// The failed calls whose result is kept for their threads.
const FAILED_MAX: usize = 64;
/// A file gets a hole for each block of this size that has only zeros.
const BLOCK_BYTES: usize = 4096;
/// The nanoseconds of a second.
const NANOS: u32 = 1_000_000_000;

/// Whether setting this extended attribute makes entries.
pub(crate) fn is_xcreate(name: &[u8]) -> bool {
    name == XCREATE.as_bytes() || name == XCREATE_ROOT.as_bytes()
}

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

    /// Takes the result of the last call of a thread, if it was for this node.
    fn take(&self, tid: u32, node: u64) -> usize {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = calls.iter().position(|call| (call.tid, call.node) == (tid, node));
        place.and_then(|place| calls.remove(place)).map_or(0, |call| call.made)
    }
}

/// A call under way. When it ends, also by a panic, the kernel drops what it has cached, and the
/// result is noted.
struct Call<'a> {
    server: &'a Server,
    tid: u32,
    node: u64,
    made: usize,
    is_done: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let Self { server, tid, node, made, is_done } = *self;
        server.drop_listing(node);
        server.failed_calls.set(tid, (!is_done).then_some(FailedCall { tid, node, made }));
    }
}

impl Server {
    /// The value of an attribute that makes entries: how many the last call of this thread has
    /// made, if it failed. The next answer is 0.
    ///
    /// # Errors
    /// ENODATA if the node is no directory, or its entries must be made by single calls.
    pub(super) fn made(&self, caller: Caller, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        let is_dir = self.nodes.get(node)?.kind() == FileKind::Directory;
        let is_mounted = self.device.strong_count() > 0;
        let may_make = caller.maker_credentials(name == XCREATE_ROOT.as_bytes()).is_some();
        if !is_dir || !is_mounted || !may_make || self.may_be_restricted(caller) {
            return Err(Error::NoData);
        }
        Ok(self.failed_calls.take(caller.tid, node).to_string().into_bytes())
    }

    /// Makes entries in a directory, in the order of `records`. Each is made as a whole or not at
    /// all; the first error ends the call. The kernel has checked only that the caller may change
    /// the directory, so the rest is checked here.
    ///
    /// # Errors
    /// EOPNOTSUPP if they must be made by single calls, and EINVAL for bytes that are no records:
    /// none are made. EBUSY if there was no space for an entry after the first; the rest may be
    /// tried again. (The kernel turns EAGAIN into EOPNOTSUPP.) ENOTDIR; of each record EEXIST and
    /// what single calls return.
    pub(super) fn xcreate(&self, caller: Caller, node: u64, name: &[u8], records: &[u8]) -> Result<()> {
        self.failed_calls.set(caller.tid, None);
        let dir = self.nodes.get(node)?;
        if dir.kind() != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        let credentials = caller.maker_credentials(name == XCREATE_ROOT.as_bytes()).ok_or(Error::NotSupported)?;
        let context = Context::new(&self.vfs, credentials).with_umask(0);
        if !are_records(records) {
            return Err(Error::Invalid);
        }
        let is_negative = |record: PackedRecord<'_>| self.negatives.may_have(node, record.name());
        // Where no name can be removed, an entry could not be made as a whole or not at all.
        let keeps_names = has_flag(&dir, InodeFlags::APPEND);
        if self.device.strong_count() == 0
            || self.may_be_restricted(caller)
            || keeps_names
            || Unpacked::new(records).any(is_negative)
        {
            return Err(Error::NotSupported);
        }
        let mut call = Call { server: self, tid: caller.tid, node, made: 0, is_done: false };
        for record in Unpacked::new(records) {
            self.make(&context, &dir, &record).map_err(|error| match error {
                // A transport may dispatch a request again that finds no space. Entries that are
                // there already would then fail.
                Error::NoSpace if call.made > 0 => Error::Busy,
                error => error,
            })?;
            call.made += 1;
        }
        call.is_done = true;
        Ok(())
    }

    /// Makes the kernel drop the listing and the attributes of a directory. It takes only locks of
    /// pages for it.
    fn drop_listing(&self, node: u64) {
        if let Err(error) = self.invalidate(node, 0) {
            warn!(%error, node, "the kernel may show an old listing");
        }
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
        if done.is_err()
            && self.vfs.lookup(context, here, name, Walk::NOFOLLOW).is_ok_and(|now| now.ino() == made.ino())
        {
            // Nobody changes the name through this mount meanwhile: the kernel holds the lock.
            let undone = self.vfs.unlink(context, here, name);
            undone.unwrap_or_else(|error| warn!(%error, "an entry without all of its attributes stays"));
            self.removed();
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

#[cfg(test)]
mod tests {
    use pando_memfs::{MemFs, MemOptions};
    use pando_vfs::Vfs;

    use super::*;
    use crate::ServerOptions;

    #[test]
    fn only_the_last_failed_calls_are_kept() {
        let calls = FailedCalls::default();
        let last = FAILED_MAX as u32 + 1;
        for tid in 0..=last {
            calls.set(tid, Some(FailedCall { tid, node: 7, made: 3 }));
        }
        assert_eq!([0, 1, 2, last].map(|tid| calls.take(tid, 7)), [0, 0, 3, 3]);
        assert_eq!(calls.take(last, 7), 0);
        calls.set(3, Some(FailedCall { tid: 3, node: 8, made: 1 }));
        assert_eq!((calls.take(3, 7), calls.take(3, 8)), (0, 1));
        calls.set(4, None);
        assert_eq!((calls.take(4, 7), calls.take(5, 7)), (0, 3));
    }

    /// Without a mount nothing could drop what the kernel has cached.
    #[test]
    fn entries_are_not_made_if_the_kernel_cannot_be_told() {
        let vfs = Vfs::new(MemFs::new(MemOptions::new())).unwrap();
        let server = Server::new(vfs, ServerOptions::default());
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let me = Caller { tid, ..Caller::new(uid, gid) };
        for name in [XCREATE, XCREATE_ROOT] {
            assert_eq!(server.getxattr(me, 1, name.as_bytes()), Err(Error::NoData));
            assert_eq!(server.setxattr(me, 1, name.as_bytes(), b"", 0), Err(Error::NotSupported));
        }
    }
}
