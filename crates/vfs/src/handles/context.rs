//! The context of a call: the caller's credentials, root and working directory.

use std::sync::atomic::{AtomicU64, Ordering};

use pando_sync::{Guard, Shared, pin};

use crate::{
    Credentials, DentryRef, Error, FileKind, InodeFlags, Result, Vfs,
    objects::{dentry::Dentry, inode::Inode},
    types::{
        Access, Resolve,
        cred::{PermView, PermissionsRef, Writer},
    },
};

/// The credentials, umask, root and working directory of a caller, and restrictions on its paths
/// and calls. Use one per task. Analogous to `struct cred` and `struct fs_struct` together.
///
/// A context is also a sandbox if it has a root of its own ([`Context::rooted`]), rules for its
/// paths ([`Context::with_resolve`]), or may change nothing ([`Context::read_only`]). These apply
/// to every call that is given the context.
///
/// ```
/// use pando_memfs::{MemFs, MemOptions};
/// use pando_vfs::{At, Context, Credentials, Error, OpenFlags, Vfs, Walk};
///
/// let vfs = Vfs::new(MemFs::new(MemOptions::default()))?;
/// let host = Context::new(&vfs, Credentials::root());
/// let jail = vfs.mkdir(&host, At::Cwd, "/jail", 0o755)?;
/// let guest = Context::rooted(&jail, Credentials::user(1000, 1000, &[]))?.read_only(true);
/// assert_eq!(vfs.stat(&guest, At::Cwd, "../../..", Walk::empty())?.ino, jail.ino());
/// let refused = vfs.open(&guest, At::Cwd, "/new", OpenFlags::CREAT, 0o644).err();
/// assert_eq!(refused, Some(Error::ReadOnly));
/// # Ok::<(), pando_vfs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) cred: Credentials,
    pub(crate) umask: u32,
    pub(crate) root: DentryRef,
    pub(crate) cwd: DentryRef,
    pub(crate) checked_by_caller: bool,
    pub(crate) resolve: Resolve,
    pub(crate) read_only: bool,
    /// Identifies everything that decides where the context's paths lead and whether they are
    /// permitted. A context with another root, working directory, rules or credentials has another
    /// identity.
    identity: Identity,
}

/// A number that a context shares only with its copies: the key of the path-prefix cache. The
/// number is allocated when it is asked for the [`Identity::WALKS`]th time, because caching does
/// not pay off for a context with fewer walks. Atomic: a single independent value.
#[derive(Debug, Default)]
struct Identity(AtomicU64);

impl Clone for Identity {
    fn clone(&self) -> Self {
        // Relaxed: a number without order. It is valid for the copy, too, which has the same
        // fields.
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

impl Identity {
    /// Below this value, the number counts approximately how often it was asked for.
    const WALKS: u64 = 4;

    #[inline]
    fn get(&self) -> Option<u64> {
        match self.0.load(Ordering::Relaxed) {
            asked @ 0..Self::WALKS => self.draw(asked),
            drawn => Some(drawn),
        }
    }

    #[cold]
    fn draw(&self, asked: u64) -> Option<u64> {
        static LAST: AtomicU64 = AtomicU64::new(Identity::WALKS);
        if asked + 1 < Self::WALKS {
            // If another thread has stored a value meanwhile, that one is in force.
            let _ = self.0.compare_exchange(asked, asked + 1, Ordering::Relaxed, Ordering::Relaxed);
            return None;
        }
        let new = LAST.fetch_add(1, Ordering::Relaxed);
        Some(
            self.0
                .compare_exchange(asked, new, Ordering::Relaxed, Ordering::Relaxed)
                .map_or_else(|other| other, |_| new),
        )
    }
}

impl Context {
    /// A context at the root of `vfs`, with umask 022.
    #[must_use]
    pub fn new(vfs: &Vfs, cred: Credentials) -> Self {
        Self::at(vfs.root(), cred)
    }

    /// A context whose root and working directory are `dir`, with umask 022. No path of the context
    /// leads out of `dir`, even if directories are moved meanwhile.
    ///
    /// # Errors
    /// ENOTDIR.
    pub fn rooted(dir: &DentryRef, cred: Credentials) -> Result<Self> {
        dir.0.expect_dir()?;
        Ok(Self::at(dir.clone(), cred))
    }

    fn at(root: DentryRef, cred: Credentials) -> Self {
        let cwd = root.clone();
        let resolve = Resolve::empty();
        let identity = Identity::default();
        Self { cred, umask: 0o022, root, cwd, checked_by_caller: false, resolve, read_only: false, identity }
    }

    /// The identity. Two contexts with the same identity resolve each path alike. None during the
    /// first few walks.
    #[inline]
    pub(crate) fn identity(&self) -> Option<u64> {
        self.identity.get()
    }

    pub(crate) fn set_cwd(&mut self, cwd: DentryRef) {
        self.cwd = cwd;
        self.identity = Identity::default();
    }

    pub(crate) fn set_root(&mut self, root: DentryRef) {
        self.root = root;
        self.identity = Identity::default();
    }

    /// Replaces the rules for the paths of this context. To keep the present rules, call
    /// `with_resolve(context.resolve() | more)`.
    #[must_use]
    pub fn with_resolve(mut self, resolve: Resolve) -> Self {
        self.resolve = resolve;
        self.identity = Identity::default();
        self
    }

    /// Whether the context is read-only, like a read-only mount. Calls that would change a file, a
    /// directory or a mount fail with EROFS, for root too. Reads do not update atime. A file that
    /// was opened before, or that is passed in already open, keeps its access mode.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Replaces the umask.
    #[must_use]
    pub fn with_umask(mut self, umask: u32) -> Self {
        self.umask = umask & 0o777;
        self
    }

    /// Replaces the credentials.
    #[must_use]
    pub fn with_credentials(mut self, cred: Credentials) -> Self {
        self.cred = cred;
        self.identity = Identity::default();
        self
    }

    /// Whether a kernel that mounts this tree with `default_permissions` checks the permission bits
    /// and ACLs before each call. If so, the credentials only decide who owns new files.
    #[must_use]
    pub fn checked_by_caller(mut self, checked: bool) -> Self {
        self.checked_by_caller = checked;
        self.identity = Identity::default();
        self
    }

    /// The credentials.
    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.cred
    }

    /// The rules for the context's paths.
    #[must_use]
    pub fn resolve(&self) -> Resolve {
        self.resolve
    }

    /// The working directory.
    #[must_use]
    pub fn cwd(&self) -> &DentryRef {
        &self.cwd
    }

    /// The root directory. No path leads out of it, even while directories are moved: in a
    /// directory that was moved out of the root, `..` is ENOENT. A directory that is given as a
    /// handle ([`At::Dir`], the working directory) may lie outside. Paths that start there reach
    /// everything below it.
    #[must_use]
    pub fn root(&self) -> &DentryRef {
        &self.root
    }

    /// Checks whether `want` is permitted on an inode.
    #[inline]
    pub(crate) fn check(&self, inode: &Inode, want: Access, guard: &Guard) -> Result<()> {
        if want.contains(Access::WRITE)
            && matches!(inode.kind, FileKind::File | FileKind::Directory | FileKind::Symlink)
        {
            self.writable()?;
        }
        let permissions = inode.permissions(guard);
        if want.contains(Access::WRITE) {
            // Also if a kernel checks permissions: FUSE does not tell it the flags.
            permissions.expect_without(InodeFlags::IMMUTABLE)?;
        }
        if self.checked_by_caller {
            return Ok(());
        }
        let PermissionsRef { perm, acls, .. } = permissions;
        match acls.and_then(|acls| acls.access.as_ref()) {
            None => self.cred.check(perm, inode.is_dir(), want),
            Some(acl) => self.cred.check_acl(perm, acl, inode.is_dir(), want),
        }
    }

    /// Succeeds unless the context is read-only (EROFS).
    pub(crate) fn writable(&self) -> Result<()> {
        if self.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Whether the caller has the rights of the owner. Analogous to `inode_owner_or_capable()`.
    pub(crate) fn owns(&self, perm: &PermView) -> bool {
        self.checked_by_caller || self.cred.owns(perm)
    }

    /// Whether the caller has the capabilities of root.
    pub(crate) fn capable(&self) -> bool {
        self.checked_by_caller || self.cred.capable
    }

    /// The caller as a [`Writer`] of a file. The group of the file is read only for a caller with
    /// supplementary groups.
    #[inline]
    pub(crate) fn writer(&self, inode: &Inode) -> Writer {
        let (capable, cred) = (self.capable(), &self.cred);
        if capable || cred.groups.is_empty() {
            return Writer::alone(capable, cred);
        }
        self.writer_with_groups(inode)
    }

    #[inline(never)]
    fn writer_with_groups(&self, inode: &Inode) -> Writer {
        Writer::new(false, &self.cred, &inode.perm(&pin()))
    }

    pub(crate) fn root_dentry(&self) -> Shared<'_, Dentry> {
        self.root.0.as_shared()
    }
}

/// The directory at which a relative path starts.
#[derive(Debug, Clone, Copy)]
pub enum At<'a> {
    /// The working directory (`AT_FDCWD`).
    Cwd,
    /// This directory. With an empty path and [`crate::Walk::EMPTY_PATH`], this very dentry.
    Dir(&'a DentryRef),
}

impl At<'_> {
    pub(crate) fn dentry<'c>(&'c self, context: &'c Context) -> Shared<'c, Dentry> {
        match self {
            At::Cwd => context.cwd.0.as_shared(),
            At::Dir(dir) => dir.0.as_shared(),
        }
    }
}
