//! The oracle: random operations on a real tmpfs and on a tree of pandofs, which must answer alike.
//!
//! A driver's test hands over a name space ([`Subject`]) and calls [`run`]. Each run is a process of its own: it has a
//! mount name space of its own, mounts a tmpfs there, makes it its root and carries out the same operations on it and on
//! the subject. Every result is compared, and every few operations and at the end the whole trees are. See `op` for what
//! is not compared. In half of the runs root takes turns with ordinary users; in some of them space is short.
//!
//! A subject that can fail brings its [`Trouble`]: before each operation it evicts and makes a later call fail. An
//! operation that answers the injected error must have had no effect: it is carried out once more, without failures, and
//! then has to answer what tmpfs does.
//!
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `PANDO_SEED` | only this run | seeds 1, 2, .. |
//! | `PANDO_RUNS` | how many runs | 50 |
//! | `PANDO_FIRST` | the first run's seed | 1 |
//! | `PANDO_OPS` | operations that a run carries out on both trees | 2000 |
//! | `PANDO_KEEP` | only the operations with these numbers, `3,7,9-12` | all |
//! | `PANDO_SHRINK` | 0: report a failure as it is | 1 |
//! | `PANDO_ONLY` | stop at this kind of failure, as `PANDO_TRIAGE` names it | at any |
//! | `PANDO_TRIAGE` | 1: go on after a failure, and list the different ones | 0 |
//!
//! A failure is shrunk: operations are left out as long as it still fails, and what is left is printed with both
//! answers. Without root a user name space is used, and there are no other users in it; where that is forbidden too,
//! or there is no util-linux, nothing is tested. Where the machine has policies of its own for links and sticky directories
//! (`fs.protected_*`), what they concern is left out. The output says `skipped:` and why; with `PANDO_NO_SKIP=1` it
//! fails.
#![forbid(unsafe_code)]

mod generate;
mod kernel;
#[path = "../../vfs/tests/support/number.rs"]
mod number;
mod op;
mod pando;
mod parent;
mod snapshot;

use std::{collections::BTreeMap, env, process::ExitCode};

use crate::{
    generate::Generator,
    kernel::Kernel,
    number::number,
    op::{Op, Outcome, Tree, Whence, Who, alike, show},
    pando::Pando,
    parent::Keep,
    snapshot::{Looker, Snapshot},
};

pub use generate::{Limits, Style};
pub use pando::{Subject, Trouble};

/// The exit status of a run whose trees disagree.
const DISAGREE: u8 = 10;
/// That of one that could not begin.
const NO_ORACLE: u8 = 11;
/// Set for the process that carries out a run.
const CHILD: &str = "PANDO_ORACLE_CHILD";

/// The whole test, for a `main` of its own: runs of many seeds, each in a process that this function is called in again.
///
/// `kept_elsewhere`: the subject's tree has a backing, whose trees do not do all that one in memory does (see `op`).
pub fn run(kept_elsewhere: bool, subject: impl FnOnce(&Style) -> Subject) -> ExitCode {
    // As the test harness that this is not: asked for a list, there is none.
    if env::args().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    if env::var_os(CHILD).is_some() { child(kept_elsewhere, subject) } else { parent::run_all() }
}

/// What protects sticky directories in ways of its own: where one is on, no directory gets that bit.
const STICKY_POLICIES: [&str; 3] = ["protected_symlinks", "protected_regular", "protected_fifos"];
/// An ordinary user links only to what is its own or could be: no other links of users are tried.
const LINK_POLICY: &str = "protected_hardlinks";

/// What kind of run a seed stands for.
fn style(seed: u64, kept_elsewhere: bool) -> Style {
    let root = env::var(CHILD).is_ok_and(|how| how == "root");
    Style {
        seed,
        kept_elsewhere,
        users: root && seed.is_multiple_of(2),
        trusted: root,
        sticky: !STICKY_POLICIES.into_iter().any(kernel::sysctl),
        limits: (!kept_elsewhere && seed.is_multiple_of(5)).then_some(Limits {
            bytes: 96 << 10,
            // Some are full soon, of links and attributes too, and some never.
            inodes: [12, 30, 1000][(seed / 5 % 3) as usize],
        }),
    }
}

/// One run, in a process that was started for it.
fn child(kept_elsewhere: bool, subject: impl FnOnce(&Style) -> Subject) -> ExitCode {
    let seed = number("PANDO_SEED").expect("a run has a seed");
    let ops = number("PANDO_OPS").unwrap_or(parent::OPS);
    let keep = Keep::from_env();
    let style = style(seed, kept_elsewhere);
    let triage = number("PANDO_TRIAGE") == Some(1);
    let only = env::var("PANDO_ONLY").ok();
    let kernel = match Kernel::enter(&style) {
        Ok(kernel) => kernel,
        Err(error) => {
            eprintln!("cannot mount a tmpfs and make it the root: {error}");
            return ExitCode::from(NO_ORACLE);
        }
    };
    let mut run = Run {
        kernel,
        pando: Pando::new(subject(&style), &style),
        who: Who::Root,
        lookers: Default::default(),
        log: Vec::new(),
        answers: BTreeMap::new(),
        carried_out: 0,
    };
    run.prepare();
    let mut generator = Generator::new(seed, style);
    // When little is left of a failure, trees are compared after each operation, so that the last one is the culprit.
    let every = if keep.is_small() { 1 } else { 25 };
    for index in 0..=keep.last().unwrap_or(u64::MAX) {
        if keep.last().is_none() && run.carried_out == ops {
            break;
        }
        assert!(index <= parent::most_drawn(ops), "more than half of the operations were not to be carried out");
        let op = generator.op();
        if !keep.contains(index) {
            continue;
        }
        let step = run.step(index, &op).and_then(|()| {
            let is_last = keep.last().map_or(run.carried_out == ops, |last| index == last);
            if is_last || index % every == every - 1 { run.compare_trees() } else { Ok(()) }
        });
        if let Err(Disagreement { what, kind, apart }) = step {
            if triage || only.as_ref().is_some_and(|only| *only != kind) {
                println!("DIFFERENT {kind} seed {seed} operation {index} {}", what.replace('\n', " "));
                if triage && apart {
                    break;
                }
                continue;
            }
            println!("seed {seed}, operation {index}, {style:?}: {what}\nthe last operations, and tmpfs's answers:");
            run.log.iter().rev().take(30).rev().for_each(|line| println!("{line}"));
            println!("FAILED AT {index}");
            return ExitCode::from(DISAGREE);
        }
    }
    if let Some(answered) = run.pando.answered_injected() {
        run.answers.insert(parent::INJECTED.into(), answered);
    }
    for (name, [good, bad]) in &run.answers {
        println!("COUNT {name} {good} {bad}");
    }
    ExitCode::SUCCESS
}

/// How the trees disagree.
struct Disagreement {
    what: String,
    /// In a word or two, the same for what looks like the same mistake.
    kind: String,
    /// Whether the trees are different from now on: not if both refused, with different errnos.
    apart: bool,
}

/// Both trees, side by side.
struct Run {
    kernel: Kernel,
    pando: Pando,
    who: Who,
    lookers: [Looker; 2],
    log: Vec<String>,
    /// By the operation's name: how often it succeeded and failed.
    answers: BTreeMap<String, [u64; 2]>,
    /// Operations that both trees were asked for.
    carried_out: u64,
}

impl Run {
    /// Opens the root to all.
    fn prepare(&mut self) {
        let root = op::Place { at: op::At::Cwd, path: "/".into() };
        for op in [Op::Umask { mask: op::Mode(0) }, Op::Chmod { place: root, mode: op::Mode(0o777) }] {
            let (left, right) = (self.kernel.apply(&op), self.pando.apply(&op));
            assert_eq!((left.is_ok(), &left), (true, &right), "{op:?}");
        }
    }

    /// One operation on both; the error says how they disagree.
    fn step(&mut self, index: u64, op: &Op) -> Result<(), Disagreement> {
        if self.kernel.must_skip(op) || self.asks_for_allocated_holes(op) {
            self.log.push(format!("{index:>6} {op:?} (skipped)"));
        } else {
            let expected = self.kernel.apply(op);
            self.log.push(format!("{index:>6} {op:?} = {}", show(&expected)));
            let found = self.pando.apply_in_trouble(index, op);
            if let (Op::Become { who }, Ok(_)) = (op, &expected) {
                self.who = *who;
            }
            self.count(op, &expected);
            if let (Op::Fallocate { slot, mode: 0 | 1, .. }, Ok(_)) = (op, &expected) {
                self.lookers[0].note_allocation(&mut self.kernel, *slot);
                self.lookers[1].note_allocation(&mut self.pando, *slot);
            }
            if !alike(op, &expected, &found) {
                let short = |outcome: &Outcome| outcome.as_ref().map_or_else(i32::to_string, |_| "ok".into());
                return Err(Disagreement {
                    what: format!("{op:?}\n  tmpfs:  {}\n  pando:  {}", show(&expected), show(&found)),
                    kind: format!("{}:{}:{}", name_of(op), short(&expected), short(&found)),
                    apart: expected.is_ok() || found.is_ok(),
                });
            }
        }
        Ok(())
    }

    /// Whether the operation asks where data is in a file with allocated ranges: see [`Looker`].
    fn asks_for_allocated_holes(&mut self, op: &Op) -> bool {
        let Op::Lseek { slot, whence: Whence::Data | Whence::Hole, .. } = op else { return false };
        self.lookers[0].has_allocated(&mut self.kernel, *slot)
    }

    fn count(&mut self, op: &Op, outcome: &Outcome) {
        self.carried_out += 1;
        self.answers.entry(name_of(op)).or_default()[usize::from(outcome.is_err())] += 1;
    }

    fn compare_trees(&mut self) -> Result<(), Disagreement> {
        let expected = self.lookers[0].look(&mut self.kernel, self.who);
        let found = self.lookers[1].look(&mut self.pando, self.who);
        kernel::next_tick();
        first_difference(&expected, &found).map_or(Ok(()), Err)
    }
}

/// The operation's name.
fn name_of(op: &Op) -> String {
    format!("{op:?}").chars().take_while(char::is_ascii_alphabetic).collect()
}

/// Where two looks at the trees differ first.
fn first_difference(expected: &Snapshot, found: &Snapshot) -> Option<Disagreement> {
    let at = (0..expected.len().max(found.len())).find(|&at| expected.get(at) != found.get(at))?;
    let show = |snapshot: &Snapshot| match snapshot.get(at) {
        Some((what, outcome)) => format!("{what}: {}", show(outcome)),
        None => "nothing more".into(),
    };
    let (expected, found) = (show(expected), show(found));
    Some(Disagreement {
        kind: format!("trees:{}", expected.split([' ', ':']).next().unwrap_or_default()),
        what: format!("the trees differ\n  tmpfs:  {expected}\n  pando:  {found}"),
        apart: true,
    })
}
