//! Callers that are killed while they wait for a source.
//!
//! A source may take long, and one on a broken network may take for ever. The kernel lets a caller
//! die only when its request is answered. It reports a signal for the caller (FUSE_INTERRUPT). If
//! the signal ends the caller, the request is answered with EINTR at once. The thread that serves
//! it goes on waiting. The kernel does not take its late reply, and what that reply would have
//! given to the kernel is taken back ([`Dispatch::unsent`](crate::dispatch::Dispatch::unsent)).
//!
//! A signal that the caller handles, such as SIGALRM or SIGWINCH, interrupts nothing, because
//! programs do not expect EINTR when they open or read files. Nor is a request answered early that
//! changes something: the kernel must learn of the change.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use pando_vfs::{Error, OpenFlags};
use tracing::{debug, warn};

use crate::{
    channel::{HEADER_BYTES, send},
    wire::{
        Request,
        abi::{InterruptIn, Opcode, OpenIn},
    },
};

/// How often a caller is looked at that has got a signal and still waits.
const AGAIN: Duration = Duration::from_millis(100);
/// After so many looks at which no thread was serving a request, it has been answered. One that was
/// just read may not be served yet.
const MISSED_MOST: u32 = 10;
/// The most threads that are replaced while they wait for nobody.
const ABANDONED_MOST: usize = 1024;

/// The requests of one connection that may be answered early.
#[derive(Default)]
pub(super) struct Kills {
    /// A leaf.
    state: Mutex<State>,
    /// How many threads serve a request whose caller was killed. Atomic: a hint.
    abandoned: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    /// One for each thread of the pool.
    serving: Vec<Weak<Serving>>,
    /// The requests whose callers have got a signal.
    signalled: Vec<Signalled>,
    /// There is a thread that looks at them.
    has_watcher: bool,
}

/// A request whose caller has got a signal.
struct Signalled {
    unique: u64,
    /// At how many looks no thread was serving it.
    missed: u32,
}

/// The request that one thread serves.
pub(super) struct Serving {
    channel: Arc<OwnedFd>,
    /// The request, if it changes nothing. A leaf.
    query: Mutex<Option<Query>>,
    /// That of [`Kills`].
    abandoned: Arc<AtomicUsize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Query {
    unique: u64,
    tid: u32,
    /// Its caller was killed.
    is_abandoned: bool,
}

/// A request is being served, until this is dropped.
pub(super) struct Begun<'a>(&'a Serving);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if self.0.query().take().is_some_and(|query| query.is_abandoned) {
            self.0.abandoned.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Serving {
    fn query(&self) -> MutexGuard<'_, Option<Query>> {
        self.query.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller of a request was killed. False if the thread does not serve it any more.
    fn abandon(&self, served: Query) -> bool {
        let mut query = self.query();
        let is_served = *query == Some(served);
        if is_served {
            *query = Some(Query { is_abandoned: true, ..served });
            self.abandoned.fetch_add(1, Ordering::Relaxed);
        }
        is_served
    }

    /// A thread begins to serve a request.
    pub(super) fn begin(&self, request: Request<'_>) -> Begun<'_> {
        let header = request.header;
        // The number of a thread that this process cannot see is 0.
        if header.pid != 0 && changes_nothing(request) {
            *self.query() = Some(Query { unique: header.unique, tid: header.pid, is_abandoned: false });
        }
        Begun(self)
    }
}

impl Kills {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more threads there may be, because others serve requests of callers that were
    /// killed.
    pub(super) fn replaced(&self) -> usize {
        self.abandoned.load(Ordering::Relaxed).min(ABANDONED_MOST)
    }

    /// Adds a thread, which serves requests that it reads from this channel.
    pub(super) fn add_thread(&self, channel: &Arc<OwnedFd>) -> Arc<Serving> {
        let serving = Arc::new(Serving {
            channel: Arc::clone(channel),
            query: Mutex::new(None),
            abandoned: Arc::clone(&self.abandoned),
        });
        let mut state = self.state();
        state.serving.retain(|serving| serving.strong_count() > 0);
        state.serving.push(Arc::downgrade(&serving));
        serving
    }

    /// If this request reports a signal for the caller of another one, takes note of it.
    pub(super) fn notes(self: &Arc<Self>, mut request: Request<'_>) -> bool {
        if request.header.opcode != Opcode::Interrupt as u32 {
            return false;
        }
        let Ok(InterruptIn { unique }) = request.args.structure() else { return true };
        let mut state = self.state();
        state.signalled.push(Signalled { unique, missed: 0 });
        if !state.has_watcher {
            let kills = Arc::downgrade(self);
            match thread::Builder::new().name("pando-kills".into()).spawn(move || watch(&kills)) {
                Ok(_) => state.has_watcher = true,
                Err(error) => {
                    state.signalled.clear();
                    warn!(%error, "a killed program waits until its request is answered");
                }
            }
        }
        true
    }

    /// Looks at the callers that have got a signal.
    fn look(&self) {
        let (mut signalled, serving): (Vec<Signalled>, Vec<Arc<Serving>>) = {
            let mut state = self.state();
            let serving = state.serving.iter().filter_map(Weak::upgrade).collect();
            (std::mem::take(&mut state.signalled), serving)
        };
        signalled.retain_mut(|Signalled { unique, missed }| {
            let served = serving.iter().find_map(|serving| {
                let query = (*serving.query()).filter(|query| query.unique == *unique)?;
                Some((query, serving))
            });
            let Some((query, serving)) = served else {
                *missed += 1;
                return *missed < MISSED_MOST;
            };
            *missed = 0;
            // While the caller waits, no other thread has its number.
            if !is_dying(query.tid) || !serving.abandon(query) {
                return true;
            }
            debug!(query.tid, "the caller was killed; its request is answered with EINTR");
            let mut reply = [0; HEADER_BYTES];
            // If it has just been answered, the kernel refuses this reply.
            send(serving.channel.as_fd(), &mut reply, query.unique, Err(Error::Interrupted));
            false
        });
        self.state().signalled.append(&mut signalled);
    }
}

/// Looks at callers as long as there are any to look at.
fn watch(kills: &Weak<Kills>) {
    loop {
        let Some(kills) = kills.upgrade() else { return };
        kills.look();
        let mut state = kills.state();
        if state.signalled.is_empty() {
            state.has_watcher = false;
            return;
        }
        drop(state);
        drop(kills);
        thread::sleep(AGAIN);
    }
}

/// Whether a request may be answered with EINTR and yet be served.
fn changes_nothing(mut request: Request<'_>) -> bool {
    use Opcode as O;
    match Opcode::from_number(request.header.opcode) {
        Some(O::Open) => {
            request.args.structure().is_ok_and(|OpenIn { flags, .. }| flags & OpenFlags::TRUNC.bits() == 0)
        }
        Some(
            O::Lookup
            | O::Getattr
            | O::Statx
            | O::Readlink
            | O::Opendir
            | O::Read
            | O::Readdir
            | O::Readdirplus
            | O::Getxattr
            | O::Listxattr
            | O::Statfs
            | O::Lseek
            | O::Ioctl
            | O::Fsync
            | O::Fsyncdir,
        ) => true,
        _ => false,
    }
}

/// Whether a signal is pending for this thread that will end it.
fn is_dying(tid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{tid}/status")).is_ok_and(|status| has_fatal_signal(&status))
}

/// Whether `/proc/TID/status` shows a pending signal that ends the thread (`signal(7)`).
fn has_fatal_signal(status: &str) -> bool {
    const fn bit(signal: i32) -> u64 {
        1 << (signal - 1)
    }
    const KILL: u64 = bit(libc::SIGKILL);
    /// These end nothing by default.
    const HARMLESS: u64 = bit(libc::SIGCHLD)
        | bit(libc::SIGCONT)
        | bit(libc::SIGSTOP)
        | bit(libc::SIGTSTP)
        | bit(libc::SIGTTIN)
        | bit(libc::SIGTTOU)
        | bit(libc::SIGURG)
        | bit(libc::SIGWINCH);
    let field = |name| {
        let digits = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(digits.trim(), 16).ok()
    };
    // A tracer may suppress a signal, but not SIGKILL.
    let is_traced =
        status.lines().find_map(|line| line.strip_prefix("TracerPid:")).is_some_and(|tid| tid.trim() != "0");
    let fatal = || {
        let pending = field("SigPnd:")? | field("ShdPnd:")?;
        // When a signal ends a process, the kernel sends SIGKILL to each of its threads.
        let survived = field("SigBlk:")? | field("SigIgn:")? | field("SigCgt:")? | HARMLESS;
        let ends = if is_traced { 0 } else { !survived };
        Some(pending & (KILL | ends))
    };
    fatal().is_some_and(|fatal| fatal != 0)
}

#[cfg(test)]
mod tests;
