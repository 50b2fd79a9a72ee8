//! Resolves addresses to functions, source lines, static variables and functions of the C library.

use std::{cell::RefCell, collections::HashMap, fs, ops::Range};

use addr2line::Loader;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind, SymbolKind};

use super::instruction;

/// Functions that allocate or free memory.
const ALLOCATOR: [&str; 9] =
    ["malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign", "cfree", "reallocarray"];

/// A function that an instruction belongs to. An inlined function precedes the function that it was
/// inlined into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub function: String,
    /// File and line, if the program has debug information.
    pub source: Option<(String, u32)>,
}

/// The program and its libraries, as they were mapped in a traced process.
pub(crate) struct Symbols {
    modules: Vec<Module>,
    frames: RefCell<HashMap<u64, Vec<Frame>>>,
    locked: RefCell<HashMap<u64, bool>>,
}

/// One ELF file.
struct Module {
    addresses: Range<u64>,
    /// Address in the process minus address in the file.
    bias: u64,
    is_libc: bool,
    loader: Option<Loader>,
    /// Static variables, by address in the file.
    statics: Vec<(Range<u64>, String)>,
    /// Entries of the allocator's functions, by address in the file.
    allocator: Vec<u64>,
    /// Instructions, by address in the file; empty on architectures that are not decoded.
    code: Vec<(u64, Vec<u8>)>,
    comment: String,
}

impl Symbols {
    /// No symbols.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self::new("")
    }

    /// From the text of `/proc/PID/maps`.
    pub(super) fn new(maps: &str) -> Self {
        // valgrind's own program is mapped as well, but no trace has an address of it.
        let modules = files(maps).into_iter().filter_map(|(path, addresses)| Module::read(path, addresses)).collect();
        Self { modules, frames: RefCell::default(), locked: RefCell::default() }
    }

    fn module(&self, address: u64) -> Option<(&Module, u64)> {
        let module = self.modules.iter().find(|module| module.addresses.contains(&address))?;
        Some((module, address - module.bias))
    }

    /// The functions at an instruction, the innermost one first; empty if unknown.
    pub(crate) fn frames(&self, instruction: u64) -> Vec<Frame> {
        let mut known = self.frames.borrow_mut();
        known.entry(instruction).or_insert_with(|| self.look_up(instruction)).clone()
    }

    fn look_up(&self, instruction: u64) -> Vec<Frame> {
        let Some((module, address)) = self.module(instruction) else { return Vec::new() };
        let Some(loader) = &module.loader else { return Vec::new() };
        let mut found = Vec::new();
        if let Ok(mut frames) = loader.find_frames(address) {
            while let Ok(Some(frame)) = frames.next() {
                let function = frame.function.and_then(|name| name.demangle().ok().map(|name| name.into_owned()));
                let source = frame.location.and_then(|at| Some((at.file?.to_owned(), at.line.unwrap_or(0))));
                found.extend(function.map(|function| Frame { function, source }));
            }
        }
        if found.is_empty()
            && let Some(name) = loader.find_symbol(address)
        {
            let function = addr2line::demangle_auto(name.into(), None).into_owned();
            found.push(Frame { function, source: None });
        }
        found
    }

    /// Whether an instruction is an atomic read-modify-write; false if unknown.
    pub(crate) fn is_atomic_rmw(&self, instruction: u64) -> bool {
        let bytes = || {
            let (module, address) = self.module(instruction)?;
            module.code.iter().find_map(|(start, bytes)| {
                let at = usize::try_from(address.checked_sub(*start)?).ok()?;
                bytes.get(at..)
            })
        };
        let look_up = || bytes().is_some_and(instruction::is_atomic_rmw);
        *self.locked.borrow_mut().entry(instruction).or_insert_with(look_up)
    }

    /// Whether an instruction is in the C library.
    pub(crate) fn is_libc(&self, instruction: u64) -> bool {
        self.module(instruction).is_some_and(|(module, _)| module.is_libc)
    }

    /// Whether an instruction is the entry of an allocator function.
    pub(crate) fn enters_allocator(&self, instruction: u64) -> bool {
        self.module(instruction).is_some_and(|(module, address)| module.allocator.contains(&address))
    }

    /// The static variable at an address.
    pub(crate) fn static_at(&self, address: u64) -> Option<&str> {
        let (module, address) = self.module(address)?;
        module.statics.iter().find(|(range, _)| range.contains(&address)).map(|(_, name)| name.as_str())
    }

    /// The name of the compiler that built the program.
    pub(crate) fn compiler(&self) -> Option<&str> {
        self.modules.iter().find_map(|module| module.comment.split('\0').find(|text| text.starts_with("rustc version")))
    }
}

/// The mapped files and their address ranges, from the text of `/proc/PID/maps`.
fn files(maps: &str) -> Vec<(&str, Range<u64>)> {
    let mut files: Vec<(&str, Range<u64>)> = Vec::new();
    for (addresses, path) in maps.lines().filter_map(mapped) {
        match files.iter_mut().find(|(known, _)| *known == path) {
            Some((_, all)) => *all = all.start.min(addresses.start)..all.end.max(addresses.end),
            None => files.push((path, addresses)),
        }
    }
    files
}

/// Parses one line: `START-END MODE OFFSET DEVICE INODE  PATH`. The path is the rest of the line
/// and may contain spaces. None if no file is mapped.
fn mapped(line: &str) -> Option<(Range<u64>, &str)> {
    let (range, mut rest) = line.split_once(' ')?;
    for _ in ["mode", "offset", "device", "inode"] {
        rest = rest.trim_start_matches(' ').split_once(' ')?.1;
    }
    let path = rest.trim_start_matches(' ');
    let (start, end) = range.split_once('-')?;
    let address = |digits| u64::from_str_radix(digits, 16).ok();
    path.starts_with('/').then_some((address(start)?..address(end)?, path))
}

impl Module {
    fn read(path: &str, addresses: Range<u64>) -> Option<Self> {
        let data = fs::read(path).ok()?;
        let file = object::File::parse(&*data).ok()?;
        let first = file.segments().map(|segment| segment.address()).min()?;
        /// Segments start at page boundaries.
        const PAGE: u64 = 4096;
        let bias = addresses.start.checked_sub(first & !(PAGE - 1))?;
        // Zero-initialised variables follow the part that is mapped from the file.
        let end = file.segments().map(|segment| segment.address().saturating_add(segment.size())).max()?;
        let addresses = addresses.start..addresses.end.max(bias.saturating_add(end));
        let is_libc =
            path.rsplit('/').next().is_some_and(|name| name.starts_with("libc.so") || name.starts_with("libc-"));
        let symbols = || file.symbols().chain(file.dynamic_symbols()).filter(|symbol| symbol.is_definition());
        let name = |name: &str| addr2line::demangle_auto(name.to_owned().into(), None).into_owned();
        let statics = symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.size() > 0)
            .filter_map(|symbol| Some((symbol.address()..symbol.address() + symbol.size(), name(symbol.name().ok()?))))
            .collect();
        let allocator = symbols()
            .filter(|symbol| is_libc && symbol.name().is_ok_and(|name| ALLOCATOR.contains(&name)))
            .map(|symbol| symbol.address())
            .collect();
        let section = |name| Some(String::from_utf8_lossy(file.section_by_name(name)?.data().ok()?).into_owned());
        let comment = section(".comment").unwrap_or_default();
        let is_known = file.architecture() == object::Architecture::X86_64;
        let code = file
            .sections()
            .filter(|section| is_known && section.kind() == SectionKind::Text)
            .filter_map(|section| Some((section.address(), section.data().ok()?.to_vec())))
            .collect();
        Some(Self { addresses, bias, is_libc, loader: Loader::new(path).ok(), statics, allocator, code, comment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_the_rest_of_its_line() {
        let maps = "\
04000000-04001000 r--p 00000000 fe:01 1234                               /home/a b/two  spaces/pando
04001000-04005000 r-xp 00001000 fe:01 1234                               /home/a b/two  spaces/pando
05000000-05002000 rw-p 00000000 00:00 0\x20
06000000-06001000 r-xp 00000000 fe:01 12                                 /lib/libc.so.6
1ffe000000-1fff001000 rw-p 00000000 00:00 0                              [stack of it]
";
        let expected =
            [("/home/a b/two  spaces/pando", 0x400_0000..0x400_5000), ("/lib/libc.so.6", 0x600_0000..0x600_1000)];
        assert_eq!(files(maps), expected);
    }

    #[test]
    fn zero_initialised_static_variable_has_a_name() {
        // The variable has no bytes in the file.
        static ZEROS: [std::sync::atomic::AtomicU64; 1 << 16] =
            [const { std::sync::atomic::AtomicU64::new(0) }; 1 << 16];
        let symbols = Symbols::new(&std::fs::read_to_string("/proc/self/maps").expect("maps"));
        let last = std::ptr::from_ref(&ZEROS[ZEROS.len() - 1]).addr() as u64;
        let name = symbols.static_at(last).expect("a static variable");
        assert!(name.contains("ZEROS"), "{name}");
    }
}
