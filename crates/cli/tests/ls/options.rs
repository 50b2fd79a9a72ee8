//! Every option of GNU ls 9, on one awkward directory, in two locales, into a pipe and on a
//! terminal: the same bytes and the same exit codes.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::Path,
    process::{Command, Stdio},
};

use rustix::termios::{Winsize, tcsetwinsize};

use crate::{
    common::{copy_to, pando, skipped},
    option_table::{ABOUT, ENVIRONMENTS, Environment, FAILURES, MORE, USES},
    pty,
    tree::{populate, populate_attributes, set_times},
};

const LOCALES: [&str; 2] = ["C", "C.UTF-8"];

/// Whether the installed ls is the one to compare with.
fn is_gnu_9() -> bool {
    let version = Command::new("ls").arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let is = version.starts_with(b"ls (GNU coreutils) 9.");
    if !is {
        skipped("ls is not that of the GNU coreutils 9");
    }
    is
}

/// A directory whose entries are all hard to list.
fn awkward(root: &Path) {
    fs::create_dir(root).unwrap();
    populate(root);
    let path = |name: &str| root.join(name);
    for name in ["t1", "t10.txt", "t2.txt", "t2.txt~", "t02", "v1.9.tar.gz", "v1.10.tar.gz", ".t9", "T3", "_x", "x~"] {
        fs::write(path(name), "").unwrap();
    }
    let names: [&[u8]; 17] = [
        b" lead",
        b"\xf4\x90\x80\x80z",
        b"cut\xe6\xbc",
        b"bell\x07\x08\x0b\x0c\r",
        b"it's $(x)\n",
        b"it's=",
        b"\n'first",
        b"mid\n'dle",
        b"'\n'",
        b"per%cent",
        "\u{2019}right".as_bytes(),
        "soft\u{ad}\u{200b}hyphen".as_bytes(),
        "\u{378}none".as_bytes(),
        "\u{85}\u{2028}".as_bytes(),
        "\u{e9}t\u{e9}".as_bytes(),
        "\u{1f600}".as_bytes(),
        b"a=b>c|d*e@f",
    ];
    for name in names {
        fs::write(root.join(OsStr::from_bytes(name)), name).unwrap();
    }
    for (target, link) in
        [("loop", "loop"), ("..", "dir/up"), ("a\nb", "odd\nlink"), ("/dev/null", "lnnull"), ("dir/f", "lnf")]
    {
        symlink(target, path(link)).unwrap();
    }
    fs::create_dir_all(path("round/a")).unwrap();
    symlink("..", path("round/a/again")).unwrap();
    fs::File::create(path("sparse")).unwrap().set_len(123_456_789_012).unwrap();
    fs::write(path("odd size"), vec![0; 100_001]).unwrap();
    set_times(&path("odd size"), -1_000_000_000, 5);
    set_times(&path("sparse"), 4_102_444_800, 5);
    for mode in [0o4755, 0o2755, 0o1644, 0o4644, 0o111] {
        let file = path(&format!("mode{mode:o}"));
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Sets security contexts, which needs root, but no kernel that enforces them.
fn label(root: &Path) {
    let set = |file: &str, value: &[u8]| {
        rustix::fs::lsetxattr(root.join(file), "security.selinux", value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    set("plain", b"system_u:object_r:etc_t:s0\0");
    set("dir", b"label");
}

/// Runs it. Returns its standard output and its exit code.
fn ran(
    mut command: Command,
    words: &[&str],
    dir: &Path,
    environment: Environment<'_>,
    terminal: bool,
) -> (Vec<u8>, Option<i32>) {
    command.args(words).current_dir(dir).env_clear().envs(environment.iter().copied()).stdin(Stdio::null());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("TZ", "Europe/Berlin");
    if !terminal {
        let output = command.output().unwrap();
        return (output.stdout, output.status.code());
    }
    let (mut ours, theirs) = pty::terminal();
    tcsetwinsize(&theirs, Winsize { ws_row: 40, ws_col: 97, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let mut child = command.stdout(theirs).stderr(Stdio::null()).spawn().unwrap();
    // The command object holds the other end too. The terminal would never end.
    drop(command);
    let (text, status) = pty::rest(&mut ours, &mut child);
    (text, status.code())
}

/// The difference from GNU ls.
fn difference(words: &[&str], dir: &Path, environment: Environment<'_>, terminal: bool) -> Option<String> {
    let theirs = ran(Command::new("ls"), words, dir, environment, terminal);
    let ours = ran(pando(&["ls"]), words, dir, environment, terminal);
    if ours == theirs {
        return None;
    }
    let lines = |text: &[u8]| text.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (our_lines, their_lines) = (lines(&ours.0), lines(&theirs.0));
    let at = our_lines.iter().zip(&their_lines).position(|(one, other)| one != other);
    let at = at.unwrap_or(our_lines.len().min(their_lines.len()));
    let line = |lines: &[Vec<u8>]| lines.get(at).map(|line| line.escape_ascii().to_string()).unwrap_or_default();
    Some(format!(
        "{environment:?} ls {words:?}{}: exit {:?}, GNU {:?}; line {at}:\n  {}\n  {}",
        if terminal { " on a terminal" } else { "" },
        ours.1,
        theirs.1,
        line(&our_lines),
        line(&their_lines)
    ))
}

/// Fails if there are differences, and prints the first ones.
fn none(differences: &[String]) {
    let shown = differences.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} differences:\n{shown}", differences.len());
}

/// The tree, in a directory that no other process changes.
fn tree() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("above/tree");
    fs::create_dir(temp.path().join("above")).unwrap();
    awkward(&root);
    // Directories have been read since they changed, so their atimes do not change for a day.
    for _ in 0..2 {
        Command::new("ls").arg("-laR").arg(temp.path()).output().unwrap();
    }
    temp
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').filter(|word| !word.is_empty()).collect()
}

/// The options in a text: `-x` and `--long`, without values.
fn options_in(text: &str) -> BTreeSet<String> {
    let separators = |c: char| c.is_whitespace() || ",=[]();|/'".contains(c);
    let is_option = |word: &&str| {
        let name = word.trim_start_matches('-');
        let dashes = word.len() - name.len();
        let is_long = dashes == 2 && name.len() > 1 && name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        is_long || dashes == 1 && name.len() == 1 && name.chars().all(|c| c.is_ascii_alphanumeric())
    };
    text.split(separators).filter(is_option).map(str::to_owned).collect()
}

#[test]
fn no_option_of_gnu_ls_is_missing_from_the_table() {
    if !is_gnu_9() {
        return;
    }
    let help = Command::new("ls").arg("--help").env("LC_ALL", "C").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    // The description of an option begins in column 29, or after two spaces.
    let named = help.lines().filter(|line| line.trim_start().starts_with('-'));
    let named = named.map(|line| line.trim_start().split("  ").next().unwrap_or_default());
    let known: BTreeSet<String> = named.flat_map(options_in).collect();
    assert!(known.len() > 80, "{known:?}");
    let in_table: BTreeSet<String> = USES.iter().chain(&ABOUT).flat_map(|text| options_in(text)).collect();
    let missing: Vec<_> = known.difference(&in_table).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_option_prints_the_bytes_of_gnu_ls() {
    if !is_gnu_9() {
        return;
    }
    let temp = tree();
    let root = temp.path().join("above/tree");
    let mut differences = Vec::new();
    for text in USES {
        for (locale, terminal) in LOCALES.into_iter().flat_map(|locale| [(locale, false), (locale, true)]) {
            differences.extend(difference(&words(text), &root, &[("LC_ALL", locale), ("TERM", "xterm")], terminal));
        }
    }
    none(&differences);
}

#[test]
fn every_pair_of_options_prints_the_bytes_of_gnu_ls() {
    if !is_gnu_9() {
        return;
    }
    let temp = tree();
    let root = temp.path().join("above/tree/dir");
    let single: Vec<&str> = USES.iter().copied().filter(|text| text.len() == 2).chain(MORE).collect();
    let mut differences = Vec::new();
    for (index, one) in single.iter().enumerate() {
        for (other_index, other) in single.iter().enumerate() {
            let locale = LOCALES[(index + other_index) % 2];
            let pair = [words(one), words(other)].concat();
            differences.extend(difference(&pair, &root, &[("LC_ALL", locale), ("TERM", "xterm")], false));
        }
    }
    none(&differences);
}

#[test]
fn failures_and_arguments_match_those_of_gnu_ls() {
    if !is_gnu_9() {
        return;
    }
    let temp = tree();
    let root = temp.path().join("above/tree");
    let mut differences = Vec::new();
    for text in FAILURES {
        for locale in LOCALES {
            differences.extend(difference(&words(text), &root, &[("LC_ALL", locale)], false));
        }
    }
    for argument in ["", "--sort=\u{fc}", "a b", "-I*a b*"] {
        differences.extend(difference(&[argument], &root, &[("LC_ALL", "C")], false));
    }
    none(&differences);
}

#[test]
fn the_environment_has_the_same_effect_as_in_gnu_ls() {
    if !is_gnu_9() {
        return;
    }
    let temp = tree();
    let root = temp.path().join("above/tree");
    let mut differences = Vec::new();
    for (environment, text) in ENVIRONMENTS {
        for locale in LOCALES {
            let environment = [*environment, &[("LC_ALL", locale)]].concat();
            for terminal in [false, true] {
                differences.extend(difference(&words(text), &root, &environment, terminal));
            }
        }
    }
    none(&differences);
}

/// Access control lists and security contexts are marked, on a file system that supports them.
#[test]
fn marks_and_contexts_match_those_of_gnu_ls() {
    if !is_gnu_9() {
        return;
    }
    let Some(mounted) = crate::mount::Mounted::tmpfs("size=50%") else { return };
    let root = mounted.path().join("tree");
    awkward(&root);
    populate_attributes(&root);
    label(&root);
    let listed = ["-l", "-lL", "-lZ", "-nZ", "-lR", "-Z", "-mZ", "-sZ", "-CZ", "-LZ", "-gZ"]
        .map(|options| difference(&[options], &root, &[("LC_ALL", "C")], false));
    none(&listed.into_iter().flatten().collect::<Vec<_>>());
}

/// Names from an alphabet of characters that matter for versions, in the order of GNU ls.
#[test]
fn versions_are_sorted_as_by_gnu_ls() {
    if !is_gnu_9() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let alphabet: Vec<&str> =
        ["0", "1", "9", "a", "B", "~", ".", "-", "_", "00", "12", ".tar", ".z~", "+", "\u{e9}", " "].into();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for _ in 0..4000 {
        let name: String = (0..=next(7)).map(|_| alphabet[next(alphabet.len())]).collect();
        if name != "." && name != ".." {
            fs::write(temp.path().join(name), "").unwrap();
        }
    }
    let sorted =
        ["-av", "-avr", "-vX", "--sort=version"].map(|options| difference(&[options], temp.path(), &[], false));
    none(&sorted.into_iter().flatten().collect::<Vec<_>>());
}

/// Patterns of all kinds, on names that they may match. The function is long because of its lists
/// of patterns and names.
#[test]
fn patterns_match_as_in_gnu_ls() {
    if !is_gnu_9() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let names: [&[u8]; 20] = [
        b"a",
        b"b",
        b"ab",
        b"aXb",
        b".a",
        b"..b",
        b"[",
        b"[a",
        b"]",
        b"-",
        b"a-b",
        b"*",
        b"?",
        b"\\",
        b"\\a",
        b"!",
        b"7",
        b"\xff",
        "\u{e9}".as_bytes(),
        "\u{e9}a".as_bytes(),
    ];
    for name in names {
        fs::write(temp.path().join(OsStr::from_bytes(name)), "").unwrap();
    }
    let patterns = [
        "*",
        "?",
        "??",
        "a*",
        "*b",
        "*a*b*",
        ".*",
        ".?",
        "[a]*",
        "[!a]",
        "[^a]",
        "[]]",
        "[!]]",
        "[a",
        "[a-z]",
        "[z-a]",
        "[a-]",
        "[-a]",
        "\\*",
        "\\a",
        "\\\\",
        "\\\\*",
        "[\\]]",
        "[[]",
        "[[:alpha:]]",
        "[[:digit:]a]",
        "[[:foo:]]",
        "[[:x",
        "[[=a=]]",
        "[[.-.]]",
        "[.]a",
        "[!.]*",
        "\u{e9}*",
        "[\u{e0}-\u{ef}]*",
        "",
        "a\\",
        "**",
        "*?*",
        "[*]",
        "[]",
        "[!]",
        "?a",
    ];
    let mut differences = Vec::new();
    for pattern in patterns {
        for locale in LOCALES {
            for option in ["--ignore", "--hide"] {
                let words = [format!("{option}={pattern}"), "-A".to_owned()];
                let words = &words[..if option == "--hide" { 1 } else { 2 }];
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                differences.extend(difference(&words, temp.path(), &[("LC_ALL", locale)], false));
            }
        }
    }
    none(&differences);
}

/// Directories without read or search permission, for a user other than root.
#[test]
fn closed_directories_are_reported_as_by_gnu_ls() {
    if !is_gnu_9() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skipped("not root: no other user's directory to list");
    }
    if Command::new("setpriv").arg("--version").output().is_err() {
        return skipped("setpriv is not there");
    }
    let temp = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let root = temp.path().join("above");
    for made in ["closed", "blind", "below"] {
        fs::create_dir_all(root.join(made)).unwrap();
    }
    for (file, link) in [("blind/entry", "blind/link"), ("below/entry", "below/link")] {
        fs::write(root.join(file), "").unwrap();
        symlink("entry", root.join(link)).unwrap();
    }
    symlink("../blind/entry", root.join("below/far")).unwrap();
    for (made, mode) in [("closed", 0), ("blind", 0o444)] {
        fs::set_permissions(root.join(made), fs::Permissions::from_mode(mode)).unwrap();
    }
    let copy = copy_to(temp.path());
    let as_nobody = |program: &Path, words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
        ran(command, words, &root, &[("LC_ALL", "C")], false)
    };
    let mut differences = Vec::new();
    for text in [
        "closed",
        "-R",
        "-lR",
        "-l blind",
        "-L below",
        "-lL below",
        "-R closed below",
        "-d closed",
        "blind/entry",
        "-RL",
        "-s blind",
        "-Z blind",
        "-i blind",
        "-li blind",
        "-m blind",
        "--color -l blind",
        "--hyperlink below",
        "-lZg blind",
    ] {
        let words = words(text);
        let theirs = as_nobody(Path::new("ls"), &words);
        let ours = as_nobody(&copy, &[&["ls"], words.as_slice()].concat());
        if ours != theirs {
            let [ours, theirs] = [ours, theirs].map(|(text, code)| format!("{code:?} {}", text.escape_ascii()));
            differences.push(format!("ls {words:?}:\n  {ours}\n  {theirs}"));
        }
    }
    none(&differences);
}
