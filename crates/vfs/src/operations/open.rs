//! open: from a path and flags to an open file description. Analogous to `path_openat()` in
//! fs/namei.c.

use pando_sync::{Guard, pin};

use crate::{
    At, Context, DentryRef, Error, File, InodeFlags, Result, Vfs,
    handles::held::Held,
    objects::{inode::Inode, notify, superblock::Namespace},
    operations::{
        attempt::{change, run_lockless},
        attr::{Stamp, truncate_inode},
        create::make_at,
        make::Make,
        namei::{look_at, same_tree, walk, walk_parent},
        opened::Opened,
        parent::Last,
        step::Commit,
    },
    trace::TraceOp,
    types::{
        Access, FileKind, OpenFlags, Walk,
        stat::{MODE_BITS, S_ISVTX},
        watch_event::WatchEvents,
    },
};

impl Vfs {
    /// Opens a file (openat). With O_CREAT, makes it.
    ///
    /// Fifos, sockets and devices open only with O_PATH; otherwise ENXIO. A tree in this process
    /// has no pipes or drivers. Through a mount, the kernel opens them itself.
    ///
    /// # Errors
    /// ENOENT, EEXIST (O_EXCL), EISDIR, ENOTDIR (O_DIRECTORY), ELOOP (also O_NOFOLLOW), EACCES,
    /// EPERM (O_NOATIME), EINVAL (flags, and O_DIRECT for a directory), ENXIO, ENAMETOOLONG,
    /// ENOSPC.
    #[doc(alias = "openat")]
    pub fn open(
        &self,
        context: &Context,
        at: At<'_>,
        path: impl AsRef<[u8]>,
        flags: OpenFlags,
        mode: u32,
    ) -> Result<File> {
        let path = path.as_ref();
        let op = if flags.intersects(OpenFlags::CREAT | OpenFlags::TMPFILE) { TraceOp::Create } else { TraceOp::Open };
        self.traced(op, (context, at, path), || self.open_at(context, at, path, flags, mode))
    }

    fn open_at(&self, context: &Context, at: At<'_>, path: &[u8], flags: OpenFlags, mode: u32) -> Result<File> {
        if flags.contains(OpenFlags::PATH) {
            return self.open_path(context, at, path, flags);
        }
        let mode = mode & MODE_BITS;
        if flags.contains(OpenFlags::TMPFILE) {
            let writes = flags.bits() & 3 != 0;
            if !flags.contains(OpenFlags::DIRECTORY) || !writes || flags.contains(OpenFlags::CREAT) {
                return Err(Error::Invalid);
            }
            let dentry =
                self.make_anonymous(context, at, path, walk_flags(flags), mode, !flags.contains(OpenFlags::EXCL))?;
            let held = Held::Counted(dentry);
            tell_opened(self.namespace(), &held, false);
            return Ok(File::new(held, flags, context));
        }
        if flags.contains(OpenFlags::CREAT) {
            if flags.contains(OpenFlags::DIRECTORY) {
                return Err(Error::Invalid);
            }
            return self.open_or_create(context, at, path, flags, mode);
        }
        let check = |inode: &Inode, guard: &Guard| check_open(context, inode, flags, guard);
        let held = self.hold(context, at, path, walk_flags(flags), check)?;
        let is_truncated = truncate_on_open(context, held.dentry().0.inode(), flags)?;
        tell_opened(self.namespace(), &held, is_truncated);
        Ok(File::new(held, flags, context))
    }

    /// Opens a dentry without a walk, for a server that keeps its own node table.
    ///
    /// # Errors
    /// As [`Vfs::open`].
    pub fn open_dentry(&self, context: &Context, dentry: &DentryRef, flags: OpenFlags) -> Result<File> {
        self.traced_itself(TraceOp::Open, dentry, || {
            open_itself(self.namespace(), context, Held::another(dentry), flags)
        })
    }

    fn open_path(&self, context: &Context, at: At<'_>, path: &[u8], flags: OpenFlags) -> Result<File> {
        let check = |inode: &Inode, _: &Guard| {
            if flags.contains(OpenFlags::DIRECTORY) {
                inode.directory()?;
            }
            Ok(())
        };
        let held = self.hold(context, at, path, walk_flags(flags), check)?;
        Ok(File::new(held, only_path(flags), context))
    }

    /// Walks a path, and counts a reference on the result if `check` accepts it. All of this is
    /// done under one guard: taking a guard is a large part of the cost.
    #[inline]
    fn hold(
        &self,
        context: &Context,
        at: At<'_>,
        path: &[u8],
        flags: Walk,
        check: impl Fn(&Inode, &Guard) -> Result<()>,
    ) -> Result<Held> {
        let mut opened = Opened::default();
        run_lockless(self.namespace(), |guard| {
            let found = walk(self.namespace(), context, &at, path, flags, guard)?;
            check(found.to_ref().inode(), guard)?;
            opened.find(found, guard)
        })?;
        Ok(opened.take(self.namespace()))
    }

    fn open_or_create(&self, context: &Context, at: At<'_>, path: &[u8], flags: OpenFlags, mode: u32) -> Result<File> {
        let exclusive = flags.contains(OpenFlags::EXCL);
        let follow = !exclusive && !flags.contains(OpenFlags::NOFOLLOW);
        let mut opened = Opened::default();
        let made = loop {
            let done = change(self.namespace(), |guard, locks| {
                let mut place = walk_parent(self.namespace(), context, &at, path, follow, guard)?;
                let otherwise = if exclusive { Error::Exists } else { Error::IsDirectory };
                // A trailing slash is checked before the length of the name.
                if place.any_name(otherwise).is_ok() && place.slash {
                    return Err(Error::IsDirectory.into());
                }
                if !matches!(place.last, Last::Name(_)) {
                    // The step up is taken before it is refused: it may lead where this context
                    // must not go.
                    walk(self.namespace(), context, &at, path, Walk::empty(), guard)?;
                }
                let name = place.name(otherwise)?;
                let seen = match place.seen {
                    Some(seen) => seen.dentry,
                    None => {
                        let hash = *place.hash.insert(place.hash_of(name));
                        place.seen.insert(look_at(place.dir, (name, hash), guard)?).dentry
                    }
                };
                if let Some(found) = seen {
                    same_tree(context, place.dir, found)?;
                    if exclusive {
                        return Err(Error::Exists.into());
                    }
                    may_open_in_sticky(context, place.dir.to_ref().inode(), found.to_ref().inode(), guard)?;
                    opened.find(found, guard)?;
                    return Ok(Commit::Local(false));
                }
                Ok(match make_at(context, place, Make::File, mode, guard, locks)? {
                    Commit::Local(dentry) => {
                        opened.made(dentry);
                        Commit::Local(true)
                    }
                    Commit::Remote(create) => Commit::Remote(create),
                })
            });
            match done {
                Ok(Commit::Local(made)) => break made,
                Ok(Commit::Remote(dentry)) => {
                    opened.made(dentry);
                    break true;
                }
                // Another thread made the name first. The next attempt opens it.
                Err(Error::Exists) if !exclusive => std::thread::yield_now(),
                Err(error) => return Err(error),
            }
        };
        let held = opened.take(self.namespace());
        if made {
            // The thread that makes a file may use it as requested, whatever its mode says.
            tell_opened(self.namespace(), &held, false);
            return Ok(File::new(held, flags, context));
        }
        if held.dentry().0.is_dir() {
            return Err(Error::IsDirectory);
        }
        open_itself(self.namespace(), context, held, flags)
    }
}

/// How the path is walked.
fn walk_flags(flags: OpenFlags) -> Walk {
    if flags.contains(OpenFlags::NOFOLLOW) { Walk::NOFOLLOW } else { Walk::empty() }
}

/// Opens an existing file.
fn open_itself(namespace: &Namespace, context: &Context, held: Held, flags: OpenFlags) -> Result<File> {
    if flags.contains(OpenFlags::PATH) {
        return Ok(File::new(held, only_path(flags), context));
    }
    let inode = held.dentry().0.inode();
    check_open(context, inode, flags, &pin())?;
    let is_truncated = truncate_on_open(context, inode, flags)?;
    tell_opened(namespace, &held, is_truncated);
    Ok(File::new(held, flags, context))
}

/// Queues the events of an open.
#[inline]
fn tell_opened(namespace: &Namespace, held: &Held, is_truncated: bool) {
    if namespace.wants(WatchEvents::OPEN | WatchEvents::MODIFY) {
        let dentry = held.dentry().0.as_shared();
        notify::opened(dentry);
        if is_truncated {
            notify::modified(dentry);
        }
    }
}

/// The flags that count together with O_PATH. All others are ignored, as on Linux.
fn only_path(flags: OpenFlags) -> OpenFlags {
    flags & (OpenFlags::PATH | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW)
}

/// Whether O_CREAT may open an existing file in a world-writable sticky directory (analogous to
/// `may_create_in_sticky()` in fs/namei.c). It refuses sockets and devices of another user than the
/// caller and the directory's owner, since the caller expects to get a file of its own. For regular
/// files and fifos, Linux has switches (`fs.protected_regular`, `fs.protected_fifos`). Those are a
/// policy of the machine, so this function leaves them out.
fn may_open_in_sticky(context: &Context, dir: &Inode, inode: &Inode, guard: &Guard) -> Result<()> {
    if matches!(inode.kind, FileKind::File | FileKind::Fifo | FileKind::Directory) {
        return Ok(());
    }
    let (dir, uid) = (dir.perm(guard), inode.perm(guard).uid);
    let surprising = dir.mode & S_ISVTX != 0 && dir.mode & 0o002 != 0 && uid != dir.uid && uid != context.cred.uid;
    if surprising { Err(Error::Access) } else { Ok(()) }
}

/// Whether an inode may be opened with these flags (analogous to `may_open()` in fs/namei.c).
fn check_open(context: &Context, inode: &Inode, flags: OpenFlags, guard: &Guard) -> Result<()> {
    let access = flags.access();
    match inode.kind {
        FileKind::Symlink if flags.contains(OpenFlags::DIRECTORY) => return Err(Error::NotDirectory),
        FileKind::Symlink => return Err(Error::Loop),
        FileKind::Directory if access.contains(Access::WRITE) => return Err(Error::IsDirectory),
        FileKind::Directory => {}
        _ if flags.contains(OpenFlags::DIRECTORY) => return Err(Error::NotDirectory),
        _ => {}
    }
    context.check(inode, access, guard)?;
    let only_appends =
        !flags.contains(OpenFlags::TRUNC) && (flags.contains(OpenFlags::APPEND) || !access.contains(Access::WRITE));
    if !only_appends {
        inode.permissions(guard).expect_without(InodeFlags::APPEND)?;
    }
    if flags.contains(OpenFlags::NOATIME) && !context.owns(&inode.perm(guard)) {
        return Err(Error::NotPermitted);
    }
    match inode.kind {
        FileKind::Directory if flags.contains(OpenFlags::DIRECT) => Err(Error::Invalid),
        FileKind::File | FileKind::Directory => Ok(()),
        _ => Err(Error::NoDeviceAddress),
    }
}

/// Whether the file was truncated.
fn truncate_on_open(context: &Context, inode: &Inode, flags: OpenFlags) -> Result<bool> {
    let truncates = flags.contains(OpenFlags::TRUNC) && inode.kind == FileKind::File;
    if truncates {
        truncate_inode(inode, 0, context.writer(inode), Stamp::Always)?;
    }
    Ok(truncates)
}
