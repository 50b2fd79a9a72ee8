//! The verdict on each pair, and the offenders: objects that one operation writes and another one
//! touches.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use super::{
    actor::Role,
    pairs::{Operation, Pair, Scene, pairs},
    touched::{Class, Collector, LineConflict, Touched},
    traced_process::{Placed, TracedRuns},
};
use crate::{
    base::{cancel::Cancel, failure::Failure},
    lackey::{Symbols, Traced},
};

/// Whether two operations conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Neither writes a line that the other touches.
    Free,
    /// On a line of the file system, under half of the keys or fewer: names are neighbours by
    /// chance.
    Chance,
    /// Only on lines of the allocator or the reclaimer.
    Memory,
    /// On a line of the file system, under most keys.
    Conflict,
}

impl Verdict {
    /// The verdict on a pair that conflicts on a line of the file system under `conflicts` keys,
    /// and only on other lines under `memory_only` keys.
    fn of(keys: u32, conflicts: u32, memory_only: u32) -> Self {
        match () {
            () if 2 * conflicts > keys => Self::Conflict,
            () if conflicts > 0 => Self::Chance,
            () if memory_only > 0 => Self::Memory,
            () => Self::Free,
        }
    }
}

/// One pair.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Case {
    pub scene: Scene,
    pub a: Operation,
    pub b: Operation,
    pub why_they_commute: Cow<'static, str>,
    pub verdict: Verdict,
    /// Number of keys under which they conflict on a line of the file system, and number of keys
    /// under which they conflict only on other lines.
    pub conflicts: u32,
    pub memory_only: u32,
    /// Indices of the offenders.
    pub offenders: Vec<usize>,
}

/// An object that one operation writes while another one touches it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offender {
    pub class: Class,
    /// The written object.
    pub written: String,
    /// The object that the other operation touches on the same line; none if it is the same one.
    pub beside: Option<String>,
    /// The source locations of the write and of the other access, for one of the pairs.
    pub written_at: String,
    pub touched_at: String,
    /// Number of pairs, under any key.
    pub pairs: usize,
}

/// All verdicts.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Matrix {
    pub version: u32,
    pub compiler: String,
    pub cores: usize,
    pub pairs: usize,
    pub keys: u32,
    /// Percentage of the cases (each pair, under each key) that are free of conflicts, without the
    /// lines of the allocator and the reclaimer, and with them.
    pub free_percent: f64,
    pub free_percent_with_memory: f64,
    pub cases: Vec<Case>,
    pub offenders: Vec<Offender>,
}

/// The cache lines that each operation of each thread touched.
type TouchedByRun = BTreeMap<(u32, Scene, Operation, Role), Touched>;

impl Matrix {
    /// Computes the matrix from the traces.
    ///
    /// # Errors
    /// A trace cannot be read; [`Failure::Interrupted`].
    pub(crate) fn new(traced: &Traced<TracedRuns>, cancel: &Cancel) -> Result<Self, Failure> {
        let mut runs = TouchedByRun::new();
        for run in &traced.body.runs {
            let mut collector = Collector::new(&traced.symbols);
            traced.scan(run.copy, cancel, |event| collector.event(event))?;
            runs.insert((run.key, run.scene, run.operation, run.role), collector.finish());
        }
        let keys = traced.body.keys;
        let mut names = Names { keys, parts: &traced.body.parts, symbols: &traced.symbols, offenders: Vec::new() };
        let cases: Vec<Case> = pairs().into_iter().map(|pair| names.case(&runs, pair)).collect();
        Ok(Self {
            version: 1,
            compiler: traced.symbols.compiler().unwrap_or("unknown").to_owned(),
            cores: traced.body.cores,
            pairs: cases.len(),
            keys,
            free_percent: free_percent(keys, cases.iter(), |case| case.conflicts),
            free_percent_with_memory: free_percent(keys, cases.iter(), |case| case.conflicts + case.memory_only),
            offenders: names.offenders,
            cases,
        })
    }

    /// The verdict on two operations in a scene, in either order; none if they do not commute
    /// there.
    pub(crate) fn verdict(&self, scene: Scene, a: Operation, b: Operation) -> Option<Verdict> {
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        self.cases.iter().find(|case| (case.scene, case.a, case.b) == (scene, a, b)).map(|case| case.verdict)
    }

    /// Checks that read-only operations do not conflict: neither writes a line that the other
    /// touches (P1).
    ///
    /// # Errors
    /// The pairs that conflict, and the written objects. Also if no pair of any operations
    /// conflicts: then the trace was empty or wrong.
    pub(crate) fn check_read_only(&self) -> Result<(), String> {
        if self.offenders.is_empty() {
            return Err(
                "no two operations conflict, not even two that change the same object: the trace is wrong".to_owned()
            );
        }
        let meet = |case: &&Case| case.a.only_reads() && case.b.only_reads() && case.verdict != Verdict::Free;
        let told: Vec<String> = self.cases.iter().filter(meet).map(|case| self.describe(case)).collect();
        if told.is_empty() { Ok(()) } else { Err(told.join("; ")) }
    }

    /// The text for a pair that conflicts.
    fn describe(&self, Case { scene, a, b, offenders, .. }: &Case) -> String {
        let written: Vec<&str> = offenders.iter().map(|&i| self.offenders[i].written.as_str()).collect();
        format!("{} and {} conflict ({}): {}", a.name(), b.name(), scene.name(), written.join(", "))
    }

    /// Percentage of a scene's cases without a conflict, ignoring lines of the allocator and the
    /// reclaimer.
    pub(crate) fn free_percent_in(&self, scene: Scene) -> f64 {
        free_percent(self.keys, self.cases.iter().filter(|case| case.scene == scene), |case| case.conflicts)
    }
}

/// Percentage of the cases (each case under each key) that `counted` does not count; one decimal.
fn free_percent<'a>(keys: u32, cases: impl Iterator<Item = &'a Case>, counted: impl Fn(&Case) -> u32) -> f64 {
    let (mut all, mut not_free) = (0, 0);
    for case in cases {
        all += keys;
        not_free += counted(case);
    }
    (1000.0 * f64::from(all - not_free) / f64::from(all.max(1))).round() / 10.0
}

/// The lines on which two operations conflict under a key, for both assignments to the threads.
fn line_conflicts(runs: &TouchedByRun, key: u32, Pair { scene, a, b, .. }: Pair) -> Vec<LineConflict> {
    let one_way = |a, b| match (runs.get(&(key, scene, a, Role::A)), runs.get(&(key, scene, b, Role::B))) {
        (Some(one), Some(other)) => one.line_conflicts(other),
        _ => Vec::new(),
    };
    let mut all = one_way(a, b);
    if a != b {
        all.extend(one_way(b, a));
    }
    all
}

/// Finds names for addresses, and collects the offenders.
struct Names<'a> {
    keys: u32,
    parts: &'a [Placed],
    symbols: &'a Symbols,
    offenders: Vec<Offender>,
}

impl Names<'_> {
    /// The case of a pair.
    fn case(&mut self, runs: &TouchedByRun, pair: Pair) -> Case {
        let (mut conflicts, mut memory_only) = (0, 0);
        let mut offenders = Vec::new();
        for key in 0..self.keys {
            let line_conflicts = line_conflicts(runs, key, pair);
            let own = line_conflicts.iter().any(|meeting| meeting.class == Class::Own);
            conflicts += u32::from(own);
            memory_only += u32::from(!own && !line_conflicts.is_empty());
            offenders.extend(line_conflicts.iter().map(|meeting| self.offender(key, pair.scene, meeting)));
        }
        offenders.sort_unstable();
        offenders.dedup();
        offenders.iter().for_each(|&i| self.offenders[i].pairs += 1);
        let verdict = Verdict::of(self.keys, conflicts, memory_only);
        let Pair { scene, a, b, why } = pair;
        let why_they_commute = Cow::Borrowed(why);
        Case { scene, a, b, why_they_commute, verdict, conflicts, memory_only, offenders }
    }

    /// The index of the offender on a line; adds it if it is new.
    fn offender(&mut self, key: u32, scene: Scene, meeting: &LineConflict) -> usize {
        let LineConflict { written, touched, class, false_sharing } = *meeting;
        let (written_at, touched_at) = (self.place(written.instruction), self.place(touched.instruction));
        let what = |address, at: &str| match class {
            Class::Own => self.name(key, scene, address).unwrap_or_else(|| format!("the data written at {at}")),
            Class::Allocator => "the allocator's data".to_owned(),
            Class::Reclamation => "the reclaimer's data".to_owned(),
        };
        let beside = (false_sharing && class == Class::Own).then(|| what(touched.address, &touched_at));
        let offender =
            Offender { class, written: what(written.address, &written_at), beside, written_at, touched_at, pairs: 0 };
        let same = |known: &Offender| {
            (known.class, &known.written, &known.beside) == (offender.class, &offender.written, &offender.beside)
        };
        self.offenders.iter().position(same).unwrap_or_else(|| {
            self.offenders.push(offender);
            self.offenders.len() - 1
        })
    }

    /// The smallest known object at an address.
    fn name(&self, key: u32, scene: Scene, address: u64) -> Option<String> {
        let there = |part: &&Placed| {
            (part.key, part.scene) == (key, scene) && (part.address..part.address + part.bytes).contains(&address)
        };
        match self.parts.iter().filter(there).min_by_key(|part| part.bytes) {
            Some(part) => Some(part.name.clone()),
            None => self.symbols.static_at(address).map(str::to_owned),
        }
    }

    /// The source location of an instruction: the innermost function outside of the standard
    /// library and, if that is in `sync`, also the innermost one above `sync`.
    fn place(&self, instruction: u64) -> String {
        let frames = self.symbols.frames(instruction);
        let ours =
            |source: &str| source.contains("crates/") && !source.contains("/rustc/") && !source.contains("/registry/");
        let mut places = frames.iter().filter_map(|frame| {
            let (file, line) = frame.source.as_ref()?;
            ours(file).then(|| (file.rsplit("crates/").next().unwrap_or(file).to_owned(), *line))
        });
        let Some((file, line)) = places.next() else {
            return frames.first().map_or_else(|| format!("{instruction:#x}"), |frame| frame.function.clone());
        };
        match places.find(|(above, _)| file.starts_with("sync/") && !above.starts_with("sync/")) {
            Some((above, at)) => format!("{file}:{line}, from {above}:{at}"),
            None => format!("{file}:{line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::conflicts::matrix_for_tests;

    #[test]
    fn read_only_operations_must_not_conflict() {
        let mut matrix = matrix_for_tests();
        let told = "stat and stat conflict (different directories): Vec<T> & more";
        assert_eq!(matrix.check_read_only(), Err(told.to_owned()));
        matrix.cases[0].verdict = Verdict::Memory;
        assert_eq!(matrix.check_read_only(), Err(told.to_owned()), "nor on lines of the allocator");
        matrix.cases[0].verdict = Verdict::Free;
        let changes = matrix.cases.iter_mut().find(|case| case.b == Operation::Create).expect("a pair");
        changes.verdict = Verdict::Conflict;
        assert_eq!(matrix.check_read_only(), Ok(()), "operations that write may conflict");
        matrix.offenders.clear();
        assert!(matrix.check_read_only().is_err(), "a trace without any conflict is wrong");
    }

    #[test]
    fn pair_that_conflicts_under_any_key_is_not_free() {
        for (conflicts, memory_only, verdict) in [
            (0, 0, Verdict::Free),
            (0, 1, Verdict::Memory),
            (0, 3, Verdict::Memory),
            (1, 0, Verdict::Chance),
            (1, 2, Verdict::Chance),
            (2, 1, Verdict::Conflict),
        ] {
            assert_eq!(Verdict::of(3, conflicts, memory_only), verdict, "{conflicts} and {memory_only} of 3");
        }
    }
}
