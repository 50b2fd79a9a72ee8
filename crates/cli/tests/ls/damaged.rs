//! Names that no valid file system has.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::{
    common::{pando, said},
    mount::Mounted,
};

/// The created names, and which byte of each becomes zero: one within the name, or the first.
const NAMES: [(&str, usize); 6] = [
    ("x_important.txt", 1),
    ("directory_below_which_is_more", 9),
    ("a_name_that_fills_some_words_of_its_record", 41),
    ("_of_a_file_without_a_name", 0),
    ("_of_a_directory_without_a_name", 0),
    ("y_z", 1),
];

/// An image with a directory `d`. All its entries but one have zero bytes in their names.
fn damaged() -> Option<Mounted> {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("d");
    fs::create_dir(&dir).unwrap();
    for (name, _) in NAMES {
        let made = dir.join(name);
        if name.contains("directory") {
            fs::create_dir(&made).unwrap();
            fs::write(made.join("below"), "").unwrap();
        } else {
            fs::write(made, "").unwrap();
        }
    }
    fs::write(dir.join("usual"), "").unwrap();
    let damage = |image: &Path| {
        let mut bytes = fs::read(image).unwrap();
        for (name, zero) in NAMES {
            let mut found = bytes.windows(name.len()).enumerate().filter(|(_, window)| *window == name.as_bytes());
            let (Some((at, _)), None) = (found.next(), found.next()) else { panic!("{name} is in one place") };
            bytes[at + zero] = 0;
        }
        fs::write(image, bytes).unwrap();
    };
    // Without checksums, which would detect the damage.
    let options = ["-q", "-O", "^metadata_csum,^has_journal", "-d", temp.path().to_str().unwrap()];
    Mounted::image_after(damage, "mkfs.ext4", &options, 2 << 20)
}

/// The listed paths, sorted.
fn paths(output: &Output) -> Vec<&[u8]> {
    let text = output.stdout.strip_suffix(b"\0").expect("the last one is ended");
    let mut paths: Vec<_> = text.split(|&byte| byte == 0).filter(|path| *path != b".").collect();
    paths.sort();
    paths
}

/// As in the C library, a name ends at its first zero byte. The rest must not be taken for a path
/// of its own.
#[test]
fn a_name_with_a_zero_byte_ends_there() {
    if !crate::common::has(&["find"]) {
        return;
    }
    let Some(mounted) = damaged() else { return };
    let command = |program: &mut Command| program.current_dir(mounted.path()).env("LC_ALL", "C").output().unwrap();
    let expected = command(Command::new("find").args([".", "-print0"]));
    for name in [&b"./d/x"[..], b"./d/directory", b"./d/", b"./d/y", b"./d/usual"] {
        assert!(paths(&expected).contains(&name), "{expected:?}");
    }
    for options in ["-R0U", "-R0", "-lR0", "-R0t"] {
        let listed = command(pando(&["ls"]).arg(options));
        assert_eq!(listed.status.code(), Some(1), "{}", said(&listed));
        for (path, errors) in [("./d/directory", 1), ("./d/", 1)] {
            let says = format!("cannot open directory '{path}': No such file or directory\n");
            assert_eq!(said(&listed).matches(&says).count(), errors, "{options}: {}", said(&listed));
        }
        if !options.contains('l') {
            assert_eq!(paths(&listed), paths(&expected), "{options}");
        }
    }
    let names = command(pando(&["ls"]).arg("-R"));
    let text = String::from_utf8(names.stdout).unwrap();
    let name = "a_name_that_fills_some_words_of_its_recor";
    assert!(text.contains(&format!("./d:\n\n\n{name}\ndirectory\nusual\nx\ny\n")), "{text:?}");
    for options in [&["-R"][..], &["-R", "--xattrs"], &["-R", "--max-inflight", "1"]] {
        let warmed = command(pando(&["warm", "."]).args(options));
        // An entry that does not exist any more is no failure.
        assert_eq!((warmed.status.code(), said(&warmed)), (Some(0), String::new()), "{options:?}");
        let text = String::from_utf8_lossy(&warmed.stdout);
        assert!(text.starts_with("9 entries in 3 directories read in "), "{text}");
    }
}
