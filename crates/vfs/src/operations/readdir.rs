//! readdir: the names of a directory, each exactly once (P10).
//!
//! Difficulties, and what answers each:
//! 1. *The directory changes during the scan.* The order of the table never changes, and the
//!    position of an entry is fixed for its life. That position is the cookie. A name that is bound
//!    from start to end is returned exactly once.
//! 2. *The callback may wait*: it copies to a user, or sends a reply. No thread may wait under a
//!    reclamation guard. So entries are gathered in batches ([`Batch`]), into one arena of bytes,
//!    and returned with no guard held.
//! 3. *The caller stops anywhere*, when its buffer is full. An entry that it refuses is not
//!    consumed: the cookie of the entry before leads back to it.
//! 4. *The entry of a cookie may be gone.* A position needs no entry: the scan continues after it.

use std::sync::atomic::Ordering;

use pando_records::Mask;
use pando_sync::{Guard, LifeState, pin};

use crate::{
    Context, DentryRef, DirEntry, Error, File, Result, Stat,
    objects::{
        directory::Directory,
        inode::Inode,
        notify,
        stat::{note_access, stat_of},
    },
    operations::{
        batch::{AFTER_DOT, AFTER_DOTDOT, BATCH, Batch},
        namei::{cross, dotdot},
        remote,
    },
    trace::TraceOp,
    types::{Access, OpenFlags},
};

/// The fewest entries to gather for a caller that has room left.
const FEW: usize = 8;

/// The callback of a scan. It gets each entry, and its attributes and a reference if they were
/// requested. False stops the scan.
type Each<'a> = dyn FnMut(DirEntry<'_>, Option<(&Stat, &DentryRef)>) -> bool + 'a;

impl File {
    /// Calls `each` for the entries after `cookie` until it returns false. With cookie 0 it starts
    /// with `.` and `..`.
    ///
    /// The entry that `each` refuses is not consumed. No lock and no guard is held during the call,
    /// so `each` may wait and may change the directory.
    ///
    /// # Errors
    /// EBADF if not open for reading, ENOTDIR, ENOENT if the directory was removed, EINVAL for a
    /// cookie beyond 2^63 - 1.
    pub fn readdir(&self, cookie: u64, mut each: impl FnMut(DirEntry<'_>) -> bool) -> Result<()> {
        self.traced(TraceOp::Readdir, || self.scan(cookie, None, &mut |entry, _| each(entry)))?;
        notify::accessed(self.dentry().0.as_shared());
        Ok(())
    }

    /// Like [`File::readdir`], with the attributes of each entry and a reference to it. There are
    /// none for `.`, `..`, and entries that disappeared meanwhile, and none at all if `context` may
    /// not search the directory. The attributes are of one instant to the extent that [`Stat`]
    /// documents.
    ///
    /// # Errors
    /// As [`File::readdir`].
    pub fn readdir_plus(
        &self,
        context: &Context,
        cookie: u64,
        mut each: impl FnMut(DirEntry<'_>, Option<(&Stat, &DentryRef)>) -> bool,
    ) -> Result<()> {
        self.traced(TraceOp::Readdir, || self.scan(cookie, Some(context), &mut each))?;
        notify::accessed(self.dentry().0.as_shared());
        Ok(())
    }

    fn scan(&self, mut cookie: u64, plus: Option<&Context>, each: &mut Each<'_>) -> Result<()> {
        self.expect_listable(cookie)?;
        let mut batch = Batch::default();
        // Entries that the caller has no room for are gathered again at its next call. It probably
        // takes as many as last time, and refuses one.
        let last = usize::from(self.taken.load(Ordering::Relaxed));
        let limit_after = |taken: usize, limit: usize| match last {
            0 => BATCH,
            _ if taken <= last => BATCH.min(last + 1 - taken),
            // It takes more: a few, or all.
            _ if taken == last + 1 => FEW.max(last / 8),
            _ => BATCH.min(2 * limit),
        };
        let (mut taken, mut limit) = (0, limit_after(0, 0));
        loop {
            batch.names.clear();
            batch.entries.clear();
            self.gather(cookie, plus, limit, &mut batch)?;
            let refused = batch.iter().position(|(name, entry)| {
                let shown = DirEntry { name, ino: entry.ino, kind: entry.kind, cookie: entry.cookie };
                !each(shown, entry.plus.as_ref().map(|(stat, dentry)| (stat, dentry)))
            });
            if let Some(index) = refused {
                taken += index;
                if taken != last {
                    self.taken.store(u16::try_from(taken).unwrap_or(0), Ordering::Relaxed);
                }
                return Ok(());
            }
            match batch.entries.last() {
                Some(entry) if batch.entries.len() >= limit => cookie = entry.cookie,
                _ => return Ok(()),
            }
            taken += batch.entries.len();
            limit = limit_after(taken, limit);
        }
    }

    /// Checks that the file is open for listing, and that the cookie is one.
    pub(crate) fn expect_listable(&self, cookie: u64) -> Result<()> {
        if self.flags().contains(OpenFlags::PATH) {
            return Err(Error::BadHandle);
        }
        if i64::try_from(cookie).is_err() { Err(Error::Invalid) } else { Ok(()) }
    }

    /// The directory that is open, for a listing after `cookie`. A listing from the start is an
    /// access.
    pub(crate) fn listed(&self, cookie: u64, guard: &Guard) -> Result<(&Inode, &Directory)> {
        let inode = self.dentry().0.expect_dir()?;
        let directory = inode.directory()?;
        if matches!(directory.life.state(guard), LifeState::Removed) {
            return Err(Error::NoEntry);
        }
        if cookie < AFTER_DOT && !self.no_atime() {
            note_access(inode, directory.latest_stamp(), guard);
        }
        Ok((inode, directory))
    }

    /// Gathers the next entries after a cookie, up to a limit, under one guard.
    fn gather(&self, cookie: u64, plus: Option<&Context>, limit: usize, batch: &mut Batch) -> Result<()> {
        let guard = pin();
        let this = self.dentry().0.as_shared();
        let (inode, directory) = self.listed(cookie, &guard)?;
        let plus = plus.is_some_and(|context| context.check(inode, Access::EXEC, &guard).is_ok());
        if cookie < AFTER_DOT {
            batch.push(b".", inode, AFTER_DOT, None);
        }
        if cookie < AFTER_DOTDOT {
            batch.push(b"..", dotdot(this, None, &guard).to_ref().inode(), AFTER_DOTDOT, None);
        }
        if directory.backed.is_some() {
            drop(guard);
            let plus = plus.then_some(Mask::STAT);
            return remote::readdir::gather(self, cookie.max(AFTER_DOTDOT), plus, limit, batch);
        }
        for dirent in directory.dirents_after(cookie.max(AFTER_DOTDOT), &guard) {
            if batch.entries.len() >= limit {
                break;
            }
            let dirent = dirent.to_ref();
            let Some(dentry) = dirent.value.load(&guard) else { continue };
            let child = dentry.to_ref().inode();
            // The attributes are those that a look-up would find. Name and inode number are those
            // of the directory that is mounted on, as getdents returns them.
            let found = plus.then(|| cross(dentry, &guard));
            let plus = found
                .and_then(|found| found.get())
                .map(DentryRef)
                .map(|found| (stat_of(found.0.inode(), &guard), found));
            batch.push(dirent.name.as_bytes(), child, dirent.position(), plus);
        }
        Ok(())
    }
}
