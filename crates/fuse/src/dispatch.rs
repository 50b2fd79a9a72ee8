//! From a request to its reply.
//!
//! [`Dispatch`] is the interface between transports and whatever answers requests. [`Dispatcher`]
//! implements it with the [`Server`]. Other implementations decorate one: they see the bytes of
//! each request and of each reply, and the production path knows nothing of them.

mod exchange;

use std::{
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use pando_vfs::{Error, Result};
use tracing::{debug, error};
use zerocopy::FromBytes;

use crate::{
    channel::HeldReply,
    server::Server,
    wire::{
        Outcome, Request,
        abi::{BatchForgetIn, EntryOut, FSSETXATTR, ForgetIn, ForgetOne, Opcode, OpenOut, SETFLAGS},
        directory_entries,
    },
};
use exchange::Exchange;

/// Answers the requests of one connection. Any number of threads may call it at once.
pub(crate) trait Dispatch: Send + Sync {
    /// Answers `request`, and writes the body of the reply (all but the header) to `body`.
    fn dispatch(&self, request: Request<'_>, body: &mut [u8]) -> Reply;

    /// The kernel has not taken this reply to `request`: takes back what it would have given to the
    /// kernel, look-up counts and handles.
    fn unsent(&self, request: Request<'_>, body: &[u8]);

    /// Tells how many of `threads` threads may wait for space in here: all but one. If `threads` is
    /// 1, a request that finds no space fails at once with ENOSPC. The transport may dispatch it
    /// again after [`Dispatch::pause`].
    fn share_waits(&self, threads: NonZeroUsize);

    /// The time after which to dispatch a request again that has failed with ENOSPC, after this
    /// many `tries`. None if no space is expected.
    fn pause(&self, tries: u32) -> Option<Duration>;

    /// The connection has ended: closes all handles and drops all counts.
    fn disconnect(&mut self);
}

/// The reply to a request.
pub(crate) enum Reply {
    /// The kernel expects no reply.
    None,
    /// The reply is complete.
    Now(Outcome),
    /// The reply is complete, but must not be sent yet. [`Hold`] takes it and sends it when it is
    /// due.
    Held(Outcome, Hold),
}

/// Takes a reply and sends it later. It must not block.
pub(crate) type Hold = Box<dyn FnOnce(HeldReply)>;

/// Answers requests with a [`Server`].
pub(crate) struct Dispatcher {
    pub(crate) server: Server,
    /// Clear setuid and setgid here on a write. Otherwise the kernel asks for that before each
    /// write.
    pub(crate) clear_privileges: bool,
}

impl Dispatch for Dispatcher {
    /// A panic costs only this request.
    fn dispatch(&self, request: Request<'_>, body: &mut [u8]) -> Reply {
        let header = request.header;
        let Some(opcode) = Opcode::from_number(header.opcode) else {
            // The kernel asks once for each, and from then on does without.
            debug!(opcode = header.opcode, "not served");
            return Reply::Now(Err(Error::NotImplemented));
        };
        // Unwind safety: all that is used afterwards is a number of bytes. (The server catches the
        // panics of each operation itself. This is for the code between.)
        let served = catch_unwind(AssertUnwindSafe(|| {
            if matches!(opcode, Opcode::Forget | Opcode::BatchForget) {
                if self.forget(request).is_err() {
                    error!(?opcode, "malformed");
                }
                return Reply::None;
            }
            let is_end = matches!(opcode, Opcode::Release | Opcode::Releasedir | Opcode::Destroy);
            if self.server.is_shut_down() && !is_end {
                return Reply::Now(Err(Error::Io));
            }
            let exchange = Exchange::new(&self.server, self.clear_privileges, request, body);
            let outcome = self.server.answer(|| exchange.run(opcode));
            Reply::Now(self.made_durable(opcode, request, body, outcome))
        }));
        served.unwrap_or_else(|_| {
            error!(?opcode, "a request panicked and was answered with EIO; the mount goes on");
            Reply::Now(Err(Error::Io))
        })
    }

    fn unsent(&self, request: Request<'_>, body: &[u8]) {
        let forget = |entry: &[u8]| {
            if let Ok((EntryOut { node, .. }, _)) = EntryOut::read_from_prefix(entry)
                && node != 0
            {
                self.server.forget(node, 1);
            }
        };
        let close = |open: &[u8]| {
            if let Ok((OpenOut { handle, .. }, _)) = OpenOut::read_from_prefix(open) {
                // No program has used it.
                let _ = self.server.release(handle);
            }
        };
        use Opcode as O;
        match Opcode::from_number(request.header.opcode) {
            Some(O::Lookup | O::Mknod | O::Mkdir | O::Symlink | O::Link) => forget(body),
            Some(O::Readdirplus) => {
                directory_entries(body, true).for_each(|(start, _)| forget(&body[start..]));
                self.server.end_listings(request.header.node);
            }
            Some(O::Readdir | O::Ioctl) => self.server.end_listings(request.header.node),
            Some(O::Open | O::Opendir) => close(body),
            Some(O::Create | O::Tmpfile) => {
                close(body.get(size_of::<EntryOut>()..).unwrap_or_default());
                forget(body);
            }
            _ => {}
        }
    }

    fn share_waits(&self, threads: NonZeroUsize) {
        self.server.share_waits(threads);
    }

    fn pause(&self, tries: u32) -> Option<Duration> {
        self.server.pause(tries)
    }

    fn disconnect(&mut self) {
        self.server.disconnect();
    }
}

/// Whether a request may have changed the tree.
fn changes_tree(opcode: Opcode, request: Request<'_>) -> bool {
    opcode.changes_tree() || matches!(request.ioctl(), Some(SETFLAGS | FSSETXATTR))
}

impl Dispatcher {
    /// The outcome of a request, after what it has changed is durable, if the mount asks for that.
    /// If it cannot be made durable, the tree stops: the kernel has not noticed the change, and the
    /// request must not be tried again.
    fn made_durable(&self, opcode: Opcode, request: Request<'_>, body: &[u8], outcome: Outcome) -> Outcome {
        if outcome.is_err() || !self.server.options().durable || !changes_tree(opcode, request) {
            return outcome;
        }
        let Err(error) = self.server.vfs().sync() else { return outcome };
        error!(%error, "a change cannot be made durable, and the tree fails all further requests");
        self.unsent(request, body);
        self.server.stop();
        Err(Error::Io)
    }

    fn forget(&self, request: Request<'_>) -> Result<()> {
        let mut args = request.args;
        if request.header.opcode == Opcode::Forget as u32 {
            self.server.forget(request.header.node, args.structure::<ForgetIn>()?.lookups);
            return Ok(());
        }
        for _ in 0..args.structure::<BatchForgetIn>()?.count {
            let ForgetOne { node, lookups } = args.next()?;
            self.server.forget(node, lookups);
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
