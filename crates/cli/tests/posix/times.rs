//! The times of each object that an operation changes, even if the operation changes nothing else:
//! tmpfs, compared with the mount and with the library.

use std::{fs, process::Command};

use nix::time::{ClockId, clock_gettime};
use pando_vfs::{OpenFlags, RenameFlags, SetTime};

use crate::{
    common::{Mounted, can_mount, skipped},
    requests::alone,
    trees::{Act, LONG_AGO, Object, Op, ROOT, Tree},
};

const READ: OpenFlags = OpenFlags::RDONLY;
const WRITE: OpenFlags = OpenFlags::WRONLY;
const CREAT: OpenFlags = OpenFlags::CREAT;
const TRUNC: OpenFlags = OpenFlags::TRUNC;
const NONE: RenameFlags = RenameFlags::empty();

/// The objects at the start of each case. All times except the ctime are long ago. `linked` and
/// `alias` are one file.
const OBJECTS: [&str; 11] =
    [".", "empty", "full", "hole", "linked", "alias", "marked", "symlink", "dir", "dir/inner", "other-dir"];

/// Known differences of the mount: docs/semantics.md, differences.
type OnMount = Option<&'static str>;

/// All operations. The function is long because it is a table.
fn rows() -> Vec<(Op, OnMount)> {
    let open = |path, flags| (Op::Open(path, flags, Act::Nothing), None);
    let write = |path, act| (Op::Open(path, WRITE, act), None);
    let read = |path, act| (Op::Open(path, READ, act), None);
    // The kernel answers from its caches, and the server gets no request.
    let cached = |path, act| (Op::Open(path, READ, act), Some("Ok"));
    let plain = |op| (op, None);
    vec![
        open("empty", READ),
        open("full", WRITE),
        open("full", CREAT | WRITE),
        open("empty", WRITE | TRUNC),
        open("empty", READ | TRUNC),
        open("empty", CREAT | WRITE | TRUNC),
        open("full", WRITE | TRUNC),
        open("full", CREAT | WRITE | TRUNC),
        open("hole", WRITE | TRUNC),
        open("new", CREAT | WRITE),
        open("full", CREAT | WRITE | OpenFlags::EXCL),
        write("empty", Act::Ftruncate(0)),
        write("full", Act::Ftruncate(4096)),
        write("full", Act::Ftruncate(0)),
        write("hole", Act::Ftruncate(4096)),
        // The kernel sends the same request as for an open with O_TRUNC.
        (Op::Truncate("empty", 0), Some("Ok, empty: mtime ctime")),
        plain(Op::Truncate("full", 4096)),
        plain(Op::Truncate("full", 1)),
        plain(Op::Truncate("hole", 4096)),
        plain(Op::Truncate("hole", 5000)),
        write("empty", Act::Write(0)),
        write("full", Act::Write(0)),
        write("full", Act::Write(1)),
        write("full", Act::Pwrite(0, 10_000)),
        write("empty", Act::Pwrite(1, 0)),
        cached("full", Act::Read(0)),
        cached("full", Act::Read(10)),
        cached("full", Act::Pread(10, 10_000)),
        cached("empty", Act::Read(10)),
        write("full", Act::Fallocate(0, 0, 0)),
        write("full", Act::Fallocate(0, 0, 10)),
        write("full", Act::Fallocate(1, 10_000, 10)),
        write("hole", Act::Fallocate(3, 0, 4096)),
        write("full", Act::Fallocate(8, 0, 10)),
        write("full", Act::Fsync),
        plain(Op::Chmod("full", 0o644)),
        plain(Op::Chmod("full", 0o600)),
        plain(Op::Chmod("dir", 0o755)),
        plain(Op::Chown("full", Some(0), Some(0))),
        plain(Op::Chown("full", Some(0), None)),
        plain(Op::Chown("full", None, None)),
        plain(Op::Chown("symlink", Some(0), None)),
        plain(Op::Chown("dir", None, None)),
        plain(Op::Utimens("full", SetTime::Omit, SetTime::Omit)),
        plain(Op::Utimens("full", SetTime::Omit, LONG_AGO)),
        plain(Op::Utimens("full", LONG_AGO, SetTime::Omit)),
        plain(Op::Utimens("full", SetTime::Now, SetTime::Omit)),
        plain(Op::Utimens("symlink", LONG_AGO, LONG_AGO)),
        plain(Op::Rename("full", "full", NONE)),
        plain(Op::Rename("dir", "dir", NONE)),
        plain(Op::Rename("linked", "alias", NONE)),
        plain(Op::Rename("full", "full", RenameFlags::NOREPLACE)),
        plain(Op::Rename("full", "full", RenameFlags::EXCHANGE)),
        plain(Op::Rename("linked", "alias", RenameFlags::EXCHANGE)),
        plain(Op::Rename("full", "empty", RenameFlags::NOREPLACE)),
        plain(Op::Rename("full", "empty", RenameFlags::EXCHANGE)),
        plain(Op::Rename("full", "empty", NONE)),
        plain(Op::Rename("full", "alias", NONE)),
        plain(Op::Rename("full", "new", NONE)),
        plain(Op::Rename("full", "other-dir/new", NONE)),
        plain(Op::Rename("dir", "other-dir", NONE)),
        plain(Op::Rename("dir", "other-dir/new", NONE)),
        plain(Op::Rename("dir/inner", "other-dir/new", NONE)),
        plain(Op::Rename("missing", "new", NONE)),
        plain(Op::Link("full", "other-dir/new")),
        plain(Op::Link("full", "empty")),
        plain(Op::Unlink("full")),
        plain(Op::Unlink("linked")),
        plain(Op::Unlink("dir")),
        plain(Op::Unlink("symlink")),
        plain(Op::Symlink("target", "new")),
        plain(Op::Symlink("target", "full")),
        plain(Op::Readlink("symlink")),
        plain(Op::Mkdir("new")),
        plain(Op::Mkdir("dir/new")),
        plain(Op::Mkdir("dir")),
        plain(Op::Rmdir("dir/inner")),
        plain(Op::Rmdir("dir")),
        plain(Op::Mknod("new", 0o10_644)),
        plain(Op::Setxattr("marked", "user.name", "value")),
        plain(Op::Setxattr("marked", "user.name", "another")),
        plain(Op::Setxattr("dir", "user.name", "value")),
        plain(Op::Removexattr("marked", "user.name")),
        plain(Op::Removexattr("marked", "user.missing")),
        read("dir", Act::Readdir),
        read("dir", Act::Read(0)),
        plain(Op::Stat("full")),
        write("empty", Act::CopyFrom("full", 0)),
        write("full", Act::CopyFrom("empty", 10)),
        write("empty", Act::CopyFrom("hole", 10)),
    ]
}

/// Waits until the kernel's coarse clock, from which tmpfs may take its times, is past all times
/// that it has assigned.
fn next_tick() {
    let time = |clock| clock_gettime(clock).unwrap();
    let now = time(ClockId::CLOCK_REALTIME);
    while time(ClockId::CLOCK_REALTIME_COARSE) <= now {
        std::thread::yield_now();
    }
}

/// The result of an operation, and the times of each object that it changes.
fn outcome(tree: &Tree, number: usize, op: Op) -> String {
    let case = tree.case(number);
    for path in ["empty", "linked", "marked"] {
        case.prepare(Op::Open(path, CREAT | WRITE, Act::Nothing));
    }
    case.prepare(Op::Open("full", CREAT | WRITE, Act::Write(4096)));
    case.prepare(Op::Open("hole", CREAT | WRITE, Act::Ftruncate(4096)));
    case.prepare(Op::Link("linked", "alias"));
    case.prepare(Op::Setxattr("marked", "user.name", "value"));
    case.prepare(Op::Symlink("target", "symlink"));
    for path in ["dir", "dir/inner", "other-dir"] {
        case.prepare(Op::Mkdir(path));
    }
    let objects: Vec<Object> = OBJECTS.iter().map(|path| case.object(path)).collect();
    for path in OBJECTS.iter().filter(|path| **path != "alias") {
        case.prepare(Op::Utimens(path, LONG_AGO, LONG_AGO));
    }
    next_tick();
    let before: Vec<_> = objects.iter().map(|object| object.facts().1).collect();
    let done = case.apply(ROOT, op);
    let mut shown = done.map_or_else(|errno| format!("errno {errno}"), |()| "Ok".into());
    for ((name, object), before) in OBJECTS.iter().zip(&objects).zip(&before) {
        let after = object.facts().1;
        let times = ["atime", "mtime", "ctime"].into_iter().zip(before.iter().zip(&after));
        let changed: Vec<&str> = times.filter(|(_, (before, after))| before != after).map(|(time, _)| time).collect();
        if !changed.is_empty() {
            shown += &format!(", {}: {}", name, changed.join(" "));
        }
    }
    shown
}

fn compare(tree: &Tree) {
    let (tmpfs, is_mount, is_library) =
        (Tree::tmpfs(), matches!(tree, Tree::Mount(_)), matches!(tree, Tree::Library(_)));
    let mut wrong = Vec::new();
    for (number, (op, on_mount)) in rows().into_iter().enumerate() {
        if is_library && matches!(op, Op::Open(.., Act::CopyFrom(..))) {
            // The library has no such call.
            continue;
        }
        let expected = match on_mount.filter(|_| is_mount) {
            Some(known) => known.to_owned(),
            None => outcome(&tmpfs, number, op),
        };
        let found = outcome(tree, number, op);
        if found != expected {
            wrong.push(format!("{op:?}: {expected}; here {found}"));
        }
    }
    assert!(wrong.is_empty(), "expected first:\n{}", wrong.join("\n"));
}

#[test]
fn times_change_on_a_mount_as_on_tmpfs() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let tree = Tree::Mount(Mounted::new(&[]));
    compare(&tree);
    tree.end();
}

#[test]
fn times_change_in_process_as_on_tmpfs() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    compare(&Tree::library());
}

/// A stamp file whose recipe truncates it again: make would rebuild it for ever if its times did
/// not change.
#[test]
fn a_stamp_file_is_up_to_date_after_make() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    for recipe in [": > $@", "cp /dev/null $@", "truncate -s 0 $@"] {
        fs::write(mounted.path("Makefile"), format!("out.stamp: in\n\t{recipe}\n")).unwrap();
        let make = |option: &str| Command::new("make").arg(option).current_dir(mounted.root()).output();
        fs::write(mounted.path("out.stamp"), "").unwrap();
        next_tick();
        fs::write(mounted.path("in"), "").unwrap();
        let Ok(before) = make("-q") else { return skipped("no make here") };
        assert_eq!(before.status.code(), Some(1), "{recipe}: {before:?}");
        next_tick();
        let built = make("-s").unwrap();
        assert!(built.status.success(), "{recipe}: {built:?}");
        assert_eq!(make("-q").unwrap().status.code(), Some(0), "{recipe}");
    }
    mounted.umount();
}
