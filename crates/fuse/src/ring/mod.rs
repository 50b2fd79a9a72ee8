//! FUSE over io_uring (Linux 6.14): a request comes to a thread on the processor that asks.
//!
//! With the device, a request wakes some thread of the server, mostly on another processor, and the answer wakes whoever asked, as
//! often on another still; on idle machines these two wake-ups are most of what a request costs. Here each processor has a queue and
//! a thread, and one system call hands in an answer and waits for the next request.
//!
//! What has no answer (FORGET) comes by the device as before, to a thread that takes what has gathered every few milliseconds.
//!
//! One entry for each queue is enough: its thread does one thing at a time, and the call that hands in an answer brings the next
//! request if one has waited.

mod queues;
#[allow(unsafe_code)]
mod sys;

use std::{
    fs,
    io::{self, PipeReader, PipeWriter},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use pando_vfs::Error;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    thread::{CpuSet, sched_setaffinity},
};
use tracing::{debug, error, info, warn};
use zerocopy::IntoBytes;

use crate::{
    Connection, DeviceTransport, MountOptions, Server, Transport,
    device_transport::{DeviceConnection, Expected, Reader},
    dispatch::{Answered, Dispatch, Reply},
    session::{HEADER_BYTES, MAX_BESIDES_BYTES, MAX_DATA_BYTES, Session},
    wire::{Request, abi::OutHeader},
};
use queues::Share;
use sys::{Header, Ring, Uring};

/// Where the kernel's administrator allows it.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// How long what has no answer gathers. The room that it gives back is waited for longer, where it is needed.
const GATHER: Duration = Duration::from_millis(5);

/// FUSE over io_uring, where it can be had.
#[derive(Debug, Clone, Copy, Default)]
pub struct RingTransport {
    /// Refuse to mount where it cannot be had, and say why, instead of going by the device.
    pub required: bool,
}

impl Transport for RingTransport {
    fn attach(&self, server: Server, mount_point: &Path, options: &MountOptions) -> io::Result<Box<dyn Connection>> {
        let (workers, bell) = match workers(&server, options) {
            Ok(workers) => workers,
            Err(reason) if self.required => return Err(none(&reason)),
            Err(reason) => {
                debug!(reason, "{NO_IO_URING}");
                return DeviceTransport.attach(server, mount_point, options);
            }
        };
        let session = Session::open(server, mount_point, options, true)?;
        if session.by_ring {
            return Ok(Box::new(RingConnection { session, workers, bell }));
        }
        if self.required {
            session.abandon(mount_point);
            return Err(none(NOT_OFFERED));
        }
        Ok(Box::new(DeviceConnection { session, threads: options.threads.get() }))
    }
}

/// What [`RingTransport`] begins with where it refuses to mount.
pub const NO_IO_URING: &str = "no FUSE over io_uring";

const NOT_OFFERED: &str = "the kernel does not offer it";

fn none(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{NO_IO_URING}: {reason}"))
}

/// The threads that are to serve; or why there can be none.
fn workers(server: &Server, options: &MountOptions) -> Result<(Vec<Worker>, Arc<Bell>), String> {
    if server.is_slow() {
        return Err("answers of a slow store go by the device".into());
    }
    match fs::read_to_string(SWITCH) {
        Ok(switch) if switch.trim() == "Y" => {}
        Ok(_) => return Err(format!("it is switched off (as root: echo Y > {SWITCH})")),
        Err(_) => return Err(format!("{NOT_OFFERED} (Linux 6.14 does, built with CONFIG_FUSE_IO_URING)")),
    }
    let shares = queues::shares(options.threads.get()).ok_or("it cannot be found out how many processors there are")?;
    let start = || {
        let (heard, rung) = io::pipe()?;
        let bell = Arc::new(Bell { heard, rung });
        let workers = shares.into_iter().enumerate();
        let workers = workers.map(|(number, share)| Worker::start(number, share, Arc::clone(&bell)));
        Ok((workers.collect::<io::Result<_>>()?, bell))
    };
    start().map_err(|error: io::Error| format!("io_uring_setup: {error}"))
}

/// A thread with an io_uring of its own. It is there before the kernel is told that requests may come so: from then on they
/// wait until all queues are served.
struct Worker {
    begin: Sender<Work>,
    thread: JoinHandle<io::Result<()>>,
}

/// What a worker is to serve.
struct Work {
    device: Arc<OwnedFd>,
    dispatch: Arc<Dispatch>,
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

impl Worker {
    fn start(number: usize, share: Share, bell: Arc<Bell>) -> io::Result<Self> {
        let (begin, work) = mpsc::channel();
        let (is_made, made) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(format!("pando-ring-{number}")).spawn(move || {
            let (uring, made) = match sys::uring(share.queues.len()) {
                Ok(uring) => (Some(uring), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // Who started it may have given up for want of another.
            let _ = is_made.send(made);
            match (uring, work.recv()) {
                (Some(uring), Ok(work)) => serve(uring, &share, &work, &bell),
                _ => Ok(()),
            }
        })?;
        made.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        Ok(Self { begin, thread })
    }
}

fn serve(uring: Uring, share: &Share, work: &Work, bell: &Bell) -> io::Result<()> {
    let _ringer = Ringer(bell);
    stay_on(share.processor);
    let mut ring = Ring::new(uring, Arc::clone(&work.device), &share.queues, MAX_BESIDES_BYTES + MAX_DATA_BYTES);
    let mut small = vec![0; SMALL_BYTES];
    let answer = |header: &mut Header, payload: &mut [u8]| answer(&work.dispatch, header, payload, &mut small);
    ring.serve(bell.heard.as_fd(), || ends(&work.device), answer)
        .inspect_err(|error| error!(%error, "a ring of the server has ended"))
}

/// A tree that is served through rings.
struct RingConnection {
    session: Session,
    workers: Vec<Worker>,
    bell: Arc<Bell>,
}

impl Connection for RingConnection {
    fn serve(self: Box<Self>) -> io::Result<()> {
        let Self { session: Session { device, dispatch, .. }, workers, bell } = *self;
        let dispatch = Arc::new(dispatch);
        for worker in &workers {
            // It waits for nothing else.
            let _ = worker.begin.send(Work { device: Arc::clone(&device), dispatch: Arc::clone(&dispatch) });
        }
        info!(threads = workers.len(), "served over io_uring");
        let mut served = serve_the_rest(&dispatch, &device, &bell);
        for worker in workers {
            let ended = worker.thread.join();
            served = served.and(ended.unwrap_or_else(|_| Err(io::Error::other("a thread of the server panicked"))));
        }
        // The workers' references went with them.
        if let Some(mut dispatch) = Arc::into_inner(dispatch) {
            dispatch.server.disconnect();
        }
        served
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
        match by_device.then(|| reader.one(dispatch)).transpose()? {
            Some(None) => return Ok(()),
            Some(Some(Expected::Nothing)) => thread::sleep(GATHER),
            Some(Some(Expected::Answer)) => {}
            None if rung && !ends(device) => return Ok(()),
            None => {}
        }
    }
}

/// Whether the connection ends, or is about to: rings may be the first to hear of it.
fn ends(device: &OwnedFd) -> bool {
    const SOON: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
    // No flags: nothing but the end is waited for.
    poll(&mut [PollFd::new(device, PollFlags::empty())], Some(&SOON)).is_ok_and(|ready| ready > 0)
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

/// Requests up to so many bytes are copied, since their answers may be large, and come where they were. Those of larger ones (data
/// to be written, values of extended attributes) are small.
const SMALL_BYTES: usize = 16 << 10;

/// Answers the request in `header` and `payload`, there.
fn answer(dispatch: &Dispatch, header: &mut Header, payload: &mut [u8], small: &mut [u8]) {
    let request = header.request();
    let len = (header.payload_len as usize).min(payload.len());
    let reply = if len <= small.len() {
        let rest = &mut small[..len];
        rest.copy_from_slice(&payload[..len]);
        dispatch.answer(Request::in_parts(request, &header.structure, rest), payload)
    } else {
        let reply = dispatch.answer(Request::in_parts(request, &header.structure, &payload[..len]), small);
        if let Reply::Now(Ok(len)) = reply {
            payload[..len].copy_from_slice(&small[..len]);
        }
        reply
    };
    let answered: Answered = match reply {
        Reply::Now(answered) => answered,
        Reply::Nothing | Reply::Later(..) => {
            error!(request.opcode, "a request through a ring has no answer now");
            Err(Error::Io)
        }
    };
    let (len, error) = answered.map_or_else(|error| (0, -error.errno()), |len| (len, 0));
    let out = OutHeader { len: (HEADER_BYTES + len) as u32, error, unique: request.unique };
    header.in_out[..HEADER_BYTES].copy_from_slice(out.as_bytes());
    header.payload_len = len as u32;
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use pando_memfs::{MemFs, MemOptions};
    use pando_vfs::Vfs;

    use super::*;
    use crate::ServerOptions;

    fn dispatch() -> Dispatch {
        let vfs = Vfs::new(MemFs::new(MemOptions::default())).unwrap();
        Dispatch { server: Server::new(vfs, ServerOptions::default()), clear_privileges: true }
    }

    fn bell() -> Bell {
        let (heard, rung) = io::pipe().unwrap();
        Bell { heard, rung }
    }

    /// A worker that ends early ends the others. A pipe stands for the device: what matters is whether it has ended.
    #[test]
    fn all_end_with_the_first() {
        let (device, kernel) = io::pipe().unwrap();
        let (device, bell) = (Arc::new(OwnedFd::from(device)), Arc::new(bell()));
        let theirs = Arc::clone(&bell);
        let worker = thread::spawn(move || {
            let _ringer = Ringer(&theirs);
            panic!("on purpose");
        });
        assert!(worker.join().is_err());
        assert!(serve_the_rest(&dispatch(), &device, &bell).is_ok());
        // At the end of the connection they hear of it at about the same time, which is nobody's failure.
        assert!(!ends(&device));
        drop(kernel);
        let before = Instant::now();
        assert!(ends(&device) && before.elapsed() < Duration::from_millis(500), "it is not waited for");
    }

    fn header(opcode: u32, payload_len: usize) -> Header {
        use crate::wire::abi::InHeader;
        use zerocopy::FromZeros;
        let mut header = Header::new_zeroed();
        let request = InHeader { opcode, node: 1, unique: 6, len: 0, ..InHeader::new_zeroed() };
        header.in_out[..40].copy_from_slice(request.as_bytes());
        header.payload_len = payload_len as u32;
        header
    }

    fn answered(header: &Header) -> (i32, u64) {
        use zerocopy::FromBytes;
        let (out, _) = OutHeader::read_from_prefix(&header.in_out).unwrap();
        (out.error, out.unique)
    }

    /// The answer comes where the request was, whichever of the two is large.
    #[test]
    fn answers_come_where_requests_were() {
        let (dispatch, mut small) = (dispatch(), vec![0; SMALL_BYTES]);
        let mut payload = vec![0; MAX_BESIDES_BYTES + MAX_DATA_BYTES];
        let value = vec![b'v'; 60_000];
        let request = [b"user.large\0", &value[..]].concat();
        payload[..request.len()].copy_from_slice(&request);
        let mut set = header(21, request.len());
        set.structure[..4].copy_from_slice(&(value.len() as u32).to_ne_bytes());
        answer(&dispatch, &mut set, &mut payload, &mut small);
        assert_eq!((answered(&set), set.payload_len), ((0, 6), 0));

        payload[..11].copy_from_slice(b"user.large\0");
        let mut get = header(22, 11);
        get.structure[..4].copy_from_slice(&65_536_u32.to_ne_bytes());
        answer(&dispatch, &mut get, &mut payload, &mut small);
        assert_eq!((answered(&get), get.payload_len), ((0, 6), 60_000));
        assert!(payload[..60_000] == value);

        payload[..5].copy_from_slice(b"none\0");
        let mut unlink = header(10, 5);
        answer(&dispatch, &mut unlink, &mut payload, &mut small);
        assert_eq!((answered(&unlink), unlink.payload_len), ((-2, 6), 0));
        // What has no answer never comes so; the kernel waits for one all the same.
        let mut forget = header(2, 0);
        answer(&dispatch, &mut forget, &mut payload, &mut small);
        assert_eq!(answered(&forget), (-5, 6));
        // More than there is memory for: what there is.
        let mut wrong = header(10, usize::MAX);
        answer(&dispatch, &mut wrong, &mut payload, &mut small);
        assert_eq!(answered(&wrong).1, 6);
    }
}
