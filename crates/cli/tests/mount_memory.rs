//! The default limits of a mount in a control group: programs get ENOSPC before the kernel kills
//! the server, and a cache of a source stays small.

mod common;
mod memory_group;
mod requests;

use std::{
    fs, io,
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use common::{Mounted, can_mount, has, run, said};
use memory_group::MemoryGroup;
use requests::alone;
use rustix::fs::XattrFlags;

const MIB: u64 = 1 << 20;

/// The memory limit of each test's control group.
const LIMIT: u64 = 256 * MIB;

/// With the defaults for a whole machine this test would take longer.
const MOST_FILES: usize = 2_000_000;

/// None if mounts or control groups are not available.
fn group() -> Option<MemoryGroup> {
    if can_mount() { MemoryGroup::new(LIMIT) } else { None }
}

/// A mount. The control group contains only its server.
fn mounted_in(group: &MemoryGroup, options: &[&str]) -> Mounted {
    Mounted::by(group.command(env!("CARGO_BIN_EXE_pando")), tempfile::tempdir().unwrap(), options)
}

/// Distinguishes ENOSPC from other errors: a killed server has another errno.
fn is_full<T>(result: io::Result<T>) -> bool {
    match result {
        Ok(_) => false,
        Err(error) if error.kind() == io::ErrorKind::StorageFull => true,
        Err(error) => panic!("neither done nor full: {error}"),
    }
}

fn contents(file: usize) -> Vec<u8> {
    (0..MIB as usize).map(|i| ((i * 7 + file * 13) % 251) as u8).collect()
}

/// Fills it with files of 1 MiB. Returns the number of complete ones.
fn fill_with_data(root: &Path) -> usize {
    (0..).find(|&file| is_full(fs::write(root.join(format!("data{file}")), contents(file)))).unwrap()
}

/// Writes one page in each 256 KiB of a file, which needs the most memory beside its pages.
fn fill_with_sparse_pages(root: &Path) {
    let file = fs::File::create(root.join("sparse")).unwrap();
    (0..).find(|page| is_full(file.write_all_at(&[7; 4096], (page * 64 + 63) * 4096))).unwrap();
    file.sync_all().unwrap();
}

fn name(file: usize) -> String {
    format!("{file:0>250}")
}

/// Fills it with empty files of long names. Returns their number.
fn fill_with_names(root: &Path) -> usize {
    let made = (0..MOST_FILES).find(|&file| {
        let dir = root.join(format!("dir{}", file / 10_000));
        file % 10_000 == 0 && is_full(fs::create_dir(&dir)) || is_full(fs::File::create(dir.join(name(file))))
    });
    made.expect("it is full in the end")
}

/// Fills it with small extended attributes, which need the most memory for each inode that they
/// count as.
fn fill_with_attributes(root: &Path) {
    let attribute = |path: &Path, number: usize| {
        rustix::fs::setxattr(path, format!("user.{number}"), b"", XattrFlags::empty()).map_err(io::Error::from)
    };
    let full = (0..MOST_FILES).find(|&file| {
        let path = root.join(name(file));
        is_full(fs::File::create(&path)) || (0..20).any(|number| is_full(attribute(&path, number)))
    });
    full.expect("it is full in the end");
}

fn assert_reads_back(root: &Path, data: usize, names: usize) {
    for file in 0..data {
        assert!(fs::read(root.join(format!("data{file}"))).unwrap() == contents(file), "data{file}");
    }
    let mut found = 0;
    for dir in (0..names.div_ceil(10_000)).map(|dir| root.join(format!("dir{dir}"))) {
        found += fs::read_dir(dir).unwrap().map(Result::unwrap).count();
    }
    assert_eq!(found, names);
    assert!((0..names).step_by(97).all(|file| root.join(format!("dir{}", file / 10_000)).join(name(file)).exists()));
}

#[test]
fn a_tree_full_of_data_fits_into_the_group() {
    let _alone = alone();
    let Some(group) = group() else { return };
    let mounted = mounted_in(&group, &[]);
    let data = fill_with_data(&mounted.root());
    assert!(data as u64 >= LIMIT / MIB / 4, "a default of use: {data} MiB");
    assert_reads_back(&mounted.root(), data, 0);
    mounted.umount();
}

#[test]
fn a_tree_full_of_names_fits_into_the_group() {
    let _alone = alone();
    let Some(group) = group() else { return };
    let mounted = mounted_in(&group, &[]);
    let names = fill_with_names(&mounted.root());
    assert!(names >= 10_000, "a default of use: {names} files");
    assert_reads_back(&mounted.root(), 0, names);
    mounted.umount();
}

#[test]
fn a_tree_full_of_both_fits_into_the_group() {
    let _alone = alone();
    let Some(group) = group() else { return };
    let mounted = mounted_in(&group, &[]);
    let data = fill_with_data(&mounted.root());
    let names = fill_with_names(&mounted.root());
    assert_reads_back(&mounted.root(), data, names);
    // The memory of removed files is reused for files of another size.
    for entry in fs::read_dir(mounted.root()).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
    fill_with_sparse_pages(&mounted.root());
    fill_with_attributes(&mounted.root());
    assert!(common::names(&mounted.root()).len() > names / 3);
    mounted.umount();
}

/// As in a container: the kernel's memory for programs that use the tree is charged to the same
/// group.
#[test]
fn programs_in_the_group_can_fill_the_tree() {
    let _alone = alone();
    if !has(&["xargs"]) {
        return;
    }
    let Some(group) = group() else { return };
    let mounted = mounted_in(&group, &[]);
    let fill = "cd \"$0\" && mkdir names && ! cat /dev/zero > data && \
        ! seq -f names/%0250.0f 1000000 | xargs -n 500 /bin/sh -c 'touch \"$@\" 2> /dev/null || exit 255' sh";
    let filled = group.command("/bin/sh").args(["-c", fill]).arg(mounted.root()).output().unwrap();
    assert!(filled.status.success() && said(&filled).contains("No space left"), "{}", said(&filled));
    let data = fs::metadata(mounted.path("data")).unwrap().len();
    let full = rustix::fs::statfs(mounted.root()).unwrap();
    assert!(data >= LIMIT / 4 && full.f_ffree == 0 && full.f_files >= 10_000, "{data}: {full:?}");
    assert_eq!(fs::read_dir(mounted.path("names")).unwrap().count() as u64, full.f_files - 3);
    mounted.umount();
}

#[test]
fn a_size_above_the_limit_of_the_group_is_warned_of() {
    let _alone = alone();
    let Some(group) = group() else { return };
    let mut mounted = mounted_in(&group, &["--size", "1G"]);
    assert_eq!(rustix::fs::statfs(mounted.root()).unwrap().f_blocks * 4096, 1 << 30, "it is obeyed");
    assert!(run(&["umount", mounted.root().to_str().unwrap()]).status.success());
    let (_, errors) = mounted.ended();
    let dir = group.dir.display().to_string();
    assert!(errors.contains("--size") && errors.contains(&dir) && errors.contains("kill"), "{errors}");
    mounted_in(&group, &["--size", "50M", "--inodes", "1000"]).umount();
}

/// A source with more files than the cache may hold, listed while files come and go.
#[test]
fn a_source_larger_than_the_group_is_listed_completely() {
    const FILES: usize = 40_000;
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let Some(group) = MemoryGroup::new(96 * MIB) else { return };
    let source = tempfile::tempdir().unwrap();
    (0..FILES).for_each(|file| drop(fs::File::create(source.path().join(file.to_string())).unwrap()));
    let mounted = mounted_in(&group, &["--source", source.path().to_str().unwrap()]);
    let root = mounted.root();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..).take_while(|_| !is_done.load(Ordering::Relaxed)) {
                let [made, moved] = ["made", "moved"].map(|name| format!("{name}{n}"));
                fs::File::create(source.path().join(&made)).unwrap();
                fs::rename(root.join(&made), root.join(&moved)).unwrap();
                fs::remove_file(source.path().join(&moved)).unwrap();
            }
        });
        let listed = || {
            let mut seen = vec![0; FILES];
            for entry in fs::read_dir(&root)? {
                let entry = entry?;
                let name = entry.file_name();
                if let Ok(file) = name.to_str().unwrap().parse::<usize>() {
                    entry.metadata()?;
                    seen[file] += 1;
                }
            }
            io::Result::Ok(seen)
        };
        let seen = listed();
        is_done.store(true, Ordering::Relaxed);
        assert!(seen.unwrap().iter().all(|&times| times == 1), "each file exactly once");
    });
    mounted.umount();
}
