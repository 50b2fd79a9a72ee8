//! Entries that another thread may take over while a thread serves the request in them.
//!
//! A thread that serves a request may wait for ever for its source. If the caller is killed
//! meanwhile, the request is answered with EINTR. The reply goes through the entry that the request
//! came in. So a new thread takes the entry, puts the error into it, and serves the next requests
//! in it. The first thread ends when its source has answered. To allow this, a thread leaves the
//! entry alone while it serves a request: it reads a copy of the request, and writes the reply to
//! memory of its own.

use std::{
    io, mem,
    sync::{
        Arc, Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use pando_vfs::Error;
use tracing::{debug, warn};

use super::{
    answer::{SMALL_BYTES, outcome_of},
    sys::{Answered, Entry},
};
use crate::{
    channel::{MAX_BESIDES_BYTES, MAX_DATA_BYTES},
    dispatch::Dispatch,
    transport::{
        Started,
        kills::{ABANDONED_MOST, Kills, Query, Serving},
    },
    wire::Request,
};

/// The threads that have taken entries over, and what they share with the others.
pub(super) struct Successors {
    pub(super) kills: Arc<Kills<Lender>>,
    threads: Started,
    /// How many threads serve a request whose caller was killed. Atomic: a hint.
    abandoned: AtomicUsize,
}

/// Says once that no thread can take an entry over.
pub(super) fn successor_is_missing(error: &io::Error) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| warn!(%error, "a killed program waits until its request is answered"));
}

impl Successors {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { kills: Kills::new(), threads: Started::new(), abandoned: AtomicUsize::new(0) })
    }

    /// Starts a thread that is to take an entry over.
    fn start(&self, run: impl FnOnce() -> io::Result<()> + Send + 'static) {
        match thread::Builder::new().name("pando-ring-next".into()).spawn(run) {
            Ok(thread) => self.threads.add(thread),
            Err(error) => successor_is_missing(&error),
        }
    }

    /// The connection has ended: waits for all threads, and starts no other.
    ///
    /// # Errors
    /// The first one of a thread; or a thread panicked.
    pub(super) fn join(&self) -> io::Result<()> {
        self.kills.end();
        self.threads.join()
    }
}

/// A thread that serves requests, and lends the entry of a request meanwhile.
pub(super) struct Lender {
    /// A leaf.
    lent: Mutex<Lent>,
    successors: Arc<Successors>,
    succeed: Box<Succeed>,
}

/// Serves the requests of an entry until the connection ends. The entry comes from the function
/// that this is given, unless it is too late to take it over.
type Succeed = dyn Fn(&dyn Fn() -> Option<Entry>) -> io::Result<()> + Send + Sync;

enum Lent {
    /// The thread serves no request that may be answered early.
    Nothing,
    /// It serves the request in this entry.
    Entry(Query, Entry),
    /// Another thread has the entry.
    Taken,
}

impl Lender {
    pub(super) fn new(
        successors: &Arc<Successors>,
        succeed: impl Fn(&dyn Fn() -> Option<Entry>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let successors = Arc::clone(successors);
        let lender = Arc::new(Self { lent: Mutex::new(Lent::Nothing), successors, succeed: Box::new(succeed) });
        lender.successors.kills.add_thread(&lender);
        lender
    }

    fn lent(&self) -> MutexGuard<'_, Lent> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lend(&self, query: Query, entry: Entry) {
        *self.lent() = Lent::Entry(query, entry);
    }

    /// The entry, unless another thread has taken it.
    fn take_back(&self) -> Option<Entry> {
        match mem::replace(&mut *self.lent(), Lent::Nothing) {
            Lent::Entry(_, entry) => Some(entry),
            Lent::Nothing | Lent::Taken => {
                self.successors.abandoned.fetch_sub(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Takes the entry of a request over, with EINTR as the reply in it. None if the thread does
    /// not serve that request any more.
    fn take_over(&self, query: Query) -> Option<Entry> {
        let mut lent = self.lent();
        let mut entry = match mem::replace(&mut *lent, Lent::Taken) {
            Lent::Entry(served, entry) if served == query => entry,
            other => {
                *lent = other;
                return None;
            }
        };
        self.successors.abandoned.fetch_add(1, Ordering::Relaxed);
        debug!(?query, "the caller was killed; its request is answered with EINTR");
        entry.parts().0.put(query.unique, Err(Error::Interrupted));
        Some(entry)
    }
}

impl Serving for Lender {
    fn query(&self) -> Option<Query> {
        match &*self.lent() {
            Lent::Entry(query, _) => Some(*query),
            Lent::Nothing | Lent::Taken => None,
        }
    }

    fn interrupt(self: Arc<Self>, query: Query) -> bool {
        if self.successors.abandoned.load(Ordering::Relaxed) < ABANDONED_MOST {
            let lender = Arc::clone(&self);
            self.successors.start(move || (lender.succeed)(&|| lender.take_over(query)));
        }
        // The new thread may fail to get a ring. If it has taken the entry, the next look does not
        // find the request.
        false
    }
}

/// Serves requests that may be answered early.
pub(super) struct Lending {
    lender: Arc<Lender>,
    /// A copy of the request.
    request: Vec<u8>,
    /// Room for the body of the reply.
    reply: Vec<u8>,
}

impl Lending {
    pub(super) fn new(lender: Arc<Lender>) -> Self {
        let reply = vec![0; MAX_BESIDES_BYTES + MAX_DATA_BYTES];
        Self { lender, request: vec![0; SMALL_BYTES], reply }
    }

    /// Answers the request in an entry, and lends the entry meanwhile. If the request may not be
    /// answered early, its entry is returned.
    pub(super) fn answer(&mut self, mut entry: Entry, dispatch: &dyn Dispatch) -> Result<Answered, Entry> {
        let Self { lender, request, reply } = self;
        let (header, payload) = entry.parts();
        let len = (header.payload_len as usize).min(payload.len());
        let Some(copy) = request.get_mut(..len) else { return Err(entry) };
        copy.copy_from_slice(&payload[..len]);
        let (head, structure) = (header.request(), header.structure);
        let request = Request::in_parts(head, &structure, copy);
        let Some(query) = Query::of(request) else { return Err(entry) };
        lender.lend(query, entry);
        let outcome = outcome_of(&dispatch.dispatch(request, reply), head.opcode);
        let Some(mut entry) = lender.take_back() else {
            if let Ok(body) = outcome {
                dispatch.unsent(request, &reply[..body]);
            }
            return Ok(Answered::Elsewhere);
        };
        let (header, payload) = entry.parts();
        if let Ok(body) = outcome {
            payload[..body].copy_from_slice(&reply[..body]);
        }
        header.put(head.unique, outcome);
        Ok(Answered::Now(entry))
    }
}

#[cfg(test)]
mod tests;
