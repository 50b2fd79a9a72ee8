//! Operations on names: look-up, creation, rename and removal.

use pando_vfs::{At, DentryRef, Error, File, OpenFlags, RenameFlags, Result, Walk};

use super::{Caller, Server, component};
use crate::nodes::Attr;

impl Server {
    /// Looks up `name` in `parent`. Returns none if there is no such entry, and the kernel may then
    /// cache a negative dentry.
    ///
    /// If the kernel has a file handle but no inode for it, it looks up `.`, which is `parent`
    /// itself, of any kind. `..` is the parent directory of `parent`, which must be a directory.
    ///
    /// # Errors
    /// EXDEV for a mount point of a tree that is not served; see [`Server`].
    pub fn lookup(&self, caller: Caller, parent: u64, name: &[u8]) -> Result<Option<Attr>> {
        self.guarded("lookup", || {
            if name == b"." {
                return self.reply_with(&self.nodes.find(parent)?).map(Some);
            }
            let dir = self.nodes.get(parent)?;
            let name = if name == b".." { name } else { component(name)? };
            let context = self.context(caller, 0);
            match self.vfs.lookup(&context, At::Dir(&dir), name, Walk::NOFOLLOW) {
                Ok(dentry) => self.reply_with(&dentry).map(Some),
                Err(Error::NoEntry) => {
                    if !self.options.negative_valid().is_zero() {
                        self.negatives.insert(parent, name);
                    }
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        })
    }

    /// Counts one look-up of `dentry`, and returns its attributes.
    fn reply_with(&self, dentry: &DentryRef) -> Result<Attr> {
        let mut reply = self.nodes.start_reply();
        reply.count(dentry)?;
        let attr = self.attr_of(dentry);
        reply.commit();
        Ok(attr)
    }

    /// As [`Server::reply_with`], of an entry that the kernel has made.
    fn reply_with_new(&self, parent: u64, name: &[u8], dentry: &DentryRef) -> Result<Attr> {
        self.negatives.remove(parent, name);
        self.reply_with(dentry)
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// EEXIST, ENOSPC; see [`Server`].
    pub fn mkdir(&self, caller: Caller, parent: u64, name: &[u8], mode: u32, umask: u32) -> Result<Attr> {
        self.guarded("mkdir", || {
            let (dir, name) = (self.nodes.get(parent)?, component(name)?);
            let context = self.context(caller, umask);
            let made = self.space.retry(|| self.vfs.mkdir(&context, At::Dir(&dir), name, mode))?;
            self.reply_with_new(parent, name, &made)
        })
    }

    /// Creates a file, a pipe, a socket or a device node. `mode` contains the kind.
    ///
    /// # Errors
    /// EEXIST, ENOSPC, EINVAL for an unknown kind; see [`Server`].
    pub fn mknod(&self, caller: Caller, parent: u64, name: &[u8], mode: u32, rdev: u32, umask: u32) -> Result<Attr> {
        self.guarded("mknod", || {
            let (dir, name) = (self.nodes.get(parent)?, component(name)?);
            let context = self.context(caller, umask);
            let made = self.space.retry(|| self.vfs.mknod(&context, At::Dir(&dir), name, mode, rdev))?;
            self.reply_with_new(parent, name, &made)
        })
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// EEXIST, ENOSPC; see [`Server`].
    pub fn symlink(&self, caller: Caller, parent: u64, name: &[u8], target: &[u8]) -> Result<Attr> {
        self.guarded("symlink", || {
            let (dir, name) = (self.nodes.get(parent)?, component(name)?);
            let context = self.context(caller, 0);
            let made = self.space.retry(|| self.vfs.symlink(&context, target, At::Dir(&dir), name))?;
            self.reply_with_new(parent, name, &made)
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL if it is not one; see [`Server`].
    pub fn readlink(&self, caller: Caller, node: u64) -> Result<Vec<u8>> {
        self.guarded("readlink", || {
            let dentry = self.nodes.get(node)?;
            let walk = Walk::EMPTY_PATH | Walk::NOFOLLOW;
            // On a mount with noatime, this must not write atime.
            let context = self.context(caller, 0).read_only(self.no_atime);
            self.vfs.readlink(&context, At::Dir(&dentry), b"", walk)
        })
    }

    /// Adds a name to `node` (a hard link).
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
            self.reply_with_new(parent, name, &linked)
        })
    }

    /// Removes the name of a file that is not a directory.
    ///
    /// # Errors
    /// ENOENT, EISDIR; see [`Server`].
    pub fn unlink(&self, caller: Caller, parent: u64, name: &[u8]) -> Result<()> {
        self.guarded("unlink", || {
            let dir = self.nodes.get(parent)?;
            self.vfs.unlink(&self.context(caller, 0), At::Dir(&dir), component(name)?)?;
            self.removed();
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
            self.removed();
            Ok(())
        })
    }

    /// Renames `from` (the node of a directory, and a name) to `to`. `flags` are those of
    /// renameat2(2).
    ///
    /// # Errors
    /// EINVAL for flags that do not exist, ENOSPC for a whiteout, and those of rename(2); see
    /// [`Server`].
    pub fn rename(&self, caller: Caller, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Result<()> {
        self.guarded("rename", || {
            let flags = RenameFlags::from_bits(flags).ok_or(Error::Invalid)?;
            let (old, new) = (self.nodes.get(from.0)?, self.nodes.get(to.0)?);
            let context = self.context(caller, 0);
            let (old, new) = ((At::Dir(&old), component(from.1)?), (At::Dir(&new), component(to.1)?));
            self.space.retry(|| self.vfs.rename(&context, old.0, old.1, new.0, new.1, flags))?;
            self.negatives.remove(to.0, to.1);
            self.removed();
            Ok(())
        })
    }

    /// Creates a file and opens it. Returns its node and the handle. The kernel sends this only for
    /// a name that it has not found, so it has checked no permission of a file. If another caller
    /// has created the name meanwhile, ESTALE makes the kernel look it up again and call
    /// [`Server::open`].
    ///
    /// # Errors
    /// If the name exists, EEXIST with `O_EXCL` and ESTALE without it; ENOSPC; see [`Server`].
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
            self.negatives.remove(parent, name);
            self.reply_with_open(file)
        })
    }

    /// Creates an anonymous file and opens it (`O_TMPFILE`). Returns its node and the handle.
    /// Unless `flags` have `O_EXCL`, [`Server::link`] may give it a name.
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
            self.reply_with_open(file)
        })
    }

    /// Counts one look-up of a new file. Returns its attributes and its handle.
    fn reply_with_open(&self, file: File) -> Result<(Attr, u64)> {
        let mut reply = self.nodes.start_reply();
        reply.count(file.dentry())?;
        let attr = self.attr_of(file.dentry());
        let handle = self.keep(file)?;
        reply.commit();
        Ok((attr, handle))
    }
}
