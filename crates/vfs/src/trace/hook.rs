//! The hooks in the operations: they record on behalf of the traced thread.

use std::{
    cell::RefCell,
    sync::{Arc, atomic::Ordering},
};

use pando_sync::{
    Shared, lock, pin,
    ring::{RingWriter, ring},
};

use super::record::{BASES, RecordedPlace, write_base, write_op};
use crate::{
    At, Context, DentryRef, Error, File, Result, Vfs,
    objects::{
        dentry::Dentry,
        path::whole_path,
        superblock::Namespace,
        tracing::{Session, Tracing},
    },
    types::trace_op::TraceOp,
};

/// The largest number of rings at a time: a bound on memory. Operations of further threads are only
/// counted.
const RINGS_MAX: usize = 256;

/// The size in words of a typical record. If every operation is recorded and a ring has less space,
/// the record is dropped before the operation begins.
const RECORD_WORDS: usize = 24;

/// The part of one thread in one trace.
struct ThreadTrace {
    session: Arc<Session>,
    ring: Option<RingWriter>,
    /// The directories whose paths this thread has written into its ring.
    bases: [Base; BASES],
}

/// A directory, and the rename sequence under which its path was rendered.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Base {
    key: u64,
    sequence: u64,
}

impl Base {
    /// Equal to no base in use: the sequence that a reader gets is never odd.
    const NONE: Self = Self { key: 0, sequence: 1 };
}

std::thread_local! {
    /// This thread's part in each trace that it has joined. Usually one.
    static THREAD_TRACES: RefCell<Vec<ThreadTrace>> = const { RefCell::new(Vec::new()) };
}

/// An operation that has begun.
pub(crate) struct Span {
    op: TraceOp,
    start: u64,
}

/// The object of an operation.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// A walk from a directory.
    Walk(&'a Context, At<'a>, &'a [u8]),
    /// A file or directory itself.
    Itself(&'a DentryRef),
    /// Text that is no path in the tree: the target of a symbolic link.
    Text(&'a [u8]),
}

impl Tracing {
    /// Begins an operation. One load if there is no trace.
    #[inline]
    fn begin(&self, op: TraceOp) -> Option<Span> {
        // Relaxed: a trace that has just begun may miss an operation.
        if self.active.load(Ordering::Relaxed) == 0 { None } else { self.begin_traced(op) }
    }

    #[cold]
    #[inline(never)]
    fn begin_traced(&self, op: TraceOp) -> Option<Span> {
        self.with_thread_trace(|mine| {
            let session = &mine.session;
            if !session.ops.contains(op) {
                return None;
            }
            let Some(ring) = &mut mine.ring else {
                session.without_ring.fetch_add(1, Ordering::Relaxed);
                return None;
            };
            if session.wants_everything() && !ring.has_room(RECORD_WORDS) {
                // The clock is not read for an operation that will be dropped.
                ring.lose();
                return None;
            }
            Some(Span { op, start: session.clock.raw() })
        })?
    }

    /// Calls `with` with this thread's part in the active trace. None if no trace is active any
    /// more.
    fn with_thread_trace<R>(&self, with: impl FnOnce(&mut ThreadTrace) -> R) -> Option<R> {
        let active = self.active.load(Ordering::Relaxed);
        // A thread that is ending has no thread-local state any more.
        THREAD_TRACES
            .try_with(|mine| {
                let mut mine = mine.try_borrow_mut().ok()?;
                let index = match mine.iter().position(|mine| mine.session.address() == active) {
                    Some(index) => index,
                    None => self.join(&mut mine)?,
                };
                Some(with(&mut mine[index]))
            })
            .ok()?
    }

    /// Joins the active trace. Returns the index in this thread's list.
    #[cold]
    fn join(&self, mine: &mut Vec<ThreadTrace>) -> Option<usize> {
        mine.retain(|mine| !mine.session.closed.load(Ordering::Relaxed));
        let session = lock(&self.session).clone()?;
        if let Some(index) = mine.iter().position(|mine| Arc::ptr_eq(&mine.session, &session)) {
            return Some(index);
        }
        let within =
            session.rings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < RINGS_MAX).then_some(n + 1));
        let ring = within.ok().map(|_| {
            let (writer, reader) = ring(session.ring_words);
            let number = session.threads.fetch_add(1, Ordering::Relaxed);
            lock(&session.joined).push((number, reader));
            writer
        });
        mine.push(ThreadTrace { session, ring, bases: [Base::NONE; BASES] });
        Some(mine.len() - 1)
    }
}

impl Span {
    /// Records a finished operation if it passes the filters.
    #[cold]
    #[inline(never)]
    fn end(self, namespace: &Namespace, first: Place<'_>, second: Option<Place<'_>>, error: Option<Error>) {
        let recorded = namespace.observers.tracing.with_thread_trace(|mine| {
            let end = mine.session.clock.raw();
            let ticks = end.saturating_sub(self.start);
            if ticks < mine.session.min_ticks || mine.session.errors_only && error.is_none() {
                return;
            }
            let Some(first) = mine.place(namespace, first, error, None) else { return };
            let kept = if let RecordedPlace::Below(number, _) = first { Some(number) } else { None };
            let second = match second {
                None => None,
                Some(second) => match mine.place(namespace, second, error, kept) {
                    None => return,
                    written => written,
                },
            };
            if let Some(ring) = &mut mine.ring {
                write_op(ring, self.op, error, (self.start, end), &first, second.as_ref());
            }
        });
        // None: the trace has ended meanwhile.
        let _ = recorded;
    }
}

impl ThreadTrace {
    /// The record of a place. None if the ring has no space for the path of its directory. `kept`
    /// is a number that must not be reused, because the same record refers to it.
    fn place<'a>(
        &mut self,
        namespace: &Namespace,
        place: Place<'a>,
        error: Option<Error>,
        kept: Option<usize>,
    ) -> Option<RecordedPlace<'a>> {
        let (dentry, path) = match &place {
            Place::Text(text) => return Some(RecordedPlace::Text(text)),
            Place::Itself(dentry) => (dentry.0.as_shared(), &b""[..]),
            Place::Walk(context, _, path) if path.starts_with(b"/") => (context.root_dentry(), *path),
            Place::Walk(context, at, path) => (at.dentry(context), *path),
        };
        if error == Some(Error::NoEntry) && is_removed(dentry) || !dentry.is_dir() {
            let (mut whole, _) = whole_path(namespace, dentry);
            if !path.is_empty() {
                whole.push(b'/');
                whole.extend_from_slice(path);
            }
            return Some(RecordedPlace::Rendered(whole));
        }
        let number = self.base(namespace, dentry, kept)?;
        // The path lives as long as the place that the caller has given, which is longer than this
        // call.
        let path: &'a [u8] = match place {
            Place::Walk(_, _, path) => path,
            _ => b"",
        };
        Some(RecordedPlace::Below(number, path))
    }

    /// The number of a directory whose path the reader knows and which is valid at an instant of
    /// this call (P9), because no directory was moved since it was rendered. In a tree with a
    /// backing the path is rendered each time: others may have moved a directory that is not
    /// cached.
    fn base(&mut self, namespace: &Namespace, dir: Shared<'_, Dentry>, kept: Option<usize>) -> Option<usize> {
        let inode = dir.inode();
        let key = inode.ino ^ inode.shard.sb.id << 48;
        let mut number = inode.ino as usize % BASES;
        if Some(number) == kept && self.bases[number].key != key {
            number ^= 1;
        }
        let known = Base { key, sequence: namespace.rename_seq.read_begin() };
        if self.bases[number] == known && !inode.is_backed() {
            return Some(number);
        }
        let (path, sequence) = whole_path(namespace, dir);
        // Whether or not the record can be written, the old meaning of the number has ended.
        self.bases[number] = Base::NONE;
        if !write_base(self.ring.as_mut()?, number, &path) {
            return None;
        }
        self.bases[number] = Base { key, sequence };
        Some(number)
    }
}

fn is_removed(dentry: Shared<'_, Dentry>) -> bool {
    dentry.directory().is_ok_and(|directory| directory.is_removed(&pin()))
}

/// Runs an operation, and records it if a trace is active.
#[inline]
fn observe<'a, T>(
    namespace: &Namespace,
    op: TraceOp,
    places: impl FnOnce() -> (Place<'a>, Option<Place<'a>>),
    run: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let Some(span) = namespace.observers.tracing.begin(op) else { return run() };
    let result = run();
    let (first, second) = places();
    span.end(namespace, first, second, result.as_ref().err().copied());
    result
}

impl Vfs {
    /// Runs an operation on a path.
    #[inline]
    pub(crate) fn traced<T>(
        &self,
        op: TraceOp,
        (context, at, path): (&Context, At<'_>, &[u8]),
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        observe(self.namespace(), op, || (Place::Walk(context, at, path), None), run)
    }

    /// Runs an operation with two places.
    #[inline]
    pub(crate) fn traced_two<T>(
        &self,
        op: TraceOp,
        first: Place<'_>,
        second: Place<'_>,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        observe(self.namespace(), op, || (first, Some(second)), run)
    }

    /// Runs an operation on a dentry.
    #[inline]
    pub(crate) fn traced_itself<T>(
        &self,
        op: TraceOp,
        dentry: &DentryRef,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        observe(self.namespace(), op, || (Place::Itself(dentry), None), run)
    }
}

impl File {
    /// Runs an operation on an open file.
    #[inline]
    pub(crate) fn traced<T>(&self, op: TraceOp, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let dentry = self.dentry();
        observe(&dentry.0.sb().namespace, op, || (Place::Itself(dentry), None), run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credentials, driver::tests::Nothing, types::trace_op::TraceOptions};

    /// A thread that outlives many traces keeps only the ring of the last one.
    #[test]
    fn ended_trace_is_dropped_by_its_threads() {
        let vfs = Vfs::new(Nothing).expect("a tree");
        let context = Context::new(&vfs, Credentials::root());
        for name in ["a", "b", "c"] {
            let _tracer = vfs.trace(TraceOptions::default()).expect("nobody else traces");
            vfs.mkdir(&context, At::Cwd, name, 0o755).expect("mkdir");
        }
        assert_eq!(THREAD_TRACES.with_borrow(Vec::len), 1);
    }
}
