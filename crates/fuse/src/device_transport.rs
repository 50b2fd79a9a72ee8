//! The device read and written: as many threads as are asked for, each with a channel of its own.

use std::{
    io,
    num::NonZeroUsize,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
    thread,
};

use tracing::warn;

use crate::{
    Connection, MountOptions, Server, Transport,
    dispatch::{Dispatch, Reply},
    session::{HEADER_BYTES, MAX_BESIDES_BYTES, MAX_DATA_BYTES, Received, Session, ended, receive, send},
    sys,
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
pub(crate) struct DeviceConnection {
    pub(crate) session: Session,
    pub(crate) threads: NonZeroUsize,
}

impl Connection for DeviceConnection {
    fn serve(self: Box<Self>) -> io::Result<()> {
        let Self { mut session, threads } = *self;
        let (device, dispatch) = (&session.device, &session.dispatch);
        let served = thread::scope(|scope| {
            let mut others = Vec::new();
            for number in 1..threads.get() {
                // A channel of its own spares a thread the others' locks. It can do without.
                let channel = sys::clone_channel(device.as_fd()).map_or_else(|_| Arc::clone(device), Arc::new);
                let reader = thread::Builder::new().name(format!("pando-fuse-{number}"));
                match reader.spawn_scoped(scope, move || read_and_answer(dispatch, &channel)) {
                    Ok(thread) => others.push(thread),
                    Err(error) => {
                        warn!(%error, "the mount is served by {number} threads; no more can be started");
                        break;
                    }
                }
            }
            let mut served = read_and_answer(dispatch, device);
            for thread in others {
                served = served.and(ended(thread.join()));
            }
            served
        });
        session.dispatch.server.disconnect();
        served
    }
}

/// Reads requests from the device and answers them, until the tree is unmounted.
fn read_and_answer(dispatch: &Dispatch, device: &Arc<OwnedFd>) -> io::Result<()> {
    let mut reader = Reader::new(device);
    while reader.one(dispatch)? != Came::End {}
    Ok(())
}

/// What reads one channel of the device.
pub(crate) struct Reader<'a> {
    device: &'a Arc<OwnedFd>,
    request: Vec<u8>,
    answer: Vec<u8>,
}

/// What came by the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// A request that is answered.
    Answered,
    /// A request that wants no answer.
    Unanswered,
    /// No request, of a device that does not block.
    Nothing,
    /// The tree has been unmounted.
    End,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(device: &'a Arc<OwnedFd>) -> Self {
        let request = vec![0; MAX_BESIDES_BYTES + MAX_DATA_BYTES];
        let answer = vec![0; HEADER_BYTES + MAX_BESIDES_BYTES + MAX_DATA_BYTES];
        Self { device, request, answer }
    }

    /// Reads one request and answers it.
    ///
    /// # Errors
    /// The device failed in a way that an unmount does not explain.
    pub(crate) fn one(&mut self, dispatch: &Dispatch) -> io::Result<Came> {
        let Self { device, request, answer } = self;
        let len = match receive(device.as_fd(), request)? {
            Received::Request(len) => len,
            Received::Nothing => return Ok(Came::Nothing),
            Received::End => return Ok(Came::End),
        };
        // The kernel means what it says, and we are not what it speaks to if it does not.
        let malformed = |_| io::Error::new(io::ErrorKind::InvalidData, "a request is not as long as it says");
        let request = Request::whole(&request[..len]).map_err(malformed)?;
        let unique = request.header.unique;
        match dispatch.answer(request, &mut answer[HEADER_BYTES..]) {
            Reply::Nothing => return Ok(Came::Unanswered),
            Reply::Now(answered) => send(device.as_fd(), answer, unique, answered),
            Reply::Later(answered, wait) => {
                let mut answer = answer[..HEADER_BYTES + answered.unwrap_or(0)].to_vec();
                let device = Arc::clone(device);
                dispatch.server.send_at(wait.due, move || {
                    wait.over(&mut answer[HEADER_BYTES..]);
                    send(device.as_fd(), &mut answer, unique, answered);
                });
            }
        }
        Ok(Came::Answered)
    }
}
