//! Exit codes, messages, memory, readers that close the pipe, directories that are removed.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use crate::{
    common::{copy_to, has, pando, said, skipped},
    memory_group::MemoryGroup,
    mount::Mounted,
    scale,
};

fn ls(arguments: &[&str], dir: &Path) -> Output {
    pando(&["ls"]).args(arguments).current_dir(dir).env("LC_ALL", "C").output().unwrap()
}

/// Runs it as a user without special rights. None if this process is neither root nor such a user.
fn ls_as_nobody(arguments: &[&str], dir: &Path) -> Option<Output> {
    if !rustix::process::geteuid().is_root() {
        return Some(ls(arguments, dir));
    }
    let temp = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(copy_to(temp.path()))
        .arg("ls")
        .args(arguments)
        .current_dir(dir)
        .env("LC_ALL", "C")
        .output();
    output.inspect_err(|error| skipped(&format!("setpriv: {error}"))).ok()
}

#[test]
fn exit_codes_are_those_of_the_help() {
    let temp = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let dir = temp.path();
    for made in ["good/closed", "good/blind", "good/below"] {
        fs::create_dir_all(dir.join(made)).unwrap();
    }
    fs::write(dir.join("good/blind/entry"), "").unwrap();
    fs::write(dir.join("good/below/entry"), "").unwrap();
    fs::set_permissions(dir.join("good/closed"), fs::Permissions::from_mode(0o000)).unwrap();
    // A directory whose names may be read, and nothing else.
    fs::set_permissions(dir.join("good/blind"), fs::Permissions::from_mode(0o444)).unwrap();

    let output = ls(&["good"], dir);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"below\nblind\nclosed\n"[..]));
    let output = ls(&["missing", "good"], dir);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.ends_with(b"below\nblind\nclosed\n"), "what can be listed is listed");
    assert_eq!(said(&output), "pando ls: cannot access 'missing': No such file or directory\n");
    let output = ls(&["", "good"], dir);
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), false));
    assert_eq!(said(&output), "pando ls: cannot access '': No such file or directory\n");

    let Some(output) = ls_as_nobody(&["good/closed"], dir) else { return };
    assert_eq!(output.status.code(), Some(2), "an argument");
    assert_eq!(said(&output), "pando ls: cannot open directory 'good/closed': Permission denied\n");
    let Some(output) = ls_as_nobody(&["-lR", "good"], dir) else { return };
    assert_eq!(output.status.code(), Some(1), "within an argument");
    assert!(said(&output).contains("cannot open directory 'good/closed': Permission denied"), "{}", said(&output));
    assert!(said(&output).contains("cannot access 'good/blind/entry': Permission denied"), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("-????????? ? ? ? ?            ? entry"), "{text}");
    assert!(text.contains("good/below:\n"), "{text}");
    let Some(output) = ls_as_nobody(&["-lR", "--json", "good"], dir) else { return };
    let rows: Vec<serde_json::Value> =
        output.stdout.split_inclusive(|&byte| byte == b'\n').map(|row| serde_json::from_slice(row).unwrap()).collect();
    let row = |path: &str| rows.iter().rfind(|row| row["path"] == path).unwrap();
    assert_eq!(row("good/closed")["error"]["operation"], "open");
    assert_eq!(row("good/blind/entry")["error"]["errno"], 13);
    assert_eq!(row("good/below/entry")["size"], 0);
}

#[test]
fn wrong_command_lines_are_reported() {
    let here = Path::new("/");
    for (arguments, says) in [
        (&["-l", "--time-style=nice"][..], "full-iso"),
        (&["--sort-memory=0"], "no bytes"),
        (&["--sort-memory=lots"], "as in 512M"),
        (&["--xattr=some"], "values"),
        (&["--json", "--csv"], "cannot be used with"),
        (&["-w", "-3"], "-3"),
        (&["--nonsense"], "--nonsense"),
    ] {
        let output = ls(arguments, here);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains(says), "{arguments:?}: {}", said(&output));
    }
    // As in ls, an unknown word is less serious.
    let output = ls(&["--sort=colour"], here);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("extension"), "{}", said(&output));
    // A wrong environment affects all listings, but only if times are shown.
    for (options, code, says) in [("-l", 2, "TIME_STYLE=nice"), ("-t", 0, ""), ("--json", 0, "")] {
        let output = pando(&["ls", options]).env("TIME_STYLE", "nice").output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{options}");
        assert!(said(&output).contains(says), "{}", said(&output));
    }
}

#[test]
fn help_lists_the_differences_from_ls() {
    let long = ls(&["--help"], Path::new("/"));
    let text = String::from_utf8(long.stdout).unwrap();
    for part in ["DIFFERENCES FROM ls", "JSON (version 1)", "EXIT STATUS", "ENVIRONMENT"] {
        assert!(text.contains(part), "{part}");
    }
    let man = tempfile::tempdir().unwrap();
    assert!(pando(&["man", "--out"]).arg(man.path()).status().unwrap().success());
    let page = fs::read_to_string(man.path().join("pando-ls.1")).unwrap();
    assert!(page.contains("DIFFERENCES FROM ls") && page.contains("sort\\-memory"), "{page}");
}

/// A directory in memory with many hard links of one file: only their number matters.
pub fn many(count: usize) -> Option<Mounted> {
    let mounted = Mounted::tmpfs(&format!("size=50%,nr_inodes={}", count + 100))?;
    let root = rustix::fs::open(mounted.path(), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    drop(rustix::fs::openat(&root, name(0), flags, Mode::RUSR).unwrap());
    let first = name(0);
    for index in 1..count {
        rustix::fs::linkat(&root, &first, &root, name(index), AtFlags::empty()).unwrap();
    }
    Some(mounted)
}

/// As [`many`], but with directories.
fn many_directories(count: usize) -> Option<Mounted> {
    let mounted = Mounted::tmpfs(&format!("size=50%,nr_inodes={}", count + 100))?;
    let root = rustix::fs::open(mounted.path(), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    for index in 0..count {
        rustix::fs::mkdirat(&root, name(index), Mode::RWXU).unwrap();
    }
    Some(mounted)
}

fn name(index: usize) -> String {
    format!("entry-{:04x}-{index:08}", index.wrapping_mul(0x9e37_79b9) & 0xffff)
}

/// The number of an entry of `many` in a line of a listing. None if it is the line of the total.
fn index_of(line: &str) -> Option<usize> {
    let listed = line.rsplit(' ').next().unwrap();
    let index = listed.rsplit('-').next().unwrap().parse().ok()?;
    (listed == name(index)).then_some(index)
}

/// An address space that is far too small for all records of many entries.
const LIMIT_KIB: u32 = 120_000;
/// The memory of a process that suffices for any number of entries: the budget of a scan, and all
/// the rest.
const PEAK_KIB: u64 = 80_000;

/// Lists a directory of `many`. Each name must come once, and in order if it is sorted. Returns the
/// peak memory of the process in KiB: the kernel's figure (VmHWM), read during the listing.
fn list_many(command: Command, dir: &Path, count: usize, sorted: bool) -> u64 {
    list_all(command, dir, count, sorted).0
}

/// As [`list_many`]. Also returns the number of directories that were listed with their paths as
/// headers.
fn list_all(mut command: Command, dir: &Path, count: usize, sorted: bool) -> (u64, usize) {
    let mut child = command.arg(dir).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let peak = || {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse().unwrap())
    };
    let (mut seen, mut before, mut most, mut entered) = (vec![false; count], String::new(), 0, 0);
    let out = BufReader::with_capacity(1 << 16, child.stdout.take().unwrap());
    for (number, line) in out.lines().map(Result::unwrap).enumerate() {
        if number % 4096 == 0 {
            most = peak().max(most);
        }
        let Some(index) = index_of(&line) else {
            // The total, the header of a directory, or an empty line.
            entered += usize::from(line.ends_with(':'));
            assert!(line.starts_with("total ") || line.ends_with(':') || line.is_empty(), "{line}");
            continue;
        };
        assert!(!std::mem::replace(&mut seen[index], true), "it comes twice: {line}");
        if sorted {
            let name = name(index);
            assert!(before < name, "{before} {name}");
            before = name;
        }
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    let lost = seen.iter().filter(|&&seen| !seen).count();
    assert_eq!(lost, 0, "{command:?} has lost entries");
    (most, entered)
}

#[test]
fn under_a_memory_limit_nothing_is_lost() {
    let count = scale::many();
    let Some(mounted) = many(count) else { return };
    let limited = |options: &[&str]| {
        let mut command = Command::new("/bin/sh");
        let script = format!("ulimit -v {LIMIT_KIB}; exec \"$0\" ls \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_pando")]).args(options);
        command
    };
    for options in [&["-U"][..], &[], &["-lU"], &["-l"], &["-l", "--sort-memory=4M"], &["-lS"]] {
        let sorted = !options.iter().any(|option| option.contains('U'));
        let peak = list_many(limited(options), &mounted.path(), count, sorted);
        scale::say(format_args!("{count} entries, {options:?}, ulimit -v {LIMIT_KIB}: {peak} KiB at most"));
    }
    readers_may_leave(&mounted.path());
}

#[test]
fn memory_does_not_grow_with_the_directory() {
    let count = scale::many();
    let Some(mounted) = many(count) else { return };
    let least = ["-l", "--sort-memory=4M"];
    for (options, bound) in [(&["-U"][..], PEAK_KIB), (&["-lU"], PEAK_KIB), (&["-lUR"], PEAK_KIB), (&least, PEAK_KIB)] {
        let mut command = pando(&["ls"]);
        command.args(options);
        let peak = list_many(command, &mounted.path(), count, options == least);
        scale::say(format_args!("{count} entries, {options:?}: {peak} KiB at most"));
        assert!(peak > 0 && peak < bound, "{options:?}: {peak} KiB");
    }
}

#[test]
fn memory_does_not_grow_with_the_directories_still_to_enter() {
    // More than are kept in memory. The 750,000 of `.ci/long` would take 60 MiB.
    let count = scale::many() / 4;
    let Some(mounted) = many_directories(count) else { return };
    let mut command = pando(&["ls", "-RU"]);
    command.env("TMPDIR", "/var/tmp");
    let (peak, entered) = list_all(command, &mounted.path(), count, false);
    scale::say(format_args!("{count} directories, -RU: {peak} KiB at most"));
    assert_eq!(entered, count + 1);
    assert!(peak > 0 && peak < 40_000, "{peak} KiB");
    // If the temporary file may not grow, no directory is lost, and the listing does not end.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -f 1; exec \"$0\" ls -RU \"$@\"", env!("CARGO_BIN_EXE_pando")]);
    assert_eq!(list_all(command, &mounted.path(), count, false).1, count + 1);
}

#[test]
fn in_a_small_control_group_nothing_is_lost() {
    let count = scale::many();
    // Created before the group has its limit: the memory of the names is not the listing's.
    let Some(mounted) = many(count) else { return };
    let Some(group) = MemoryGroup::new(64 << 20) else { return };
    for options in [&["-U"][..], &["-lU"], &["-l"], &["-l", "--sort-memory=4M"]] {
        let mut command = group.command(env!("CARGO_BIN_EXE_pando"));
        command.arg("ls").args(options);
        let sorted = !options.iter().any(|option| option.contains('U'));
        let peak = list_many(command, &mounted.path(), count, sorted);
        scale::say(format_args!("{count} entries, {options:?}, a group of 64 MiB: {peak} KiB at most"));
    }
}

fn readers_may_leave(dir: &Path) {
    for options in [&["-U"][..], &["-l"], &["--json"]] {
        let mut child =
            pando(&["ls"]).args(options).arg(dir).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut String::new()).unwrap();
        drop(out);
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success() && errors.is_empty(), "{options:?}: {status} {errors}");
    }
}

#[test]
fn a_reader_that_closes_the_pipe_does_not_hide_a_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = pando(&["ls", "/nowhere", "/"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
}

#[test]
fn a_full_disk_is_reported() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = pando(&["ls", "/"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("standard output: No space left"), "{}", said(&output));
    // A directory for temporary files that does not exist.
    let Some(mounted) = many(60_000) else { return };
    let output =
        pando(&["ls", "-l", "--sort-memory=1"]).arg(mounted.path()).env("TMPDIR", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("/nowhere") && said(&output).contains("-U"), "{}", said(&output));
}

#[test]
fn paths_for_other_programs_are_complete() {
    if !has(&["find"]) {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    crate::tree::populate(temp.path());
    let output = ls(&["-R0A", "--", "."], temp.path());
    assert!(output.status.success(), "{}", said(&output));
    let mut paths: Vec<_> = output.stdout.split(|&byte| byte == 0).filter(|path| !path.is_empty()).collect();
    let found =
        Command::new("find").args([".", "-mindepth", "1", "-print0"]).current_dir(temp.path()).output().unwrap();
    let mut expected: Vec<_> = found.stdout.split(|&byte| byte == 0).filter(|path| !path.is_empty()).collect();
    paths.sort_unstable();
    expected.sort_unstable();
    assert_eq!(paths, expected);
}

#[test]
fn a_directory_that_is_removed_is_reported() {
    let temp = tempfile::tempdir().unwrap();
    let gone = temp.path().join("gone");
    fs::create_dir(&gone).unwrap();
    let dir = rustix::fs::openat(CWD, &gone, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    fs::remove_dir(&gone).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&dir));
    for options in ["-lR", "-lU", "--json"] {
        let output = ls(&[options, &format!("{path}/")], Path::new("/"));
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let expected = format!("pando ls: reading directory '{path}/': No such file or directory\n");
        assert_eq!(said(&output), expected);
    }
}
