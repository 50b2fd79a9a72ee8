//! Tracing: what is done to a tree while it is done, with paths, latencies and errors.
//!
//! The art is to disturb nothing that is watched. (Linux's dentry cache lost its global lock in path rendering in 2013
//! because tracing that renders paths slowed down what it traced.) So:
//!
//! * **Off, it costs one load** of a word that nobody writes, and a branch that is predicted, in each operation.
//! * **On, a thread writes raw facts into a ring of its own**: operation, two readings of the processor's time stamp counter,
//!   the error, the path as the caller gave it. Once it takes part it takes no lock, waits for nobody (but for paths, as follows),
//!   and shares no line with another thread but with the reader. If the ring is full the fact is dropped, and counted: [`Tracer::lost`].
//! * **Paths are rendered once a directory, not once an operation.** The path shown is that of the directory in which the walk began,
//!   with the path that was given behind it. The directory's path is rendered by the operation itself (P9), and kept until
//!   any directory of the name space changes its place: as long as the rename sequence stands still, what was rendered is
//!   what would be rendered. So each path shown begins with one that was true during the call, not when it was read. One that
//!   directories keep moving under is rendered after some tries with all of them kept in place, as `d_path` does: it waits for a
//!   rename of a directory, and such renames wait for it.
//! * **Operations on handles** ([`File`](crate::File)s, and dentries) render the file's own path each time, since a file may move
//!   without anybody being told; with a filter, only if it passes. So do all operations in a tree with a backing, where others
//!   may move directories that nobody here has.
//! * **Filters that need no path** (operation, errors, latency) are the thread's: what they leave out takes no room.
//! * **Memory is bounded**: a ring a thread, of a fixed size, and of so many threads.
//!
//! What is not traced: `lseek` to the start, the end, or relative (a store), `tell`, closing a file, path rendering itself.
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

/// The reading end of a trace; the trace ends when it is dropped.
///
/// It keeps its [`Vfs`] alive.
pub struct Tracer {
    vfs: Vfs,
    session: Arc<Session>,
    threads: Vec<Thread>,
    min_latency: Duration,
    /// Of rings that are gone.
    lost: u64,
    words: Vec<u64>,
}

/// A thread that was seen.
struct Thread {
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
    /// Begins to trace what is done to this name space, by all threads. See [`trace`](crate::trace).
    ///
    /// Takes up to a fifth of a second, to learn how fast the processor's counter runs.
    ///
    /// # Errors
    /// EBUSY while another trace of this name space goes on.
    pub fn trace(&self, options: TraceOptions) -> Result<Tracer> {
        let tracing = &self.name_space().tracing;
        let session = Arc::new(Session::new(&options));
        let mut slot = lock(&tracing.session);
        if slot.is_some() {
            return Err(Error::Busy);
        }
        *slot = Some(session.clone());
        // Relaxed: threads that see it go through the lock.
        tracing.active.store(session.address(), Ordering::Relaxed);
        drop(slot);
        let (vfs, min_latency) = (self.clone(), options.min_latency);
        Ok(Tracer { vfs, session, threads: Vec::new(), min_latency, lost: 0, words: Vec::new() })
    }
}

impl Tracer {
    /// Hands over what was recorded, about `limit` operations at most; returns how many. Never waits.
    ///
    /// In the order in which they began, within one call.
    pub fn poll(&mut self, limit: usize, mut each: impl FnMut(&Event)) -> usize {
        let mut joined = lock(&self.session.joined);
        let new = joined.drain(..).map(|(number, reader)| Thread { number, reader, bases: Bases::default() });
        self.threads.extend(new);
        drop(joined);
        // A share for each, so that a busy thread does not hide the others.
        let share = (limit / self.threads.len().max(1)).max(1);
        let mut events = Vec::new();
        let (session, words, lost) = (&self.session, &mut self.words, &mut self.lost);
        self.threads.retain_mut(|thread| {
            let ended = thread.reader.has_ended();
            for _ in 0..share {
                if !thread.reader.pop(words) {
                    if ended {
                        *lost += thread.reader.lost();
                        session.ring_gone();
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

    /// How many operations were dropped, since the trace began: their thread's ring was full, or there were more than 256
    /// threads at once.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let waiting: u64 = self.threads.iter().map(|thread| thread.reader.lost()).sum();
        self.lost + waiting + self.session.ringless.load(Ordering::Relaxed)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let tracing = &self.vfs.name_space().tracing;
        let mut slot = lock(&tracing.session);
        tracing.active.store(0, Ordering::Relaxed);
        *slot = None;
        self.session.closed.store(true, Ordering::Relaxed);
    }
}

/// How a reader keeps out of the way: it rests after each look, nine times as long as that took.
///
/// So it takes a tenth of one processor at most, and a flood of operations loses events rather than speed.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The shortest rest.
    pub rest_min: Duration,
}

impl Pace {
    /// What goes into one look.
    pub const EVENTS: usize = 4096;

    /// The rest after a look that took `busy`.
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
