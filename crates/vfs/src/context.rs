//! The caller's context: who asks, and from where in the tree.

use pando_sync::Shared;

use crate::{
    Credentials, DentryRef, Vfs,
    dentry::Dentry,
    inode::{Inode, PermView},
    types::Access,
};

/// Who calls, and from where: credentials, umask, root and working directory. One per task.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) cred: Credentials,
    pub(crate) umask: u32,
    pub(crate) root: DentryRef,
    pub(crate) cwd: DentryRef,
    pub(crate) checked_by_caller: bool,
}

impl Context {
    /// A context at the root of `vfs`, with umask 022.
    #[must_use]
    pub fn new(vfs: &Vfs, cred: Credentials) -> Self {
        Self { cred, umask: 0o022, root: vfs.root(), cwd: vfs.root(), checked_by_caller: false }
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
        self
    }

    /// Whether the permission bits were checked before the call, by a kernel that mounts this tree with
    /// `default_permissions`. Credentials then only say who owns what is made.
    #[must_use]
    pub fn checked_by_caller(mut self, checked: bool) -> Self {
        self.checked_by_caller = checked;
        self
    }

    /// The credentials.
    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.cred
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
    pub(crate) fn check(&self, inode: &Inode, perm: &PermView, want: Access) -> crate::Result<()> {
        if self.checked_by_caller { Ok(()) } else { self.cred.check(perm, inode.is_dir(), want) }
    }

    /// Whether the owner's rights are had.
    pub(crate) fn owns(&self, perm: &PermView) -> bool {
        self.checked_by_caller || self.cred.owns(perm)
    }

    /// Whether the capabilities of root are had.
    pub(crate) fn capable(&self) -> bool {
        self.checked_by_caller || self.cred.capable
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
