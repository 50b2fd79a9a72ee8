//! The ioctl that reads many entries of a directory, by the example program in C.

mod common;
mod requests;

use std::{
    fmt::Write,
    fs::{self, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use common::{Mounted, can_mount, has, said, set};
use requests::{Requests, alone};
use tempfile::TempDir;

const ANYBODY: &str = "65534";

/// The example program, compiled once.
fn example() -> &'static Path {
    static EXAMPLE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = EXAMPLE.get_or_init(|| {
        let (directory, fuse) = (tempfile::tempdir().unwrap(), concat!(env!("CARGO_MANIFEST_DIR"), "/../fuse"));
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let path = directory.path().join("xls");
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-I", &format!("{fuse}/include")]);
        assert!(cc.arg(format!("{fuse}/examples/xls.c")).arg("-o").arg(&path).status().expect("cc").success());
        (directory, path)
    });
    path
}

fn xls(dir: &Path) -> String {
    let output = Command::new(example()).arg(dir).output().expect("starts");
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The lines of one entry, by single system calls.
fn by_calls(dir: &Path, name: &str) -> String {
    let path = dir.join(name);
    let attr = fs::symlink_metadata(&path).expect("there");
    let mut text = format!(
        "{:06o} {} {} {} {} {}.{:09} {name}",
        attr.mode(),
        attr.nlink(),
        attr.uid(),
        attr.gid(),
        attr.size(),
        attr.mtime(),
        attr.mtime_nsec()
    );
    if attr.is_symlink() {
        write!(text, " -> {}", fs::read_link(&path).expect("a link").display()).unwrap();
    }
    text.push('\n');
    let mut list = vec![0; 65_536];
    let used = rustix::fs::llistxattr(&path, &mut list[..]).expect("listed");
    for xattr in list[..used].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 65_536];
        let used = rustix::fs::lgetxattr(&path, std::ffi::OsStr::from_bytes(xattr), &mut value[..]).expect("read");
        let value = String::from_utf8_lossy(&value[..used]).into_owned();
        writeln!(text, "    {}={value}", String::from_utf8_lossy(xattr)).unwrap();
    }
    text
}

#[test]
fn the_example_prints_what_single_calls_return() {
    if !can_mount() || !has(&["cc"]) {
        return;
    }
    let mounted = Mounted::new(&[]);
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    for file in 0..500 {
        fs::write(dir.join(format!("{}{file}", "f".repeat(file % 200))), "x".repeat(file)).unwrap();
    }
    symlink("where/it/leads", dir.join("link")).unwrap();
    fs::hard_link(dir.join("ff2"), dir.join("other")).unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    (0..25).for_each(|i| set(&dir.join("ff2"), &format!("user.{i:02}"), format!("value {i}").as_bytes()));
    set(&dir.join("link"), "trusted.of", b"a link");
    set(&dir.join("sub"), "user.empty", b"");
    for _ in 0..2 {
        // All names, in the order of readdir. The times of files do not change any more.
        let mut expected: Vec<String> = [".", ".."].map(|name| by_calls(&dir, name)).into();
        let names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        expected.extend(names.map(|name| by_calls(&dir, &name)));
        assert_eq!(expected.len(), 505);
        assert_eq!(xls(&dir), expected.concat());
    }
    let large = dir.join("sub/large");
    fs::write(&large, "").unwrap();
    set(&large, "user.large", &[b'l'; 20_000]);
    let many = dir.join("sub/many");
    fs::write(&many, "").unwrap();
    (0..120).for_each(|i| set(&many, &format!("user.{i}{}", "n".repeat(200)), b"value"));
    let listed = xls(&dir.join("sub"));
    assert!(listed.contains(" large\n    user.large=(20000 bytes: Numerical result out of range)\n"), "{listed}");
    assert!(listed.contains(" many\n    (Numerical result out of range)\n"), "{listed}");
    assert_eq!(listed.lines().filter(|line| !line.starts_with("    ")).count(), 4);
    mounted.umount();
}

/// The kernel checks none of this.
#[test]
fn each_caller_reads_what_its_permissions_allow() {
    if !can_mount() || !has(&["cc", "setpriv"]) || !common::is_root() {
        return;
    }
    let mounted = Mounted::new(&["--allow-other"]);
    fs::set_permissions(mounted.root().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    let (open, closed, group) = (dir.join("open"), dir.join("closed"), dir.join("group"));
    for (path, mode) in [(&open, 0o644), (&closed, 0o600), (&group, 0o040)] {
        fs::write(path, "").unwrap();
        set(path, "user.a", b"value");
        set(path, "trusted.b", b"hidden");
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::chown(&group, None, Some(777)).unwrap();
    let seen = |options: &[&str]| {
        let output = Command::new("setpriv").args(options).arg(example()).arg(&dir).output().expect("starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut xattrs: Vec<String> = Vec::new();
        for line in text.lines() {
            match line.strip_prefix("    ") {
                Some(xattr) => *xattrs.last_mut().expect("an entry") += &format!(" {xattr}"),
                None => xattrs.push(line.rsplit(' ').next().unwrap_or_default().to_owned()),
            }
        }
        xattrs.retain(|line| line.contains("user.") || line.contains("trusted."));
        xattrs.sort();
        (said(&output), xattrs)
    };
    let user = ["--reuid", ANYBODY, "--regid", ANYBODY];
    let (none, all) = ("user.a=(0 bytes: Permission denied)", "trusted.b=hidden user.a=value");
    assert_eq!(seen(&[]).1, ["closed", "group", "open"].map(|name| format!("{name} {all}")));
    let readable = |group: &str| [format!("closed {none}"), format!("group {group}"), "open user.a=value".into()];
    assert_eq!(seen(&[&user[..], &["--clear-groups"]].concat()).1, readable(none));
    assert_eq!(seen(&[&user[..], &["--groups", "777"]].concat()).1, readable("user.a=value"));
    // Root without the capabilities.
    let weak = ["--bounding-set=-all", "--inh-caps=-all", "--reuid=0"];
    let weak = seen(&[&weak[..], &["--clear-groups"]].concat()).1;
    assert!(weak.iter().all(|line| !line.contains("trusted.b")), "{weak:?}");
    fs::set_permissions(&dir, Permissions::from_mode(0o744)).unwrap();
    let (said, xattrs) = seen(&[&user[..], &["--clear-groups"]].concat());
    assert_eq!((said.as_str(), xattrs), ("", Vec::new()));
    let output = Command::new("setpriv").args(user).arg("--clear-groups").arg(example()).arg(&dir).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.lines().all(|line| line.starts_with("(Permission denied) ")) && text.lines().count() == 5, "{text}");
    mounted.umount();
}

/// Other calls, other sizes, and nonsense.
#[test]
fn what_is_no_such_call_has_its_errno() {
    if !can_mount() || !has(&["python3"]) {
        return;
    }
    let mounted = Mounted::new(&[]);
    fs::write(mounted.path("file"), "").unwrap();
    fs::create_dir(mounted.path("gone")).unwrap();
    let script = r"
import errno, fcntl, os, sys
def call(fd, command, cookie, mask, size=16376):
    buffer = bytearray(cookie.to_bytes(8, sys.byteorder) + mask.to_bytes(4, sys.byteorder) + bytes(size - 12))
    try:
        fcntl.ioctl(fd, command, buffer)
        print(int.from_bytes(buffer[12:16], sys.byteorder), int.from_bytes(buffer[20:24], sys.byteorder))
    except OSError as error:
        print(errno.errorcode[error.errno])
def command(size, number=1, kind=0xb6):
    return 3 << 30 | size << 16 | kind << 8 | number
directory, file = os.open('.', os.O_RDONLY), os.open('file', os.O_RDONLY)
gone = os.open('gone', os.O_RDONLY)
os.rmdir('gone')
whole = command(16376)
call(directory, whole, 0, 1)
call(directory, whole, 2**63 - 1, 1)
call(directory, whole, 2**63, 1)
call(directory, whole, 0, 16)
call(directory, whole, 0, 2**31)
call(directory, command(16368), 0, 1)
call(directory, command(16376, 2), 0, 1)
call(directory, command(16376, 1, 0xb7), 0, 1)
call(file, whole, 0, 1)
call(gone, whole, 0, 1)
";
    let mut python = Command::new("python3");
    let output = python.args(["-c", script]).current_dir(mounted.root()).output().expect("starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = "0 3\n0 0\nEINVAL\nEINVAL\nEINVAL\nENOTTY\nENOTTY\nENOTTY\nENOTTY\nENOENT\n";
    assert_eq!(said, expected, "{}", common::said(&output));
    mounted.umount();
}

/// An entry in a record costs what it costs by single calls: entries are served eight at a time.
#[test]
fn delays_and_faults_apply_to_records() {
    let _alone = alone();
    if !can_mount() || !has(&["cc"]) {
        return;
    }
    let filled = |options: &[&str]| {
        let mounted = Mounted::new(options);
        (0..60).for_each(|i| fs::write(mounted.path(format!("f{i}")), "").unwrap());
        mounted
    };
    let mounted = filled(&["--delay", "getattr=1ms", "--depth", "8"]);
    let before = Requests::of(&mounted);
    assert_eq!(xls(&mounted.root()).lines().count(), 62);
    let after = Requests::of(&mounted);
    let asked = after.since(&before);
    assert_eq!((asked.count("ioctl"), asked.count("entries"), asked.count("getxattr")), (1, 62, 0), "{asked:?}");
    assert_eq!(after.count("in_flight_max"), 8);
    mounted.umount();
    let mounted = filled(&["--fault", "read=EIO@1000000"]);
    let output = Command::new(example()).arg(mounted.root()).output().expect("starts");
    assert!(said(&output).trim_end().ends_with("Inappropriate ioctl for device"), "{}", said(&output));
    mounted.umount();
}
