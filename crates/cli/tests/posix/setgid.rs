//! The kernel removes setuid and setgid when a caller changes a file that may not keep them:
//! compared with tmpfs, for each operation, caller and mode.

use pando_vfs::OpenFlags;

use crate::{
    common::{Mounted, can_mount},
    requests::alone,
    trees::{Act, Op, ROOT, Tree, Who},
};

/// The owner and group of each file.
const UID: u32 = 1001;
const GID: u32 = 2001;

/// The relation of the caller to the group of the file.
const CALLERS: [(&str, Who); 8] = [
    ("owner", Who { uid: UID, gid: GID, groups: &[], fsetid: false }),
    ("owner by a supplementary group", Who { uid: UID, gid: 9, groups: &[8, GID], fsetid: false }),
    ("owner outside the group", Who { uid: UID, gid: 9, groups: &[8], fsetid: false }),
    ("member", Who { uid: 1002, gid: GID, groups: &[], fsetid: false }),
    ("supplementary member", Who { uid: 1002, gid: 9, groups: &[8, GID], fsetid: false }),
    ("other", Who { uid: 1002, gid: 9, groups: &[8], fsetid: false }),
    ("root", ROOT),
    ("root without CAP_FSETID", Who { fsetid: false, ..ROOT }),
];

/// All may write. Setuid, setgid or both; and setgid with and without execute permission for the
/// group.
const MODES: [u32; 8] = [0o0777, 0o4777, 0o2777, 0o6777, 0o2767, 0o6767, 0o2666, 0o4666];

const WRITE: OpenFlags = OpenFlags::WRONLY;
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 3;
/// Not on tmpfs.
const COLLAPSE_RANGE: u32 = 8;

fn ops() -> Vec<Op> {
    let act = |act| Op::Open("f", WRITE, act);
    vec![
        act(Act::Nothing),
        act(Act::Write(1)),
        act(Act::Write(0)),
        act(Act::Pwrite(1, 100)),
        Op::Open("f", WRITE.union(OpenFlags::APPEND), Act::Write(1)),
        Op::Open("f", WRITE.union(OpenFlags::DIRECT), Act::Write(4096)),
        act(Act::CopyFrom("source", 10)),
        act(Act::Fallocate(0, 0, 8192)),
        act(Act::Fallocate(KEEP_SIZE, 0, 8192)),
        act(Act::Fallocate(PUNCH_HOLE, 0, 10)),
        act(Act::Fallocate(COLLAPSE_RANGE, 0, 10)),
        act(Act::Ftruncate(3)),
        act(Act::Ftruncate(10)),
        Op::Truncate("f", 3),
        Op::Truncate("f", 10),
        Op::Open("f", WRITE.union(OpenFlags::TRUNC), Act::Nothing),
        Op::Open("f", OpenFlags::CREAT.union(OpenFlags::TRUNC), Act::Nothing),
        Op::Open("f", OpenFlags::RDONLY, Act::Read(10)),
        Op::Chown("f", None, None),
        Op::Chown("f", Some(UID), None),
        Op::Chown("f", None, Some(GID)),
        Op::Chown("f", None, Some(8)),
        Op::Chmod("f", 0o2767),
        Op::Chmod("f", 0o6777),
        Op::Setxattr("f", "user.name", "value"),
        Op::Mknod("setgid-dir/new", 0o102_775),
        Op::Mknod("setgid-dir/new", 0o102_765),
    ]
}

/// The result of each operation and the mode after it, by operation, caller and mode.
fn outcomes(tree: &Tree) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for op in ops() {
        for (name, who) in CALLERS {
            for mode in MODES {
                let case = tree.case(outcomes.len());
                case.prepare(Op::Open("source", OpenFlags::CREAT | WRITE, Act::Write(10)));
                case.prepare(Op::Open("f", OpenFlags::CREAT | WRITE, Act::Write(10)));
                case.prepare(Op::Chown("f", Some(UID), Some(GID)));
                case.prepare(Op::Chmod("f", mode));
                case.prepare(Op::Mkdir("setgid-dir"));
                case.prepare(Op::Chown("setgid-dir", Some(UID), Some(GID)));
                case.prepare(Op::Chmod("setgid-dir", 0o2777));
                let file = case.object("f");
                let done = case.apply(who, op);
                let object = if let Op::Mknod(made, _) = op { case.object(made) } else { file };
                outcomes.push((format!("{op:?} by {name} of {mode:o}"), done, object.facts().0));
            }
        }
    }
    outcomes
}

type Outcome = (String, Result<(), i32>, u32);

/// Compares a tree with tmpfs, in the part of each outcome that `shown` keeps.
fn compare(with: &Tree, shown: impl Fn(Outcome) -> Option<Outcome>) {
    let tmpfs = Tree::tmpfs();
    let [expected, found] =
        [&tmpfs, with].map(|tree| outcomes(tree).into_iter().filter_map(&shown).collect::<Vec<_>>());
    let wrong: Vec<String> = expected
        .iter()
        .zip(&found)
        .filter(|(expected, found)| expected != found)
        .map(|((what, done, mode), (_, found, left))| format!("{what}: {done:?} {mode:o}, here {found:?} {left:o}"))
        .collect();
    assert!(wrong.is_empty(), "{} of {}, tmpfs first:\n{}", wrong.len(), found.len(), wrong.join("\n"));
}

#[test]
fn setuid_and_setgid_are_removed_as_on_tmpfs() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    for options in [&["--allow-other", "--mode", "1777"][..], &["--allow-other", "--mode", "1777", "-o", "suid"]] {
        let tree = Tree::Mount(Mounted::new(options));
        compare(&tree, |(what, done, mode)| {
            // The kernel changes the mode before it sends this. See docs/semantics.md, differences.
            let unanswered = what.starts_with("Chown(\"f\", None, None)");
            Some((what, done.or(if unanswered { Ok(()) } else { done }), mode))
        });
        tree.end();
    }
}

/// In process, root has all capabilities or none.
#[test]
fn setuid_and_setgid_are_removed_in_process_as_on_tmpfs() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    compare(&Tree::library(), |outcome| Some(outcome).filter(|(what, ..)| !what.contains("without CAP_FSETID")));
}
