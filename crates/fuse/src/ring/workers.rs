//! The threads of a ring transport: each has an io_uring and serves some queues; one serves what comes by the device.

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
    device_transport::{Came, Reader},
    dispatch::Dispatch,
    session::{MAX_BESIDES_BYTES, MAX_DATA_BYTES, ended},
};

/// One entry is enough for each queue while its thread answers at once. Requests that wait for room keep others.
const ENTRIES_PER_QUEUE: usize = 4;

/// How long what has no answer gathers, unless somebody waits for the room that it may give back.
const GATHER: Duration = Duration::from_millis(5);

/// A thread with an io_uring of its own. It is there before the kernel is told that requests may come so: from then on they
/// wait until all queues are served.
struct Worker {
    begin: Sender<Work>,
    thread: JoinHandle<io::Result<Ended>>,
}

/// What a worker is to serve.
struct Work {
    device: Arc<OwnedFd>,
    dispatch: Arc<Dispatch>,
    /// Who reads the device.
    gatherer: Thread,
}

/// What all who serve hear when one of them ends. Where that is before its time, who asks on its processor would wait for ever: so
/// all end then, and the connection with them.
struct Bell {
    heard: PipeReader,
    rung: PipeWriter,
}

/// Rings when it is dropped, also by a panic.
struct Ringer<'a>(&'a Bell);

impl Drop for Ringer<'_> {
    fn drop(&mut self) {
        // Nobody takes it out again. There is room for many.
        let _ = rustix::io::write(&self.0.rung, &[0]);
    }
}

/// All who serve.
pub(super) struct Workers {
    workers: Vec<Worker>,
    bell: Arc<Bell>,
}

impl Workers {
    /// Starts a thread for each share; they wait for [`Workers::serve`].
    ///
    /// # Errors
    /// There is no io_uring to be had, or no thread.
    pub(super) fn start(shares: Vec<Share>) -> io::Result<Self> {
        let (heard, rung) = io::pipe()?;
        let bell = Arc::new(Bell { heard, rung });
        let workers = shares.into_iter().enumerate();
        let workers = workers.map(|(number, share)| Worker::start(number, share, Arc::clone(&bell)));
        Ok(Self { workers: workers.collect::<io::Result<_>>()?, bell })
    }

    pub(super) fn count(&self) -> usize {
        self.workers.len()
    }

    /// Serves until the connection ends, or has to, or the kernel refuses an entry. The device must not block.
    ///
    /// # Errors
    /// A ring or the device has failed, or a thread panicked.
    pub(super) fn serve(self, device: &Arc<OwnedFd>, dispatch: &Arc<Dispatch>) -> io::Result<Ended> {
        for worker in &self.workers {
            let (device, dispatch) = (Arc::clone(device), Arc::clone(dispatch));
            // It waits for nothing else.
            let _ = worker.begin.send(Work { device, dispatch, gatherer: thread::current() });
        }
        let mut served = serve_the_rest(dispatch, device, &self.bell).map(|()| Ended::Connection);
        for worker in self.workers {
            served = match (served, ended(worker.thread.join())) {
                (Err(error), _) | (_, Err(error)) => Err(error),
                (Ok(Ended::Refused(refused)), _) | (_, Ok(Ended::Refused(refused))) => Ok(Ended::Refused(refused)),
                _ => Ok(Ended::Connection),
            };
        }
        served
    }
}

impl Worker {
    fn start(number: usize, share: Share, bell: Arc<Bell>) -> io::Result<Self> {
        let (begin, work) = mpsc::channel();
        let (is_made, made) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(format!("pando-ring-{number}")).spawn(move || {
            let (uring, made) = match sys::uring(share.queues.len() * ENTRIES_PER_QUEUE) {
                Ok(uring) => (Some(uring), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // Who started it may have given up for want of another.
            let _ = is_made.send(made);
            match (uring, work.recv()) {
                (Some(uring), Ok(work)) => serve(uring, &share, &work, &bell),
                _ => Ok(Ended::Connection),
            }
        })?;
        made.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        Ok(Self { begin, thread })
    }
}

fn serve(uring: Uring, share: &Share, work: &Work, bell: &Bell) -> io::Result<Ended> {
    let _ringer = Ringer(bell);
    stay_on(share.processor);
    let queues = share.queues.iter().flat_map(|&queue| [queue; ENTRIES_PER_QUEUE]);
    let mut ring = Ring::new(uring, Arc::clone(&work.device), queues, MAX_BESIDES_BYTES + MAX_DATA_BYTES);
    let mut requests = Requests { work, answerer: Answerer::new(&work.dispatch) };
    ring.serve(bell.heard.as_fd(), &mut requests).inspect_err(|error| error!(%error, "a ring of the server has ended"))
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
            // What it waits for may be among what gathers.
            self.work.gatherer.unpark();
        }
        pause
    }

    fn ends(&self) -> bool {
        ends(&self.work.device)
    }
}

/// Keeps this thread on a processor. It does without, if it must.
fn stay_on(processor: Option<usize>) {
    let Some(processor) = processor else { return };
    let mut only = CpuSet::new();
    only.set(processor);
    if let Err(error) = sched_setaffinity(None, &only) {
        warn!(processor, %error, "a thread of the server cannot be kept on its processor");
    }
}

/// Serves what comes by the device, until the connection ends, or is to be ended since a worker has.
///
/// # Errors
/// The device failed.
fn serve_the_rest(dispatch: &Dispatch, device: &Arc<OwnedFd>, bell: &Bell) -> io::Result<()> {
    let _ringer = Ringer(bell);
    let mut reader = Reader::new(device);
    loop {
        let mut waiting = [PollFd::new(device, PollFlags::IN), PollFd::new(&bell.heard, PollFlags::IN)];
        match poll(&mut waiting, None) {
            Err(Errno::INTR) => continue,
            waited => waited?,
        };
        let [by_device, rung] = waiting.map(|waited| !waited.revents().is_empty());
        if by_device {
            match reader.one(dispatch)? {
                Came::End => return Ok(()),
                Came::Unanswered => thread::park_timeout(GATHER),
                // What could be read may have been taken back: a signal to somebody whose request is done by now.
                Came::Answered | Came::Nothing => {}
            }
        } else if rung && !ends(device) {
            return Ok(());
        }
    }
}

/// Whether the connection ends, or is about to: rings may be the first to hear of it.
fn ends(device: &OwnedFd) -> bool {
    const SOON: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
    loop {
        // No flags: nothing but the end is waited for.
        match poll(&mut [PollFd::new(device, PollFlags::empty())], Some(&SOON)) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use pando_memfs::{MemFs, MemOptions};
    use pando_vfs::Vfs;

    use super::*;
    use crate::{Server, ServerOptions};

    /// A worker that ends early ends the others. A pipe stands for the device: what matters is whether it has ended.
    #[test]
    fn all_end_with_the_first() {
        let vfs = Vfs::new(MemFs::new(MemOptions::default())).unwrap();
        let dispatch = Dispatch { server: Server::new(vfs, ServerOptions::default()), clear_privileges: true };
        let (device, kernel) = io::pipe().unwrap();
        let (heard, rung) = io::pipe().unwrap();
        let (device, bell) = (Arc::new(OwnedFd::from(device)), Arc::new(Bell { heard, rung }));
        let theirs = Arc::clone(&bell);
        let worker = thread::spawn(move || {
            let _ringer = Ringer(&theirs);
            panic!("on purpose");
        });
        assert!(worker.join().is_err());
        assert!(serve_the_rest(&dispatch, &device, &bell).is_ok());
        // At the end of the connection they hear of it at about the same time, which is nobody's failure.
        assert!(!ends(&device));
        drop(kernel);
        let before = Instant::now();
        assert!(ends(&device) && before.elapsed() < Duration::from_millis(500), "it is not waited for");
    }
}
