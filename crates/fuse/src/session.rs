//! The start of a connection, which is the same for all transports: the mount, and INIT, by which
//! kernel and server agree on their features.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use pando_vfs::{AclSupport, Error};
use rustix::{io::Errno, thread::CapabilitySet};
use tracing::{info, warn};
use zerocopy::IntoBytes;

use crate::{
    channel::{HEADER_BYTES, MAX_DATA_BYTES, MAX_WRITE_BYTES, Received, receive, send},
    dispatch::{Dispatch, Dispatcher},
    inject::Injected,
    mount::{self, MountOptions, path_for_others, unmount},
    notifier::{self, Notifier},
    server::{Server, ServerOptions},
    wire::{
        Request,
        abi::{InitFlags, InitIn, InitOut, MIN_BUFFER_BYTES, MINOR_VERSION, OLDEST_MINOR_VERSION, Opcode, VERSION},
    },
};

/// The number of requests that the kernel may have in flight in the background (read-ahead,
/// asynchronous I/O).
const MAX_BACKGROUND: u16 = 64;

/// How deep the file systems of a mount are stacked, with passthrough: on a file system that is not
/// stacked itself. The kernel allows two, so one overlay can still be above.
const STACK_DEPTH: u32 = 1;

/// A mounted tree after INIT.
pub(crate) struct Session {
    pub(crate) device: Arc<OwnedFd>,
    pub(crate) dispatch: Arc<dyn Dispatch>,
    /// The kernel sends its requests through rings. It holds them back until all rings exist.
    pub(crate) by_ring: bool,
    /// Replies may be sent later than the requests are served.
    pub(crate) holds_replies: bool,
    /// Those of the server, as far as the kernel allows them.
    pub(crate) options: ServerOptions,
    /// Tells the kernel of changes by others, and what to forget.
    notifier: Option<Notifier>,
}

impl Session {
    /// Mounts at `mount_point` and answers INIT. If that fails, nothing stays mounted.
    ///
    /// # Errors
    /// Those of the mount; ENODEV if it was unmounted before INIT; unsupported if the kernel is too
    /// old.
    pub(crate) fn open(server: Server, mount_point: &Path, options: &MountOptions, rings: bool) -> io::Result<Self> {
        let device = Arc::new(mount::mount(mount_point, options)?);
        // On a mount that honours setuid bits, the kernel must keep clearing them itself, because
        // it has the mode in its cache and must keep that up to date.
        let mut dispatcher = Dispatcher { server, clear_privileges: !options.suid };
        dispatcher.server.connect(&device);
        let Agreed { by_ring, minor } = match agree(&device, &mut dispatcher, options, rings) {
            Ok(agreed) => agreed,
            Err(error) => {
                drop(device);
                detach(mount_point);
                return Err(error);
            }
        };
        let notifier = notifier(&mut dispatcher.server, &device, minor);
        let of_server = *dispatcher.server.options();
        let (dispatch, holds_replies) = (decorated(dispatcher, options), options.injector.is_some());
        Ok(Self { device, dispatch, by_ring, holds_replies, options: of_server, notifier })
    }

    /// Ends a session that has not served. Otherwise a dead mount would stay.
    pub(crate) fn abandon(self, mount_point: &Path) {
        drop(self);
        detach(mount_point);
    }

    /// The connection has ended: closes all handles and drops all counts. The caller has joined all
    /// threads that serve it.
    pub(crate) fn disconnect(mut self) {
        self.notifier.take();
        if let Some(dispatch) = Arc::get_mut(&mut self.dispatch) {
            dispatch.disconnect();
        }
    }
}

fn detach(mount_point: &Path) {
    let _ = unmount::detach(&path_for_others(mount_point));
}

/// Starts to tell the kernel of changes by others, if the tree reports them, and what to forget.
fn notifier(server: &mut Server, device: &Arc<OwnedFd>, minor: u32) -> Option<Notifier> {
    let notifier = Notifier::start(server.vfs(), device, server.options().tells_kernel(), minor);
    if let Err(error) = &notifier {
        warn!(%error, "cannot start the thread that notifies the kernel");
        server.cannot_notify();
    }
    let notifier = notifier.ok().flatten()?;
    server.tell_changes_by(notifier.subscriber());
    Some(notifier)
}

/// The dispatcher, behind an injector if the mount has one.
fn decorated(dispatcher: Dispatcher, options: &MountOptions) -> Arc<dyn Dispatch> {
    let Some(injector) = &options.injector else { return Arc::new(dispatcher) };
    let (vfs, statx) = (dispatcher.server.vfs().clone(), dispatcher.server.options().birth_times);
    Arc::new(Injected::new(dispatcher, Arc::clone(injector), vfs, statx))
}

/// What both sides have agreed on.
struct Agreed {
    /// The kernel will send its requests through rings.
    by_ring: bool,
    /// The kernel's minor version.
    minor: u32,
}

/// Answers INIT.
fn agree(device: &OwnedFd, dispatcher: &mut Dispatcher, options: &MountOptions, rings: bool) -> io::Result<Agreed> {
    let mut buffer = vec![0; MIN_BUFFER_BYTES];
    loop {
        let Received::Request(len) = receive(device.as_fd(), &mut buffer)? else {
            return Err(Errno::NODEV.into());
        };
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "the kernel does not begin with INIT");
        let request = Request::whole(&buffer[..len]).map_err(|_| malformed())?;
        let unique = request.header.unique;
        let mut reply = vec![0; HEADER_BYTES];
        if request.header.opcode != Opcode::Init as u32 {
            send(device.as_fd(), &mut reply, unique, Err(Error::Io));
            return Err(malformed());
        }
        let init = parse_init(request.args.rest());
        // A kernel with a later major version sends INIT again, with the server's version.
        let major_only = init.major > VERSION;
        if !major_only && (init.major < VERSION || init.minor < OLDEST_MINOR_VERSION) {
            send(device.as_fd(), &mut reply, unique, Err(Error::Io));
            let message = format!("the kernel speaks FUSE {}.{}, which is too old", init.major, init.minor);
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        if init.minor < notifier::MINOR_OF_CHANGES && !major_only {
            dispatcher.server.cannot_notify();
        }
        let agreed = agreed(&init, dispatcher, options, rings);
        reply.extend_from_slice(init_out(&init, agreed).as_bytes());
        send(device.as_fd(), &mut reply, unique, Ok(size_of::<InitOut>()));
        if !major_only {
            return Ok(Agreed { by_ring: agreed.contains(InitFlags::OVER_IO_URING), minor: init.minor });
        }
    }
}

/// The oldest minor version of a kernel that checks who changes the flags of an inode (Linux 5.14).
const MINOR_OF_FLAGS: u32 = 34;

/// The features that both sides have.
fn agreed(init: &InitIn, dispatcher: &mut Dispatcher, options: &MountOptions, rings: bool) -> InitFlags {
    let offered = InitFlags::from_bits_retain(u64::from(init.flags) | u64::from(init.flags2) << 32);
    let mut wanted = wanted(options.readdirplus, dispatcher.server.options(), dispatcher.clear_privileges, rings);
    wanted.set(InitFlags::PASSTHROUGH, passes_through(options));
    if options.injector.as_ref().is_some_and(|injector| !injector.allows_unasked_opens()) {
        wanted.remove(InitFlags::NO_OPENDIR_SUPPORT);
    }
    // Root may do what the mode forbids, so only other callers need the ACLs.
    let has_others = options.allow_other || !rustix::process::geteuid().is_root();
    wanted.set(InitFlags::POSIX_ACL, dispatcher.server.vfs().acls() != AclSupport::None && has_others);
    // An older kernel lacks some of them: each is an improvement, none is required.
    let (agreed, missing) = (wanted & offered, wanted - offered);
    dispatcher.clear_privileges &= agreed.contains(InitFlags::HANDLE_KILLPRIV_V2);
    if agreed.contains(InitFlags::PASSTHROUGH) {
        dispatcher.server.pass_through();
    }
    if agreed.contains(InitFlags::NO_OPENDIR_SUPPORT) {
        dispatcher.server.list_by_node();
    }
    if init.minor >= MINOR_OF_FLAGS {
        dispatcher.server.change_flags_checked_by_kernel();
    }
    if agreed.contains(InitFlags::POSIX_ACL) {
        dispatcher.server.check_acls_by_kernel();
    }
    info!(
        kernel = format_args!("{}.{}", init.major, init.minor),
        ?missing,
        by_ring = agreed.contains(InitFlags::OVER_IO_URING),
        "the kernel has connected"
    );
    agreed
}

/// Whether the kernel is to read and write files of the host by itself.
fn passes_through(options: &MountOptions) -> bool {
    let is_capable =
        || rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    options.passthrough && !options.no_atime && options.injector.is_none() && is_capable()
}

fn init_out(init: &InitIn, agreed: InitFlags) -> InitOut {
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
        max_stack_depth: if agreed.contains(InitFlags::PASSTHROUGH) { STACK_DEPTH } else { 0 },
        ..InitOut::default()
    }
}

/// The features that the server wants. FUSE_ATOMIC_O_TRUNC is not among them. On an open for
/// reading with O_TRUNC, the kernel checks only after the open whether the file is being executed.
/// If it then fails with ETXTBSY, the file must not have been truncated.
fn wanted(readdirplus: bool, options: &ServerOptions, clear_privileges: bool, rings: bool) -> InitFlags {
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
    // The kernel keeps the listing of each directory that it lists without opening it.
    wanted.set(InitFlags::CACHE_SYMLINKS | InitFlags::NO_OPENDIR_SUPPORT, options.keeps_listings());
    wanted.set(InitFlags::AUTO_INVAL_DATA, !options.keeps_contents());
    wanted.set(InitFlags::OVER_IO_URING, rings);
    wanted
}

/// How many pages a request may have: as many as the largest write.
fn max_pages(page_bytes: usize) -> u16 {
    (MAX_DATA_BYTES / page_bytes).clamp(1, u16::MAX.into()) as u16
}

/// The arguments of INIT. Fields that an older kernel does not send are 0.
fn parse_init(bytes: &[u8]) -> InitIn {
    let mut init = InitIn::default();
    let len = bytes.len().min(size_of::<InitIn>());
    init.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
    init
}

#[cfg(test)]
mod tests;
