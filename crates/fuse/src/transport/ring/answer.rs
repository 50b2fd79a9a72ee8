//! Answers the requests of a ring: each reply goes into the memory that its request came in.

use std::time::Duration;

use pando_vfs::Error;
use tracing::error;
use zerocopy::IntoBytes;

use super::sys::Header;
use crate::{
    channel::{HEADER_BYTES, out_header},
    dispatch::{Dispatch, Reply},
    wire::{Outcome, Request},
};

/// A request of at most this many bytes is copied, because its reply may be large and is written
/// over it. Larger requests (data to write, values of extended attributes) have a small reply,
/// which is copied instead.
pub(super) const SMALL_BYTES: usize = 16 << 10;

impl Header {
    /// Makes this the header of a reply, whose body is in the payload.
    pub(super) fn put(&mut self, unique: u64, outcome: Outcome) {
        self.in_out[..HEADER_BYTES].copy_from_slice(out_header(unique, outcome).as_bytes());
        self.payload_len = outcome.unwrap_or(0) as u32;
    }
}

/// Answers the requests of one ring.
pub(super) struct Answerer<'a> {
    dispatch: &'a dyn Dispatch,
    small: Vec<u8>,
}

impl<'a> Answerer<'a> {
    pub(super) fn new(dispatch: &'a dyn Dispatch) -> Self {
        Self { dispatch, small: vec![0; SMALL_BYTES] }
    }

    /// Answers the request in `header` and `payload` in place. `tries` is how often it was answered
    /// before; with None it must be answered now. A request that finds no space is left as it is if
    /// some may be freed soon. Then the time is returned after which to try again.
    pub(super) fn answer(&mut self, header: &mut Header, payload: &mut [u8], tries: Option<u32>) -> Option<Duration> {
        let Self { dispatch, small } = self;
        let request = header.request();
        let len = (header.payload_len as usize).min(payload.len());
        let reply = if len <= small.len() {
            small[..len].copy_from_slice(&payload[..len]);
            dispatch.dispatch(Request::in_parts(request, &header.structure, &small[..len]), payload)
        } else {
            let reply = dispatch.dispatch(Request::in_parts(request, &header.structure, &payload[..len]), small);
            if let Reply::Now(Ok(len)) = reply {
                payload[..len].copy_from_slice(&small[..len]);
            }
            reply
        };
        let outcome = outcome_of(&reply, request.opcode);
        if outcome == Err(Error::NoSpace)
            && let Some(pause) = tries.and_then(|tries| dispatch.pause(tries))
        {
            // An error writes nothing to the payload, so the request is still there.
            return Some(pause);
        }
        header.put(request.unique, outcome);
        None
    }
}

/// The outcome in a reply that must be sent now.
pub(super) fn outcome_of(reply: &Reply, opcode: u32) -> Outcome {
    match reply {
        Reply::Now(outcome) => *outcome,
        // Rings bring no FORGET, and a mount with delays is not served through rings.
        Reply::None | Reply::Held(..) => {
            error!(opcode, "a request through a ring has no reply now");
            Err(Error::Io)
        }
    }
}

#[cfg(test)]
mod tests;
