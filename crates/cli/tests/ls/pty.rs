//! A terminal that a command writes to, and its complete output.

use std::{
    ffi::OsStr,
    fs::File,
    io::Read,
    os::unix::ffi::OsStrExt,
    process::{Child, ExitStatus},
};

use rustix::{
    io::Errno,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

/// Both ends of a new terminal: one for the test, one for the command.
pub fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options().read(true).write(true).open(OsStr::from_bytes(name.as_bytes())).unwrap();
    (ours.into(), theirs)
}

/// Reads the rest until the command has ended. Returns it with the exit status. No other process
/// may hold the other end.
///
/// A terminal returns EIO when its other end is closed. But Linux first looks for bytes, and then
/// for the other end. Between the two the command may write its last bytes and end: then EIO comes
/// before those bytes. So this reads once more after the command has ended.
pub fn rest(terminal: &mut File, child: &mut Child) -> (Vec<u8>, ExitStatus) {
    let mut text = Vec::new();
    let mut until_closed = || {
        let error = terminal.read_to_end(&mut text).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
    };
    until_closed();
    let status = child.wait().unwrap();
    until_closed();
    (text, status)
}
