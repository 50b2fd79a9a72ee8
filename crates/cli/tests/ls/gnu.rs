//! Byte for byte what GNU ls prints, in the C locale, for the options that both have.

use std::{
    path::Path,
    process::{Command, Output},
};

use crate::{
    common::{pando, said, skipped},
    tree::{on_each_file_system, populate},
};

const OPTIONS: &[&str] = &[
    "",
    "-l",
    "-la",
    "-lA",
    "-lh",
    "-lhs",
    "-lR",
    "-laR",
    "-ln",
    "-lsi",
    "-li",
    "-lt",
    "-ltr",
    "-lS",
    "-lSr",
    "-lX",
    "-lc",
    "-ltu",
    "-lF",
    "-lRt",
    "-lRS",
    "-lG",
    "-go",
    "-ld",
    "-d",
    "-a",
    "-A",
    "-R",
    "-i",
    "-s",
    "-F",
    "-r",
    "-U",
    "-t",
    "-c",
    "--full-time",
    "-l --time-style=long-iso",
    "-l --time-style=iso",
    "-l --time-style=+%s",
    "-l --zero",
    "-C -w 80",
    "-C -w 40",
    "-C -w 133",
    "-C -w 0",
    "-CR -w 60",
    "-Ci",
    "-CsF",
    "-CU",
    "-C --quoting-style=shell-escape",
    "-l --quoting-style=shell-escape",
    "--quoting-style=shell-escape",
    "-R --quoting-style=shell-escape",
    "--quoting-style=shell-escape-always",
];

/// Whether ls is the one to compare with.
pub fn has_gnu_ls() -> bool {
    let version = Command::new("ls").arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let gnu = version.starts_with(b"ls (GNU coreutils)");
    if !gnu {
        skipped("ls is not that of the GNU coreutils");
    }
    gnu
}

fn listed(mut command: Command, options: &str, paths: &[&str], dir: &Path, env: &[(&str, &str)]) -> Output {
    command.args(options.split_whitespace()).args(paths).current_dir(dir).env("LC_ALL", "C").env("TZ", "Europe/Berlin");
    for variable in
        ["LS_COLORS", "TERM", "COLORTERM", "COLUMNS", "TIME_STYLE", "QUOTING_STYLE", "BLOCK_SIZE", "POSIXLY_CORRECT"]
    {
        command.env_remove(variable);
    }
    command.envs(env.iter().copied()).output().unwrap()
}

fn same(options: &str, paths: &[&str], dir: &Path) {
    same_with(&[], options, paths, dir);
}

/// The same with these variables in the environment.
pub fn same_with(env: &[(&str, &str)], options: &str, paths: &[&str], dir: &Path) {
    let gnu = listed(Command::new("ls"), options, paths, dir, env);
    let ours = listed(pando(&["ls"]), options, paths, dir, env);
    let what = format!("{env:?} ls {options} {paths:?} in {}", dir.display());
    assert!(
        ours.stdout == gnu.stdout,
        "{what}:\n{}\nGNU:\n{}",
        String::from_utf8_lossy(&ours.stdout),
        String::from_utf8_lossy(&gnu.stdout)
    );
    assert_eq!(ours.status.code(), gnu.status.code(), "{what}");
    // The marks around names in GNU's messages are those of the locale.
    let theirs = said(&gnu).replace(['\u{2018}', '\u{2019}'], "'");
    assert_eq!(said(&ours).replace("pando ls:", "ls:"), theirs, "{what}");
}

#[test]
fn every_option_prints_what_gnu_ls_prints() {
    if !has_gnu_ls() {
        return;
    }
    on_each_file_system(|root| {
        for options in OPTIONS {
            same(options, &["."], root);
        }
    });
}

#[test]
fn arguments_are_listed_as_gnu_ls_does() {
    if !has_gnu_ls() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    // Not the temporary directory itself: others change what is above it, which -a shows.
    let root = temp.path().join("tree");
    std::fs::create_dir(&root).unwrap();
    populate(&root);
    let paths: [&[&str]; 9] = [
        &[],
        &["plain"],
        &["plain", "dir"],
        &["dir", "empty"],
        &["nowhere", "dir"],
        &["lndir", "ln", "broken"],
        &["lndir/"],
        &["q?", "a b", "it's", "dir/sub", "dir"],
        &["-l", "--", "-dash"],
    ];
    for paths in paths {
        for options in [
            "",
            "-l",
            "-d",
            "-ld",
            "-R",
            "-F",
            "-i",
            "-t",
            "-r",
            "-U",
            "-lU",
            "-lUa",
            "-lRU",
            "-C",
            "--quoting-style=shell-escape",
        ] {
            same(options, paths, &root);
        }
    }
}

/// The marks of access lists cost a call for each entry; a listing that streams has them only with --xattr.
#[test]
fn marks_are_streamed_if_extended_attributes_are() {
    on_each_file_system(|root| {
        let listed = |options: &[&str]| {
            let output = pando(&["ls"]).args(options).arg(root).output().unwrap();
            assert!(output.status.success(), "{}", said(&output));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        assert!(listed(&["-lU", "--xattr=names"]).contains("-rwsr-sr-x+ 1 "));
        assert!(listed(&["-lU"]).contains("-rwsr-sr-x 1 "));
        assert!(listed(&["-l"]).contains("-rwsr-sr-x+ 1 "));
    });
}

#[test]
fn this_machine_looks_the_same() {
    if !has_gnu_ls() {
        return;
    }
    for dir in ["/etc", "/usr/bin", "/usr/lib", "/"] {
        for options in ["-la", "-lhS", "-C -w 100", "-lt"] {
            // What changes between the two listings on a living machine is not of these directories.
            same(options, &[if dir == "/" { "/etc/../etc/ssl" } else { dir }], Path::new(dir));
        }
    }
}
