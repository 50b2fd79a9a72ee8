//! What an operation touched, by cache line, and where two operations meet.

use std::collections::BTreeMap;

use crate::lackey::{Access, Event, Frame, Symbols};

/// The unit in which processors exchange memory.
const LINE_BYTES: u64 = 64;

/// Whose access it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// The file system's own.
    Own,
    /// The allocator's: from the entry of `malloc`, `free` or their kin to their return, and code of `pando_sync`'s blocks.
    Allocator,
    /// The reclaimer's: code of `pando_sync`'s guards, grace periods and garbage.
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

/// What an operation touched.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    lines: BTreeMap<u64, Vec<Use>>,
}

/// A line that one writes and the other touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meeting {
    pub written: Use,
    pub touched: Use,
    /// [`Class::Own`] only if the file system's own accesses would meet there without any others.
    pub class: Class,
    /// They want different bytes of the line.
    pub false_sharing: bool,
}

/// Collects a trace, event by event.
pub(crate) struct Collector<'a> {
    symbols: &'a Symbols,
    touched: Touched,
    instruction: u64,
    /// In the C library since it was entered, and by which door.
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
                // What the C library does is put down to whoever called it: few of its functions have names.
                if !in_libc {
                    self.instruction = instruction;
                }
            }
            Event::Access(access) => self.access(access),
        }
    }

    fn access(&mut self, Access { address, bytes, writes, .. }: Access) {
        let class = if self.in_allocator { Class::Allocator } else { class(&self.symbols.frames(self.instruction)) };
        // An access may lie across the end of a line.
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

/// Modules whose code is the allocator's or the reclaimer's, wherever it was inlined: as in the names of functions, and as in
/// the paths of sources (what was inlined may have lost its module's name, or its source).
const MODULES: [(&str, &str, Class); 2] = [
    ("pando_sync::allocator", "sync/src/allocator", Class::Allocator),
    ("pando_sync::reclaim", "sync/src/reclaim", Class::Reclamation),
];

fn class(frames: &[Frame]) -> Class {
    let of = |frame: &Frame| {
        let source = frame.source.as_ref().map_or("", |(file, _)| file.as_str());
        let found = MODULES.iter().find(|(name, path, _)| frame.function.contains(name) || source.contains(path));
        found.map(|(.., class)| *class)
    };
    frames.iter().find_map(of).unwrap_or(Class::Own)
}

impl Touched {
    /// The lines on which two operations meet: one writes what the other touches. One meeting a line, the worst there.
    pub(crate) fn meetings(&self, other: &Self) -> Vec<Meeting> {
        let (few, many) = if self.lines.len() <= other.lines.len() { (self, other) } else { (other, self) };
        few.lines.iter().filter_map(|(line, uses)| worst(uses, many.lines.get(line)?)).collect()
    }
}

/// The meeting that says most: of the file system's own accesses if there are such, of the same bytes if there are such.
fn worst(ours: &[Use], theirs: &[Use]) -> Option<Meeting> {
    let pairs = ours.iter().flat_map(|one| theirs.iter().map(move |other| (one, other)));
    let meetings = pairs.filter(|(one, other)| one.writes || other.writes).map(|(one, other)| {
        let (written, touched) = if one.writes { (*one, *other) } else { (*other, *one) };
        Meeting { written, touched, class: one.class.max(other.class), false_sharing: !one.overlaps(other) }
    });
    meetings.min_by_key(|meeting| (meeting.class, meeting.false_sharing))
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
    fn readers_do_not_meet_and_a_writer_meets_whoever_touches_its_line() {
        let reads = touched(&[(0x100, 8, false, Class::Own)]);
        let writes = touched(&[(0x100, 8, true, Class::Own)]);
        let beside = touched(&[(0x138, 8, false, Class::Own)]);
        let next = touched(&[(0x140, 8, true, Class::Own)]);
        assert_eq!(reads.meetings(&reads), []);
        assert!(matches!(reads.meetings(&writes)[..], [Meeting { false_sharing: false, class: Class::Own, .. }]));
        assert!(matches!(writes.meetings(&writes)[..], [_]));
        assert!(matches!(beside.meetings(&writes)[..], [Meeting { false_sharing: true, .. }]));
        assert_eq!(next.meetings(&writes), []);
    }

    #[test]
    fn the_file_systems_own_meetings_are_not_hidden_by_the_allocators() {
        let both = touched(&[(0x100, 8, true, Class::Allocator), (0x108, 8, true, Class::Own)]);
        assert!(matches!(both.meetings(&both)[..], [Meeting { class: Class::Own, .. }]));
        let reads = touched(&[(0x108, 8, false, Class::Own)]);
        let frees = touched(&[(0x108, 8, true, Class::Allocator)]);
        assert!(matches!(reads.meetings(&frees)[..], [Meeting { class: Class::Allocator, .. }]));
    }

    #[test]
    fn an_access_across_the_end_of_a_line_touches_both() {
        let symbols = Symbols::none();
        let mut collector = Collector::new(&symbols);
        collector.event(Event::Instruction(1));
        collector.event(Event::Access(Access { address: 0x13c, bytes: 8, reads: true, writes: true }));
        let lines: Vec<u64> = collector.finish().lines.into_keys().collect();
        assert_eq!(lines, [4, 5]);
    }
}
