//! Starts the runs, and shrinks failures.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    process::{Command, ExitCode, Output},
};

use crate::{CHILD, DISAGREE, LINK_POLICY, NO_ORACLE, STICKY_POLICIES, kernel::sysctl, number};

/// The number of operations that a run makes on both trees, by default. With [`RUNS`], 100,000 are
/// compared.
pub const OPS: u64 = 2000;
const RUNS: u64 = 50;
/// The name under which a run counts operations that returned an injected error, and so were
/// repeated.
pub const INJECTED: &str = "InjectedError";
/// A run takes about a second, so one that takes this long hangs.
const HANG_SECONDS: &str = "120";
/// The exit status of `timeout` for such a run.
const HANGS: i32 = 124;
/// The maximal number of runs for shrinking, besides the last one, which is shown.
const TRIES: u32 = 600;

/// The numbers of the operations to make.
#[derive(Debug, Clone)]
pub struct Keep(Option<BTreeSet<u64>>);

impl Keep {
    /// From `PANDO_KEEP`: numbers and ranges.
    pub fn from_env() -> Self {
        let Ok(text) = env::var("PANDO_KEEP") else { return Self(None) };
        let range = |part: &str| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            from.parse().ok().zip(to.parse().ok()).unwrap_or_else(|| panic!("PANDO_KEEP: {part} is not a range"))
        };
        Self(Some(
            text.split(',')
                .filter(|part| !part.is_empty())
                .map(range)
                .flat_map(|(from, to): (u64, u64)| from..=to)
                .collect(),
        ))
    }

    /// The last of them, if not all operations are made.
    pub fn last(&self) -> Option<u64> {
        self.0.as_ref().map(|kept| kept.last().copied().unwrap_or(0))
    }

    pub fn is_small(&self) -> bool {
        self.0.as_ref().is_some_and(|kept| kept.len() <= 40)
    }

    pub fn contains(&self, index: u64) -> bool {
        self.0.as_ref().is_none_or(|kept| kept.contains(&index))
    }
}

/// The maximal number of operations drawn until `ops` have been made. About one in twenty is
/// skipped.
pub fn max_drawn(ops: u64) -> u64 {
    2 * ops + 100
}

fn show(kept: &[u64]) -> String {
    kept.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// Makes one run in a process of its own.
fn run(seed: u64, ops: u64, keep: Option<&[u64]>) -> Output {
    let root = nix::unistd::geteuid().is_root();
    let mut command = Command::new("timeout");
    command.args([HANG_SECONDS, "unshare", "--mount", "--propagation", "private"]);
    if !root {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg(env::current_exe().expect("the path of this test"));
    command.env(CHILD, if root { "root" } else { "user" });
    command.env("PANDO_SEED", seed.to_string()).env("PANDO_OPS", ops.to_string());
    if let Some(keep) = keep {
        command.env("PANDO_KEEP", show(keep));
    }
    command.output().unwrap_or_else(|error| panic!("cannot start a run with timeout and unshare: {error}"))
}

/// Prints what is not tested, and why. Returns the exit code of the test if that is everything.
/// libtest does not run this test, so it must respect `PANDO_NO_SKIP` itself.
fn skipped(reason: &str) -> ExitCode {
    if env::var("PANDO_NO_SKIP").is_ok_and(|value| value == "1") {
        println!("must not skip: {reason}");
        return ExitCode::FAILURE;
    }
    pandofs_testkit::skipped(reason);
    ExitCode::SUCCESS
}

/// The parts that policies of the machine exclude from the test, and these policies.
fn excluded() -> Option<String> {
    let on = |names: &[&str]| -> Vec<String> {
        names.iter().filter(|name| sysctl(name)).map(|name| format!("fs.{name}")).collect()
    };
    let excluded =
        [("sticky directories", on(&STICKY_POLICIES)), ("users' links to others' files", on(&[LINK_POLICY]))];
    let reasons: Vec<_> = excluded
        .iter()
        .filter(|(_, policies)| !policies.is_empty())
        .map(|(what, policies)| format!("{what} ({} on)", policies.join(", ")))
        .collect();
    (!reasons.is_empty()).then(|| reasons.join(", "))
}

/// All runs: the test itself.
pub fn run_all() -> ExitCode {
    let missing = ["timeout", "unshare"].into_iter().find(|program| pandofs_testkit::find(program).is_none());
    if let Some(missing) = missing {
        return skipped(&format!("not installed: {missing}"));
    }
    if let Some(excluded) = excluded()
        && skipped(&excluded) == ExitCode::FAILURE
    {
        return ExitCode::FAILURE;
    }
    let ops = number("PANDO_OPS").unwrap_or(OPS);
    let seeds = match number("PANDO_SEED") {
        Some(seed) => seed..=seed,
        None => {
            let first = number("PANDO_FIRST").unwrap_or(1);
            first..=first.saturating_add(number("PANDO_RUNS").unwrap_or(RUNS).max(1) - 1)
        }
    };
    println!("oracle: seeds {seeds:?}, {ops} operations each");
    let wanted = (seeds.end() - seeds.start() + 1) * ops;
    let mut answers: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let triage = number("PANDO_TRIAGE") == Some(1);
    let mut different: BTreeMap<String, (u64, String)> = BTreeMap::new();
    let whole = number("PANDO_SEED").is_none() && wanted >= 100_000;
    for seed in seeds {
        let output = run(seed, ops, None);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.code() {
            Some(0) => {
                count(&text, &mut answers);
                for line in text.lines().filter_map(|line| line.strip_prefix("DIFFERENT ")) {
                    let (kind, what) = line.split_once(' ').unwrap_or((line, ""));
                    different.entry(kind.into()).or_insert_with(|| (0, what.into())).0 += 1;
                }
            }
            code if triage => println!("seed {seed} ended with {code:?}: {}", String::from_utf8_lossy(&output.stderr)),
            // unshare itself exits with 1 if it is not permitted.
            Some(code) if code == i32::from(NO_ORACLE) || (code == 1 && text.is_empty()) => {
                return skipped(String::from_utf8_lossy(&output.stderr).trim());
            }
            // Not shrunk, since each try would take as long.
            Some(HANGS) => {
                println!("seed {seed} hangs, after {HANG_SECONDS} s; again: PANDO_SEED={seed} PANDO_OPS={ops}");
                return ExitCode::FAILURE;
            }
            code => {
                println!("{text}{}", String::from_utf8_lossy(&output.stderr));
                println!("seed {seed} FAILED ({code:?}); again: PANDO_SEED={seed} PANDO_OPS={ops}");
                if number("PANDO_SHRINK") != Some(0) && env::var_os("PANDO_KEEP").is_none() {
                    shrink(seed, ops, &text);
                }
                return ExitCode::FAILURE;
            }
        }
    }
    for (name, [good, bad]) in &answers {
        println!("{name:>14} {good:>7} succeeded {bad:>7} failed");
        assert!(!whole || triage || *good > 0, "{name} never succeeded: that is not tested");
    }
    for (kind, (times, what)) in &different {
        println!("{times:>6} times {kind}: {what}");
    }
    if !different.is_empty() {
        return ExitCode::FAILURE;
    }
    let made: u64 = answers.iter().filter(|(name, _)| *name != INJECTED).flat_map(|(_, counts)| counts).sum();
    if !triage && env::var_os("PANDO_KEEP").is_none() {
        assert_eq!(made, wanted, "operations that were carried out on both trees");
    }
    println!("oracle: {made} operations carried out on both trees, all alike");
    ExitCode::SUCCESS
}

fn count(text: &str, answers: &mut BTreeMap<String, [u64; 2]>) {
    for line in text.lines() {
        if let ["COUNT", name, good, bad] = line.split(' ').collect::<Vec<_>>()[..] {
            let sums = answers.entry(name.into()).or_default();
            sums[0] += good.parse::<u64>().expect("a count");
            sums[1] += bad.parse::<u64>().expect("a count");
        }
    }
}

/// Leaves out operations as long as the run still fails, from large pieces to single ones (Zeller &
/// Hildebrandt, *Simplifying and Isolating Failure-Inducing Input*, 2002).
fn shrink(seed: u64, ops: u64, text: &str) {
    let failed_at = |text: &str| text.lines().find_map(|line| line.strip_prefix("FAILED AT ")?.parse::<u64>().ok());
    let mut kept: Vec<u64> = (0..=failed_at(text).unwrap_or(max_drawn(ops) - 1)).collect();
    let mut tries = TRIES;
    let mut fails = |keep: &[u64]| {
        tries = tries.checked_sub(1)?;
        let output = run(seed, ops, Some(keep));
        let code = output.status.code();
        let failed = ![0, i32::from(NO_ORACLE), HANGS].map(Some).contains(&code);
        failed.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let mut piece = kept.len().div_ceil(2);
    loop {
        let mut at = 0;
        while at < kept.len() {
            let fewer: Vec<u64> = [&kept[..at], &kept[(at + piece).min(kept.len())..]].concat();
            match fails(&fewer) {
                Some(text) => {
                    let last = failed_at(&text).unwrap_or(u64::MAX);
                    kept = fewer.into_iter().filter(|&index| index <= last).collect();
                }
                None => at += piece,
            }
        }
        if piece == 1 {
            break;
        }
        piece = piece.div_ceil(2);
    }
    let output = run(seed, ops, Some(&kept));
    println!("shrunk to {} operations: PANDO_SEED={seed} PANDO_OPS={ops} PANDO_KEEP={}", kept.len(), show(&kept));
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    debug_assert_eq!(i32::from(DISAGREE), 10);
}
