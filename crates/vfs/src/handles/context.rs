//! The caller's context: who asks, and from where in the tree.

use std::sync::atomic::{AtomicU64, Ordering};

use pando_sync::{Shared, pin};

use crate::{
    Credentials, DentryRef, Error, FileKind, Result, Vfs,
    objects::{dentry::Dentry, inode::Inode},
    types::{
        Access, Resolve,
        cred::{PermView, Writer},
    },
};

/// Who calls, and from where: credentials, umask, root and working directory, and what paths and calls may not do. One per
/// task.
///
/// A context is also a sandbox, if it is given a root of its own ([`Context::rooted`]), rules for its paths
/// ([`Context::with_resolve`]), or may change nothing ([`Context::read_only`]). These hold in every call that is given it.
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
/// assert_eq!(vfs.open(&guest, At::Cwd, "/new", OpenFlags::CREAT, 0o644).err(), Some(Error::ReadOnly));
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
    /// Another for each that its paths may lead elsewhere by, or be refused.
    identity: Identity,
}

/// A number that no other context has but copies of this one. Drawn when it has been asked for [`Identity::WALKS`] times: for a
/// context of a few walks, nothing is worth remembering.
#[derive(Debug, Default)]
struct Identity(AtomicU64);

impl Clone for Identity {
    fn clone(&self) -> Self {
        // Relaxed: a number, which stands for what the copy has, too.
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

impl Identity {
    /// Up to here, it is how often it has been asked for, about.
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
            // If another thread has drawn meanwhile, that stands.
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

    /// A context whose root and working directory are `dir`, with umask 022: no path of it leads out of there, whatever is
    /// moved meanwhile.
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

    /// What paths lead to, for this context, is what they lead to for every other of the same number. None as long as hardly
    /// anything was asked for.
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

    /// With these rules for its paths, instead of those that it had. (`with_resolve(context.resolve() | more)` keeps them.)
    #[must_use]
    pub fn with_resolve(mut self, resolve: Resolve) -> Self {
        self.resolve = resolve;
        self.identity = Identity::default();
        self
    }

    /// Whether it may change nothing, as on a mount that is read-only: what would change a file or a directory, or what is
    /// mounted, is EROFS, for root too, and reading leaves no time of access. Files that were opened before, or are handed
    /// over open, stay as they are.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// With another umask.
    #[must_use]
    pub fn with_umask(mut self, umask: u32) -> Self {
        self.umask = umask & 0o777;
        self
    }

    /// With other credentials.
    #[must_use]
    pub fn with_credentials(mut self, cred: Credentials) -> Self {
        self.cred = cred;
        self.identity = Identity::default();
        self
    }

    /// Whether the permission bits were checked before the call, by a kernel that mounts this tree with
    /// `default_permissions`. Credentials then only say who owns what is made.
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

    /// The rules for its paths.
    #[must_use]
    pub fn resolve(&self) -> Resolve {
        self.resolve
    }

    /// The working directory.
    #[must_use]
    pub fn cwd(&self) -> &DentryRef {
        &self.cwd
    }

    /// The root directory. No path leads out of it, also while directories are moved: in one that was moved out of it, `..`
    /// is ENOENT. A directory that is named otherwise ([`At::Dir`], the working directory) may be outside, and what is below
    /// it is had then.
    #[must_use]
    pub fn root(&self) -> &DentryRef {
        &self.root
    }

    /// Checks `want` on an inode.
    pub(crate) fn check(&self, inode: &Inode, perm: &PermView, want: Access) -> Result<()> {
        if want.contains(Access::WRITE)
            && matches!(inode.kind, FileKind::File | FileKind::Directory | FileKind::Symlink)
        {
            self.writable()?;
        }
        if self.checked_by_caller { Ok(()) } else { self.cred.check(perm, inode.is_dir(), want) }
    }

    /// Whether anything may be changed at all.
    pub(crate) fn writable(&self) -> Result<()> {
        if self.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Whether the owner's rights are had.
    pub(crate) fn owns(&self, perm: &PermView) -> bool {
        self.checked_by_caller || self.cred.owns(perm)
    }

    /// Whether the capabilities of root are had.
    pub(crate) fn capable(&self) -> bool {
        self.checked_by_caller || self.cred.capable
    }

    /// This caller as one that changes the contents of a file. The group of the file is looked at only
    /// for a caller with supplementary groups.
    #[inline]
    pub(crate) fn writer(&self, inode: &Inode) -> Writer {
        let (capable, cred) = (self.capable(), &self.cred);
        if capable || cred.groups.is_empty() {
            return Writer::alone(capable, cred);
        }
        Writer::new(false, cred, &inode.perm(&pin()))
    }

    pub(crate) fn root_dentry(&self) -> Shared<'_, Dentry> {
        self.root.0.as_shared()
    }
}

/// Where a relative path starts.
#[derive(Debug, Clone, Copy)]
pub enum At<'a> {
    /// At the working directory (`AT_FDCWD`).
    Cwd,
    /// At this directory; with an empty path and [`crate::Walk::EMPTY_PATH`], at this very dentry.
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
