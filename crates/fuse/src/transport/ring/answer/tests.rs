use pando_memfs::{MemFs, MemOptions};
use pando_vfs::Vfs;
use zerocopy::{FromBytes, FromZeros};

use super::*;
use crate::{
    Server, ServerOptions,
    channel::{MAX_BESIDES_BYTES, MAX_DATA_BYTES},
    dispatch::Dispatcher,
    wire::abi::{InHeader, Opcode, OutHeader},
};

fn dispatcher(options: MemOptions) -> Dispatcher {
    let vfs = Vfs::new(MemFs::new(options)).unwrap();
    Dispatcher { server: Server::new(vfs, ServerOptions::default()), clear_privileges: true }
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

/// Whichever of the two is large.
#[test]
fn reply_replaces_request_in_place() {
    let dispatcher = dispatcher(MemOptions::default());
    let mut answerer = Answerer::new(&dispatcher);
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
    // Rings bring no FORGET. If one came all the same, the kernel would wait for a reply.
    let mut forget = header(Opcode::Forget, 0);
    assert_eq!(answerer.answer(&mut forget, &mut payload, Some(0)), None);
    assert_eq!(answered(&forget), (-5, 6));
    // A length beyond the payload is cut to the payload.
    let mut wrong = header(Opcode::Unlink, usize::MAX);
    assert_eq!(answerer.answer(&mut wrong, &mut payload, Some(0)), None);
    assert_eq!(answered(&wrong).1, 6);
}

/// It is tried again for a while, and then fails.
#[test]
fn request_without_space_stays_unchanged() {
    let dispatcher = dispatcher(MemOptions::new().inodes(2));
    let mut answerer = Answerer::new(&dispatcher);
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
    assert!(mkdir(b"two\0", Some(0)).0, "tried once more");
    assert_eq!(mkdir(b"two\0", Some(100)), (false, -28), "tried for long enough");
    assert_eq!(mkdir(b"two\0", None), (false, -28), "must be answered now");
    dispatcher.server.rmdir(crate::Caller::new(0, 0), 1, b"one").unwrap();
    assert!(mkdir(b"two\0", Some(1)).0, "the kernel has not forgotten the removed one");
}
