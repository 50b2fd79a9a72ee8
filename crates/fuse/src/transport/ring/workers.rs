//! The threads of a ring transport. Each worker has an io_uring and serves some queues. The thread
//! that started them serves the requests that arrive at the device.

use std::{
    io::{self, PipeReader, PipeWriter},
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
    queues::Share,
    sys::{self, Ended, Header, Ring, Serve, Uring},
};
use crate::{
    channel::{MAX_BESIDES_BYTES, MAX_DATA_BYTES},
    dispatch::Dispatch,
    transport::{
        device::{Reader, Served},
        joined,
    },
};

/// One entry for each queue suffices while its thread answers at once. The others are for requests
/// that wait for space.
const ENTRIES_PER_QUEUE: usize = 4;

/// How long requests without a reply are collected, unless a thread waits for the space that they
/// may free.
const COLLECT: Duration = Duration::from_millis(5);

/// A thread with an io_uring of its own. It exists before INIT, because from then on the kernel
/// holds requests back until all queues are served.
struct Worker {
    begin: Sender<Work>,
    thread: JoinHandle<io::Result<Ended>>,
}

/// The connection that a worker serves.
struct Work {
    device: Arc<OwnedFd>,
    dispatch: Arc<dyn Dispatch>,
    /// The thread that reads the device.
    device_reader: Thread,
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
    /// Starts a thread for each share. The threads wait for [`Workers::serve`].
    ///
    /// # Errors
    /// An io_uring or a thread could not be created.
    pub(super) fn start(shares: Vec<Share>) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let shutdown = Arc::new(ShutdownPipe { reader, writer });
        let workers = shares.into_iter().enumerate();
        let workers = workers.map(|(number, share)| Worker::start(number, share, Arc::clone(&shutdown)));
        Ok(Self { workers: workers.collect::<io::Result<_>>()?, shutdown })
    }

    pub(super) fn count(&self) -> usize {
        self.workers.len()
    }

    /// Serves until the connection ends, a thread ends, or the kernel refuses an entry. All threads
    /// have been joined when it returns. The device must not block.
    ///
    /// # Errors
    /// A ring or the device has failed, or a thread panicked.
    pub(super) fn serve(self, device: &Arc<OwnedFd>, dispatch: &Arc<dyn Dispatch>) -> io::Result<Ended> {
        for worker in &self.workers {
            let (device, dispatch) = (Arc::clone(device), Arc::clone(dispatch));
            // The worker waits for this and nothing else.
            let _ = worker.begin.send(Work { device, dispatch, device_reader: thread::current() });
        }
        let mut served = serve_device(&**dispatch, device, &self.shutdown).map(|()| Ended::Connection);
        for worker in self.workers {
            served = match (served, joined(worker.thread.join())) {
                (Err(error), _) | (_, Err(error)) => Err(error),
                (Ok(Ended::Refused(refused)), _) | (_, Ok(Ended::Refused(refused))) => Ok(Ended::Refused(refused)),
                _ => Ok(Ended::Connection),
            };
        }
        served
    }
}

impl Worker {
    fn start(number: usize, share: Share, shutdown: Arc<ShutdownPipe>) -> io::Result<Self> {
        let (begin, work) = mpsc::channel();
        let (is_made, made) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(format!("pando-ring-{number}")).spawn(move || {
            let (uring, made) = match sys::uring(share.queues.len() * ENTRIES_PER_QUEUE) {
                Ok(uring) => (Some(uring), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // The receiver may be gone already, if another worker could not be started.
            let _ = is_made.send(made);
            match (uring, work.recv()) {
                (Some(uring), Ok(work)) => serve(uring, &share, &work, &shutdown),
                _ => Ok(Ended::Connection),
            }
        })?;
        made.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        Ok(Self { begin, thread })
    }
}

fn serve(uring: Uring, share: &Share, work: &Work, shutdown: &ShutdownPipe) -> io::Result<Ended> {
    let _shutdown = ShutdownOnDrop(shutdown);
    stay_on(share.cpu);
    let queues = share.queues.iter().flat_map(|&queue| [queue; ENTRIES_PER_QUEUE]);
    let mut ring = Ring::new(uring, Arc::clone(&work.device), queues, MAX_BESIDES_BYTES + MAX_DATA_BYTES);
    let mut requests = Requests { work, answerer: Answerer::new(&*work.dispatch) };
    let served = ring.serve(shutdown.reader.as_fd(), &mut requests);
    served.inspect_err(|error| error!(%error, "a ring of the server has ended"))
}

/// The requests of one ring.
struct Requests<'a> {
    work: &'a Work,
    answerer: Answerer<'a>,
}

impl Serve for Requests<'_> {
    fn answer(&mut self, header: &mut Header, payload: &mut [u8], tries: Option<u32>) -> Option<Duration> {
        let pause = self.answerer.answer(header, payload, tries);
        if pause.is_some() {
            // A FORGET that frees the space may be among those being collected.
            self.work.device_reader.unpark();
        }
        pause
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
fn serve_device(dispatch: &dyn Dispatch, device: &Arc<OwnedFd>, shutdown: &ShutdownPipe) -> io::Result<()> {
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
            match reader.serve_one(dispatch)? {
                Served::End => return Ok(()),
                Served::Unanswered => thread::park_timeout(COLLECT),
                // The request may have been taken back, if it was an INTERRUPT for a request that
                // is done by now.
                Served::Answered | Served::Nothing => {}
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
