//! Allocated blocks through the mount: `st_blocks` and `du` report the same as on a kernel tmpfs
//! after the same operations. Ranges that fallocate zeroes.

mod common;
mod requests;

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    process::Command,
};

use common::{KernelMount, Mounted, can_mount, has};
use requests::alone;
use rustix::fs::FallocateFlags;

const PAGE: u64 = 4096;

/// A kernel tmpfs without huge pages.
fn tmpfs() -> KernelMount {
    KernelMount::tmpfs(c"huge=never")
}

/// A step and its name.
type Step = (&'static str, fn(&File));

/// All operations that change the blocks of a file. Each continues with the file of the previous
/// one.
const STEPS: &[Step] = &[
    ("nothing written", |_| ()),
    ("one byte", |f| f.write_all_at(b"x", 0).unwrap()),
    ("the same page again", |f| f.write_all_at(&[1; 100], 200).unwrap()),
    ("over the end of a page", |f| f.write_all_at(b"xy", PAGE - 1).unwrap()),
    ("far away", |f| f.write_all_at(b"far", 1 << 40).unwrap()),
    ("many pages in one write", |f| f.write_all_at(&vec![2; 1 << 20], 64 * PAGE).unwrap()),
    ("a hole, from within one page to within another", |f| {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(f, punch, 70 * PAGE + 5, 10 * PAGE).unwrap();
    }),
    ("back into the hole", |f| f.write_all_at(b"x", 75 * PAGE).unwrap()),
    ("allocated within", |f| rustix::fs::fallocate(f, FallocateFlags::empty(), 2 * PAGE, 3 * PAGE).unwrap()),
    ("allocated beyond the end", |f| {
        rustix::fs::fallocate(f, FallocateFlags::KEEP_SIZE, (1 << 40) + 8 * PAGE, 5 * PAGE).unwrap();
    }),
    ("reading holes", |f| assert_eq!(f.read_at(&mut [0; 9000], 1 << 30).unwrap(), 9000)),
    ("shorter, within a page", |f| f.set_len(65 * PAGE + 7).unwrap()),
    ("longer: a hole", |f| f.set_len(1 << 35).unwrap()),
    ("empty", |f| f.set_len(0).unwrap()),
    ("written once more", |f| f.write_all_at(&[3; 3 * PAGE as usize], 0).unwrap()),
];

fn open(dir: &Path) -> File {
    OpenOptions::new().read(true).write(true).create_new(true).open(dir.join("f")).expect("made")
}

fn output(program: &str, args: &[&str], path: &Path) -> String {
    let output = Command::new(program).args(args).arg(path).output().expect("it starts");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.split_whitespace().next().expect("a number").to_owned()
}

#[test]
fn blocks_match_those_of_a_tmpfs() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let (mounted, tmpfs) = (Mounted::new(&[]), tmpfs());
    let (ours, theirs) = (open(&mounted.root()), open(tmpfs.path()));
    let mut seen = Vec::new();
    for (what, step) in STEPS {
        step(&ours);
        step(&theirs);
        let (found, expected) = (ours.metadata().unwrap(), theirs.metadata().unwrap());
        assert_eq!((found.size(), found.blocks()), (expected.size(), expected.blocks()), "{what}");
        // By name, for which the kernel may send another request, the answer is the same.
        assert_eq!(fs::metadata(mounted.path("f")).unwrap().blocks(), expected.blocks(), "{what}, by name");
        seen.push(expected.blocks());
    }
    seen.dedup();
    assert!(seen.len() > 8, "the steps change what the file takes: {seen:?}");
    drop(ours);
    mounted.umount();
}

/// In memory, in a store, and on directories of file systems that have ZERO_RANGE and that have
/// not. The kernel's cache must not show what was there.
#[test]
fn zeroed_ranges_read_as_zeros() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let tmpfs = tmpfs();
    let [store, source] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let path = |dir: &Path| dir.to_str().unwrap().to_owned();
    let (store, source, shm) = (path(store.path()), path(source.path()), path(tmpfs.path()));
    for options in [&[][..], &["--store", &store], &["--source", &source], &["--source", &shm]] {
        let mounted = Mounted::new(options);
        let file = open(&mounted.root());
        let mut model = vec![7; 100_000];
        file.write_all_at(&model, 0).unwrap();
        let keep = FallocateFlags::KEEP_SIZE;
        for (flags, offset, len) in [
            (keep, 5, 10),
            (keep, 4096, 8192),
            (keep, 20_000, 30_001),
            (keep, 99_990, 100_000),
            (FallocateFlags::empty(), 98_000, 40_000),
        ] {
            let read_before = file.read_at(&mut [0; 100], offset).unwrap();
            rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE | flags, offset, len).unwrap();
            let end = (offset + len) as usize;
            model.resize(if flags == keep { model.len() } else { model.len().max(end) }, 0);
            let end = end.min(model.len());
            model[offset as usize..end].fill(0);
            assert!(read_before > 0 && fs::read(mounted.path("f")).unwrap() == model, "{options:?}, {len} at {offset}");
        }
        drop(file);
        mounted.umount();
    }
}

#[test]
fn du_and_stat_count_sparse_files_and_copies_alike() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    if !has(&["du", "stat", "cp"]) {
        return;
    }
    let (mounted, tmpfs) = (Mounted::new(&[]), tmpfs());
    let roots = [mounted.root(), tmpfs.path().to_path_buf()];
    for root in &roots {
        let file = open(root);
        file.set_len(1 << 33).unwrap();
        for at in [0, 1 << 20, 1 << 32] {
            file.write_all_at(&[4; 5000], at).unwrap();
        }
        drop(file);
        let status = Command::new("cp").args(["--sparse=always", "f", "copy"]).current_dir(root).status();
        assert!(status.expect("cp starts").success());
        fs::hard_link(root.join("f"), root.join("link")).unwrap();
    }
    for (program, args, name) in [
        ("du", &["--block-size=1"][..], "f"),
        ("du", &["--block-size=1", "--apparent-size"], "f"),
        ("du", &["--block-size=1"], "copy"),
        ("stat", &["-c", "%b"], "f"),
        ("stat", &["-c", "%b"], "link"),
    ] {
        let [found, expected] = [&roots[0], &roots[1]].map(|root| output(program, args, &root.join(name)));
        assert_eq!(found, expected, "{program} {args:?} {name}");
    }
    // A hard link counts once in the sum of a tree. No standard defines the blocks of
    // directories.
    let [file, copy] = ["f", "copy"].map(|name| fs::metadata(mounted.path(name)).unwrap().blocks() * 512);
    let root = fs::metadata(mounted.root()).unwrap().blocks() * 512;
    assert_eq!(output("du", &["-s", "--block-size=1"], &roots[0]), (file + copy + root).to_string());
    mounted.umount();
}
