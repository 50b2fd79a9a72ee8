//! From a path to a counted dentry: look-ups by callers, chdir, chroot.

use pando_sync::pin;

use crate::{
    At, Context, DentryRef, Error, Result, Vfs,
    operations::{attempt::run_lockless, namei::walk, step::Stop},
    trace::TraceOp,
    types::{Access, Walk},
};

impl Vfs {
    /// Walks a path to its dentry (analogous to `filename_lookup()` in fs/namei.c). The returned
    /// reference keeps the dentry, and costs one count on that file.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG; EINVAL for a NUL inside the path.
    pub fn lookup(&self, context: &Context, at: At<'_>, path: impl AsRef<[u8]>, flags: Walk) -> Result<DentryRef> {
        let path = path.as_ref();
        self.traced(TraceOp::Lookup, (context, at, path), || self.lookup_at(context, at, path, flags))
    }

    pub(crate) fn lookup_at(&self, context: &Context, at: At<'_>, path: &[u8], flags: Walk) -> Result<DentryRef> {
        run_lockless(self.namespace(), |guard| {
            // The dentry died between the walk and here. Another walk finds the current one.
            walk(self.namespace(), context, &at, path, flags, guard)?.get().map(DentryRef).ok_or(Stop::Again)
        })
    }

    /// Changes the working directory of a context.
    ///
    /// # Errors
    /// ENOTDIR, EACCES without search permission, and those of the walk.
    pub fn chdir(&self, context: &mut Context, at: At<'_>, path: impl AsRef<[u8]>) -> Result<()> {
        context.set_cwd(self.enterable(context, at, path.as_ref())?);
        Ok(())
    }

    /// Changes the root directory of a context. The working directory stays the same, inside the
    /// new root or not, so change it as well.
    ///
    /// # Errors
    /// EPERM without the capability, ENOTDIR, and those of the walk.
    pub fn chroot(&self, context: &mut Context, at: At<'_>, path: impl AsRef<[u8]>) -> Result<()> {
        let root = self.enterable(context, at, path.as_ref())?;
        if !context.cred.capable {
            return Err(Error::NotPermitted);
        }
        context.set_root(root);
        Ok(())
    }

    fn enterable(&self, context: &Context, at: At<'_>, path: &[u8]) -> Result<DentryRef> {
        let dentry = self.lookup_at(context, at, path, Walk::empty())?;
        let inode = dentry.0.expect_dir()?;
        context.check(inode, Access::EXEC, &pin())?;
        Ok(dentry)
    }
}
