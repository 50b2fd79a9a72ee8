//! A request of a ring's, answered in the memory that it came in.

use std::time::Duration;

use pando_vfs::Error;
use tracing::error;
use zerocopy::IntoBytes;

use super::sys::Header;
use crate::{
    dispatch::{Dispatch, Reply},
    session::{HEADER_BYTES, out_header},
    wire::Request,
};

/// Requests up to so many bytes are copied, since their answers may be large, and come where they were. Those of larger ones (data
/// to be written, values of extended attributes) are small.
const SMALL_BYTES: usize = 16 << 10;

/// Answers the requests of one ring.
pub(super) struct Answerer<'a> {
    dispatch: &'a Dispatch,
    small: Vec<u8>,
}

impl<'a> Answerer<'a> {
    pub(super) fn new(dispatch: &'a Dispatch) -> Self {
        Self { dispatch, small: vec![0; SMALL_BYTES] }
    }

    /// Answers the request in `header` and `payload`, there. What finds no room, which may be about to come back, is left as it
    /// is, and the time told in which to ask again: after so many `tries`, and only where there are any.
    pub(super) fn answer(&mut self, header: &mut Header, payload: &mut [u8], tries: Option<u32>) -> Option<Duration> {
        let Self { dispatch, small } = self;
        let request = header.request();
        let len = (header.payload_len as usize).min(payload.len());
        let reply = if len <= small.len() {
            small[..len].copy_from_slice(&payload[..len]);
            dispatch.answer(Request::in_parts(request, &header.structure, &small[..len]), payload)
        } else {
            let reply = dispatch.answer(Request::in_parts(request, &header.structure, &payload[..len]), small);
            if let Reply::Now(Ok(len)) = reply {
                payload[..len].copy_from_slice(&small[..len]);
            }
            reply
        };
        let answered = match reply {
            Reply::Now(answered) => answered,
            Reply::Nothing | Reply::Later(..) => {
                error!(request.opcode, "a request through a ring has no answer now");
                Err(Error::Io)
            }
        };
        if answered == Err(Error::NoSpace)
            && let Some(pause) = tries.and_then(|tries| dispatch.server.pause(tries))
        {
            // An error leaves nothing in the payload: the request is still there.
            return Some(pause);
        }
        header.in_out[..HEADER_BYTES].copy_from_slice(out_header(request.unique, answered).as_bytes());
        header.payload_len = answered.unwrap_or(0) as u32;
        None
    }
}

#[cfg(test)]
mod tests {
    use pando_memfs::{MemFs, MemOptions};
    use pando_vfs::Vfs;
    use zerocopy::{FromBytes, FromZeros};

    use super::*;
    use crate::{
        Server, ServerOptions,
        session::{MAX_BESIDES_BYTES, MAX_DATA_BYTES},
        wire::abi::{InHeader, Opcode, OutHeader},
    };

    fn dispatch(options: MemOptions) -> Dispatch {
        let vfs = Vfs::new(MemFs::new(options)).unwrap();
        Dispatch { server: Server::new(vfs, ServerOptions::default()), clear_privileges: true }
    }

    fn header(opcode: Opcode, payload_len: usize) -> Header {
        let mut header = Header::new_zeroed();
        let request = InHeader { opcode: opcode as u32, node: 1, unique: 6, ..InHeader::default() };
        header.in_out[..40].copy_from_slice(request.as_bytes());
        header.payload_len = payload_len as u32;
        header
    }

    fn answered(header: &Header) -> (i32, u64) {
        let (out, _) = OutHeader::read_from_prefix(&header.in_out).unwrap();
        (out.error, out.unique)
    }

    /// The answer comes where the request was, whichever of the two is large.
    #[test]
    fn answers_come_where_requests_were() {
        let dispatch = dispatch(MemOptions::default());
        let mut answerer = Answerer::new(&dispatch);
        let mut payload = vec![0; MAX_BESIDES_BYTES + MAX_DATA_BYTES];
        let value = vec![b'v'; 60_000];
        let request = [b"user.large\0", &value[..]].concat();
        payload[..request.len()].copy_from_slice(&request);
        let mut set = header(Opcode::Setxattr, request.len());
        set.structure[..4].copy_from_slice(&(value.len() as u32).to_ne_bytes());
        assert_eq!(answerer.answer(&mut set, &mut payload, Some(0)), None);
        assert_eq!((answered(&set), set.payload_len), ((0, 6), 0));

        payload[..11].copy_from_slice(b"user.large\0");
        let mut get = header(Opcode::Getxattr, 11);
        get.structure[..4].copy_from_slice(&65_536_u32.to_ne_bytes());
        assert_eq!(answerer.answer(&mut get, &mut payload, Some(0)), None);
        assert_eq!((answered(&get), get.payload_len), ((0, 6), 60_000));
        assert!(payload[..60_000] == value);

        payload[..5].copy_from_slice(b"none\0");
        let mut unlink = header(Opcode::Unlink, 5);
        assert_eq!(answerer.answer(&mut unlink, &mut payload, Some(0)), None);
        assert_eq!((answered(&unlink), unlink.payload_len), ((-2, 6), 0));
        // What has no answer never comes so; the kernel waits for one all the same.
        let mut forget = header(Opcode::Forget, 0);
        assert_eq!(answerer.answer(&mut forget, &mut payload, Some(0)), None);
        assert_eq!(answered(&forget), (-5, 6));
        // More than there is memory for: what there is.
        let mut wrong = header(Opcode::Unlink, usize::MAX);
        assert_eq!(answerer.answer(&mut wrong, &mut payload, Some(0)), None);
        assert_eq!(answered(&wrong).1, 6);
    }

    /// What finds no room is asked again for a while, as it was, and then refused.
    #[test]
    fn a_request_that_waits_for_room_stays_as_it_is() {
        let dispatch = dispatch(MemOptions::new().inodes(2));
        let mut answerer = Answerer::new(&dispatch);
        let mut payload = vec![0; MAX_BESIDES_BYTES + MAX_DATA_BYTES];
        let mut mkdir = |name: &[u8], tries| {
            payload[..name.len()].copy_from_slice(name);
            let mut header = header(Opcode::Mkdir, name.len());
            header.structure[..4].copy_from_slice(&0o755_u32.to_ne_bytes());
            let pause = answerer.answer(&mut header, &mut payload, tries);
            assert!(pause.is_none() || header.request().opcode == Opcode::Mkdir as u32 && payload.starts_with(name));
            (pause.is_some(), answered(&header).0)
        };
        assert_eq!(mkdir(b"one\0", Some(0)), (false, 0));
        assert!(mkdir(b"two\0", Some(0)).0, "it is tried once more");
        assert_eq!(mkdir(b"two\0", Some(100)), (false, -28), "it has been tried for long enough");
        assert_eq!(mkdir(b"two\0", None), (false, -28), "it is not kept");
        dispatch.server.rmdir(crate::Caller::new(0, 0), 1, b"one").unwrap();
        assert!(mkdir(b"two\0", Some(1)).0, "the kernel has not forgotten the other");
    }
}
