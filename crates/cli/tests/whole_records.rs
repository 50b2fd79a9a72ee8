//! On a mount, scans read whole records by the ioctl. They are those that single calls return.

mod common;
mod requests;

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use common::{Mounted, can_mount, copy_to, has, is_root, said, set};
use pando_scan::{Attr, Fields, Mask, Options, Record, Scan, Time, Workers, XattrValue};
use requests::{Requests, alone};

const ANYBODY: &str = "65534";

/// Everything that a record shows.
#[derive(Debug, PartialEq)]
struct Shown {
    name: Vec<u8>,
    entry: (u64, u64, u8),
    attr: Option<Attr>,
    errnos: [Option<i32>; 2],
    target: Option<Result<Vec<u8>, i32>>,
    end: Option<Result<u32, i32>>,
    has_capabilities: bool,
    xattrs: Vec<(Vec<u8>, Value)>,
}

/// The value of an extended attribute, or an errno.
type Value = Result<Vec<u8>, i32>;

impl Shown {
    fn of(record: &Record<'_>) -> Self {
        // The kernel has more bits that it knows. It keeps no birth times in its cache.
        let have = Fields::all() - Fields::BTIME;
        let plain = |attr: &Attr| Attr { attributes_mask: 0, btime: Time::default(), have: attr.have & have, ..*attr };
        let value = |value| match value {
            XattrValue::NotRead => Ok(Vec::new()),
            XattrValue::Bytes(bytes) => Ok(bytes.to_vec()),
            XattrValue::Errno(errno) => Err(errno),
        };
        Self {
            name: record.name().to_vec(),
            entry: (record.ino(), record.cookie(), record.dtype()),
            attr: record.attr().map(plain),
            errnos: [record.errno(), record.xattr_errno()],
            target: record.link_target().map(|target| target.map(<[u8]>::to_vec)),
            end: record.link_end(),
            has_capabilities: record.has_capabilities(),
            xattrs: record.xattrs().map(|xattr| (xattr.name.to_vec(), value(xattr.value))).collect(),
        }
    }
}

fn scan(dir: &Path, options: Options) -> Vec<Shown> {
    let mut scan = Scan::open(dir, &options).expect("opened");
    let mut all = Vec::new();
    while let Some(batch) = scan.next_batch().expect("read") {
        all.extend(batch.iter().map(|record| Shown::of(&record)));
    }
    all
}

/// By the ioctl, if the file system has it.
fn whole(dir: &Path, options: Options) -> Vec<Shown> {
    scan(dir, options.workers(Workers::Fixed(1)))
}

/// Threads call for single entries.
fn single(dir: &Path, options: Options) -> Vec<Shown> {
    scan(dir, options.workers(Workers::Fixed(2)))
}

fn assert_alike(records: &[Shown], expected: &[Shown], options: Options) {
    for (record, expected) in records.iter().zip(expected) {
        assert_eq!(record, expected, "{options:?}");
    }
    assert_eq!(records.len(), expected.len());
}

/// Whether scans can see what is mounted, which they must. If not, reports why, and fails if a skip
/// is not allowed.
fn has_listmount() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let has = (numbers.next(), numbers.next()) >= (Some(6), Some(8));
    if !has {
        common::skipped(&format!("Linux {release} has no listmount"));
    }
    has
}

/// A directory with entries of all kinds.
fn filled(mounted: &Mounted) -> PathBuf {
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    for file in 0..700 {
        fs::write(dir.join(format!("{}{file}", "f".repeat(file % 200))), "x".repeat(file)).unwrap();
    }
    symlink("where/it/leads", dir.join("dangling")).unwrap();
    symlink("f1", dir.join("link")).unwrap();
    fs::hard_link(dir.join("f1"), dir.join("other")).unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    (0..25).for_each(|i| set(&dir.join("f1"), &format!("user.{i:02}"), format!("value {i}").as_bytes()));
    set(&dir.join("link"), "trusted.of", b"a link");
    set(&dir.join("sub"), "user.empty", b"");
    let run = dir.join("run");
    fs::write(&run, "").unwrap();
    fs::set_permissions(&run, Permissions::from_mode(0o755)).unwrap();
    // Version 2, effective: CAP_NET_BIND_SERVICE.
    set(&run, "security.capability", &[&[1, 0, 0, 2, 0, 4][..], &[0; 14]].concat());
    // Its value does not fit into a reply.
    set(&dir.join("ff2"), "user.large", &[b'l'; 20_000]);
    dir
}

#[test]
fn records_are_those_that_single_calls_return() {
    let _alone = alone();
    if !can_mount() || !has_listmount() {
        return;
    }
    // Requests are counted where some are delayed.
    let mounted = Mounted::new(&["--delay", "read=1us"]);
    let dir = filled(&mounted);
    // The access times of links do not change any more.
    single(&dir, Options::new().mask(Mask::all()));
    let masks = [
        Mask::STAT,
        Mask::XATTR_NAMES,
        Mask::level(2).unwrap(),
        Mask::level(3).unwrap(),
        Mask::STAT | Mask::LINK_TARGETS | Mask::LINK_ENDS,
        Mask::LINK_TARGETS,
        Mask::STAT | Mask::CAPABILITIES,
        Mask::all(),
    ];
    for mask in masks {
        for (dots, follow) in [(false, false), (true, false), (false, true), (true, true)] {
            let options = Options::new().mask(mask).dots(dots).follow(follow);
            let before = Requests::of(&mounted);
            let records = whole(&dir, options);
            let asked = Requests::of(&mounted).since(&before);
            assert_eq!(records.len(), if dots { 707 } else { 705 });
            assert_alike(&records, &single(&dir, options), options);
            assert!(asked.count("ioctl") > 1 && asked.count("readdirplus") + asked.count("readdir") == 0, "{asked:?}");
        }
    }
    let names = whole(&dir, Options::new().mask(Mask::empty()));
    assert_eq!(names.len(), 705);
    mounted.umount();
}

/// A scan can continue from any entry, also after its end.
#[test]
fn scan_continues_where_it_is_told() {
    let _alone = alone();
    if !can_mount() || !has_listmount() {
        return;
    }
    let mounted = Mounted::new(&["--delay", "read=1us"]);
    let dir = filled(&mounted);
    let all = whole(&dir, Options::new());
    let mut scan = Scan::open(&dir, &Options::new().workers(Workers::Fixed(1))).unwrap();
    for from in [3, 400, 704, 0, 705, 1] {
        scan.seek(if from == 0 { 0 } else { all[from - 1].entry.1 }).unwrap();
        let (before, mut shown) = (Requests::of(&mounted), Vec::new());
        while let Some(batch) = scan.next_batch().unwrap() {
            shown.extend(batch.iter().map(|record| Shown::of(&record)));
        }
        assert_alike(&shown, &all[from..], Options::new());
        let asked = Requests::of(&mounted).since(&before);
        assert!(asked.count("ioctl") > 0 && asked.count("readdirplus") + asked.count("readdir") == 0, "{asked:?}");
    }
    drop(scan);
    mounted.umount();
}

/// The names of the extended attributes of an entry are more than a reply holds.
#[test]
fn names_that_do_not_fit_into_a_reply_are_read_by_single_calls() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let dir = filled(&mounted);
    let all = whole(&dir, Options::new().mask(Mask::level(3).unwrap()));
    let middle = dir.join(std::str::from_utf8(&all[300].name).unwrap());
    (0..120).for_each(|i| set(&middle, &format!("user.{i}{}", "n".repeat(200)), b"v"));
    let options = Options::new().mask(Mask::level(3).unwrap());
    let records = whole(&dir, options);
    assert_eq!(records[300].xattrs.len(), 120 + all[300].xattrs.len());
    assert_alike(&records, &single(&dir, options), options);
    mounted.umount();
}

/// Only the kernel knows what is mounted on an entry.
#[test]
fn roots_of_other_mounts_are_shown_as_statx_shows_them() {
    let _alone = alone();
    if !can_mount() || !has(&["mount", "umount"]) {
        return;
    }
    let mounted = Mounted::new(&[]);
    let dir = filled(&mounted);
    let on = dir.join("sub");
    let status = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&on).status().expect("starts");
    assert!(status.success());
    let options = Options::new().fields(Fields::all());
    let records = whole(&dir, options);
    let alike = records == single(&dir, options);
    assert!(Command::new("umount").arg(&on).status().expect("starts").success());
    assert!(alike);
    let mut devices: Vec<_> = records.iter().filter_map(|record| record.attr.map(|attr| attr.dev())).collect();
    devices.sort_unstable();
    devices.dedup();
    assert_eq!(devices.len(), 2);
    assert!(records != whole(&dir, options), "the mount is gone");
    mounted.umount();
}

/// What `ls` and `pando ls` print, by another user or in another user namespace.
#[test]
fn other_users_see_what_single_calls_show_them() {
    let _alone = alone();
    if !can_mount() || !has(&["setpriv", "unshare", "ls"]) || !is_root() {
        return;
    }
    let mounted = Mounted::new(&["--allow-other"]);
    let outside = mounted.root().parent().unwrap().to_owned();
    fs::set_permissions(&outside, Permissions::from_mode(0o755)).unwrap();
    let pando = copy_to(&outside);
    let dir = filled(&mounted);
    std::os::unix::fs::chown(dir.join("f1"), Some(1234), Some(777)).unwrap();
    let by = |wrapper: &[&str], program: &[&str]| -> Output {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).args(program).args(["-lan", "--color=always"]).arg(&dir);
        command.env("LC_ALL", "C").output().expect("starts")
    };
    let pando = [pando.to_str().unwrap(), "ls"];
    let user = ["setpriv", "--reuid", ANYBODY, "--regid", ANYBODY, "--clear-groups"];
    let namespace = ["unshare", "--user", "--map-root-user"];
    for mode in [0o755, 0o744, 0o711] {
        fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
        for wrapper in [&user[..], &namespace[..]] {
            let (expected, found) = (by(wrapper, &["ls"]), by(wrapper, &pando));
            let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
            for (found, expected) in text(&found).lines().zip(text(&expected).lines()) {
                assert_eq!(found, expected, "{mode:o} {wrapper:?}");
            }
            assert_eq!(found.stdout.len(), expected.stdout.len(), "{mode:o} {wrapper:?}: {}", said(&found));
            assert_eq!(found.status.code(), expected.status.code(), "{mode:o} {wrapper:?}");
        }
    }
    mounted.umount();
}
