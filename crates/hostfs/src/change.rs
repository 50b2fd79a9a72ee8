//! Changes of the host's directory.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use pando_vfs::{
    Ack, AttrMask, Change, CommitError, Error, FileKind, NodeAttr, RenameFlags, Result, Timestamp, XATTR_ACL_DEFAULT,
};
use rustix::{
    fs::{
        AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, chmodat, chownat, linkat, mkdirat,
        mknodat, openat, renameat_with, symlinkat, unlinkat, utimensat,
    },
    io::Errno,
};

use crate::{
    attr::{from_errno, kind_of, stat},
    descriptors::Use,
    nodes::Node,
    owner, sys,
    tree::{Found, Tree, open_beneath},
};

impl Tree {
    pub(crate) fn change(&self, change: &Change<'_>) -> std::result::Result<Ack, CommitError> {
        match *change {
            Change::Create { dir, name, attr, umasked } => Ok(Ack::Made(self.create(dir, name, attr, umasked)?)),
            Change::CreateAnonymous { dir, attr, umasked } => Ok(Ack::Made(self.create_anonymous(dir, attr, umasked)?)),
            Change::Link { ino, dir, name } => Ok(self.link(ino, dir, name)?),
            Change::Remove { dir, name, ino } => Ok(self.remove(dir, name, ino)?),
            Change::Rename { from, to, flags, ino, target, whiteout } => {
                Ok(self.rename((from, ino), (to, target), flags, whiteout)?)
            }
            Change::SetAttr { ino, attr, meant } => Ok(self.set_attr(ino, attr, meant)?),
            Change::SetXattr { ino, name, value } => Ok(self.set_xattr(ino, name, value)?),
            _ => Err(Error::NotSupported.into()),
        }
    }

    /// A directory, for a change of its names.
    fn dir_fd(&self, number: u64) -> Result<(Arc<Node>, Arc<OwnedFd>)> {
        let node = self.node(number).map_err(|_| Error::NoEntry)?;
        let file = self.path_fd(&node).map_err(|error| if error == Error::Stale { Error::NoEntry } else { error })?;
        Ok((node, file))
    }

    fn create(
        &self,
        dir: u64,
        name: &[u8],
        attr: &NodeAttr,
        umasked: u32,
    ) -> std::result::Result<NodeAttr, CommitError> {
        let (dir, dir_fd) = self.dir_fd(dir)?;
        let at = dir_fd.as_fd();
        let mode = self.mode_for(at, attr, umasked);
        let make = || match attr.kind {
            FileKind::File => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(at, name, flags, mode).map(Some).map_err(from_errno)
            }
            FileKind::Directory => done(mkdirat(at, name, mode)),
            FileKind::Symlink => done(symlinkat(&*attr.target, at, name)),
            kind => {
                let kind = FileType::from_raw_mode(kind.to_mode());
                done(mknodat(at, name, kind, mode, attr.rdev.into()))
            }
        };
        let written = owner::making_for(attr.uid, attr.gid, make)?;
        // The inode is there. If it cannot be found again, the tree must ask what has become of it.
        self.made(written, &dir, at, name, attr).map_err(|_| CommitError::Unknown)
    }

    /// The mode to pass to the host. A default ACL of the directory takes the place of the umask.
    fn mode_for(&self, dir: BorrowedFd<'_>, attr: &NodeAttr, umasked: u32) -> Mode {
        let replaces_umask = umasked != 0 && attr.kind != FileKind::Symlink && self.has_default_acl(dir);
        Mode::from_raw_mode(attr.mode | if replaces_umask { umasked } else { 0 })
    }

    /// Makes a file without a name (O_TMPFILE). It stays open until it is forgotten, or has a name.
    fn create_anonymous(&self, dir: u64, attr: &NodeAttr, umasked: u32) -> Result<NodeAttr> {
        let (_, dir_fd) = self.dir_fd(dir)?;
        let (at, flags) = (dir_fd.as_fd(), OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC);
        let mode = self.mode_for(at, attr, umasked);
        let written = owner::making_for(attr.uid, attr.gid, || openat(at, c".", flags, mode).map_err(from_errno))?;
        let file = self.reopen(written.as_fd(), OFlags::PATH)?;
        self.complete(file.as_fd(), at, attr)?;
        let Found { node, attr } = self.identified(file.as_fd())?;
        *node.pinned() = Some(Arc::new(file));
        self.descriptors.keep(node.serial, Use::Write, written);
        Ok(attr)
    }

    /// The inode that was just made. `written`: a file, open for writing.
    fn made(
        &self,
        written: Option<OwnedFd>,
        dir: &Arc<Node>,
        at: BorrowedFd<'_>,
        name: &[u8],
        attr: &NodeAttr,
    ) -> Result<NodeAttr> {
        let file = match &written {
            // Its name may lead elsewhere by now.
            Some(written) => self.reopen(written.as_fd(), OFlags::PATH)?,
            None => open_beneath(at, name)?,
        };
        self.complete(file.as_fd(), at, attr)?;
        let Found { node, attr: made } = self.found(file, dir, name)?;
        if let Some(written) = written {
            self.descriptors.keep(node.serial, Use::Write, written);
        }
        Ok(made)
    }

    fn link(&self, number: u64, dir: u64, name: &[u8]) -> Result<Ack> {
        let node = self.node(number)?;
        let file = self.path_fd(&node)?;
        let (dir, dir_fd) = self.dir_fd(dir)?;
        match linkat(&*file, c"", &*dir_fd, name, AtFlags::EMPTY_PATH) {
            // Without CAP_DAC_READ_SEARCH.
            Err(Errno::NOENT | Errno::PERM) => {
                let open = self.open_file(file.as_fd());
                linkat(open.dir, &open.name, &*dir_fd, name, AtFlags::SYMLINK_FOLLOW).map_err(from_errno)?;
            }
            linked => linked.map_err(from_errno)?,
        }
        let is_pinned = node.pinned().is_some();
        if is_pinned {
            // It has a name now.
            self.moved_to(&node, &dir, name);
            self.unpin_if_found(&node);
        }
        Ok(Ack::Done)
    }

    fn remove(&self, dir: u64, name: &[u8], number: u64) -> Result<Ack> {
        let (dir, dir_fd) = self.dir_fd(dir)?;
        let node = self.node(number)?;
        let flags = if node.kind == FileKind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        self.may_lose_a_name(&node, &dir, name, || unlinkat(&*dir_fd, name, flags).map_err(from_errno))?;
        Ok(Ack::Done)
    }

    /// Renames an inode, and the target if there is one. The host makes the whiteout.
    fn rename(
        &self,
        (from, number): ((u64, &[u8]), u64),
        (to, target): ((u64, &[u8]), Option<u64>),
        flags: RenameFlags,
        whiteout: Option<&NodeAttr>,
    ) -> Result<Ack> {
        let ((from_dir, from_fd), (to_dir, to_fd)) = (self.dir_fd(from.0)?, self.dir_fd(to.0)?);
        let is_exchange = flags.contains(RenameFlags::EXCHANGE);
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let call = || renameat_with(&*from_fd, from.1, &*to_fd, to.1, flags).map_err(from_errno);
        let rename = || match whiteout {
            Some(made) => owner::making_for(made.uid, made.gid, call),
            None => call(),
        };
        let target = target.map(|target| self.node(target)).transpose()?;
        match &target {
            Some(replaced) if !is_exchange => self.may_lose_a_name(replaced, &to_dir, to.1, rename)?,
            _ => rename()?,
        }
        if let Ok(renamed) = self.node(number) {
            self.moved_to(&renamed, &to_dir, to.1);
        }
        if let Some(exchanged) = target.filter(|_| is_exchange) {
            self.moved_to(&exchanged, &from_dir, from.1);
        }
        Ok(Ack::Done)
    }

    /// Makes a change that removes a name of an inode. Keeps the inode open until it is forgotten
    /// if that was the last name, or the only path that is known.
    fn may_lose_a_name(
        &self,
        node: &Arc<Node>,
        dir: &Arc<Node>,
        name: &[u8],
        change: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        match self.pin(node) {
            // Others have removed it. The name leads to another inode now.
            Ok(()) | Err(Error::Stale | Error::NoEntry) => {}
            Err(error) => return Err(error),
        }
        let done = change();
        if done.is_ok() {
            node.place().take_if(|place| Arc::ptr_eq(&place.0, &dir.inode) && *place.1 == *name);
        }
        self.unpin_if_found(node);
        done
    }

    fn set_attr(&self, number: u64, attr: &NodeAttr, meant: AttrMask) -> Result<Ack> {
        let node = self.node(number)?;
        let file = self.path_fd(&node)?;
        let of = |which, id: u32| meant.contains(which).then_some(id);
        let (uid, gid) = (of(AttrMask::UID, attr.uid), of(AttrMask::GID, attr.gid));
        // A chown that changes nothing stamps ctime. Nothing else can.
        if uid.is_some() || gid.is_some() || meant == AttrMask::CTIME {
            chown(file.as_fd(), uid, gid)?;
        }
        // After the owner: a chown clears setuid and setgid.
        if meant.contains(AttrMask::MODE) {
            self.chmod(file.as_fd(), attr.mode)?;
        }
        if meant.intersects(AttrMask::ATIME | AttrMask::MTIME) {
            let time = |which, time: Timestamp| {
                if meant.contains(which) { timespec(time) } else { Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT } }
            };
            let times = Timestamps {
                last_access: time(AttrMask::ATIME, attr.atime),
                last_modification: time(AttrMask::MTIME, attr.mtime),
            };
            utimensat(&*file, c"", &times, AtFlags::EMPTY_PATH).map_err(from_errno)?;
        }
        Ok(Ack::Done)
    }

    fn set_xattr(&self, number: u64, name: &[u8], value: Option<&[u8]>) -> Result<Ack> {
        let node = self.node(number)?;
        let file = self.path_fd(&node)?;
        let open = self.open_file(file.as_fd());
        match value {
            Some(value) => sys::set_xattr(&open, name, value)?,
            None => sys::remove_xattr(&open, name)?,
        }
        Ok(Ack::Done)
    }

    fn chmod(&self, file: BorrowedFd<'_>, mode: u32) -> Result<()> {
        let open = self.open_file(file);
        chmodat(open.dir, &open.name, Mode::from_raw_mode(mode), AtFlags::empty()).map_err(from_errno)
    }

    /// Sets group and mode of a new inode as far as the host has not: the umask of this process has
    /// cleared bits, for example.
    ///
    /// Other users of the host may have put another inode in its place. That one is not changed,
    /// unless kind and owner are the same, so that its owner is the one who asks.
    fn complete(&self, file: BorrowedFd<'_>, dir: BorrowedFd<'_>, attr: &NodeAttr) -> Result<()> {
        let made = stat(file)?;
        if kind_of(&made)? != attr.kind || made.stx_uid != attr.uid {
            return Err(Error::Stale);
        }
        let mode = u32::from(made.stx_mode) & 0o7777;
        // A process without the capability may choose only among its groups. Otherwise the host has
        // chosen.
        let has_group = made.stx_gid == attr.gid || chown(file, None, Some(attr.gid)).is_err();
        if attr.kind == FileKind::Symlink || has_group && mode == attr.mode {
            return Ok(());
        }
        // The default ACL of a directory may have cleared permissions. They stay cleared.
        let permissions = if self.has_default_acl(dir) { mode } else { attr.mode };
        self.chmod(file, permissions & 0o777 | attr.mode & 0o7000)
    }

    fn has_default_acl(&self, dir: BorrowedFd<'_>) -> bool {
        sys::get_xattr(&self.open_file(dir), XATTR_ACL_DEFAULT.as_bytes(), &mut []).is_ok_and(|size| size > 0)
    }
}

fn chown(file: BorrowedFd<'_>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    chownat(file, c"", uid.map(Uid::from_raw), gid.map(Gid::from_raw), AtFlags::EMPTY_PATH).map_err(from_errno)
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.secs(), tv_nsec: time.nanos().into() }
}

/// The result of a call that makes an inode and does not open it.
fn done(made: rustix::io::Result<()>) -> Result<Option<OwnedFd>> {
    made.map(|()| None).map_err(from_errno)
}
