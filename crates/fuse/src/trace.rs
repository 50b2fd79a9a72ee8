//! Watching a mounted tree: the server listens, `pando trace` asks.
//!
//! Each mount has a socket in the abstract name space, named after the mount's device number; it leaves nothing in any
//! directory and goes with its process. Root and the owner of the server may ask, nobody else (SO_PEERCRED). The one who
//! asks says what is wanted in one line of JSON, and gets lines of JSON: a greeting or a refusal, then events. There is one
//! watcher at a time; another is refused.
//!
//! Anybody may take that name before the server does, so the one who asks looks who answers, too: root, he himself, or, if he
//! is root, who mounted the tree.
//!
//! One thread does it all, and rests nine times as long as it works ([`pando_vfs::trace::Pace`]). If the one who asked does
//! not read, nothing waits for him: events are lost, and he is told how many.

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

/// Where the server of a mount listens. `device` is `major:minor`, as in `/proc/self/mountinfo`.
fn address(device: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("pandofs/trace/{device}"))
}

/// Whether the other end of a socket is this user or root.
fn is_us_or_root(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid())
}

/// Connects to the server of the mount with this device number (`major:minor`), which the user `owner` has mounted
/// (`user_id=` in `/proc/self/mountinfo`).
///
/// # Errors
/// ECONNREFUSED if no server listens; EACCES if who listens is neither root nor this user. Root connects to the owner's, too.
pub fn connect(device: &str, owner: Option<u32>) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&address(device)?)?;
    let is_owner = || socket_peercred(&stream).is_ok_and(|peer| owner == Some(peer.uid.as_raw()));
    if is_us_or_root(&stream) || geteuid().is_root() && is_owner() {
        return Ok(stream);
    }
    Err(io::ErrorKind::PermissionDenied.into())
}
