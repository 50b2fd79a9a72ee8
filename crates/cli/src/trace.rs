//! `pando trace`: shows the operations on a mounted tree as they happen.

mod args;
mod show;

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
};

use pando_console::{
    failure::{Failure, Result},
    mountinfo::{self, Mount},
    quote::for_shell,
};
use pando_fuse::trace::{TraceRequest, VERSION, connect};
use rustix::{net::sockopt::socket_peercred, process::geteuid};

pub use self::args::TraceArgs;
use self::show::{End, show};
use crate::mounted::{self, held};

/// How often to connect to a server that closes each connection without an answer. Its timeout is
/// short, and this process may have been delayed before it sent the request.
const TRIES: u32 = 5;

/// Shows the operations on a tree until it is unmounted.
///
/// # Errors
/// There is no such tree, its server refuses, or the connection broke.
pub fn run(args: &TraceArgs) -> Result<()> {
    for _ in 0..TRIES {
        // The tree may have been unmounted meanwhile.
        let mount = find(args)?;
        let shown = for_shell(&mount.point);
        let stream = connect(&mount.device, mount.owner).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused if held::dead_at(&mount.point) => dead(&mount.point),
            _ => refused(&shown, &error),
        })?;
        if let Some(lines) = ask(args, &shown, stream)? {
            return match show(args, &shown, lines, io::stdout().lock())? {
                // A killed server ends its connections but leaves its mount.
                End::Server if held::dead_at(&mount.point) => Err(dead(&mount.point)),
                End::Server | End::Count => Ok(()),
            };
        }
    }
    Err(Failure::new("the server closes each connection without an answer").remedy("try again"))
}

/// Sends the request. Returns the lines of the server, if it answers.
fn ask(args: &TraceArgs, shown: &str, mut stream: UnixStream) -> Result<Option<BufReader<UnixStream>>> {
    let request = TraceRequest {
        pando_trace: VERSION,
        ops: args.ops.iter().map(|op| op.name().to_owned()).collect(),
        errors_only: args.errors,
        min_latency_ns: args.min_latency.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        path: args.path.clone(),
    };
    let failed = |error: &io::Error| Failure::system(shown, error);
    let mut line = serde_json::to_vec(&request).map_err(|error| failed(&error.into()))?;
    line.push(b'\n');
    // A server that refuses closes the connection without an answer. The read below sees that.
    if let Err(error) = stream.write_all(&line)
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(failed(&error));
    }
    let mut lines = BufReader::new(stream);
    match lines.fill_buf() {
        Ok([]) => {}
        Ok(_) => return Ok(Some(lines)),
        // It closed the connection without reading the request.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => return Err(failed(&error)),
    }
    let us = geteuid();
    if us.is_root() || socket_peercred(lines.get_ref()).is_ok_and(|server| server.uid == us) {
        return Ok(None);
    }
    Err(Failure::new(format!("{shown}: only root and the user who mounted the tree may trace it")).remedy(AS_WHOM))
}

/// The mount to trace.
fn find(args: &TraceArgs) -> Result<Mount> {
    let all = mountinfo::all().map_err(|error| Failure::system("/proc/self/mountinfo", &error))?;
    let Some(dir) = &args.mount else {
        let mut ours: Vec<Mount> = all.into_iter().filter(Mount::is_ours).collect();
        return match (ours.pop(), ours.is_empty()) {
            (Some(only), true) => Ok(only),
            (None, _) => Err(Failure::new("no pando tree is mounted").remedy("mount one with: pando mount DIR")),
            (Some(_), false) => Err(Failure::new("more than one pando tree is mounted").remedy(mounted::list())),
        };
    };
    let path = held::resolve(dir).map_err(|error| Failure::system(for_shell(dir), &error))?;
    let on_top = all.into_iter().rev().find(|mount| mount.point == path);
    on_top.filter(Mount::is_ours).ok_or_else(|| {
        Failure::new(format!("{}: no pando tree is mounted here", for_shell(dir))).remedy(mounted::list())
    })
}

const AS_WHOM: &str = "trace as the user who mounted the tree, or as root";

const WHO_LISTENS: &str = "find the process with: ss -xlp | grep pandofs/trace";

fn dead(point: &Path) -> Failure {
    Failure::new(format!("{}: a dead mount: its server was killed", for_shell(point)))
        .remedy(format!("unmount it: pando umount {}", for_shell(point)))
}

fn refused(shown: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Failure::new(format!("{shown}: its server does not listen for traces"))
            .remedy("it may be of an older version, or in another network namespace (a container)"),
        io::ErrorKind::PermissionDenied => {
            let (other, remedy) =
                if geteuid().is_root() { ("the user who mounted the tree", WHO_LISTENS) } else { ("you", AS_WHOM) };
            Failure::new(format!("{shown}: the process that listens there is neither root nor {other}")).remedy(remedy)
        }
        _ => Failure::system(shown, error),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn plain() -> TraceArgs {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: TraceArgs,
        }
        Line::parse_from(["trace"]).args
    }

    /// Such a server was impatient. It has not refused this user.
    #[test]
    fn a_server_that_closes_without_an_answer_can_be_asked_again() {
        for reads in [false, true] {
            let (mut server, client) = UnixStream::pair().expect("a pair");
            let asked = std::thread::spawn(move || ask(&plain(), "a test", client).map(|lines| lines.is_some()));
            if reads {
                BufReader::new(&mut server).read_until(b'\n', &mut Vec::new()).expect("a request");
            }
            drop(server);
            assert!(!asked.join().expect("no panic").expect("nobody is refused"));
        }
    }
}
