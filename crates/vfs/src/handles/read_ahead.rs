//! The handle of a read-ahead.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{Arc, atomic::Ordering},
};

use crate::{Result, caches::read_ahead::Job};

/// A read-ahead in progress ([`File::readahead`](crate::File::readahead)).
///
/// The handle holds the directory. Dropping it does not end the read-ahead, which ends with the
/// directory, with [`ReadAhead::cancel`], or when the tree is unmounted.
#[must_use = "the handle can wait for the read-ahead and cancel it"]
pub struct ReadAhead(pub(crate) Option<Arc<Job>>);

/// How far a read-ahead has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReadAheadProgress {
    /// Entries of the directory that were listed.
    pub listed: u64,
    /// Of these, entries that are done: the read-ahead has nothing more to do for them.
    pub done: u64,
    /// Of these, entries that the driver was asked for, by name or for extended attributes. The
    /// others were cached, or a walk was loading them.
    pub requested: u64,
    /// Whether it has ended.
    pub has_ended: bool,
}

impl std::fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReadAhead").field(&self.progress()).finish()
    }
}

impl ReadAhead {
    /// How far it has come.
    #[must_use]
    pub fn progress(&self) -> ReadAheadProgress {
        let Some(job) = &self.0 else { return ReadAheadProgress { has_ended: true, ..ReadAheadProgress::default() } };
        // First: if it has ended, the counts are the last ones.
        let has_ended = job.threads.inside() == 0;
        // In this order, so that no count is above the one that contains it.
        let requested = job.requested.load(Ordering::Acquire);
        let done = job.done.load(Ordering::Acquire);
        ReadAheadProgress { listed: job.listed.load(Ordering::Acquire), done, requested, has_ended }
    }

    /// Waits until it has ended: all entries are done, or it was cancelled.
    ///
    /// # Errors
    /// The error that has ended it: that of a listing, of a look-up that failed as a whole, or
    /// ESTALE if the tree was unmounted.
    pub fn wait(&self) -> Result<ReadAheadProgress> {
        if let Some(job) = &self.0 {
            job.threads.wait();
            if let Some(error) = job.error() {
                return Err(error);
            }
        }
        Ok(self.progress())
    }

    /// Makes no more calls. Calls in flight end by themselves; [`ReadAhead::wait`] waits for them.
    pub fn cancel(&self) {
        if let Some(job) = &self.0 {
            job.cancel();
        }
    }

    /// A descriptor that poll(2) reports as readable (at its end) when the read-ahead has ended. It
    /// is a new one at each call.
    ///
    /// # Errors
    /// EMFILE and ENFILE.
    pub fn ended_fd(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        if let Some(job) = &self.0 {
            job.threads.keep(theirs);
        }
        Ok(ours.into())
    }
}
