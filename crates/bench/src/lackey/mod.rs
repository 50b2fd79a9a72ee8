//! Every instruction and every memory access of a piece of work, by valgrind's tool lackey.
//!
//! ```text
//!   this process                        the same program again, under lackey
//!   trace("conflicts", ..) ----------->  set up whatever the work needs, once
//!                                        in_marks(work): a copy of the process (fork)
//!                                                          store 1 to MARK
//!                                                          work
//!                                                          store 2 to MARK, end
//!                                        in_marks(other work): another copy of the same state
//!                          <-----------  tell(..): where MARK is, what is mapped where, which copy did what
//!   scan(copy, ..): its trace between the marks
//!   ```
//!
//! Since each piece of work runs in a copy of one and the same process, all of them start from the same state at the same
//! addresses, whatever they do. The addresses are the same in the next run, too: lackey places the program, and without
//! address randomisation the rest follows.
//!
//! valgrind runs one thread at a time. What is seen are the accesses of a thread that nobody disturbs.

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
use crate::{
    child,
    failure::{Failure, While},
    halt::Halt,
};

/// Set in the process that is traced: what it is to do.
const TRACED: &str = "PANDO_BENCH_TRACED";
/// Written before and after what is to be seen in the trace.
static MARK: AtomicU64 = AtomicU64::new(0);

/// The order of a process that is traced, which ends when it is not wanted any more; none in any other.
pub(crate) fn order() -> Option<String> {
    let order = env::var(TRACED).ok()?;
    // At once: it leaves nothing behind.
    child::when_unwanted(|| process::exit(130));
    Some(order)
}

/// Does `work` in a copy of this process, between marks: on what `prepare` made of `start`, and with `check` looking at
/// what came of it, both outside of them.
///
/// # Errors
/// That there could be no copy, or what `check` said there.
pub(crate) fn in_marks<S, P, T>(
    start: S,
    prepare: impl FnOnce(S) -> P,
    work: impl FnOnce(&mut P) -> T,
    check: impl FnOnce(P, T) -> io::Result<()>,
) -> io::Result<i32> {
    sys::in_a_copy(|| {
        let mut prepared = black_box(prepare(start));
        MARK.store(1, Ordering::SeqCst);
        let done = black_box(work(&mut prepared));
        MARK.store(2, Ordering::SeqCst);
        check(prepared, done)
    })
}

/// What a traced process tells.
#[derive(Debug, Serialize, Deserialize)]
struct Told<T> {
    mark: u64,
    maps: String,
    body: T,
}

/// How the answer begins.
const TOLD: &str = r#"{"mark":"#;

/// The answer of a traced process, for its standard output.
///
/// # Errors
/// That /proc cannot be read.
pub(crate) fn tell<T: Serialize>(body: T) -> Result<String, Failure> {
    let maps = fs::read_to_string("/proc/self/maps").during(|| "reading /proc/self/maps".into())?;
    let mark = std::ptr::from_ref(&MARK).addr() as u64;
    serde_json::to_string(&Told { mark, maps, body }).during(|| "answering".into())
}

/// What a traced process has told, and the traces of its copies, as long as this lives.
pub(crate) struct Traced<T> {
    pub body: T,
    pub symbols: Symbols,
    mark: u64,
    traces: tempfile::TempDir,
}

impl<T> Traced<T> {
    /// Shows `each` event between the marks of a copy, in order.
    ///
    /// # Errors
    /// That the trace cannot be read, or that a mark is missing in it; interrupted.
    pub(crate) fn scan(&self, copy: i32, halt: &Halt, each: impl FnMut(Event)) -> Result<(), Failure> {
        let path = self.traces.path().join(copy.to_string());
        let scanned = scan::scan(&path, self.mark, &|| halt.check().is_ok(), each);
        halt.check()?;
        scanned.during(|| format!("reading the trace {}", path.display()))
    }
}

/// This program's own arguments, up to its subcommand, whose options are this process's business; with another one in its
/// place.
pub(crate) fn arguments_of(subcommand: &str, instead: &str) -> Vec<OsString> {
    let before = env::args_os().skip(1).take_while(|argument| argument != subcommand);
    before.chain([instead.into()]).collect()
}

/// Runs this program again under lackey, with `arguments`, and the order to do `order` (said in errors, too).
///
/// # Errors
/// That valgrind is missing, or what the process said; interrupted.
pub(crate) fn trace<T: DeserializeOwned>(
    arguments: Vec<OsString>,
    order: &str,
    halt: &Halt,
) -> Result<Traced<T>, Failure> {
    let during = || format!("tracing {order} under valgrind");
    let traces = tempfile::tempdir().during(during)?;
    let command = command(arguments, order, traces.path().into()).during(during)?;
    let (status, bytes) = child::output(command, during, halt)?;
    match status.code() {
        Some(0) => (),
        Some(NO_VALGRIND) => {
            return Err(Failure::Refused("valgrind is missing: install it (Debian: apt install valgrind)".into()));
        }
        _ => return Err(child::failure(during(), status)),
    }
    // Whatever else the program prints, it is not this.
    let text = String::from_utf8_lossy(&bytes);
    let told = text.lines().find_map(|line| line.find(TOLD).map(|at| &line[at..])).unwrap_or_default();
    let Told { mark, maps, body } = serde_json::from_str(told).during(during)?;
    Ok(Traced { body, symbols: Symbols::new(&maps), mark, traces })
}

/// How the shell says that there is no valgrind.
const NO_VALGRIND: i32 = 127;

/// In shell, since what it needs is to become valgrind: the process id stays. The first process writes a trace of the set-up,
/// which is large and not wanted; its file is a link to nowhere. `setarch` may be forbidden, and is not needed for
/// most of it.
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
    // No option of somebody's environment, and no symbol that is looked up when it is first called.
    let kept = env::vars_os().filter(|(name, _)| {
        name == "PATH" || name.to_str().is_some_and(|name| name.starts_with("PANDO_BENCH_") && name != TRACED)
    });
    let kept: Vec<_> = kept.collect();
    command.args(arguments).env_clear().envs(kept).env("LD_BIND_NOW", "1").env(TRACED, order);
    Ok(command)
}

#[cfg(test)]
mod tests;
