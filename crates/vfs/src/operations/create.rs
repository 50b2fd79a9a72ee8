//! Creating names: mkdir, mknod, symlink, link, and open's O_CREAT and O_TMPFILE.
//!
//! Protocol 2 orders a create against the rmdir of its directory:
//! 1. All steps that can fail come first.
//! 2. The directory entry is inserted *pending*, which no reader sees.
//! 3. The directory's life is read. If the directory is alive, the entry is published: that store
//!    is the linearization point. If it is removed, the entry is retracted: ENOENT.
//!
//! See [`bind`] for the timeline.

use pando_sync::{Counted, Detached, Guard, OpCell};

use crate::{
    At, Context, DentryRef, Error, FileKind, Result, Timestamp, Vfs,
    objects::{
        dentry::{Dentry, Dirent},
        inode::{Body, Inode},
        lockable::Lockable,
        notify,
        stat::note_access,
    },
    operations::{
        attempt::{change, run_lockless},
        locks::Locks,
        make::{Make, bind, bind_link, charge_for, may_link, may_link_there, may_make, new_permissions, parent_ref_in},
        namei::{lookup, walk, walk_parent},
        parent::Parent,
        remote,
        remote::create::Create,
        step::{Commit, Step, Stop},
    },
    trace::{Place, TraceOp},
    types::{
        Access, Walk,
        name::check_path,
        stat::{MODE_BITS, S_ISVTX},
    },
};

impl Vfs {
    /// Makes a directory (mkdirat).
    ///
    /// # Errors
    /// EEXIST, ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG, ENOSPC.
    #[doc(alias = "mkdirat")]
    pub fn mkdir(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, mode: u32) -> Result<DentryRef> {
        let path = path.as_ref();
        self.traced(TraceOp::Mkdir, (context, at, path), || {
            self.make(context, at, path, Make::Directory, mode & (0o777 | S_ISVTX))
        })
    }

    /// Makes a file, fifo, socket or device node (mknodat). `mode` holds the kind (`S_IF*`);
    /// without one it is a regular file.
    ///
    /// # Errors
    /// As mkdir; EINVAL for another kind; EPERM for a directory, or for a device without the
    /// capability.
    #[doc(alias = "mknodat")]
    pub fn mknod(
        &self,
        context: &Context,
        at: At<'_>,
        path: impl AsRef<[u8]>,
        mode: u32,
        rdev: u32,
    ) -> Result<DentryRef> {
        let path = path.as_ref();
        self.traced(TraceOp::Mknod, (context, at, path), || self.mknod_at(context, at, path, mode, rdev))
    }

    fn mknod_at(&self, context: &Context, at: At<'_>, path: &[u8], mode: u32, rdev: u32) -> Result<DentryRef> {
        let make = match FileKind::from_mode(mode).ok_or(Error::Invalid)? {
            FileKind::File => Make::File,
            FileKind::Directory => return Err(Error::NotPermitted),
            FileKind::Symlink => return Err(Error::Invalid),
            kind @ (FileKind::CharDevice | FileKind::BlockDevice) => Make::Special(kind, rdev),
            kind => Make::Special(kind, 0),
        };
        self.make(context, at, path, make, mode & MODE_BITS)
    }

    /// Makes a symbolic link to `target` (symlinkat).
    ///
    /// # Errors
    /// As mkdir; ENOENT for an empty target, ENAMETOOLONG for a target of 4096 bytes or more.
    #[doc(alias = "symlinkat")]
    pub fn symlink(
        &self,
        context: &Context,
        target: impl AsRef<[u8]>,
        at: At<'_>,
        path: impl AsRef<[u8]>,
    ) -> Result<DentryRef> {
        let (target, path) = (target.as_ref(), path.as_ref());
        self.traced_two(TraceOp::Symlink, Place::Walk(context, at, path), Place::Text(target), || {
            self.symlink_at(context, target, at, path)
        })
    }

    fn symlink_at(&self, context: &Context, target: &[u8], at: At<'_>, path: &[u8]) -> Result<DentryRef> {
        if target.is_empty() {
            return Err(Error::NoEntry);
        }
        check_path(target)?;
        self.make(context, at, path, Make::Symlink(target), 0o777)
    }

    /// The target of a symbolic link (readlinkat). The link itself is never followed.
    ///
    /// # Errors
    /// EINVAL if it is not a symbolic link (ENOENT for an empty path), and those of the walk.
    pub fn readlink(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, flags: Walk) -> Result<Vec<u8>> {
        let path = path.as_ref();
        self.traced(TraceOp::Readlink, (context, at, path), || self.readlink_at(context, at, path, flags))
    }

    fn readlink_at(&self, context: &Context, at: At<'_>, path: &[u8], flags: Walk) -> Result<Vec<u8>> {
        run_lockless(self.namespace(), |guard| {
            let dentry = walk(self.namespace(), context, &at, path, flags | Walk::NOFOLLOW, guard)?;
            let inode = dentry.to_ref().inode();
            match &inode.body {
                Body::Symlink(target, _) => {
                    if !context.read_only {
                        note_access(inode, i64::MIN, guard);
                    }
                    Ok(target.to_vec())
                }
                _ => Err(if path.is_empty() { Error::NoEntry } else { Error::Invalid }.into()),
            }
        })
    }

    fn make(&self, context: &Context, at: At<'_>, path: &[u8], make: Make<'_>, mode: u32) -> Result<DentryRef> {
        let made = change(self.namespace(), |guard, locks| {
            let place = walk_parent(self.namespace(), context, &at, path, false, guard)?;
            if place.slash && !matches!(make, Make::Directory) {
                let taken = lookup(place.dir, place.name(Error::Exists)?, guard)?.is_some();
                return Err(Stop::Error(if taken { Error::Exists } else { Error::NoEntry }));
            }
            make_at(context, place, make, mode, guard, locks)
        })?;
        Ok(DentryRef(made.into_inner()))
    }

    /// Makes a hard link to a file (linkat).
    ///
    /// # Errors
    /// EPERM for a directory, EXDEV across superblocks, EEXIST, ENOENT (also for a file whose last
    /// name is gone), EMLINK from 2^32 names on; otherwise as mkdir.
    #[doc(alias = "linkat")]
    pub fn link(
        &self,
        context: &Context,
        old_at: At<'_>,
        old_path: impl AsRef<[u8]>,
        new_at: At<'_>,
        new_path: impl AsRef<[u8]>,
        flags: Walk,
    ) -> Result<DentryRef> {
        let (old_path, new_path) = (old_path.as_ref(), new_path.as_ref());
        let (old, new) = (Place::Walk(context, old_at, old_path), Place::Walk(context, new_at, new_path));
        self.traced_two(TraceOp::Link, old, new, || {
            let old = self.lookup_at(context, old_at, old_path, flags)?;
            self.link_at(context, &old, new_at, new_path)
        })
    }

    fn link_at(&self, context: &Context, old: &DentryRef, new_at: At<'_>, new_path: &[u8]) -> Result<DentryRef> {
        let made = change(self.namespace(), |guard, locks| {
            let place = walk_parent(self.namespace(), context, &new_at, new_path, false, guard)?;
            if place.is_remote() {
                return remote::link::prepare(context, old, place, guard, locks).map(Commit::Remote);
            }
            link_here(context, old, place, guard, locks).map(Commit::Local)
        })?;
        Ok(DentryRef(made.into_inner()))
    }

    /// Makes an anonymous file on the superblock of the directory at `path` (O_TMPFILE).
    pub(crate) fn make_anonymous(
        &self,
        context: &Context,
        at: At<'_>,
        path: &[u8],
        flags: Walk,
        mode: u32,
        linkable: bool,
    ) -> Result<DentryRef> {
        // In a tree with a backing, a change has the lock of a name, also one that names nothing.
        let unique = Timestamp::now().0.to_le_bytes();
        let made = change(self.namespace(), |guard, locks| {
            let dentry = walk(self.namespace(), context, &at, path, flags, guard)?;
            let dir = dentry.to_ref().expect_dir()?;
            let sb = &dir.shard.sb;
            context.check(dir, Access::WRITE | Access::EXEC, guard)?;
            let permissions = new_permissions(context, dir, FileKind::File, mode, guard);
            if dir.is_backed() {
                let umasked = mode & !permissions.perm.mode & 0o777;
                locks.names(&[Lockable::name(dir, sb.hash(dir.ino, &unique))?])?;
                return remote::anonymous::prepare(dentry, permissions, umasked, linkable, guard).map(Commit::Remote);
            }
            let shard = sb.shard(guard)?;
            charge_for(&*sb.driver, Make::File, &permissions)?;
            // From here on, the drop of the inode, together with its dentry, refunds the charge.
            let inode = Inode::new(shard, FileKind::File, permissions, Make::File.body(sb), 0, Timestamp::now().0);
            if linkable {
                inode.links.allow_first_link();
            }
            Ok(Commit::Local(Counted::new(Dentry::new(inode))))
        })?;
        Ok(DentryRef(made.into_inner()))
    }
}

/// Makes an inode and a name for it in a directory. In memory this is done at once. For a backed
/// tree it yields the change to commit.
#[inline]
pub(crate) fn make_at<'m>(
    context: &Context,
    place: Parent<'_>,
    make: Make<'m>,
    mode: u32,
    guard: &Guard,
    locks: &mut Locks<'_>,
) -> Step<Commit<Counted<Dentry>, Box<Create<'m>>>> {
    if place.is_remote() {
        return remote::create::prepare(context, place, make, mode, guard, locks).map(Commit::Remote);
    }
    make_here(context, place, make, mode, guard, locks).map(Commit::Local)
}

/// Makes an inode and a name for it in memory. The caller holds no lock of the name yet.
fn make_here(
    context: &Context,
    place: Parent<'_>,
    make: Make<'_>,
    mode: u32,
    guard: &Guard,
    locks: &mut Locks<'_>,
) -> Step<Counted<Dentry>> {
    let (parent, name) = (place.dir.to_ref().expect_dir()?, place.name(Error::Exists)?);
    let (sb, hash) = (&parent.shard.sb, place.hash_of(name));
    // If another thread binds the name after this check, the insertion under the name's lock finds
    // it.
    expect_free(place, parent, (hash, name), guard)?;
    locks.names(&[Lockable::name(parent, hash)?])?;
    may_make(context, parent, make, guard)?;
    // All steps that can fail come before the inode exists, because only its dentry refunds the
    // charge. After a shutdown of the tree, no thread would release a parent reference: such a tree
    // refuses here.
    let shard = sb.shard(guard)?;
    let parent_ref = parent_ref_in(place.dir, guard)?;
    let permissions = new_permissions(context, parent, make.kind(), mode, guard);
    let now = Timestamp::now().0;
    // From here on only the name itself can be refused: it is bound by now, or its directory is
    // removed. The drop of the dentry refunds the inode's charge.
    charge_for(&*sb.driver, make, &permissions)?;
    // The directory entry and its dentry are read together, and mostly freed together: one
    // allocation. Both are constructed in place.
    let (dirent, at, dentry) = Detached::pair(
        || Dentry::new(Inode::new(shard, make.kind(), permissions, make.body(sb), 1, now)),
        |dentry| Dirent::new(parent_ref, name, OpCell::new_pending(dentry)),
    );
    dentry.place.fill(at);
    bind(parent, (hash, name), dirent, &dentry, now, guard)?;
    notify::made(place.dir, name, dentry.is_dir(), guard);
    Ok(dentry)
}

/// Checks that a name in memory is not bound.
#[inline]
fn expect_free(place: Parent<'_>, parent: &Inode, (hash, name): (u64, &[u8]), guard: &Guard) -> Result<()> {
    let exists = match place.seen {
        Some(seen) => seen.dentry.is_some(),
        None => parent.directory()?.lookup(hash, name, guard).is_some(),
    };
    if exists { Err(Error::Exists) } else { Ok(()) }
}

/// Makes a hard link to a file in memory.
fn link_here(
    context: &Context,
    old: &DentryRef,
    place: Parent<'_>,
    guard: &Guard,
    locks: &mut Locks<'_>,
) -> Step<Counted<Dentry>> {
    let (parent, name) = (place.dir.to_ref().expect_dir()?, place.name(Error::Exists)?);
    let hash = place.hash_of(name);
    expect_free(place, parent, (hash, name), guard)?;
    may_link_there(context, old.0.inode(), place)?;
    locks.names(&[Lockable::name(parent, hash)?])?;
    may_link(context, old.0.inode(), parent, guard)?;
    let made = bind_link(&old.0, place.dir, (hash, name), 0, guard)?;
    notify::linked(place.dir, name, old.0.inode(), guard);
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::{
        Credentials,
        driver::tests::Counting,
        operations::{attempt::run, namei::look_at},
    };

    /// A thread that loses the race for a name at the insertion, and makes no further call, has
    /// refunded its charges. They are not held by the detached entry, which waits for readers.
    #[test]
    fn create_that_loses_the_race_refunds_its_charges() {
        let charged = Arc::new(Counting::default());
        let vfs = Vfs::new(charged.clone()).expect("a tree");
        let context = Context::new(&vfs, Credentials::root());
        for (name, make) in [("f", Make::File), ("d", Make::Directory), ("s", Make::Symlink(b"target"))] {
            let result = run(vfs.namespace(), |guard, locks| {
                let mut place = walk_parent(vfs.namespace(), &context, &At::Cwd, name.as_bytes(), false, guard)?;
                let hash = place.hash_of(name.as_bytes());
                place.seen = Some(look_at(place.dir, (name.as_bytes(), hash), guard)?);
                vfs.mkdir(&context, At::Cwd, name, 0o755)?;
                let before = charged.0.load(SeqCst);
                let made = make_here(&context, place, make, 0o644, guard, locks).map(drop);
                assert_eq!(charged.0.load(SeqCst), before, "{name}");
                made
            });
            assert_eq!(result, Err(Error::Exists));
        }
    }

    /// The same for a hard link, which holds its inode.
    #[test]
    fn link_that_loses_the_race_is_freed() {
        let vfs = Vfs::new(Counting::default()).expect("a tree");
        let context = Context::new(&vfs, Credentials::root());
        let file = vfs.mknod(&context, At::Cwd, "f", 0o644, 0).expect("made");
        let (root, guard) = (vfs.root(), pando_sync::pin());
        let parent = root.0.inode();
        let link = Dentry::new_link(file.0.clone(), 0);
        let seen = link.share(&guard);
        let parent_ref =
            parent.directory().and_then(|dir| dir.parent_ref(root.0.as_shared(), &guard)).expect("a directory");
        let dirent = Detached::new(Dirent::new(parent_ref, b"f", OpCell::new_pending(link.clone())));
        link.place.fill(dirent.reference());
        let hash = parent.shard.sb.hash(parent.ino, b"f");
        assert_eq!(bind(parent, (hash, b"f"), dirent, &link, 0, &guard), Err(Error::Exists));
        drop(link);
        assert!(seen.get().is_none());
    }
}
