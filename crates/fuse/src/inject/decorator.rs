//! A dispatcher with an injector in front of it.

use std::{num::NonZeroUsize, sync::Arc, time::Duration, time::Instant};

use pando_vfs::{
    DentryRef, Error, Vfs,
    records::{Mask, Unpacked, XGETDENTS},
};
use zerocopy::FromBytes;

use super::{Injector, Operation, ReadAt, Records, Work};
use crate::{
    channel::HeldReply,
    dispatch::{Dispatch, Reply},
    nodes::Nodes,
    server::{SERVER_PID_XATTR, is_xcreate},
    wire::{
        AttrFormat, Outcome, ReplyWriter, Request,
        abi::{
            BatchForgetIn, EntryOut, ForgetOne, GetxattrIn, IoctlOut, Opcode, ReadWriteIn, SetxattrIn, XgetdentsHead,
        },
        directory_entries,
    },
};

/// An extended attribute of every inode of a mount with an [`Injector`]. Its value is
/// [`Report::to_json`](crate::Report::to_json), the counts until now. It is not stored in the tree,
/// listxattr does not list it, and requests for it are not counted.
pub const REQUESTS_XATTR: &str = "system.pandofs.requests";

/// Passes requests on to `inner`, unless they must fail. Delays and counts them.
///
/// It decides by the bytes of requests and replies. Where these do not suffice (the size of a file
/// that is read, attributes at the time when a reply is sent), it reads the inode past the
/// dispatcher, so that such a look is neither counted nor traced.
pub(crate) struct Injected<D> {
    inner: D,
    injector: Arc<Injector>,
    nodes: Arc<Nodes>,
    /// `inner` serves STATX. If it does not, the kernel asks once and then never again.
    statx: bool,
}

impl<D: Dispatch> Injected<D> {
    /// Decorates `inner`, which serves the tree `vfs`, and STATX if `statx`.
    pub(crate) fn new(inner: D, injector: Arc<Injector>, vfs: Vfs, statx: bool) -> Self {
        Self { inner, injector, nodes: Arc::new(Nodes::new(&vfs)), statx }
    }
}

impl<D: Dispatch> Dispatch for Injected<D> {
    fn dispatch(&self, request: Request<'_>, body: &mut [u8]) -> Reply {
        let opcode = Opcode::from_number(request.header.opcode);
        let counted = opcode.and_then(|opcode| Some((opcode, Operation::of(opcode)?)));
        let Some((opcode, operation)) = counted.filter(|(opcode, _)| self.statx || *opcode != Opcode::Statx) else {
            return self.inner.dispatch(request, body);
        };
        if opcode == Opcode::Getxattr
            && let Some(reply) = self.own_xattr(request, body)
        {
            return reply;
        }
        if opcode == Opcode::Setxattr && makes_entries(request) && !self.injector.allows_xcreate() {
            // Programs then make the calls that are delayed and made to fail.
            return Reply::Now(Err(Error::NotSupported));
        }
        let is_injectable = operation != Operation::Ioctl || request.ioctl() == Some(XGETDENTS);
        if is_injectable && Operation::INJECTABLE.contains(&operation.delayed_as()) {
            return self.inject(opcode, operation, request, body);
        }
        self.injector.counts.requests(operation, if operation == Operation::Forget { forgets(request) } else { 1 });
        if operation == Operation::Copy && !self.injector.allows_copies() {
            // The kernel reads and writes then.
            return Reply::Now(Err(Error::NotImplemented));
        }
        self.inner.dispatch(request, body)
    }

    fn unsent(&self, request: Request<'_>, body: &[u8]) {
        self.inner.unsent(request, body);
    }

    fn share_waits(&self, threads: NonZeroUsize) {
        self.inner.share_waits(threads);
    }

    fn pause(&self, tries: u32) -> Option<Duration> {
        self.inner.pause(tries)
    }

    fn disconnect(&mut self) {
        self.injector.drop_replies();
        self.inner.disconnect();
    }
}

impl<D: Dispatch> Injected<D> {
    /// Answers a request for an extended attribute of the mount itself. Such requests are neither
    /// counted nor delayed.
    fn own_xattr(&self, mut request: Request<'_>, body: &mut [u8]) -> Option<Reply> {
        let whole = request;
        let (GetxattrIn { size, .. }, name) = (request.args.structure().ok()?, request.args.name().ok()?);
        if name == SERVER_PID_XATTR.as_bytes() {
            return Some(self.inner.dispatch(whole, body));
        }
        if is_xcreate(name) {
            let allowed = self.injector.allows_xcreate();
            return Some(if allowed { self.inner.dispatch(whole, body) } else { Reply::Now(Err(Error::NoData)) });
        }
        (name == REQUESTS_XATTR.as_bytes()).then(|| {
            let mut writer = ReplyWriter::new(body);
            let written = writer.sized(self.injector.report().to_json().as_bytes(), size);
            Reply::Now(written.map(|()| writer.len()))
        })
    }

    /// Serves a request of an operation that can be delayed and made to fail.
    fn inject(&self, opcode: Opcode, operation: Operation, request: Request<'_>, body: &mut [u8]) -> Reply {
        let counts = &self.injector.counts;
        counts.begin();
        counts.requests(operation, 1);
        let refused = match operation {
            // Programs then make the calls whose faults were asked for.
            Operation::Ioctl if self.injector.has_faults() => Some(Error::NotTty),
            _ => self.fault(operation, request),
        };
        let reply = match refused {
            Some(error) => Reply::Now(Err(error)),
            None => self.inner.dispatch(request, body),
        };
        // A dispatcher that holds replies back itself is not delayed further.
        let Reply::Now(outcome) = reply else {
            counts.end();
            return reply;
        };
        let body = &mut body[..outcome.unwrap_or(0)];
        if operation == Operation::Readdirplus {
            self.expire_failed_entries(body);
        }
        let work = self.work(operation, request, outcome, body);
        if let Work::Records(Records { entries, .. }) = work {
            counts.entries(entries);
        }
        let Some(due) = self.injector.due(work, Instant::now) else {
            // Before the reply is sent: a program that has the reply may ask for the counts.
            counts.end();
            return Reply::Now(outcome);
        };
        let shown = outcome.ok().and_then(|_| self.shown(opcode, request, body));
        let injector = Arc::clone(&self.injector);
        let hold = move |mut reply: HeldReply| {
            let timer = Arc::clone(&injector);
            timer.at(due, move || {
                injector.counts.end();
                if let Some(shown) = shown {
                    shown.expire_if_changed(reply.body());
                }
                reply.send();
            });
        };
        Reply::Held(outcome, Box::new(hold))
    }

    /// The error that a request must fail with, if any.
    fn fault(&self, operation: Operation, mut request: Request<'_>) -> Option<Error> {
        let name = if operation == Operation::Lookup { request.args.name().ok() } else { None };
        self.injector.fault(operation.delayed_as(), name)
    }

    /// Sets the validity time of the entries to zero whose look-up must fail. The kernel then asks
    /// for each of them. They stay counted.
    fn expire_failed_entries(&self, body: &mut [u8]) {
        let failed = |(start, name): (usize, std::ops::Range<usize>)| {
            // `.` and `..` have no node.
            let has_node = EntryOut::read_from_prefix(&body[start..]).is_ok_and(|(out, _)| out.node != 0);
            (has_node && self.injector.fault_of_entry(&body[name]).is_some()).then_some(start)
        };
        let failed: Vec<usize> = directory_entries(body, true).filter_map(failed).collect();
        for start in failed {
            AttrFormat::Entry.expire(&mut body[start..]);
        }
    }

    /// The cost of a request that has this reply.
    fn work(&self, operation: Operation, mut request: Request<'_>, outcome: Outcome, body: &[u8]) -> Work {
        match operation {
            Operation::Lookup if EntryOut::read_from_prefix(body).is_ok_and(|(out, _)| out.node != 0) => Work::Found,
            Operation::Readdir | Operation::Readdirplus => {
                let attributes = operation == Operation::Readdirplus;
                let entries = directory_entries(body, attributes).count();
                Work::Records(Records { entries, attributes, ..Records::default() })
            }
            Operation::Ioctl => records(body).map_or(Work::One(Operation::Readdir), Work::Records),
            Operation::Read if self.injector.wants_reads() => {
                let Ok(ReadWriteIn { offset, .. }) = request.args.structure() else { return Work::One(operation) };
                let (node, len) = (request.header.node, outcome.unwrap_or(0) as u64);
                let file_size = self.nodes.get(node).map_or(0, |dentry| dentry.stat().size);
                Work::Read(ReadAt { node, offset, len, file_size })
            }
            operation => Work::One(operation),
        }
    }

    /// The attributes that a reply shows, if it shows any.
    fn shown(&self, opcode: Opcode, request: Request<'_>, body: &[u8]) -> Option<Shown> {
        let (format, node) = match opcode {
            Opcode::Lookup => (AttrFormat::Entry, EntryOut::read_from_prefix(body).ok()?.0.node),
            Opcode::Getattr => (AttrFormat::Attr, request.header.node),
            Opcode::Statx => (AttrFormat::Statx, request.header.node),
            _ => return None,
        };
        // The node of a negative dentry is 0, which is no inode. If the kernel has forgotten the
        // node meanwhile, the attributes do not matter.
        let dentry = self.nodes.get(node).ok()?;
        Some(Shown { nodes: Arc::clone(&self.nodes), dentry, format })
    }
}

/// The attributes of a held reply.
struct Shown {
    nodes: Arc<Nodes>,
    dentry: DentryRef,
    format: AttrFormat,
}

impl Shown {
    /// Sets the validity time in `body` to zero if the inode has other attributes by now.
    fn expire_if_changed(&self, body: &mut [u8]) {
        if !self.format.shows(body, &self.nodes.attr(self.dentry.stat())) {
            self.format.expire(body);
        }
    }
}

/// The cost of the reply to the ioctl that reads many entries. None if it is another reply.
fn records(body: &[u8]) -> Option<Records> {
    let (_, rest) = IoctlOut::read_from_prefix(body).ok()?;
    let (head, rest) = XgetdentsHead::read_from_prefix(rest).ok()?;
    let mask = Mask::from_bits(head.mask)?;
    let values = Unpacked::new(rest).map(|record| record.xattrs().count()).sum();
    Some(Records {
        entries: head.entries as usize,
        attributes: mask.contains(Mask::STAT),
        lists: mask.wants_xattrs(),
        values: if mask.contains(Mask::XATTR_VALUES) { values } else { 0 },
    })
}

/// Whether a SETXATTR makes entries.
fn makes_entries(mut request: Request<'_>) -> bool {
    request.args.structure::<SetxattrIn>().is_ok() && request.args.name().is_ok_and(is_xcreate)
}

/// How many nodes a FORGET or BATCH_FORGET names.
fn forgets(mut request: Request<'_>) -> u64 {
    if request.header.opcode == Opcode::Forget as u32 {
        return 1;
    }
    let named = request.args.structure::<BatchForgetIn>().map_or(0, |forget| u64::from(forget.count));
    named.min((request.args.rest().len() / size_of::<ForgetOne>()) as u64)
}

#[cfg(test)]
mod tests;
