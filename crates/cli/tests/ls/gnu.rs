//! The same bytes as GNU ls in the C locale, for the options that both have.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
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
    "--full-time --time-style=iso",
    "--time-style=iso --full-time",
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
    "-lF --quoting-style=shell-escape",
    "-CF --quoting-style=shell-escape",
    "-RF --quoting-style=shell-escape",
    "--quoting-style=shell-escape-always",
    // The last format counts, but -1 has no effect after -l.
    "-l1",
    "-1l",
    "-Cl1",
    "-lC1",
    "-C1l",
    "--full-time -C",
    "--full-time -1",
    "--zero -C",
    "-aA",
    "-Aa",
    // -f is -aU, and turns off earlier options.
    "-f",
    "-lf",
    "-nf1",
    "-sf",
    "-fs",
    "-ft",
    "-tf",
    "-fA",
    "-Af",
    "-fr",
    "-fi",
    "-fC",
    "-Cf",
    "-fR",
    "-fS --color",
    "--color -f",
    "-Ui",
    "-Usi",
    "-UiR",
    "-UiF",
    "-UiC -w 60",
    "-C -w 0 --quoting-style=shell-escape",
    "-Ci -w 0",
    "-C -w 1",
    "-C -w 4",
    "-C -w 0x30",
    "-C -w 077",
    "-C -w +70",
    "-C -w 100000",
    "-C -w 99999999999999999999",
    "-l --author",
    "-go --author",
    "--author",
];

/// Whether the installed ls is the one to compare with.
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
    for variable in [
        "LS_COLORS",
        "TERM",
        "COLORTERM",
        "COLUMNS",
        "TABSIZE",
        "TIME_STYLE",
        "QUOTING_STYLE",
        "BLOCK_SIZE",
        "LS_BLOCK_SIZE",
        "BLOCKSIZE",
        "POSIXLY_CORRECT",
    ] {
        command.env_remove(variable);
    }
    command.envs(env.iter().copied()).output().unwrap()
}

fn same(options: &str, paths: &[&str], dir: &Path) {
    same_with(&[], options, paths, dir);
}

/// The same with these environment variables.
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
    // The quotes around names in messages of GNU ls depend on the locale.
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
fn arguments_are_listed_as_by_gnu_ls() {
    if !has_gnu_ls() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    // Not the temporary directory itself: other processes change its parent, which -a shows.
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
            "-fl",
            "-gfl",
            "-nU --author",
            "-C",
            "--quoting-style=shell-escape",
        ] {
            same(options, paths, &root);
        }
    }
}

#[test]
fn the_screen_width_is_that_of_gnu_ls() {
    if !has_gnu_ls() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    populate(temp.path());
    for columns in ["0", "50", "", "x", "-3", "0x30", "100000"] {
        for options in ["-C", "-C -w 60", "-l", "--color -l", "--color -1"] {
            same_with(&[("COLUMNS", columns), ("LS_COLORS", "fi=3")], options, &[], temp.path());
        }
    }
}

#[test]
fn the_environment_may_select_a_quoting_style() {
    if !has_gnu_ls() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    populate(temp.path());
    for style in ["literal", "shell-escape", "shell-escape-always", "c", "nonsense", ""] {
        for options in ["", "--zero", "-N", "--quoting-style=shell-escape"] {
            same_with(&[("QUOTING_STYLE", style)], options, &[], temp.path());
        }
    }
    // If nothing is quoted, nothing is reported.
    let ours = listed(pando(&["ls"]), "--json", &["a b"], temp.path(), &[("QUOTING_STYLE", "nonsense")]);
    assert_eq!((said(&ours).as_str(), ours.status.code()), ("", Some(0)));
}

/// Names with invalid characters, characters without a width, and wide ones.
#[test]
fn names_are_as_wide_as_in_gnu_ls() {
    if !has_gnu_ls() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let names: [&[u8]; 14] = [
        b"b",
        b"c",
        b"a\x01\x02\x03",
        b"\xff\xfe\xfd\xfc\xfb\xfa",
        b"i\xe6\xbc",
        b"k\xf0\x9f\x98",
        b"l\xf0\x9fm",
        "\u{fc}\u{fc}\u{fc}!".as_bytes(),
        "e\u{301}\u{302}".as_bytes(),
        "\u{200b}\u{200b}z".as_bytes(),
        "\u{85}\u{86}".as_bytes(),
        "\u{6f22}\u{5b57}".as_bytes(),
        "\u{1f600}x".as_bytes(),
        "\u{e000}p".as_bytes(),
    ];
    for name in names {
        std::fs::write(temp.path().join(OsStr::from_bytes(name)), "").unwrap();
    }
    for width in 1..60 {
        for locale in ["C", "C.UTF-8"] {
            for options in ["", " --quoting-style=shell-escape"] {
                same_with(&[("LC_ALL", locale)], &format!("-C -w {width}{options}"), &[], temp.path());
            }
        }
    }
}

#[test]
fn many_names_are_laid_out_as_by_gnu_ls() {
    if !has_gnu_ls() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    for index in 0..2000_usize {
        let name = format!("{index:x}{}", "y".repeat(index * index % 23));
        std::fs::write(temp.path().join(name), "").unwrap();
    }
    for width in [7, 80, 81, 500, 1000, 4000, 9999, 20_000, 30_000, 100_000] {
        same(&format!("-C -w {width}"), &[], temp.path());
        same(&format!("-C -w {width} --color"), &[], temp.path());
    }
}

/// The marks of access control lists cost a call for each entry. A streaming listing has them only
/// with --xattr.
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
fn listings_of_this_machine_match() {
    if !has_gnu_ls() {
        return;
    }
    for dir in ["/etc", "/usr/bin", "/usr/lib", "/"] {
        for options in ["-la", "-lhS", "-C -w 100", "-lt"] {
            // Changes between the two listings are not in these directories.
            same(options, &[if dir == "/" { "/etc/../etc/ssl" } else { dir }], Path::new(dir));
        }
    }
}

#[test]
fn an_unknown_time_is_shown_in_any_format() {
    if !has_gnu_ls() {
        return;
    }
    for options in ["-ld --time=birth --time-style=+", "-ld --time=birth --time-style=+%s", "-ld --time-style=+"] {
        same(options, &["/proc/sys"], Path::new("/"));
    }
}
