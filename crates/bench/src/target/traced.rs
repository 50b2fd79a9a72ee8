//! pandofs in process while it is traced. It shows the cost of tracing for the traced threads.
//!
//! Beside the tree runs the same reader that `pando trace` runs beside a mounted tree. It takes the
//! events out of the threads' rings and formats them as lines, at the same pace. The lines are
//! discarded. At the end, the numbers of reported and lost operations are printed.

use std::{
    hint::black_box,
    io::{self, Write as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use pando_vfs::{
    Vfs,
    trace::{Event, Pace, TraceOptions, Tracer},
};

use super::{Actor, Session, Target, mem::MemSession};
use crate::base::failure::{During, Failure, print_error};

/// An in-memory tree that is traced.
pub(crate) struct TracedTarget;

impl Target for TracedTarget {
    fn open(&self) -> Result<Box<dyn Session>, Failure> {
        let inner = MemSession::new()?;
        Ok(Box::new(TracedSession { reader: Some(Reader::start(inner.vfs())?), inner }))
    }
}

struct TracedSession {
    reader: Option<Reader>,
    inner: MemSession,
}

impl Session for TracedSession {
    fn actor(&self) -> io::Result<Box<dyn Actor + '_>> {
        self.inner.actor()
    }

    fn close(mut self: Box<Self>) -> Result<(), Failure> {
        if let Some(reader) = self.reader.take() {
            let (shown, lost) = reader.stop();
            print_error(format_args!(
                "mem:traced: {shown} operations reported, {lost} lost (the reader uses a tenth of a core)"
            ));
        }
        Ok(())
    }
}

impl Drop for TracedSession {
    fn drop(&mut self) {
        self.reader.take().map(Reader::stop);
    }
}

/// The thread that reads the trace.
struct Reader {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, u64)>,
}

impl Reader {
    fn start(vfs: &Vfs) -> Result<Self, Failure> {
        let tracer = vfs.trace(TraceOptions::default()).during(|| "tracing a tree".into())?;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let watch = thread::Builder::new().name("pando-trace".into()).spawn(move || watch(tracer, &asked));
        Ok(Self { stop, thread: watch.during(|| "starting a thread".into())? })
    }

    /// Returns the numbers of reported and of lost operations.
    fn stop(self) -> (u64, u64) {
        self.stop.store(true, Relaxed);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_default()
    }
}

fn watch(mut tracer: Tracer, stop: &AtomicBool) -> (u64, u64) {
    let (pace, mut lines, mut shown) = (Pace::default(), Vec::new(), 0);
    while !stop.load(Relaxed) {
        let began = Instant::now();
        shown += tracer.poll(Pace::EVENTS, |event| line(&mut lines, event)) as u64;
        black_box(&lines);
        lines.clear();
        thread::park_timeout(pace.rest(began.elapsed()));
    }
    // Events that remain in the rings count neither as reported nor as lost.
    (shown, tracer.lost())
}

/// Formats an event as `pando trace` does.
fn line(lines: &mut Vec<u8>, event: &Event) {
    let (start, latency) = (event.start.as_secs_f64(), event.latency.as_nanos());
    // Writing to a vector cannot fail.
    let _ =
        write!(lines, "{start:12.6} {latency:>10} {:<11} {:?} ", event.op, event.error.map(pando_vfs::Error::errno));
    lines.extend_from_slice(&event.path);
    if let Some(second) = &event.second {
        lines.extend_from_slice(b" -> ");
        lines.extend_from_slice(second);
    }
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::path::TreePath;

    #[test]
    fn every_operation_is_reported_or_lost() {
        let inner = MemSession::new().expect("a tree");
        let mut tracer = inner.vfs().trace(TraceOptions::default()).expect("no other tracer");
        let mut actor = inner.actor().expect("an actor");
        let file = TreePath::new("f");
        actor.create(&file).expect("create");
        actor.unlink(&file).expect("unlink");
        let mut lines = Vec::new();
        assert_eq!((tracer.poll(Pace::EVENTS, |event| line(&mut lines, event)), tracer.lost()), (2, 0));
        let text = String::from_utf8(lines).expect("text");
        let (create, unlink) = text.trim_end().split_once('\n').expect("two lines");
        assert!(create.contains(" create ") && create.ends_with(" /f"), "{text}");
        assert!(unlink.contains(" unlink ") && unlink.ends_with(" /f"), "{text}");
        drop((tracer, actor));
        let reader = Reader::start(inner.vfs()).expect("it starts");
        assert_eq!(
            inner.vfs().trace(TraceOptions::default()).err(),
            Some(pando_vfs::Error::Busy),
            "one tracer at a time"
        );
        reader.stop();
        inner.vfs().trace(TraceOptions::default()).expect("the first tracer has stopped");
    }
}
