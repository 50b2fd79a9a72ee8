//! FUSE over io_uring (Linux 6.14): a request comes to a thread on the processor that asks.
//!
//! With the device, a request wakes some thread of the server, mostly on another processor, and the answer wakes whoever asked, as
//! often on another still; on idle machines these two wake-ups are most of what a request costs. Here each processor has a queue and
//! a thread, and one system call hands in an answer and waits for the next request.
//!
//! What has no answer (FORGET) comes by the device as before, to a thread that takes what has gathered every few milliseconds.
//!
//! What is hard here, and who answers it:
//!
//! | difficulty | answered by |
//! | --- | --- |
//! | memory is the kernel's and ours by turns | `sys`: borrowed only while an entry is ours, and never freed while the kernel may have it |
//! | requests wait until all queues have an entry | `workers`: threads and rings are there before the kernel is told; if it refuses an entry, it sends requests by the device, and so they are served |
//! | a thread that ends leaves who asks on its processor waiting | `workers`: all end with the first, and the connection with them |
//! | a thread that waits for room does not hear of it | `Ring`: the request is kept in its entry and tried again, and the others of that queue are served |
//! | an answer comes where its request was | `answer` |

mod answer;
mod queues;
#[allow(unsafe_code)]
mod sys;
mod workers;

use std::{fs, io, num::NonZeroUsize, path::Path, sync::Arc};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tracing::{info, warn};

use crate::{
    Connection, DeviceTransport, MountOptions, Server, Transport, device_transport::DeviceConnection, session::Session,
};
use sys::Ended;
use workers::Workers;

/// Where the kernel's administrator allows it.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// FUSE over io_uring, where it can be had.
#[derive(Debug, Clone, Copy, Default)]
pub struct RingTransport {
    /// Refuse to mount where it cannot be had, and say why. Otherwise requests go by the device then, and also where rings would
    /// make nothing better: where a thread would have several processors to serve, or there is but one.
    pub required: bool,
}

impl Transport for RingTransport {
    fn attach(&self, server: Server, mount_point: &Path, options: &MountOptions) -> io::Result<Box<dyn Connection>> {
        let workers = match self.workers(&server, options) {
            Ok(workers) => workers,
            Err(reason) if self.required => return Err(none(&reason)),
            Err(reason) => {
                info!(reason, "{NO_IO_URING}");
                return DeviceTransport.attach(server, mount_point, options);
            }
        };
        let session = Session::open(server, mount_point, options, true)?;
        let threads = options.threads;
        if session.by_ring {
            return Ok(Box::new(RingConnection { session, workers, threads, required: self.required }));
        }
        if self.required {
            session.abandon(mount_point);
            return Err(none(NOT_OFFERED));
        }
        Ok(Box::new(DeviceConnection { session, threads }))
    }
}

/// What [`RingTransport`] begins with where it refuses to mount.
pub const NO_IO_URING: &str = "no FUSE over io_uring";

const NOT_OFFERED: &str = "the kernel does not offer it";

fn none(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{NO_IO_URING}: {reason}"))
}

impl RingTransport {
    /// The threads that are to serve; or why there are none.
    fn workers(self, server: &Server, options: &MountOptions) -> Result<Workers, String> {
        if server.is_slow() {
            return Err("answers of a slow store go by the device".into());
        }
        match fs::read_to_string(SWITCH) {
            Ok(switch) if switch.trim() == "Y" => {}
            Ok(_) => return Err(format!("it is switched off (as root: echo Y > {SWITCH})")),
            Err(_) => return Err(format!("{NOT_OFFERED} (Linux 6.14 does, built with CONFIG_FUSE_IO_URING)")),
        }
        let unknown = "it cannot be found out how many processors there are";
        let shares = queues::shares(options.threads.get()).ok_or(unknown)?;
        if !self.required && (shares.len() == 1 || shares.iter().any(|share| share.processor.is_none())) {
            return Err("it is better only where each of several processors has a thread".into());
        }
        Workers::start(shares).map_err(|error| format!("its threads cannot be started: {error}"))
    }
}

/// A tree that is served through rings.
struct RingConnection {
    session: Session,
    workers: Workers,
    /// So many threads serve it if it has to go by the device after all.
    threads: NonZeroUsize,
    required: bool,
}

impl Connection for RingConnection {
    fn serve(self: Box<Self>) -> io::Result<()> {
        let Self { session: Session { device, mut dispatch, .. }, workers, threads, required } = *self;
        // Each worker has its own to hear, and tries again what finds no room.
        dispatch.server.waits_among(NonZeroUsize::MIN);
        let dispatch = Arc::new(dispatch);
        let flags = fcntl_getfl(&device)?;
        fcntl_setfl(&device, flags | OFlags::NONBLOCK)?;
        info!(threads = workers.count(), "served over io_uring");
        let served = workers.serve(&device, &dispatch);
        // The workers' references went with them.
        let Some(mut dispatch) = Arc::into_inner(dispatch) else { return served.map(|_| ()) };
        if let Ok(Ended::Refused(refused)) = served {
            if required {
                return Err(none(&refused.to_string()));
            }
            warn!(%refused, "{NO_IO_URING}: served by the device");
            fcntl_setfl(&device, flags)?;
            dispatch.server.waits_among(threads);
            return Box::new(DeviceConnection { session: Session { device, dispatch, by_ring: false }, threads })
                .serve();
        }
        dispatch.server.disconnect();
        served.map(|_| ())
    }
}
