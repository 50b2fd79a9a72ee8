//! Reading and writing the device, by several threads. Each has a channel of its own. There are
//! more of them while requests wait for a source.

mod serving;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use tracing::warn;

use super::{
    Connection, Started, Transport,
    kills::{ABANDONED_MOST, Kills},
};
use crate::{
    channel::{HEADER_BYTES, HeldReply, MAX_BESIDES_BYTES, MAX_DATA_BYTES, Received, clone_channel, receive, send},
    dispatch::{Dispatch, Reply},
    mount::{MountOptions, Threads},
    server::{Server, ServerOptions},
    session::Session,
    wire::Request,
};
use serving::Reading;

/// FUSE by reading and writing `/dev/fuse`.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeviceTransport;

impl Transport for DeviceTransport {
    fn attach(&self, server: Server, mount_point: &Path, options: &MountOptions) -> io::Result<Box<dyn Connection>> {
        let session = Session::open(server, mount_point, options, false)?;
        Ok(Box::new(DeviceConnection { session, threads: options.threads }))
    }
}

/// A tree that is served by reading the device.
pub(super) struct DeviceConnection {
    pub(super) session: Session,
    pub(super) threads: Threads,
}

impl Connection for DeviceConnection {
    fn options(&self) -> ServerOptions {
        self.session.options
    }

    fn serve(self: Box<Self>) -> io::Result<()> {
        let Self { session, threads } = *self;
        let mut pool = Pool::new(Arc::clone(&session.dispatch), Arc::clone(&session.device), threads);
        // A reply that is held back is sent by another thread, and nothing is taken back there.
        if threads.is_elastic() && !session.holds_replies {
            pool.kills = Some(Kills::new());
        }
        let pool = Arc::new(pool);
        (1..threads.least.get()).for_each(|_| pool.grow());
        let mut served = pool.serve(&session.device, true);
        served = served.and(pool.threads.join());
        if let Some(kills) = &pool.kills {
            kills.end();
        }
        drop(pool);
        session.disconnect();
        served
    }
}

/// If this many threads wait for requests, a thread that need not stay ends.
const WAITING_MOST: usize = 16;

/// The threads that serve the device. Where requests may wait for a source, there are more of them
/// while they wait: the thread that takes a request starts another thread if none is left to take
/// the next one.
struct Pool {
    dispatch: Arc<dyn Dispatch>,
    device: Arc<OwnedFd>,
    /// How many stay, and how many there may be. Immutable.
    limits: Threads,
    /// How many there are. Atomic: a single independent value.
    alive: AtomicUsize,
    /// How many wait for a request. Atomic: a hint.
    waiting: AtomicUsize,
    /// Whether a thread could not be started. Atomic: a single independent value.
    has_warned: AtomicBool,
    /// All but the first.
    threads: Started,
    /// Answers requests whose callers are killed. None if no request waits for a source.
    kills: Option<Arc<Kills<Reading>>>,
    /// How many threads serve a request whose caller was killed. Atomic: a hint.
    abandoned: Arc<AtomicUsize>,
}

/// A thread of a pool, until this is dropped.
struct Alive<'a>(&'a AtomicUsize);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// The caller is its first thread.
    fn new(dispatch: Arc<dyn Dispatch>, device: Arc<OwnedFd>, limits: Threads) -> Self {
        Self {
            dispatch,
            device,
            limits,
            alive: AtomicUsize::new(1),
            waiting: AtomicUsize::new(0),
            has_warned: AtomicBool::new(false),
            threads: Started::new(),
            kills: None,
            abandoned: Arc::default(),
        }
    }

    /// Starts a thread, unless there are enough.
    fn grow(self: &Arc<Self>) {
        let most = self.limits.most.get() + self.abandoned.load(Ordering::Relaxed).min(ABANDONED_MOST);
        let more = |alive: usize| (alive < most).then_some(alive + 1);
        let Ok(number) = self.alive.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) else { return };
        let pool = Arc::clone(self);
        let serve = move || {
            // On a channel of its own, a thread does not contend for the locks of the others. It
            // works without one as well.
            let channel = clone_channel(pool.device.as_fd()).map_or_else(|_| Arc::clone(&pool.device), Arc::new);
            pool.serve(&channel, number < pool.limits.least.get())
        };
        match thread::Builder::new().name(format!("pando-fuse-{number}")).spawn(serve) {
            Ok(thread) => self.threads.add(thread),
            Err(error) => {
                self.alive.fetch_sub(1, Ordering::Relaxed);
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    warn!(%error, "the mount is served by {number} threads; no more can be started now");
                }
            }
        }
    }

    /// Reads requests from a channel and answers them, until the tree is unmounted. A thread that
    /// does not stay ends earlier if enough others wait for requests.
    fn serve(self: &Arc<Self>, channel: &Arc<OwnedFd>, stays: bool) -> io::Result<()> {
        let _alive = Alive(&self.alive);
        let mut reader = Reader::new(channel);
        // Otherwise no thread writes what others read.
        let is_elastic = self.limits.is_elastic();
        let kills = self.kills.as_ref().map(|kills| {
            let reading = Reading::new(channel, &self.abandoned);
            kills.add_thread(&reading);
            (kills, reading)
        });
        loop {
            if is_elastic {
                self.waiting.fetch_add(1, Ordering::Relaxed);
            }
            let received = reader.receive();
            let was_last = is_elastic && self.waiting.fetch_sub(1, Ordering::Relaxed) == 1;
            let len = match received? {
                Received::Request(len) => len,
                Received::Nothing => continue,
                Received::End => return Ok(()),
            };
            let mut begun = None;
            if let Some((kills, reading)) = &kills {
                let request = reader.request(len)?;
                if kills.notes(request) {
                    continue;
                }
                begun = Some(reading.begin(request));
            }
            if was_last {
                self.grow();
            }
            reader.answer(len, &*self.dispatch)?;
            drop(begun);
            if !stays && self.waiting.load(Ordering::Relaxed) >= WAITING_MOST {
                return Ok(());
            }
        }
    }
}

/// Reads one channel of the device.
pub(super) struct Reader<'a> {
    device: &'a Arc<OwnedFd>,
    request: Vec<u8>,
    /// Room for the header of a reply, then for its body.
    reply: Vec<u8>,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    /// It has been answered or will be.
    Answered,
    /// It has no reply.
    Unanswered,
}

impl<'a> Reader<'a> {
    pub(super) fn new(device: &'a Arc<OwnedFd>) -> Self {
        let request = vec![0; MAX_BESIDES_BYTES + MAX_DATA_BYTES];
        let reply = vec![0; HEADER_BYTES + MAX_BESIDES_BYTES + MAX_DATA_BYTES];
        Self { device, request, reply }
    }

    /// Reads one request.
    ///
    /// # Errors
    /// The device failed in a way that an unmount does not explain.
    pub(super) fn receive(&mut self) -> io::Result<Received> {
        receive(self.device.as_fd(), &mut self.request)
    }

    /// The request of this many bytes that was read last.
    ///
    /// # Errors
    /// It is malformed.
    pub(super) fn request(&self, len: usize) -> io::Result<Request<'_>> {
        // The kernel always sends whole requests. If one is not, this is not the kernel.
        let malformed = |_| io::Error::new(io::ErrorKind::InvalidData, "a request is not as long as it says");
        Request::whole(&self.request[..len]).map_err(malformed)
    }

    /// Answers that request.
    ///
    /// # Errors
    /// It is malformed.
    pub(super) fn answer(&mut self, len: usize, dispatch: &dyn Dispatch) -> io::Result<Served> {
        let mut reply = std::mem::take(&mut self.reply);
        let request = self.request(len)?;
        let unique = request.header.unique;
        let served = match dispatch.dispatch(request, &mut reply[HEADER_BYTES..]) {
            Reply::None => Served::Unanswered,
            Reply::Now(outcome) => {
                if !send(self.device.as_fd(), &mut reply, unique, outcome)
                    && let Ok(body) = outcome
                {
                    dispatch.unsent(request, &reply[HEADER_BYTES..][..body]);
                }
                Served::Answered
            }
            Reply::Held(outcome, hold) => {
                hold(HeldReply::new(self.device, &reply, unique, outcome));
                Served::Answered
            }
        };
        self.reply = reply;
        Ok(served)
    }
}
