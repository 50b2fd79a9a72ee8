//! Exit codes, messages, memory, readers that leave, directories that vanish.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use rustix::fs::{CWD, Mode, OFlags};

use crate::{
    common::{pando, said, skipped},
    mount::Mounted,
};

fn ls(arguments: &[&str], dir: &Path) -> Output {
    pando(&["ls"]).args(arguments).current_dir(dir).env("LC_ALL", "C").output().unwrap()
}

/// Runs it as a user that permissions hold for; none if we are neither root nor such a user.
fn ls_as_nobody(arguments: &[&str], dir: &Path) -> Option<Output> {
    if !rustix::process::geteuid().is_root() {
        return Some(ls(arguments, dir));
    }
    // The build directory may be closed to others.
    let copy = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let command = copy.path().join("pando");
    fs::copy(env!("CARGO_BIN_EXE_pando"), &command).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&command)
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
    // Its names may be read, but nothing about what they name.
    fs::set_permissions(dir.join("good/blind"), fs::Permissions::from_mode(0o444)).unwrap();

    let output = ls(&["good"], dir);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"below\nblind\nclosed\n"[..]));
    let output = ls(&["missing", "good"], dir);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.ends_with(b"below\nblind\nclosed\n"), "what can be listed is listed");
    assert_eq!(said(&output), "pando ls: cannot access 'missing': No such file or directory\n");

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
fn nonsense_on_the_command_line_is_named() {
    let here = Path::new("/");
    for (arguments, says) in [
        (&["--time-style=nice"][..], "full-iso"),
        (&["--sort=colour"], "extension"),
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
    let output = pando(&["ls"]).env("TIME_STYLE", "nice").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("TIME_STYLE=nice"), "{}", said(&output));
}

#[test]
fn help_says_what_differs_from_ls() {
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

/// A directory with many files, in memory: their number is what counts.
fn many(count: usize) -> Option<Mounted> {
    let mounted = Mounted::tmpfs()?;
    let root = rustix::fs::open(mounted.path(), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    for index in 0..count {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        drop(rustix::fs::openat(&root, name(index), flags, Mode::RUSR).unwrap());
    }
    Some(mounted)
}

fn name(index: usize) -> String {
    format!("entry-{:x}-{index:06}", index.wrapping_mul(0x9e37_79b9) & 0xffff)
}

const MANY: usize = 200_000;
/// Address space that is far too small for all records of that many entries.
const LIMIT_KIB: u32 = 120_000;

#[test]
fn under_a_memory_limit_nothing_is_lost() {
    let Some(mounted) = many(MANY) else { return };
    let expected: BTreeSet<String> = (0..MANY).map(name).collect();
    for options in [&["-U"][..], &[], &["-lU"], &["-l"], &["-l", "--sort-memory=4M"], &["-lS", "-r"]] {
        let script = format!("ulimit -v {LIMIT_KIB}; exec \"$0\" ls \"$@\"");
        let output = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_pando")])
            .args(options)
            .arg(mounted.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{options:?}: {}", said(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("total "));
        let names: Vec<&str> = lines.map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(names.len(), MANY, "{options:?}: none is doubled");
        assert!(names.iter().all(|&name| expected.contains(name)), "{options:?}");
        if !options.iter().any(|option| option.contains('U')) {
            let ascending = names.is_sorted();
            assert!(ascending || options.contains(&"-r") && names.iter().rev().is_sorted(), "{options:?}");
        }
    }
    readers_may_leave(&mounted.path());
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
fn a_full_disk_is_said() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = pando(&["ls", "/"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("standard output: No space left"), "{}", said(&output));
    // A place for temporary files that is none.
    let Some(mounted) = many(60_000) else { return };
    let output =
        pando(&["ls", "-l", "--sort-memory=1"]).arg(mounted.path()).env("TMPDIR", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("/nowhere") && said(&output).contains("-U"), "{}", said(&output));
}

#[test]
fn paths_for_other_programs_are_complete() {
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
