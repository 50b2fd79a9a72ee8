//! All workloads: their names, what one operation is, and where they come from.

use super::{
    Workload,
    crunl::Crunl,
    dpath::Rendering,
    listing::Listing,
    mdtest::{MdTest, Phase},
    names::{Cell, Share, Verb},
    programs::{Program, Runs},
    read::Reads,
    rndrename::RndRename,
    seek::{Beside, Seeks, Whence},
    spec::{Key, Settings},
    stat::{Shape, Stat},
    statwalk::StatWalk,
};
use crate::target::Level;

/// A workload by name.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    /// What threads do, and what one operation is.
    pub(crate) work: &'static str,
    /// Where it comes from; empty: from where the one before comes from.
    pub(crate) source: &'static str,
    pub(crate) keys: &'static [Key],
    pub(crate) make: fn(&Settings) -> Box<dyn Workload>,
}

/// Names that stand for several workloads, and what they are together.
pub(crate) const GROUPS: &[(&str, &[&str], &str)] = &[
    (
        "dpath-kept",
        &["dpath", "dpath-full"],
        "what path rendering keeps of its rate beside renames: at a fixed rate, and at full speed",
    ),
    ("mdtest-easy", &["mdtest-easy-write", "mdtest-easy-stat", "mdtest-easy-delete"], PHASES),
    ("mdtest-hard", &["mdtest-hard-write", "mdtest-hard-stat", "mdtest-hard-read", "mdtest-hard-delete"], PHASES),
];

const PHASES: &str = "the phases of mdtest, one after the other";

const PARALLEL_NAMES: &str = "parallel directory operations (tmpfs, 2005)";
const SEEK: &str = "lseek without the inode mutex (ext2, ext3, ext4, 2009)";
const INODES: &str = "RCU inode look-up (2024)";
const BULK: &str = "xgetdents and dirreadahead (gfs2, 2012 to 2014)";
const DCACHE: &str = "lockless reference counts and the sequence read/write lock (dcache, 2013)";
const FXMARK: &str = "FxMark: Min et al., Understanding Manycore Scalability of File Systems, USENIX ATC 2016";
const IO500: &str = "mdtest, as the IO500 benchmark runs it (-N 1): a thread stats the next one's files, reads the second one's, deletes \
                     the third one's; counted round, so that of two each reads its own";

const fn key(name: &'static str, default: u64, (min, max): (u64, u64), what: &'static str) -> Key {
    Key { name, default, min, max, what }
}

const MANY: (u64, u64) = (1, 100_000_000);
const STAT: &[Key] = &[
    key("fanout", 10, (1, 100), "directories in each directory of three levels"),
    key("files", 100, MANY, "files in each directory of the third"),
];
const WALK: &[Key] = &[key("dirs", 20, MANY, "directories of a thread"), key("files", 500, MANY, "files in each")];
const LIST: &[Key] = &of_listing(1, 0);
const XATTRS: &[Key] = &of_listing(3, 4);
const RENAMERS: &[Key] = &[
    key("renamers", 1, (0, 64), "further threads that rename a directory on the paths"),
    key("rate", 50_000, (0, 10_000_000), "renames a second of each; 0: as fast as it can"),
];
const RENAMERS_ALONE: &[Key] = &[key("renamers", 1, (0, 64), "further threads that rename a directory on the paths")];
const FILES: &[Key] = &[key("files", 10_000, MANY, "files of each thread in a round")];
const IN_DIR: &[Key] = &[key("files", 1000, MANY, "files in the directory")];
const MANY_IN_DIR: &[Key] = &[key("files", 10_000, MANY, "files in the directory")];
const TREE: &[Key] = &[key("files", 10_000, MANY, "files in the tree")];

const fn of_listing(level: u64, max_xattrs: u64) -> [Key; 5] {
    [
        key("level", level, (0, 3), "0 names, 1 + stat, 2 + names of xattrs, 3 + their values"),
        key("files", 10_000, MANY, "files in the directory"),
        key("max", max_xattrs, (0, 100), "a file has from 0 to so many xattrs"),
        key("records", 0, (0, 1), "1: by the record stream of `pando ls` (dir= only)"),
        key("cold", 0, (0, 1), "1: caches are emptied before each round (dir= only; root)"),
    ]
}

fn seeks(whence: Whence, shared: bool, beside: Beside) -> Box<dyn Workload> {
    Box::new(Seeks { whence, shared, beside })
}

fn listing(settings: &Settings) -> Box<dyn Workload> {
    Box::new(Listing {
        level: Level::ALL[usize::try_from(settings.get("level")).expect("0 to 3")],
        files: settings.get("files"),
        max_xattrs: settings.get("max"),
        records: settings.get("records") == 1,
        cold: settings.get("cold") == 1,
    })
}

fn rendering(settings: &Settings, cwd: bool) -> Box<dyn Workload> {
    Box::new(Rendering { renamers: settings.get("renamers"), rate: settings.get("rate"), cwd })
}

fn rendering_at_full_speed(settings: &Settings) -> Box<dyn Workload> {
    Box::new(Rendering { renamers: settings.get("renamers"), rate: 0, cwd: false })
}

fn cell(settings: &Settings, verb: Verb, share: Share) -> Box<dyn Workload> {
    Box::new(Cell { verb, share, files: settings.get("files") })
}

fn one_file(verb: Verb, share: Share) -> Box<dyn Workload> {
    Box::new(Cell { verb, share, files: 1 })
}

fn mdtest(settings: &Settings, hard: bool, phase: Phase) -> Box<dyn Workload> {
    Box::new(MdTest { hard, phase, files: settings.get("files") })
}

fn runs(settings: &Settings, program: Program) -> Box<dyn Workload> {
    Box::new(Runs { program, files: settings.get("files") })
}

fn stat(settings: &Settings) -> Box<dyn Workload> {
    let small = |name| u32::try_from(settings.get(name)).expect("in its range");
    Box::new(Stat::new(Shape { fan_out: small("fanout"), files: small("files") }))
}

fn walk(settings: &Settings) -> Box<dyn Workload> {
    Box::new(StatWalk { dirs: settings.get("dirs"), files: settings.get("files") })
}

macro_rules! workloads {
    ($($name:literal, $source:expr, $keys:expr, $make:expr, $work:literal;)*) => {
        &[$(Definition { name: $name, work: $work, source: $source, keys: $keys, make: $make }),*]
    };
}

/// All workloads, in the order of the help.
#[rustfmt::skip]
pub(crate) const WORKLOADS: &[Definition] = workloads! {
    "crunl", PARALLEL_NAMES, &[], |_| Box::new(Crunl { directory: false }),
        "create + close + unlink of one own name, all in one directory";
    "rndrename", PARALLEL_NAMES, &[], |_| Box::new(RndRename),
        "create a random name + rename it to another + unlink that, all in one directory";
    "lseek", SEEK, &[], |_| seeks(Whence::Set, false, Beside::Nothing),
        "random SEEK_SET in a file of 128 MiB, each through an open file of its own";
    "lseek-shared", SEEK, &[], |_| seeks(Whence::Set, true, Beside::Nothing),
        "the same through one open file shared by all";
    "lseek-cur", SEEK, &[], |_| seeks(Whence::Cur, false, Beside::Nothing),
        "as lseek, SEEK_CUR: forth by a random distance, and back";
    "lseek-end", SEEK, &[], |_| seeks(Whence::End, false, Beside::Nothing),
        "as lseek, SEEK_END, which looks at the size";
    "lseek-read", SEEK, &[], |_| seeks(Whence::Set, true, Beside::Reads),
        "lseek-shared while one more thread reads 4 KiB blocks on the same handle";
    "lseek-fsync", SEEK, &[], |_| seeks(Whence::SetAndEnd, false, Beside::Fsyncs),
        "SEEK_SET and SEEK_END in turn while one more thread appends 4 KiB blocks and fsyncs each: why lseek was changed";
    "stat", "this project", STAT, stat,
        "stat by path, four components deep, random among 1000 directories of 100 files, hot";
    "mkdir-rmdir", "this project", &[], |_| Box::new(Crunl { directory: true }),
        "mkdir + rmdir of one own name, all in one directory";
    "statwalk", INODES, WALK, walk,
        "stat of each file of a tree of one's own, every look-up a miss; caches are emptied before each round (backed, or \
         dir= as root; memory file systems never miss)";
    "lsl", BULK, LIST, listing,
        "list a directory, with calls for each entry; one operation is one entry";
    "xattrs", BULK, XATTRS, listing,
        "the same with extended attributes";
    "dpath", DCACHE, RENAMERS, |settings| rendering(settings, false),
        "render the path of an open file 8 levels deep (dir=: readlink of /proc/self/fd/N), while other threads rename a \
         directory on it";
    "dpath-full", DCACHE, RENAMERS_ALONE, rendering_at_full_speed,
        "the same while they rename as fast as they can";
    "getcwd", DCACHE, RENAMERS, |settings| rendering(settings, true),
        "dpath with the path of the working directory";
    "find-size", DCACHE, TREE, |settings| runs(settings, Program::FindSize),
        "one run of `find -size 0b` (dir= only). The work of 2013 found no difference in it";
    "git-diff", DCACHE, TREE, |settings| runs(settings, Program::GitDiff),
        "one run of `git diff` without a difference (dir= only). The work of 2013 found no difference in it";
    "stat-private", FXMARK, &[], |_| one_file(Verb::Stat, Share::Nothing),
        "stat of an own file in an own directory, five components deep";
    "stat-dir", FXMARK, MANY_IN_DIR, |settings| cell(settings, Verb::Stat, Share::Directory),
        "stat of random files in one directory (FxMark's MRPM: of a tree)";
    "stat-same", FXMARK, &[], |_| one_file(Verb::Stat, Share::File),
        "stat of one and the same file";
    "open-same", FXMARK, &[], |_| one_file(Verb::Open, Share::File),
        "open + close of one and the same file";
    "read-private", FXMARK, &[], |_| Box::new(Reads { shared: false }),
        "read a block of 4 KiB of an own file (FxMark's DRBL)";
    "read-same", FXMARK, &[], |_| Box::new(Reads { shared: true }),
        "read one and the same block of one file (FxMark's DRBH)";
    "create-private", FXMARK, FILES, |settings| cell(settings, Verb::Create, Share::Nothing),
        "create + close in an own directory";
    "create-shared", FXMARK, FILES, |settings| cell(settings, Verb::Create, Share::Directory),
        "create + close in one directory";
    "unlink-private", FXMARK, FILES, |settings| cell(settings, Verb::Unlink, Share::Nothing),
        "unlink in an own directory";
    "unlink-shared", FXMARK, FILES, |settings| cell(settings, Verb::Unlink, Share::Directory),
        "unlink of own names in one directory";
    "rename-private", FXMARK, FILES, |settings| cell(settings, Verb::Rename, Share::Nothing),
        "rename of a file within an own directory";
    "rename-shared", FXMARK, FILES, |settings| cell(settings, Verb::Rename, Share::Directory),
        "rename of a file from an own directory into one directory";
    "readdir-private", FXMARK, IN_DIR, |settings| cell(settings, Verb::Readdir, Share::Nothing),
        "read an own directory; one operation is one entry";
    "readdir-shared", FXMARK, IN_DIR, |settings| cell(settings, Verb::Readdir, Share::Directory),
        "read one directory; one operation is one entry";
    "mdtest-easy-write", IO500, FILES, |settings| mdtest(settings, false, Phase::Write),
        "create empty files in an own directory";
    "mdtest-easy-stat", IO500, FILES, |settings| mdtest(settings, false, Phase::Stat),
        "stat them";
    "mdtest-easy-delete", IO500, FILES, |settings| mdtest(settings, false, Phase::Delete),
        "unlink them";
    "mdtest-hard-write", IO500, FILES, |settings| mdtest(settings, true, Phase::Write),
        "create files of 3901 bytes in one directory";
    "mdtest-hard-stat", IO500, FILES, |settings| mdtest(settings, true, Phase::Stat),
        "stat them";
    "mdtest-hard-read", IO500, FILES, |settings| mdtest(settings, true, Phase::Read),
        "open + read + close them";
    "mdtest-hard-delete", IO500, FILES, |settings| mdtest(settings, true, Phase::Delete),
        "unlink them";
};

/// All names and what they stand for.
pub(crate) fn shown() -> impl Iterator<Item = (&'static str, &'static str)> {
    let groups = GROUPS.iter().map(|group| (group.0, group.2));
    WORKLOADS.iter().map(|definition| (definition.name, definition.work)).chain(groups)
}

/// The help's list of all workloads.
pub(crate) fn describe() -> String {
    let mut text = String::from("Workloads (NAME, or NAME:KEY=VALUE,...), by where they come from:\n");
    let mut source = "";
    for definition in WORKLOADS {
        if definition.source != source {
            source = definition.source;
            text.push('\n');
            push_words(&mut text, "", source);
        }
        push_words(&mut text, &format!("  {:<19}", definition.name), definition.work);
        for Key { name, default, what, .. } in definition.keys {
            push_words(&mut text, &" ".repeat(23), &format!("{name}={default}: {what}"));
        }
    }
    text.push_str("\n All that would go on for ever\n");
    push_words(
        &mut text,
        &" ".repeat(23),
        "steps=N: each worker does N operations (of listings, whole ones), and that is a round",
    );
    text.push_str("\n Several at once\n");
    for (name, parts, _) in GROUPS {
        push_words(&mut text, &format!("  {name:<19}"), &parts.join(", "));
    }
    text
}

/// Adds `words` behind `begin`, and goes on below them when a line is full.
fn push_words(text: &mut String, begin: &str, words: &str) {
    const WIDTH: usize = 80;
    text.push_str(begin);
    let mut column = begin.len();
    for word in words.split(' ') {
        if column + 1 + word.len() > WIDTH {
            column = begin.len();
            text.push('\n');
            text.push_str(&" ".repeat(column));
        }
        text.push(' ');
        text.push_str(word);
        column += 1 + word.len();
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_described() {
        let mut names: Vec<&str> = WORKLOADS.iter().map(|w| w.name).chain(GROUPS.iter().map(|g| g.0)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        let help = describe();
        assert!(names.iter().all(|name| help.contains(&format!("  {name} "))), "{help}");
        assert!(WORKLOADS.iter().all(|w| !w.source.is_empty() && !w.work.is_empty()));
        for (_, parts, _) in GROUPS {
            assert!(parts.iter().all(|part| WORKLOADS.iter().any(|w| w.name == *part)));
        }
    }

    #[test]
    fn the_page_of_the_documentation_has_them_all() {
        let page = include_str!("../../../../docs/bench.md");
        for name in WORKLOADS.iter().map(|w| w.name).chain(GROUPS.iter().map(|g| g.0)) {
            assert!(page.contains(&format!("`{name}`")), "docs/bench.md has no {name}");
        }
    }

    #[test]
    fn defaults_are_allowed() {
        for key in WORKLOADS.iter().flat_map(|w| w.keys) {
            assert!((key.min..=key.max).contains(&key.default), "{}", key.name);
        }
    }
}
