//! Which request each thread serves, so that another thread can answer it early.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use pando_vfs::Error;
use tracing::debug;

use crate::{
    channel::{HEADER_BYTES, send},
    transport::kills::{Query, Serving},
    wire::Request,
};

/// A thread that reads requests from a channel and serves them.
pub(super) struct Reading {
    channel: Arc<OwnedFd>,
    /// The request that it serves, if that changes nothing. A leaf.
    served: Mutex<Option<Served>>,
    /// How many threads serve a request whose caller was killed. Atomic: a hint.
    abandoned: Arc<AtomicUsize>,
}

#[derive(Clone, Copy)]
struct Served {
    query: Query,
    /// Its caller was killed.
    is_abandoned: bool,
}

/// A request is being served, until this is dropped.
pub(super) struct Begun<'a>(&'a Reading);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if self.0.served().take().is_some_and(|served| served.is_abandoned) {
            self.0.abandoned.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Reading {
    pub(super) fn new(channel: &Arc<OwnedFd>, abandoned: &Arc<AtomicUsize>) -> Arc<Self> {
        let (channel, abandoned) = (Arc::clone(channel), Arc::clone(abandoned));
        Arc::new(Self { channel, served: Mutex::new(None), abandoned })
    }

    fn served(&self) -> MutexGuard<'_, Option<Served>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread begins to serve a request.
    pub(super) fn begin(&self, request: Request<'_>) -> Begun<'_> {
        if let Some(query) = Query::of(request) {
            *self.served() = Some(Served { query, is_abandoned: false });
        }
        Begun(self)
    }
}

impl Serving for Reading {
    fn query(&self) -> Option<Query> {
        self.served().filter(|served| !served.is_abandoned).map(|served| served.query)
    }

    fn interrupt(self: Arc<Self>, query: Query) -> bool {
        let mut served = self.served();
        match &mut *served {
            Some(served) if served.query == query => served.is_abandoned = true,
            _ => return false,
        }
        self.abandoned.fetch_add(1, Ordering::Relaxed);
        drop(served);
        debug!(?query, "the caller was killed; its request is answered with EINTR");
        let mut reply = [0; HEADER_BYTES];
        // If the thread has just answered it, the kernel refuses this reply.
        send(self.channel.as_fd(), &mut reply, query.unique, Err(Error::Interrupted));
        true
    }
}
