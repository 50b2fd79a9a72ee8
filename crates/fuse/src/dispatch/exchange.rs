//! One request and its reply: the arguments become a call of the [`crate::Server`], and its
//! result becomes the body of the reply.

use std::time::Duration;

use pando_vfs::{
    DirEntry, Error, InodeFlags, Next, OpenFlags, Result, SetAttr, SetTime, Timestamp,
    records::{Mask, XGETDENTS, XGETDENTS_BYTES, XGETDENTS_HEAD_BYTES},
};
use zerocopy::IntoBytes;

use crate::{
    nodes::Attr,
    server::{Caller, Server},
    wire::{
        Outcome, ReplyWriter, Request,
        abi::{
            CopyFileRangeIn, CreateIn, EntryOut, FSGETXATTR, FSSETXATTR, FallocateIn, FsXattr, FsyncIn, GETFLAGS,
            GetxattrIn, IoctlIn, IoctlOut, LinkIn, LseekIn, LseekOut, MkdirIn, MknodIn, Opcode, OpenIn, OpenOut,
            ReadWriteIn, ReleaseIn, Rename2In, RenameIn, SETFLAGS, SHUTDOWN, SetattrIn, SetxattrIn, SizeOut, StatxIn,
            WRITE_CACHE, WRITE_KILL_SUIDGID, XgetdentsHead, fattr, fopen,
        },
        attr_out, dots_out, entry_out, negative_out, statfs_out, statx_out,
    },
};

/// One request, and the reply that is being written.
pub(super) struct Exchange<'a, 'r> {
    server: &'a Server,
    /// Setuid and setgid are cleared here on a write, and the request says whether to do so.
    clear_privileges: bool,
    caller: Caller,
    node: u64,
    request: Request<'r>,
    reply: ReplyWriter<'a>,
}

impl<'a, 'r> Exchange<'a, 'r> {
    /// The reply is written to `body`.
    pub(super) fn new(server: &'a Server, clear_privileges: bool, request: Request<'r>, body: &'a mut [u8]) -> Self {
        let header = request.header;
        let caller = Caller { tid: header.pid, ..Caller::new(header.uid, header.gid) };
        Self { server, clear_privileges, caller, node: header.node, request, reply: ReplyWriter::new(body) }
    }

    /// Serves the request.
    pub(super) fn run(mut self, opcode: Opcode) -> Outcome {
        self.serve(opcode).map(|()| self.reply.len())
    }

    // Longer than most functions: it is one table, with an arm for each opcode.
    fn serve(&mut self, opcode: Opcode) -> Result<()> {
        let (server, caller, node) = (self.server, self.caller, self.node);
        let args = &mut self.request.args;
        match opcode {
            Opcode::Lookup => self.lookup(),
            Opcode::Getattr => {
                let attr = server.getattr(node)?;
                self.reply.put(&attr_out(&attr, server.attr_valid(&attr)))
            }
            Opcode::Statx if server.options().birth_times => {
                // The reply has all fields, whichever the request asks for.
                args.structure::<StatxIn>()?;
                let attr = server.getattr(node)?;
                self.reply.put(&statx_out(&attr, server.attr_valid(&attr)))
            }
            // The kernel asks once, and never again.
            Opcode::Statx => Err(Error::NotImplemented),
            Opcode::Setattr => self.setattr(),
            Opcode::Readlink => self.reply.put(&server.readlink(caller, node)?[..]),
            Opcode::Symlink => {
                let (name, target) = (args.name()?, args.name()?);
                let made = server.symlink(caller, node, name, target);
                self.entry(made)
            }
            Opcode::Mknod => {
                let (MknodIn { mode, rdev, umask, .. }, name) = (args.structure()?, args.name()?);
                let made = server.mknod(caller, node, name, mode, rdev, umask);
                self.entry(made)
            }
            Opcode::Mkdir => {
                let (MkdirIn { mode, umask }, name) = (args.structure()?, args.name()?);
                let made = server.mkdir(caller, node, name, mode, umask);
                self.entry(made)
            }
            Opcode::Unlink => server.unlink(caller, node, args.name()?),
            Opcode::Rmdir => server.rmdir(caller, node, args.name()?),
            Opcode::Rename => {
                let RenameIn { new_dir } = args.structure()?;
                server.rename(caller, (node, args.name()?), (new_dir, args.name()?), 0)
            }
            Opcode::Rename2 => {
                let Rename2In { new_dir, flags, .. } = args.structure()?;
                server.rename(caller, (node, args.name()?), (new_dir, args.name()?), flags)
            }
            Opcode::Link => {
                let (LinkIn { old_node }, name) = (args.structure()?, args.name()?);
                let mut entry = self.entry_out(&server.link(caller, old_node, node, name)?);
                if server.options().tells_kernel() {
                    // The kernel takes these attributes also if it was told of a change meanwhile.
                    (entry.attr_valid, entry.attr_valid_nsec) = (0, 0);
                }
                self.reply.put(&entry)
            }
            Opcode::Open => self.open(self.file_flags()),
            // The kernel asks once, and then opens directories by itself.
            Opcode::Opendir if server.lists_by_node() => Err(Error::NotImplemented),
            Opcode::Opendir => self.open(self.dir_flags()),
            Opcode::Create => {
                let (CreateIn { flags, mode, umask, .. }, name) = (args.structure()?, args.name()?);
                let made = server.create(caller, node, name, mode, umask, flags);
                self.created(made)
            }
            Opcode::Tmpfile => {
                let CreateIn { flags, mode, umask, .. } = args.structure()?;
                let made = server.tmpfile(caller, node, mode, umask, flags);
                self.created(made)
            }
            Opcode::Read => {
                let ReadWriteIn { handle, offset, size, .. } = args.structure()?;
                self.reply.fill(size, |buffer| server.read(handle, offset, buffer))
            }
            Opcode::Write => self.write(),
            Opcode::Release | Opcode::Releasedir => server.release(args.structure::<ReleaseIn>()?.handle),
            Opcode::Fsync => server.fsync(args.structure::<FsyncIn>()?.handle),
            Opcode::Fsyncdir => {
                let dir = server.directory(node, args.structure::<FsyncIn>()?.handle);
                server.fsync_dir(dir)
            }
            Opcode::Readdir => {
                let ReadWriteIn { handle, offset, size, .. } = args.structure()?;
                self.reply.at_most(size);
                let dir = server.directory(node, handle);
                server.readdir(dir, offset, &mut |entry| self.reply.dirent(entry))
            }
            Opcode::Readdirplus => self.readdirplus(),
            Opcode::Statfs => self.reply.put(&statfs_out(&server.statfs(caller, node)?)),
            Opcode::Setxattr => {
                let (SetxattrIn { size, flags }, name) = (args.structure()?, args.name()?);
                server.setxattr(caller, node, name, args.data(size)?, flags)
            }
            Opcode::Getxattr => {
                let (GetxattrIn { size, .. }, name) = (args.structure()?, args.name()?);
                self.reply.sized(&server.getxattr(caller, node, name)?, size)
            }
            Opcode::Listxattr => {
                let GetxattrIn { size, .. } = args.structure()?;
                self.reply.sized(&server.listxattr(caller, node)?, size)
            }
            Opcode::Removexattr => server.removexattr(caller, node, args.name()?),
            Opcode::Fallocate => {
                let FallocateIn { handle, offset, len, mode, .. } = args.structure()?;
                server.fallocate(caller, handle, mode, offset, len)
            }
            Opcode::CopyFileRange => {
                let CopyFileRangeIn { from, from_offset, to, offset, len, .. } = args.structure()?;
                // The size in the reply has 32 bits. Whole pages can be shared.
                let len = u32::try_from(len).unwrap_or(!0xfff);
                let copied = server.copy_file_range(caller, (from, from_offset), (to, offset), len)?;
                self.reply.put(&SizeOut { size: copied, padding: 0 })
            }
            Opcode::Lseek => {
                let LseekIn { handle, offset, whence, .. } = args.structure()?;
                let offset = server.lseek(handle, offset, whence)?;
                self.reply.put(&LseekOut { offset })
            }
            // Handles are closed and counts are dropped at the end of the connection.
            Opcode::Destroy => Ok(()),
            Opcode::Ioctl => self.ioctl(),
            // Valid only as the first request, which the session answers.
            Opcode::Init => Err(Error::Invalid),
            // Where requests may wait, the transport serves it. Elsewhere it has no effect.
            Opcode::Interrupt => Err(Error::NotImplemented),
            // They have no reply and are served elsewhere.
            Opcode::Forget | Opcode::BatchForget => Ok(()),
        }
    }

    /// How long attributes and names stay valid.
    fn valid(&self) -> Duration {
        self.server.options().valid
    }

    /// The flags of an opened file: nothing is flushed at close, and cached pages stay valid unless
    /// the kernel is to ask each time.
    fn file_flags(&self) -> u32 {
        fopen::NOFLUSH | if self.server.options().keeps_contents() { fopen::KEEP_CACHE } else { 0 }
    }

    fn dir_flags(&self) -> u32 {
        if self.server.options().keeps_listings() { fopen::KEEP_CACHE | fopen::CACHE_DIR } else { 0 }
    }

    fn entry_out(&self, attr: &Attr) -> EntryOut {
        entry_out(attr, self.valid(), self.server.attr_valid(attr))
    }

    fn entry(&mut self, made: Result<Attr>) -> Result<()> {
        let entry = self.entry_out(&made?);
        self.reply.put(&entry)
    }

    fn lookup(&mut self) -> Result<()> {
        let name = self.request.args.name()?;
        match self.server.lookup(self.caller, self.node, name)? {
            Some(attr) => self.reply.put(&self.entry_out(&attr)),
            None if self.valid().is_zero() => Err(Error::NoEntry),
            None => self.reply.put(&negative_out(self.server.options().negative_valid())),
        }
    }

    fn setattr(&mut self) -> Result<()> {
        let asked: SetattrIn = self.request.args.structure()?;
        let has = |flag: u32| asked.valid & flag != 0;
        let set = |flag, now, secs, nanos| match (has(flag), has(now)) {
            (false, _) => SetTime::Omit,
            (true, true) => SetTime::Now,
            (true, false) => SetTime::At(Timestamp::from_parts(secs, nanos)),
        };
        let change = SetAttr::new()
            .mode(has(fattr::MODE).then_some(asked.mode & 0o7777))
            .uid(has(fattr::UID).then_some(asked.uid))
            .gid(has(fattr::GID).then_some(asked.gid))
            .size(has(fattr::SIZE).then_some(asked.size))
            .atime(set(fattr::ATIME, fattr::ATIME_NOW, asked.atime, asked.atime_nsec))
            .mtime(set(fattr::MTIME, fattr::MTIME_NOW, asked.mtime, asked.mtime_nsec))
            // ftruncate(2) names its handle. An open with O_TRUNC does not, so it looks like
            // truncate(2) to size 0. Of these two only the open must change the times of a file
            // that is empty already.
            .if_resized(has(fattr::SIZE) && !has(fattr::HANDLE) && asked.size > 0);
        // The kernel sets the flag only with a size. It says nothing of the bits that a chown
        // clears.
        let caller = if has(fattr::SIZE) { self.writer(has(fattr::KILL_SUIDGID)) } else { self.caller };
        let handle = has(fattr::HANDLE).then_some(asked.handle);
        let attr = self.server.setattr(caller, self.node, handle, &change)?;
        self.reply.put(&attr_out(&attr, self.server.attr_valid(&attr)))
    }

    /// The caller of a request that changes contents. If the kernel says whether such a change
    /// clears setuid and setgid, `kills_privileges` is its answer.
    fn writer(&self, kills_privileges: bool) -> Caller {
        Caller { keeps_privileges: self.clear_privileges.then_some(!kills_privileges), ..self.caller }
    }

    fn open(&mut self, flags: u32) -> Result<()> {
        let asked: OpenIn = self.request.args.structure()?;
        let handle = self.server.open(self.caller, self.node, asked.flags)?;
        self.opened(handle, flags)
    }

    fn created(&mut self, made: Result<(Attr, u64)>) -> Result<()> {
        let (attr, handle) = made?;
        self.reply.put(&self.entry_out(&attr))?;
        self.opened(handle, self.file_flags())
    }

    fn opened(&mut self, handle: u64, flags: u32) -> Result<()> {
        let open = match self.server.backing_of(handle) {
            Some(backing_id) => OpenOut { handle, flags: fopen::PASSTHROUGH | fopen::NOFLUSH, backing_id },
            None => OpenOut { handle, flags, backing_id: 0 },
        };
        self.reply.put(&open)
    }

    fn write(&mut self) -> Result<()> {
        let server = self.server;
        let ReadWriteIn { handle, offset, size, read_write_flags, flags, .. } = self.request.args.structure()?;
        let data = self.request.args.data(size)?;
        let mut caller = self.writer(read_write_flags & WRITE_KILL_SUIDGID != 0);
        if read_write_flags & WRITE_CACHE != 0 {
            // Pages of a mapping. On Linux, writing to a mapping clears neither bit.
            caller.keeps_privileges = Some(true);
        }
        // A short reply is wrong for both kinds: the kernel turns one to a direct write into EIO,
        // and takes one to a write-back for all of it.
        let written = if flags & OpenFlags::DIRECT.bits() != 0 || read_write_flags & WRITE_CACHE != 0 {
            server.write_back(caller, handle, offset, data)
        } else {
            server.write(caller, handle, offset, data)
        };
        self.reply.put(&SizeOut { size: written? as u32, padding: 0 })
    }

    /// Reads many entries of a directory, stops the tree, or reads or changes the flags of an
    /// inode.
    fn ioctl(&mut self) -> Result<()> {
        let IoctlIn { handle, command, argument, in_size, out_size, .. } = self.request.args.structure()?;
        match command {
            XGETDENTS => {}
            SHUTDOWN => {
                self.server.shut_down(self.caller, argument)?;
                return self.reply.put(&IoctlOut::default());
            }
            GETFLAGS | FSGETXATTR => {
                let flags = self.server.inode_flags(self.node)?;
                self.reply.put(&IoctlOut::default())?;
                return match (command, out_size) {
                    (GETFLAGS, 4) => self.reply.put(&flags.bits()),
                    (FSGETXATTR, 28) => self.reply.put(&FsXattr::from(flags)),
                    _ => Err(Error::Invalid),
                };
            }
            SETFLAGS | FSSETXATTR => {
                let flags = match (command, in_size) {
                    (SETFLAGS, 4) => InodeFlags::from_bits(self.request.args.next()?).ok_or(Error::NotSupported)?,
                    (FSSETXATTR, 28) => self.request.args.next::<FsXattr>()?.try_into()?,
                    _ => return Err(Error::Invalid),
                };
                self.server.set_inode_flags(self.caller, self.node, flags)?;
                return self.reply.put(&IoctlOut::default());
            }
            _ => return Err(Error::NotTty),
        }
        let asked: XgetdentsHead = self.request.args.next()?;
        if in_size != out_size || out_size as usize != XGETDENTS_BYTES {
            return Err(Error::Invalid);
        }
        let mask = Mask::from_bits(asked.mask).ok_or(Error::Invalid)?;
        self.reply.put(&IoctlOut::default())?;
        let (server, caller, dir) = (self.server, self.caller, self.server.directory(self.node, handle));
        self.reply.fill(out_size, |buffer| {
            let (head, records) = buffer.split_at_mut(XGETDENTS_HEAD_BYTES);
            let packed = server.xgetdents(caller, dir, asked.cookie, mask, records);
            let packed = packed.map_err(|error| if error == Error::NotDirectory { Error::NotTty } else { error })?;
            let next = match packed.next {
                Next::End => 0,
                Next::More => 1,
                // There is room for any name and target.
                Next::Needs(_) => return Err(Error::Invalid),
            };
            let (bytes, entries) = (packed.bytes as u32, packed.entries as u32);
            let shown = XgetdentsHead { cookie: packed.cookie, mask: asked.mask, next, bytes, entries };
            head.copy_from_slice(shown.as_bytes());
            Ok(XGETDENTS_HEAD_BYTES + packed.bytes)
        })
    }

    fn readdirplus(&mut self) -> Result<()> {
        let (server, valid) = (self.server, self.valid());
        let ReadWriteIn { handle, offset, size, .. } = self.request.args.structure()?;
        let dir = server.directory(self.node, handle);
        self.reply.at_most(size);
        let mut add = |entry: &DirEntry<'_>, attr: Option<Attr>| {
            let entry_of = |attr: Attr| entry_out(&attr, valid, server.attr_valid(&attr));
            let node = attr.map_or_else(|| dots_out(entry), entry_of);
            self.reply.dirent_plus(&node, entry)
        };
        self.server.readdirplus(self.caller, dir, offset, &mut add)
    }
}
