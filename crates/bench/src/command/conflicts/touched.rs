//! The memory that an operation touched, by cache line, and the lines on which two operations
//! conflict.

use std::collections::BTreeMap;

use crate::lackey::{Access, Event, Frame, Symbols};

/// The size of a cache line.
const LINE_BYTES: u64 = 64;

/// The part of the program that an access belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// The file system.
    Own,
    /// The allocator: from the entry of `malloc`, `free` and similar functions to their return, and
    /// code of `pando_sync`'s blocks.
    Allocator,
    /// The reclaimer: code of `pando_sync`'s guards, grace periods and retired objects.
    Reclamation,
}

/// An access within one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Use {
    pub instruction: u64,
    pub address: u64,
    pub bytes: u64,
    pub writes: bool,
    pub class: Class,
}

impl Use {
    fn overlaps(&self, other: &Self) -> bool {
        self.address < other.address + other.bytes && other.address < self.address + self.bytes
    }
}

/// All accesses of an operation.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    lines: BTreeMap<u64, Vec<Use>>,
}

/// A line that one operation writes and the other touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineConflict {
    pub written: Use,
    pub touched: Use,
    /// [`Class::Own`] only if the file system's own accesses conflict there.
    pub class: Class,
    /// They use different bytes of the line.
    pub false_sharing: bool,
}

/// Collects a trace, event by event.
pub(crate) struct Collector<'a> {
    symbols: &'a Symbols,
    touched: Touched,
    instruction: u64,
    /// Whether the last instruction was in the C library, and whether the library was entered
    /// through an allocator function.
    in_libc: bool,
    in_allocator: bool,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(symbols: &'a Symbols) -> Self {
        Self { symbols, touched: Touched::default(), instruction: 0, in_libc: false, in_allocator: false }
    }

    pub(crate) fn event(&mut self, event: Event) {
        match event {
            Event::Instruction(instruction) => {
                let in_libc = self.symbols.is_libc(instruction);
                if in_libc && !self.in_libc {
                    self.in_allocator = self.symbols.enters_allocator(instruction);
                }
                self.in_allocator &= in_libc;
                self.in_libc = in_libc;
                // Accesses of the C library are attributed to its caller: few of its functions have
                // names.
                if !in_libc {
                    self.instruction = instruction;
                }
            }
            Event::Access(access) => self.access(access),
        }
    }

    fn access(&mut self, Access { address, bytes, writes, .. }: Access) {
        let class = if self.in_allocator { Class::Allocator } else { class(&self.symbols.frames(self.instruction)) };
        // An access may cross the end of a line.
        let (mut start, end) = (address, address + bytes);
        while start < end {
            let line = start / LINE_BYTES;
            let stop = end.min((line + 1) * LINE_BYTES);
            let one = Use { instruction: self.instruction, address: start, bytes: stop - start, writes, class };
            self.touched.lines.entry(line).or_default().push(one);
            start = stop;
        }
    }

    pub(crate) fn finish(mut self) -> Touched {
        for uses in self.touched.lines.values_mut() {
            uses.sort_unstable();
            uses.dedup();
        }
        self.touched
    }
}

/// Code that belongs to the allocator or the reclaimer, also where it was inlined. It is recognised
/// by the names of functions and by the paths of sources, because inlined code may lack one of the
/// two.
const MODULES: [(&str, &str, Class); 2] = [
    ("pando_sync::allocator", "sync/src/allocator", Class::Allocator),
    ("pando_sync::reclaim", "sync/src/reclaim", Class::Reclamation),
];

fn class(frames: &[Frame]) -> Class {
    let of = |frame: &Frame| {
        // The functions of mimalloc.
        if frame.function.trim_start_matches('_').starts_with("mi_") {
            return Some(Class::Allocator);
        }
        let source = frame.source.as_ref().map_or("", |(file, _)| file.as_str());
        let found = MODULES.iter().find(|(name, path, _)| frame.function.contains(name) || source.contains(path));
        found.map(|(.., class)| *class)
    };
    frames.iter().find_map(of).unwrap_or(Class::Own)
}

impl Touched {
    /// The lines on which two operations conflict: one writes what the other touches. For each
    /// line, the most significant conflict.
    pub(crate) fn line_conflicts(&self, other: &Self) -> Vec<LineConflict> {
        let (few, many) = if self.lines.len() <= other.lines.len() { (self, other) } else { (other, self) };
        few.lines.iter().filter_map(|(line, uses)| most_significant(uses, many.lines.get(line)?)).collect()
    }
}

/// The most significant conflict on a line: first between the file system's own accesses, then on
/// the same bytes.
fn most_significant(ours: &[Use], theirs: &[Use]) -> Option<LineConflict> {
    let pairs = ours.iter().flat_map(|one| theirs.iter().map(move |other| (one, other)));
    let line_conflicts = pairs.filter(|(one, other)| one.writes || other.writes).map(|(one, other)| {
        let (written, touched) = if one.writes { (*one, *other) } else { (*other, *one) };
        LineConflict { written, touched, class: one.class.max(other.class), false_sharing: !one.overlaps(other) }
    });
    line_conflicts.min_by_key(|meeting| (meeting.class, meeting.false_sharing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(uses: &[(u64, u64, bool, Class)]) -> Touched {
        let mut touched = Touched::default();
        for &(address, bytes, writes, class) in uses {
            let one = Use { instruction: 1, address, bytes, writes, class };
            touched.lines.entry(address / LINE_BYTES).or_default().push(one);
        }
        touched
    }

    #[test]
    fn only_a_writer_conflicts_with_accesses_of_its_line() {
        let reads = touched(&[(0x100, 8, false, Class::Own)]);
        let writes = touched(&[(0x100, 8, true, Class::Own)]);
        let beside = touched(&[(0x138, 8, false, Class::Own)]);
        let next = touched(&[(0x140, 8, true, Class::Own)]);
        assert_eq!(reads.line_conflicts(&reads), []);
        assert!(matches!(
            reads.line_conflicts(&writes)[..],
            [LineConflict { false_sharing: false, class: Class::Own, .. }]
        ));
        assert!(matches!(writes.line_conflicts(&writes)[..], [_]));
        assert!(matches!(beside.line_conflicts(&writes)[..], [LineConflict { false_sharing: true, .. }]));
        assert_eq!(next.line_conflicts(&writes), []);
    }

    #[test]
    fn own_conflicts_are_not_hidden_by_the_allocator() {
        let both = touched(&[(0x100, 8, true, Class::Allocator), (0x108, 8, true, Class::Own)]);
        assert!(matches!(both.line_conflicts(&both)[..], [LineConflict { class: Class::Own, .. }]));
        let reads = touched(&[(0x108, 8, false, Class::Own)]);
        let frees = touched(&[(0x108, 8, true, Class::Allocator)]);
        assert!(matches!(reads.line_conflicts(&frees)[..], [LineConflict { class: Class::Allocator, .. }]));
    }

    #[test]
    fn access_across_the_end_of_a_line_touches_both() {
        let symbols = Symbols::none();
        let mut collector = Collector::new(&symbols);
        collector.event(Event::Instruction(1));
        collector.event(Event::Access(Access { address: 0x13c, bytes: 8, reads: true, writes: true }));
        let lines: Vec<u64> = collector.finish().lines.into_keys().collect();
        assert_eq!(lines, [4, 5]);
    }
}
