//! Tells the service manager that the tree is mounted (sd_notify(3)).

use std::{
    env,
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// The variable with the socket of the service manager. A name with `@` in front is abstract.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Says so if a service manager has asked for it.
///
/// # Errors
/// The service manager cannot be reached: it would wait in vain.
pub fn ready() -> io::Result<()> {
    let Some(name) = env::var_os(SOCKET).filter(|name| !name.is_empty()) else { return Ok(()) };
    let message = format!("READY=1\nMAINPID={}\n", std::process::id());
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address(&name)?).map(drop)
}

fn address(name: &OsString) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}
