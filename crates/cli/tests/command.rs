//! The command without a mount: help, messages, exit codes, generated files.

mod common;

use std::{
    fs,
    process::{Command, Stdio},
};

use common::{has, pando, run, said};

fn refused(args: &[&str], code: i32) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
    assert!(output.stdout.is_empty());
    said(&output)
}

#[test]
fn usage_errors_exit_with_2() {
    assert!(refused(&["mount", "--size", "10Q", "grove"], 2).contains("K, M, G"));
    assert!(refused(&["mount", "-o", "swim", "grove"], 2).contains("noatime"));
    assert!(refused(&["mount", "--depth", "0", "grove"], 2).contains("from 1 on"));
    assert!(refused(&["mount"], 2).contains("<DIR>"));
    assert!(refused(&["moutn"], 2).contains("mount"));
    assert!(refused(&["umount", "--lazy", "--force", "x"], 2).contains("cannot be used with"));
    assert!(refused(&[], 2).contains("Usage"));
}

#[test]
fn failures_name_the_object_and_the_remedy() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("file"), "").unwrap();
    let message = refused(&["mount", &path("file")], 1);
    assert!(message.contains("file: not a directory") && message.contains("it is created"), "{message}");
    let message = refused(&["mount", &path("no/parent")], 1);
    assert!(message.contains("does not exist") && message.contains("mkdir -p"), "{message}");
    let message = refused(&["mount", temp.path().to_str().unwrap()], 1);
    assert!(message.contains("not empty") && message.contains("--nonempty"), "{message}");
    let message = refused(&["umount", temp.path().to_str().unwrap()], 1);
    assert!(message.contains("nothing is mounted here"), "{message}");
    let message = refused(&["umount", "/proc"], 1);
    assert!(message.contains("mount of type proc") && message.contains("umount /proc"), "{message}");
    let message = refused(&["umount", &path("missing")], 1);
    assert!(message.contains("missing: No such file"), "{message}");
    let message = refused(&["mount", "--stats", &path("no/stats"), &path("new")], 1);
    assert!(message.contains("no/stats: No such file"), "{message}");
    for delay in [&["--fault", "read=EIO"][..], &["--delay", "lookup=0us", "--seek", "0us"]] {
        let stats = path("no/stats");
        let depth = ["mount", "--depth", "3", "--stats", &stats, &path("new")];
        let message = refused(&[&depth[..], delay].concat(), 1);
        assert!(message.contains("no delay is given"), "{message}");
    }
    assert!(!temp.path().join("new").exists(), "a directory that was created in vain is removed");
    let message = refused(&["mount", "--daemon", &path("file")], 1);
    assert!(message.contains("not a directory"), "the parent shows its child's error: {message}");
}

/// Measuring code reads clocks. Not every way to read a clock exists under valgrind, which has no
/// vDSO. Valgrind runs one thread at a time. Without fair scheduling, a thread that waits for
/// another may keep it from running for minutes.
#[test]
fn commands_run_under_valgrind() {
    if !has(&["valgrind"]) {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("file"), "").unwrap();
    let dir = temp.path().to_str().unwrap();
    for args in [&["ls", "-l", dir][..], &["warm", dir], &["bench", "crunl", "mem", "--seconds", "0.01"]] {
        let pando = env!("CARGO_BIN_EXE_pando");
        let output =
            Command::new("valgrind").args(["--tool=none", "--fair-sched=try", pando]).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }
}

#[test]
fn the_version_is_stable_json() {
    let output = run(&["version", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.starts_with(&format!("{{\"name\":\"pando\",\"version\":\"{version}\",\"os\":\"")), "{text}");
    assert_eq!(run(&["version"]).stdout, format!("pando {version}\n").as_bytes());
    assert_eq!(run(&["--version"]).stdout, format!("pando {version}\n").as_bytes());
}

#[test]
fn completions_and_pages_are_complete() {
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(run(&["completions", shell]).stdout).unwrap();
        assert!(script.contains("umount") && script.contains("attr-timeout"), "{shell}");
    }
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("man/man1");
    assert!(run(&["man", "--out", out.to_str().unwrap()]).status.success());
    let page = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert!(page("pando.1").contains("pando\\-mount"), "{}", page("pando.1"));
    let mount = page("pando-mount.1");
    assert!(mount.contains("fusermount3") && mount.contains("\\-\\-attr\\-timeout"), "{mount}");
    for name in [
        "pando-umount.1",
        "pando-bench.1",
        "pando-bench-crunl.1",
        "pando-version.1",
        "pando-completions.1",
        "pando-man.1",
    ] {
        assert!(page(name).contains(".TH"), "{name}");
    }
    for entry in fs::read_dir(&out).unwrap() {
        let page = fs::read_to_string(entry.unwrap().path()).unwrap();
        let lines: Vec<_> = page.lines().collect();
        for option in lines.windows(3).filter(|lines| lines[0] == ".TP") {
            assert!(!option[2].is_empty() && !option[2].starts_with('.'), "{option:?}");
        }
        assert!(page.contains("\"pando 0"), "{page}");
        let notes = lines.iter().skip_while(|&&line| line != ".SH NOTES");
        let mut filled = true;
        for line in notes.take_while(|&&line| line != ".SH VERSION") {
            filled = *line == ".fi" || (filled && *line != ".nf");
            assert!(!(filled && line.starts_with(' ')), "a table must not be filled: {line}");
        }
    }
    assert!(mount.contains("[OPTIONS] <DIR>"), "{mount}");
}

#[test]
fn a_broken_pipe_is_quiet() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = pando(&["completions", "bash"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
}

#[test]
fn an_invalid_log_filter_is_reported() {
    let output = pando(&["version"]).env("RUST_LOG", "pando=loud").output().unwrap();
    assert!(output.status.success());
    assert!(said(&output).contains("RUST_LOG=pando=loud"), "{}", said(&output));
}

#[test]
fn the_log_has_colours_only_on_terminals() {
    let temp = tempfile::tempdir().unwrap();
    let log = said(&run(&["-v", "warm", temp.path().to_str().unwrap()]));
    assert!(log.contains(" INFO ") && !log.contains('\x1b'), "{log:?}");
}

#[test]
fn long_help_extends_short_help() {
    let short = String::from_utf8(run(&["mount", "-h"]).stdout).unwrap();
    let long = String::from_utf8(run(&["mount", "--help"]).stdout).unwrap();
    assert!(short.lines().count() < 50 && long.lines().count() > short.lines().count());
    assert!(long.contains("docker run") && long.contains("Exit codes"));
}
