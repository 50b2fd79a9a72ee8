//! Names: looking them up, making, moving and removing them.

use pando_vfs::{At, DentryRef, Error, File, OpenFlags, RenameFlags, Result, Walk};

use super::{Caller, Server, component};
use crate::nodes::Attr;

impl Server {
    /// The node of `name` in `parent`; none if there is no such name, which the kernel may remember as well.
    ///
    /// A file handle that the kernel has no inode of comes as `.`, which is `parent` itself, of whatever kind. `..` is the
    /// directory that `parent`, a directory, lies in.
    ///
    /// # Errors
    /// EXDEV where a tree is mounted that is not served; see [`Server`].
    pub fn lookup(&self, caller: Caller, parent: u64, name: &[u8]) -> Result<Option<Attr>> {
        self.guarded("lookup", || {
            let dir = self.nodes.get(parent)?;
            if name == b"." {
                return self.hand_out(&dir).map(Some);
            }
            let name = if name == b".." { name } else { component(name)? };
            let context = self.context(caller, 0);
            match self.vfs.lookup(&context, At::Dir(&dir), name, Walk::NOFOLLOW) {
                Ok(dentry) => self.hand_out(&dentry).map(Some),
                Err(Error::NoEntry) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    /// Answers one node, counted.
    fn hand_out(&self, dentry: &DentryRef) -> Result<Attr> {
        let mut reply = self.nodes.start_reply();
        reply.count(dentry)?;
        let attr = self.attr_of(dentry);
        reply.commit();
        Ok(attr)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// EEXIST, ENOSPC; see [`Server`].
    pub fn mkdir(&self, caller: Caller, parent: u64, name: &[u8], mode: u32, umask: u32) -> Result<Attr> {
        self.guarded("mkdir", || {
            let (dir, name) = (self.nodes.get(parent)?, component(name)?);
            let context = self.context(caller, umask);
            let made = self.space.retry(|| self.vfs.mkdir(&context, At::Dir(&dir), name, mode))?;
            self.hand_out(&made)
        })
    }

    /// Makes a file, a pipe, a socket or a device node; `mode` has the kind.
    ///
    /// # Errors
    /// EEXIST, ENOSPC, EINVAL for an unknown kind; see [`Server`].
    pub fn mknod(&self, caller: Caller, parent: u64, name: &[u8], mode: u32, rdev: u32, umask: u32) -> Result<Attr> {
        self.guarded("mknod", || {
            let (dir, name) = (self.nodes.get(parent)?, component(name)?);
            let context = self.context(caller, umask);
            let made = self.space.retry(|| self.vfs.mknod(&context, At::Dir(&dir), name, mode, rdev))?;
            self.hand_out(&made)
        })
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// EEXIST, ENOSPC; see [`Server`].
    pub fn symlink(&self, caller: Caller, parent: u64, name: &[u8], target: &[u8]) -> Result<Attr> {
        self.guarded("symlink", || {
            let (dir, name) = (self.nodes.get(parent)?, component(name)?);
            let context = self.context(caller, 0);
            let made = self.space.retry(|| self.vfs.symlink(&context, target, At::Dir(&dir), name))?;
            self.hand_out(&made)
        })
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// EINVAL if it is not one; see [`Server`].
    pub fn readlink(&self, caller: Caller, node: u64) -> Result<Vec<u8>> {
        self.guarded("readlink", || {
            let dentry = self.nodes.get(node)?;
            let walk = Walk::EMPTY_PATH | Walk::NOFOLLOW;
            // What changes nothing leaves no time of access either.
            let context = self.context(caller, 0).read_only(self.no_atime);
            self.vfs.readlink(&context, At::Dir(&dentry), b"", walk)
        })
    }

    /// Gives `node` one more name.
    ///
    /// # Errors
    /// EEXIST, EMLINK, EPERM for a directory; see [`Server`].
    pub fn link(&self, caller: Caller, node: u64, parent: u64, name: &[u8]) -> Result<Attr> {
        self.guarded("link", || {
            let dentry = self.nodes.get(node)?;
            let dir = self.nodes.get(parent)?;
            let context = self.context(caller, 0);
            let (old, new, name) = (At::Dir(&dentry), At::Dir(&dir), component(name)?);
            let linked = self.space.retry(|| self.vfs.link(&context, old, b"", new, name, Walk::EMPTY_PATH))?;
            self.hand_out(&linked)
        })
    }

    /// Removes the name of something that is not a directory.
    ///
    /// # Errors
    /// ENOENT, EISDIR; see [`Server`].
    pub fn unlink(&self, caller: Caller, parent: u64, name: &[u8]) -> Result<()> {
        self.guarded("unlink", || {
            let dir = self.nodes.get(parent)?;
            self.vfs.unlink(&self.context(caller, 0), At::Dir(&dir), component(name)?)?;
            self.space.removed();
            Ok(())
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENOTEMPTY; see [`Server`].
    pub fn rmdir(&self, caller: Caller, parent: u64, name: &[u8]) -> Result<()> {
        self.guarded("rmdir", || {
            let dir = self.nodes.get(parent)?;
            self.vfs.rmdir(&self.context(caller, 0), At::Dir(&dir), component(name)?)?;
            self.space.removed();
            Ok(())
        })
    }

    /// Moves `from` (a directory's node and a name) to `to`; `flags` are those of renameat2(2).
    ///
    /// # Errors
    /// EINVAL for flags that are not supported (WHITEOUT), and all of rename(2); see [`Server`].
    pub fn rename(&self, caller: Caller, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Result<()> {
        self.guarded("rename", || {
            let flags = RenameFlags::from_bits(flags).ok_or(Error::Invalid)?;
            let (old, new) = (self.nodes.get(from.0)?, self.nodes.get(to.0)?);
            let context = self.context(caller, 0);
            let (old, new) = (At::Dir(&old), At::Dir(&new));
            self.vfs.rename(&context, old, component(from.1)?, new, component(to.1)?, flags)?;
            self.space.removed();
            Ok(())
        })
    }

    /// Makes a file and opens it; answers its node and the handle. The kernel says this of a name that it has found missing,
    /// and so asked for no permission to a file. If somebody has made one meanwhile, it is told to look again, and comes
    /// with [`Server::open`].
    ///
    /// # Errors
    /// EEXIST with `O_EXCL` and ESTALE without it, if the name is there; ENOSPC; see [`Server`].
    pub fn create(
        &self,
        caller: Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
        flags: u32,
    ) -> Result<(Attr, u64)> {
        self.guarded("create", || {
            let (dir, name) = (self.nodes.get(parent)?, component(name)?);
            let context = self.context(caller, umask);
            let is_exclusive = OpenFlags::from_bits_truncate(flags).contains(OpenFlags::EXCL);
            let flags = self.handle_flags(flags) | OpenFlags::CREAT | OpenFlags::EXCL;
            let made = self.space.retry(|| self.vfs.open(&context, At::Dir(&dir), name, flags, mode));
            let file = made.map_err(|error| match error {
                Error::Exists if !is_exclusive => Error::Stale,
                error => error,
            })?;
            self.open_node(file)
        })
    }

    /// Makes a file that has no name, and opens it (`O_TMPFILE`); answers its node and the handle. Unless `flags` have
    /// `O_EXCL`, [`Server::link`] may give it one.
    ///
    /// # Errors
    /// ENOSPC; see [`Server`].
    pub fn tmpfile(&self, caller: Caller, parent: u64, mode: u32, umask: u32, flags: u32) -> Result<(Attr, u64)> {
        self.guarded("tmpfile", || {
            let dir = self.nodes.get(parent)?;
            let context = self.context(caller, umask);
            let exclusive = OpenFlags::from_bits_truncate(flags) & OpenFlags::EXCL;
            let flags = self.handle_flags(flags) | exclusive | OpenFlags::TMPFILE | OpenFlags::DIRECTORY;
            let file = self.space.retry(|| self.vfs.open(&context, At::Dir(&dir), b".", flags, mode))?;
            self.open_node(file)
        })
    }

    /// Answers a file that was just made: its node, counted, and its handle.
    fn open_node(&self, file: File) -> Result<(Attr, u64)> {
        let mut reply = self.nodes.start_reply();
        reply.count(file.dentry())?;
        let attr = self.attr_of(file.dentry());
        let handle = self.keep(file)?;
        reply.commit();
        Ok((attr, handle))
    }
}
