//! The server's side of a trace: one thread.

use std::{
    io::{self, Read, Write},
    os::{
        fd::AsFd,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use pando_vfs::{
    Error, Vfs,
    trace::{Pace, TraceOptions, Tracer},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{debug, warn};

use super::{PathFilter, TraceEvent, TraceLine, TraceRequest, VERSION, address, is_us_or_root};

/// The largest request in bytes. A longer one is a mistake.
const REQUEST_MAX: usize = 64 << 10;

/// How long a client may take to send its request. Also how long a write to it may take before the
/// thread checks whether it must end.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The interval at which an address in use is tried again. The kernel reuses a device number as
/// soon as the last mount that had it is unmounted, which is before that mount's server hears of
/// it.
const RETRY: Duration = Duration::from_millis(2);

/// After this many tries a warning is logged, and the interval becomes longer by this factor.
const TRIES_BEFORE_WARNING: u32 = 1000;
const SLOWER: u32 = 100;

/// Listens for clients that watch a mount, until it is dropped.
#[derive(Debug)]
pub struct TraceListener {
    /// Closing it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl TraceListener {
    /// Starts to listen for the mount of `vfs`, which has this device number (`major:minor`). If
    /// another process listens there, this one begins as soon as that one has ended.
    ///
    /// # Errors
    /// There are no more descriptors or threads.
    pub fn start(vfs: Vfs, device: &str) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let address = address(device)?;
        let bound = bind(&address)?;
        let run = move || {
            let listener = match bound {
                Some(listener) => Ok(Some(listener)),
                None => bind_when_free(&address, &stopped),
            };
            let watch = listener.and_then(|listener| listener.map(|one| Watch::new(vfs, one, stopped)).transpose());
            match watch {
                Ok(Some(watch)) => watch.run(),
                Ok(None) => {}
                Err(error) => warn!(%error, "this mount cannot be traced"),
            }
        };
        let thread = std::thread::Builder::new().name("pando-trace".into()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for TraceListener {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
    }
}

/// Binds the address; none if it is in use.
fn bind(address: &SocketAddr) -> io::Result<Option<UnixListener>> {
    match UnixListener::bind_addr(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        bound => bound.map(Some),
    }
}

/// Binds the address as soon as it is free; none if the listener is dropped before.
fn bind_when_free(address: &SocketAddr, stopped: &UnixStream) -> io::Result<Option<UnixListener>> {
    let mut interval = RETRY;
    for tries in 1_u32.. {
        if let Some(listener) = bind(address)? {
            return Ok(Some(listener));
        }
        if tries == TRIES_BEFORE_WARNING {
            warn!("this mount cannot be traced yet: another process listens at its address");
            interval *= SLOWER;
        }
        let mut end = [PollFd::new(stopped, PollFlags::IN)];
        if poll(&mut end, Timespec::try_from(interval).ok().as_ref()).is_ok_and(|ready| ready > 0) {
            break;
        }
    }
    Ok(None)
}

struct Watch {
    /// Dropped first: the next mount may have this number while a large tree is still being
    /// dropped.
    listener: UnixListener,
    vfs: Vfs,
    /// Readable (at its end) when the [`TraceListener`] is dropped.
    stopped: UnixStream,
}

/// The result of a wait.
#[derive(Debug, Clone, Copy)]
struct Ready {
    stop: bool,
    new_client: bool,
    client: bool,
}

impl Watch {
    fn new(vfs: Vfs, listener: UnixListener, stopped: UnixStream) -> io::Result<Self> {
        // Only `wait` may block, because it also sees the end. A signal may end a wait although no
        // client has connected.
        listener.set_nonblocking(true)?;
        Ok(Self { listener, vfs, stopped })
    }

    fn run(&self) {
        loop {
            let ready = self.wait(None, None);
            if ready.stop {
                return;
            }
            let Some(client) = self.accept() else { continue };
            if let Err(error) = self.serve(client) {
                debug!(%error, "a trace has ended");
            }
        }
    }

    /// Waits for the end, a new client, or input from `client`; at most for the time `limit`.
    fn wait(&self, client: Option<&UnixStream>, limit: Option<Duration>) -> Ready {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut fds = vec![PollFd::new(&self.stopped, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(client.map(|client| PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN)));
        if let Err(error) = poll(&mut fds, limit.as_ref())
            && error != rustix::io::Errno::INTR
        {
            warn!(%error, "tracing has ended: cannot wait");
            return Ready { stop: true, new_client: false, client: false };
        }
        let ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        Ready { stop: ready(0), new_client: ready(1), client: ready(2) }
    }

    /// Accepts a client that may watch. Other clients are disconnected without a message. Does not
    /// wait.
    fn accept(&self) -> Option<UnixStream> {
        let client = self.listener.accept().ok()?.0;
        client.set_read_timeout(Some(TIMEOUT)).ok()?;
        client.set_write_timeout(Some(TIMEOUT)).ok()?;
        is_us_or_root(&client).then_some(client)
    }

    fn serve(&self, mut client: UnixStream) -> io::Result<()> {
        let (mut tracer, filter) = match read_request(&mut client)?.and_then(|request| self.start(request)) {
            Ok(started) => started,
            Err(refused) => return send_line(&mut client, &TraceLine::Refusal { refused }),
        };
        send_line(&mut client, &TraceLine::Greeting { pando_trace: VERSION, pid: std::process::id() })?;
        let (pace, mut lines, mut lost, mut ending) = (Pace::default(), Vec::new(), 0, None);
        let mut rest = pace.rest_min;
        loop {
            let ready = self.wait(Some(&client), Some(rest));
            // A client sends nothing after its request. If its socket is readable, it has closed
            // it.
            if ready.client {
                return Ok(());
            }
            if ready.new_client {
                self.refuse();
            }
            let began = Instant::now();
            let delivered = tracer.poll(Pace::EVENTS, |event| {
                let wanted = |filter: &PathFilter| {
                    filter.wants(&event.path) || event.second.as_deref().is_some_and(|to| filter.wants(to))
                };
                if filter.as_ref().is_none_or(wanted) {
                    append(&mut lines, &TraceLine::Event(TraceEvent::from(event)));
                }
            });
            if tracer.lost() != lost {
                lost = tracer.lost();
                append(&mut lines, &TraceLine::Lost { lost });
            }
            rest = pace.rest(began.elapsed());
            if !self.send(&mut client, &lines)? {
                return Ok(());
            }
            lines.clear();
            // Operations before the end are still reported: the loop goes on until no event is
            // left.
            if ready.stop && (delivered == 0 || ending.get_or_insert(began).elapsed() > TIMEOUT) {
                return Ok(());
            }
        }
    }

    fn start(
        &self,
        (options, filter): (TraceOptions, Option<PathFilter>),
    ) -> Result<(Tracer, Option<PathFilter>), String> {
        match self.vfs.trace(options) {
            Ok(tracer) => Ok((tracer, filter)),
            Err(Error::Busy) => Err("the server itself watches this mount (EBUSY)".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Tells a new client that there is another watcher.
    fn refuse(&self) {
        if let Some(mut other) = self.accept() {
            let refused = "another client watches this mount (EBUSY)".to_owned();
            // It may have disconnected already.
            let _ = send_line(&mut other, &TraceLine::Refusal { refused });
        }
    }

    /// Sends lines, however slowly the client reads them. Returns false if the thread must end.
    fn send(&self, client: &mut UnixStream, mut lines: &[u8]) -> io::Result<bool> {
        while !lines.is_empty() {
            match client.write(lines) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => lines = &lines[count..],
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    let ready = self.wait(None, Some(Duration::ZERO));
                    if ready.stop {
                        return Ok(false);
                    }
                    if ready.new_client {
                        self.refuse();
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Reads and parses the request of a client; or the reason to refuse it.
fn read_request(client: &mut UnixStream) -> io::Result<Result<(TraceOptions, Option<PathFilter>), String>> {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.contains(&b'\n') {
        if request.len() > REQUEST_MAX {
            return Ok(Err("the request is too long".into()));
        }
        match client.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => request.extend_from_slice(&buffer[..count]),
        }
    }
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let request = serde_json::from_slice::<TraceRequest>(line).map_err(|error| format!("not a request: {error}"));
    Ok(request.and_then(|request| request.parse()))
}

fn append(lines: &mut Vec<u8>, line: &TraceLine) {
    // This cannot fail: writes to a vector succeed, and all keys of maps here are text.
    if serde_json::to_writer(&mut *lines, line).is_ok() {
        lines.push(b'\n');
    }
}

fn send_line(client: &mut UnixStream, line: &TraceLine) -> io::Result<()> {
    let mut lines = Vec::new();
    append(&mut lines, line);
    client.write_all(&lines)
}

#[cfg(test)]
mod tests;
