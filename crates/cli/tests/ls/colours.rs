//! The escape sequences of GNU ls, byte for byte, for many values of LS_COLORS.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use rustix::fs::Mode;

use crate::{
    common::{pando, said, skipped},
    gnu::{has_gnu_ls, same_with},
    tree::populate,
};

const COLOURS: &[&str] = &[
    // A part of the output of dircolors.
    "rs=0:di=01;34:ln=01;36:mh=00:pi=40;33:so=01;35:do=01;35:bd=40;33;01:cd=40;33;01:or=40;31;01:mi=00:su=37;41:sg=30;43:\
     ca=00:tw=30;42:ow=34;42:st=37;44:ex=01;32:*.gz=01;31:*.txt=00;36:*~=00;90:",
    // The begin and the end of a colour.
    "rs=7:di=1",
    "lc=<:rc=>:di=1",
    "lc=<:rc=>:ec=E:di=1",
    "ec=E:no=35",
    "cl=C:fi=3:ln=4",
    // Text that is not a name.
    "no=35",
    "no=35:fi=0:di=",
    "no=35:lc=<:rc=>",
    "no=0:fi=00",
    // Links.
    "or=32",
    "mi=31",
    "or=32:mi=33",
    "or=:mi=",
    "or=0:mi=0:ln=3",
    "ln=target",
    "ln=target:or=3",
    "ln=target:ex=0",
    "ln=target:ex=0:mh=33:or=4",
    "ln=targets",
    // Modes and numbers of links.
    "mh=35",
    "mh=35:ex=0:su=0:sg=0:ca=0",
    "mh=35:ex=0:su=0:sg=0:ca=0:ow=0:st=0:tw=0",
    "su=0:sg=00",
    "ex=0",
    "tw=0",
    "ow=0:tw=",
    "st=0:tw=00",
    "pi=1:so=2:bd=3:cd=4:do=5",
    // Suffixes of names: the last matching rule counts.
    "*=3",
    "*.txt=",
    "fi=33:*.TXT=31:*.txt=32",
    "*.gz=31:*.tar.gz=32",
    "*.tar.gz=32:*.gz=31:*A~=5",
    // Escapes.
    r"di=\e[3\x31\_\?\n\102:ln=^[^a^~^?:fi=\=\:",
    "di=1=2*:::ln=4::",
    r"ex=\x:di=\xZ\777",
    // Values that ls reports as wrong.
    "di",
    "d",
    "x=3",
    "zz=3",
    "di=^",
    "di=^!",
    r"di=3\",
    "*.a",
    "*.a:di=3",
];

const OPTIONS: &[&str] = &[
    "-1",
    "-1 -w 30",
    "-1F",
    "-1is",
    "-1U",
    "-C",
    "-C -w 100",
    "-CF -w 61",
    "-C -w 0",
    "-C -w 70 --quoting-style=shell-escape",
    "-l",
    "-lF -w 50",
    "-goF -w 60",
    "-l -w 70 --quoting-style=shell-escape",
    "-la",
    "-R",
    "-lR",
    "-d",
];

const ARGUMENTS: &[&str] = &["ln", "lndir", "broken", "dir", "q?", "hard", "lnlong", "both"];

/// Entries that the tree of the other tests does not have.
fn populate_more(root: &Path) {
    let path = |name: &str| root.join(name);
    for (index, name) in ["b.TXT", "Makea~", "set.txt", "run.txt", "setgid"].iter().enumerate() {
        fs::write(path(name), vec![b'x'; index]).unwrap();
    }
    for (name, mode) in [("set.txt", 0o4644), ("run.txt", 0o711), ("setgid", 0o2644)] {
        rustix::fs::chmod(path(name), Mode::from_raw_mode(mode)).unwrap();
    }
    fs::create_dir(path("dir.txt")).unwrap();
    fs::hard_link(path("notes.txt"), path("hard.txt")).unwrap();
    fs::hard_link(path("q?"), path("hardexe")).unwrap();
    // More bytes than columns, and wider than the screen.
    fs::write(path(&"\u{fc}".repeat(45)), "").unwrap();
    let long = "y".repeat(90);
    fs::write(path(&long), "").unwrap();
    let links = [
        ("loop", "loop"),
        ("ln", "chain"),
        ("broken", "chain to nowhere"),
        ("nowhere.txt", "broken.txt"),
        ("notes.txt", "lntxt"),
        ("both", "lnboth"),
        ("fifo", "lnfifo"),
        ("/dev/null", "lnnull"),
        ("set.txt", "lnset"),
        (&long, "lnlong"),
    ];
    for (target, link) in links {
        symlink(target, path(link)).unwrap();
    }
    symlink("nowhere", path("dir/broken")).unwrap();
    symlink("f", path("dir/ln")).unwrap();
}

#[test]
fn colours_are_written_as_gnu_ls_writes_them() {
    if !has_gnu_ls() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    // Other processes change the parent directory, which -a shows.
    let root = temp.path().join("tree");
    fs::create_dir(&root).unwrap();
    populate(&root);
    populate_more(&root);
    for (index, colours) in COLOURS.iter().enumerate() {
        // The locale does not change the sequences, but it changes their places on the
        // screen.
        let locales: &[&str] = if index == 0 { &["C", "C.UTF-8"] } else { &["C.UTF-8"] };
        for options in OPTIONS {
            for locale in locales {
                let paths = if options == &"-d" { ARGUMENTS } else { &[] };
                same_with(&[("LS_COLORS", colours), ("LC_ALL", locale)], &format!("--color {options}"), paths, &root);
            }
        }
        same_with(&[("LS_COLORS", colours)], "--color", ARGUMENTS, &root);
    }
}

/// The first printed colour is not that of the first name with a colour.
#[test]
fn colours_are_reset_before_the_first_printed_one() {
    if !has_gnu_ls() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    for name in ["a", "c", "e"] {
        fs::write(temp.path().join(name), "").unwrap();
    }
    for name in ["b", "d", "f"] {
        fs::create_dir(temp.path().join(name)).unwrap();
    }
    for options in ["-C -w 7", "-C -w 0", "-CsF -w 15", "-CR -w 7"] {
        for colours in ["di=34", "no=35:di=34"] {
            same_with(&[("LS_COLORS", colours)], &format!("--color {options}"), &[], temp.path());
        }
    }
}

#[test]
fn without_ls_colors_the_terminal_decides() {
    if !has_gnu_ls() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    populate(temp.path());
    for term in
        ["", "dumb", "vt100", "vt220", "xterm-256color", "con80x25", "con80", "conx25", "rxvt-x", "my-direct", "st"]
    {
        same_with(&[("TERM", term), ("LS_COLORS", "")], "--color", &[], temp.path());
    }
    for colour_term in ["", "truecolor"] {
        same_with(&[("COLORTERM", colour_term), ("TERM", "dumb")], "--color -lF", &[], temp.path());
    }
}

/// Not compared with GNU ls, because some builds do not support capabilities.
#[test]
fn executables_with_capabilities_have_their_colour() {
    let temp = tempfile::tempdir().unwrap();
    for name in ["able", "plain"] {
        fs::write(temp.path().join(name), "").unwrap();
        rustix::fs::chmod(temp.path().join(name), Mode::from_raw_mode(0o755)).unwrap();
    }
    match Command::new("setcap").arg("cap_net_raw+ep").arg(temp.path().join("able")).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => return skipped(&format!("setcap: {}", said(&output))),
        Err(error) => return skipped(&format!("setcap: {error}")),
    }
    let expected = "\x1b[0m\x1b[4mable\x1b[0m\n\x1b[5mplain\x1b[0m\n";
    for (options, colours, expected) in [
        (&["-1"][..], "ca=4:ex=5", expected),
        (&["-1U", "able"], "ca=4:ex=5", "\x1b[0m\x1b[4mable\x1b[0m\n"),
        (&["-1", "able", "plain"], "ca=4:ex=5", expected),
        (&["-1"], "ca=0:ex=5", "\x1b[0m\x1b[5mable\x1b[0m\n\x1b[5mplain\x1b[0m\n"),
    ] {
        let mut command = pando(&["ls", "--color"]);
        let output = command.args(options).current_dir(temp.path()).env("LS_COLORS", colours).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{options:?} {colours}");
    }
    for options in ["-l", "-lU"] {
        let mut command = pando(&["ls", "--color", options]);
        let output = command.current_dir(temp.path()).env("LS_COLORS", "ca=4:ex=5").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("\x1b[4mable\x1b[0m") && text.contains("\x1b[5mplain\x1b[0m"), "{options}: {text:?}");
    }
}
