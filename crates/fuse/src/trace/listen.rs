//! The listening side: one thread of the server.

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

/// A request is longer than this only by mistake.
const REQUEST_MAX: usize = 64 << 10;

/// How long the one who has connected may take to say what he wants, and a write to him may take before the thread looks
/// whether it is to end.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often an address that somebody else has is tried again. The kernel gives a device number to the next mount as soon as it
/// has taken the last one down, which is before that one's server hears of it.
const AGAIN: Duration = Duration::from_millis(2);

/// After so many tries it is said that somebody has it, and looked so many times less often.
const SAID_AFTER: u32 = 1000;
const SELDOM: u32 = 100;

/// Listens for those who want to watch a mount; ends when it is dropped.
#[derive(Debug)]
pub struct TraceListener {
    /// Closed to end the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl TraceListener {
    /// Starts to listen for the mount with this device number (`major:minor`), which shows `vfs`; if somebody else listens
    /// there, as soon as he has ended.
    ///
    /// # Errors
    /// No more descriptors or threads.
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
            // Had it panicked, it said so.
            let _ = thread.join();
        }
    }
}

/// Listens, unless somebody else does.
fn bind(address: &SocketAddr) -> io::Result<Option<UnixListener>> {
    match UnixListener::bind_addr(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        bound => bound.map(Some),
    }
}

/// Listens as soon as nobody else does; none if this is to end before.
fn bind_when_free(address: &SocketAddr, stopped: &UnixStream) -> io::Result<Option<UnixListener>> {
    let mut rest = AGAIN;
    for tries in 1_u32.. {
        if let Some(listener) = bind(address)? {
            return Ok(Some(listener));
        }
        if tries == SAID_AFTER {
            warn!("this mount cannot be traced yet: somebody else listens where its server should");
            rest *= SELDOM;
        }
        let mut end = [PollFd::new(stopped, PollFlags::IN)];
        if poll(&mut end, Timespec::try_from(rest).ok().as_ref()).is_ok_and(|ready| ready > 0) {
            break;
        }
    }
    Ok(None)
}

struct Watch {
    /// Closed first: the next mount may have this number before a large tree is taken apart.
    listener: UnixListener,
    vfs: Vfs,
    /// At its end when the listener is dropped.
    stopped: UnixStream,
}

/// What a wait has found.
#[derive(Debug, Clone, Copy)]
struct Ready {
    stop: bool,
    newcomer: bool,
    client: bool,
}

impl Watch {
    fn new(vfs: Vfs, listener: UnixListener, stopped: UnixStream) -> io::Result<Self> {
        // Waiting is for `wait`, which sees the end, too: a signal may end a wait though nobody has come.
        listener.set_nonblocking(true)?;
        Ok(Self { listener, vfs, stopped })
    }

    fn run(&self) {
        loop {
            let ready = self.wait(None, None);
            if ready.stop {
                return;
            }
            let Some(client) = self.newcomer() else { continue };
            if let Err(error) = self.serve(client) {
                debug!(%error, "a trace has ended");
            }
        }
    }

    /// Waits until somebody says something, or until a time has passed.
    fn wait(&self, client: Option<&UnixStream>, limit: Option<Duration>) -> Ready {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut fds = vec![PollFd::new(&self.stopped, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(client.map(|client| PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN)));
        if let Err(error) = poll(&mut fds, limit.as_ref())
            && error != rustix::io::Errno::INTR
        {
            warn!(%error, "tracing has ended: cannot wait");
            return Ready { stop: true, newcomer: false, client: false };
        }
        let ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        Ready { stop: ready(0), newcomer: ready(1), client: ready(2) }
    }

    /// Whoever has connected, if he may watch. Others are told nothing. Does not wait.
    fn newcomer(&self) -> Option<UnixStream> {
        let client = self.listener.accept().ok()?.0;
        client.set_read_timeout(Some(PATIENCE)).ok()?;
        client.set_write_timeout(Some(PATIENCE)).ok()?;
        is_us_or_root(&client).then_some(client)
    }

    fn serve(&self, mut client: UnixStream) -> io::Result<()> {
        let (mut tracer, filter) = match read_request(&mut client)?.and_then(|wanted| self.start(wanted)) {
            Ok(started) => started,
            Err(refused) => return say(&mut client, &TraceLine::Refusal { refused }),
        };
        say(&mut client, &TraceLine::Greeting { pando_trace: VERSION, pid: std::process::id() })?;
        let (pace, mut lines, mut lost, mut ending) = (Pace::default(), Vec::new(), 0, None);
        let mut rest = pace.rest_min;
        loop {
            let ready = self.wait(Some(&client), Some(rest));
            // The one who watches says nothing more: what can be read is his end.
            if ready.client {
                return Ok(());
            }
            if ready.newcomer {
                self.refuse();
            }
            let began = Instant::now();
            let handed = tracer.poll(Pace::EVENTS, |event| {
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
            // What was done before the end is told: rounds go on until nothing is left.
            if ready.stop && (handed == 0 || ending.get_or_insert(began).elapsed() > PATIENCE) {
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

    /// Says to a newcomer that he is not the first.
    fn refuse(&self) {
        if let Some(mut other) = self.newcomer() {
            let refused = "somebody else watches this mount (EBUSY)".to_owned();
            // He may have gone already.
            let _ = say(&mut other, &TraceLine::Refusal { refused });
        }
    }

    /// Sends lines, however slowly they are read; false if the server is to end meanwhile.
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
                    if ready.newcomer {
                        self.refuse();
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// What is wanted; or why that cannot be.
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
    Ok(request.and_then(|request| request.understand()))
}

fn append(lines: &mut Vec<u8>, line: &TraceLine) {
    // A vector takes all that is written to it, and no map here has keys that are not text.
    if serde_json::to_writer(&mut *lines, line).is_ok() {
        lines.push(b'\n');
    }
}

fn say(client: &mut UnixStream, line: &TraceLine) -> io::Result<()> {
    let mut lines = Vec::new();
    append(&mut lines, line);
    client.write_all(&lines)
}

#[cfg(test)]
mod tests;
