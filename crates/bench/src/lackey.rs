//! Traces every instruction and every memory access of a piece of work, with valgrind's tool
//! lackey.
//!
//! ```text
//!   this process                        the same program again, under lackey
//!   trace("conflicts", ..) ----------->  set up what the work needs, once
//!                                        between_marks(work): a copy of the process (fork)
//!                                                          store 1 to MARK
//!                                                          work
//!                                                          store 2 to MARK, exit
//!                                        between_marks(other work): another copy of the same state
//!                          <-----------  answer(..): address of MARK, memory map, copies
//!   scan(copy, ..): its trace between the marks
//! ```
//!
//! Each piece of work runs in a copy of the same process. All of them therefore start from the same
//! state at the same addresses, whatever they do. The addresses are also the same in the next run:
//! lackey chooses the address of the program, and without address space randomisation the rest
//! follows.
//!
//! valgrind runs one thread at a time, so the trace has the accesses of a thread without
//! interference.

mod instruction;
mod scan;
mod symbols;
mod sys;

use std::{
    env,
    ffi::OsString,
    fs,
    hint::black_box,
    io,
    path::PathBuf,
    process::{self, Command},
    sync::atomic::{AtomicU64, Ordering},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub(crate) use self::{
    scan::{Access, Event},
    symbols::{Frame, Symbols},
};
use crate::base::{
    cancel::Cancel,
    child,
    failure::{During, Failure},
};

/// Environment variable of the traced process; it holds its order.
const TRACED: &str = "PANDO_BENCH_TRACED";
/// The key of all hashes in a traced process. Its value is arbitrary, but must not change.
pub(crate) const HASH_KEY: (u64, u64) = (0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210);
/// Written before and after the work, so that the trace shows where the work begins and ends.
static MARK: AtomicU64 = AtomicU64::new(0);

/// The order, if this process is traced; otherwise none. A traced process exits when its standard
/// input ends.
pub(crate) fn order() -> Option<String> {
    let order = env::var(TRACED).ok()?;
    // It may exit at once, as it makes no files.
    child::on_end_of_input(|| process::exit(130));
    Some(order)
}

/// Does `work` in a copy of this process, between two writes to the mark. `prepare` and `check` run
/// in the copy as well, before and after the marks: `prepare` makes the input of `work` from
/// `start`, and `check` examines its result. Returns the process id of the copy.
///
/// # Errors
/// The process cannot be copied, or the error of `check`.
pub(crate) fn between_marks<S, P, T>(
    start: S,
    prepare: impl FnOnce(S) -> P,
    work: impl FnOnce(&mut P) -> T,
    check: impl FnOnce(P, T) -> io::Result<()>,
) -> io::Result<i32> {
    sys::in_forked_copy(|| {
        let mut prepared = black_box(prepare(start));
        MARK.store(1, Ordering::SeqCst);
        let done = black_box(work(&mut prepared));
        MARK.store(2, Ordering::SeqCst);
        check(prepared, done)
    })
}

/// The answer of a traced process.
#[derive(Debug, Serialize, Deserialize)]
struct Answer<T> {
    mark: u64,
    maps: String,
    body: T,
}

/// The first characters of the answer.
const ANSWER_BEGIN: &str = r#"{"mark":"#;

/// The answer of a traced process, for its standard output.
///
/// # Errors
/// /proc cannot be read.
pub(crate) fn answer<T: Serialize>(body: T) -> Result<String, Failure> {
    let maps = fs::read_to_string("/proc/self/maps").during(|| "reading /proc/self/maps".into())?;
    let mark = std::ptr::from_ref(&MARK).addr() as u64;
    serde_json::to_string(&Answer { mark, maps, body }).during(|| "answering".into())
}

/// The answer of a traced process, and the traces of its copies, which are removed when this is
/// dropped.
pub(crate) struct Traced<T> {
    pub body: T,
    pub symbols: Symbols,
    mark: u64,
    traces: tempfile::TempDir,
}

impl<T> Traced<T> {
    /// Calls `each` for the events between the marks of a copy, in order.
    ///
    /// # Errors
    /// The trace cannot be read, or lacks a mark; [`Failure::Interrupted`].
    pub(crate) fn scan(&self, copy: i32, cancel: &Cancel, each: impl FnMut(Event)) -> Result<(), Failure> {
        let path = self.traces.path().join(copy.to_string());
        let scanned = scan::scan(&path, self.mark, &|| cancel.check().is_ok(), each);
        cancel.check()?;
        scanned.during(|| format!("reading the trace {}", path.display()))
    }
}

/// The arguments of this program before `subcommand`, followed by `instead`. The options of the
/// subcommand are for this process only.
pub(crate) fn arguments_of(subcommand: &str, instead: &str) -> Vec<OsString> {
    let before = env::args_os().skip(1).take_while(|argument| argument != subcommand);
    before.chain([instead.into()]).collect()
}

/// Runs this program again under lackey, with `arguments` and `order`, which also appears in error
/// messages.
///
/// # Errors
/// valgrind is missing; the error of the process; [`Failure::Interrupted`].
pub(crate) fn trace<T: DeserializeOwned>(
    arguments: Vec<OsString>,
    order: &str,
    cancel: &Cancel,
) -> Result<Traced<T>, Failure> {
    let during = || format!("tracing {order} under valgrind");
    let traces = tempfile::tempdir().during(during)?;
    let command = command(arguments, order, traces.path().into()).during(during)?;
    let (status, bytes) = child::output(command, during, cancel)?;
    match status.code() {
        Some(0) => (),
        Some(NO_VALGRIND) => {
            return Err(Failure::Refused("valgrind is missing: install it (Debian: apt install valgrind)".into()));
        }
        _ => return Err(child::failure(during(), status)),
    }
    // The program may print other lines before the answer.
    let text = String::from_utf8_lossy(&bytes);
    let answer = text.lines().find_map(|line| line.find(ANSWER_BEGIN).map(|at| &line[at..])).unwrap_or_default();
    let Answer { mark, maps, body } = serde_json::from_str(answer).during(during)?;
    Ok(Traced { body, symbols: Symbols::new(&maps), mark, traces })
}

/// The shell's exit code if valgrind is missing.
const NO_VALGRIND: i32 = 127;

/// A shell script that replaces itself by valgrind, so that the process id stays the same. The
/// first process would write a large trace of the set-up, which is not needed: its file is a link
/// to /dev/null. `setarch` may be forbidden; most of the trace does not depend on it.
const BECOME_VALGRIND: &str = r#"
command -v valgrind >/dev/null || exit 127
ln -s /dev/null "$1/$$" || exit 1
traces=$1
shift
set -- valgrind --quiet --tool=lackey --basic-counts=no --trace-mem=yes --log-file="$traces/%p" "$@"
if setarch -R true 2>/dev/null; then exec setarch -R "$@"; fi
exec "$@"
"#;

fn command(arguments: Vec<OsString>, order: &str, traces: PathBuf) -> io::Result<Command> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", BECOME_VALGRIND, "sh"]).arg(traces).arg(env::current_exe()?);
    // No options from the user's environment, and no symbols that are looked up on the first call.
    let kept = env::vars_os().filter(|(name, _)| {
        name == "PATH" || name.to_str().is_some_and(|name| name.starts_with("PANDO_BENCH_") && name != TRACED)
    });
    let kept: Vec<_> = kept.collect();
    command.args(arguments).env_clear().envs(kept).env("LD_BIND_NOW", "1").env(TRACED, order);
    Ok(command)
}
