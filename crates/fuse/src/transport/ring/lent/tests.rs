use std::{cell::Cell, num::NonZeroUsize, time::Duration};

use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::{
    Caller,
    dispatch::{
        Dispatcher, Reply,
        tests::{ROOT, dispatcher},
    },
    transport::ring::sys::Header,
    wire::abi::{EntryOut, InHeader, Opcode, OutHeader},
};

const UNIQUE: u64 = 6;

thread_local! {
    /// What the other threads do while this one serves a request.
    static MEANWHILE: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

/// Serves requests, and lets something happen meanwhile.
struct Slow {
    dispatcher: Dispatcher,
    /// How many replies the kernel did not get.
    unsent: AtomicUsize,
}

impl Slow {
    fn new() -> Self {
        let dispatcher = dispatcher(Duration::ZERO);
        dispatcher.server.mkdir(Caller::new(0, 0), ROOT, b"d", 0o755, 0).unwrap();
        Self { dispatcher, unsent: AtomicUsize::new(0) }
    }
}

impl Dispatch for Slow {
    fn dispatch(&self, request: Request<'_>, body: &mut [u8]) -> Reply {
        let reply = self.dispatcher.dispatch(request, body);
        MEANWHILE.take().into_iter().for_each(|act| act());
        reply
    }

    fn unsent(&self, request: Request<'_>, body: &[u8]) {
        self.unsent.fetch_add(1, Ordering::Relaxed);
        self.dispatcher.unsent(request, body);
    }

    fn share_waits(&self, threads: NonZeroUsize) {
        self.dispatcher.share_waits(threads);
    }

    fn pause(&self, tries: u32) -> Option<Duration> {
        self.dispatcher.pause(tries)
    }

    fn disconnect(&mut self) {
        self.dispatcher.disconnect();
    }
}

/// An entry with a request for a name in the root.
fn entry(opcode: Opcode, name: &[u8]) -> Entry {
    let mut entry = Entry::new(0, 4096);
    let (header, payload) = entry.parts();
    let request = InHeader { opcode: opcode as u32, node: ROOT, unique: UNIQUE, pid: 1, ..InHeader::default() };
    header.in_out[..size_of::<InHeader>()].copy_from_slice(request.as_bytes());
    header.payload_len = name.len() as u32;
    payload[..name.len()].copy_from_slice(name);
    entry
}

fn error_in(header: &Header) -> (i32, u64) {
    let (out, _) = OutHeader::read_from_prefix(&header.in_out).unwrap();
    (out.error, out.unique)
}

/// A thread that lends, and the entries that others get from it.
fn lending() -> (Lending, Arc<Mutex<Vec<Entry>>>) {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let of_others = Arc::clone(&taken);
    let succeed = move |take_over: &dyn Fn() -> Option<Entry>| {
        of_others.lock().unwrap().extend(take_over());
        Ok(())
    };
    (Lending::new(Lender::new(&Successors::new(), succeed)), taken)
}

#[test]
fn a_reply_comes_in_the_entry_of_its_request() {
    let (slow, (mut lending, _)) = (Slow::new(), lending());
    let Ok(Answered::Now(mut found)) = lending.answer(entry(Opcode::Lookup, b"d\0"), &slow) else {
        panic!("the entry is still here");
    };
    let (header, payload) = found.parts();
    assert_eq!((error_in(header), header.payload_len as usize), ((0, UNIQUE), size_of::<EntryOut>()));
    assert_ne!(EntryOut::read_from_prefix(payload).unwrap().0.node, 0);
    // A change must not be answered early, so its entry is not lent.
    assert!(lending.answer(entry(Opcode::Unlink, b"d\0"), &slow).is_err());
    assert_eq!(slow.unsent.into_inner(), 0);
}

/// The thread that was slow takes back what its reply would have given to the kernel.
#[test]
fn an_entry_that_is_taken_over_has_an_error_in_it() {
    let (slow, (mut lending, taken)) = (Slow::new(), lending());
    let lender = Arc::clone(&lending.lender);
    MEANWHILE.set(Some(Box::new(move || {
        let query = lender.query().expect("it is being served");
        // As the watcher does that sees the caller die, and sees it again before the thread runs.
        Arc::clone(&lender).interrupt(query);
        Arc::clone(&lender).interrupt(query);
        lender.successors.join().unwrap();
        assert_eq!(lender.query(), None);
        assert_eq!(lender.successors.abandoned.load(Ordering::Relaxed), 1);
    })));
    assert!(matches!(lending.answer(entry(Opcode::Lookup, b"d\0"), &slow), Ok(Answered::Elsewhere)));
    assert_eq!(lending.lender.successors.abandoned.load(Ordering::Relaxed), 0);
    let mut taken = mem::take(&mut *taken.lock().unwrap());
    assert_eq!(taken.iter_mut().map(|entry| error_in(entry.parts().0)).collect::<Vec<_>>(), [(-4, UNIQUE)]);
    assert_eq!(slow.unsent.into_inner(), 1);
}
