//! Watching a mounted tree: the server listens on a socket, and `pando trace` connects to it.
//!
//! The socket of a mount has an abstract address with the mount's device number. It leaves nothing
//! in any directory, and disappears with its process. Only root and the user that runs the server
//! may connect (SO_PEERCRED). The client sends one line of JSON, its request. It gets lines of
//! JSON: a greeting or a refusal, then events. There is one watcher at a time, and others are
//! refused.
//!
//! Any process may bind that address before the server does. So the client checks the server as
//! well: it must run as root, as the client's user, or, if the client is root, as the user that
//! mounted the tree.
//!
//! One thread does all of this. It sleeps nine times as long as it works
//! ([`pando_vfs::trace::Pace`]). If the client does not read, nothing waits for it: events are
//! lost, and the client is told how many.

mod filter;
mod listen;
mod protocol;

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
};

use rustix::{net::sockopt::socket_peercred, process::geteuid};

pub use self::{
    filter::PathFilter,
    listen::TraceListener,
    protocol::{TraceEvent, TraceLine, TraceRequest, VERSION},
};

/// The address at which the server of a mount listens. `device` is `major:minor`, as in
/// `/proc/self/mountinfo`.
fn address(device: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("pandofs/trace/{device}"))
}

/// Whether the other end of a socket belongs to this user or to root.
fn is_us_or_root(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid())
}

/// Connects to the server of the mount with this device number (`major:minor`), which the user
/// `owner` has mounted (`user_id=` in `/proc/self/mountinfo`).
///
/// # Errors
/// ECONNREFUSED if no server listens. EACCES if the listener runs neither as root nor as this user;
/// root may also connect to one of `owner`.
pub fn connect(device: &str, owner: Option<u32>) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&address(device)?)?;
    let is_owner = || socket_peercred(&stream).is_ok_and(|peer| owner == Some(peer.uid.as_raw()));
    if is_us_or_root(&stream) || geteuid().is_root() && is_owner() {
        return Ok(stream);
    }
    Err(io::ErrorKind::PermissionDenied.into())
}
