//! Reading and writing the device, by several threads. Each has a channel of its own.

use std::{
    io,
    num::NonZeroUsize,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
    thread,
};

use tracing::warn;

use super::{Connection, Transport, joined};
use crate::{
    channel::{HEADER_BYTES, HeldReply, MAX_BESIDES_BYTES, MAX_DATA_BYTES, Received, clone_channel, receive, send},
    dispatch::{Dispatch, Reply},
    mount::MountOptions,
    server::{Server, ServerOptions},
    session::Session,
    wire::Request,
};

/// FUSE by reading and writing `/dev/fuse`.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeviceTransport;

impl Transport for DeviceTransport {
    fn attach(&self, server: Server, mount_point: &Path, options: &MountOptions) -> io::Result<Box<dyn Connection>> {
        let session = Session::open(server, mount_point, options, false)?;
        Ok(Box::new(DeviceConnection { session, threads: options.threads }))
    }
}

/// A tree that is served by reading the device.
pub(super) struct DeviceConnection {
    pub(super) session: Session,
    pub(super) threads: NonZeroUsize,
}

impl Connection for DeviceConnection {
    fn options(&self) -> ServerOptions {
        self.session.options
    }

    fn serve(self: Box<Self>) -> io::Result<()> {
        let Self { session, threads } = *self;
        let (device, dispatch) = (&session.device, &*session.dispatch);
        let served = thread::scope(|scope| {
            let mut others = Vec::new();
            for number in 1..threads.get() {
                // On a channel of its own, a thread does not contend for the locks of the others.
                // It works without one as well.
                let channel = clone_channel(device.as_fd()).map_or_else(|_| Arc::clone(device), Arc::new);
                let reader = thread::Builder::new().name(format!("pando-fuse-{number}"));
                match reader.spawn_scoped(scope, move || serve_channel(dispatch, &channel)) {
                    Ok(thread) => others.push(thread),
                    Err(error) => {
                        warn!(%error, "the mount is served by {number} threads; no more can be started");
                        break;
                    }
                }
            }
            let mut served = serve_channel(dispatch, device);
            for thread in others {
                served = served.and(joined(thread.join()));
            }
            served
        });
        session.disconnect();
        served
    }
}

/// Reads requests from a channel and answers them, until the tree is unmounted.
fn serve_channel(dispatch: &dyn Dispatch, device: &Arc<OwnedFd>) -> io::Result<()> {
    let mut reader = Reader::new(device);
    while reader.serve_one(dispatch)? != Served::End {}
    Ok(())
}

/// Reads one channel of the device.
pub(super) struct Reader<'a> {
    device: &'a Arc<OwnedFd>,
    request: Vec<u8>,
    /// Room for the header of a reply, then for its body.
    reply: Vec<u8>,
}

/// The result of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    /// A request, which has been answered or will be.
    Answered,
    /// A request that has no reply.
    Unanswered,
    /// No request is queued, and the device does not block.
    Nothing,
    /// The tree has been unmounted.
    End,
}

impl<'a> Reader<'a> {
    pub(super) fn new(device: &'a Arc<OwnedFd>) -> Self {
        let request = vec![0; MAX_BESIDES_BYTES + MAX_DATA_BYTES];
        let reply = vec![0; HEADER_BYTES + MAX_BESIDES_BYTES + MAX_DATA_BYTES];
        Self { device, request, reply }
    }

    /// Reads one request and answers it.
    ///
    /// # Errors
    /// The device failed in a way that an unmount does not explain.
    pub(super) fn serve_one(&mut self, dispatch: &dyn Dispatch) -> io::Result<Served> {
        let Self { device, request, reply } = self;
        let len = match receive(device.as_fd(), request)? {
            Received::Request(len) => len,
            Received::Nothing => return Ok(Served::Nothing),
            Received::End => return Ok(Served::End),
        };
        // The kernel always sends whole requests. If one is not, this is not the kernel.
        let malformed = |_| io::Error::new(io::ErrorKind::InvalidData, "a request is not as long as it says");
        let request = Request::whole(&request[..len]).map_err(malformed)?;
        let unique = request.header.unique;
        match dispatch.dispatch(request, &mut reply[HEADER_BYTES..]) {
            Reply::None => return Ok(Served::Unanswered),
            Reply::Now(outcome) => send(device.as_fd(), reply, unique, outcome),
            Reply::Held(outcome, hold) => hold(HeldReply::new(device, reply, unique, outcome)),
        }
        Ok(Served::Answered)
    }
}
