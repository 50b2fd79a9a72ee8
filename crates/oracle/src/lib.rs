//! The oracle: random operations on a real tmpfs and on a tree of pandofs, which must return the
//! same results.
//!
//! A driver's test passes a namespace ([`Subject`]) to [`run`]. Each run is a process of its own.
//! It has its own mount namespace, mounts a tmpfs there, and makes it its root. It makes the same
//! operations on this tmpfs and on the subject. Every result is compared. Every few operations, and
//! at the end, the whole trees are compared. The module `op` lists what is not compared. In half of
//! the runs root takes turns with ordinary users. In some runs space is scarce.
//!
//! A subject that can fail has a [`FaultInjector`]. Before each operation it evicts inodes and
//! makes a later call fail. An operation that returns the injected error must have had no effect.
//! It is repeated without faults, and must then return the result of tmpfs.
//!
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `PANDO_SEED` | only this run | seeds 1, 2, .. |
//! | `PANDO_RUNS` | the number of runs | 50 |
//! | `PANDO_FIRST` | the seed of the first run | 1 |
//! | `PANDO_OPS` | the number of operations that a run makes on both trees | 2000 |
//! | `PANDO_KEEP` | only the operations with these numbers, `3,7,9-12` | all |
//! | `PANDO_SHRINK` | 0: report a failure without shrinking it | 1 |
//! | `PANDO_ONLY` | stop at this kind of failure, as `PANDO_TRIAGE` names it | at any |
//! | `PANDO_TRIAGE` | 1: continue after a failure, and list the different ones | 0 |
//!
//! A failure is shrunk: operations are left out as long as the run still fails. The remaining ones
//! are printed with both results. Without root, a user namespace is used, and there are no other
//! users in it. If user namespaces are forbidden too, or util-linux is missing, nothing is tested.
//! If the machine has policies for links and sticky directories (`fs.protected_*`), the operations
//! that they concern are left out. The output then has a line `skipped:` with the reason. With
//! `PANDO_NO_SKIP=1` a skip is a failure.
#![forbid(unsafe_code)]

mod events;
mod generate;
mod kernel;
mod mounted;
mod op;
mod pando;
mod parent;
mod snapshot;

use std::{collections::BTreeMap, env, process::ExitCode, thread};

use nix::sched::{CloneFlags, unshare};
use pandofs_testkit::number;

use crate::{
    events::Inotify,
    generate::Generator,
    kernel::Kernel,
    mounted::Mounted,
    op::{Caller, Op, Outcome, Tested, Tree, Whence, agree, show},
    pando::Pando,
    parent::Keep,
    snapshot::{Snapshot, Snapshotter},
};

pub use generate::{Limits, Style};
pub use kernel::tmpfs;
pub use mounted::Mount;
pub use pando::{FaultInjector, Subject};

/// The exit status of a run whose trees differ.
const DISAGREE: u8 = 10;
/// The exit status of a run that could not begin.
const NO_ORACLE: u8 = 11;
/// Set in the process of a run.
const CHILD: &str = "PANDO_ORACLE_CHILD";

/// The whole test, for a `main` of its own. It makes runs with many seeds, each in a new process
/// that calls this function again.
///
/// `tree` is the kind of the subject's tree. Not all support what a tree in memory does; the module
/// `op` lists the differences.
pub fn run(tree: TreeKind, subject: impl FnOnce(&Style) -> Subject) -> ExitCode {
    run_all_or(|| child(&style(tree, false), |style| Box::new(Pando::new(subject(style), style))))
}

/// As [`run`], for a tree that the kernel has mounted. The operations are system calls. The tree is
/// compared as one with a backing.
pub fn run_mounted<M: Mount>(mount: impl FnOnce(&Style) -> M) -> ExitCode {
    run_all_or(|| {
        let style = style(TreeKind::Backed, true);
        let mut mount = mount(&style);
        // Also if the run panics. Then the tree is unmounted.
        let _left = kernel::Leave;
        thread::scope(|scope| {
            let run = scope.spawn(|| {
                // The root directory of this thread changes. That of the thread that unmounts does
                // not.
                unshare(CloneFlags::CLONE_FS).expect("no permission is needed");
                child(&style, |style| Box::new(Mounted::new(&mut mount, style)))
            });
            run.join().expect("a panic has been reported")
        })
    })
}

/// Makes all runs, or, in the process of a run, this one.
fn run_all_or(child: impl FnOnce() -> ExitCode) -> ExitCode {
    // This is no libtest harness: a request for a list of tests gets an empty list.
    if env::args().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    if env::var_os(CHILD).is_some() { child() } else { parent::run_all() }
}

/// Policies that protect sticky directories. If one of them is on, no directory gets the sticky
/// bit.
const STICKY_POLICIES: [&str; 3] = ["protected_symlinks", "protected_regular", "protected_fifos"];
/// The policy that an ordinary user may link only to files that it owns or could own. If it is on,
/// users make no other links.
const LINK_POLICY: &str = "protected_hardlinks";

/// The kind of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeKind {
    /// In memory.
    Memory,
    /// It has a backing, and checks ACLs.
    Backed,
    /// It has a backing that checks ACLs, and does not know them in its own checks. So there are
    /// ACLs if there is no other user.
    Host,
}

/// The kind of this run.
fn style(tree: TreeKind, mounted: bool) -> Style {
    let seed = number("PANDO_SEED").expect("a run has a seed");
    let backed = tree != TreeKind::Memory;
    let limited = !backed && seed.is_multiple_of(5);
    let root = env::var(CHILD).is_ok_and(|how| how == "root");
    let users = root && seed.is_multiple_of(2);
    Style {
        seed,
        backed,
        mounted,
        users,
        root,
        sticky: !STICKY_POLICIES.into_iter().any(kernel::sysctl),
        // On tmpfs an ACL takes no space.
        acls: (tree != TreeKind::Host || !users) && !limited,
        inode_flags: match tree {
            // A directory of the host: it has no flags.
            _ if mounted || tree == TreeKind::Host => 0,
            // Root of a user namespace may not set flags that protect.
            _ if !root => 0xc0,
            _ => 0xf0,
        },
        limits: limited.then_some(Limits {
            bytes: 96 << 10,
            // Some trees are soon full, also of links and attributes, and some never.
            inodes: [12, 30, 1000][(seed / 5 % 3) as usize],
        }),
    }
}

/// One run, in the process that was started for it.
fn child<'a>(style: &Style, subject: impl FnOnce(&Style) -> Box<dyn Tested + 'a>) -> ExitCode {
    let ops = number("PANDO_OPS").unwrap_or(parent::OPS);
    let keep = Keep::from_env();
    let triage = number("PANDO_TRIAGE") == Some(1);
    let only = env::var("PANDO_ONLY").ok();
    // Before the root directory of this process changes.
    let subject = subject(style);
    let kernel = match Kernel::enter(style) {
        Ok(kernel) => kernel,
        Err(error) => {
            eprintln!("cannot mount a tmpfs and make it the root: {error}");
            return ExitCode::from(NO_ORACLE);
        }
    };
    let mut run = Run {
        kernel,
        inotify: Inotify::new().expect("inotify"),
        removed: 0,
        tested: subject,
        caller: Caller::Root,
        snapshotters: Default::default(),
        log: Vec::new(),
        answers: BTreeMap::new(),
        made: 0,
    };
    run.prepare();
    let mut generator = Generator::new(style.seed, *style);
    // When a failure has shrunk to few operations, the trees are compared after each one, so that
    // the last operation is the cause.
    let every = if keep.is_small() { 1 } else { 25 };
    for index in 0..=keep.last().unwrap_or(u64::MAX) {
        if keep.last().is_none() && run.made == ops {
            break;
        }
        assert!(index <= parent::max_drawn(ops), "more than half of the operations were not to be carried out");
        let op = generator.op();
        if !keep.contains(index) {
            continue;
        }
        let step = run.step(index, &op).and_then(|()| {
            let is_last = keep.last().map_or(run.made == ops, |last| index == last);
            if is_last || index % every == every - 1 { run.compare_trees() } else { Ok(()) }
        });
        if let Err(Disagreement { what, kind, diverged }) = step {
            if triage || only.as_ref().is_some_and(|only| *only != kind) {
                println!("DIFFERENT {kind} seed {} operation {index} {}", style.seed, what.replace('\n', " "));
                if triage && diverged {
                    break;
                }
                continue;
            }
            println!(
                "seed {}, operation {index}, {style:?}: {what}\nthe last operations, and tmpfs's answers:",
                style.seed
            );
            run.log.iter().rev().take(30).rev().for_each(|line| println!("{line}"));
            println!("FAILED AT {index}");
            return ExitCode::from(DISAGREE);
        }
    }
    if let Some(counts) = run.tested.injected_errors() {
        run.answers.insert(parent::INJECTED.into(), counts);
    }
    for (name, [good, bad]) in &run.answers {
        println!("COUNT {name} {good} {bad}");
    }
    ExitCode::SUCCESS
}

/// A difference between the trees.
struct Disagreement {
    what: String,
    /// One or two words, the same for failures that look like the same bug.
    kind: String,
    /// Whether the trees are different from now on. They are not if both refused, with different
    /// errnos.
    diverged: bool,
}

/// Both trees, side by side.
struct Run<'a> {
    kernel: Kernel,
    inotify: Inotify,
    /// How many watched directories were removed.
    removed: usize,
    tested: Box<dyn Tested + 'a>,
    caller: Caller,
    snapshotters: [Snapshotter; 2],
    log: Vec<String>,
    /// By the name of the operation: how often it succeeded and failed.
    answers: BTreeMap<String, [u64; 2]>,
    /// The number of operations made on both trees.
    made: u64,
}

impl Run<'_> {
    /// Gives all users access to the root directory.
    fn prepare(&mut self) {
        let root = op::Place { at: op::At::Cwd, path: "/".into() };
        for op in [Op::Umask { mask: op::Mode(0) }, Op::Chmod { place: root, mode: op::Mode(0o777) }] {
            let (left, right) = (self.kernel.apply(&op), self.tested.apply(&op));
            assert_eq!((left.is_ok(), &left), (true, &right), "{op:?}");
        }
        self.watch("/");
    }

    /// Watches a directory on both trees, if the tree under test has watches.
    fn watch(&mut self, path: &str) {
        if self.tested.watch(path) {
            self.inotify.watch(path).expect("inotify_add_watch");
        }
    }

    /// Compares the events of the last operation.
    fn compare_events(&mut self, op: &Op, outcome: &Outcome) -> Result<(), Disagreement> {
        let Some((mut found, removed)) = self.tested.take_events() else { return Ok(()) };
        let mut expected = self.inotify.take();
        events::leave_out(op, outcome, removed, [&mut expected, &mut found]);
        // Only these remove a directory, and each at most one.
        let may_end = usize::from(matches!((op, outcome), (Op::Rmdir { .. } | Op::Rename { .. }, Ok(_))));
        let ended = removed.len() - std::mem::replace(&mut self.removed, removed.len());
        if expected == found && ended <= may_end {
            return Ok(());
        }
        let show = |seen: &[events::Seen]| seen.iter().map(|seen| format!("\n    {seen:?}")).collect::<String>();
        Err(Disagreement {
            what: format!("{op:?}: the events differ\n  tmpfs:  {}\n  pando:  {}", show(&expected), show(&found)),
            kind: format!("{}:events", name_of(op)),
            diverged: false,
        })
    }

    /// Makes one operation on both trees. The error describes the difference.
    fn step(&mut self, index: u64, op: &Op) -> Result<(), Disagreement> {
        if self.kernel.must_skip(op) || self.asks_for_allocated_holes(op) {
            self.log.push(format!("{index:>6} {op:?} (skipped)"));
        } else {
            let expected = self.kernel.apply(op);
            self.log.push(format!("{index:>6} {op:?} = {}", show(&expected)));
            let found = self.tested.apply_disturbed(index, op);
            if let (Op::Become { caller }, Ok(_)) = (op, &expected) {
                self.caller = *caller;
            }
            self.count(op, &expected);
            if let (Op::Fallocate { slot, mode: 0 | 1, .. }, Ok(_)) = (op, &expected) {
                self.snapshotters[0].note_allocation(&mut self.kernel, *slot);
                self.snapshotters[1].note_allocation(&mut *self.tested, *slot);
            }
            if !agree(op, &expected, &found) && !self.agrees_later(op, &found) {
                let short = |outcome: &Outcome| outcome.as_ref().map_or_else(i32::to_string, |_| "ok".into());
                return Err(Disagreement {
                    what: format!("{op:?}\n  tmpfs:  {}\n  pando:  {}", show(&expected), show(&found)),
                    kind: format!("{}:{}:{}", name_of(op), short(&expected), short(&found)),
                    diverged: expected.is_ok() || found.is_ok(),
                });
            }
            self.compare_events(op, &expected)?;
            if let (Op::Mkdir { place: op::Place { at: op::At::Cwd, path }, .. }, Ok(_)) = (op, &expected)
                && self.caller == Caller::Root
            {
                self.watch(path);
            }
        }
        Ok(())
    }

    /// Whether the kernel gives the answer `found` to statfs a moment later. It frees a removed
    /// file's space when the last process has closed the file. A process that reads `/proc/PID/fd`
    /// or drops the page cache may have it open for an instant: a loop of open, unlink, close and
    /// statfs saw that 625 times in 241,000 beside the first, and 6 times in 371,000 beside the
    /// second.
    fn agrees_later(&mut self, op: &Op, found: &Outcome) -> bool {
        let asks_again = || {
            thread::sleep(std::time::Duration::from_millis(10));
            agree(op, &self.kernel.apply(op), found)
        };
        matches!(op, Op::Statfs { .. }) && std::iter::repeat_with(asks_again).take(100).any(|agrees| agrees)
    }

    /// Whether the operation asks for data or holes in a file with allocated ranges: see
    /// [`Snapshotter`].
    fn asks_for_allocated_holes(&mut self, op: &Op) -> bool {
        let Op::Lseek { slot, whence: Whence::Data | Whence::Hole, .. } = op else { return false };
        self.snapshotters[0].has_allocated(&mut self.kernel, *slot)
    }

    fn count(&mut self, op: &Op, outcome: &Outcome) {
        self.made += 1;
        self.answers.entry(name_of(op)).or_default()[usize::from(outcome.is_err())] += 1;
    }

    fn compare_trees(&mut self) -> Result<(), Disagreement> {
        let expected = self.snapshotters[0].take(&mut self.kernel, self.caller);
        let found = self.snapshotters[1].take(&mut *self.tested, self.caller);
        kernel::next_tick();
        // The two do not look at a tree in the same way.
        self.inotify.take();
        self.tested.take_events();
        first_difference(&expected, &found).map_or(Ok(()), Err)
    }
}

/// The name of the operation.
fn name_of(op: &Op) -> String {
    format!("{op:?}").chars().take_while(char::is_ascii_alphabetic).collect()
}

/// The first difference between two snapshots.
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
        diverged: true,
    })
}
