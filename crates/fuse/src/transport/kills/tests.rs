use zerocopy::IntoBytes;

use super::*;
use crate::{
    dispatch::tests::request,
    wire::abi::{IoctlIn, SETFLAGS, SHUTDOWN, SetattrIn},
};

#[test]
fn requests_that_change_something_are_not_answered_early() {
    let open = |flags| OpenIn { flags, ..OpenIn::default() };
    let ioctl = |command| IoctlIn { command, ..IoctlIn::default() };
    for (opcode, args, expected) in [
        (Opcode::Lookup, &b"f\0"[..], true),
        (Opcode::Open, open(0).as_bytes(), true),
        // O_RDWR, O_TRUNC.
        (Opcode::Open, open(0o1002).as_bytes(), false),
        (Opcode::Open, b"short", false),
        (Opcode::Readdirplus, b"", true),
        (Opcode::Setattr, SetattrIn::default().as_bytes(), false),
        (Opcode::Unlink, b"f\0", false),
        (Opcode::Write, b"", false),
        (Opcode::Release, b"", false),
        (Opcode::Ioctl, ioctl(GETFLAGS).as_bytes(), true),
        (Opcode::Ioctl, ioctl(SETFLAGS).as_bytes(), false),
        (Opcode::Ioctl, ioctl(SHUTDOWN).as_bytes(), false),
    ] {
        let bytes = request(opcode as u32, 1, &[args]);
        assert_eq!(changes_nothing(Request::whole(&bytes).unwrap()), expected, "{opcode:?} {args:?}");
    }
    assert!(!changes_nothing(Request::whole(&request(4000, 1, &[])).unwrap()));
}

#[test]
fn signals_that_end_the_caller_are_told_from_others() {
    let status = |pending: u64, shared: u64, caught: u64, tracer: u32| {
        format!(
            "Name:\tcat\nTracerPid:\t{tracer}\nSigPnd:\t{pending:016x}\nShdPnd:\t{shared:016x}\n\
             SigBlk:\t0000000000000200\nSigIgn:\t0000000000001000\nSigCgt:\t{caught:016x}\n"
        )
    };
    let bit = |signal: i32| 1_u64 << (signal - 1);
    let (kill, int, quit, usr1) = (bit(libc::SIGKILL), bit(libc::SIGINT), bit(libc::SIGQUIT), bit(libc::SIGUSR1));
    for (pending, shared, caught, tracer, dies) in [
        (0, 0, 0, 0, false),
        (kill, 0, 0, 0, true),
        (0, int, 0, 0, true),
        (0, quit, 0, 0, true),
        (0, int, int, 0, false),
        (kill, int, int, 0, true),
        // Blocked, and ignored.
        (0, usr1, 0, 0, false),
        (0, bit(libc::SIGPIPE), 0, 0, false),
        (0, bit(libc::SIGWINCH), 0, 0, false),
        (0, bit(libc::SIGCHLD), 0, 0, false),
        // A tracer may suppress it.
        (0, int, 0, 7, false),
        (kill, 0, 0, 7, true),
    ] {
        let text = status(pending, shared, caught, tracer);
        assert_eq!(has_fatal_signal(&text), dies, "{text}");
    }
    assert!(!has_fatal_signal(""));
    assert!(!has_fatal_signal("SigPnd:\tx\n"));
    assert!(!is_dying(std::process::id()));
}
