//! The device read through `fuser`: this file translates, [`Server`] answers.
//!
//! What `fuser` does for us: one cloned channel a thread, taking requests apart, ENOSYS for opcodes it does not know,
//! and EIO for a reply that was never sent. Mounting is ours ([`crate::device`]).

use std::{cell::RefCell, ffi::OsStr, io, os::unix::ffi::OsStrExt, path::Path, time::Duration, time::SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Config, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, Session,
    SessionACL, TimeOrNow, WriteFlags,
};
use pando_vfs::{DirEntry, Result, SetAttr};
use tracing::{debug, info};

use crate::{
    Attr, Caller, Connection, MountOptions, Server, Transport, device,
    fuser_convert::{errno, file_attr, file_type, no_attr, set_time},
    held::for_others,
    store::{Operation, Work},
    unmount,
};

/// Numbers are never reused while a tree lives, so one generation is all there is.
const GENERATION: Generation = Generation(0);

/// The largest write in one request. More gains nothing, and each thread's buffer is touched only as far as this.
const MAX_WRITE_BYTES: u32 = 1 << 20;

/// Requests that the kernel may have in flight in the background (read-ahead, asynchronous I/O).
const MAX_BACKGROUND: u16 = 64;

/// FUSE through `/dev/fuse`, by way of the crate `fuser`.
#[derive(Debug, Clone, Copy, Default)]
pub struct FuserTransport;

impl Transport for FuserTransport {
    fn attach(&self, server: Server, mount_point: &Path, options: &MountOptions) -> io::Result<Box<dyn Connection>> {
        let mut config = Config::default();
        config.n_threads = Some(options.threads.get());
        config.clone_fd = options.threads.get() > 1;
        // Where setuid bits mean something, the kernel keeps clearing them itself, with its view of the mode up to date.
        let translator = Translator { server, clear_privileges: !options.suid, plus: options.readdirplus };
        let device = device::mount(mount_point, options)?;
        // The kernel lets in who may come in. What others do with files that were opened for them is no business of fuser's.
        match Session::from_fd(translator, device, SessionACL::All, config) {
            Ok(session) => Ok(Box::new(FuserConnection(session))),
            Err(error) => {
                // The device is closed by now: without this a dead mount would stay.
                let _ = unmount::detach(&for_others(mount_point));
                Err(error)
            }
        }
    }
}

struct FuserConnection(Session<Translator>);

impl Connection for FuserConnection {
    fn serve(self: Box<Self>) -> io::Result<()> {
        match self.0.run() {
            // The end of a connection, too: it came to a thread that had just been given a request. (That somebody broke it
            // off would have this number only if we had asked for it, FUSE_ABORT_ERROR.)
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::CONNABORTED.raw_os_error()) => Ok(()),
            ended => ended,
        }
    }
}

thread_local! {
    /// What reads are read into: kept, so that it is zeroed once and not for each request.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct Translator {
    server: Server,
    /// Clear setuid and setgid on writing here, instead of the kernel's asking about them before each write.
    clear_privileges: bool,
    /// Hand out attributes along with names.
    plus: bool,
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}

impl Translator {
    fn valid(&self) -> Duration {
        self.server.options().valid
    }

    fn entry(&self, result: Result<Attr>, reply: ReplyEntry) {
        entry(result, self.valid(), reply);
    }

    fn attr(&self, result: Result<Attr>, reply: ReplyAttr) {
        attr(result, self.valid(), reply);
    }

    /// How opened files behave: nothing to flush at close, and what is cached stays (unless told not to).
    fn file_flags(&self) -> FopenFlags {
        let keep = if self.valid().is_zero() { FopenFlags::empty() } else { FopenFlags::FOPEN_KEEP_CACHE };
        FopenFlags::FOPEN_NOFLUSH | keep
    }

    fn open_as(&self, request: &Request, node: INodeNo, flags: OpenFlags, answer: FopenFlags, reply: ReplyOpen) {
        let open = || self.server.open(caller(request), node.0, flags.0 as u32);
        let result = self.server.asked(Operation::Open, None, open);
        self.server.answer(Work::One(Operation::Open), move || opened(result, answer, reply));
    }

    /// A read whose answer has to wait, and so needs a buffer of its own.
    fn read_slowly(&self, node: INodeNo, handle: FileHandle, offset: u64, size: u32, reply: ReplyData) {
        let (operation, mut buffer) = (Operation::Read, vec![0; size as usize]);
        let result = self.server.asked(operation, None, || self.server.read(handle.0, offset, &mut buffer));
        let count = result.unwrap_or(0);
        buffer.truncate(count);
        let read = self.server.read_at(node.0, handle.0, offset, count);
        let work = read.map_or(Work::One(operation), Work::Read);
        self.server.answer(work, move || data(result.map(|_| buffer), reply));
    }

    fn dir_flags(&self) -> FopenFlags {
        if self.valid().is_zero() {
            FopenFlags::empty()
        } else {
            FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR
        }
    }
}

fn entry(result: Result<Attr>, valid: Duration, reply: ReplyEntry) {
    match result {
        Ok(attr) => reply.entry(&valid, &file_attr(&attr), GENERATION),
        Err(error) => reply.error(errno(error)),
    }
}

/// A name that may not be there; where answers last, that one lasts as well.
fn found(result: Result<Option<Attr>>, valid: Duration, reply: ReplyEntry) {
    match result {
        Ok(Some(attr)) => entry(Ok(attr), valid, reply),
        Ok(None) if valid.is_zero() => reply.error(Errno::ENOENT),
        Ok(None) => reply.entry(&valid, &no_attr(pando_vfs::FileKind::File), GENERATION),
        Err(error) => reply.error(errno(error)),
    }
}

fn attr(result: Result<Attr>, valid: Duration, reply: ReplyAttr) {
    match result {
        Ok(attr) => reply.attr(&valid, &file_attr(&attr)),
        Err(error) => reply.error(errno(error)),
    }
}

fn opened(result: Result<u64>, flags: FopenFlags, reply: ReplyOpen) {
    match result {
        Ok(handle) => reply.opened(FileHandle(handle), flags),
        Err(error) => reply.error(errno(error)),
    }
}

fn data<T: AsRef<[u8]>>(result: Result<T>, reply: ReplyData) {
    match result {
        Ok(bytes) => reply.data(bytes.as_ref()),
        Err(error) => reply.error(errno(error)),
    }
}

fn empty(result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

/// Answers a value of which the caller may first ask the size (`room` 0).
fn sized(result: Result<Vec<u8>>, room: u32, reply: ReplyXattr) {
    match result {
        Ok(value) if room == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() <= room as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(error) => reply.error(errno(error)),
    }
}

impl Filesystem for Translator {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Not FUSE_ATOMIC_O_TRUNC: the kernel looks after an opening for reading whether the file is being executed, and
        // what it refuses then must not have been truncated.
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_HAS_IOCTL_DIR;
        if !self.plus {
            wanted -= InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        }
        if self.clear_privileges {
            wanted |= InitFlags::FUSE_HANDLE_KILLPRIV_V2;
        }
        if self.valid().is_zero() {
            wanted -= InitFlags::FUSE_CACHE_SYMLINKS;
            wanted |= InitFlags::FUSE_AUTO_INVAL_DATA;
        }
        // An older kernel lacks some: each is an improvement, none is needed.
        let missing = wanted - config.capabilities();
        let _ = config.add_capabilities(wanted - missing);
        self.clear_privileges &= !missing.contains(InitFlags::FUSE_HANDLE_KILLPRIV_V2);
        let _ = config.set_max_write(MAX_WRITE_BYTES);
        let _ = config.set_max_background(MAX_BACKGROUND);
        info!(kernel = %config.kernel_abi(), ?missing, "the kernel has connected");
        Ok(())
    }

    fn destroy(&mut self) {
        debug!("the connection has ended");
        self.server.disconnect();
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (operation, name) = (Operation::Lookup, name.as_bytes());
        let lookup = || self.server.lookup(caller(request), parent.0, name);
        let result = self.server.asked(operation, Some(name), lookup);
        let work = if matches!(result, Ok(Some(_))) { Work::Found } else { Work::One(operation) };
        let lasting = self.server.lasting(result.as_ref().ok().and_then(Option::as_ref));
        self.server.answer(work, move || found(result, lasting(), reply));
    }

    fn forget(&self, _request: &Request, node: INodeNo, lookups: u64) {
        self.server.forget(node.0, lookups);
    }

    fn getattr(&self, _request: &Request, node: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        let operation = Operation::Getattr;
        let result = self.server.asked(operation, None, || self.server.getattr(node.0));
        let lasting = self.server.lasting(result.as_ref().ok());
        self.server.answer(Work::One(operation), move || attr(result, lasting(), reply));
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _changed: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mode = mode.map(|mode| mode & 0o7777);
        let (atime, mtime) = (set_time(atime), set_time(mtime));
        // ftruncate(2) says which handle it goes through.
        let if_resized = size.is_some() && handle.is_none();
        let change = SetAttr { mode, uid, gid, size, atime, mtime, if_resized };
        self.attr(self.server.setattr(caller(request), node.0, &change), reply);
    }

    fn readlink(&self, request: &Request, node: INodeNo, reply: ReplyData) {
        let operation = Operation::Readlink;
        let result = self.server.asked(operation, None, || self.server.readlink(caller(request), node.0));
        self.server.answer(Work::One(operation), move || data(result, reply));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.entry(self.server.mknod(caller(request), parent.0, name.as_bytes(), mode, rdev, umask), reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        self.entry(self.server.mkdir(caller(request), parent.0, name.as_bytes(), mode, umask), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.server.unlink(caller(request), parent.0, name.as_bytes()), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.server.rmdir(caller(request), parent.0, name.as_bytes()), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        self.entry(self.server.symlink(caller(request), parent.0, name.as_bytes(), target), reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name.as_bytes()), (new_parent.0, new_name.as_bytes()));
        empty(self.server.rename(caller(request), from, to, flags.bits()), reply);
    }

    fn link(&self, request: &Request, node: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        self.entry(self.server.link(caller(request), node.0, new_parent.0, new_name.as_bytes()), reply);
    }

    fn open(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.open_as(request, node, flags, self.file_flags(), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.server.create(caller(request), parent.0, name.as_bytes(), mode, umask, flags as u32) {
            Ok((attr, handle)) => {
                let (valid, flags) = (self.valid(), self.file_flags());
                reply.created(&valid, &file_attr(&attr), GENERATION, FileHandle(handle), flags);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if self.server.is_slow() {
            return self.read_slowly(node, handle, offset, size, reply);
        }
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let read = || self.server.read(handle.0, offset, &mut buffer[..size]);
            let result = self.server.asked(Operation::Read, None, read);
            self.server.answered();
            data(result.map(|count| &buffer[..count]), reply);
        });
    }

    fn write(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let drop_privileges = self.clear_privileges && write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let write = || {
            // A part is an EIO to the kernel if it was to be written past its cache.
            let direct = flags.0 as u32 & pando_vfs::OpenFlags::DIRECT.bits() != 0;
            if direct || write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
                self.server.write_back(handle.0, offset, data, drop_privileges)
            } else {
                self.server.write(handle.0, offset, data, drop_privileges)
            }
        };
        let result = self.server.asked(Operation::Write, None, write);
        self.server.answer(Work::One(Operation::Write), move || match result {
            Ok(count) => reply.written(count as u32),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn flush(&self, _request: &Request, _node: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // Kernels that know FOPEN_NOFLUSH never ask; for others this answer is the last.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        empty(self.server.release(handle.0), reply);
    }

    fn fsync(&self, _request: &Request, _node: INodeNo, handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        empty(self.server.fsync(handle.0), reply);
    }

    fn opendir(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.open_as(request, node, flags, self.dir_flags(), reply);
    }

    fn readdir(&self, _request: &Request, _node: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectory) {
        let (mut reply, mut count) = (reply, 0);
        let mut add = |entry: &DirEntry<'_>| {
            let full =
                reply.add(INodeNo(entry.ino), entry.cookie, file_type(entry.kind), OsStr::from_bytes(entry.name));
            count += usize::from(!full);
            !full
        };
        let readdir = || self.server.readdir(handle.0, offset, &mut add);
        let result = self.server.asked(Operation::Readdir, None, readdir);
        self.server.answer(Work::Names(count), move || match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let (mut reply, mut count, valid) = (reply, 0, self.valid());
        let mut add = |entry: &DirEntry<'_>, attr: Option<Attr>| {
            let dots = attr.is_none();
            let (attr, valid) = match attr {
                // The kernel asks at once for what the store fails to tell.
                Some(attr) => {
                    (file_attr(&attr), if self.server.entry_fails(entry.name) { Duration::ZERO } else { valid })
                }
                // `.` and `..` are no nodes to the kernel: they get the kind and the number.
                None => (fuser::FileAttr { ino: INodeNo(entry.ino), ..no_attr(entry.kind) }, Duration::ZERO),
            };
            let name = OsStr::from_bytes(entry.name);
            let full = reply.add(attr.ino, entry.cookie, name, &valid, &attr, GENERATION);
            if full && !dots {
                self.server.entry_did_not_fit();
            }
            count += usize::from(!full);
            !full
        };
        let readdirplus = || self.server.readdirplus(caller(request), handle.0, offset, &mut add);
        let result = self.server.asked(Operation::Readdirplus, None, readdirplus);
        self.server.answer(Work::NamesWithAttributes(count), move || match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn releasedir(&self, _request: &Request, _node: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        empty(self.server.release(handle.0), reply);
    }

    fn fsyncdir(&self, _request: &Request, _node: INodeNo, handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        empty(self.server.fsync(handle.0), reply);
    }

    fn statfs(&self, request: &Request, node: INodeNo, reply: ReplyStatfs) {
        match self.server.statfs(caller(request), node.0) {
            Ok(stat) => reply.statfs(
                stat.blocks,
                stat.bfree,
                stat.bavail,
                stat.files,
                stat.ffree,
                stat.bsize,
                stat.namelen,
                stat.bsize,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        empty(self.server.setxattr(caller(request), node.0, name.as_bytes(), value, flags as u32), reply);
    }

    fn getxattr(&self, request: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (operation, name) = (Operation::Getxattr, name.as_bytes());
        if let Some(value) = self.server.own_xattr(name) {
            return sized(Ok(value), size, reply);
        }
        let getxattr = || self.server.getxattr(caller(request), node.0, name);
        let result = self.server.asked(operation, None, getxattr);
        self.server.answer(Work::One(operation), move || sized(result, size, reply));
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let operation = Operation::Listxattr;
        let result = self.server.asked(operation, None, || self.server.listxattr(caller(request), node.0));
        self.server.answer(Work::One(operation), move || sized(result, size, reply));
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.server.removexattr(caller(request), node.0, name.as_bytes()), reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        empty(self.server.fallocate(caller(request), handle.0, mode as u32, offset, length), reply);
    }

    fn lseek(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.server.lseek(handle.0, offset, whence) {
            // Offsets are at most i64::MAX everywhere in the tree.
            Ok(offset) => reply.offset(offset as i64),
            Err(error) => reply.error(errno(error)),
        }
    }

    // What is not served. The kernel asks each once and then does it by itself, or says so to the caller; fuser's own
    // answers are the same, but it would log each as a warning.

    fn access(&self, _request: &Request, _node: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // default_permissions: the kernel checks.
        reply.error(Errno::ENOSYS);
    }

    fn bmap(&self, _request: &Request, _node: INodeNo, _block_size: u32, _block: u64, reply: ReplyBmap) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _data: &[u8],
        _room: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _from: INodeNo,
        _from_handle: FileHandle,
        _from_offset: u64,
        _to: INodeNo,
        _to_handle: FileHandle,
        _to_offset: u64,
        _length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The kernel then copies through its page cache.
        reply.error(Errno::ENOSYS);
    }
}
