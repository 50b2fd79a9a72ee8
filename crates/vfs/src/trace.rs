//! Tracing: records the operations on a tree while they run, with paths, latencies and errors.
//!
//! A trace must not disturb the operations that it records. (In 2013, Linux's dentry cache lost its
//! global lock in path rendering, because tracing that renders paths slowed down the traced
//! program.) So:
//!
//! * **A disabled trace costs one load** per operation, of a word that is not written, and a
//!   predicted branch.
//! * **A traced thread writes raw records into a ring of its own**: the operation, two readings of
//!   the time stamp counter, the error, and the path as the caller has given it. Once it has joined
//!   the trace, the thread takes no lock, waits for no other thread except for paths (see below),
//!   and shares cache lines only with the reader. If the ring is full, the record is dropped and
//!   counted: [`Tracer::lost`].
//! * **Paths are rendered once per directory, not once per operation.** The recorded path is the
//!   path of the directory at which the walk began, followed by the path that the caller has given.
//!   The operation itself renders the directory's path (P9), and the thread keeps it until any
//!   directory of the namespace is moved: until then the rename sequence is unchanged, and another
//!   rendering would give the same result. So each recorded path begins with one that was valid
//!   during the call, and not only when the record was read. If directories keep moving, the
//!   rendering blocks such moves after a few tries, as `d_path` does. It then waits for a running
//!   move of a directory, and such moves wait for it.
//! * **Operations on handles** ([`File`](crate::File)s and dentries) render the file's own path
//!   each time, because the rename of a file writes nothing global. With a filter, they do so only
//!   if the operation passes it. Operations in a tree with a backing also render each time, because
//!   others may move directories that this cache does not have.
//! * **Filters that need no path** (operation, errors, latency) are applied by the traced thread.
//!   Operations that do not pass them take no space in the ring.
//! * **Memory is bounded**: one ring of a fixed size per thread, for a limited number of threads.
//!
//! Not traced: `lseek` with SEEK_SET, SEEK_CUR or SEEK_END (little more than a store), `tell`,
//! close, and path rendering itself.
//!
//! ```
//! use pando_memfs::{MemFs, MemOptions};
//! use pando_vfs::{At, Context, Credentials, Error, Vfs, Walk, trace::{TraceOp, TraceOptions}};
//!
//! let vfs = Vfs::new(MemFs::new(MemOptions::default()))?;
//! let context = Context::new(&vfs, Credentials::root());
//! let mut tracer = vfs.trace(TraceOptions::default())?;
//! let grove = vfs.mkdir(&context, At::Cwd, "grove", 0o755)?;
//! let _ = vfs.stat(&context, At::Dir(&grove), "oak", Walk::empty());
//! let mut seen = Vec::new();
//! tracer.poll(usize::MAX, |event| seen.push((event.op, event.path.clone(), event.error)));
//! assert_eq!(seen[0], (TraceOp::Mkdir, b"/grove".to_vec(), None));
//! assert_eq!(seen[1], (TraceOp::Stat, b"/grove/oak".to_vec(), Some(Error::NoEntry)));
//! # Ok::<(), Error>(())
//! ```

mod event;
mod hook;
mod record;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use pando_sync::{lock, ring::RingReader};

pub use self::event::Event;
pub(crate) use self::hook::Place;
use self::record::Bases;
pub use crate::types::trace_op::{TraceOp, TraceOps, TraceOptions};
use crate::{Error, Result, Vfs, objects::tracing::Session};

/// The reading end of a trace. Dropping it ends the trace.
///
/// It keeps its [`Vfs`] alive.
pub struct Tracer {
    vfs: Vfs,
    session: Arc<Session>,
    threads: Vec<TracedThread>,
    min_latency: Duration,
    /// The number of lost operations of threads that have ended.
    lost: u64,
    words: Vec<u64>,
}

/// A traced thread, as the reader sees it.
struct TracedThread {
    number: u32,
    reader: RingReader,
    bases: Bases,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").field("vfs", &self.vfs).field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Vfs {
    /// Begins a trace of the operations of all threads on this namespace. See
    /// [`trace`](crate::trace).
    ///
    /// The call takes up to a fifth of a second, to calibrate the time stamp counter.
    ///
    /// # Errors
    /// EBUSY while another trace of this namespace is active.
    pub fn trace(&self, options: TraceOptions) -> Result<Tracer> {
        let tracing = &self.namespace().observers.tracing;
        let session = Arc::new(Session::new(&options));
        let mut dirent = lock(&tracing.session);
        if dirent.is_some() {
            return Err(Error::Busy);
        }
        *dirent = Some(session.clone());
        // Relaxed: a thread that sees it takes the lock of `session` before it uses the session.
        tracing.active.store(session.address(), Ordering::Relaxed);
        drop(dirent);
        let (vfs, min_latency) = (self.clone(), options.min_latency);
        Ok(Tracer { vfs, session, threads: Vec::new(), min_latency, lost: 0, words: Vec::new() })
    }

    /// Whether a trace of this namespace is active.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.namespace().observers.tracing.active.load(Ordering::Relaxed) != 0
    }
}

impl Tracer {
    /// Calls `each` with the recorded operations, about `limit` of them at most, and returns their
    /// number. Never waits.
    ///
    /// Within one call, the operations are sorted by their start.
    pub fn poll(&mut self, limit: usize, mut each: impl FnMut(&Event)) -> usize {
        let mut joined = lock(&self.session.joined);
        let new = joined.drain(..).map(|(number, reader)| TracedThread { number, reader, bases: Bases::default() });
        self.threads.extend(new);
        drop(joined);
        // Each thread gets a share, so a busy thread does not hide the others.
        let share = (limit / self.threads.len().max(1)).max(1);
        let mut events = Vec::new();
        let (session, words, lost) = (&self.session, &mut self.words, &mut self.lost);
        self.threads.retain_mut(|thread| {
            let ended = thread.reader.has_ended();
            for _ in 0..share {
                if !thread.reader.pop(words) {
                    if ended {
                        *lost += thread.reader.lost();
                        session.ring_ended();
                    }
                    return !ended;
                }
                events.extend(thread.bases.decode(words, &session.clock, session.began, thread.number));
            }
            true
        });
        events.retain(|event: &Event| event.latency >= self.min_latency);
        events.sort_by_key(|event| event.start);
        events.iter().for_each(&mut each);
        events.len()
    }

    /// The number of operations that were dropped since the trace began. An operation is dropped if
    /// the ring of its thread is full, or if there are more than 256 threads at once.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let waiting: u64 = self.threads.iter().map(|thread| thread.reader.lost()).sum();
        self.lost + waiting + self.session.without_ring.load(Ordering::Relaxed)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let tracing = &self.vfs.namespace().observers.tracing;
        let mut dirent = lock(&tracing.session);
        tracing.active.store(0, Ordering::Relaxed);
        *dirent = None;
        self.session.closed.store(true, Ordering::Relaxed);
    }
}

/// How a reader limits its CPU time: after each poll it sleeps nine times as long as the poll took.
///
/// So it takes at most a tenth of one CPU, and a burst of operations loses records rather than
/// speed.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The shortest sleep.
    pub rest_min: Duration,
}

impl Pace {
    /// The limit for one poll, in operations.
    pub const EVENTS: usize = 4096;

    /// The sleep after a poll that took `busy`.
    #[must_use]
    pub fn rest(&self, busy: Duration) -> Duration {
        self.rest_min.max(busy * 9)
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self { rest_min: Duration::from_millis(10) }
    }
}
