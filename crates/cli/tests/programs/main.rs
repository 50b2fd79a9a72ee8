//! Real programs on the mounted tree: their results are compared with those on a trusted file
//! system. Each test ends with an unmount, and the server must end successfully and without
//! messages.

#[path = "../common/mod.rs"]
mod common;
mod exercisers;

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use common::{Mounted, can_mount, has, skipped};
use rustix::{
    fs::{CWD, Dev, FileType, Mode, XattrFlags, makedev, mknodat},
    mount::{UnmountFlags, unmount},
};

/// A program that runs longer than this hangs: it is killed, and the test fails.
const HANG_SECONDS: &str = "400";

/// Runs a shell in `dir`, without the caller's own settings and without the repository of a git
/// hook. It stops at the first failure. Parameters are `$1`, `$2` and so on. Returns its output.
fn shell(dir: &Path, script: &str, args: &[&OsStr]) -> String {
    let mut command = Command::new("timeout");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GIT_")) {
        command.env_remove(name);
    }
    let output = command
        .args(["--kill-after=10", HANG_SECONDS, "/bin/sh", "-euc", script, "sh"])
        .args(args)
        .current_dir(dir)
        .env("LC_ALL", "C")
        .env("HOME", dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {script}\n{said}\n{errors}", output.status);
    said
}

/// A tar of real files of this machine, at least `entries` of them, with their directories and
/// symbolic links. None if there are not enough.
fn real_files(into: &Path, entries: usize) -> Option<PathBuf> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok();
    let sysroot = sysroot.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()).filter(|s| !s.is_empty());
    let tar = into.join("real.tar");
    for root in ["/usr", "/usr/local"].into_iter().map(str::to_owned).chain(sysroot) {
        // find prints a directory before its entries, so the first lines are a tree. tar
        // notices (exit status 1) if a file is written meanwhile, and packs what it has
        // read, which is as good.
        let script = r#"
            cd "$1"
            find . -xdev \( -type d -o -type l -o -type f -size -512k \) -print0 | head -z -n "$3" > "$2.list"
            tar --create --file "$2" --no-recursion --null --files-from "$2.list" || [ $? = 1 ]
            tr -cd '\0' < "$2.list" | wc -c"#;
        let entries_text = entries.to_string();
        let args = [root.as_ref(), tar.as_os_str(), entries_text.as_ref()];
        if shell(into, script, &args).trim() == entries_text {
            return Some(tar);
        }
    }
    None
}

/// Asserts that diff and rsync find two trees equal: names, contents, kinds, modes, owners, times,
/// hard links, extended attributes. Times are compared to the nanosecond, because rsync by default
/// compares seconds.
fn assert_same(one: &Path, other: &Path) {
    let diff = "diff --recursive --no-dereference \"$1\" \"$2\"";
    let rsync = r#"rsync -aHX --modify-window=-1 --numeric-ids --dry-run --delete --itemize-changes "$1/" "$2/""#;
    let args = [one.as_os_str(), other.as_os_str()];
    // diff does not compare fifos and devices. The listing does.
    let plain =
        |tree: &Path| shell(tree, "find . \\( -type p -o -type s -o -type b -o -type c \\) -print", &[]).is_empty();
    if plain(one) {
        assert_eq!(shell(Path::new("/"), diff, &args), "");
    }
    assert_eq!(shell(Path::new("/"), rsync, &args), "", "rsync sees a difference");
    assert_eq!(listing(one), listing(other));
}

/// The attributes of stat that should survive a copy, for each file of a tree.
fn listing(tree: &Path) -> BTreeSet<String> {
    let script = r"find . \( -type d -printf '%p %y %m %U %G %T@\0' -o -printf '%p %y %m %n %U %G %s %T@ %l\0' \)";
    shell(tree, script, &[]).split('\0').map(str::to_owned).collect()
}

/// Asserts that nothing of the server is left, not even its process.
fn unmounted(mounted: Mounted) {
    let root = mounted.root();
    mounted.umount();
    for process in fs::read_dir("/proc").expect("/proc").flatten() {
        let command_line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let of_pando = command_line.split(|&b| b == 0).any(|arg| arg == root.as_os_str().as_bytes());
        assert!(!of_pando, "still runs: {}", String::from_utf8_lossy(&command_line));
    }
}

/// Asserts that an empty tree uses nothing.
fn assert_all_given_back(mounted: &Mounted) {
    // The kernel sends what it has forgotten a little later, among its requests, so this makes
    // a bounded number of them. The root is the only inode that stays.
    let used = || {
        let stat = rustix::fs::statvfs(mounted.root()).expect("it answers");
        (stat.f_blocks - stat.f_bfree, stat.f_files - stat.f_ffree)
    };
    let given_back = (0..100_000).any(|_| used() == (0, 1));
    assert!(given_back, "nothing is there, and {:?} blocks and inodes are used", used());
}

#[test]
fn a_tar_of_ten_thousand_files_is_unpacked_unchanged() {
    if !can_mount() || !has(&["tar", "diff", "cmp", "rsync", "find"]) {
        return;
    }
    let temp = tempfile::tempdir().expect("a directory");
    let Some(tar) = real_files(temp.path(), 12_000) else {
        return skipped("this machine has not 12,000 files to pack");
    };
    let expected = temp.path().join("expected");
    fs::create_dir(&expected).expect("made");
    let mounted = Mounted::new(&[]);
    let tree = mounted.path("tree");
    fs::create_dir(&tree).expect("made");
    let extract = r#"tar --extract --preserve-permissions --file "$1""#;
    shell(&expected, extract, &[tar.as_os_str()]);
    shell(&tree, extract, &[tar.as_os_str()]);
    assert!(listing(&tree).len() > 10_000);
    assert_same(&expected, &tree);
    // Packed again from the mount, it is the same archive. Then everything is removed.
    let names = format!("{}.list", tar.display());
    let repack = r#"tar --create --no-recursion --null --files-from "$1" | cmp - "$2""#;
    let reference = temp.path().join("again.tar");
    let pack = r#"tar --create --no-recursion --null --files-from "$1" --file "$2""#;
    shell(&expected, pack, &[names.as_ref(), reference.as_os_str()]);
    shell(&tree, repack, &[names.as_ref(), reference.as_os_str()]);
    shell(&mounted.root(), "rm -r tree && test -z \"$(ls -A)\"", &[]);
    assert_all_given_back(&mounted);
    unmounted(mounted);
}

#[test]
fn git_keeps_its_history() {
    if !can_mount() || !has(&["git", "tar", "diff", "find"]) {
        return;
    }
    let temp = tempfile::tempdir().expect("a directory");
    let Some(tar) = real_files(temp.path(), 3_000) else {
        return skipped("this machine has not 3,000 files to pack");
    };
    let mounted = Mounted::new(&[]);
    let script = r#"
        mkdir work
        cd work
        tar --extract --file "$1"
        # What git does not keep, or takes for its own.
        find . -name .git -prune -exec rm -rf {} +
        find . -name '.git*' -delete
        find . -depth -mindepth 1 -type d -empty -delete
        git init --quiet --initial-branch=main
        git config user.name Somebody
        git config user.email somebody@example.org
        git add --all
        git commit --quiet --message "all of it"
        git fsck --full --strict --no-dangling
        test -z "$(git status --porcelain)"

        git checkout --quiet -b side
        find . -path ./.git -prune -o -type f -print | head -n 200 | while read -r file; do echo more >> "$file"; done
        git commit --quiet --all --message "more of some"
        git mv "$(git ls-files | head -n 1)" moved
        git commit --quiet --message "one is moved"
        git checkout --quiet main
        echo new > new
        git add new
        git commit --quiet --message "a new one"
        git merge --quiet --message "both" side
        test -z "$(git status --porcelain)"

        # By hard links, and by packs.
        git clone --quiet . ../linked
        git clone --quiet --no-local . ../packed
        git gc --quiet --prune=now
        for clone in . ../linked ../packed; do git -C "$clone" fsck --full --strict; done
        test "$(git rev-parse main)" = "$(git -C ../packed rev-parse main)"
        test "$(git rev-list --count main)" = 5
        cd ..
        diff --recursive --no-dereference --exclude .git work linked
        diff --recursive --no-dereference --exclude .git work packed
        test "$(git -C packed ls-files | wc -l)" -gt 1000
        rm -rf work linked packed"#;
    shell(&mounted.root(), script, &[tar.as_os_str()]);
    unmounted(mounted);
}

#[test]
fn sqlite_keeps_committed_data() {
    if !can_mount() || !has(&["sqlite3"]) {
        return;
    }
    let mounted = Mounted::new(&[]);
    for journal in ["wal", "delete", "truncate", "persist"] {
        let script = r#"
            db=$1.db
            say() { sqlite3 -bail -cmd '.timeout 60000' "$db" "$@"; }
            test "$(say "pragma journal_mode=$1")" = "$1"
            say "pragma synchronous=normal; create table t(writer, n, filler); create index i on t(n, writer)" > /dev/null

            # Three writers at once, each in small transactions, while a reader looks on.
            writer() {
                for i in $(seq 30); do
                    echo "begin immediate;"
                    echo "with recursive c(n) as (values(1) union all select n + 1 from c where n < 100)"
                    echo "insert into t select $1, n, randomblob(300) from c;"
                    echo "commit;"
                done | sqlite3 -bail -cmd '.timeout 60000' "$db"
            }
            writer 1 & one=$!
            writer 2 & two=$!
            writer 3 & three=$!
            for i in $(seq 10); do test $(($(say "select count(*) from t") % 100)) = 0; done
            wait $one; wait $two; wait $three
            test "$(say "select count(*), count(distinct writer) from t")" = "9000|3"

            # A writer that dies in a transaction that is on the disk already leaves nothing of it.
            sqlite3 "$db" "pragma cache_size=1" "begin" "update t set filler = 'lost', n = -n" \
                ".shell kill -9 \$PPID" > /dev/null 2>&1 && exit 1
            test "$(say "select count(*), sum(n > 0), sum(filler = 'lost') from t")" = "9000|9000|0"
            say "delete from t where n % 3 = 0; vacuum"
            test "$(say "select count(*) from t")" = 6030
            test "$(say "pragma integrity_check")" = ok"#;
        shell(&mounted.root(), script, &[journal.as_ref()]);
    }
    unmounted(mounted);
}

#[test]
fn cargo_builds_a_crate() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    if !can_mount() || !(Path::new(&cargo).is_file() || has(&["cargo"])) || !has(&["grep"]) {
        return;
    }
    let mounted = Mounted::new(&[]);
    let script = r#"
        cargo=$1
        export CARGO_NET_OFFLINE=true CARGO_TARGET_DIR="$PWD/target"
        unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS RUSTC_WRAPPER
        "$cargo" new --quiet --vcs none --lib leaf
        cd leaf
        cat > src/lib.rs <<'END'
//! A leaf.
/// Their number.
pub fn leaves() -> u32 { include!(concat!(env!("OUT_DIR"), "/number")) }
#[test] fn there_are_some() { assert!(leaves() > 0); }
END
        cat > build.rs <<'END'
fn main() {
    println!("cargo::rerun-if-changed=number");
    std::fs::copy("number", std::path::Path::new(&std::env::var("OUT_DIR").unwrap()).join("number")).unwrap();
}
END
        mkdir src/bin
        echo 'fn main() { println!("{}", leaf::leaves()) }' > src/bin/count.rs
        echo 47000 > number
        "$cargo" build --quiet
        test "$("$CARGO_TARGET_DIR/debug/count")" = 47000
        "$cargo" test --quiet
        # It notices what has changed, and only that.
        echo 47001 > number
        test "$("$cargo" run --quiet)" = 47001
        "$cargo" build 2>&1 | grep -q '^ *Finished'
        test -z "$("$cargo" build 2>&1 | grep Compiling)""#;
    // rustup finds its toolchains through the real home directory, unlike the built files.
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/root".into());
    let script = format!("export HOME=\"$2\"\n{script}");
    shell(&mounted.root(), &script, &[&cargo, &home]);
    unmounted(mounted);
}

/// A mounted ext4 file system in a file. Dropping it unmounts it.
struct Ext4(tempfile::TempDir);

impl Ext4 {
    /// None, after reporting why, if there are no loop devices.
    fn new() -> Option<Self> {
        let temp = tempfile::tempdir().expect("a directory");
        shell(temp.path(), "truncate --size 256M image && mkfs.ext4 -q -F -b 4096 image && mkdir at", &[]);
        let mount = Command::new("mount").args(["-o", "loop", "image", "at"]).current_dir(temp.path()).output();
        let mount = mount.expect("mount starts");
        if mount.status.success() {
            return Some(Self(temp));
        }
        skipped(&format!("no loop device: {}", String::from_utf8_lossy(&mount.stderr).trim()));
        None
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("at")
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = unmount(self.root(), UnmountFlags::DETACH);
    }
}

/// The length of the sparse file.
const SPARSE_BYTES: u64 = 192 << 20;

/// One of everything that a copy may lose.
fn one_of_everything(tree: &Path) {
    let path = |name: &str| tree.join(name);
    let write = |name: &str, text: &str| fs::write(path(name), text).expect("written");
    for dir in ["empty", "a/b/c", "sticky"] {
        fs::create_dir_all(path(dir)).expect("made");
    }
    fs::set_permissions(path("sticky"), fs::Permissions::from_mode(0o1777)).expect("set");
    write("setuid", "#!/bin/sh\n");
    fs::set_permissions(path("setuid"), fs::Permissions::from_mode(0o6755)).expect("set");
    write("secret", "nobody reads this");
    fs::set_permissions(path("secret"), fs::Permissions::from_mode(0o000)).expect("set");
    write("owned", "by somebody else");
    std::os::unix::fs::chown(path("owned"), Some(1234), Some(4321)).expect("given");

    write("a/first", "one file, three names");
    fs::hard_link(path("a/first"), path("a/b/second")).expect("linked");
    fs::hard_link(path("a/first"), path("third")).expect("linked");
    symlink("a/first", path("link")).expect("linked");
    symlink("no/where", path("dangling")).expect("linked");
    fs::hard_link(path("dangling"), path("a/dangling too")).expect("linked");

    let mut sparse = fs::File::create(path("sparse")).expect("made");
    sparse.set_len(SPARSE_BYTES).expect("grown");
    for offset in [0, 5 << 20, (100 << 20) + 12345, SPARSE_BYTES - 4096] {
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"an island", offset).expect("written");
    }
    sparse.flush().expect("written");

    let special = |name: &str, kind, dev: Dev| mknodat(CWD, path(name), kind, Mode::from_raw_mode(0o640), dev);
    special("fifo", FileType::Fifo, 0).expect("made");
    special("null", FileType::CharacterDevice, makedev(1, 3)).expect("made");
    special("block", FileType::BlockDevice, makedev(7, 200)).expect("made");
    drop(UnixListener::bind(path("socket")).expect("bound"));

    for (name, key, value) in [
        ("a", "user.of a directory", &b"value"[..]),
        ("a/first", "user.empty", b""),
        ("a/first", "user.binary", &[0, 255, 10, 0]),
        ("owned", "user.long", &[b'x'; 1500]),
        ("owned", "trusted.hidden", b"root's own"),
        ("link", "trusted.of a link", b"itself"),
    ] {
        rustix::fs::lsetxattr(path(name), key, value, XattrFlags::CREATE)
            .unwrap_or_else(|e| panic!("{name} {key}: {e}"));
    }

    write("new\nline", "a name of two lines");
    fs::write(tree.join(OsStr::from_bytes(b"\xff\xfe no text \x01")), "bytes").expect("written");
    write(&"n".repeat(255), "the longest name");
    write("old", "from another time");
    let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1, 123_456_789));
    fs::File::options().write(true).open(path("old")).expect("opens").set_times(times).expect("set");
}

/// All extended attributes of a tree, as printed by getfattr, file by file.
fn xattrs(tree: &Path) -> BTreeSet<String> {
    let printed =
        shell(tree, "getfattr --dump --match=- --recursive --no-dereference --physical --encoding=hex .", &[]);
    let files: BTreeSet<String> = printed.split("\n\n").map(str::to_owned).collect();
    assert!(files.len() >= 6, "{printed}");
    files
}

#[test]
fn rsync_from_ext4_and_back_loses_nothing() {
    if !can_mount() || !has(&["rsync", "mkfs.ext4", "mount", "getfattr", "find", "diff", "cmp"]) {
        return;
    }
    let Some(ext4) = Ext4::new() else { return };
    let (there, back) = (ext4.root().join("there"), ext4.root().join("back"));
    fs::create_dir(&there).expect("made");
    one_of_everything(&there);

    let mounted = Mounted::new(&[]);
    let here = mounted.path("here");
    let copy = r#"rsync -aHX --modify-window=-1 --sparse --numeric-ids "$1/" "$2/""#;
    for (from, to) in [(&there, &here), (&here, &back)] {
        shell(Path::new("/"), copy, &[from.as_os_str(), to.as_os_str()]);
        assert_same(from, to);
        shell(Path::new("/"), r#"cmp "$1/sparse" "$2/sparse""#, &[from.as_os_str(), to.as_os_str()]);
        assert_eq!(xattrs(from), xattrs(to));
        let device = |tree: &Path| fs::symlink_metadata(tree.join("block")).expect("there").rdev();
        assert_eq!(device(from), device(to));
    }
    let first = fs::metadata(here.join("a/first")).expect("there");
    assert_eq!(first.nlink(), 3);
    for name in ["a/b/second", "third"] {
        assert_eq!(fs::metadata(here.join(name)).expect("there").ino(), first.ino(), "{name}");
    }
    let sparse = fs::metadata(here.join("sparse")).expect("there");
    assert!(
        sparse.len() == SPARSE_BYTES && sparse.blocks() <= 8 * 8,
        "{} bytes in {} blocks",
        sparse.len(),
        sparse.blocks()
    );
    assert_same(&there, &back);
    assert_eq!(xattrs(&there), xattrs(&back));
    unmounted(mounted);
}
