use std::{
    io::{self, PipeReader, Read},
    os::fd::OwnedFd,
};

use pando_vfs::{SetAttr, trace::TraceOptions};
use zerocopy::IntoBytes;

use super::{
    super::{Fault, InjectorOptions, When},
    *,
};
use crate::{
    channel::HEADER_BYTES,
    dispatch::{
        Dispatcher, Hold,
        tests::{ROOT, dispatcher, request},
    },
    server::{Caller, Server},
    wire::abi::{AttrOut, OpenIn, OpenOut, SizeOut},
};

const MS: Duration = Duration::from_millis(1);
const VALID: Duration = Duration::from_secs(3);
const ME: Caller = Caller::new(0, 0);

/// A dispatcher with an injector, and the injector.
fn injected(options: InjectorOptions) -> (Injected<Dispatcher>, Arc<Injector>) {
    let injector = Arc::new(Injector::new(options).unwrap());
    let inner = dispatcher(VALID);
    let vfs = inner.server.vfs().clone();
    (Injected::new(inner, Arc::clone(&injector), vfs, true), injector)
}

fn fault(operation: Operation, when: When) -> InjectorOptions {
    InjectorOptions::new().faults(vec![Fault { operation, error: Error::Io, when }])
}

fn delay(operation: Operation) -> InjectorOptions {
    InjectorOptions::new().delays(vec![(operation, MS)])
}

impl Injected<Dispatcher> {
    fn server(&self) -> &Server {
        &self.inner.server
    }

    fn reply(&self, opcode: Opcode, node: u64, args: &[&[u8]], body: &mut [u8]) -> Reply {
        let bytes = request(opcode as u32, node, args);
        self.dispatch(Request::whole(&bytes).unwrap(), body)
    }

    /// The body of a reply that is not held back.
    fn ask(&self, opcode: Opcode, node: u64, args: &[&[u8]]) -> Result<Vec<u8>, Error> {
        let mut body = vec![0; 1 << 16];
        match self.reply(opcode, node, args, &mut body) {
            Reply::Now(outcome) => outcome.map(|len| body[..len].to_vec()),
            Reply::None => Ok(Vec::new()),
            Reply::Held(..) => panic!("{opcode:?} is not delayed"),
        }
    }

    /// A reply that is held back, after `meanwhile`: the bytes after its header.
    fn ask_held(&self, opcode: Opcode, node: u64, args: &[&[u8]], meanwhile: impl FnOnce()) -> Vec<u8> {
        let mut buffer = vec![0; HEADER_BYTES + (1 << 16)];
        let Reply::Held(outcome, hold) = self.reply(opcode, node, args, &mut buffer[HEADER_BYTES..]) else {
            panic!("{opcode:?} is delayed")
        };
        meanwhile();
        sent(&buffer, outcome, hold)
    }

    fn open(&self, node: u64) -> u64 {
        let opened = self.ask(Opcode::Open, node, &[OpenIn { flags: 0, open_flags: 0 }.as_bytes()]).unwrap();
        OpenOut::read_from_bytes(&opened).unwrap().handle
    }

    /// A READDIRPLUS reply of at most `size` bytes: the name, the cookie and the node of each
    /// entry, and whether it is valid for some time.
    fn readdirplus(&self, handle: u64, offset: u64, size: u32) -> Vec<(Vec<u8>, u64, u64, bool)> {
        let args = ReadWriteIn { handle, offset, size, ..ReadWriteIn::default() };
        let body = self.ask(Opcode::Readdirplus, ROOT, &[args.as_bytes()]).unwrap();
        let entry = |(start, name): (usize, std::ops::Range<usize>)| {
            let out = EntryOut::read_from_prefix(&body[start..]).unwrap().0;
            let cookie = u64::read_from_prefix(&body[start + size_of::<EntryOut>() + 8..]).unwrap().0;
            (body[name].to_vec(), cookie, out.node, out.entry_valid > 0 && out.attr_valid > 0)
        };
        directory_entries(&body, true).map(entry).collect()
    }
}

/// Has a held reply sent to a pipe. Returns the bytes after its header.
fn sent(buffer: &[u8], outcome: Outcome, hold: Hold) -> Vec<u8> {
    let (mut reader, writer): (PipeReader, _) = io::pipe().unwrap();
    hold(HeldReply::new(&Arc::new(OwnedFd::from(writer)), buffer, 4, outcome));
    let mut bytes = Vec::new();
    // It ends when the reply has been sent and dropped.
    reader.read_to_end(&mut bytes).unwrap();
    bytes.split_off(HEADER_BYTES)
}

#[test]
fn failed_entries_are_expired_but_counted() {
    type IsValid = fn(name: &[u8], number: usize) -> bool;
    let cases: [(InjectorOptions, IsValid); 3] = [
        (fault(Operation::Lookup, When::Always), |_, _| false),
        (fault(Operation::Lookup, When::Named(b"a".into())), |name, _| name != b"a"),
        (fault(Operation::Getattr, When::Nth(2)), |_, number| number != 2),
    ];
    for (options, is_valid) in cases {
        let (injected, injector) = injected(options);
        let made = [&b"a"[..], b"b"].map(|name| injected.server().mknod(ME, ROOT, name, 0o100_644, 0, 0).unwrap());
        made.iter().for_each(|attr| injected.server().forget(attr.node, 1));
        let dir = injected.open(ROOT);
        // Replies of one entry: an entry that did not fit is asked for again, and must not count
        // as two requests.
        let (mut seen, mut cookie) = (Vec::new(), 0);
        while let [(name, next, node, valid)] = &injected.readdirplus(dir, cookie, 160)[..] {
            cookie = *next;
            if *node != 0 {
                seen.push((name.clone(), *valid));
            }
        }
        assert_eq!(seen.len(), 2);
        for (index, (name, valid)) in seen.iter().enumerate() {
            assert_eq!(*valid, is_valid(name, index + 1), "{name:?}");
        }
        for (attr, name) in made.iter().zip([&b"a"[..], b"b"]) {
            injected.server().unlink(ME, ROOT, name).unwrap();
            assert!(injected.server().getattr(attr.node).is_ok());
            injected.server().forget(attr.node, 1);
            assert_eq!(injected.server().getattr(attr.node), Err(Error::Stale));
        }
        assert_eq!((injector.report().entries, injector.report().count(Operation::Readdirplus)), (4, 5));
    }
}

#[test]
fn held_attributes_are_expired_if_they_have_changed() {
    let (injected, _) =
        injected(InjectorOptions::new().delays(vec![(Operation::Lookup, MS), (Operation::Getattr, MS)]));
    let server = injected.server();
    let node = server.mknod(ME, ROOT, b"f", 0o100_644, 0, 0).unwrap().node;
    // A file without blocks is shown with one, which is no change.
    server.setattr(ME, node, None, &SetAttr::new().size(10_000)).unwrap();
    let chmod = || {
        server.setattr(ME, node, None, &SetAttr::new().mode(0o600)).unwrap();
    };
    for changes in [false, true] {
        let meanwhile = || {
            if changes {
                chmod()
            }
        };
        let entry = injected.ask_held(Opcode::Lookup, ROOT, &[b"f\0"], meanwhile);
        let entry = EntryOut::read_from_bytes(&entry).unwrap();
        let valid = if changes { 0 } else { 3 };
        assert_eq!((entry.node, entry.attr_valid, entry.entry_valid), (node, valid, valid));
        let attr = injected.ask_held(Opcode::Getattr, node, &[&[0; 16]], meanwhile);
        assert_eq!(AttrOut::read_from_bytes(&attr).unwrap().attr_valid, valid);
    }
}

#[test]
fn own_attributes_are_neither_counted_nor_delayed() {
    let (injected, injector) = injected(delay(Operation::Getxattr));
    let ask = |name: &str, size| {
        let args = GetxattrIn { size, padding: 0 };
        injected.ask(Opcode::Getxattr, ROOT, &[args.as_bytes(), name.as_bytes(), b"\0"])
    };
    assert_eq!(ask(SERVER_PID_XATTR, 100).unwrap(), std::process::id().to_string().into_bytes());
    let report = ask(REQUESTS_XATTR, 4096).unwrap();
    assert_eq!(report, injector.report().to_json().into_bytes());
    assert_eq!(SizeOut::read_from_bytes(&ask(REQUESTS_XATTR, 0).unwrap()).unwrap().size as usize, report.len());
    assert_eq!(ask(REQUESTS_XATTR, 3), Err(Error::Range));
    assert_eq!(injector.report().count(Operation::Getxattr), 0);
}

/// The kernel asks once for STATX. A fault must not replace the reply that it is not served.
#[test]
fn statx_that_is_not_served_is_not_injected() {
    let (mut injected, injector) = injected(fault(Operation::Getattr, When::Always));
    injected.statx = false;
    injected.inner = dispatcher(Duration::ZERO);
    assert_eq!(injected.ask(Opcode::Statx, ROOT, &[&[0; 24]]), Err(Error::NotImplemented));
    assert_eq!(injector.report().count(Operation::Getattr), 0);
}

/// The injector reads the size of the file past the tracer.
#[test]
fn delayed_read_is_traced_once() {
    let (injected, _) = injected(InjectorOptions::new().seek(MS));
    let (server, mut events) = (injected.server(), Vec::new());
    let (made, handle) = server.create(ME, ROOT, b"f", 0o644, 0, 2).unwrap();
    let mut tracer = server.vfs().trace(TraceOptions::default()).unwrap();
    let args = ReadWriteIn { handle, size: 100, ..ReadWriteIn::default() };
    injected.ask_held(Opcode::Read, made.node, &[args.as_bytes()], || ());
    tracer.poll(usize::MAX, |event| events.push(event.op.name()));
    assert_eq!(events, ["read"]);
}

#[test]
fn every_node_of_a_batch_is_counted_as_forgotten() {
    let (injected, injector) = injected(InjectorOptions::default());
    injected.ask(Opcode::Forget, 7, &[&1_u64.to_ne_bytes()]).unwrap();
    injected.ask(Opcode::BatchForget, 0, &[&2_u32.to_ne_bytes(), &[0; 4], &[1; 32]]).unwrap();
    assert_eq!(injector.report().count(Operation::Forget), 3);
}
