//! Whether a program can be boosted, as far as its file says.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

/// Why a program runs unboosted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unboosted {
    /// It has no dynamic linker that could load a library.
    Static,
    /// A Go program: it calls the kernel itself, not the C library.
    Go,
    /// It starts with more privileges than its user has, so the dynamic linker ignores
    /// `LD_PRELOAD`.
    Privileged,
    /// It is for another CPU or word size than the library.
    Foreign,
    /// It is linked with a shared AddressSanitizer, which ends the program if another library is
    /// loaded before it.
    Sanitized,
}

impl Unboosted {
    /// Whether the library must not be named to the program: it would print a message, or end.
    pub fn refuses_library(&self) -> bool {
        matches!(self, Self::Foreign | Self::Sanitized)
    }
}

impl fmt::Display for Unboosted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "statically linked, so no library can be loaded into it",
            Self::Go => "a Go program, which reads directories without the C library",
            Self::Privileged => "setuid, setgid or with file capabilities, so the dynamic linker loads nothing into it",
            Self::Foreign => "made for another processor or word size than pando",
            Self::Sanitized => "linked with a shared AddressSanitizer, which wants to be loaded first",
        })
    }
}

/// Finds the file that runs as `command`: in `path` (a list as in `PATH`), unless it has a slash.
pub fn find(command: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(command));
    }
    let directories = std::env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin")));
    directories
        .map(|directory| directory.join(command))
        .find(|candidate| candidate.metadata().is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0))
}

/// Why the program in this file cannot be boosted; `None` if it can, as far as the file says. For a
/// script, the interpreter counts.
///
/// # Errors
/// The file cannot be read. Nothing else is an error: files of an unknown format are left to the
/// kernel.
pub fn inspect(file: &Path, path: Option<&OsStr>) -> io::Result<Option<Unboosted>> {
    Ok(binary(file, path)?.and_then(|(file, head)| of_binary(&file, &head)))
}

/// The function by which a program calls the kernel itself, if it names no function of the C
/// library that reads directories. A library that it is linked with may still call one. So this
/// only explains why a program has reported no directory.
///
/// # Errors
/// The file cannot be read.
pub fn passes_by(file: &Path, path: Option<&OsStr>) -> io::Result<Option<&'static str>> {
    let names = binary(file, path)?.and_then(|(file, head)| dynamic_names(&file, &head)).unwrap_or_default();
    let has = |text: &str| names.windows(text.len()).any(|at| at == text.as_bytes());
    if ["readdir", "scandir", "fts_", "fts64_", "ftw", "glob"].into_iter().any(has) {
        return Ok(None);
    }
    Ok(["getdents64", "syscall"].into_iter().find(|name| has(&format!("\0{name}\0"))))
}

/// The file that is executed in the end, and its first bytes.
fn binary(file: &Path, path: Option<&OsStr>) -> io::Result<Option<(File, Vec<u8>)>> {
    let mut file = file.to_owned();
    // Linux follows as many interpreters of interpreters.
    for _ in 0..5 {
        // Only a regular file can be executed. Opening another one may wait for ever, or have an
        // effect on a device.
        if !file.metadata()?.is_file() {
            return Ok(None);
        }
        let open = File::open(&file)?;
        let mut head = Vec::new();
        (&open).take(256).read_to_end(&mut head)?;
        let Some(interpreter) = interpreter(&head, path) else {
            return Ok(Some((open, head)));
        };
        file = interpreter;
    }
    Ok(None)
}

/// The interpreter in a script's first line. If that is `env`, the command that it looks for.
fn interpreter(head: &[u8], path: Option<&OsStr>) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let first = PathBuf::from(OsStr::from_bytes(words.next()?));
    if first.file_name() != Some(OsStr::new("env")) {
        return Some(first);
    }
    let command = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'=')).map(OsStr::from_bytes);
    command.and_then(|command| find(command, path)).or(Some(first))
}

fn of_binary(file: &File, head: &[u8]) -> Option<Unboosted> {
    if !head.starts_with(b"\x7fELF") || head.len() < 64 {
        return None;
    }
    if is_privileged(file) {
        return Some(Unboosted::Privileged);
    }
    let own = pando_preload::LIBRARY;
    // Class and byte order, then the machine, as the library has them.
    if own.len() >= 64 && (head[4..6] != own[4..6] || head[18..20] != own[18..20]) {
        return Some(Unboosted::Foreign);
    }
    let mut dynamic = false;
    for segment in segments(file, head) {
        match segment.kind {
            PT_INTERP => dynamic = true,
            PT_NOTE if is_go(file, &segment) => return Some(Unboosted::Go),
            _ => {}
        }
    }
    if !dynamic {
        return Some(Unboosted::Static);
    }
    needs(file, head, &[b"libasan.so", b"libclang_rt.asan"]).then_some(Unboosted::Sanitized)
}

fn is_privileged(file: &File) -> bool {
    let Ok(found) = file.metadata() else { return false };
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let setuid = found.mode() & 0o4000 != 0 && found.uid() != user.as_raw();
    let setgid = found.mode() & 0o2010 == 0o2010 && found.gid() != group.as_raw();
    let mut value = [0_u8; 64];
    let capabilities = rustix::fs::fgetxattr(file, c"security.capability", &mut value[..]).is_ok();
    setuid || setgid || (capabilities && !user.is_root())
}

/// The section for the dynamic linker: entries of a tag and a value, and the offset of the strings
/// that they name.
struct Dynamic {
    entries: Vec<u8>,
    strings: u64,
}

impl Dynamic {
    fn of(file: &File, head: &[u8]) -> Option<Self> {
        let segments = segments(file, head);
        let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
        let mut found = Self { entries: read(file, dynamic.offset, dynamic.size)?, strings: 0 };
        let address = found.values(DT_STRTAB).next()?;
        let loaded = segments.iter().filter(|segment| segment.kind == PT_LOAD);
        let mut strings = loaded.filter_map(|segment| {
            let into = address.checked_sub(segment.address).filter(|&into| into < segment.size)?;
            segment.offset.checked_add(into)
        });
        found.strings = strings.next()?;
        Some(found)
    }

    fn values(&self, tag: u64) -> impl Iterator<Item = u64> {
        self.entries
            .chunks_exact(16)
            .filter(move |entry| word(entry, 0) == Some(tag))
            .filter_map(|entry| word(entry, 8))
    }
}

fn read(file: &File, offset: u64, size: u64) -> Option<Vec<u8>> {
    const MOST: u64 = 16 << 20;
    let mut bytes = vec![0; usize::try_from(size.min(MOST)).expect("not much")];
    file.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
}

/// The dynamic linker's table of strings. It has the names of the functions that a program takes
/// from libraries or provides.
fn dynamic_names(file: &File, head: &[u8]) -> Option<Vec<u8>> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    let dynamic = Dynamic::of(file, head)?;
    read(file, dynamic.strings, dynamic.values(DT_STRSZ).next()?)
}

/// Whether a program is linked with a library whose name begins with one of these.
fn needs(file: &File, head: &[u8], names: &[&[u8]]) -> bool {
    let Some(dynamic) = Dynamic::of(file, head) else { return false };
    let is_named = |at: u64| {
        let at = dynamic.strings.checked_add(at)?;
        Some(names.iter().any(|name| read(file, at, name.len() as u64).as_deref() == Some(name)))
    };
    dynamic.values(DT_NEEDED).any(|at| is_named(at) == Some(true))
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

/// The program headers of a 64-bit file of the native byte order. None, if the file is truncated or
/// invalid.
fn segments(file: &File, head: &[u8]) -> Vec<Segment> {
    let start = word(head, 32).unwrap_or(0);
    let size = usize::from(half(head, 54).unwrap_or(0));
    let count = usize::from(half(head, 56).unwrap_or(0)).min(128);
    let mut table = vec![0; size * count];
    if size < 56 || file.read_exact_at(&mut table, start).is_err() {
        return Vec::new();
    }
    table
        .chunks_exact(size)
        .filter_map(|entry| {
            let kind = u32::from_ne_bytes(entry.get(..4)?.try_into().ok()?);
            Some(Segment { kind, offset: word(entry, 8)?, address: word(entry, 16)?, size: word(entry, 32)? })
        })
        .collect()
}

/// Go's linker leaves the build's name in a note whose owner is "Go".
fn is_go(file: &File, notes: &Segment) -> bool {
    let mut bytes = vec![0; usize::try_from(notes.size.min(4096)).expect("small")];
    if file.read_exact_at(&mut bytes, notes.offset).is_err() {
        return false;
    }
    let mut rest = &bytes[..];
    while let Some(header) = rest.get(..12) {
        let length = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize;
        let (owner, text) = (length(0), length(4));
        if rest.get(12..12 + owner) == Some(b"Go\0\0") {
            return true;
        }
        let next = 12 + owner.next_multiple_of(4) + text.next_multiple_of(4);
        rest = rest.get(next..).unwrap_or_default();
    }
    false
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// The value of `PATH`.
pub fn path_variable() -> Option<OsString> {
    std::env::var_os("PATH")
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write, os::unix::fs::PermissionsExt};

    use super::*;

    fn inspected(bytes: &[u8], mode: u32) -> Option<Unboosted> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("program");
        fs::write(&file, bytes).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        inspect(&file, path_variable().as_deref()).unwrap()
    }

    /// A header and some program headers of the native kind.
    fn elf(segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut file = pando_preload::LIBRARY[..64].to_vec();
        file[32..40].copy_from_slice(&64_u64.to_ne_bytes());
        file[54..56].copy_from_slice(&56_u16.to_ne_bytes());
        file[56..58].copy_from_slice(&u16::try_from(segments.len()).unwrap().to_ne_bytes());
        let mut at = 64 + 56 * segments.len();
        for (kind, content) in segments {
            let mut entry = [0; 56];
            entry[..4].copy_from_slice(&kind.to_ne_bytes());
            entry[8..16].copy_from_slice(&(at as u64).to_ne_bytes());
            entry[32..40].copy_from_slice(&(content.len() as u64).to_ne_bytes());
            file.extend(entry);
            at += content.len();
        }
        segments.iter().for_each(|(_, content)| file.extend(*content));
        file
    }

    fn note(owner: &[u8], text: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for length in [owner.len(), text.len(), 4] {
            note.extend(u32::try_from(length).unwrap().to_ne_bytes());
        }
        note.extend(owner);
        note.resize(note.len().next_multiple_of(4), 0);
        note.extend(text);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    #[test]
    fn kinds_of_programs_are_distinguished() {
        assert_eq!(inspected(&elf(&[(PT_INTERP, b"/lib/ld.so\0")]), 0o755), None);
        assert_eq!(inspected(&elf(&[(1, b"code")]), 0o755), Some(Unboosted::Static));
        let notes = [note(b"GNU\0", b"12345"), note(b"Go\0\0", b"id")].concat();
        assert_eq!(inspected(&elf(&[(PT_NOTE, &notes), (PT_INTERP, b"x")]), 0o755), Some(Unboosted::Go));
        let others = note(b"GNU\0", b"12345");
        assert_eq!(inspected(&elf(&[(PT_NOTE, &others), (PT_INTERP, b"x")]), 0o755), None);
        let mut foreign = elf(&[(PT_INTERP, b"x")]);
        foreign[4] = 1;
        assert_eq!(inspected(&foreign, 0o755), Some(Unboosted::Foreign));
    }

    #[test]
    fn interpreter_of_a_script_counts() {
        assert_eq!(inspected(b"#!/bin/sh\nls\n", 0o755), None);
        assert_eq!(inspected(b"#! /usr/bin/env -S sh -e\n", 0o755), None);
        assert_eq!(inspected(b"no format at all", 0o755), None);
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("static");
        fs::write(&program, elf(&[])).unwrap();
        let script = format!("#!{} x\n", program.display());
        assert_eq!(inspected(script.as_bytes(), 0o755), Some(Unboosted::Static));
        // A script that names itself must end too.
        let itself = directory.path().join("itself");
        fs::write(&itself, format!("#!{}\n", itself.display())).unwrap();
        assert_eq!(inspect(&itself, None).unwrap(), None);
    }

    #[test]
    fn truncated_file_causes_no_panic() {
        let whole = elf(&[(PT_NOTE, &note(b"Go\0\0", b"id")), (PT_INTERP, b"x")]);
        (0..whole.len()).for_each(|length| assert_ne!(inspected(&whole[..length], 0o755), Some(Unboosted::Foreign)));
        let mut lies = whole.clone();
        lies[32..40].copy_from_slice(&u64::MAX.to_ne_bytes());
        lies[56..58].copy_from_slice(&u16::MAX.to_ne_bytes());
        assert_eq!(inspected(&lies, 0o755), Some(Unboosted::Static));
        let mut lies = whole;
        lies[64 + 8..64 + 16].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(inspected(&lies, 0o755), None);
    }

    #[test]
    fn direct_system_calls_are_found_by_name() {
        let named = |names: &[u8]| {
            let table = [[DT_STRTAB, 1 << 20], [DT_STRSZ, names.len() as u64]].concat();
            let table: Vec<u8> = table.into_iter().flat_map(u64::to_ne_bytes).collect();
            let mut file = elf(&[(PT_DYNAMIC, &table), (PT_LOAD, names)]);
            let address = 64 + 56 + 16;
            file[address..address + 8].copy_from_slice(&(1_u64 << 20).to_ne_bytes());
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("program");
            fs::write(&path, &file).unwrap();
            let by = passes_by(&path, None).unwrap();
            // Truncated anywhere, it must not panic.
            (0..file.len()).for_each(|length| {
                fs::write(&path, &file[..length]).unwrap();
                passes_by(&path, None).unwrap();
            });
            by
        };
        assert_eq!(named(b"\0fchdir\0syscall\0"), Some("syscall"));
        assert_eq!(named(b"\0getdents64\0syscall\0"), Some("getdents64"));
        assert_eq!(named(b"\0syscall\0readdir64\0"), None);
        assert_eq!(named(b"\0fchdir\0my_syscall\0"), None);
        assert_eq!(named(b"\0fts64_read\0syscall\0"), None);
    }

    #[test]
    fn only_regular_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o755.into(), 0).unwrap();
        let mut other_end = File::options().read(true).write(true).open(&pipe).unwrap();
        let mut foreign = elf(&[]);
        foreign.resize(256, 0);
        foreign[18] ^= 1;
        other_end.write_all(&foreign).unwrap();
        assert_eq!(inspect(&pipe, None).unwrap(), None);
        drop(other_end);
        assert_eq!(inspect(&pipe, None).unwrap(), None, "no process is waited for");
    }

    #[test]
    fn commands_are_found_as_by_a_shell() {
        let cargo = find(OsStr::new("cargo"), path_variable().as_deref()).unwrap();
        assert!(cargo.is_absolute());
        assert_eq!(find(OsStr::new("./here"), None), Some(PathBuf::from("./here")));
        assert_eq!(find(OsStr::new("no-such-program-anywhere"), path_variable().as_deref()), None);
    }
}
