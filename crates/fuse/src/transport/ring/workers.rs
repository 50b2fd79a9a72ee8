//! The threads of a ring transport. Each worker has an io_uring and serves some queues. The thread
//! that started them serves the requests that arrive at the device.

use std::{
    io::{self, PipeReader, PipeWriter},
    mem,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle, Thread},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    thread::{CpuSet, sched_setaffinity},
};
use tracing::{error, warn};

use super::{
    answer::Answerer,
    lent::{Lender, Lending, Successors, successor_is_missing},
    queues::Share,
    sys::{self, Answered, Ended, Entry, Ring, Serve, Uring},
};
use crate::{
    channel::{MAX_BESIDES_BYTES, MAX_DATA_BYTES, Received},
    dispatch::Dispatch,
    transport::{
        device::{Reader, Served},
        joined,
    },
};

/// How long requests without a reply are collected, unless a thread waits for the space that they
/// may free.
const COLLECT: Duration = Duration::from_millis(5);

/// A thread with an io_uring of its own. It exists before INIT, because from then on the kernel
/// holds requests back until all queues are served.
struct Worker {
    begin: Sender<Arc<Work>>,
    thread: JoinHandle<io::Result<Ended>>,
}

/// The connection that a worker serves.
struct Work {
    device: Arc<OwnedFd>,
    dispatch: Arc<dyn Dispatch>,
    /// The thread that reads the device.
    device_reader: Thread,
    shutdown: Arc<ShutdownPipe>,
    /// None if no request is answered early.
    successors: Option<Arc<Successors>>,
}

/// Tells all threads that one of them has ended. If that happened during the connection, callers on
/// its CPU would wait for ever. So then all threads end, and the connection with them.
struct ShutdownPipe {
    reader: PipeReader,
    writer: PipeWriter,
}

/// Writes to the pipe when it is dropped, also by a panic.
struct ShutdownOnDrop<'a>(&'a ShutdownPipe);

impl Drop for ShutdownOnDrop<'_> {
    fn drop(&mut self) {
        // No thread reads the byte, so the pipe stays readable for all of them. It holds one byte
        // for each thread.
        let _ = rustix::io::write(&self.0.writer, &[0]);
    }
}

/// All workers of a connection.
pub(super) struct Workers {
    workers: Vec<Worker>,
    shutdown: Arc<ShutdownPipe>,
}

impl Workers {
    /// Starts a thread for each share, which serves this many entries for each of its queues. The
    /// threads wait for [`Workers::serve`].
    ///
    /// # Errors
    /// An io_uring or a thread could not be created.
    pub(super) fn start(shares: Vec<Share>, entries: usize) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let shutdown = Arc::new(ShutdownPipe { reader, writer });
        let (is_made, made) = mpsc::channel();
        let mut started = Self { workers: Vec::new(), shutdown };
        for (number, share) in shares.into_iter().enumerate() {
            started.workers.push(Worker::start(number, share, entries, is_made.clone())?);
        }
        drop(is_made);
        made.iter().collect::<io::Result<()>>()?;
        Ok(started)
    }

    pub(super) fn count(&self) -> usize {
        self.workers.len()
    }

    /// Serves until the connection ends, a thread ends, or the kernel refuses an entry. All threads
    /// have been joined when it returns. The device must not block. If `may_be_killed`, the
    /// requests of callers that are killed are answered early, which takes one entry for each
    /// thread.
    ///
    /// # Errors
    /// A ring or the device has failed, or a thread panicked.
    pub(super) fn serve(
        mut self,
        device: &Arc<OwnedFd>,
        dispatch: &Arc<dyn Dispatch>,
        may_be_killed: bool,
    ) -> io::Result<Ended> {
        let work = Arc::new(Work {
            device: Arc::clone(device),
            dispatch: Arc::clone(dispatch),
            device_reader: thread::current(),
            shutdown: Arc::clone(&self.shutdown),
            successors: may_be_killed.then(Successors::new),
        });
        for worker in &self.workers {
            // The worker waits for this and nothing else.
            let _ = worker.begin.send(Arc::clone(&work));
        }
        let served = serve_device(&work);
        let ends = mem::take(&mut self.workers).into_iter().map(|worker| joined(worker.thread.join()));
        let ends = ends.collect::<Vec<_>>().into_iter().collect::<io::Result<Vec<_>>>();
        let succeeded = work.successors.as_ref().map_or(Ok(()), |successors| successors.join());
        let ends = served.and(ends)?;
        succeeded?;
        let refused = |ended: &Ended| if let Ended::Refused(reason) = ended { Some(*reason) } else { None };
        match ends.iter().find_map(refused) {
            // The kernel knows no entry.
            Some(reason) if ends.iter().all(|ended| refused(ended).is_some()) => Ok(Ended::Refused(reason)),
            // It may have sent requests through the others.
            Some(reason) => Err(reason.into()),
            None => Ok(Ended::Connection),
        }
    }
}

/// Threads that have not begun to serve end.
impl Drop for Workers {
    fn drop(&mut self) {
        for Worker { begin, thread } in mem::take(&mut self.workers) {
            drop(begin);
            let _ = thread.join();
        }
    }
}

impl Worker {
    /// Starts a thread, which reports whether its ring could be made.
    fn start(number: usize, share: Share, entries: usize, is_made: Sender<io::Result<()>>) -> io::Result<Self> {
        let (begin, work) = mpsc::channel();
        let thread = thread::Builder::new().name(format!("pando-ring-{number}")).spawn(move || {
            let (uring, made) = match sys::uring(share.queues.len() * entries) {
                Ok(uring) => (Some(uring), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // The receiver may be gone already, if another worker could not be started.
            let _ = is_made.send(made);
            drop(is_made);
            match (uring, work.recv()) {
                (Some(uring), Ok(work)) => {
                    let queues = share.queues.iter().flat_map(|&queue| vec![queue; entries]);
                    let entries = queues.map(|queue| Entry::new(queue, MAX_BESIDES_BYTES + MAX_DATA_BYTES));
                    serve(uring, entries, share.cpu, &work)
                }
                _ => Ok(Ended::Connection),
            }
        })?;
        Ok(Self { begin, thread })
    }
}

fn serve(
    uring: Uring,
    entries: impl IntoIterator<Item = Entry>,
    cpu: Option<usize>,
    work: &Arc<Work>,
) -> io::Result<Ended> {
    let shutdown = ShutdownOnDrop(&work.shutdown);
    stay_on(cpu);
    let mut ring = Ring::new(uring, Arc::clone(&work.device), entries);
    let lending = work.successors.as_ref().map(|successors| Lending::new(lender(successors, cpu, work)));
    let mut requests = Requests { work, answerer: Answerer::new(&*work.dispatch), lending };
    let served = ring.serve(work.shutdown.reader.as_fd(), &mut requests);
    if let Ok(Ended::Taken) = served {
        // The connection goes on without this thread.
        mem::forget(shutdown);
    }
    served.inspect_err(|error| error!(%error, "a ring of the server has ended"))
}

/// Lends the entries of a thread. One that takes an entry over serves it as that thread would.
fn lender(successors: &Arc<Successors>, cpu: Option<usize>, work: &Arc<Work>) -> Arc<Lender> {
    let work = Arc::clone(work);
    Lender::new(successors, move |take_over| {
        // Made first: the entry stays where it is if there is no ring.
        let uring = match sys::uring(1) {
            Ok(uring) => uring,
            Err(error) => {
                successor_is_missing(&error);
                return Ok(());
            }
        };
        take_over().map_or(Ok(()), |entry| serve(uring, [entry], cpu, &work).map(drop))
    })
}

/// The requests of one ring.
struct Requests<'a> {
    work: &'a Work,
    answerer: Answerer<'a>,
    lending: Option<Lending>,
}

impl Serve for Requests<'_> {
    fn answer(&mut self, entry: Entry, tries: Option<u32>) -> Answered {
        let mut entry = match &mut self.lending {
            Some(lending) => match lending.answer(entry, &*self.work.dispatch) {
                Ok(answered) => return answered,
                Err(entry) => entry,
            },
            None => entry,
        };
        let (header, payload) = entry.parts();
        match self.answerer.answer(header, payload, tries) {
            None => Answered::Now(entry),
            Some(pause) => {
                // A FORGET that frees the space may be among those being collected.
                self.work.device_reader.unpark();
                Answered::Again(entry, pause)
            }
        }
    }

    fn ends(&self) -> bool {
        ends(&self.work.device)
    }
}

/// Binds this thread to a CPU. If that fails, the thread works on any CPU.
fn stay_on(cpu: Option<usize>) {
    let Some(cpu) = cpu else { return };
    let mut only = CpuSet::new();
    only.set(cpu);
    if let Err(error) = sched_setaffinity(None, &only) {
        warn!(cpu, %error, "a thread of the server cannot be bound to its CPU");
    }
}

/// Serves the requests that arrive at the device, until the connection ends, or must end because a
/// worker has ended.
///
/// # Errors
/// The device failed.
fn serve_device(work: &Work) -> io::Result<()> {
    let Work { device, dispatch, shutdown, successors, .. } = work;
    let _shutdown = ShutdownOnDrop(shutdown);
    let mut reader = Reader::new(device);
    loop {
        let mut fds = [PollFd::new(device, PollFlags::IN), PollFd::new(&shutdown.reader, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            ready => ready?,
        };
        let [has_request, has_shutdown] = fds.map(|fd| !fd.revents().is_empty());
        if has_request {
            let len = match reader.receive()? {
                Received::Request(len) => len,
                // The request may have been taken back, if it was an INTERRUPT for a request that
                // is done by now.
                Received::Nothing => continue,
                Received::End => return Ok(()),
            };
            if let Some(successors) = successors
                && successors.kills.notes(reader.request(len)?)
            {
                continue;
            }
            if reader.answer(len, &**dispatch)? == Served::Unanswered {
                thread::park_timeout(COLLECT);
            }
        } else if has_shutdown && !ends(device) {
            return Ok(());
        }
    }
}

/// Whether the connection has ended, or is about to. Rings may hear of its end first, so this waits
/// up to a second.
fn ends(device: &OwnedFd) -> bool {
    const SOON: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
    loop {
        // Without flags, poll waits only for the end.
        match poll(&mut [PollFd::new(device, PollFlags::empty())], Some(&SOON)) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests;
