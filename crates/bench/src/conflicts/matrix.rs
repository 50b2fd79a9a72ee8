//! The verdict on each pair, and the offenders: what is written that others touch.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use super::{
    actor::Role,
    pairs::{Operation, Pair, Scene, pairs},
    stage::{Placed, Staged},
    touched::{Class, Collector, Meeting, Touched},
};
use crate::{
    failure::Failure,
    halt::Halt,
    lackey::{Symbols, Traced},
};

/// Whether two operations meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Neither writes a line that the other touches.
    Free,
    /// A line of the file system's own, under half of the keys or fewer: names that lie next to each other by chance.
    Chance,
    /// Only lines of the allocator or the reclaimer.
    Memory,
    /// A line of the file system's own, under most keys.
    Conflict,
}

impl Verdict {
    /// Of a pair that met on a line of the file system's own under so many of the keys, and only on others under so many.
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
    /// Under how many keys they met on a line of the file system's own, and under how many only on others.
    pub conflicts: u32,
    pub memory_only: u32,
    /// The offenders' numbers.
    pub offenders: Vec<usize>,
}

/// Something that is written while others touch it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offender {
    pub class: Class,
    /// What is written.
    pub written: String,
    /// What the other operation touches on the same line; none if it is the same thing.
    pub beside: Option<String>,
    /// Where in the source it is written and touched, by one of the pairs.
    pub written_at: String,
    pub touched_at: String,
    /// In how many pairs, under any key.
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
    /// Percent of the cases (each pair, under each key) that are free of conflicts, the allocator's and the reclaimer's lines
    /// left out, and with them.
    pub free_percent: f64,
    pub free_percent_with_memory: f64,
    pub cases: Vec<Case>,
    pub offenders: Vec<Offender>,
}

/// What each operation of each thread touched.
type Turns = BTreeMap<(u32, Scene, Operation, Role), Touched>;

impl Matrix {
    /// From the traces.
    ///
    /// # Errors
    /// That one cannot be read; interrupted.
    pub(crate) fn new(traced: &Traced<Staged>, halt: &Halt) -> Result<Self, Failure> {
        let mut turns = Turns::new();
        for turn in &traced.body.turns {
            let mut collector = Collector::new(&traced.symbols);
            traced.scan(turn.copy, halt, |event| collector.event(event))?;
            turns.insert((turn.key, turn.scene, turn.operation, turn.role), collector.finish());
        }
        let keys = traced.body.keys;
        let mut names = Names { keys, parts: &traced.body.parts, symbols: &traced.symbols, offenders: Vec::new() };
        let cases: Vec<Case> = pairs().into_iter().map(|pair| names.case(&turns, pair)).collect();
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

    /// The verdict on two operations in a scene, in either order; none if they do not commute there.
    pub(crate) fn verdict(&self, scene: Scene, a: Operation, b: Operation) -> Option<Verdict> {
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        self.cases.iter().find(|case| (case.scene, case.a, case.b) == (scene, a, b)).map(|case| case.verdict)
    }

    /// That operations that only look do not meet: neither writes a line that the other touches (P1).
    ///
    /// # Errors
    /// The pairs that do, and what is written; that no pair of any operations meets, so that nothing was seen.
    pub(crate) fn check_looking(&self) -> Result<(), String> {
        if self.offenders.is_empty() {
            return Err("no two operations meet, not even two that change the same: nothing was seen".to_owned());
        }
        let meet = |case: &&Case| case.a.only_looks() && case.b.only_looks() && case.verdict != Verdict::Free;
        let told: Vec<String> = self.cases.iter().filter(meet).map(|case| self.told(case)).collect();
        if told.is_empty() { Ok(()) } else { Err(told.join("; ")) }
    }

    /// A pair that meets, and where.
    fn told(&self, Case { scene, a, b, offenders, .. }: &Case) -> String {
        let written: Vec<&str> = offenders.iter().map(|&i| self.offenders[i].written.as_str()).collect();
        format!("{} and {} meet ({}): {}", a.name(), b.name(), scene.name(), written.join(", "))
    }

    /// Percent of a scene's cases with no conflict but the allocator's and the reclaimer's.
    pub(crate) fn free_percent_in(&self, scene: Scene) -> f64 {
        free_percent(self.keys, self.cases.iter().filter(|case| case.scene == scene), |case| case.conflicts)
    }
}

/// Percent of the cases, of each under each key, that are not among those counted; to one digit.
fn free_percent<'a>(keys: u32, cases: impl Iterator<Item = &'a Case>, counted: impl Fn(&Case) -> u32) -> f64 {
    let (mut all, mut not_free) = (0, 0);
    for case in cases {
        all += keys;
        not_free += counted(case);
    }
    (1000.0 * f64::from(all - not_free) / f64::from(all.max(1))).round() / 10.0
}

/// Where two operations meet under a key, whichever thread does which.
fn meetings(turns: &Turns, key: u32, Pair { scene, a, b, .. }: Pair) -> Vec<Meeting> {
    let one_way = |a, b| match (turns.get(&(key, scene, a, Role::A)), turns.get(&(key, scene, b, Role::B))) {
        (Some(one), Some(other)) => one.meetings(other),
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
    /// What becomes of a pair.
    fn case(&mut self, turns: &Turns, pair: Pair) -> Case {
        let (mut conflicts, mut memory_only) = (0, 0);
        let mut offenders = Vec::new();
        for key in 0..self.keys {
            let meetings = meetings(turns, key, pair);
            let own = meetings.iter().any(|meeting| meeting.class == Class::Own);
            conflicts += u32::from(own);
            memory_only += u32::from(!own && !meetings.is_empty());
            offenders.extend(meetings.iter().map(|meeting| self.offender(key, pair.scene, meeting)));
        }
        offenders.sort_unstable();
        offenders.dedup();
        offenders.iter().for_each(|&i| self.offenders[i].pairs += 1);
        let verdict = Verdict::of(self.keys, conflicts, memory_only);
        let Pair { scene, a, b, why } = pair;
        let why_they_commute = Cow::Borrowed(why);
        Case { scene, a, b, why_they_commute, verdict, conflicts, memory_only, offenders }
    }

    /// The number of the offender of a meeting, a new one if need be.
    fn offender(&mut self, key: u32, scene: Scene, meeting: &Meeting) -> usize {
        let Meeting { written, touched, class, false_sharing } = *meeting;
        let (written_at, touched_at) = (self.place(written.instruction), self.place(touched.instruction));
        let what = |address, at: &str| match class {
            Class::Own => self.name(key, scene, address).unwrap_or_else(|| format!("what {at} writes")),
            Class::Allocator => "the allocator's".to_owned(),
            Class::Reclamation => "the reclaimer's".to_owned(),
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

    /// The smallest thing known to lie at an address.
    fn name(&self, key: u32, scene: Scene, address: u64) -> Option<String> {
        let there = |part: &&Placed| {
            (part.key, part.scene) == (key, scene) && (part.address..part.address + part.bytes).contains(&address)
        };
        match self.parts.iter().filter(there).min_by_key(|part| part.bytes) {
            Some(part) => Some(part.name.clone()),
            None => self.symbols.static_at(address).map(str::to_owned),
        }
    }

    /// Where in the source an instruction comes from: the innermost function that is not the standard library's, and the
    /// innermost one above the primitives.
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
    use crate::conflicts::matrix_for_tests;

    #[test]
    fn who_only_looks_may_not_meet() {
        let mut matrix = matrix_for_tests();
        let told = "stat and stat meet (different directories): Vec<T> & more";
        assert_eq!(matrix.check_looking(), Err(told.to_owned()));
        matrix.cases[0].verdict = Verdict::Memory;
        assert_eq!(matrix.check_looking(), Err(told.to_owned()), "not on other lines either");
        matrix.cases[0].verdict = Verdict::Free;
        let changes = matrix.cases.iter_mut().find(|case| case.b == Operation::Create).expect("a pair");
        changes.verdict = Verdict::Conflict;
        assert_eq!(matrix.check_looking(), Ok(()), "who changes something may");
        matrix.offenders.clear();
        assert!(matrix.check_looking().is_err(), "a trace in which nothing meets shows nothing");
    }

    #[test]
    fn a_pair_that_meets_anywhere_is_not_free() {
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
