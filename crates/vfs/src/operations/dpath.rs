//! d_path and getcwd.

use pando_sync::pin;

use crate::{
    Context, DentryRef, Error, Result, Vfs,
    objects::path::{DELETED, Rendered, render},
};

/// What Linux puts before a working directory that is not below the root.
const UNREACHABLE: &[u8] = b"(unreachable)";

impl Vfs {
    /// The path of a dentry, as seen from the context's root (d_path). A name that is gone is followed by " (deleted)". What is
    /// not in that root has its path from the root of all, as in Linux: tell it to nobody who may not know.
    ///
    /// # Errors
    /// ENAMETOOLONG when it is longer than `limit` bytes.
    pub fn d_path(&self, context: &Context, dentry: &DentryRef, limit: usize) -> Result<Vec<u8>> {
        let mut rendered = self.render(context, dentry, limit)?;
        if rendered.deleted {
            rendered.path.extend_from_slice(DELETED);
        }
        if rendered.path.len() > limit { Err(Error::NameTooLong) } else { Ok(rendered.path) }
    }

    /// The path of the working directory (getcwd). When that is not below the context's root, it is the one from the root of
    /// all, after "(unreachable)", as in Linux: tell it to nobody who may not know.
    ///
    /// # Errors
    /// ENOENT when it was removed, ERANGE when the path is longer than `limit` bytes.
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
        self.name_space().rename_seq.read(|_| {
            let guard = pin();
            render(dentry.0.as_shared(), Some(context.root_dentry()), limit, &guard)
        })
    }
}
