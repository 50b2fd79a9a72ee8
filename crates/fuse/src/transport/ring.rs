//! FUSE over io_uring (Linux 6.14): a request reaches a thread on the CPU of the caller.
//!
//! With the device, a request wakes some thread of the server, usually on another CPU. The reply
//! wakes the caller, often on another CPU as well. On an idle machine these two wake-ups are most
//! of the cost of a request. Here each CPU has a queue and a thread, and one system call both
//! commits a reply and waits for the next request.
//!
//! Requests without a reply (FORGET) still arrive at the device. A thread reads them in batches,
//! every few milliseconds.
//!
//! The difficulties, and the code that answers them:
//!
//! 1. Memory belongs to the kernel and to the server in turn. `sys` borrows it only while the
//!    server owns the entry, and never frees it while the kernel may use it.
//! 2. The kernel holds requests back until all queues have an entry. So threads and rings exist
//!    before INIT (`workers`). If the kernel refuses an entry, it sends requests to the device, and
//!    they are served there.
//! 3. A thread that ends would leave the callers on its CPU waiting. When one thread ends, all end,
//!    and the connection with them (`workers`).
//! 4. A thread that waits for space would not hear that it is free. So the request stays in its
//!    entry and is tried again, and the other requests of that queue are served meanwhile
//!    (`sys::Ring`).
//! 5. A reply is written where its request is (`answer`).
//! 6. A request that waits for a source would hold up the others of its queue. On such a mount each
//!    queue has many threads, with one entry each. The kernel gives a request to the entry that
//!    came back last, so the threads that are not needed sleep. If the caller is killed, another
//!    thread takes the entry over (`lent`).

mod answer;
mod lent;
mod queues;
#[allow(unsafe_code)]
mod sys;
mod workers;

use std::{fs, io, num::NonZeroUsize, path::Path};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tracing::{info, warn};

use super::{
    Connection, Transport,
    device::{DeviceConnection, DeviceTransport},
};
use crate::{
    mount::{MountOptions, Threads},
    server::{Server, ServerOptions},
    session::Session,
};
use sys::Ended;
use workers::Workers;

/// One entry for each queue suffices while its thread answers at once. The others are for requests
/// that wait for space.
const ENTRIES_PER_QUEUE: usize = 4;

/// The administrator's switch.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// FUSE over io_uring, where the kernel has it.
#[derive(Debug, Clone, Copy, Default)]
pub struct RingTransport {
    /// Refuse to mount without io_uring, and say why there is none. If this is not set, requests
    /// then go through the device. So they do if rings would be no improvement: if a thread would
    /// serve several CPUs, or there is only one CPU.
    pub required: bool,
}

impl Transport for RingTransport {
    fn attach(&self, server: Server, mount_point: &Path, options: &MountOptions) -> io::Result<Box<dyn Connection>> {
        let workers = match self.workers(options) {
            Ok(workers) => workers,
            Err(reason) if self.required => return Err(refused(&reason)),
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
            return Err(refused(NOT_OFFERED));
        }
        Ok(Box::new(DeviceConnection { session, threads }))
    }
}

/// The error of a [`RingTransport`] that refuses to mount begins with this.
pub const NO_IO_URING: &str = "no FUSE over io_uring";

const NOT_OFFERED: &str = "the kernel does not offer it";

fn refused(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{NO_IO_URING}: {reason}"))
}

impl RingTransport {
    /// Starts the threads that will serve; or the reason why there are none.
    fn workers(self, options: &MountOptions) -> Result<Workers, String> {
        if options.injector.as_ref().is_some_and(|injector| injector.delays()) {
            return Err("delayed replies go through the device".into());
        }
        match fs::read_to_string(SWITCH) {
            Ok(switch) if switch.trim() == "Y" => {}
            Ok(_) => return Err(format!("it is switched off (as root: echo Y > {SWITCH})")),
            Err(_) => return Err(format!("{NOT_OFFERED} (Linux 6.14 does, built with CONFIG_FUSE_IO_URING)")),
        }
        let unknown = "the number of CPUs cannot be determined";
        let shares = queues::shares(options.threads.least.get()).ok_or(unknown)?;
        if !self.required && (shares.len() == 1 || shares.iter().any(|share| share.cpu.is_none())) {
            return Err("it is an improvement only if each of several CPUs has a thread".into());
        }
        let workers = if options.threads.is_elastic() {
            let shares = queues::shares_for_waiting(options.threads.most.get());
            let shares = shares.ok_or("with so many CPUs it takes too many threads")?;
            Workers::start(shares, 1)
        } else {
            Workers::start(shares, ENTRIES_PER_QUEUE)
        };
        workers.map_err(|error| format!("its threads cannot be started: {error}"))
    }
}

/// A tree that is served through rings.
struct RingConnection {
    session: Session,
    workers: Workers,
    /// The threads if requests must go through the device after all.
    threads: Threads,
    required: bool,
}

impl Connection for RingConnection {
    fn options(&self) -> ServerOptions {
        self.session.options
    }

    fn serve(self: Box<Self>) -> io::Result<()> {
        let Self { mut session, workers, threads, required } = *self;
        if !threads.is_elastic() {
            // Each worker has a queue of its own, and tries requests again that find no space.
            session.dispatch.share_waits(NonZeroUsize::MIN);
        }
        let flags = fcntl_getfl(&session.device)?;
        fcntl_setfl(&session.device, flags | OFlags::NONBLOCK)?;
        info!(threads = workers.count(), "served over io_uring");
        let may_be_killed = threads.is_elastic() && !session.holds_replies;
        let served = workers.serve(&session.device, &session.dispatch, may_be_killed);
        if let Ok(Ended::Refused(reason)) = served {
            if required {
                return Err(refused(&reason.to_string()));
            }
            warn!(%reason, "{NO_IO_URING}: served by the device");
            fcntl_setfl(&session.device, flags)?;
            session.dispatch.share_waits(threads.least);
            session.by_ring = false;
            return Box::new(DeviceConnection { session, threads }).serve();
        }
        session.disconnect();
        served.map(|_| ())
    }
}
