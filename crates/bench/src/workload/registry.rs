//! All workloads: their names, the meaning of one operation, and their sources.

use super::{
    Workload,
    crunl::Crunl,
    dpath::Rendering,
    durable::DurableCreate,
    listing::Listing,
    mdtest::{MdTest, TestPhase},
    names::{Cell, Share, Verb},
    programs::{Program, Runs},
    read::Reads,
    rndrename::RndRename,
    seek::{Beside, Seeks, Whence},
    settings::{Key, Settings},
    stat::{Shape, Stat},
    statwalk::StatWalk,
};
use crate::target::Level;

/// A named workload.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    /// The work of the threads, and the unit that counts as one operation.
    pub(crate) work: &'static str,
    /// The source of the workload. Consecutive workloads of one source are listed together.
    pub(crate) source: &'static str,
    pub(crate) keys: &'static [Key],
    pub(crate) make: fn(&Settings) -> Box<dyn Workload>,
}

/// Names that stand for several workloads, with a description.
pub(crate) const GROUPS: &[(&str, &[&str], &str)] = &[
    (
        "dpath-kept",
        &["dpath", "dpath-full"],
        "the rate that path rendering keeps beside renames, at a fixed rate and at full speed",
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
const IO500: &str = "mdtest, as the IO500 benchmark runs it (-N 1): thread n stats the files of thread n+1, reads those of n+2, and \
                     deletes those of n+3. The numbers wrap around: with two threads each reads its own files";

const fn key(name: &'static str, default: u64, (min, max): (u64, u64), what: &'static str) -> Key {
    Key { name, default, min, max, what }
}

const MANY: (u64, u64) = (1, 100_000_000);
const STAT: &[Key] = &[
    key("fanout", 10, (1, 100), "directories in each directory of three levels"),
    key("files", 100, MANY, "files in each directory of the third level"),
];
const WALK: &[Key] =
    &[key("dirs", 20, MANY, "directories of a thread"), key("files", 500, MANY, "files in each directory")];
const LIST: &[Key] = &of_listing(1, 0);
const XATTRS: &[Key] = &of_listing(3, 4);
const RENAMERS: &[Key] = &[
    key("renamers", 1, (0, 64), "additional threads that rename a directory on the paths"),
    key("rate", 50_000, (0, 10_000_000), "renames per second of each of them, 0 = full speed"),
];
const RENAMERS_ALONE: &[Key] =
    &[key("renamers", 1, (0, 64), "additional threads that rename a directory on the paths")];
const FILES: &[Key] = &[key("files", 10_000, MANY, "files of each thread in a round")];
const IN_DIR: &[Key] = &[key("files", 1000, MANY, "files in the directory")];
const MANY_IN_DIR: &[Key] = &[key("files", 10_000, MANY, "files in the directory")];
const TREE: &[Key] = &[key("files", 10_000, MANY, "files in the tree")];

const fn of_listing(level: u64, max_xattrs: u64) -> [Key; 6] {
    [
        key("level", level, (0, 3), "0 = names, 1 = also stat, 2 = also names of xattrs, 3 = also their values"),
        key("files", 10_000, MANY, "files in the directory"),
        key("max", max_xattrs, (0, 100), "each file has from 0 to this many xattrs"),
        key(
            "records",
            0,
            (0, 1),
            "1 = many entries in one call: xgetdents in a tree, the record stream of `pando ls` elsewhere",
        ),
        key("ahead", 0, (0, 1), "1 = begin to read ahead before the listing, as `pando warm` does for dir="),
        key("cold", 0, (0, 1), "1 = empty the caches before each round (dir= and host=, as root)"),
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
        ahead: settings.get("ahead") == 1,
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

fn mdtest(settings: &Settings, hard: bool, phase: TestPhase) -> Box<dyn Workload> {
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
        "create + close + unlink of one name per thread, all in one directory";
    "rndrename", PARALLEL_NAMES, &[], |_| Box::new(RndRename),
        "create a random name + rename it to another + unlink it, all in one directory";
    "lseek", SEEK, &[], |_| seeks(Whence::Set, false, Beside::Nothing),
        "random SEEK_SET in a file of 128 MiB, each thread through its own open file";
    "lseek-shared", SEEK, &[], |_| seeks(Whence::Set, true, Beside::Nothing),
        "the same through one open file that all threads share";
    "lseek-cur", SEEK, &[], |_| seeks(Whence::Cur, false, Beside::Nothing),
        "as lseek, with SEEK_CUR: forward by a random distance, and back";
    "lseek-end", SEEK, &[], |_| seeks(Whence::End, false, Beside::Nothing),
        "as lseek, with SEEK_END, which reads the size";
    "lseek-read", SEEK, &[], |_| seeks(Whence::Set, true, Beside::Reads),
        "as lseek-shared, while one more thread reads 4 KiB blocks on the same handle";
    "lseek-fsync", SEEK, &[], |_| seeks(Whence::SetAndEnd, false, Beside::Fsyncs),
        "alternating SEEK_SET and SEEK_END while one more thread appends 4 KiB blocks and fsyncs each: the reason for the change of lseek";
    "stat", "this project", STAT, stat,
        "stat by path, four components deep, random among 1000 directories of 100 files, hot caches";
    "stat-missing", "this project", MANY_IN_DIR, |settings| cell(settings, Verb::Missing, Share::Directory),
        "stat of missing names, as many as there are files, in one directory";
    "mkdir-rmdir", "this project", &[], |_| Box::new(Crunl { directory: true }),
        "mkdir + rmdir of one name per thread, all in one directory";
    "create-durable", "this project", &[], |_| Box::new(DurableCreate),
        "create + write + fsync + close of one name per thread, fsync of their directory, and unlink";
    "statwalk", INODES, WALK, walk,
        "stat of each file of a tree per thread; every look-up misses the inode cache; caches are emptied before each round (backed, host=, \
         or dir= as root; memory file systems never miss)";
    "lsl", BULK, LIST, listing,
        "list a directory, with separate calls for each entry; one operation is one entry";
    "xattrs", BULK, XATTRS, listing,
        "as lsl, with extended attributes";
    "dpath", DCACHE, RENAMERS, |settings| rendering(settings, false),
        "render the path of an open file 8 levels deep (dir=: readlink of /proc/self/fd/N), while other threads rename a \
         directory on the path";
    "dpath-full", DCACHE, RENAMERS_ALONE, rendering_at_full_speed,
        "as dpath, while the other threads rename at full speed";
    "getcwd", DCACHE, RENAMERS, |settings| rendering(settings, true),
        "as dpath, with the path of the working directory";
    "find-size", DCACHE, TREE, |settings| runs(settings, Program::FindSize),
        "one run of `find -size 0b` (dir= only). The work of 2013 found no difference";
    "git-diff", DCACHE, TREE, |settings| runs(settings, Program::GitDiff),
        "one run of `git diff` without a difference (dir= only). The work of 2013 found no difference";
    "stat-private", FXMARK, &[], |_| one_file(Verb::Stat, Share::Nothing),
        "stat of one file per thread, each in its own directory, five components deep";
    "stat-dir", FXMARK, MANY_IN_DIR, |settings| cell(settings, Verb::Stat, Share::Directory),
        "stat of random files in one directory (FxMark's MRPM: of a tree)";
    "stat-same", FXMARK, &[], |_| one_file(Verb::Stat, Share::File),
        "stat of the same file by all threads";
    "open-same", FXMARK, &[], |_| one_file(Verb::Open, Share::File),
        "open + close of the same file by all threads";
    "read-private", FXMARK, &[], |_| Box::new(Reads { shared: false }),
        "read a block of 4 KiB of one file per thread (FxMark's DRBL)";
    "read-same", FXMARK, &[], |_| Box::new(Reads { shared: true }),
        "read the same block of one file by all threads (FxMark's DRBH)";
    "create-private", FXMARK, FILES, |settings| cell(settings, Verb::Create, Share::Nothing),
        "create + close, each thread in its own directory";
    "create-shared", FXMARK, FILES, |settings| cell(settings, Verb::Create, Share::Directory),
        "create + close, all threads in one directory";
    "unlink-private", FXMARK, FILES, |settings| cell(settings, Verb::Unlink, Share::Nothing),
        "unlink, each thread in its own directory";
    "unlink-shared", FXMARK, FILES, |settings| cell(settings, Verb::Unlink, Share::Directory),
        "unlink, each thread its own names, all in one directory";
    "rename-private", FXMARK, FILES, |settings| cell(settings, Verb::Rename, Share::Nothing),
        "rename of a file, each thread within its own directory";
    "rename-shared", FXMARK, FILES, |settings| cell(settings, Verb::Rename, Share::Directory),
        "rename of a file from the thread's directory into one shared directory";
    "readdir-private", FXMARK, IN_DIR, |settings| cell(settings, Verb::Readdir, Share::Nothing),
        "read a directory, each thread its own; one operation is one entry";
    "readdir-shared", FXMARK, IN_DIR, |settings| cell(settings, Verb::Readdir, Share::Directory),
        "read one directory, all threads; one operation is one entry";
    "mdtest-easy-write", IO500, FILES, |settings| mdtest(settings, false, TestPhase::Write),
        "create empty files, each thread in its own directory";
    "mdtest-easy-stat", IO500, FILES, |settings| mdtest(settings, false, TestPhase::Stat),
        "stat these files";
    "mdtest-easy-delete", IO500, FILES, |settings| mdtest(settings, false, TestPhase::Delete),
        "unlink these files";
    "mdtest-hard-write", IO500, FILES, |settings| mdtest(settings, true, TestPhase::Write),
        "create files of 3901 bytes in one directory";
    "mdtest-hard-stat", IO500, FILES, |settings| mdtest(settings, true, TestPhase::Stat),
        "stat these files";
    "mdtest-hard-read", IO500, FILES, |settings| mdtest(settings, true, TestPhase::Read),
        "open + read + close these files";
    "mdtest-hard-delete", IO500, FILES, |settings| mdtest(settings, true, TestPhase::Delete),
        "unlink these files";
};

/// All names with their descriptions.
pub(crate) fn shown() -> impl Iterator<Item = (&'static str, &'static str)> {
    let groups = GROUPS.iter().map(|group| (group.0, group.2));
    WORKLOADS.iter().map(|definition| (definition.name, definition.work)).chain(groups)
}

/// The list of all workloads in the help.
pub(crate) fn describe() -> String {
    let mut text = String::from("Workloads (NAME, or NAME:KEY=VALUE,...), by source:\n");
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
    text.push_str("\n All endless workloads\n");
    push_words(&mut text, &" ".repeat(23), "steps=N: a round is N operations of each worker (of listings, whole ones)");
    text.push_str("\n Groups of workloads\n");
    for (name, parts, _) in GROUPS {
        push_words(&mut text, &format!("  {name:<19}"), &parts.join(", "));
    }
    text
}

/// Appends `words` after `begin`, wrapped and indented to the same column.
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
    fn documentation_page_has_all_workloads() {
        let page = include_str!("../../../../docs/bench.md");
        for name in WORKLOADS.iter().map(|w| w.name).chain(GROUPS.iter().map(|g| g.0)) {
            assert!(page.contains(&format!("`{name}`")), "docs/bench.md has no {name}");
        }
    }

    #[test]
    fn defaults_are_within_their_ranges() {
        for key in WORKLOADS.iter().flat_map(|w| w.keys) {
            assert!((key.min..=key.max).contains(&key.default), "{}", key.name);
        }
    }
}
