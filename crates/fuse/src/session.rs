//! The beginning of a connection: the mount, and what kernel and server agree on. What every transport begins with.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
    thread,
};

use pando_vfs::Error;
use rustix::io::Errno;
use tracing::{error, info};
use zerocopy::IntoBytes;

use crate::{
    MountOptions, Server, device,
    dispatch::{Answered, Dispatch},
    held::for_others,
    unmount,
    wire::{
        Request,
        abi::{
            InitFlags, InitIn, InitOut, MIN_BUFFER_BYTES, MINOR_VERSION, OLDEST_MINOR_VERSION, Opcode, OutHeader,
            VERSION,
        },
    },
};

/// The largest write in one request. More gains nothing, and each thread's buffers are touched only as far as this.
const MAX_WRITE_BYTES: u32 = 1 << 20;

/// The most bytes that follow a header, of a request or of an answer: the data of a write or read.
pub(crate) const MAX_DATA_BYTES: usize = MAX_WRITE_BYTES as usize;

/// What a request may need besides: headers, names, extended attributes (64 KiB), the target of a link.
pub(crate) const MAX_BESIDES_BYTES: usize = 128 << 10;

/// Requests that the kernel may have in flight in the background (read-ahead, asynchronous I/O).
const MAX_BACKGROUND: u16 = 64;

/// The header of an answer, in front of it.
pub(crate) const HEADER_BYTES: usize = size_of::<OutHeader>();

/// A mounted tree of which the kernel knows what its server can do.
pub(crate) struct Session {
    pub(crate) device: Arc<OwnedFd>,
    pub(crate) dispatch: Dispatch,
    /// The kernel sends its requests through rings, and waits for these.
    pub(crate) by_ring: bool,
}

impl Session {
    /// Mounts at `mount_point` and answers INIT. Where it fails, nothing stays mounted.
    ///
    /// # Errors
    /// Those of the mount; ENODEV if it was unmounted before the kernel had asked; unsupported, if the kernel is too old.
    pub(crate) fn open(server: Server, mount_point: &Path, options: &MountOptions, rings: bool) -> io::Result<Self> {
        let device = device::mount(mount_point, options)?;
        // Where setuid bits mean something, the kernel keeps clearing them itself, with its view of the mode up to date.
        let dispatch = Dispatch { server, clear_privileges: !options.suid };
        let mut session = Self { device: Arc::new(device), dispatch, by_ring: false };
        match session.agree(options.readdirplus, rings) {
            Ok(()) => Ok(session),
            Err(error) => {
                session.abandon(mount_point);
                Err(error)
            }
        }
    }

    /// Gives it up before it has served. Without this a dead mount would stay.
    pub(crate) fn abandon(self, mount_point: &Path) {
        drop(self);
        let _ = unmount::detach(&for_others(mount_point));
    }

    fn agree(&mut self, readdirplus: bool, rings: bool) -> io::Result<()> {
        let mut buffer = vec![0; MIN_BUFFER_BYTES];
        loop {
            let Received::Request(len) = receive(self.device.as_fd(), &mut buffer)? else {
                return Err(Errno::NODEV.into());
            };
            let malformed = || io::Error::new(io::ErrorKind::InvalidData, "the kernel does not begin with INIT");
            let request = Request::whole(&buffer[..len]).map_err(|_| malformed())?;
            let unique = request.header.unique;
            let mut answer = vec![0; HEADER_BYTES];
            if request.header.opcode != Opcode::Init as u32 {
                send(self.device.as_fd(), &mut answer, unique, Err(Error::Io));
                return Err(malformed());
            }
            let init = init_of(request.args.rest());
            // A kernel of a later major version says INIT again, with ours.
            let major_only = init.major > VERSION;
            if !major_only && (init.major < VERSION || init.minor < OLDEST_MINOR_VERSION) {
                send(self.device.as_fd(), &mut answer, unique, Err(Error::Io));
                let message = format!("the kernel speaks FUSE {}.{}, which is too old", init.major, init.minor);
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }
            let out = self.init_out(&init, readdirplus, rings);
            answer.extend_from_slice(out.as_bytes());
            send(self.device.as_fd(), &mut answer, unique, Ok(size_of::<InitOut>()));
            if !major_only {
                return Ok(());
            }
        }
    }

    fn init_out(&mut self, init: &InitIn, readdirplus: bool, rings: bool) -> InitOut {
        let offered = InitFlags::from_bits_retain(u64::from(init.flags) | u64::from(init.flags2) << 32);
        let asks_each_time = self.dispatch.server.options().valid.is_zero();
        let wanted = wanted(readdirplus, asks_each_time, self.dispatch.clear_privileges, rings);
        // An older kernel lacks some: each is an improvement, none is needed.
        let (agreed, missing) = (wanted & offered, wanted - offered);
        self.dispatch.clear_privileges &= agreed.contains(InitFlags::HANDLE_KILLPRIV_V2);
        self.by_ring = agreed.contains(InitFlags::OVER_IO_URING);
        info!(
            kernel = format_args!("{}.{}", init.major, init.minor),
            ?missing,
            self.by_ring,
            "the kernel has connected"
        );
        InitOut {
            major: VERSION,
            minor: MINOR_VERSION,
            max_readahead: init.max_readahead,
            flags: agreed.bits() as u32,
            flags2: (agreed.bits() >> 32) as u32,
            max_background: MAX_BACKGROUND,
            congestion_threshold: MAX_BACKGROUND / 4 * 3,
            max_write: MAX_WRITE_BYTES,
            time_gran: 1,
            max_pages: max_pages(rustix::param::page_size()),
            ..InitOut::default()
        }
    }
}

/// What is asked of the kernel. Not FUSE_ATOMIC_O_TRUNC: the kernel looks after an opening for reading whether the file is being
/// executed, and what it refuses then must not have been truncated.
fn wanted(readdirplus: bool, asks_each_time: bool, clear_privileges: bool, rings: bool) -> InitFlags {
    let mut wanted = InitFlags::ASYNC_READ
        | InitFlags::EXPORT_SUPPORT
        | InitFlags::BIG_WRITES
        | InitFlags::MAX_PAGES
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::DONT_MASK
        | InitFlags::ASYNC_DIO
        | InitFlags::HAS_IOCTL_DIR
        | InitFlags::INIT_EXT;
    wanted.set(InitFlags::DO_READDIRPLUS | InitFlags::READDIRPLUS_AUTO, readdirplus);
    wanted.set(InitFlags::HANDLE_KILLPRIV_V2, clear_privileges);
    wanted.set(InitFlags::CACHE_SYMLINKS, !asks_each_time);
    wanted.set(InitFlags::AUTO_INVAL_DATA, asks_each_time);
    wanted.set(InitFlags::OVER_IO_URING, rings);
    wanted
}

/// How many pages a request may have: as many as the largest write.
fn max_pages(page_bytes: usize) -> u16 {
    (MAX_DATA_BYTES / page_bytes).clamp(1, u16::MAX.into()) as u16
}

/// What the kernel has said of itself; what it left out is 0.
fn init_of(said: &[u8]) -> InitIn {
    let mut init = InitIn::default();
    let len = said.len().min(size_of::<InitIn>());
    init.as_mut_bytes()[..len].copy_from_slice(&said[..len]);
    init
}

/// What there is to read of the device.
pub(crate) enum Received {
    /// A request of so many bytes.
    Request(usize),
    /// None, of a device that does not block.
    Nothing,
    /// The tree has been unmounted.
    End,
}

/// Reads a request.
///
/// # Errors
/// The device failed in a way that an unmount does not explain.
pub(crate) fn receive(device: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Ok(len) => return Ok(Received::Request(len)),
            // ENOENT: who asked was interrupted while we read.
            Err(Errno::INTR | Errno::NOENT) => {}
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            // The end of a connection, too: it came to a thread that had just been given a request. (That somebody broke it
            // off would have this number only if we had asked for it, FUSE_ABORT_ERROR.)
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::End),
            Err(error) => return Err(error.into()),
        }
    }
}

/// How a thread of the server has ended.
///
/// # Errors
/// Its own; or it panicked.
pub(crate) fn ended<T>(joined: thread::Result<io::Result<T>>) -> io::Result<T> {
    joined.unwrap_or_else(|_| Err(io::Error::other("a thread of the server panicked")))
}

/// What the answer to the request `unique` begins with: so many bytes, or an error.
pub(crate) fn out_header(unique: u64, answered: Answered) -> OutHeader {
    let (len, error) = answered.map_or_else(|error| (0, -error.errno()), |len| (len, 0));
    OutHeader { len: (HEADER_BYTES + len) as u32, error, unique }
}

/// Sends the answer to the request `unique`: what follows the room for a header in `buffer`, or an error.
pub(crate) fn send(device: BorrowedFd<'_>, buffer: &mut [u8], unique: u64, answered: Answered) {
    let header = out_header(unique, answered);
    buffer[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    match rustix::io::write(device, &buffer[..header.len as usize]) {
        // ENOENT: nobody waits for it any more, which happens to the last releases of files whenever a tree is unmounted.
        Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
        Err(refused) => {
            error!(%refused, ?header, "the kernel refuses an answer");
            if answered.is_ok() {
                // Whoever asked would wait for ever.
                send(device, buffer, unique, Err(Error::Io));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_says_less_of_itself() {
        let words: [u32; 6] = [7, 31, 131_072, 0x8000_0001, 7, 9];
        let init = init_of(words[..4].as_bytes());
        assert_eq!((init.minor, init.flags, init.flags2), (31, 0x8000_0001, 0));
        assert_eq!(init_of(words.as_bytes()).flags2, 7);
    }

    #[test]
    fn no_request_has_more_pages_than_there_is_memory_for() {
        for (page_bytes, pages) in [(4 << 10, 256), (16 << 10, 64), (64 << 10, 16), (4 << 20, 1)] {
            assert_eq!(max_pages(page_bytes), pages);
        }
    }

    #[test]
    fn what_is_wanted_follows_from_the_mount() {
        let plain = wanted(true, false, true, false);
        assert!(plain.contains(InitFlags::DO_READDIRPLUS | InitFlags::HANDLE_KILLPRIV_V2 | InitFlags::CACHE_SYMLINKS));
        assert!(!plain.intersects(InitFlags::OVER_IO_URING | InitFlags::AUTO_INVAL_DATA));
        let other = wanted(false, true, false, true);
        assert!(other.contains(InitFlags::OVER_IO_URING | InitFlags::AUTO_INVAL_DATA));
        let not = InitFlags::READDIRPLUS_AUTO | InitFlags::HANDLE_KILLPRIV_V2 | InitFlags::CACHE_SYMLINKS;
        assert!(!other.intersects(not));
    }
}
