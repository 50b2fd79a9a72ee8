//! From a request to its answer: what the wire says, in terms of the [`Server`].

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use pando_vfs::{DirEntry, Error, OpenFlags, Result, SetAttr, SetTime, Timestamp};
use tracing::{debug, error};

use crate::{
    Attr, Caller, Server,
    store::{Operation, Work},
    wire::{
        Answer, Request,
        abi::{
            AttrOut, BatchForgetIn, CreateIn, EntryOut, FallocateIn, ForgetIn, ForgetOne, FsyncIn, GetxattrIn, LinkIn,
            LseekIn, LseekOut, MkdirIn, MknodIn, Opcode, OpenIn, OpenOut, ReadWriteIn, ReleaseIn, Rename2In, RenameIn,
            SetattrIn, SetxattrIn, SizeOut, StatxIn, StatxOut, WRITE_CACHE, WRITE_KILL_SUIDGID, fattr, fopen,
        },
        absent_out, attr_out, dots_out, entry_out, statfs_out, statx_out,
    },
};

/// What the kernel gets: so many bytes, or an error.
pub(crate) type Answered = Result<usize>;

/// What becomes of a request.
pub(crate) enum Reply {
    /// The kernel expects no answer.
    Nothing,
    /// The answer is there.
    Now(Answered),
    /// The answer is there, and to be sent later.
    Later(Answered, Wait),
}

/// Until when an answer is held back, and what is then to be looked at.
pub(crate) struct Wait {
    pub(crate) due: Instant,
    expiry: Option<Expiry>,
}

/// What ends the time for which attributes are valid, if they have been overtaken.
struct Expiry {
    overtaken: Box<dyn FnOnce() -> bool + Send>,
    expire: fn(&mut [u8]),
}

impl Wait {
    /// To be called when the answer is sent.
    pub(crate) fn over(self, answer: &mut [u8]) {
        if let Some(Expiry { overtaken, expire }) = self.expiry
            && overtaken()
        {
            expire(answer);
        }
    }
}

/// A server and how the kernel speaks to it.
pub(crate) struct Dispatch {
    pub(crate) server: Server,
    /// Clear setuid and setgid on writing here, instead of the kernel's asking about them before each write.
    pub(crate) clear_privileges: bool,
}

/// One request on its way.
struct Turn<'a, 'r> {
    dispatch: &'a Dispatch,
    caller: Caller,
    node: u64,
    request: Request<'r>,
    answer: Answer<'a>,
    wait: Option<Wait>,
}

impl Dispatch {
    /// Answers `request` in `room`, which does not begin with the header. A panic costs this one request.
    pub(crate) fn answer(&self, request: Request<'_>, room: &mut [u8]) -> Reply {
        let header = request.header;
        let Some(opcode) = Opcode::from_number(header.opcode) else {
            // The kernel asks each once, and then does it by itself or says so to the caller.
            debug!(opcode = header.opcode, "not served");
            return Reply::Now(Err(Error::NotImplemented));
        };
        let caller = Caller { tid: header.pid, ..Caller::new(header.uid, header.gid) };
        // Unwind safety: what is used afterwards of all this is a number of bytes. (The server unwinds each operation by
        // itself; this is for what lies between.)
        let served = catch_unwind(AssertUnwindSafe(|| {
            if matches!(opcode, Opcode::Forget | Opcode::BatchForget) {
                if self.forget(request).is_err() {
                    error!(?opcode, "malformed");
                }
                return None;
            }
            let answer = Answer::new(room);
            let mut turn = Turn { dispatch: self, caller, node: header.node, request, answer, wait: None };
            let done = turn.serve(opcode);
            Some((done.map(|()| turn.answer.len()), turn.wait))
        }));
        match served {
            Ok(None) => Reply::Nothing,
            Ok(Some((answered, None))) => Reply::Now(answered),
            Ok(Some((answered, Some(wait)))) => Reply::Later(answered, wait),
            Err(_) => {
                error!(?opcode, "a request panicked and was answered with EIO; the mount goes on");
                Reply::Now(Err(Error::Io))
            }
        }
    }

    fn forget(&self, request: Request<'_>) -> Result<()> {
        let mut args = request.args;
        if request.header.opcode == Opcode::Forget as u32 {
            self.server.forget(request.header.node, args.structure::<ForgetIn>()?.lookups);
            return Ok(());
        }
        for _ in 0..args.structure::<BatchForgetIn>()?.count {
            let ForgetOne { node, lookups } = args.next()?;
            self.server.forget(node, lookups);
        }
        Ok(())
    }

    fn valid(&self) -> Duration {
        self.server.options().valid
    }

    /// How opened files behave: nothing to flush at close, and what is cached stays (unless told not to).
    fn file_flags(&self) -> u32 {
        fopen::NOFLUSH | if self.valid().is_zero() { 0 } else { fopen::KEEP_CACHE }
    }

    fn dir_flags(&self) -> u32 {
        if self.valid().is_zero() { 0 } else { fopen::KEEP_CACHE | fopen::CACHE_DIR }
    }
}

impl Turn<'_, '_> {
    fn serve(&mut self, opcode: Opcode) -> Result<()> {
        let (dispatch, caller, node) = (self.dispatch, self.caller, self.node);
        let server = &dispatch.server;
        let args = &mut self.request.args;
        match opcode {
            Opcode::Lookup => self.lookup(),
            Opcode::Getattr => self.getattr(),
            Opcode::Statx if server.options().birth_times => self.statx(),
            // Asked once, and never again.
            Opcode::Statx => Err(Error::NotImplemented),
            Opcode::Setattr => self.setattr(),
            Opcode::Readlink => self.readlink(),
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
                let linked = server.link(caller, old_node, node, name);
                self.entry(linked)
            }
            Opcode::Open => self.open(dispatch.file_flags()),
            Opcode::Opendir => self.open(dispatch.dir_flags()),
            Opcode::Create => {
                let (CreateIn { flags, mode, umask, .. }, name) = (args.structure()?, args.name()?);
                let made = server.create(caller, node, name, mode, umask, flags);
                self.made_and_opened(made)
            }
            Opcode::Tmpfile => {
                let CreateIn { flags, mode, umask, .. } = args.structure()?;
                let made = server.tmpfile(caller, node, mode, umask, flags);
                self.made_and_opened(made)
            }
            Opcode::Read => self.read(),
            Opcode::Write => self.write(),
            Opcode::Release | Opcode::Releasedir => server.release(args.structure::<ReleaseIn>()?.handle),
            Opcode::Fsync | Opcode::Fsyncdir => server.fsync(args.structure::<FsyncIn>()?.handle),
            Opcode::Readdir => self.readdir(),
            Opcode::Readdirplus => self.readdirplus(),
            Opcode::Statfs => self.answer.put(&statfs_out(&server.statfs(caller, node)?)),
            Opcode::Setxattr => {
                let (SetxattrIn { size, flags }, name) = (args.structure()?, args.name()?);
                server.setxattr(caller, node, name, args.data(size)?, flags)
            }
            Opcode::Getxattr => self.getxattr(),
            Opcode::Listxattr => {
                let GetxattrIn { size, .. } = args.structure()?;
                let list = server.asked(Operation::Listxattr, None, || server.listxattr(caller, node));
                self.after(Work::One(Operation::Listxattr));
                self.sized(list, size)
            }
            Opcode::Removexattr => server.removexattr(caller, node, args.name()?),
            Opcode::Fallocate => {
                let FallocateIn { handle, offset, len, mode, .. } = args.structure()?;
                server.fallocate(caller, handle, mode, offset, len)
            }
            Opcode::Lseek => {
                let LseekIn { handle, offset, whence, .. } = args.structure()?;
                let offset = server.lseek(handle, offset, whence)?;
                self.answer.put(&LseekOut { offset })
            }
            // Nothing is left to say: the end of the connection is what closes and forgets.
            Opcode::Destroy => Ok(()),
            Opcode::Ioctl => Err(Error::NotTty),
            // Only the handshake has it.
            Opcode::Init => Err(Error::Invalid),
            // They have no turn, since no answer.
            Opcode::Forget | Opcode::BatchForget => Ok(()),
        }
    }

    /// The answer is sent when the store has done `work`.
    fn after(&mut self, work: Work) {
        self.wait = self.dispatch.server.due(work).map(|due| Wait { due, expiry: None });
    }

    /// As `after`, for an answer with attributes, which may have been overtaken by then; `expire` then makes it valid for no
    /// time.
    fn after_with(&mut self, work: Work, attr: Option<&Attr>, expire: fn(&mut [u8])) {
        let server = &self.dispatch.server;
        self.wait = server.due(work).map(|due| {
            let overtaken = attr.and_then(|attr| server.overtaken(attr));
            Wait { due, expiry: overtaken.map(|overtaken| Expiry { overtaken: Box::new(overtaken), expire }) }
        });
    }

    fn entry(&mut self, made: Result<Attr>) -> Result<()> {
        let entry = entry_out(&made?, self.dispatch.valid());
        self.answer.put(&entry)
    }

    fn lookup(&mut self) -> Result<()> {
        let (dispatch, operation, name) = (self.dispatch, Operation::Lookup, self.request.args.name()?);
        let server = &dispatch.server;
        let found = server.asked(operation, Some(name), || server.lookup(self.caller, self.node, name));
        let attr = found.as_ref().ok().and_then(Option::as_ref);
        let work = if attr.is_some() { Work::Found } else { Work::One(operation) };
        self.after_with(work, attr, EntryOut::expire);
        let valid = self.dispatch.valid();
        match found? {
            Some(attr) => self.answer.put(&entry_out(&attr, valid)),
            // Where answers last, that there is none lasts as well.
            None if valid.is_zero() => Err(Error::NoEntry),
            None => self.answer.put(&absent_out(valid)),
        }
    }

    /// The attributes of the node.
    fn attributes(&mut self, expire: fn(&mut [u8])) -> Result<Attr> {
        let server = &self.dispatch.server;
        let attr = server.asked(Operation::Getattr, None, || server.getattr(self.node));
        self.after_with(Work::One(Operation::Getattr), attr.as_ref().ok(), expire);
        attr
    }

    fn getattr(&mut self) -> Result<()> {
        let attr = self.attributes(AttrOut::expire)?;
        self.answer.put(&attr_out(&attr, self.dispatch.valid()))
    }

    fn statx(&mut self) -> Result<()> {
        // All is answered, whatever is asked for.
        self.request.args.structure::<StatxIn>()?;
        let attr = self.attributes(StatxOut::expire)?;
        self.answer.put(&statx_out(&attr, self.dispatch.valid()))
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
            // ftruncate(2) says which handle it goes through. An open with O_TRUNC does not, so that it looks like truncate(2) to
            // nothing, and of the two it is the one that must leave its time, also on an empty file.
            .if_resized(has(fattr::SIZE) && !has(fattr::HANDLE) && asked.size > 0);
        // The flag comes with a size, and says nothing of what a chown takes away.
        let caller = if has(fattr::SIZE) { self.changer(has(fattr::KILL_SUIDGID)) } else { self.caller };
        let attr = self.dispatch.server.setattr(caller, self.node, &change)?;
        self.answer.put(&attr_out(&attr, self.dispatch.valid()))
    }

    /// The caller of a request that changes contents, and of which the kernel says that privileges go, or stay, if it says
    /// either.
    fn changer(&self, privileges_go: bool) -> Caller {
        Caller { keeps_privileges: self.dispatch.clear_privileges.then_some(!privileges_go), ..self.caller }
    }

    fn readlink(&mut self) -> Result<()> {
        let server = &self.dispatch.server;
        let target = server.asked(Operation::Readlink, None, || server.readlink(self.caller, self.node));
        self.after(Work::One(Operation::Readlink));
        self.answer.put(&target?[..])
    }

    fn open(&mut self, flags: u32) -> Result<()> {
        let (server, asked) = (&self.dispatch.server, self.request.args.structure::<OpenIn>()?);
        let handle = server.asked(Operation::Open, None, || server.open(self.caller, self.node, asked.flags));
        self.after(Work::One(Operation::Open));
        self.answer.put(&OpenOut { handle: handle?, flags, backing_id: 0 })
    }

    fn made_and_opened(&mut self, made: Result<(Attr, u64)>) -> Result<()> {
        let (attr, handle) = made?;
        self.answer.put(&entry_out(&attr, self.dispatch.valid()))?;
        self.answer.put(&OpenOut { handle, flags: self.dispatch.file_flags(), backing_id: 0 })
    }

    fn read(&mut self) -> Result<()> {
        let (server, operation) = (&self.dispatch.server, Operation::Read);
        let ReadWriteIn { handle, offset, size, .. } = self.request.args.structure()?;
        let read = server.asked(operation, None, || self.answer.fill(size, |room| server.read(handle, offset, room)));
        let seen = server.read_at(self.node, handle, offset, self.answer.len());
        self.after(seen.map_or(Work::One(operation), Work::Read));
        read
    }

    fn write(&mut self) -> Result<()> {
        let server = &self.dispatch.server;
        let ReadWriteIn { handle, offset, size, read_write_flags, flags, .. } = self.request.args.structure()?;
        let data = self.request.args.data(size)?;
        let mut caller = self.changer(read_write_flags & WRITE_KILL_SUIDGID != 0);
        if read_write_flags & WRITE_CACHE != 0 {
            // Pages of a mapping: on Linux, writing to one takes nothing away.
            caller.keeps_privileges = Some(true);
        }
        let written = server.asked(Operation::Write, None, || {
            // A part is an EIO to the kernel if it was to be written past its cache.
            if flags & OpenFlags::DIRECT.bits() != 0 || read_write_flags & WRITE_CACHE != 0 {
                server.write_back(caller, handle, offset, data)
            } else {
                server.write(caller, handle, offset, data)
            }
        });
        self.after(Work::One(Operation::Write));
        self.answer.put(&SizeOut { size: written? as u32, padding: 0 })
    }

    fn readdir(&mut self) -> Result<()> {
        let server = &self.dispatch.server;
        let ReadWriteIn { handle, offset, size, .. } = self.request.args.structure()?;
        self.answer.at_most(size);
        let (answer, mut count) = (&mut self.answer, 0);
        let mut add = |entry: &DirEntry<'_>| {
            let fits = answer.dirent(entry);
            count += usize::from(fits);
            fits
        };
        let read = server.asked(Operation::Readdir, None, || server.readdir(handle, offset, &mut add));
        self.after(Work::Names(count));
        read
    }

    fn readdirplus(&mut self) -> Result<()> {
        let (server, valid) = (&self.dispatch.server, self.dispatch.valid());
        let ReadWriteIn { handle, offset, size, .. } = self.request.args.structure()?;
        self.answer.at_most(size);
        let (answer, mut count) = (&mut self.answer, 0);
        let mut add = |entry: &DirEntry<'_>, attr: Option<Attr>| {
            let node = attr.map_or_else(
                || dots_out(entry),
                // The kernel asks at once for what the store fails to tell.
                |attr| entry_out(&attr, if server.entry_fails(entry.name) { Duration::ZERO } else { valid }),
            );
            let fits = answer.dirent_plus(&node, entry);
            if !fits && attr.is_some() {
                server.entry_did_not_fit();
            }
            count += usize::from(fits);
            fits
        };
        let list = || server.readdirplus(self.caller, handle, offset, &mut add);
        let read = server.asked(Operation::Readdirplus, None, list);
        self.after(Work::NamesWithAttributes(count));
        read
    }

    fn getxattr(&mut self) -> Result<()> {
        let (server, operation) = (&self.dispatch.server, Operation::Getxattr);
        let (GetxattrIn { size, .. }, name) = (self.request.args.structure()?, self.request.args.name()?);
        if let Some(value) = server.own_xattr(name) {
            return self.sized(Ok(value), size);
        }
        let value = server.asked(operation, None, || server.getxattr(self.caller, self.node, name));
        self.after(Work::One(operation));
        self.sized(value, size)
    }

    /// Answers a value of which the caller may first ask the size (`room` 0).
    fn sized(&mut self, value: Result<Vec<u8>>, room: u32) -> Result<()> {
        let value = value?;
        match room {
            0 => self.answer.put(&SizeOut { size: value.len() as u32, padding: 0 }),
            room if value.len() <= room as usize => self.answer.put(&value[..]),
            _ => Err(Error::Range),
        }
    }
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
