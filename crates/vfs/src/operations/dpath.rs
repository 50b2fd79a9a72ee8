//! d_path and getcwd.

use pando_sync::pin;

use crate::{
    Context, DentryRef, Error, Result, Vfs,
    objects::path::{DELETED, Rendered, render},
};

/// Linux puts this before a working directory that is not below the root.
const UNREACHABLE: &[u8] = b"(unreachable)";

impl Vfs {
    /// The path of a dentry, as seen from the context's root (analogous to `d_path()` in
    /// fs/d_path.c). A removed name is followed by " (deleted)". As in Linux, a dentry outside that
    /// root gets its path from the global root. The caller must not show it to users who may not
    /// know it.
    ///
    /// # Errors
    /// ENAMETOOLONG if the path is longer than `limit` bytes.
    pub fn d_path(&self, context: &Context, dentry: &DentryRef, limit: usize) -> Result<Vec<u8>> {
        let mut rendered = self.render(context, dentry, limit)?;
        if rendered.deleted {
            rendered.path.extend_from_slice(DELETED);
        }
        if rendered.path.len() > limit { Err(Error::NameTooLong) } else { Ok(rendered.path) }
    }

    /// The path of the working directory (getcwd). If that is not below the context's root, the
    /// result is "(unreachable)" and the path from the global root, as in Linux. The caller must
    /// not show it to users who may not know it.
    ///
    /// # Errors
    /// ENOENT if the directory was removed, ERANGE if the path is longer than `limit` bytes.
    pub fn getcwd(&self, context: &Context, limit: usize) -> Result<Vec<u8>> {
        let rendered = self.render(context, &context.cwd, limit).map_err(|_| Error::Range)?;
        if rendered.deleted {
            return Err(Error::NoEntry);
        }
        let prefix = if rendered.reachable { &b""[..] } else { UNREACHABLE };
        let path = [prefix, &rendered.path].concat();
        if path.len() > limit { Err(Error::Range) } else { Ok(path) }
    }

    pub(crate) fn render(&self, context: &Context, dentry: &DentryRef, limit: usize) -> Result<Rendered> {
        self.namespace().rename_seq.read(|_| {
            let guard = pin();
            render(dentry.0.as_shared(), Some(context.root_dentry()), limit, &guard)
        })
    }
}
