//! Helpers for the tests of all crates: skips that are counted, programs that may be missing,
//! parameters from the environment, waits that end, and an allocator that counts.
//!
//! A test that needs something which this machine lacks calls [`skipped`] and returns early.
//! libtest has no such outcome. So the call prints the reason past libtest's capture, and adds a
//! line to a log. With `PANDO_NO_SKIP=1`, which the gate sets, it fails the test instead. The test
//! binary `skips` of this crate runs last in `cargo test --workspace`. It prints the log as one
//! summary.

mod counting;

use std::{
    env,
    ffi::OsStr,
    fmt::Debug,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::{fs::OpenOptionsExt, fs::PermissionsExt, process::parent_id},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub use counting::Counting;

/// How long a test waits for something that should not take long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A number from the environment, such as a seed. None if the variable is not set.
///
/// # Panics
/// The value is not a number: otherwise a seed with a typing error would be ignored.
#[must_use]
pub fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Waits until `found` returns `expected`: for a state that depends on other threads. For instance,
/// memory is reclaimed only when no test that runs beside this one is reading.
///
/// # Panics
/// That takes a minute.
#[track_caller]
pub fn await_value<T: PartialEq + Debug>(expected: T, mut found: impl FnMut() -> T) {
    let begin = Instant::now();
    loop {
        let now = found();
        if now == expected {
            return;
        }
        if begin.elapsed() > PATIENCE {
            panic!("it is {now:?}, and not {expected:?}");
        }
        thread::yield_now();
    }
}

/// Keeps this thread, and the programs that it starts from now on, on one CPU: for tests of what
/// callers on one CPU share.
///
/// # Panics
/// It is not permitted.
pub fn stay_on_first_cpu() {
    let allowed = sched_getaffinity(None).expect("the CPUs of this thread");
    let mut only = CpuSet::new();
    only.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).expect("it runs"));
    sched_setaffinity(None, &only).expect("a thread may choose among its CPUs");
}

/// Says that the running test, or a part of it, is skipped, and why.
///
/// # Panics
/// `PANDO_NO_SKIP=1` is set: then nothing may be skipped.
pub fn skipped(reason: &str) {
    assert!(env::var_os("PANDO_NO_SKIP").is_none_or(|value| value != "1"), "must not skip: {reason}");
    let skip = Skip { test: running(), reason: reason.replace(['\n', '\t'], " ") };
    // One write each: other tests write to the same stream.
    let _ = io::stderr().write_all(format!("skipped: {}: {}\n", skip.test, skip.reason).as_bytes());
    // A build directory that cannot be written to loses the summary, not the line above.
    let _ = skip.note();
}

/// The name of the running test, which libtest gives to the thread. Without libtest, or with one
/// thread, it is the name of the test binary.
fn running() -> String {
    let named = thread::current().name().filter(|name| *name != "main").map(str::to_owned);
    let binary = || {
        let path = env::current_exe().ok()?;
        let name = path.file_stem()?.to_str()?;
        Some(name.rsplit_once('-').map_or(name, |(name, _)| name).to_owned())
    };
    named.or_else(binary).unwrap_or_else(|| "a test".to_owned())
}

/// Whether all these programs are on `PATH`. If not, the test is noted as skipped.
pub fn has(programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| find(program).is_none()).collect();
    if !missing.is_empty() {
        skipped(&format!("not installed: {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// Whether the tests run as root. If not, the test is noted as skipped.
pub fn is_root() -> bool {
    // The owner of a process's directory is its effective user.
    let root = fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if !root {
        skipped("not root");
    }
    root
}

/// Where a program is, if it is on `PATH`.
pub fn find(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let is_program =
        |path: &Path| fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(program.as_ref())).find(|path| is_program(path))
}

/// A shell that runs `script`, by its path: `PATH` need not have one. Arguments that the caller
/// adds are `$1` and so on. The caller asks [`has`] for the programs that the script calls.
pub fn shell(script: &str) -> Command {
    let mut command = Command::new(SHELL);
    command.args(["-c", script, "sh"]);
    command
}

/// Every Linux system has it.
pub const SHELL: &str = "/bin/sh";

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Skip {
    reason: String,
    test: String,
}

impl Skip {
    /// Adds it to the log, after the process that started this test binary: cargo.
    fn note(&self) -> io::Result<()> {
        let mut log = OpenOptions::new().create(true).append(true).mode(0o644).open(log()?)?;
        log.write_all(format!("{}\t{}\t{}\n", parent_id(), self.test, self.reason).as_bytes())
    }
}

/// The log lies beside the test binaries.
fn log() -> io::Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name("skips.log"))
}

/// The skips of all test binaries that `cargo` has started so far; None if there were none. The log
/// is empty afterwards.
///
/// # Errors
/// The log cannot be read or removed.
pub fn summary() -> io::Result<Option<String>> {
    let log = log()?;
    let text = match fs::read_to_string(&log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    fs::remove_file(&log)?;
    Ok(summarise(&text, parent_id()))
}

/// The lines of one run, grouped by their reason, the most frequent first.
fn summarise(log: &str, run: u32) -> Option<String> {
    let mut skips: Vec<Skip> = log.lines().filter_map(|line| skip_of(line, run)).collect();
    skips.sort();
    let mut groups: Vec<&[Skip]> = skips.chunk_by(|one, other| one.reason == other.reason).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    let mut text = format!("skipped: {} tests or parts of tests. The reasons, and the tests:\n", skips.len());
    for group in &groups {
        let mut tests: Vec<&str> = group.iter().map(|skip| skip.test.as_str()).collect();
        tests.dedup();
        text += &format!("{:5}  {}\n       {}\n", group.len(), group[0].reason, tests.join(", "));
    }
    (!groups.is_empty()).then_some(text)
}

fn skip_of(line: &str, run: u32) -> Option<Skip> {
    let mut fields = line.splitn(3, '\t');
    let of_run = fields.next()?.parse() == Ok(run);
    let (test, reason) = (fields.next()?.to_owned(), fields.next()?.to_owned());
    of_run.then_some(Skip { reason, test })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_groups_skips_of_one_run_by_reason() {
        let log = "7\ta::one\tnot root\n8\tother\tnot root\n7\tb\tno tmux\n7\ttwo\tnot root\nhalf\n7\ttwo\tnot root\n";
        let expected = "skipped: 4 tests or parts of tests. The reasons, and the tests:\n    \
                        3  not root\n       a::one, two\n    1  no tmux\n       b\n";
        assert_eq!(summarise(log, 7).as_deref(), Some(expected));
        assert_eq!(summarise(log, 9), None);
    }

    #[test]
    fn programs_are_found_on_the_path_only() {
        assert!(find("cargo").is_some());
        assert!(find("no-such-program-anywhere").is_none());
        assert!(shell("test \"$1\" = word").arg("word").status().unwrap().success());
    }
}
