//! Failures of the file system below: each is reported with its name and its errno, everything else
//! is listed, and the exit code is the documented one. For `pando ls`, and for a program under
//! `pando boost`.

use std::{
    iter,
    path::PathBuf,
    process::{Command, Output},
};

use rustix::fs::{CWD, FileType, Mode};

use crate::{
    common::{Mounted, can_mount, pando, said},
    requests::{Requests, alone, forgetter},
};

const FILES: usize = 100;

/// After ESTALE the kernel retries once by itself. The error is seen if more answers in a row are
/// stale than threads ask.
fn stale() -> Vec<String> {
    let answers = 150..=150 + pando_scan::MAX_WORKERS;
    answers.flat_map(|number| ["--fault".to_owned(), format!("lookup=ESTALE@{number}")]).collect()
}

/// A server without readdirplus, with files `f0`, `f1` ... and a directory in `tree`. Creating a
/// name looks it up, so some hundred look-ups are over by then, and no file was opened.
fn store<S: AsRef<str>>(options: &[S]) -> Mounted {
    let options = options.iter().map(AsRef::as_ref);
    let mounted = Mounted::new(&iter::once("--no-readdirplus").chain(options).collect::<Vec<&str>>());
    std::fs::create_dir_all(mounted.path("tree/sub")).unwrap();
    for number in 0..FILES {
        let path = mounted.path(format!("tree/f{number}"));
        rustix::fs::mknodat(CWD, &path, FileType::RegularFile, Mode::from_raw_mode(0o644), 0).unwrap();
    }
    mounted
}

fn ls(mounted: &Mounted, options: &[&str]) -> Output {
    pando(&["ls"]).args(options).arg(mounted.path("tree")).env("LC_ALL", "C").output().unwrap()
}

fn names(output: &Output) -> usize {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter(|line| !line.starts_with("total ") && !line.ends_with(':') && !line.is_empty()).count()
}

#[test]
fn an_entry_that_cannot_be_looked_up_is_named_and_the_rest_is_listed() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let Some(forgetter) = forgetter() else { return };
    let (stale, once) = (stale(), ["--fault".to_owned(), "lookup=EIO@150".to_owned()]);
    for (faults, text, errno) in [(&once[..], "Input/output error", 5), (&stale, "Stale file handle", 116)] {
        for options in [&["-lU"][..], &["-l"], &["-lR"], &["-lR", "--json"]] {
            let mounted = store(faults);
            forgetter.forget();
            let output = ls(&mounted, options);
            assert_eq!(output.status.code(), Some(1), "{faults:?} {options:?}: {}", said(&output));
            let messages = said(&output);
            let expected = format!("'{}/", mounted.path("tree").display());
            assert!(messages.lines().all(|line| line.contains(&expected) && line.ends_with(text)), "{messages}");
            assert!((1..=faults.len() / 2).contains(&messages.lines().count()), "{messages}");
            assert_eq!(names(&output), FILES + 1, "{options:?}: the entry that failed has a line too");
            if options.contains(&"--json") {
                let rows = output.stdout.split_inclusive(|&byte| byte == b'\n');
                let rows: Vec<serde_json::Value> = rows.map(|row| serde_json::from_slice(row).unwrap()).collect();
                let failed: Vec<_> = rows.iter().filter(|row| !row["error"].is_null()).collect();
                assert!(!failed.is_empty() && failed.iter().all(|row| row["error"]["errno"] == errno), "{failed:?}");
            }
            let again = ls(&mounted, options);
            assert_eq!((again.status.code(), said(&again).len()), (Some(0), 0), "it was for once: {}", said(&again));
            mounted.umount();
        }
    }
}

#[test]
fn a_read_ahead_names_its_failures() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let Some(forgetter) = forgetter() else { return };
    let mounted = store(&stale());
    forgetter.forget();
    let output = pando(&["warm", "--max-inflight", "1"]).arg(mounted.path("tree")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let messages = said(&output);
    assert!(messages.lines().all(|line| line.contains(": Stale file handle")), "{messages}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("101 entries in 1 directory"), "{output:?}");
    mounted.umount();
}

#[test]
fn a_directory_that_cannot_be_opened_or_read_is_named() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    for (fault, code, says) in [
        ("readdir=EIO", 2, "reading directory"),
        // The second directory to be opened, after its parent.
        ("open=EIO@2", 1, "cannot open directory"),
    ] {
        for options in [&["-lRU"][..], &["-lR"], &["-R"]] {
            // Entries that were found before are printed before a directory fails.
            let mounted = store(&["--delay", "open=60ms", "--fault", fault]);
            let output = ls(&mounted, options);
            assert_eq!(output.status.code(), Some(code), "{fault} {options:?}: {}", said(&output));
            let messages = said(&output);
            assert!(messages.contains(says) && messages.contains("Input/output error"), "{messages}");
            if code == 1 {
                assert_eq!(names(&output), FILES + 1, "{options:?}");
                assert!(messages.contains("tree/sub'"), "{messages}");
            }
            mounted.umount();
        }
    }
}

/// A call that a signal interrupts is repeated, but a server may answer EINTR each time.
#[test]
fn a_server_that_always_answers_eintr_is_not_asked_for_ever() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--no-readdirplus", "--fault", "getattr=EINTR", "--attr-timeout", "0"]);
    for (command, code) in [(&["ls", "-l"][..], 2), (&["warm"], 1)] {
        let mut limited = Command::new("timeout");
        let limited = limited.args(["--signal=KILL", "60", env!("CARGO_BIN_EXE_pando")]).args(command);
        let output = limited.arg(mounted.root()).env("LC_ALL", "C").output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command:?}: {}", said(&output));
        let messages = said(&output);
        assert!(messages.contains("grove") && messages.contains("Interrupted system call"), "{messages}");
    }
    mounted.umount();
}

/// Output that is printed as it is read looks the same with and without threads.
#[test]
fn a_small_directory_of_a_slow_server_is_one_listing() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let Some(forgetter) = forgetter() else { return };
    let mounted = store(&["--delay", "lookup=2ms"]);
    for options in [&["-lU"][..], &["-CUs", "-w80"]] {
        forgetter.forget();
        let slow = ls(&mounted, options);
        assert!(slow.status.success() && slow.stdout.starts_with(b"total "), "{slow:?}");
        assert_eq!(slow.stdout, ls(&mounted, options).stdout, "{options:?}");
    }
    mounted.umount();
}

#[test]
fn an_unreadable_link_is_reported_in_its_line() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&["--fault", "readlink=EIO"]);
    let link = mounted.path("link");
    std::os::unix::fs::symlink("target", &link).unwrap();
    for path in [&mounted.path(""), &link] {
        // As it is read, and sorted.
        for order in ["-U", "-l"] {
            let shown = |form: &str| {
                let output = pando(&["ls", "-l", order, form]).arg(path).env("LC_ALL", "C").output().unwrap();
                assert!(said(&output).contains("cannot read symbolic link"), "{}", said(&output));
                String::from_utf8(output.stdout).unwrap()
            };
            let row: serde_json::Value = serde_json::from_str(&shown("--json")).unwrap();
            assert_eq!((&row["error"]["errno"], &row["error"]["operation"]), (&5.into(), &"readlink".into()), "{row}");
            assert!(shown("--csv").contains(",5,readlink,"));
            assert!(shown("-F").ends_with("link\n"), "as ls, which shows no class of a link either");
        }
    }
    mounted.umount();
}

/// A tree where `tree/f1` has two extended attributes whose values cannot be read.
fn store_without_values(errno: &str) -> Mounted {
    let mounted = store(&["--fault", &format!("getxattr={errno}")]);
    for name in ["user.a", "user.b"] {
        rustix::fs::setxattr(mounted.path("tree/f1"), name, b"1", rustix::fs::XattrFlags::empty()).unwrap();
    }
    mounted
}

#[test]
fn an_unreadable_value_is_reported_with_its_file() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = store_without_values("EIO");
    let (tree, file) = (mounted.path("tree"), mounted.path("tree/f1"));
    let expected =
        format!("pando ls: cannot read all extended attributes of '{}': Input/output error\n", file.display());
    for options in [&["--xattr"][..], &["-lU", "--xattr"], &["--json", "--xattr"], &["--csv", "--xattr"]] {
        for path in [&tree, &file] {
            let output = pando(&["ls"]).args(options).arg(path).env("LC_ALL", "C").output().unwrap();
            assert_eq!((output.status.code(), said(&output)), (Some(1), expected.clone()), "{options:?}");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(!options.contains(&"--csv") || text.contains(",user.a&user.b,5,false"), "{text}");
        }
    }
    for options in [&["--xattr=names"][..], &["-l"]] {
        let output = ls(&mounted, options);
        assert_eq!((output.status.code(), said(&output).len()), (Some(0), 0), "{options:?}: nobody asked for values");
    }
    mounted.umount();
}

#[test]
fn unreadable_marks_are_no_failure() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = store(&["--fault", "listxattr=EACCES"]);
    let output = ls(&mounted, &["-l"]);
    assert_eq!((output.status.code(), said(&output), names(&output)), (Some(0), String::new(), FILES + 1));
    let file = pando(&["ls", "-l"]).arg(mounted.path("tree/f1")).output().unwrap();
    assert_eq!((file.status.code(), said(&file)), (Some(0), String::new()));
    let asked = ls(&mounted, &["-l", "--xattr=names"]);
    assert_eq!((asked.status.code(), said(&asked).lines().count()), (Some(1), FILES + 1), "{}", said(&asked));
    mounted.umount();
}

/// Some servers list names that have no value. That is not a change of the file, and the following
/// names are not lost.
#[test]
fn a_name_without_a_value_is_no_change() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = store_without_values("ENODATA");
    let output = ls(&mounted, &["--csv", "--xattr"]);
    let says = format!("'{}': No data available\n", mounted.path("tree/f1").display());
    assert!(said(&output).ends_with(&says) && said(&output).lines().count() == 1, "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(",user.a&user.b,61,false"), "{text}");
    mounted.umount();
}

#[test]
fn a_boosted_program_gets_the_same_errors() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    for faults in [["--fault", "readdir=EIO"], ["--fault", "readdir=ESTALE"], ["--fault", "open=EACCES"]] {
        // Slow enough for the helper to read ahead.
        let mounted = store(&[["--delay", "lookup=200us,getattr=200us"], faults].concat());
        let list = |mut command: Command| {
            let output = command.arg("-la").arg(mounted.path("tree")).env("LC_ALL", "C").output().unwrap();
            (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), said(&output))
        };
        let plain = list(Command::new("ls"));
        assert!(plain.0 != Some(0), "{faults:?} fails: {}", plain.2);
        assert_eq!(list(pando(&["boost", "--", "ls"])), plain, "{faults:?}");
        mounted.umount();
    }
}

/// Even for names alone: then a walk waits for directories.
#[test]
fn a_walk_of_names_reads_many_directories_at_once() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let Some(forgetter) = forgetter() else { return };
    let mounted = Mounted::new(&["--no-readdirplus", "--delay", "lookup=2ms"]);
    let names: Vec<PathBuf> = (0..100).map(|number| mounted.path(format!("tree/d{number}/below"))).collect();
    names.iter().for_each(|name| std::fs::create_dir_all(name).unwrap());
    forgetter.forget();
    assert_eq!(Requests::of(&mounted).count("in_flight_max"), 1);
    let output = pando(&["ls", "-R0A"]).arg(mounted.path("tree")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(output.stdout.iter().filter(|&&byte| byte == 0).count(), 200);
    assert!(Requests::of(&mounted).count("in_flight_max") > 4, "{:?}", Requests::of(&mounted));
    mounted.umount();
}
