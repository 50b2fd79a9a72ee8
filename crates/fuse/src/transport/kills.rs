//! Callers that are killed while they wait for a source.
//!
//! A source may take long, and one on a broken network may take for ever. The kernel lets a caller
//! die only when its request is answered. It reports a signal for the caller (FUSE_INTERRUPT). If
//! the signal ends the caller, the request is answered with EINTR at once. The thread that serves
//! it goes on waiting. The kernel does not get its late reply, and what that reply would have given
//! to the kernel is taken back ([`Dispatch::unsent`](crate::dispatch::Dispatch::unsent)).
//!
//! A signal that the caller handles, such as SIGALRM or SIGWINCH, interrupts nothing, because
//! programs do not expect EINTR when they open or read files. Nor is a request answered early that
//! changes something: the kernel must learn of the change.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use pando_vfs::{OpenFlags, records::XGETDENTS};
use tracing::warn;

use crate::wire::{
    Request,
    abi::{FSGETXATTR, GETFLAGS, InterruptIn, Opcode, OpenIn},
};

/// How often a caller is looked at that has got a signal and still waits.
const AGAIN: Duration = Duration::from_millis(100);
/// How often all callers are looked at while none waits. Some signals are not reported: those that
/// come before a thread of a ring has seen the request, and those for which no thread is left to
/// read the report.
const ALL: Duration = Duration::from_secs(5);
/// How often they are looked at while some wait.
const ALL_AGAIN: Duration = Duration::from_secs(1);
/// After so many looks at which no thread was serving a request, it has been answered. One that was
/// just read may not be served yet.
const MISSED_MOST: u32 = 10;
/// The most threads that are replaced while they wait for nobody.
pub(super) const ABANDONED_MOST: usize = 1024;

/// A thread that serves requests of the kernel.
pub(super) trait Serving: Send + Sync + 'static {
    /// The request that the thread serves, if that changes nothing.
    fn query(&self) -> Option<Query>;

    /// Answers a request with EINTR, because its caller was killed. False if the thread does not
    /// serve it any more, or if this must be tried again.
    fn interrupt(self: Arc<Self>, query: Query) -> bool;
}

/// A request that changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) unique: u64,
    tid: u32,
}

impl Query {
    /// None if the request may not be answered early.
    pub(super) fn of(request: Request<'_>) -> Option<Self> {
        let header = request.header;
        // The number of a thread that this process cannot see is 0.
        (header.pid != 0 && changes_nothing(request)).then_some(Self { unique: header.unique, tid: header.pid })
    }
}

/// The requests of one connection that may be answered early.
pub(super) struct Kills<S> {
    /// A leaf.
    state: Mutex<State<S>>,
}

struct State<S> {
    /// One for each thread that serves requests.
    serving: Vec<Weak<S>>,
    /// The requests whose callers have got a signal.
    signalled: Vec<Signalled>,
    /// The thread that looks at them. None if it could not be started.
    watcher: Option<JoinHandle<()>>,
    /// No caller is looked at any more.
    is_over: bool,
}

/// A request whose caller has got a signal.
struct Signalled {
    unique: u64,
    /// At how many looks no thread was serving it.
    missed: u32,
}

impl<S: Serving> Kills<S> {
    /// Starts the thread that looks at callers. [`Kills::end`] ends it.
    pub(super) fn new() -> Arc<Self> {
        let state = State { serving: Vec::new(), signalled: Vec::new(), watcher: None, is_over: false };
        let kills = Arc::new(Self { state: Mutex::new(state) });
        let watched = Arc::downgrade(&kills);
        match thread::Builder::new().name("pando-kills".into()).spawn(move || watch(&watched)) {
            Ok(watcher) => kills.state().watcher = Some(watcher),
            Err(error) => warn!(%error, "a killed program waits until its request is answered"),
        }
        kills
    }

    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a thread that serves requests.
    pub(super) fn add_thread(&self, thread: &Arc<S>) {
        let mut state = self.state();
        state.serving.retain(|serving| serving.strong_count() > 0);
        state.serving.push(Arc::downgrade(thread));
    }

    /// If this request reports a signal for the caller of another one, takes note of it.
    pub(super) fn notes(self: &Arc<Self>, mut request: Request<'_>) -> bool {
        if request.header.opcode != Opcode::Interrupt as u32 {
            return false;
        }
        let Ok(InterruptIn { unique }) = request.args.structure() else { return true };
        let mut state = self.state();
        if let Some(watcher) = &state.watcher {
            watcher.thread().unpark();
            state.signalled.push(Signalled { unique, missed: 0 });
        }
        true
    }

    /// Ends the thread that looks at callers.
    pub(super) fn end(&self) {
        let watcher = {
            let mut state = self.state();
            state.is_over = true;
            state.watcher.take()
        };
        if let Some(watcher) = watcher {
            watcher.thread().unpark();
            let _ = watcher.join();
        }
    }

    /// Looks at the callers that have got a signal.
    fn look(&self) {
        let mut signalled = std::mem::take(&mut self.state().signalled);
        let serving = self.serving();
        signalled.retain_mut(|Signalled { unique, missed }| {
            let served = serving.iter().find_map(|serving| {
                let query = serving.query().filter(|query| query.unique == *unique)?;
                Some((query, serving))
            });
            let Some((query, serving)) = served else {
                *missed += 1;
                return *missed < MISSED_MOST;
            };
            *missed = 0;
            // While the caller waits, no other thread has its number.
            !is_dying(query.tid) || !Arc::clone(serving).interrupt(query)
        });
        self.state().signalled.append(&mut signalled);
    }

    /// Looks at all callers that waited before and still wait. Returns those that wait now.
    fn look_at_all(&self, before: &[Query]) -> Vec<Query> {
        let waiting: Vec<Query> = self.serving().iter().filter_map(|serving| serving.query()).collect();
        let dying = waiting.iter().filter(|query| before.contains(query) && is_dying(query.tid));
        let mut dying: Vec<_> = dying.map(|query| Signalled { unique: query.unique, missed: 0 }).collect();
        self.state().signalled.append(&mut dying);
        waiting
    }

    fn serving(&self) -> Vec<Arc<S>> {
        self.state().serving.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Looks at callers until the end.
fn watch<S: Serving>(kills: &Weak<Kills<S>>) {
    let (mut looked, mut pause, mut waiting) = (Instant::now(), ALL, Vec::new());
    while let Some(kills) = kills.upgrade() {
        if looked.elapsed() >= pause {
            waiting = kills.look_at_all(&waiting);
            looked = Instant::now();
            pause = if waiting.is_empty() { ALL } else { ALL_AGAIN };
        }
        kills.look();
        let (is_over, has_signalled) = {
            let state = kills.state();
            (state.is_over, !state.signalled.is_empty())
        };
        if is_over {
            return;
        }
        drop(kills);
        thread::park_timeout(if has_signalled { AGAIN } else { pause });
    }
}

/// Whether a request may be answered with EINTR and yet be served.
fn changes_nothing(mut request: Request<'_>) -> bool {
    use Opcode as O;
    match Opcode::from_number(request.header.opcode) {
        Some(O::Open) => {
            request.args.structure().is_ok_and(|OpenIn { flags, .. }| flags & OpenFlags::TRUNC.bits() == 0)
        }
        Some(O::Ioctl) => matches!(request.ioctl(), Some(XGETDENTS | GETFLAGS | FSGETXATTR)),
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
