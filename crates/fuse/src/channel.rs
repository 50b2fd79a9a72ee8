//! One channel of `/dev/fuse`: requests are read from it, and replies are written to it.

#[allow(unsafe_code)]
mod sys;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use pando_vfs::Error;
use rustix::io::Errno;
use tracing::error;
use zerocopy::IntoBytes;

use crate::wire::{
    Outcome,
    abi::{Notification, OutHeader},
};

pub(crate) use sys::clone_channel;

/// The device. Each descriptor that opens it is a channel.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// The largest write in one request. A larger limit gains nothing. Each thread touches its buffers
/// only as far as a request or a reply reaches.
pub(crate) const MAX_WRITE_BYTES: u32 = 1 << 20;

/// The largest data of a request or of a reply: that of one write or read.
pub(crate) const MAX_DATA_BYTES: usize = MAX_WRITE_BYTES as usize;

/// The room for all else: headers, names, extended attributes (64 KiB), the target of a link.
pub(crate) const MAX_BESIDES_BYTES: usize = 128 << 10;

/// The length of the header that each reply begins with.
pub(crate) const HEADER_BYTES: usize = size_of::<OutHeader>();

/// The result of reading a channel.
pub(crate) enum Received {
    /// A request of this many bytes.
    Request(usize),
    /// No request is queued, and the channel does not block.
    Nothing,
    /// The tree has been unmounted.
    End,
}

/// Reads one request.
///
/// # Errors
/// The device failed in a way that an unmount does not explain.
pub(crate) fn receive(device: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Ok(len) => return Ok(Received::Request(len)),
            // ENOENT: the caller was interrupted during this read.
            Err(Errno::INTR | Errno::NOENT) => {}
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            // ECONNABORTED is the end of the connection as well. A thread that has just been given
            // a request gets it. (It would mean "aborted" only with FUSE_ABORT_ERROR, which INIT
            // does not ask for.)
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::End),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The header of the reply to the request `unique`.
pub(crate) fn out_header(unique: u64, outcome: Outcome) -> OutHeader {
    let (len, error) = outcome.map_or_else(|error| (0, -error.errno()), |len| (len, 0));
    OutHeader { len: (HEADER_BYTES + len) as u32, error, unique }
}

/// The message that notifies the kernel.
pub(crate) fn notification(what: Notification, parts: &[&[u8]]) -> Vec<u8> {
    let len = HEADER_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
    let header = OutHeader { len: len as u32, error: what as i32, unique: 0 };
    [&[header.as_bytes()], parts].concat().concat()
}

/// Sends the reply to the request `unique`. `buffer` has room for the header, then the body.
/// Returns whether the kernel has taken it.
pub(crate) fn send(device: BorrowedFd<'_>, buffer: &mut [u8], unique: u64, outcome: Outcome) -> bool {
    let header = out_header(unique, outcome);
    buffer[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    match rustix::io::write(device, &buffer[..header.len as usize]) {
        Ok(_) => return true,
        // ENOENT: the request has been dropped, or answered already. The last RELEASE requests meet
        // this whenever a tree is unmounted.
        Err(Errno::NOENT | Errno::NODEV) => {}
        Err(refused) => {
            error!(%refused, ?header, "the kernel refuses a reply");
            if outcome.is_ok() {
                // Without any reply the caller would wait for ever.
                send(device, buffer, unique, Err(Error::Io));
            }
        }
    }
    false
}

/// A complete reply that has not been sent, with memory of its own. Any thread may send it.
pub(crate) struct HeldReply {
    device: Arc<OwnedFd>,
    /// Room for the header, then the body.
    buffer: Vec<u8>,
    unique: u64,
    outcome: Outcome,
}

impl HeldReply {
    /// Copies the reply to the request `unique` out of `buffer`.
    pub(crate) fn new(device: &Arc<OwnedFd>, buffer: &[u8], unique: u64, outcome: Outcome) -> Self {
        let buffer = buffer[..HEADER_BYTES + outcome.unwrap_or(0)].to_vec();
        Self { device: Arc::clone(device), buffer, unique, outcome }
    }

    /// The bytes after the header; none if the reply is an error.
    pub(crate) fn body(&mut self) -> &mut [u8] {
        &mut self.buffer[HEADER_BYTES..]
    }

    /// Sends it.
    pub(crate) fn send(mut self) {
        send(self.device.as_fd(), &mut self.buffer, self.unique, self.outcome);
    }
}
